/* explain.h - explains a plan: where every byte lies, what each block does, what limits the step, what would help, and why the next best
 * plans are slower.
 *
 *     explanation x;
 *     explain(&input, &x, e);
 *     char *screen = explain_text(&x, EXPLAIN_ANSWER);     lines of at most 100 columns
 *     json_t *object = explain_json(&x);      the same as numbers; what `protrain plan --json` prints
 *
 * The input must live as long as the explanation.
 */
#ifndef PT_EXPLAIN_H
#define PT_EXPLAIN_H

#include "predict/forecast.h"
#include "search/search.h"

#include <jansson.h>
#include <stdio.h>

typedef struct explain_input {
    const search_input *search;
    const uint64_t *budget;      /* budgets per tier to show; NULL: the search's, in which an unneeded disk has 0 */
    const priced_plan *best;       /* the plan to explain */
    const priced_plan *others;     /* other plans that fit, fastest first */
    int others_n;
    int tried;                   /* plans priced by the search, 0: there was none */
    const char *machine;         /* "NVIDIA GeForce RTX 3090", "AMD EPYC, 2 threads" */
    const char *source;          /* source of the costs: "measured in 2.1 s" */
    const char *room;            /* the free memory, or that of the machine file, and the margins; NULL or "": budgets were given */
    int64_t steps;               /* of the run, 0: unknown */
    double watts, price_per_hour; /* of all devices, 0: unknown */
    bool helps;                  /* search again with changed inputs, to find improvements */
} explain_input;

enum { EXPLAIN_HELPS = 4, EXPLAIN_RIVALS = 4 };

/* A change of the inputs and its effect: gain 0.14 = 14% more tokens per second. */
typedef struct help { char what[96]; double gain; } help;
typedef struct rival { const char *name; double slower; char why[96]; } rival; /* slower 0.05: the step takes 5% longer */

typedef struct explanation {
    const explain_input *in;
    const uint64_t *budget;
    forecast forecast;
    double tokens_per_s;
    double bound_ns; /* no plan is faster (search_bound); 0: none is known */
    help helps[EXPLAIN_HELPS];
    int helps_n;
    rival rivals[EXPLAIN_RIVALS];
    int rivals_n;
} explanation;

int explain(const explain_input *in, explanation *out, pt_error *e);
/* The parts of the text: model, machine, time of a step and of the run, what would help; what is inside the plan, where the time goes;
 * the other plans, which are slower. */
enum { EXPLAIN_ANSWER = 1, EXPLAIN_INSIDE = 2, EXPLAIN_OTHERS = 4, EXPLAIN_ALL = 7 };
char *explain_text(const explanation *x, unsigned parts); /* malloc'ed, NULL: out of memory */
json_t *explain_json(const explanation *x); /* new reference, NULL: out of memory */

/* The lines about the plan itself: weights, buffers, updates, batch, layers. `passing`: model_passing_layers; packing: NULL if only
 * the plan is at hand: then the size of chunks is what was asked for. */
void explain_plan(FILE *out, const plan *plan, const packing *packing, int passing, bool parts);

/* Where the compute queue's time goes, in words: "waiting for disk reads". Largest first; returns how many are above 1%. */
enum { SHARES = QUEUES + 4 };
typedef struct share { const char *what; double ns; } share;
int explain_shares(const forecast *f, share out[SHARES]);

/* What a plan's micro-batches are counted in: sequences, or with `parts` parts of sequences (model/shape.h). */
const char *explain_micro(const plan *plan, bool parts);
/* What layers save, one line per kind: "0-7, 12: all kept, on the device". */
int explain_layers(const plan *plan, int passing, int line, char *out, size_t n); /* 1: written; 0: there is no such line */

/* helps.c: tries changes; returns those that gain at least 3%, best first. */
int explain_helps(const explain_input *in, double tokens_per_s, help out[EXPLAIN_HELPS], int *n, pt_error *e);

/* wear.c: ways to write fewer bytes to the disk for the same number of tokens: what to type, and the bytes per token that are written then,
 * by counting what this plan writes. Each of them changes the result. Returns how many there are. */
enum { WEAR_WAYS = 4 };
typedef struct wear_way { char options[48]; double bytes_per_token; } wear_way;
int explain_wear(const explanation *x, double *now, wear_way out[WEAR_WAYS]);

/* The object for a plan that does not fit: fits false, missing_bytes, changes (options that would make it fit, the first of which is
 * smallest_change), smaller_step (options of a step that would fit, or ""), and `message`, the error's sentence. `least`: budgets that
 * would suffice. `missing`: bytes, including those that no plan can avoid. Takes the reference to `changes`, an array of strings. */
json_t *explain_misfit(const search_input *in, const uint64_t least[TIERS], uint64_t missing, json_t *changes, const char *smaller_step,
                       const char *message);
/* The missing bytes, summed over the tiers. */
uint64_t missing_bytes(const search_input *in, const uint64_t least[TIERS]);

#endif
