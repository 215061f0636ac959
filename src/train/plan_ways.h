/* plan_ways.h - compares ways to train the same model on the same data: what each takes, and whether it fits. They train different things,
 * so the user chooses. */
#ifndef PT_PLAN_WAYS_H
#define PT_PLAN_WAYS_H

#include "plan/plan.h"

#include <jansson.h>

enum { PLAN_WAYS = 8, PLAN_WAY_NAME = 40 };

typedef struct plan_way {
    char name[PLAN_WAY_NAME];
    char options[PLAN_WAY_NAME]; /* that make it of the options asked for: "`lora_rank` 16"; "": it is not made by adding options */
    bool asked; /* it is what the options say */
    bool fits;
    double step_s, tokens_per_s; /* 0 if it does not fit */
    uint64_t bytes[TIERS];       /* peaks; if it does not fit, budgets that would suffice */
    bool beyond[TIERS];          /* which of these budgets exceed the machine */
    uint64_t least[TIERS];       /* of the plan with the least memory on the device (search_leanest); 0: unknown */
    double least_step_s;
    int64_t longest;             /* tokens of the longest sequence that fits (lighter_longest) */
} plan_way;

struct exchange_cost; /* planning.h */

/* Fills in everything except the name, for the options `o` and these costs of the ranks' exchanges. PT_FAILED: they cannot be planned.
 * out->longest: a guess. (plan_open.c) */
int plan_way_of(const pt_train_options *o, const struct exchange_cost *exchange, plan_way *out, pt_error *e);

/* Returns their number. `own`: the result for the given options, used if a way is the same. */
int plan_ways_find(const pt_train_options *o, const struct exchange_cost *exchange, const plan_way *own, plan_way out[PLAN_WAYS]);
/* Lines, without ways that save nothing beside one above them, unless asked for; malloc'ed, NULL: out of memory. */
char *plan_ways_text(const plan_way *ways, int n);
json_t *plan_ways_json(const plan_way *ways, int n); /* all of them */

#endif
