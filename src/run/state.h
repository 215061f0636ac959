/* state.h - the state of the training (master weights, and what the optimizer keeps beside them), parameter by parameter,
 * wherever the plan keeps it. To be used between runs of the executor, when its queues are idle.
 *
 * Chunks in host memory are read and written in place. Of the chunks on the disk one at a time is held in the
 * executor's scratch and written back when another one, or state_close, takes its place. Where there is a host tier, the
 * device's memory is moved, not touched: rows of chunks there come and go through a bounce buffer in the scratch.
 *
 *     scratch  [ window: weights | states ][ bounce ][ spare ]
 */
#ifndef PT_STATE_H
#define PT_STATE_H

#include "model/weights.h"
#include "run/executor.h"

/* Kinds of state: the master weights, then what optimizer_states() names. */
enum { STATE_MASTER, STATE_KINDS_MOST = 1 + OPTIMIZER_STATES };
int state_kinds(const schedule_input *in);
const char *state_name(const schedule_input *in, int kind);
/* How the parameter keeps that kind of state. NULL: it has none; of masters too, which are fp32 in two parts. */
const slab *state_slab(const schedule_input *in, int kind, int index);
int64_t state_entries(const schedule_input *in, int kind, int index); /* of the parameter; of masters its values. 0: none */

typedef struct state {
    executor *x;
    const schedule_input *in;
    int chunk;           /* in the scratch, -1: none */
    bool changed;
    bool *fresh;         /* of each chunk on the disk: begins with zeros, whatever the disk holds; NULL: none does */
    char *window;        /* weights, then states, of that chunk */
    char *bounce;        /* NULL without a host tier */
    char *spare;         /* the rest, for reading and exporting */
    size_t spare_bytes;
} state;

void state_open(state *s, executor *x);
int state_close(state *s, pt_error *e); /* writes back what was changed */

/* Entries from .. from+n of parameter `index`, as fp32: values row by row, or what the slab has for each block of them. Without training
 * state, masters are the compute weights. */
int state_read(state *s, int kind, int index, int64_t from, int64_t n, float *out, pt_error *e);
int state_write(state *s, int kind, int index, int64_t from, int64_t n, const float *in, pt_error *e);

/* Several ranks keep the states of their shards alone, and all of them the weights in the compute type. All of them write what they keep of
 * the same values. Rank 0 alone reads, inside of state_lead, which all ranks call: there it does the work, while the others send it what
 * it asks for, until the work has ended; the result is the same on all ranks. With one rank it only does the work. */
int state_lead(executor *x, int (*work)(void *arg, pt_error *e), void *arg, pt_error *e);

struct safetensors;
/* Weights from a Hugging Face folder, or random ones. All else becomes zero. */
int state_load(state *s, const struct safetensors *st, pt_error *e);
/* The same with the trained ones from one folder and the frozen ones from another, which has all. */
int state_load_beside(state *s, const struct safetensors *trained, const struct safetensors *all, pt_error *e);
int state_init(state *s, uint64_t seed, pt_error *e);
/* One kind of state, not the masters, from files that hold it under the weights' names. */
int state_load_kind(state *s, int kind, const struct safetensors *st, pt_error *e);
/* A sum of each kind's values, the same wherever they lie: tells whether what was loaded is what was exported. */
int state_sums(state *s, uint64_t sums[STATE_KINDS_MOST], pt_error *e);
/* The masters as Hugging Face tensors into FOLDER/NAME.safetensors (or shards). */
int state_export(state *s, const char *folder, const char *name, pt_dtype dtype, weights_layout layout, pt_error *e);
/* One kind of state, masters as fp32, all else as it is kept, under the weights' names; of masters only what is trained where that is asked
 * for. Of single values with the weights' shapes, of blocks a list for each tensor. */
int state_export_kind(state *s, int kind, bool trained_only, const char *folder, pt_error *e);

#endif
