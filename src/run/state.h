/* state.h - the training state (master weights and the optimizer's slabs), parameter by parameter, on whatever tier the plan keeps it. Use
 * it between runs of the executor, while its queues are idle.
 *
 * Chunks in host memory are read and written in place. Of the chunks on the disk, one at a time is in the window of the executor's scratch;
 * it is written back when another takes its place, or by state_close. If there is a host tier, device memory is accessed only by copies:
 * rows of chunks there pass through a bounce buffer.
 *
 *     scratch  [ window: weights | states ][ bounce ][ spare ]
 *
 * Matrices in few bits (model/storage.h) are quantized while they are loaded, and their codes are never written to files. Export and resume
 * read them again from their origin.
 */
#ifndef PT_STATE_H
#define PT_STATE_H

#include "model/weights.h"
#include "run/executor.h"

/* Kinds of state: the master weights, then what optimizer_states() names. */
enum { STATE_MASTER, STATE_KINDS_MOST = 1 + OPTIMIZER_STATES };
int state_kinds(const schedule_input *in);
const char *state_name(const schedule_input *in, int kind);
/* The slab in which the parameter keeps this kind of state. NULL: it has none; also for masters, which are fp32 in two halves. */
const slab *state_slab(const schedule_input *in, int kind, int index);
int64_t state_entries(const schedule_input *in, int kind, int index); /* entries of the parameter; masters: one per value. 0: none */

/* Source of the matrices that are stored in few bits: files, or a seed if there are none. */
typedef struct state_origin { const struct safetensors *st; uint64_t seed; } state_origin;

typedef struct state {
    executor *x;
    const schedule_input *in;
    int chunk;           /* chunk in the window, -1: none */
    bool changed;
    bool *fresh;         /* [chunk] on the disk: starts as zeros, whatever the disk holds; NULL: none does */
    char *window;        /* weights, then states, of the chunk in the window */
    char *bounce;        /* NULL without a host tier */
    char *spare;         /* the rest of the scratch, for loading and exporting */
    size_t spare_bytes;
    struct slots_view *view; /* it is read from there, and not written (state_load_slots); NULL: from the executor */
    const state_origin *origin; /* set it after state_open; NULL: the files loaded have these matrices too, and nothing is exported */
    uint64_t origin_sum; /* checksum of the quantized values, in whatever way they were read */
    uint64_t base_sum;   /* checksum of all other frozen values, since state_load_adapted */
    uint64_t read_sum;   /* with several ranks: checksum of all values that were loaded, whichever of them this rank keeps */
    bool spread;         /* state_share */
    int reader;          /* rank that gets what is read */
    bool agreed;         /* all ranks know that the export has failed */
} state;

void state_open(state *state, executor *exec);
int state_close(state *state, pt_error *e); /* writes changes back */

/* Entries from .. from+n of parameter `index` as fp32: values row by row, or one per block of a slab. In a run without training state,
 * masters are the compute weights. Matrices in few bits are read decoded, and written whole. */
int state_read(state *state, int kind, int index, int64_t from, int64_t n, float *out, pt_error *e);
int state_write(state *state, int kind, int index, int64_t from, int64_t n, const float *in, pt_error *e);

/* With several ranks, each rank keeps the states of its shards, and all keep the weights in the compute type. All ranks call these
 * functions alike, and write their part of the same values. One of them, the reader, gets what is read; on the others `out` is room for
 * what they send. The reader is rank 0, unless state_share spreads reading: then each exported part is read, and written, by the rank that
 * keeps most of it, so that all ranks must see the folder. */
int state_share(state *state, bool spread, pt_error *e);
bool state_reads(const state *state); /* whether this rank is the reader */

struct safetensors;
/* Loads the weights from a Hugging Face folder, or random ones. All other state becomes zero. */
int state_load(state *state, const struct safetensors *st, pt_error *e);
/* The same from files with the masters alone, as state_export_kind writes them. */
int state_load_masters(state *state, const struct safetensors *st, pt_error *e);
/* The same with trained parameters from one folder, and frozen ones from another that has all. */
int state_load_beside(state *state, const struct safetensors *trained, const struct safetensors *all, pt_error *e);
/* The same with the weights of each block that has an entry in `of_block` from that file, and all others from `origin`. All were frozen:
 * if frozen weights are kept in bf16, they are rounded to it. */
int state_load_blocks(state *state, const state_origin *origin, const struct safetensors *const *of_block, pt_error *e);
int state_init(state *state, uint64_t seed, pt_error *e);
/* Loads the base of a model with adapters, and the adapters, each from files or at random (NULL). */
int state_load_adapted(state *state, const struct safetensors *base, const struct safetensors *adapter, uint64_t seed, pt_error *e);
/* After loading: sets the head at random. */
int state_init_head(state *state, uint64_t seed, pt_error *e);
/* After loading: sets rows first .. first + n of the vocabulary's tables to means of other rows in the files; those of row first + i end at
 * end[i] of the list `of`. */
typedef struct state_new_rows { int64_t first; size_t n; const uint32_t *of; const size_t *end; } state_new_rows;
int state_add_rows(state *state, const struct safetensors *st, const state_new_rows *rows, pt_error *e);
/* Loads one kind of state other than masters, from files that hold it under the weights' names. */
int state_load_kind(state *state, int kind, const struct safetensors *st, pt_error *e);
/* Loads all kinds of the trained parameters from a commit of a run with one rank (slots.h), whatever its plan was. Frozen ones are loaded
 * before. */
int state_load_slots(state *state, struct slots_view *from, pt_error *e);
/* A checksum of the frozen parameters that are not in few bits, as this rank has them. */
int state_frozen_sum(state *state, uint64_t *sum, pt_error *e);
/* A checksum of each kind's values that depends neither on where they lie nor on the rank (with adapters: of the adapters alone). It tells
 * whether what was loaded is what was exported. Matrices in few bits are left out. */
int state_checksums(state *state, uint64_t checksums[STATE_KINDS_MOST], pt_error *e);
/* Writes the masters as Hugging Face tensors into FOLDER/NAME.safetensors (or shards); matrices in few bits from their origin. */
int state_export(state *state, const char *folder, const char *name, pt_dtype dtype, weights_layout layout, pt_error *e);
/* The same with the weights that are trained in this turn alone, under the weights' names. */
int state_export_trained(state *state, const char *folder, const char *name, pt_dtype dtype, pt_error *e);
/* Writes the adapters' masters as PEFT's file FOLDER/NAME.safetensors, in fp32. */
int state_export_adapter(state *state, const char *folder, const char *name, pt_error *e);
/* Writes one kind of state under the weights' names: masters as fp32 (none in few bits; with `trained_only` only trained ones), others as
 * stored. Values have the weights' shapes; entries of blocks are a list per tensor. */
int state_export_kind(state *state, int kind, bool trained_only, const char *folder, pt_error *e);
/* The same of the parameters that are trained in every turn (param.always); and reads them, from files that may hold others, too. */
bool state_has_always(const state *state, int kind); /* are there any, with this kind? */
int state_export_always(state *state, int kind, const char *folder, pt_error *e);
int state_load_always(state *state, int kind, const struct safetensors *st, pt_error *e);

#endif
