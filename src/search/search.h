/* search.h - finds the fastest plan that fits: starts from bounds and known policies, improves step by step, and prices each candidate by
 * simulating its schedule. It ends after a given amount of work: the first result is good, later ones are better.
 */
#ifndef PT_SEARCH_H
#define PT_SEARCH_H

#include "predict/forecast.h"

typedef struct priced_plan priced_plan;

typedef struct search_input {
    const model *model;
    const step_shape *shape;
    const costs *costs;
    uint64_t budget[TIERS];
    uint64_t threads_bytes; /* that a device budget must have in addition (device.h); only for advice */
    bool training;        /* false: only weights are needed, and SCHEDULE_EVAL is priced */
    bool clipping;        /* gradients wait for the global norm */
    bool host_tier;
    bool evaluates;       /* SCHEDULE_EVAL must fit, too */
    bool drains;          /* the newest state is needed after every step, so updates cannot wait for the next forward */
    int64_t micro_batch;  /* 0: searched */
    int64_t chunk_bytes;  /* 0: searched */
    int64_t part_of_units; /* 0, or the units of a longer step, which micro-batches and visits must divide, too */
    double effort;        /* how much work the search may do, a multiple of the usual, which takes about half a second on two cores.
                             0: 1. With 1 or more the result is never slower than a policy; less may not reach every policy */
    bool by_ranges;       /* plans with `ranges`, where that changes anything. search_plan tries them if no other plan fits */
    bool only_fits;       /* is there any plan? The result has `least` only */
    bool no_least;        /* `least` is not wanted if nothing fits */
    double part;          /* 0, or it ends after this part of its work: with a plan that the whole search would find, or a better one */
    const priced_plan *from;
        /* a plan of the same model to start from, which saves time: the result is about as good, if the plan
                                    still fits; `least` is not computed. NULL: start from the beginning */
    const layer_set *layouts; /* NULL: each schedule computes them */
    bool unproven;        /* for a step of very many micro-batches (long_step.c) nothing is built: fit is then known to about a page */
    int threads;          /* at most; 0: as many as there are cores. The result is the same */
} search_input;
int search_threads(const search_input *in); /* at most */
double search_effort(const search_input *in);

struct priced_plan {
    char name[128];       /* its origin: "search", the name of a policy, or its difference from the best */
    packing packing;
    plan plan;
    double step_ns;
    uint64_t bytes[TIERS];
};
void priced_plan_free(priced_plan *c);

enum { SEARCH_OTHERS = 12 };
typedef struct search_result {
    priced_plan best;
    priced_plan others[SEARCH_OTHERS]; /* fastest first: the best of each policy that fits, and the fastest seen with chunks of another
                                        size, else with another division of the step, else with updates at another time */
    int others_n;
    uint64_t least[TIERS];           /* memory of the most economical plan (set even if nothing fits) */
    int tried;                       /* number of schedules simulated */
    double seconds, first_good_s;    /* total time, and time until within 5% of the result */
} search_result;

/* May a plan for these inputs update at that time? And the earliest time that it may. */
bool search_may_update(const search_input *in, update_time update);
update_time search_first_update(const search_input *in);

/* The schedules that a run of such a plan needs, as a bit set. */
unsigned search_kinds(const search_input *in, update_time update);
/* Number of ranks that share a step. */
static inline int search_ranks(const search_input *in) { return shape_ranks(in->shape); }

/* The input from which a plan's schedules are built. */
schedule_input search_schedules(const search_input *in, const packing *packing, const plan *plan);

/* PT_DOES_NOT_FIT: no plan was found; *out->least is valid. search_find_ways tells what would help. */
int search_plan(const search_input *in, search_result *out, pt_error *e);
void search_result_free(search_result *r);
/* bound.c: no plan for these inputs, with chunks of the sizes that the search tries, is faster than *bound_ns, whatever its placements,
 * save levels, updates and division of the step. step_ns: the time of a plan that is at hand; the bound is at most that. 0: none is known,
 * because several ranks share a step or nothing is trained. */
