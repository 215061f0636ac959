/* measure.h - measures the time of one thing, in its own memory with contents like a model's, between two timestamps of a queue, until the
 * median settles. For profile_get.c and the files of this folder.
 *
 * Everything measured lies in one block of device memory inside the budget, which is freed at the end. A layout function divides the block.
 * It runs twice, first to compute the size, then to assign addresses and fill them:
 *
 *   area_take(a, bytes, PATTERN_WEIGHTS)     NULL in the first pass
 *
 * Contents are copies of a staging buffer of random values: the time of an op does not depend on its values, unless they are denormal or
 * not finite, which these are not.
 *
 * Several runs are submitted at a time, as in the executor, so that a queue finds its next op waiting. Other programs only make times
 * longer, and they come and go. So the result is the median over several rounds, each of which runs everything that is to be compared (for
 * contention the mean, measure_beside.c). The distance of the quartiles of three or more runs gives the uncertainty. What takes too long
 * for that has the uncertainty of the same work on fewer rows or bytes, which runs before it.
 *
 * Where the threads had to wait for processors that other programs had, medians compare slices of time rather than work: a forward of 20 ms
 * took 38 or 55 ms, and what is a difference of such times, as the cost of recomputation is, was anything. Then everything runs again, and
 * processor time counts, which hardly depends on who else runs; threads that wait for each other, as one computes for all, do not use any:
 *
 *   time of a run = its processor time / threads * the least idleness of any run of these stages
 *   idleness      = time of the clock * threads / (processor time + time of waiting for a processor), at least 1
 */
#ifndef PT_MEASURE_H
#define PT_MEASURE_H

#include "block/block.h"
#include "profile/profile.h"

/* ---- times ---- */

enum { SAMPLES = 48, TAPE = 64, TELLING = 3 };
/* Beyond SAMPLES the oldest are overwritten. by_work: others had the processors, and these are not times of a clock. */
typedef struct samples { int n; double ns[SAMPLES]; bool by_work; } samples;
double samples_median(const samples *s);
double samples_mean(const samples *s);
double samples_least(const samples *s);
double samples_spread(const samples *s); /* half the quartile distance, relative to the median */
/* Sets *spread if there are enough samples; else it is unchanged. */
void samples_tell(const samples *s, double *spread);
void samples_add(samples *s, double ns);
/* The time of `rows` rows on the straight line through the times of few and of many (only many, if few are no fewer), with a slope of at
 * most that of proportion to many, and at least half of it. */
double ns_at_rows(double few, double few_ns, double many, double many_ns, double rows);

/* ---- memory ---- */

typedef enum pattern {
    PATTERN_NONE,      /* not initialized: written before it is read */
    PATTERN_WEIGHTS,   /* N(0, 0.02), of the compute type */
    PATTERN_VALUES,    /* N(0, 1), of the compute type: activations */
    PATTERN_GRADIENTS, /* N(0, 1e-3), of the compute type */
    PATTERN_NORM,      /* fp32, 1 + N(0, 0.02): weights of norms */
    PATTERN_SMALL,     /* fp32, N(0, 1e-3): gradient accumulators, first moments */
    PATTERN_SQUARES,   /* fp32, N(0, 1e-3)^2: second moments */
    PATTERNS
} pattern;

typedef struct bench {
    const profile_request *r;
    queue *compute; /* with as many threads as training uses */
    char *staging;  /* the patterns, in host memory */
    uint64_t needs[TIERS]; /* bytes of the last refused request, 0: none */
    struct { char *base; uint64_t bytes; bool used; } kept[TIERS]; /* the largest area so far; smaller ones lie in it */
} bench;

/* The share of the time in which threads wanted a processor and other programs had it. */
typedef struct processor_time { int64_t work_ns, waited_ns; } processor_time;
/* Waits for the queue; zeros if no processor computes, or too few for the queue's threads. */
int processor_time_of(queue *q, processor_time *out, pt_error *e);
double processor_share_of_others(const processor_time *from, const processor_time *to);

int bench_open(bench *b, const profile_request *r, pt_error *e);
void bench_close(bench *b);
/* A queue of its device that knows whether its threads, and those of the other ranks, have processors of their own. */
int bench_queue(const bench *b, device *d, const char *name, int threads, queue **out, pt_error *e);
/* Bytes that no cache holds, even if this machine has all of it: data that a step visits once must come from memory when it is measured.
 * Visiting that many other bytes in between is not enough, because caches protect what was used before. */
uint64_t bench_beyond_cache(const bench *b);
/* Allocates this much of the tier at once, within the budget, so that areas need not be freed for larger ones. */
int bench_reserve(bench *b, tier t, uint64_t bytes, pt_error *e);
void bench_progress(const bench *b, const char *what, int done, int total);

typedef struct area { bench *b; tier tier; char *base; uint64_t bytes; } area; /* one per tier at a time */
typedef void (*layout_fn)(area *a, void *arg);
void *area_take(area *a, uint64_t bytes, pattern p);
uint64_t area_bytes(bench *b, layout_fn layout, void *arg);
/* PT_DOES_NOT_FIT if the tier's budget is smaller; `what` is for the message. */
int area_open(bench *b, tier t, area *a, const char *what, layout_fn layout, void *arg, pt_error *e);
void area_close(area *a);

/* ---- runs ---- */

typedef void (*submit_fn)(queue *q, void *arg, int index, int turn);
typedef struct stage { submit_fn submit; int index; samples *times; } stage; /* times NULL: not timed */

/* Rounds of all stages, numbered from `turn`: at least `least`, then until every median has settled or the time is over. After a warm-up
 * with the same stages, `turn` is 1, so that stages with several data sets do not start with the one just used. */
int measure_rounds(queue *q, const stage *stages, int n, void *arg, int turn, int least, double seconds, pt_error *e);
/* The same after a first round that does not count; a single stage runs at least once. */
int measure_stages(queue *q, const stage *stages, int n, void *arg, int least, double seconds, pt_error *e);
int measure_stage(queue *q, submit_fn submit, void *arg, int index, double seconds, samples *out, pt_error *e);
/* The shortest of several runs, which other programs disturb least: for comparison with another day. */
int measure_least(queue *q, submit_fn submit, void *arg, int index, double *ns, pt_error *e);

/* ---- what is measured ---- */

/* The weights of a block, with addresses and contents; `slices` has room for those of the vocabulary's table. */
void area_weights(area *a, const step_shape *s, int block, block_weights *w, const void **slices);

#endif
