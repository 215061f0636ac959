/* safetensors_write.c - the writer: declare, lay out, then write in pieces.
 *
 * Tensors go to shards in the order of their declaration; a new shard begins where the next tensor would exceed max_shard_bytes (a larger
 * tensor has a shard of its own). Within a shard, tensors with wide elements come first, so that every tensor is aligned to its element
 * size. After begin every offset is known, and blocks are allocated if the file system can, so that a full disk is found before the first
 * tensor is written.
 *
 * The files' names end in ".tmp" until finish renames them. finish also removes files of the older model that are not replaced: its index
 * if the new model is one file, its single file if the new model has shards, because readers look for the single file first.
 *
 * If processes share the files, the leader does all of this. The others compute the same layout, open the files that the leader has
 * created, and sync their writes before it renames.
 */
#include "base/json.h"
#include "base/units.h"
#include "io/files.h"
#include "io/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ALIGNMENT_MOST = 8 };

typedef struct out_tensor {
    char *name;
    pt_dtype dtype; /* undefined for a dtype known only as text */
    char dtype_text[16];
    size_t alignment;
    int rank;
    int64_t shape[SAFETENSORS_MAX_RANK];
    uint64_t bytes, written;
    int shard;
    uint64_t offset; /* in its shard's data; after begin, in its file */
} out_tensor;

typedef struct out_shard {
    char path[FILE_PATH_BYTES], temporary[FILE_PATH_BYTES];
    int fd; /* of the temporary file; -1: not open */
    uint64_t bytes;
} out_shard;

struct safetensors_writer {
    char folder[FILE_PATH_BYTES], name[128];
    uint64_t max_shard_bytes, total;
    out_tensor *tensors;
    size_t n, capacity;
    out_shard *shards;
    int n_shards;
    bool begun, ready, finished; /* begin was called; begin succeeded; finish succeeded */
    safetensors_sharing sharing;
    bool waits;   /* another process has the turn */
    pt_error why; /* an error in this process, which the others learn of in finish */
};

int safetensors_writer_open(const char *folder, const char *name, uint64_t max_shard_bytes,
                            safetensors_writer **out, pt_error *e)
{
    *out = NULL;
    if (strlen(folder) >= FILE_PATH_BYTES || strlen(name) >= sizeof (*out)->name)
        return pt_fail(e, PT_FAILED, "%.300s/%.100s...: the path is too long; use a shorter one", folder, name);
    safetensors_writer *writer = calloc(1, sizeof *writer);
    if (!writer)
        return pt_fail(e, PT_FAILED, "%.400s: no memory to write tensors there", folder);
    strcpy(writer->folder, folder);
    strcpy(writer->name, name);
    writer->max_shard_bytes = max_shard_bytes ? max_shard_bytes : SAFETENSORS_SHARD_BYTES;
    writer->sharing = (safetensors_sharing){.leads = true, .writes = true};
    *out = writer;
    return 0;
}

void safetensors_share(safetensors_writer *writer, const safetensors_sharing *how) { writer->sharing = *how; }

void safetensors_set_turn(safetensors_writer *writer, bool own) { writer->waits = !own; }

bool safetensors_has_turn(const safetensors_writer *writer) { return !writer->waits; }

static int meet(const safetensors_writer *writer, int failed, pt_error *e)
{
    return writer->sharing.meet ? writer->sharing.meet(writer->sharing.arg, failed, e) : failed;
}

static int add_tensor(safetensors_writer *writer, const char *name, out_tensor t, pt_error *e)
{
    if (writer->begun)
        return pt_fail(e, PT_USAGE, "tensor \"%.100s\": declared after begin", name);
    if (writer->n == writer->capacity) {
        size_t capacity = writer->capacity ? 2 * writer->capacity : 64;
        out_tensor *tensors = realloc(writer->tensors, capacity * sizeof *tensors);
        if (!tensors)
            return pt_fail(e, PT_FAILED, "no memory for a table of %zu tensors", capacity);
        writer->tensors = tensors;
        writer->capacity = capacity;
    }
    t.name = strdup(name);
    if (!t.name)
        return pt_fail(e, PT_FAILED, "no memory for the name \"%.100s\"", name);
    writer->tensors[writer->n] = t;
    writer->total += t.bytes;
    return (int)writer->n++;
}

