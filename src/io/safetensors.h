/* safetensors.h - tensors in files, as Hugging Face keeps them.
 *
 *     8 bytes    n, little-endian
 *     n bytes    {"__metadata__": {...}, "NAME": {"dtype": "BF16", "shape": [768, 2304],
 *                 "data_offsets": [begin, end]}, ...}   padded with spaces to a multiple of 8
 *     the rest   the tensors, row by row, little-endian; offsets count from here, without holes
 *
 * A model is one such file, or several ("shards") with an index that says which tensor is where.
 *
 * Reading is by pread into memory of the caller's: mapped pages would count in the memory budgets.
 * Everything in a header is a claim, and is checked when the file is opened: lengths, offsets that
 * overlap, leave holes or pass the end, sizes against shape and dtype, duplicate names. What shards lack though
 * the index promises it is asked by safetensors_check_index: a model may do without it. A dtype that this program cannot hold is refused
 * only when the tensor is read. Each refusal names the file and the tensor.
 */
#ifndef PT_SAFETENSORS_H
#define PT_SAFETENSORS_H

#include "base/dtype.h"
#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SAFETENSORS_MAX_RANK = 8 };

typedef struct safetensors safetensors;

typedef struct safetensors_tensor {
    const char *name;
    pt_dtype dtype;              /* meaningless where dtype_is_known is false */
    bool dtype_is_known;
    char dtype_text[16];         /* as the header spells it */
    int rank;
    int64_t shape[SAFETENSORS_MAX_RANK];
    uint64_t elements, bytes;
    int file;                    /* which shard */
    uint64_t offset;             /* of the first byte in that file */
} safetensors_tensor;

/* `path` is a folder (its model.safetensors, or model.safetensors.index.json with shards beside
 * it), a .safetensors file, or an index. PATH/NAME.safetensors stands for its index where only that
 * is there. */
int safetensors_open(const char *path, safetensors **out, pt_error *e);
void safetensors_close(safetensors *st);
bool safetensors_present(const char *folder); /* does it hold weights, or some of them, readable or not? */

size_t safetensors_count(const safetensors *st);
const safetensors_tensor *safetensors_at(const safetensors *st, size_t i); /* sorted by name */
const safetensors_tensor *safetensors_find(const safetensors *st, const char *name); /* or NULL */
/* Fails where the index places a tensor in a shard that has none of this name. Of the one called `but` (may be NULL) it may say so. */
int safetensors_check_index(const safetensors *st, const char *but, pt_error *e);
const char *safetensors_path(const safetensors *st, const safetensors_tensor *t);    /* its file */

/* dst[0 .. n) = bytes [from, from + n) of the tensor. Thread-safe. */
int safetensors_read(const safetensors *st, const safetensors_tensor *t, uint64_t from, uint64_t n, void *dst,
                     pt_error *e);
/* The same, whatever the dtype: to copy what nothing here computes with. */
int safetensors_read_stored(const safetensors *st, const safetensors_tensor *t, uint64_t from, uint64_t n, void *dst,
                            pt_error *e);
/* dst[0 .. n) = elements [from, from + n) of an F32, BF16, F16, F64 or U8 tensor (rounded to nearest),
 * with a fixed 64 KiB of stack. Thread-safe. */
int safetensors_read_f32(const safetensors *st, const safetensors_tensor *t, uint64_t from, uint64_t n, float *dst,
                         pt_error *e);

/* Writing, in two passes, so that no tensor need ever be whole in memory:
 *
 *     safetensors_writer_open(folder, "model", 0, &w, e);
 *     a = safetensors_declare(w, "wte.weight", PT_BF16, 2, shape, e);   every tensor; a is its number
 *     safetensors_begin(w, e);                       lays out the shards, asks for room, writes headers
 *     safetensors_append(w, a, rows, n, e);          each tensor from its start to its end, in pieces of
 *                                                    any size; different tensors in any order
 *     safetensors_finish(w, e);                      all complete? then sync, and write the index
 *     safetensors_writer_close(w);                   always; removes the files if finish was not reached
 *
 * Writes NAME.safetensors, or NAME-00001-of-0000N.safetensors and NAME.safetensors.index.json, and
 * replaces an older model of that name. Until finish the files have ".tmp" behind their names; they
 * are renamed one by one, so where a crash must not leave a mixture, write into a dir_stage folder
 * (files.h).
 *
 * Several processes may write the same files, each of them its parts: all declare and append the same, and say before each append whose
 * turn it is. One of them, the leader, makes the files and gives them their names once all have written theirs. What one of them cannot
 * write fails on all, in finish. */
typedef struct safetensors_writer safetensors_writer;
enum { SAFETENSORS_SHARD_DEFAULT = 0 };
#define SAFETENSORS_SHARD_BYTES 5000000000ull /* that is, as Hugging Face does */

int safetensors_writer_open(const char *folder, const char *name, uint64_t max_shard_bytes,
                            safetensors_writer **out, pt_error *e);
int safetensors_declare(safetensors_writer *w, const char *name, pt_dtype dtype, int rank, const int64_t *shape,
                        pt_error *e); /* its number, from 0, or a negative code */
int safetensors_declare_as(safetensors_writer *w, const safetensors_tensor *t, pt_error *e); /* with t's name, dtype (any) and shape */
/* Before begin. */
typedef struct safetensors_sharing {
    bool leads;
    bool writes; /* it sees the files; the leader does. One that does not has no turns */
    /* Returns when all processes have called it, and fails on all where it was told on one of them that it has failed. */
    int (*meet)(void *arg, int failed, pt_error *e);
    void *arg;
} safetensors_sharing;
void safetensors_share(safetensors_writer *w, const safetensors_sharing *how);
/* Whether this process, and no other, writes what is appended from now on; else it is counted only, whatever the values. */
void safetensors_set_turn(safetensors_writer *w, bool own);
bool safetensors_has_turn(const safetensors_writer *w); /* true where nothing was said */

int safetensors_begin(safetensors_writer *w, pt_error *e);
int safetensors_append(safetensors_writer *w, int tensor, const void *data, uint64_t bytes, pt_error *e);
int safetensors_append_f32(safetensors_writer *w, int tensor, const float *values, uint64_t n,
                           pt_error *e); /* rounds to the tensor's F32, BF16, F16 or F64; of U8 whole numbers are given */
int safetensors_finish(safetensors_writer *w, pt_error *e);
void safetensors_writer_close(safetensors_writer *w);

#endif
