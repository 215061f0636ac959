/* measure.h - measuring one thing: memory of its own, contents that look like a model's, runs between two marks of a queue
 * until the median settles. Used by profile/ alone.
 *
 * What is measured lies in one block of device memory inside the budget, which is given back at the end. A layout
 * function carves it up; it runs twice, first to learn the size, then to hand out addresses and fill them:
 *
 *   area_take(a, bytes, PATTERN_WEIGHTS)     NULL in the first pass
 *
 * Contents come from a staging buffer of random values that is copied over and over: an op's time does not depend on
 * its values, unless they are denormal or not finite, and these are neither.
 *
 * Several runs are submitted at a time, as the executor does, so that a queue finds its next op waiting. Other programs
 * make times longer, never shorter, and they come and go: the median of several rounds, each of which runs everything
 * that is to be compared, is what is used (of what runs beside transfers the mean, measure_beside.c); the distance of the
 * quartiles of three runs or more says how sure it is. What takes too long to be run that often is as sure as the same work on
 * fewer rows or bytes, which is run before it.
 */
#ifndef PT_MEASURE_H
#define PT_MEASURE_H

#include "block/block.h"
#include "profile/profile.h"

/* ---- times ---- */

enum { SAMPLES = 48, TAPE = 64, TELLING = 3 };
typedef struct samples { int n; double ns[SAMPLES]; } samples; /* beyond SAMPLES the oldest are overwritten */
double samples_median(const samples *s);
double samples_mean(const samples *s);
double samples_spread(const samples *s); /* half the quartile distance, relative to the median */
/* Sets *spread where there are enough of them to tell; else it stays what it was. */
void samples_tell(const samples *s, double *spread);
void samples_add(samples *s, double ns);
/* What `rows` rows take: the straight line through what few and many take (many alone where few are no fewer), not flatter than half of
 * what is in proportion to many, and not steeper than that. */
double ns_at_rows(double few, double few_ns, double many, double many_ns, double rows);

/* ---- memory ---- */

typedef enum pattern {
    PATTERN_NONE,      /* left as it is: written before it is read */
    PATTERN_WEIGHTS,   /* N(0, 0.02), of the compute type */
    PATTERN_VALUES,    /* N(0, 1), of the compute type: activations */
    PATTERN_GRADIENTS, /* N(0, 1e-3), of the compute type */
    PATTERN_NORM,      /* fp32, 1 + N(0, 0.02): weights of norms */
    PATTERN_SMALL,     /* fp32, N(0, 1e-3): gradients' accumulators, first moments */
    PATTERN_SQUARES,   /* fp32, N(0, 1e-3)^2: second moments */
    PATTERNS
} pattern;

typedef struct bench {
    const profile_request *r;
    queue *compute; /* with as many threads as training uses */
    char *staging;  /* the patterns, in host memory */
    uint64_t needs[TIERS]; /* of what was refused last, 0: nothing was */
    struct { char *base; uint64_t bytes; bool used; } kept[TIERS]; /* the largest area so far; smaller ones lie in it */
    bool hot; /* a GPU: it has computed for a while */
} bench;

int bench_open(bench *b, const profile_request *r, pt_error *e);
void bench_close(bench *b);
/* Bytes that no cache holds, with all of it this machine's: what a step visits once in so many is measured as it comes from memory. It
 * does not do to pass over so many in between: caches keep what they have had before, and let others pass. */
uint64_t bench_beyond_cache(const bench *b);
/* Takes so much of the tier at once, as far as the budget goes, so that areas need not be given back for larger ones. */
int bench_reserve(bench *b, tier t, uint64_t bytes, pt_error *e);
void bench_progress(const bench *b, const char *what, int done, int total);

typedef struct area { bench *b; tier tier; char *base; uint64_t bytes; } area; /* one a tier at a time */
typedef void (*layout_fn)(area *a, void *arg);
void *area_take(area *a, uint64_t bytes, pattern p);
uint64_t area_bytes(bench *b, layout_fn layout, void *arg);
/* PT_DOES_NOT_FIT if the tier's budget is smaller; `what` is for the message. */
int area_open(bench *b, tier t, area *a, const char *what, layout_fn layout, void *arg, pt_error *e);
void area_close(area *a);

/* ---- runs ---- */

typedef void (*submit_fn)(queue *q, void *arg, int index, int turn);
typedef struct stage { submit_fn submit; int index; samples *times; } stage; /* times NULL: not timed */

/* Rounds of all stages from number `turn` on: at least `least`, then until every median has settled or the seconds are used up. Where
 * the same was run before, to warm up, `turn` is 1: what turns take in turn is not that which was just visited. */
int measure_rounds(queue *q, const stage *stages, int n, void *arg, int turn, int least, double seconds, pt_error *e);
/* The same after a first round that does not count; of one stage at least once. */
int measure_stages(queue *q, const stage *stages, int n, void *arg, int least, double seconds, pt_error *e);
int measure_stage(queue *q, submit_fn submit, void *arg, int index, double seconds, samples *out, pt_error *e);
/* The shortest of some runs, which others at work disturb least: to be compared with the same of another day. */
int measure_least(queue *q, submit_fn submit, void *arg, int index, double *ns, pt_error *e);

/* ---- what is measured ---- */

/* The weights of a block, carved and filled; `slices` has room for those of the vocabulary's table. */
void area_weights(area *a, const step_shape *s, int block, block_weights *w, const void **slices);

#endif