int safetensors_declare(safetensors_writer *writer, const char *name, pt_dtype dtype, int rank, const int64_t *shape,
                        pt_error *e)
{
    out_tensor t = {.dtype = dtype, .alignment = dtype_bytes(dtype), .rank = rank, .bytes = dtype_bytes(dtype)};
    snprintf(t.dtype_text, sizeof t.dtype_text, "%s", dtype_name(dtype));
    if (rank < 0 || rank > SAFETENSORS_MAX_RANK)
        return pt_fail(e, PT_USAGE, "tensor \"%.100s\": too many dimensions", name);
    for (int i = 0; i < rank; i++) {
        t.shape[i] = shape[i];
        if (shape[i] < 0 || __builtin_mul_overflow(t.bytes, (uint64_t)shape[i], &t.bytes) || t.bytes > INT64_MAX / 8)
            return pt_fail(e, PT_USAGE, "tensor \"%.100s\": its size %d is %lld, which no file can hold", name, i,
                           (long long)shape[i]);
    }
    return add_tensor(writer, name, t, e);
}

int safetensors_declare_as(safetensors_writer *writer, const safetensors_tensor *tensor, pt_error *e)
{
    out_tensor copy = {.dtype = tensor->dtype, .alignment = 1, .rank = tensor->rank, .bytes = tensor->bytes};
    memcpy(copy.dtype_text, tensor->dtype_text, sizeof copy.dtype_text);
    memcpy(copy.shape, tensor->shape, sizeof copy.shape);
    while (copy.alignment < ALIGNMENT_MOST && tensor->elements && tensor->bytes / tensor->elements >= 2 * copy.alignment)
        copy.alignment *= 2;
    return add_tensor(writer, tensor->name, copy, e);
}

/* ---- layout --------------------------------------------------------------------------------- */

static int layout_shards(safetensors_writer *writer, pt_error *e)
{
    int shard = 0;
    uint64_t used = 0;
    for (size_t i = 0; i < writer->n; i++) {
        out_tensor *t = &writer->tensors[i];
        if (used && t->bytes > writer->max_shard_bytes - (used < writer->max_shard_bytes ? used : writer->max_shard_bytes)) {
            shard++;
            used = 0;
        }
        t->shard = shard;
        used += t->bytes;
    }
    writer->n_shards = shard + 1;
    writer->shards = calloc((size_t)writer->n_shards, sizeof *writer->shards);
    if (!writer->shards)
        return pt_fail(e, PT_FAILED, "%.400s: no memory for %d files", writer->folder, writer->n_shards);
    for (int i = 0; i < writer->n_shards; i++)
        writer->shards[i].fd = -1;
    for (size_t width = ALIGNMENT_MOST; width; width /= 2)
        for (size_t i = 0; i < writer->n; i++)
            if (writer->tensors[i].alignment == width) {
                out_shard *s = &writer->shards[writer->tensors[i].shard];
                writer->tensors[i].offset = s->bytes;
                s->bytes += writer->tensors[i].bytes;
            }
    return 0;
}

