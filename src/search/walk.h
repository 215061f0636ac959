/* walk.h - the state of a search, and the steps that it consists of (search.c gives their order).
 *
 * All work on plans that were simulated (`priced`), except descents, which use the estimate. Steps stop early, without an error, when
 * the work is done. An int is 0 or negative (an error, in w->e) unless stated.
 */
#ifndef PT_WALK_H
#define PT_WALK_H

#include "search/ahead.h"

enum { MOVES = 4096, STARTS = 24, KEPT = 64, APART = 64, KINDS = 2048 };

/* The least factor by which an estimate was too low, for candidates of one kind. */
typedef struct bias { uint64_t kind; double factor; } bias; /* kind 0: none */

typedef struct walk {
    space s;
    double begun_s;
    double before, limit;   /* the space's work until something was found to fit, and the most that may be done */
    bool wide;              /* nothing more is found near by: rely less on estimates and corrections */
    bool less;              /* within less than the device's memory: what is kept meanwhile is no result */
    bool brisk;             /* look only for large gains, and briefly: first phase for models of many layers */
    ranked *order;
    ahead *ahead;           /* for models of many layers; else NULL */
    ranked starts[STARTS];
    int starts_n;
    priced kept[KEPT];      /* the fastest, in order */
    int kept_n;
    priced apart[APART];    /* the fastest of each (or of APART) size of chunk, division and time of update; in no order */
    int apart_n;
    struct { double at_s, ns; } better[256]; /* when the best plan improved, and to what */
    int better_n;
    bias biases[KINDS];
    int biases_n;
    priced policies[POLICIES];
    bool policy_fits[POLICIES];
    pt_error *e;
} walk;

double walk_now_s(void);
bool walk_is_over(const walk *w); /* by its work */
double walk_best_ns(const walk *w); /* 0: there is no plan yet */
void walk_keep(walk *w, const priced *x);
int walk_by_step(const void *a, const void *b); /* sorts priced candidates, the fastest first */
/* Does it need at most `slack` times each tier's budget? */
bool walk_within(const space *space, const estimate *x, double slack);
/* Calls fn with a candidate of each size of chunk, division and time of update, while work is left and it returns 0. */
int walk_each_kind(walk *w, int (*fn)(walk *w, const candidate *from, void *arg), void *arg);

/* descend.c: descends until no move improves the estimate; negative: nothing fits. Adds its work to *work. */
double walk_descend(const space *space, candidate *cand, bool any_update, double *work);
/* Adds a small penalty per task, so that of two equal candidates the one with fewer tasks wins: estimates hardly include the cost of tasks.
 */
double walk_with_tasks(const space *space, const candidate *cand, double ns);
/* Number of descents whose ends become starts, if they are among the best. At most MOVES. */
typedef struct way { int chunking; split cut; } way;
void walk_find_starts(walk *w, const way *ways, int n);

/* uniform.c: all layers alike and every small number of slots, from the fastest of each kind. */
int walk_try_uniform(walk *w);

/* placements.c: moves single chunks of a plan to tiers that a candidate cannot express, as long as it gets faster. *written: bytes per step
 * written to the disk, before and after; more writes have to pay. */
#define WORTH_WRITING 0.995
typedef enum effort {
    EFFORT_TURN,
    EFFORT_TUNE,   /* also slots and layers */
    EFFORT_ARRANGE /* the same from the best of all arrangements with every small number of slots, if there are few enough chunks;
                      does nothing if none is faster than *c */
} effort;
int walk_turn_placements(walk *w, priced_plan *c, effort how, uint64_t *written);
bool walk_can_arrange(const walk *w, int chunks);

/* search.c: search_plan for a step as it is; long_step.c calls it for shorter steps. */
int search_whole(const search_input *in, search_result *out, pt_error *e);

/* result.c: makes the result from the kept plans, with the work that remains. */
int walk_result(walk *w, search_result *out);
/* From now on the search may do this share of its work. What shows whether anything fits is not counted. */
void walk_allow(walk *w, double share);

/* How far an estimate may exceed the budgets, and the current time. */
double walk_memory_slack(const walk *w);
double walk_time_slack(const walk *w);
/* 1: it takes less than `than` (0: any time), and is in *out; slightly slower ones are kept too, for later preferences. */
int walk_try(walk *w, const candidate *cand, double than, priced *out);
/* Walks until no neighbour is faster: takes the first that is faster, later the fastest, because many walks that take the first end at the
 * same place. */
int walk_improve(walk *w, priced here);
/* Walks from plans nearly as fast with other chunks, another division or stride: their neighbours may lead further. */
int walk_improve_others(walk *w);
/* Gains of a tenth of a percent take long, so the large gains come first, wherever they are. */
int walk_improve_briskly(walk *w);
/* Pairs of moves, when no single move is faster: from the best and, if estimates are trusted less, from the best of other kinds. Only for
 * models of few layers: others have too many pairs. */
int walk_improve_by_pairs(walk *w);

#endif
