#include "gguf/writer.h"

#include "base/dtype.h"
#include "base/units.h"
#include "io/files.h"
#include "text/buffer.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define F16_MAX_ROUNDED 65520.0f /* from here on F16 rounds to infinity */

enum { ALIGNMENT = 32, VERSION = 3, PIECE = 1 << 16 /* values */ };
enum { KIND_U32 = 4, KIND_F32 = 6, KIND_BOOL = 7, KIND_STRING = 8, KIND_ARRAY = 9 };

typedef struct out_tensor {
    char name[64];
    gguf_type type;
    uint64_t values, bytes;
} out_tensor;

struct gguf_writer {
    file_stage file;
    text_buffer pairs, infos;
    uint64_t pairs_n;
    int failed;            /* to append a key-value pair */
    out_tensor *tensors;
    size_t tensors_n, capacity;
    uint64_t bytes;        /* of the tensors, with their padding */
    size_t at;             /* the tensor being written */
    uint64_t written;      /* values of that tensor */
    unsigned char encoded[PIECE * 4];
};

int gguf_create(const char *path, gguf_writer **out, pt_error *e)
{
    *out = NULL;
    gguf_writer *w = calloc(1, sizeof *w);
    if (!w)
        return pt_fail(e, PT_FAILED, "%.400s: no memory to write it", path);
    const int status = file_stage_begin(&w->file, path, e);
    if (status) {
        free(w);
        return status;
    }
    *out = w;
    return 0;
}

void gguf_close(gguf_writer *w)
{
    if (!w)
        return;
    file_stage_abort(&w->file);
    text_buffer_free(&w->pairs);
    text_buffer_free(&w->infos);
    free(w->tensors);
    free(w);
}

/* ---- key-value pairs ---- */

static int put(text_buffer *b, const void *bytes, size_t n) { return text_buffer_append(b, bytes, n, NULL); }

static void add(gguf_writer *w, const void *bytes, size_t n)
{
    if (!w->failed)
        w->failed = put(&w->pairs, bytes, n);
}

static void add_u32(gguf_writer *w, uint32_t value) { add(w, &value, sizeof value); }
static void add_u64(gguf_writer *w, uint64_t value) { add(w, &value, sizeof value); }

static void put_key(gguf_writer *w, const char *key, uint32_t kind)
{
    gguf_add_string(w, key, strlen(key));
    add_u32(w, kind);
    w->pairs_n++;
}

void gguf_add_f32(gguf_writer *w, float value) { add(w, &value, sizeof value); }
void gguf_add_i32(gguf_writer *w, int32_t value) { add(w, &value, sizeof value); }
void gguf_add_bool(gguf_writer *w, bool value) { add(w, &(char){value}, 1); }

void gguf_add_string(gguf_writer *w, const char *text, size_t n)
{
    add_u64(w, n);
    add(w, text, n);
}

void gguf_put_u32(gguf_writer *w, const char *key, uint32_t value)
{
    put_key(w, key, KIND_U32);
    add_u32(w, value);
}

void gguf_put_f32(gguf_writer *w, const char *key, float value)
{
    put_key(w, key, KIND_F32);
    gguf_add_f32(w, value);
}

void gguf_put_bool(gguf_writer *w, const char *key, bool value)
{
    put_key(w, key, KIND_BOOL);
    gguf_add_bool(w, value);
}

void gguf_put_bytes(gguf_writer *w, const char *key, const char *value, size_t n)
{
    put_key(w, key, KIND_STRING);
    gguf_add_string(w, value, n);
}

void gguf_put_string(gguf_writer *w, const char *key, const char *value) { gguf_put_bytes(w, key, value, strlen(value)); }

void gguf_begin_array(gguf_writer *w, const char *key, gguf_kind kind, uint64_t n)
{
    put_key(w, key, KIND_ARRAY);
    add_u32(w, kind);
    add_u64(w, n);
}

/* ---- tensors ---- */

