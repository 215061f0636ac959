/* papers.h - what the tables of both papers are made with. What fails ends the program, with a line that says why. */
#ifndef PT_BENCH_PAPERS_H
#define PT_BENCH_PAPERS_H

#include "predict/analytic.h"
#include "search/search.h"

/* bench_papers.c prints both. */
void print_protrain(void);
void print_deep_optimizer_states(void);

void must(int failed, const pt_error *e);
/* A rank's share of it. */
machine_spec machine_named(const char *name, int ranks);
model *gpt_model(int layers, int hidden);
/* How much more the prediction is, in percent of what is published. */
double percent(double predicted, double published);

/* A model and a rank's part of a step, with every chunk's shard on the host, streamed through as many buffers as a block needs and one
 * more, and everything recomputed. All micro-batches visit a layer together, so that the gradients of one layer at a time are summed. */
typedef struct streamed {
    model *model;
    step_shape shape;
    packing packing;
    plan plan;
    schedule_input in;
} streamed;
/* batch: of each rank. */
void streamed_open(streamed *s, int layers, int hidden, int64_t batch, int64_t seq_len, int ranks);
void streamed_close(streamed *s);

/* A rank's device and its share of the host. 5% of each is left alone. */
search_input search_for(const machine_spec *x, const streamed *s, const costs *c);
/* Seconds of a step under our plan; 0: nothing fits. */
double search_s(const search_input *in);

#endif
