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
    gguf_writer *writer = calloc(1, sizeof *writer);
    if (!writer)
        return pt_fail(e, PT_FAILED, "%.400s: no memory to write it", path);
    const int status = file_stage_begin(&writer->file, path, e);
    if (status) {
        free(writer);
        return status;
    }
    *out = writer;
    return 0;
}

void gguf_close(gguf_writer *writer)
{
    if (!writer)
        return;
    file_stage_abort(&writer->file);
    text_buffer_free(&writer->pairs);
    text_buffer_free(&writer->infos);
    free(writer->tensors);
    free(writer);
}

/* ---- key-value pairs ---- */

static int put(text_buffer *b, const void *bytes, size_t n) { return text_buffer_append(b, bytes, n, NULL); }

static void add(gguf_writer *writer, const void *bytes, size_t n)
{
    if (!writer->failed)
        writer->failed = put(&writer->pairs, bytes, n);
}

static void add_u32(gguf_writer *writer, uint32_t value) { add(writer, &value, sizeof value); }
static void add_u64(gguf_writer *writer, uint64_t value) { add(writer, &value, sizeof value); }

static void put_key(gguf_writer *writer, const char *key, uint32_t kind)
{
    gguf_add_string(writer, key, strlen(key));
    add_u32(writer, kind);
    writer->pairs_n++;
}

void gguf_add_f32(gguf_writer *writer, float value) { add(writer, &value, sizeof value); }
void gguf_add_i32(gguf_writer *writer, int32_t value) { add(writer, &value, sizeof value); }
void gguf_add_bool(gguf_writer *writer, bool value) { add(writer, &(char){value}, 1); }

void gguf_add_string(gguf_writer *writer, const char *text, size_t n)
{
    add_u64(writer, n);
    add(writer, text, n);
}

void gguf_put_u32(gguf_writer *writer, const char *key, uint32_t value)
{
    put_key(writer, key, KIND_U32);
    add_u32(writer, value);
}

void gguf_put_f32(gguf_writer *writer, const char *key, float value)
{
    put_key(writer, key, KIND_F32);
    gguf_add_f32(writer, value);
}

void gguf_put_bool(gguf_writer *writer, const char *key, bool value)
{
    put_key(writer, key, KIND_BOOL);
    gguf_add_bool(writer, value);
}

void gguf_put_bytes(gguf_writer *writer, const char *key, const char *value, size_t n)
{
    put_key(writer, key, KIND_STRING);
    gguf_add_string(writer, value, n);
}

void gguf_put_string(gguf_writer *writer, const char *key, const char *value) { gguf_put_bytes(writer, key, value, strlen(value)); }

void gguf_begin_array(gguf_writer *writer, const char *key, gguf_kind kind, uint64_t n)
{
    put_key(writer, key, KIND_ARRAY);
    add_u32(writer, kind);
    add_u64(writer, n);
}

/* ---- tensors ---- */

