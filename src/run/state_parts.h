/* state_parts.h - shared by the files of the state (run/state.h): state.c, state_entries.c, state_few_bits.c, state_ranks.c, state_load.c
 * and state_files.c. */
#ifndef PT_STATE_PARTS_H
#define PT_STATE_PARTS_H

#include "run/state.h"

enum { STATE_BOUNCE_BYTES = 1 << 20 };

/* ---- state.c ---- */

/* The memory of a chunk. away: on the device, accessible only by copies (executor_move). */
typedef struct chunk_memory { char *weights, *states; bool away; } chunk_memory;

/* The chunk's memory, valid until another chunk is opened. change: it will be written. */
int state_chunk_open(state *state, int chunk, bool change, chunk_memory *out, pt_error *e);
/* The bytes of the chunk's weights that this rank keeps: all, or its shard. */
void state_kept_range(const state *state, int chunk, int64_t *begin, int64_t *end);
size_t state_half_of_spare(const state *state); /* bytes, in whole lines */

/* ---- state_entries.c ---- */

/* Visits what this rank keeps of a parameter, in whole rows, as much at a time as the spare scratch holds. */
typedef void (*state_entries_fn)(void *arg, int64_t from, int64_t n, const float *values);
int state_each_own(state *state, int kind, int index, state_entries_fn fn, void *arg, pt_error *e);

/* ---- state_few_bits.c ---- */

/* This kind of this parameter is a matrix in few bits. */
bool state_in_few_bits(const state *state, int kind, int index);
/* Rows of the decoded matrix; the whole matrix from fp32 values. */
int state_read_few_bits(state *state, int index, int64_t row0, int64_t n_rows, float *out, pt_error *e);
int state_write_few_bits(state *state, int index, const float *values, pt_error *e);
/* Destination of a quantized matrix (quantize.h). copy: memory for the whole piece, instead of its chunk. */
typedef struct quantizing { state *s; int index; const float *values; const state_origin *origin; char *copy; } quantizing;
int state_put_bytes(void *quantizing, uint64_t at, const void *bytes, size_t n, pt_error *e);

/* ---- state_ranks.c ---- */

/* The entries of a piece that a rank keeps, counted from the piece's first entry. */
typedef struct kept_entries { int64_t begin, n; } kept_entries;
kept_entries state_kept_entries(const state *state, int kind, const piece *piece, int rank);
int64_t state_first_entry(const state *state, int kind, const piece *piece); /* number of the piece's first entry in its parameter */
/* The reader becomes the rank that keeps most of these entries if reading is spread over the ranks, else rank 0. */
void state_choose_reader(state *state, int kind, int index, int64_t from, int64_t n);
/* Sends what rank `keeper` has to the reader; `values` is the memory for it on both. */
int state_pass(const state *state, int keeper, void *values, size_t bytes, pt_error *e);

/* ---- state_load.c ---- */

/* Source of values: files, or a seed if there are none. With `apart`, frozen values come from `frozen` (also if that is NULL). of_block:
 * the files of single blocks; NULL: none has its own. */
typedef struct state_source {
    const struct safetensors *st, *frozen;
    uint64_t seed;
    bool apart;
    const struct safetensors *const *of_block;
    bool always; /* only of the parameters that are trained in every turn */
    state *slots; /* all kinds of all parameters, which are trained, come from this one, which has a view; NULL: none do */
} state_source;

/* Rows of a parameter as they are loaded, in fp32. The upper half of the spare scratch belongs to the reader. */
int state_read_origin(state *state, const state_origin *from, int index, int64_t row, int64_t rows, float *out, pt_error *e);
/* Loads one kind of state of all parameters that have it. */
int state_fill(state *state, int kind, const state_source *from, pt_error *e);
/* Loads the masters, and sets all other kinds to zero. */
int state_begin(state *state, const state_source *from, pt_error *e);
/* A checksum that any damaged, moved or exchanged value changes, independent of how rows are divided. */
uint64_t state_rows_sum(int index, int64_t row0, int64_t n_rows, int64_t cols, const float *values);

/* ---- state_slots.c ---- */

/* All kinds of the trained parameters. `from` has a view. */
int state_copy_trained(state *to, state *from, pt_error *e);

#endif