/* The header of one shard as text, padded; *n is its length. NULL if out of memory, or if a name is used twice or is not UTF-8. */
static char *header_text(const safetensors_writer *writer, int shard, size_t *n)
{
    json_t *header = json_pack("{s:{s:s}}", "__metadata__", "format", "pt");
    bool good = header != NULL;
    for (size_t i = 0; good && i < writer->n; i++) {
        const out_tensor *t = &writer->tensors[i];
        if (t->shard != shard)
            continue;
        json_t *shape = json_array();
        for (int k = 0; k < t->rank; k++)
            json_array_append_new(shape, json_integer(t->shape[k]));
        json_t *entry = json_pack("{s:s, s:o, s:[I, I]}", "dtype", t->dtype_text, "shape", shape, "data_offsets",
                                  (json_int_t)t->offset, (json_int_t)(t->offset + t->bytes));
        good = entry && !json_object_get(header, t->name) && !json_object_set(header, t->name, entry);
        json_decref(entry);
    }
    char *text = good ? json_dumps(header, JSON_COMPACT) : NULL, *padded = NULL;
    json_decref(header);
    if (text) {
        size_t used = strlen(text);
        *n = (used + 7) / 8 * 8;
        padded = realloc(text, *n + 1);
        if (padded)
            memset(padded + used, ' ', *n - used);
        else
            free(text);
    }
    return padded;
}

static int shard_name(safetensors_writer *writer, int shard, pt_error *e)
{
    out_shard *s = &writer->shards[shard];
    char name[192];
    if (writer->n_shards == 1)
        snprintf(name, sizeof name, "%s.safetensors", writer->name);
    else
        snprintf(name, sizeof name, "%s-%05d-of-%05d.safetensors", writer->name, shard + 1, writer->n_shards);
    int status = path_join(s->path, writer->folder, name, e);
    if (!status && snprintf(s->temporary, sizeof s->temporary, "%s.tmp", s->path) >= (int)sizeof s->temporary)
        status = pt_fail(e, PT_FAILED, "%.300s...: the path is too long; use a shorter one", writer->folder);
    return status;
}

static int shard_allocate(const out_shard *s, uint64_t bytes, pt_error *e)
{
    int failed;
    while ((failed = fallocate(s->fd, 0, 0, (off_t)bytes)) && errno == EINTR) {}
    if (failed && !disk_is_full_error(errno))
        failed = ftruncate(s->fd, (off_t)bytes);
    if (!failed)
        return 0;
    return file_no_room(s->path, bytes, e);
}

