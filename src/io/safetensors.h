/* safetensors.h - tensors in files, in the format of Hugging Face.
 *
 *     8 bytes    n, little-endian
 *     n bytes    {"__metadata__": {...}, "NAME": {"dtype": "BF16", "shape": [768, 2304],
 *                 "data_offsets": [begin, end]}, ...}   padded with spaces to a multiple of 8
 *     the rest   the tensors, row by row, little-endian; offsets count from here, without holes
 *
 * A model is one such file, or several shards with an index that says which shard has each tensor.
 *
 * Reads use pread into the caller's memory, because mapped pages would count in the memory budgets. Headers are untrusted, and are checked
 * when a file is opened: lengths, offsets (no overlaps, no holes, nothing past the end), sizes against shape and dtype, duplicate names.
 * safetensors_check_index checks that shards have all tensors that the index lists; it is a separate call because a model may not need all
 * of them. A tensor of an unknown dtype is refused only when it is read. Errors name the file and the tensor.
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
    pt_dtype dtype;              /* undefined if !dtype_is_known */
    bool dtype_is_known;
    char dtype_text[16];         /* as in the header */
    int rank;
    int64_t shape[SAFETENSORS_MAX_RANK];
    uint64_t elements, bytes;
    int file;                    /* the shard */
    uint64_t offset;             /* of its first byte, in that file */
} safetensors_tensor;

/* `path` is a folder (with model.safetensors, or model.safetensors.index.json and its shards), a .safetensors file, or an index. If
 * PATH/NAME.safetensors does not exist, its index is opened. */
int safetensors_open(const char *path, safetensors **out, pt_error *e);
void safetensors_close(safetensors *st);
bool safetensors_present(const char *folder); /* the folder contains weight files, or some shards, whether readable or not */

size_t safetensors_count(const safetensors *st);
const safetensors_tensor *safetensors_at(const safetensors *st, size_t i); /* sorted by name */
const safetensors_tensor *safetensors_find(const safetensors *st, const char *name); /* or NULL */
/* PT_FAILED if a tensor is not in the shard that the index names for it. The tensor `but` (may be NULL) is not checked. */
int safetensors_check_index(const safetensors *st, const char *but, pt_error *e);
const char *safetensors_path(const safetensors *st, const safetensors_tensor *tensor);    /* its file */

/* dst[0 .. n) = bytes [from, from + n) of the tensor. Thread-safe. */
int safetensors_read(const safetensors *st, const safetensors_tensor *tensor, uint64_t from, uint64_t n, void *dst,
                     pt_error *e);
/* The same for any dtype, known or not: to copy a tensor unchanged. */
int safetensors_read_stored(const safetensors *st, const safetensors_tensor *tensor, uint64_t from, uint64_t n, void *dst,
                            pt_error *e);
/* dst[0 .. n) = elements [from, from + n) of an F32, BF16, F16, F64 or U8 tensor (rounded to nearest),
 * with a fixed 64 KiB of stack. Thread-safe. */
int safetensors_read_f32(const safetensors *st, const safetensors_tensor *tensor, uint64_t from, uint64_t n, float *dst,
                         pt_error *e);

/* Writing takes two passes, so that no tensor has to be in memory as a whole:
 *
 *     safetensors_writer_open(folder, "model", 0, &w, e);
 *     a = safetensors_declare(w, "wte.weight", PT_BF16, 2, shape, e);   every tensor; a is its number
 *     safetensors_begin(w, e);                       lays out the shards, allocates their space, writes the headers
 *     safetensors_append(w, a, rows, n, e);          each tensor from its start to its end, in pieces of
 *                                                    any size; different tensors in any order
 *     safetensors_finish(w, e);                      checks that all are complete, syncs, writes the index
 *     safetensors_writer_close(w);                   always; removes the files unless finish succeeded
 *
 * Writes NAME.safetensors, or NAME-00001-of-0000N.safetensors and NAME.safetensors.index.json, and
 * replaces an existing model of that name. Until finish the files' names end in ".tmp". They are renamed one by one; write into a dir_stage
 * folder (files.h) if a crash must not leave a mixture of old and new shards.
 *
 * Several processes can write the same files together: all declare and append the same tensors in the same order, and safetensors_set_turn
 * says before each append whether this process writes the data. One process, the leader, creates the files, and renames them when all have
 * written. If a write fails in one process, finish fails in all. */
typedef struct safetensors_writer safetensors_writer;
enum { SAFETENSORS_SHARD_DEFAULT = 0 };
#define SAFETENSORS_SHARD_BYTES 5000000000ull /* Hugging Face's default */

int safetensors_writer_open(const char *folder, const char *name, uint64_t max_shard_bytes,
                            safetensors_writer **out, pt_error *e);
int safetensors_declare(safetensors_writer *writer, const char *name, pt_dtype dtype, int rank, const int64_t *shape,
                        pt_error *e); /* returns its number, from 0, or a negative code */
int safetensors_declare_as(safetensors_writer *writer, const safetensors_tensor *tensor, pt_error *e); /* t's name, shape, dtype (any) */
/* Set before begin. */
typedef struct safetensors_sharing {
    bool leads;
    bool writes; /* the process can access the files (the leader can); without access it never has a turn */
    /* A barrier: returns when all processes have called it, and fails in all if `failed` is set in any. */
    int (*meet)(void *arg, int failed, pt_error *e);
    void *arg;
} safetensors_sharing;
void safetensors_share(safetensors_writer *writer, const safetensors_sharing *how);
/* Sets whether this process writes the data of the following appends; otherwise they only count bytes, and the values are ignored. For each
 * append exactly one process has the turn. */
void safetensors_set_turn(safetensors_writer *writer, bool own);
bool safetensors_has_turn(const safetensors_writer *writer); /* true by default */

int safetensors_begin(safetensors_writer *writer, pt_error *e);
int safetensors_append(safetensors_writer *writer, int tensor, const void *data, uint64_t bytes, pt_error *e);
int safetensors_append_f32(safetensors_writer *writer, int tensor, const float *values, uint64_t n,
                           pt_error *e); /* rounds to the tensor's F32, BF16, F16 or F64; for U8 the values must be whole numbers */
int safetensors_finish(safetensors_writer *writer, pt_error *e);
void safetensors_writer_close(safetensors_writer *writer);

#endif
