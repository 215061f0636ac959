/* measure.h - times a piece of work between two timestamps of a queue, repeatedly, until the median settles. The work has its own memory,
 * with contents like a model's. Used by profile_get.c and the files of this folder.
 *
 * All data is in one block of device memory within the budget, which is freed at the end. A layout function divides the block. It runs
 * twice: first to compute the size, then to assign addresses and fill them:
 *
 *   area_take(a, bytes, PATTERN_WEIGHTS)     NULL in the first pass
 *
 * Contents are copies of a staging buffer of random values. The time of an op does not depend on its values unless they are denormal or not
 * finite, which these are not.
 *
 * Several runs are submitted at a time, as in the executor, so that a queue always has its next op. Other programs can only make runs
 * longer, and they come and go. So the result is the median over several rounds, and each round runs everything that is to be compared
 * (contention uses the mean, measure_beside.c). The uncertainty is the interquartile range of three or more runs. Work that takes too long
 * for three runs is assigned the uncertainty of the same work on fewer rows or bytes, which runs before it.
 *
 * If other programs occupied the processors, wall-clock medians reflect scheduling more than work: a forward pass of 20 ms took 38 or 55
 * ms, and differences of such times, such as the cost of recomputation, were arbitrary. Then everything runs again and is timed by its
 * processor time, which hardly depends on other programs. Threads that wait for each other use no processor time, so idleness is added:
 *
 *   time of a run = its processor time / threads * the least idleness of any run of these stages
 *   idleness      = wall-clock time * threads / (processor time + time of waiting for a processor), at least 1
 */
#ifndef PT_MEASURE_H
#define PT_MEASURE_H

#include "layer/block.h"
#include "profile/profile.h"

/* ---- times ---- */

enum { SAMPLES = 48, TAPE = 64, TELLING = 3 };
/* A ring: beyond SAMPLES the oldest are overwritten. by_work: derived from processor time, because other programs occupied the processors.
 */
typedef struct samples { int n; double ns[SAMPLES]; bool by_work; } samples;
double samples_median(const samples *s);
double samples_mean(const samples *s);
double samples_least(const samples *s);
double samples_spread(const samples *s); /* half the quartile distance, relative to the median */
/* Sets *spread if there are enough samples; else it is unchanged. */
void samples_tell(const samples *s, double *spread);
void samples_add(samples *s, double ns);
/* The time of `rows` rows, extrapolated linearly from the times of few and many rows, or in proportion to many if few >= many. The slope is
 * clamped to 0.5..1 of many_ns / many. */
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
    PATTERN_EXPONENTS, /* bytes around 0x77: as scales of MXFP4 2^-8, as codes any */
    PATTERNS
} pattern;

typedef struct bench {
    const profile_request *r;
    queue *compute; /* with as many threads as training uses */
    char *staging;  /* the patterns, in host memory */
    uint64_t needs[TIERS]; /* bytes of the last request that exceeded the budget, 0: none */
    struct { char *base; uint64_t bytes; bool used; } kept[TIERS]; /* the largest area so far; smaller ones reuse it */
} bench;

/* Processor time of a queue's threads, and the time in which they were runnable but other programs had the processors. */
typedef struct processor_time { int64_t work_ns, waited_ns; } processor_time;
/* Waits for the queue. Zeros if its work runs on a GPU, or if it has more threads than there are processors. */
int processor_time_of(queue *q, processor_time *out, pt_error *e);
/* Of the time in which the threads were runnable, the share in which other programs had the processors. */
double processor_share_of_others(const processor_time *from, const processor_time *to);

int bench_open(bench *b, const profile_request *req, pt_error *e);
void bench_close(bench *b);
/* Opens a queue and sets `crowded`: whether its threads, with those of the other ranks, outnumber the processors. */
int bench_queue(const bench *b, device *d, const char *name, int threads, queue **out, pt_error *e);
/* Compute threads per processor, of this rank and the others on its machine; at least 1. */
double bench_crowding(const bench *b);
/* Bytes that exceed every cache, even if this machine has all of the cache to itself. Data that a step visits once must come from memory
 * in the measurement, too. Visiting that many other bytes in between is not enough, because caches protect lines that were reused. */
uint64_t bench_beyond_cache(const bench *b);
/* Allocates this much of the tier in advance, within the budget, so that areas need not be freed and allocated again. */
int bench_reserve(bench *b, tier t, uint64_t bytes, pt_error *e);
void bench_progress(const bench *b, const char *what, int done, int total);

typedef struct area { bench *b; tier tier; char *base; uint64_t bytes; } area; /* one open at a time per tier */
typedef void (*layout_fn)(area *a, void *arg);
void *area_take(area *a, uint64_t bytes, pattern p);
uint64_t area_bytes(bench *b, layout_fn layout, void *arg);
/* PT_DOES_NOT_FIT if the tier's budget is smaller. `what` names the measured work in the message. */
int area_open(bench *b, tier t, area *a, const char *what, layout_fn layout, void *arg, pt_error *e);
void area_close(area *a);

/* ---- runs ---- */

typedef void (*submit_fn)(queue *q, void *arg, int index, int turn);
typedef struct stage { submit_fn submit; int index; samples *times; } stage; /* times NULL: not timed */

/* Runs rounds of all stages, numbered from `turn`: at least `least`, then until every median has settled or the time is up. After a warm-up
 * with the same stages pass turn = 1, so that stages with several data sets do not start with the one just used. */
int measure_rounds(queue *q, const stage *stages, int n, void *arg, int turn, int least, double seconds, pt_error *e);
/* The same after a warm-up round. measure_stage runs one stage, at least once after the warm-up. */
int measure_stages(queue *q, const stage *stages, int n, void *arg, int least, double seconds, pt_error *e);
int measure_stage(queue *q, submit_fn submit, void *arg, int index, double seconds, samples *out, pt_error *e);
/* The shortest of several runs, which is the least disturbed by other programs. For comparison with another day. */
int measure_least(queue *q, submit_fn submit, void *arg, int index, double *ns, pt_error *e);

/* ---- what is measured ---- */

/* Takes the weights of a block from the area. `slices` must have room for the slices of the vocabulary's table. */
void area_weights(area *a, const step_shape *shape, int block, block_weights *w, const void **slices);

#endif