static uint64_t aligned(uint64_t n) { return (n + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; }

static int describe(gguf_writer *w, const out_tensor *t, int rank, const int64_t *shape)
{
    const uint64_t length = strlen(t->name);
    const uint32_t dimensions = (uint32_t)rank, type = t->type;
    int failed = put(&w->infos, &length, sizeof length) || put(&w->infos, t->name, length) ||
                 put(&w->infos, &dimensions, sizeof dimensions);
    for (int i = rank - 1; i >= 0 && !failed; i--)
        failed = put(&w->infos, &shape[i], sizeof shape[i]);
    return failed || put(&w->infos, &type, sizeof type) || put(&w->infos, &w->bytes, sizeof w->bytes);
}

int gguf_declare(gguf_writer *w, const char *name, gguf_type type, int rank, const int64_t *shape, pt_error *e)
{
    if (w->tensors_n == w->capacity) {
        const size_t capacity = w->capacity ? 2 * w->capacity : 64;
        out_tensor *more = realloc(w->tensors, capacity * sizeof *more);
        if (!more)
            return pt_fail(e, PT_FAILED, "no memory for a table of %zu tensors", capacity);
        w->tensors = more;
        w->capacity = capacity;
    }
    out_tensor *t = &w->tensors[w->tensors_n];
    *t = (out_tensor){.type = type, .values = 1};
    for (int i = 0; i < rank; i++)
        t->values *= (uint64_t)shape[i];
    if (strlen(name) >= sizeof t->name || shape[rank - 1] % gguf_block_values(type))
        return pt_fail(e, PT_FAILED, "tensor \"%.100s\": its name is too long, or its rows are not whole blocks", name);
    strcpy(t->name, name);
    t->bytes = t->values / (uint64_t)gguf_block_values(type) * (uint64_t)gguf_block_bytes(type);
    if (describe(w, t, rank, shape))
        return pt_fail(e, PT_FAILED, "no memory for a table of %zu tensors", w->tensors_n);
    w->bytes += aligned(t->bytes);
    w->tensors_n++;
    return 0;
}

static int reserve_room(gguf_writer *w, uint64_t bytes, pt_error *e)
{
    char folder[FILE_PATH_BYTES], need[32], have[32];
    uint64_t free_bytes;
    if (w->file.stream)
        return 0;
    snprintf(folder, sizeof folder, "%s", w->file.path);
    if (!disk_free_bytes(dirname(folder), &free_bytes, NULL) && bytes > free_bytes)
        return pt_fail(e, PT_FAILED, "%.400s: the file needs %s, but only %s are free: make room, or choose another folder", w->file.path,
                       size_format(need, bytes), size_format(have, free_bytes));
    int failed;
    while ((failed = fallocate(w->file.fd, 0, 0, (off_t)bytes)) && errno == EINTR) {}
    return failed && (disk_is_full_error(errno) || errno == EFBIG) ? file_no_room(w->file.path, bytes, e) : 0;
}

int gguf_begin(gguf_writer *w, pt_error *e)
{
    static const char zeros[ALIGNMENT];
    const uint64_t counts[2] = {w->tensors_n, w->pairs_n};
    const uint32_t version = VERSION;
    if (w->failed)
        return pt_fail(e, PT_FAILED, "%.400s: no memory for its header", w->file.path);
    const uint64_t header = 4 + sizeof version + sizeof counts + w->pairs.n + w->infos.n;
    int status = reserve_room(w, aligned(header) + w->bytes, e);
    const struct { const void *bytes; size_t n; } parts[] = {{"GGUF", 4}, {&version, sizeof version}, {counts, sizeof counts},
        {w->pairs.bytes, w->pairs.n}, {w->infos.bytes, w->infos.n}, {zeros, (size_t)(aligned(header) - header)}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts && !status; i++)
        status = file_stage_write(&w->file, parts[i].bytes, parts[i].n, e);
    text_buffer_free(&w->pairs);
    text_buffer_free(&w->infos);
    return status;
}

uint64_t gguf_bytes(const gguf_writer *w) { return w->bytes; }

/* ---- values ---- */

static int encode_f16(const out_tensor *t, const float *values, int64_t n, uint16_t *out, pt_error *e)
{
    for (int64_t i = 0; i < n; i++) {
        if (fabsf(values[i]) >= F16_MAX_ROUNDED)
            return pt_fail(e, PT_FAILED, "tensor \"%s\": %g is beyond what F16 can hold; export as bf16 or f32",
                           t->name, (double)values[i]);
        out[i] = f16_from_f32(values[i]);
    }
    return 0;
}

static int encode_blocks(const out_tensor *t, const float *values, int64_t n, unsigned char *out, pt_error *e)
{
    for (int64_t i = 0; i < n; i++)
        if (!(fabsf(values[i]) < F16_MAX_ROUNDED))
            return pt_fail(e, PT_FAILED, "tensor \"%s\": %g is beyond what %s can hold; export as bf16 or f32", t->name,
                           (double)values[i], gguf_type_name(t->type));
    gguf_encode_blocks(t->type, values, n, out);
    return 0;
}

static int append_piece(gguf_writer *w, const out_tensor *t, const float *values, int64_t n, pt_error *e)
{
    int status = 0;
    if (t->type == GGUF_F16)
        status = encode_f16(t, values, n, (uint16_t *)(void *)w->encoded, e);
    else if (t->type == GGUF_BF16)
        for (int64_t i = 0; i < n; i++)
            ((bf16 *)(void *)w->encoded)[i] = bf16_from_f32(values[i]);
    else if (gguf_is_blocks(t->type))
        status = encode_blocks(t, values, n, w->encoded, e);
    const size_t bytes = (size_t)(n / gguf_block_values(t->type) * gguf_block_bytes(t->type));
    return status ? status : file_stage_write(&w->file, t->type == GGUF_F32 ? (const void *)values : w->encoded, bytes, e);
}

static int end_tensor(gguf_writer *w, const out_tensor *t, pt_error *e)
{
    static const char zeros[ALIGNMENT];
    w->at++;
    w->written = 0;
    return file_stage_write(&w->file, zeros, (size_t)(aligned(t->bytes) - t->bytes), e);
}

int gguf_append(gguf_writer *w, const float *values, int64_t n, pt_error *e)
{
    int status = 0;
    while (n > 0 && !status) {
        if (w->at == w->tensors_n)
            return pt_fail(e, PT_FAILED, "%.400s: more values than its tensors have", w->file.path);
        const out_tensor *t = &w->tensors[w->at];
        const int64_t left = (int64_t)(t->values - w->written), whole = n < left ? n : left, part = whole < PIECE ? whole : PIECE;
        status = append_piece(w, t, values, part, e);
        values += part;
        n -= part;
        w->written += (uint64_t)part;
        if (!status && w->written == t->values)
            status = end_tensor(w, t, e);
    }
    return status;
}

int gguf_finish(gguf_writer *w, pt_error *e)
{
    if (w->at != w->tensors_n)
        return pt_fail(e, PT_FAILED, "%.400s: tensor \"%s\" is not complete", w->file.path, w->tensors[w->at].name);
    return file_stage_commit(&w->file, e);
}
