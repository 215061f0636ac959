/* plan_ways.h - ways to train the same model on the same data, side by side: what each takes, and whether it fits. They train other things,
 * so that a person chooses; nothing is chosen here. */
#ifndef PT_PLAN_WAYS_H
#define PT_PLAN_WAYS_H

#include "plan/plan.h"

#include <jansson.h>

enum { PLAN_WAYS = 8 };

typedef struct plan_way {
    const char *name;
    bool fits;
    double step_s, tokens_per_s; /* 0 where it does not fit */
    uint64_t bytes[TIERS];       /* peaks; where it does not fit, budgets that would do */
    bool beyond[TIERS];          /* of the latter, those that are not there */
} plan_way;

struct exchange_cost; /* planning.h */

/* Fills in all but the name; what is planned is what `o` says alone, and what ranks' exchanges take. PT_FAILED: it cannot be planned at
 * all. plan_open.c */
int plan_way_of(const pt_train_options *o, const struct exchange_cost *exchange, plan_way *out, pt_error *e);

/* Returns how many there are. `own`: of the options themselves, where a way is just that. */
int plan_ways_find(const pt_train_options *o, const struct exchange_cost *exchange, const plan_way *own, plan_way out[PLAN_WAYS]);
char *plan_ways_text(const plan_way *ways, int n); /* lines; malloc'ed, NULL: out of memory */
json_t *plan_ways_json(const plan_way *ways, int n);

#endif
