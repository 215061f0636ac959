/* search.h - the fastest plan that fits: candidates from bounds and from known policies, improved step by step, each priced by
 * simulating its schedule. Anytime: what is found first is good, what is found later is better.
 */
#ifndef PT_SEARCH_H
#define PT_SEARCH_H

#include "schedule/simulate.h"

typedef struct candidate candidate;

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
    double seconds;       /* time for the search, in which not every policy may be reached; 0: the default, 0.5, and as much more as it
                             takes to price all policies: what is found is then never slower than one */
    const candidate *from; /* a plan of the same model to begin with, in little time: what is found is about as good at least where it still
                             fits; `least` is not looked for then. NULL: from the beginning */
    int threads;          /* that may work at it; 0: as many as there are cores. The result is the same, if there is time */
} search_input;
int search_threads(const search_input *in); /* that it will use at most */

struct candidate {
    char name[128];       /* where it came from: "search", a policy's name, or in what it differs from the best */
    packing packing;
    plan plan;
    double step_ns;
    uint64_t bytes[TIERS];
};
void candidate_free(candidate *c);

enum { SEARCH_OTHERS = 12 };
typedef struct search_result {
    candidate best;
    candidate others[SEARCH_OTHERS]; /* fastest first: the best of each policy that fits, and the fastest seen with chunks of another
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

/* What the schedules of a plan are made from. */
schedule_input search_schedules(const search_input *in, const packing *k, const plan *p);

/* PT_DOES_NOT_FIT names what is missing and the smallest change that would make it fit; *out->least is valid then. */
int search_plan(const search_input *in, search_result *out, pt_error *e);
void search_result_free(search_result *r);
/* What would make it fit, as options of the program: "--device-memory N --host-memory M". */
void search_smallest_change(const search_input *in, const uint64_t least[TIERS], char *out, size_t n);
/* What the tiers that are too small would need: "2.06 GiB of device memory (the budget is 1.00 GiB, 1138166333 bytes less)". */
void search_list_missing(const search_input *in, const uint64_t least[TIERS], char *out, size_t n);

/* For what does not fit: the first step like in->shape that does, of half as many sequences, of a quarter, ..., of one, then of one
 * that is half as long and so on. in->micro_batch is given up where such a step cannot be cut into it. 1: found, 0: none of
 * SEARCH_SHORTEST tokens or more, negative: an error. */
enum { SEARCH_SHORTEST = 32 };
bool search_can_cut(const step_shape *s, int64_t micro_batch); /* 0, which leaves it to the search, always */
int search_smaller_step(const search_input *in, step_shape *out, pt_error *e);

/* For what does not fit without a disk: bytes of one with which it does, whatever it takes then. 1: found, 0: none, or there is one
 * already, negative: an error. */
int search_disk_that_fits(const search_input *in, uint64_t *bytes, pt_error *e);

/* Builds the plan's schedules and prices them: c->packing and c->plan are given, step_ns and bytes are filled.
 * 1: it fits, 0: it does not, negative: an error. */
int search_price(const search_input *in, candidate *c, pt_error *e);

/* ---- policies (policies.c): what a fixed recipe would choose under the same budgets ---- */

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
int policy_plan(const search_input *in, policy p, candidate *out, pt_error *e);

#endif