static int shard_create(out_shard *s, const char *header, size_t n, pt_error *e)
{
    unsigned char length[8];
    for (int i = 0; i < 8; i++)
        length[i] = (unsigned char)((uint64_t)n >> 8 * i);
    s->fd = open(s->temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (s->fd < 0)
        return pt_fail_errno(e, PT_FAILED, "%.400s: cannot be created", s->temporary);
    int status = shard_allocate(s, 8 + n + s->bytes, e);
    if (!status)
        status = fd_write_all(s->fd, length, 8, s->path, e);
    return status ? status : fd_write_all(s->fd, header, n, s->path, e);
}

/* Sets the shard's name and its tensors' offsets in the file; the leader creates the file, the others open it. */
static int shard_begin(safetensors_writer *writer, int shard, pt_error *e)
{
    out_shard *s = &writer->shards[shard];
    int status = shard_name(writer, shard, e);
    if (status)
        return status;
    size_t n;
    char *header = header_text(writer, shard, &n);
    if (!header)
        return pt_fail(e, PT_FAILED, "%.400s: its header cannot be made: a tensor name is used twice or is not UTF-8, "
                       "or there is no memory", s->path);
    for (size_t i = 0; i < writer->n; i++)
        if (writer->tensors[i].shard == shard)
            writer->tensors[i].offset += 8 + n;
    if (writer->sharing.leads)
        status = shard_create(s, header, n, e);
    free(header);
    return status;
}

static int shard_join(out_shard *s, pt_error *e)
{
    s->fd = open(s->temporary, O_WRONLY | O_CLOEXEC);
    return s->fd < 0 ? pt_fail_errno(e, PT_FAILED, "%.400s: cannot be opened", s->temporary) : 0;
}

static int check_room(const safetensors_writer *writer, pt_error *e)
{
    uint64_t free_bytes;
    char need[32], have[32];
    int status = disk_free_bytes(writer->folder, &free_bytes, e);
    if (!status && writer->total > free_bytes)
        status = pt_fail(e, PT_FAILED, "%.400s: the tensors need %s, but only %s are free: make room, or choose another folder",
                         writer->folder, size_format(need, writer->total), size_format(have, free_bytes));
    return status;
}

int safetensors_begin(safetensors_writer *writer, pt_error *e)
{
    if (writer->begun)
        return pt_fail(e, PT_USAGE, "%.400s: begin was called twice", writer->folder);
    writer->begun = true;
    int status = writer->sharing.leads ? check_room(writer, e) : 0;
    if (!status)
        status = layout_shards(writer, e);
    for (int i = 0; !status && i < writer->n_shards; i++)
        status = shard_begin(writer, i, e);
    status = meet(writer, status, e);
    for (int i = 0; !status && i < writer->n_shards && writer->sharing.writes && !writer->sharing.leads && !writer->why.code; i++)
        shard_join(&writer->shards[i], &writer->why);
    writer->ready = !status;
    return status;
}

/* ---- data ----------------------------------------------------------------------------------- */

int safetensors_append(safetensors_writer *writer, int tensor, const void *data, uint64_t bytes, pt_error *e)
{
    if (!writer->ready || tensor < 0 || (size_t)tensor >= writer->n)
        return pt_fail(e, PT_USAGE, "%.400s: there is no tensor number %d to be written now", writer->folder, tensor);
    out_tensor *t = &writer->tensors[tensor];
    if (bytes > t->bytes - t->written)
        return pt_fail(e, PT_USAGE, "tensor \"%.100s\" has %llu bytes; after %llu, %llu more were given", t->name,
                       (unsigned long long)t->bytes, (unsigned long long)t->written, (unsigned long long)bytes);
    out_shard *s = &writer->shards[t->shard];
    const bool shared = writer->sharing.meet != NULL;
    int status = writer->waits || writer->why.code
                     ? 0
                     : fd_pwrite_all(s->fd, data, bytes, t->offset + t->written, s->path, shared ? &writer->why : e);
    if (status && !shared)
        return status;
    t->written += bytes;
    return 0;
}

static void convert_from_f32(pt_dtype dtype, const float *src, size_t n, void *dst)
{
    uint16_t *half = dst;
    double *wide = dst;
    uint8_t *code = dst;
    for (size_t i = 0; i < n; i++)
        if (dtype == PT_U8)
            code[i] = (uint8_t)src[i];
        else if (dtype == PT_BF16)
            half[i] = bf16_from_f32(src[i]);
        else if (dtype == PT_F16)
            half[i] = f16_from_f32(src[i]);
        else
            wide[i] = (double)src[i];
}

int safetensors_append_f32(safetensors_writer *writer, int tensor, const float *values, uint64_t n, pt_error *e)
{
    _Alignas(64) char piece[65536];
    pt_dtype dtype = tensor >= 0 && (size_t)tensor < writer->n ? writer->tensors[tensor].dtype : PT_F32;
    if (dtype == PT_F32)
        return safetensors_append(writer, tensor, values, n * 4, e);
    if (dtype != PT_BF16 && dtype != PT_F16 && dtype != PT_F64 && dtype != PT_U8)
        return pt_fail(e, PT_USAGE, "tensor \"%.100s\" was declared as %s, which is not written from fp32",
                       writer->tensors[tensor].name, dtype_name(dtype));
    uint64_t most = sizeof piece / dtype_bytes(dtype);
    if (writer->waits)
        return safetensors_append(writer, tensor, values, n * dtype_bytes(dtype), e);
    int status = 0;
    while (n && !status) {
        uint64_t k = n < most ? n : most;
        convert_from_f32(dtype, values, (size_t)k, piece);
        status = safetensors_append(writer, tensor, piece, k * dtype_bytes(dtype), e);
        values += k;
        n -= k;
    }
    return status;
}

static int write_index(const safetensors_writer *writer, const char *path, pt_error *e)
{
    json_t *map = json_object();
    for (size_t i = 0; i < writer->n; i++)
        json_object_set_new(map, writer->tensors[i].name,
                            json_string(strrchr(writer->shards[writer->tensors[i].shard].path, '/') + 1));
    json_t *index = json_pack("{s:{s:I}, s:O}", "metadata", "total_size", (json_int_t)writer->total, "weight_map", map);
    int status = 0;
    if (!index || json_object_size(map) != writer->n)
        status = pt_fail(e, PT_FAILED, "%.400s: cannot be made: a tensor name is used in two shards, or there is no "
                         "memory", path);
    if (!status)
        status = file_write_json(path, index, e);
    json_decref(map);
    json_decref(index);
    return status;
}

/* Renames the synced files, and writes the index or removes an older one. */
static int publish(safetensors_writer *writer, pt_error *e)
{
    char single[FILE_PATH_BYTES], index[FILE_PATH_BYTES], name[192];
    snprintf(name, sizeof name, "%s.safetensors", writer->name);
    int status = path_join(single, writer->folder, name, e);
    snprintf(name, sizeof name, "%s.safetensors.index.json", writer->name);
    if (!status)
        status = path_join(index, writer->folder, name, e);
    for (int i = 0; !status && i < writer->n_shards; i++)
        if (rename(writer->shards[i].temporary, writer->shards[i].path))
            status = pt_fail_errno(e, PT_FAILED, "%.400s: cannot be replaced", writer->shards[i].path);
    if (!status && writer->n_shards > 1)
        status = write_index(writer, index, e);
    const char *older = writer->n_shards > 1 ? single : index;
    if (!status && unlink(older) && errno != ENOENT)
        status = pt_fail_errno(e, PT_FAILED, "%.400s: this file of an older model cannot be removed", older);
    return status ? status : dir_sync(writer->folder, e);
}

static int shard_end(out_shard *s, pt_error *e)
{
    if (s->fd < 0)
        return 0;
    int failed = fsync(s->fd);
    failed |= close(s->fd);
    s->fd = -1;
    return failed ? pt_fail_errno(e, PT_FAILED, "%.400s: cannot be written to its end and synced", s->path) : 0;
}

int safetensors_finish(safetensors_writer *writer, pt_error *e)
{
    if (!writer->ready || writer->finished)
        return pt_fail(e, PT_USAGE, "%.400s: finish was called %s", writer->folder, writer->finished ? "twice" : "before begin");
    for (size_t i = 0; i < writer->n; i++)
        if (writer->tensors[i].written != writer->tensors[i].bytes)
            return pt_fail(e, PT_USAGE, "tensor \"%.100s\" has %llu bytes, but only %llu were given", writer->tensors[i].name,
                           (unsigned long long)writer->tensors[i].bytes, (unsigned long long)writer->tensors[i].written);
    int status = writer->why.code;
    if (status && e)
        *e = writer->why;
    for (int i = 0; i < writer->n_shards && !status; i++)
        status = shard_end(&writer->shards[i], e);
    status = meet(writer, status, e);
    if (status)
        return status;
    status = meet(writer, writer->sharing.leads ? publish(writer, e) : 0, e);
    writer->finished = !status;
    return status;
}

void safetensors_writer_close(safetensors_writer *writer)
{
    if (!writer)
        return;
    for (int i = 0; writer->shards && i < writer->n_shards; i++) {
        if (writer->shards[i].fd >= 0)
            close(writer->shards[i].fd);
        if (!writer->finished && writer->sharing.leads && writer->shards[i].temporary[0])
            unlink(writer->shards[i].temporary);
    }
    for (size_t i = 0; i < writer->n; i++)
        free(writer->tensors[i].name);
    free(writer->tensors);
    free(writer->shards);
    free(writer);
}
