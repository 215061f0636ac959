/* state_parts.h - internal parts of the state (run/state.h), shared by its files. */
#ifndef PT_STATE_PARTS_H
#define PT_STATE_PARTS_H

#include "run/state.h"

/* Source of values: files, or a seed if there are none. With `apart`, frozen values come from `frozen` (also if that is NULL). */
typedef struct state_source { const struct safetensors *st, *frozen; uint64_t seed; bool apart; } state_source;

/* This kind of this parameter is a matrix in few bits. */
bool state_in_few_bits(const state *s, int kind, int index);
size_t state_half_of_spare(const state *s); /* bytes, in whole lines */
/* Rows of a parameter as they are loaded, in fp32. The upper half of the spare scratch belongs to the reader. */
int state_read_origin(state *s, const state_origin *from, int index, int64_t row, int64_t rows, float *out, pt_error *e);
/* One kind of state of all parameters that have it. */
int state_fill(state *s, int kind, const state_source *from, pt_error *e);
/* Loads the masters, and sets all other kinds to zero. */
int state_begin(state *s, const state_source *from, pt_error *e);
/* A checksum that any damaged, moved or exchanged value changes, independent of how rows are divided. */
uint64_t state_rows_sum(int index, int64_t row0, int64_t n_rows, int64_t cols, const float *values);

/* The rank that keeps most of some entries becomes the reader where reading is spread, else rank 0. */
void state_choose_reader(state *s, int kind, int index, int64_t from, int64_t n);
/* What this rank keeps of a parameter, in whole rows, as much at a time as the spare room holds. */
typedef void (*state_entries_fn)(void *arg, int64_t from, int64_t n, const float *values);
int state_each_own(state *s, int kind, int index, state_entries_fn fn, void *arg, pt_error *e);

#endif