static uint64_t aligned(uint64_t n) { return (n + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; }

static int describe(gguf_writer *writer, const out_tensor *t, int rank, const int64_t *shape)
{
    const uint64_t length = strlen(t->name);
    const uint32_t dimensions = (uint32_t)rank, type = t->type;
    int failed = put(&writer->infos, &length, sizeof length) || put(&writer->infos, t->name, length) ||
                 put(&writer->infos, &dimensions, sizeof dimensions);
    for (int i = rank - 1; i >= 0 && !failed; i--)
        failed = put(&writer->infos, &shape[i], sizeof shape[i]);
    return failed || put(&writer->infos, &type, sizeof type) || put(&writer->infos, &writer->bytes, sizeof writer->bytes);
}

int gguf_declare(gguf_writer *writer, const char *name, gguf_type type, int rank, const int64_t *shape, pt_error *e)
{
    if (writer->tensors_n == writer->capacity) {
        const size_t capacity = writer->capacity ? 2 * writer->capacity : 64;
        out_tensor *more = realloc(writer->tensors, capacity * sizeof *more);
        if (!more)
            return pt_fail(e, PT_FAILED, "no memory for a table of %zu tensors", capacity);
        writer->tensors = more;
        writer->capacity = capacity;
    }
    out_tensor *t = &writer->tensors[writer->tensors_n];
    *t = (out_tensor){.type = type, .values = 1};
    for (int i = 0; i < rank; i++)
        t->values *= (uint64_t)shape[i];
    if (strlen(name) >= sizeof t->name || shape[rank - 1] % gguf_block_values(type))
        return pt_fail(e, PT_FAILED, "tensor \"%.100s\": its name is too long, or its rows are not whole blocks", name);
    strcpy(t->name, name);
    t->bytes = t->values / (uint64_t)gguf_block_values(type) * (uint64_t)gguf_block_bytes(type);
    if (describe(writer, t, rank, shape))
        return pt_fail(e, PT_FAILED, "no memory for a table of %zu tensors", writer->tensors_n);
    writer->bytes += aligned(t->bytes);
    writer->tensors_n++;
    return 0;
}

static int reserve_room(gguf_writer *writer, uint64_t bytes, pt_error *e)
{
    char folder[FILE_PATH_BYTES], need[32], have[32];
    uint64_t free_bytes;
    if (writer->file.stream)
        return 0;
    snprintf(folder, sizeof folder, "%s", writer->file.path);
    if (!disk_free_bytes(dirname(folder), &free_bytes, NULL) && bytes > free_bytes)
        return pt_fail(e, PT_FAILED, "%.400s: the file needs %s, but only %s are free: make room, or choose another folder",
                       writer->file.path, size_format(need, bytes), size_format(have, free_bytes));
    int failed;
    while ((failed = fallocate(writer->file.fd, 0, 0, (off_t)bytes)) && errno == EINTR) {}
    return failed && (disk_is_full_error(errno) || errno == EFBIG) ? file_no_room(writer->file.path, bytes, e) : 0;
}

int gguf_begin(gguf_writer *writer, pt_error *e)
{
    static const char zeros[ALIGNMENT];
    const uint64_t counts[2] = {writer->tensors_n, writer->pairs_n};
    const uint32_t version = VERSION;
    if (writer->failed)
        return pt_fail(e, PT_FAILED, "%.400s: no memory for its header", writer->file.path);
    const uint64_t header = 4 + sizeof version + sizeof counts + writer->pairs.n + writer->infos.n;
    int status = reserve_room(writer, aligned(header) + writer->bytes, e);
    const struct { const void *bytes; size_t n; } parts[] = {{"GGUF", 4}, {&version, sizeof version}, {counts, sizeof counts},
        {writer->pairs.bytes, writer->pairs.n}, {writer->infos.bytes, writer->infos.n}, {zeros, (size_t)(aligned(header) - header)}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts && !status; i++)
        status = file_stage_write(&writer->file, parts[i].bytes, parts[i].n, e);
    text_buffer_free(&writer->pairs);
    text_buffer_free(&writer->infos);
    return status;
}

uint64_t gguf_bytes(const gguf_writer *writer) { return writer->bytes; }

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

static int append_piece(gguf_writer *writer, const out_tensor *t, const float *values, int64_t n, pt_error *e)
{
    int status = 0;
    if (t->type == GGUF_F16)
        status = encode_f16(t, values, n, (uint16_t *)(void *)writer->encoded, e);
    else if (t->type == GGUF_BF16)
        for (int64_t i = 0; i < n; i++)
            ((bf16 *)(void *)writer->encoded)[i] = bf16_from_f32(values[i]);
    else if (gguf_is_blocks(t->type))
        status = encode_blocks(t, values, n, writer->encoded, e);
    const size_t bytes = (size_t)(n / gguf_block_values(t->type) * gguf_block_bytes(t->type));
    return status ? status : file_stage_write(&writer->file, t->type == GGUF_F32 ? (const void *)values : writer->encoded, bytes, e);
}

static int end_tensor(gguf_writer *writer, const out_tensor *t, pt_error *e)
{
    static const char zeros[ALIGNMENT];
    writer->at++;
    writer->written = 0;
    return file_stage_write(&writer->file, zeros, (size_t)(aligned(t->bytes) - t->bytes), e);
}

int gguf_append(gguf_writer *writer, const float *values, int64_t n, pt_error *e)
{
    int status = 0;
    while (n > 0 && !status) {
        if (writer->at == writer->tensors_n)
            return pt_fail(e, PT_FAILED, "%.400s: more values than its tensors have", writer->file.path);
        const out_tensor *t = &writer->tensors[writer->at];
        const int64_t left = (int64_t)(t->values - writer->written), whole = n < left ? n : left, part = whole < PIECE ? whole : PIECE;
        status = append_piece(writer, t, values, part, e);
        values += part;
        n -= part;
        writer->written += (uint64_t)part;
        if (!status && writer->written == t->values)
            status = end_tensor(writer, t, e);
    }
    return status;
}

int gguf_finish(gguf_writer *writer, pt_error *e)
{
    if (writer->at != writer->tensors_n)
        return pt_fail(e, PT_FAILED, "%.400s: tensor \"%s\" is not complete", writer->file.path, writer->tensors[writer->at].name);
    return file_stage_commit(&writer->file, e);
}
