/* walk.h - what a search remembers on its way, and the steps it is made of (search.c says in which order they are taken).
 *
 * All are about plans that were simulated (`priced`) but for descents, which go by the estimate. Steps stop early, without an
 * error, when the time is over. An int is 0 or negative (an error, in w->e) unless it says more.
 */
#ifndef PT_WALK_H
#define PT_WALK_H

#include "search/ahead.h"

enum { MOVES = 4096, STARTS = 24, KEPT = 64, APART = 64, KINDS = 2048 };

/* By how much an estimate was too low at least, for candidates of one kind. */
typedef struct bias { uint64_t kind; double factor; } bias; /* kind 0: none */

typedef struct walk {
    space s;
    double begun, limit_s;
    bool wide;              /* nothing more is found near by: believe the estimates, and what was learned, less */
    bool brisk;             /* look for large gains only, and not long: many layers, at first */
    ranked *order;
    ahead *ahead;           /* models of many layers; else NULL */
    ranked starts[STARTS];
    int starts_n;
    priced kept[KEPT];      /* the fastest, in order */
    int kept_n;
    priced apart[APART];    /* the fastest of each size of chunk, cut and time of update, or of the fastest APART of them; in no order */
    int apart_n;
    struct { double at_s, ns; } better[256]; /* when the best became so good */
    int better_n;
    bias biases[KINDS];
    int biases_n;
    priced policies[POLICIES];
    bool policy_fits[POLICIES];
    pt_error *e;
} walk;

double walk_now_s(void);
bool walk_is_over(const walk *w);
double walk_best_ns(const walk *w); /* 0: nothing is there yet */
void walk_keep(walk *w, const priced *x);
int walk_by_step(const void *a, const void *b); /* sorts what is priced, the fastest first */
/* Whether it needs at most `slack` times what there is of each tier. */
bool walk_within(const space *s, const estimate *x, double slack);
/* Calls fn with a candidate of each size of chunk, cut and time of update, as long as there is time and it returns 0. */
int walk_each_kind(walk *w, int (*fn)(walk *w, const candidate *from, void *arg), void *arg);

/* descend.c: to where no move makes the estimate better; negative: nothing fits. */
double walk_descend(walk *w, candidate *r, bool any_update);
/* Of two that are about equal the one of fewer tasks is liked better: estimates know little of what a task costs. */
double walk_with_tasks(const space *s, const candidate *r, double ns);
/* Descents whose ends are among the starts, as far as they are among the best. At most MOVES. */
typedef struct way { int chunking; split cut; } way;
void walk_find_starts(walk *w, const way *ways, int n);

/* uniform.c: all layers alike and every few slots, from the fastest of each kind. */
int walk_try_uniform(walk *w);

/* placements.c: single chunks of a plan at other placements than a candidate can say, as far as that is faster. *written: what it writes to
 * the disk in a step, before and after; to write more has to be worth it. */
#define WORTH_WRITING 0.995
typedef enum effort {
    EFFORT_TURN,
    EFFORT_TUNE,   /* slots and layers too */
    EFFORT_ARRANGE /* the same from the best of all arrangements with every few slots, of so few chunks that it can; if none is faster
                      than *c, nothing */
} effort;
int walk_turn_placements(walk *w, priced_plan *c, effort how, uint64_t *written);
bool walk_can_arrange(const walk *w, int chunks);

/* search.c: search_plan of a step as it is; long_step.c searches shorter ones like it for very long ones. */
int search_whole(const search_input *in, search_result *out, pt_error *e);

/* result.c: what was found, from what was kept, in what is left of the time. */
int walk_result(walk *w, search_result *out);
/* The time for all of a search. */
double search_seconds(const search_input *in);

/* How far an estimate may be beyond the budgets, and how much slower than where we are. */
double walk_memory_slack(const walk *w);
double walk_time_slack(const walk *w);
/* 1: it takes less than `than` (0: whatever it takes), and is in *out; a little more is kept as well, for taste. */
int walk_try(walk *w, const candidate *r, double than, priced *out);
/* To where no neighbour is faster: by the first that is, later by the fastest, because many walks by the first end in one place. */
int walk_improve(walk *w, priced here);
/* From what is nearly as fast with other chunks, another cut or stride: its neighbours may lead further. */
int walk_improve_others(walk *w);
/* A tenth of a percent at a time takes long: first the large gains, wherever they are. */
int walk_improve_briskly(walk *w);
/* When no single move leads on: from the best and, where estimates are believed less, from the best of other kinds. Only for models
 * of few layers: others have too many pairs. */
int walk_improve_by_pairs(walk *w);

#endif
