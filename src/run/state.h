/* state.h - the state of the training (master weights, and what the optimizer keeps beside them), parameter by parameter,
 * wherever the plan keeps it. To be used between runs of the executor, when its queues are idle.
 *
 * Chunks in host memory are read and written in place. Of the chunks on the disk one at a time is held in the
 * executor's scratch and written back when another one, or state_close, takes its place. Where there is a host tier, the
 * device's memory is moved, not touched: rows of chunks there come and go through a bounce buffer in the scratch.
 *
 *     scratch  [ window: weights | states ][ bounce ][ spare ]
 *
 * Matrices in few bits (model/storage.h) are quantized while they are loaded, and never written anywhere: what is exported of them, and
 * what a run that is resumed begins with, is read again from their origin.
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

/* Where matrices that are kept in few bits come from: files, or a seed where there are none. */
typedef struct state_origin { const struct safetensors *st; uint64_t seed; } state_origin;

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
    const state_origin *origin; /* to be set behind state_open; NULL: what is loaded has them too, and nothing is exported */
    uint64_t origin_sum; /* of the values that were quantized, however they were read */
    uint64_t base_sum;   /* of what else is frozen, since state_load_adapted */
    bool spread;         /* state_share */
    int reader;
    bool agreed;         /* all ranks know that the export has failed */
} state;

void state_open(state *s, executor *x);
int state_close(state *s, pt_error *e); /* writes back what was changed */

/* Entries from .. from+n of parameter `index`, as fp32: values row by row, or what the slab has for each block of them. Without training
 * state, masters are the compute weights. Of a matrix in few bits what they stand for is read, and it is written whole. */
int state_read(state *s, int kind, int index, int64_t from, int64_t n, float *out, pt_error *e);
int state_write(state *s, int kind, int index, int64_t from, int64_t n, const float *in, pt_error *e);

/* Several ranks keep the states of their shards alone, and all of them the weights in the compute type. All of them call what is here
 * alike, and write what they keep of the same values. What is read comes to one of them, the reader, and on the others `out` is room for
 * what they send. The reader is rank 0, unless state_share says that reading is spread: then each of the exported parts is read, and
 * written, by the rank that keeps most of it, so that all of them have to see the folder. */
int state_share(state *s, bool spread, pt_error *e);
bool state_reads(const state *s); /* is this rank the reader? */

struct safetensors;
/* Weights from a Hugging Face folder, or random ones. All else becomes zero. */
int state_load(state *s, const struct safetensors *st, pt_error *e);
/* The same from files that have the masters alone, as state_export_kind writes them. */
int state_load_masters(state *s, const struct safetensors *st, pt_error *e);
/* The same with the trained ones from one folder and the frozen ones from another, which has all. */
int state_load_beside(state *s, const struct safetensors *trained, const struct safetensors *all, pt_error *e);
int state_init(state *s, uint64_t seed, pt_error *e);
/* The base of a model with adapters, and these: each from files, or random where there are none (NULL). */
int state_load_adapted(state *s, const struct safetensors *base, const struct safetensors *adapter, uint64_t seed, pt_error *e);
/* One kind of state, not the masters, from files that hold it under the weights' names. */
int state_load_kind(state *s, int kind, const struct safetensors *st, pt_error *e);
/* A checksum of each kind's values, the same wherever they lie and on all ranks; beside adapters, of these alone: tells whether what was
 * loaded is what was exported. Without matrices in few bits. */
int state_checksums(state *s, uint64_t checksums[STATE_KINDS_MOST], pt_error *e);
/* The masters as Hugging Face tensors into FOLDER/NAME.safetensors (or shards); matrices in few bits as their origin has them. */
int state_export(state *s, const char *folder, const char *name, pt_dtype dtype, weights_layout layout, pt_error *e);
/* The adapters' masters as PEFT's file FOLDER/NAME.safetensors, in fp32. */
int state_export_adapter(state *s, const char *folder, const char *name, pt_error *e);
/* One kind of state, masters as fp32, all else as it is kept, under the weights' names; of masters none in few bits, and only what is
 * trained where that is asked for. Of single values with the weights' shapes, of blocks a list for each tensor. */
int state_export_kind(state *s, int kind, bool trained_only, const char *folder, pt_error *e);

#endif
