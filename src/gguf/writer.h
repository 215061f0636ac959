/* writer.h - writes GGUF files, version 3, the format of llama.cpp.
 *
 *     "GGUF", version, number of tensors, number of pairs
 *     pairs      key, type, value                     architecture, sizes, tokenizer, chat template
 *     tensors    name, dimensions, type, offset       dimensions from the fastest to the slowest: the reverse of ours
 *     the rest   the tensors, each from a multiple of 32 bytes, in the order in which they were declared
 *
 * All numbers are little-endian. The file is written sequentially, so it may be a pipe, and no tensor has to be in memory as a whole:
 *
 *     gguf_create(path, &w, e);
 *     gguf_put_string(w, "general.architecture", "llama"); ...          every pair
 *     gguf_declare(w, "token_embd.weight", GGUF_F16, 2, shape, e); ...  every tensor
 *     gguf_begin(w, e);                     allocates space, writes the header
 *     gguf_append(w, values, n, e); ...     the values of all tensors, in the order of their declaration, in pieces of whole blocks
 *     gguf_finish(w, e);
 *     gguf_close(w);                        always; removes the file unless finish succeeded
 *
 * If memory for the pairs runs out, gguf_begin says so. */
#ifndef PT_GGUF_WRITER_H
#define PT_GGUF_WRITER_H

#include "base/error.h"
#include "gguf/blocks.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct gguf_writer gguf_writer;

int gguf_create(const char *path, gguf_writer **out, pt_error *e);

void gguf_put_u32(gguf_writer *writer, const char *key, uint32_t value);
void gguf_put_f32(gguf_writer *writer, const char *key, float value);
void gguf_put_bool(gguf_writer *writer, const char *key, bool value);
void gguf_put_string(gguf_writer *writer, const char *key, const char *value);
void gguf_put_bytes(gguf_writer *writer, const char *key, const char *value, size_t n); /* a string that may contain NUL */

/* Begins an array; n calls with its values must follow. */
typedef enum gguf_kind { GGUF_ARRAY_F32 = 6, GGUF_ARRAY_I32 = 5, GGUF_ARRAY_BOOL = 7, GGUF_ARRAY_STRING = 8 } gguf_kind;
void gguf_begin_array(gguf_writer *writer, const char *key, gguf_kind kind, uint64_t n);
void gguf_add_f32(gguf_writer *writer, float value);
void gguf_add_i32(gguf_writer *writer, int32_t value);
void gguf_add_bool(gguf_writer *writer, bool value);
void gguf_add_string(gguf_writer *writer, const char *text, size_t n);

/* shape: rows first, as everywhere here; rank 1 to 3. Rows must be whole blocks. */
int gguf_declare(gguf_writer *writer, const char *name, gguf_type type, int rank, const int64_t *shape, pt_error *e);
int gguf_begin(gguf_writer *writer, pt_error *e);
uint64_t gguf_bytes(const gguf_writer *writer); /* of all tensors' values; valid after gguf_begin */
/* Rounds to the tensor's type. PT_FAILED if a finite value overflows F16, or if one is too large for blocks or no number. */
int gguf_append(gguf_writer *writer, const float *values, int64_t n, pt_error *e);
int gguf_finish(gguf_writer *writer, pt_error *e);
void gguf_close(gguf_writer *writer);

#endif
