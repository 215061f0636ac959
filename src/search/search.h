/* search.h - the fastest plan that fits: candidates from bounds and from known policies, improved step by step, each priced by
 * simulating its schedule. Anytime: what is found first is good, what is found later is better.
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
    uint64_t threads_bytes; /* that a device budget has to have besides (device.h); for advice only */
    bool training;        /* false: weights only, SCHEDULE_EVAL is what is priced */
    bool clipping;        /* gradients wait for the global norm */
    bool host_tier;
    bool evaluates;       /* SCHEDULE_EVAL must fit beside the steps */
    bool drains;          /* after every step something wants the newest state, so that no update can wait for the next forward */
    int64_t micro_batch;  /* 0: searched */
    int64_t chunk_bytes;  /* 0: searched */
    int64_t part_of_units; /* 0, or the units of a longer step: a micro-batch, and what is visited at a time, divides them too */
    double seconds;       /* time for the search, in which not every policy may be reached; 0: the default, 0.5, and as much more as it
                             takes to price all policies: what is found is then never slower than one */
    const priced_plan *from;
        /* a plan of the same model to begin with, in little time: what is found is about as good at least where it still
                             fits; `least` is not looked for then. NULL: from the beginning */
    const layer_layout *layouts; /* of each save level; NULL: each schedule computes them */
    bool unproven;        /* of a step of very many micro-batches (long_step.c) nothing is built: what fits is then known to a page or so */
    int threads;          /* that may work at it; 0: as many as there are cores. The result is the same, if there is time */
} search_input;
int search_threads(const search_input *in); /* that it will use at most */

struct priced_plan {
    char name[128];       /* where it came from: "search", a policy's name, or in what it differs from the best */
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
                                        size, else with the step cut in another way, else with updates at another time */
    int others_n;
    uint64_t least[TIERS];           /* what the most economical plan needs (filled also when nothing fits) */
    int tried;                       /* schedules simulated */
    double seconds, first_good_s;    /* taken in all, and until within 5% of the result */
} search_result;

/* Whether a plan of these inputs may update then, and the earliest time that it may. */
bool search_may_update(const search_input *in, update_time update);
update_time search_first_update(const search_input *in);

/* The schedules that a run of such a plan needs, as a bit set. */
unsigned search_kinds(const search_input *in, update_time update);
/* That share a step. */
static inline int search_ranks(const search_input *in) { return shape_ranks(in->shape); }

/* What the schedules of a plan are made from. */
schedule_input search_schedules(const search_input *in, const packing *k, const plan *p);

/* PT_DOES_NOT_FIT: no plan was found; *out->least is valid then. What would help is said by search_find_ways. */
int search_plan(const search_input *in, search_result *out, pt_error *e);
void search_result_free(search_result *r);
/* Whether there is any: 1, 0, or an error. `needs`: search_result.least; may be NULL. */
int search_fits(const search_input *in, uint64_t needs[TIERS], pt_error *e);
/* For what does not fit: the first step like in->shape that does, of half as many sequences, of a quarter, ..., of one, then of one
 * that is half as long and so on. in->micro_batch is given up where such a step cannot be cut into it. 1: found, 0: none of
 * SEARCH_SHORTEST tokens or more, negative: an error. */
enum { SEARCH_SHORTEST = 32 };
bool search_can_cut(const step_shape *s, int64_t micro_batch); /* 0, which leaves it to the search, always */
int search_smaller_step(const search_input *in, step_shape *out, pt_error *e);

/* ---- ways.c: for what does not fit, the budgets with which it would ---- */

/* Of these budgets those that are more than in->budget, as options: "`device_memory` 24.5GiB `host_memory` 64GiB". */
void search_write_options(const search_input *in, const uint64_t budget[TIERS], char *out, size_t n);

typedef struct search_room {
    uint64_t has[TIERS]; /* what a budget may be on this machine with the others as they are, at least in->budget */
    bool gpu;            /* the device is no RAM: it shares none with the host */
} search_room;
/* Of the memory that is there; of the disk, with memory where it takes that too; of more RAM than is there; of a larger GPU. */
typedef enum search_way_kind { WAY_MEMORY, WAY_DISK, WAY_RAM, WAY_GPU } search_way_kind;
enum { SEARCH_WAYS = 8 };
typedef struct search_ways {
    struct { search_way_kind kind; uint64_t budget[TIERS]; } way[SEARCH_WAYS];
    int n;
} search_ways;
/* In this order. Each budget of a way that is raised is the least size on its grid (size_granule, of the option that asks for it) that
 * suffices with the others as they are in that way. */
int search_find_ways(const search_input *in, const search_room *room, search_ways *out, pt_error *e);

/* Builds the plan's schedules and prices them: c->packing and c->plan are given, step_ns and bytes are filled.
 * 1: it fits, 0: it does not, negative: an error. */
int search_price(const search_input *in, priced_plan *c, pt_error *e);

/* What the plan's steady step will be. Of very many tasks none are built: it is what a shorter step is (long_step.c), as many times. */
int search_forecast(const search_input *in, const priced_plan *c, unsigned kinds, forecast *out, pt_error *e);

/* ---- policies (policies.c): what a fixed policy would choose under the same budgets ---- */

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
/* 1: made, fits and priced; 0: this policy does not fit (or needs a host tier that is not there); negative: an error. */
int policy_plan(const search_input *in, policy p, priced_plan *out, pt_error *e);

#endif