int search_bound(const search_input *in, double step_ns, double *bound_ns, pt_error *e);
/* The plan with the least memory on the device: nothing stays there between steps. 1: it fits, and its bytes and time are set; 0: none. */
int search_leanest(const search_input *in, uint64_t bytes[TIERS], double *step_ns, pt_error *e);
/* Is there any plan? 1, 0, or an error. `needs`: as search_result.least; may be NULL: then few plans by ranges are tried, and a 0 may be
 * wrong where only such a plan would fit. */
int search_fits(const search_input *in, uint64_t needs[TIERS], pt_error *e);
/* If a step does not fit: the first step like in->shape that does, with a half, a quarter ... of the sequences, then with one that is half
 * as long, and so on. in->micro_batch is dropped if it does not divide such a step. 1: found; 0: no step of SEARCH_SHORTEST or more tokens
 * fits; negative: an error. */
enum { SEARCH_SHORTEST = 32 };
bool search_can_cut(const step_shape *shape, int64_t micro_batch); /* always true for 0, which leaves it to the search */
int search_smaller_step(const search_input *in, step_shape *out, pt_error *e);

/* ---- ways.c: budgets with which a step that does not fit would fit ---- */

/* Writes the budgets that are larger than in->budget, as options: "`device_memory` 24.5GiB `host_memory` 64GiB". */
void search_write_options(const search_input *in, const uint64_t budget[TIERS], char *out, size_t n);

typedef struct search_room {
    uint64_t has[TIERS]; /* the largest possible budget on this machine, with the others as they are; at least in->budget */
    bool gpu;            /* the device has memory of its own, not RAM shared with the host */
} search_room;
/* Where a way gets memory from: available memory; the disk, and available memory if needed; more RAM than the machine has; a larger GPU. */
typedef enum search_way_kind { WAY_MEMORY, WAY_DISK, WAY_RAM, WAY_GPU } search_way_kind;
enum { SEARCH_WAYS = 8 };
typedef struct search_ways {
    struct { search_way_kind kind; uint64_t budget[TIERS]; } way[SEARCH_WAYS];
    int n;
} search_ways;
/* Ways are in the order of search_way_kind. Each raised budget is the least size on its grid (size_granule of its option) that suffices
 * with the other budgets of that way. one: ends at the first way without the disk. */
int search_find_ways(const search_input *in, const search_room *room, bool one, search_ways *out, pt_error *e);

/* Builds the plan's schedules and prices them. Reads c->packing and c->plan; sets step_ns and bytes. 1: it fits, 0: it does not, negative:
 * an error. */
int search_price(const search_input *in, priced_plan *c, pt_error *e);

/* Predicts a steady step of the plan. Schedules of very many tasks are not built; the forecast of a shorter step is scaled up
 * (long_step.c). */
int search_forecast(const search_input *in, const priced_plan *c, unsigned kinds, forecast *out, pt_error *e);

/* ---- policies (policies.c): the choice of another system under the same budgets ---- */

typedef enum policy {
    POLICY_RESIDENT,      /* everything on the device, everything saved */
    POLICY_RECOMPUTE,     /* everything on the device, only inputs saved */
    POLICY_ZERO_OFFLOAD,  /* states on the host, updated there after backward */
    POLICY_ZERO_INFINITY, /* everything on the disk */
    POLICY_FSDP,          /* chunks fetched when needed, nothing kept in between, all recomputed */
    POLICY_DOS2,          /* Deep Optimizer States, k = 2 */
    POLICY_GREEDY_SNAKE,  /* block-major: all micro-batches visit a block before the next is fetched */
    POLICY_MEGATRAIN,     /* all on the host, streamed through two buffers */
    POLICY_PROTRAIN,      /* the paper's four numbers, searched exhaustively */
    POLICIES
} policy;
extern const char *const policy_names[POLICIES];
/* 1: made, fits and priced; 0: the policy does not fit (or needs a host tier, and there is none); negative: an error. */
int policy_plan(const search_input *in, policy p, priced_plan *out, pt_error *e);

#endif
