/* safetensors.c - the reader: checks untrusted headers and builds the table of tensors. */
#include "io/safetensors.h"

#include "base/json.h"
#include "io/files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    HEADER_MAX_BYTES = 100 * 1000 * 1000, /* the reference implementation's limit */
    FILES_MAX = 4096
};

typedef struct st_file {
    char *path;
    int fd;
    uint64_t bytes, data_begin;
    json_t *header; /* owns the names of the tensors */
} st_file;

struct safetensors {
    st_file *files;
    int n_files;
    safetensors_tensor *tensors; /* sorted by name */
    size_t n, capacity;
    json_t *map; /* the index's weight_map, or NULL */
};

/* ---- one entry of a header ------------------------------------------------------------------ */

static const struct { const char *text; int bytes; bool known; pt_dtype dtype; } st_dtypes[] = {
    {"F32", 4, true, PT_F32}, {"BF16", 2, true, PT_BF16}, {"F16", 2, true, PT_F16}, {"F64", 8, true, PT_F64},
    {"U8", 1, true, PT_U8}, {"U16", 2, true, PT_U16}, {"I32", 4, true, PT_I32}, {"U32", 4, true, PT_U32},
    {"I64", 8, true, PT_I64}, {"U64", 8, false, 0}, {"I8", 1, false, 0}, {"I16", 2, false, 0},
    {"BOOL", 1, false, 0}, {"F8_E4M3", 1, false, 0}, {"F8_E5M2", 1, false, 0}, {"C64", 8, false, 0},
};

/* A non-negative integer that fits 63 bits, or -1. */
static int64_t st_natural(const json_t *value)
{
    return json_is_integer(value) && json_integer_value(value) >= 0 ? json_integer_value(value) : -1;
}

static int st_shape(safetensors_tensor *tensor, const json_t *shape, const char *path, pt_error *e)
{
    size_t rank = json_array_size(shape);
    if (!json_is_array(shape) || rank > SAFETENSORS_MAX_RANK)
        return pt_fail(e, PT_FAILED, "%.400s: tensor \"%.100s\": its shape is not a list of at most %d sizes", path,
                       tensor->name, SAFETENSORS_MAX_RANK);
    tensor->rank = (int)rank;
    tensor->elements = 1;
    for (int i = 0; i < tensor->rank; i++) {
        tensor->shape[i] = st_natural(json_array_get(shape, (size_t)i));
        if (tensor->shape[i] < 0)
            return pt_fail(e, PT_FAILED, "%.400s: tensor \"%.100s\": size %d of its shape is not a whole number from "
                           "0 on", path, tensor->name, i);
    }
    for (int i = 0; i < tensor->rank; i++)
        if (__builtin_mul_overflow(tensor->elements, (uint64_t)tensor->shape[i], &tensor->elements) || tensor->elements > INT64_MAX / 8)
            return pt_fail(e, PT_FAILED, "%.400s: tensor \"%.100s\": the product of its shape is too large", path,
                           tensor->name);
    return 0;
}

/* Sets the dtype; returns the size of an element, or 0 if unknown. */
static int st_dtype(safetensors_tensor *tensor, const char *text)
{
    snprintf(tensor->dtype_text, sizeof tensor->dtype_text, "%s", text);
    for (size_t i = 0; i < sizeof st_dtypes / sizeof st_dtypes[0]; i++)
        if (!strcmp(text, st_dtypes[i].text)) {
            tensor->dtype = st_dtypes[i].dtype;
            tensor->dtype_is_known = st_dtypes[i].known;
            return st_dtypes[i].bytes;
        }
    return 0;
}

static int st_entry(safetensors_tensor *tensor, const json_t *value, const st_file *f, pt_error *e)
{
    const char *dtype = json_string_value(json_object_get(value, "dtype"));
    const json_t *offsets = json_object_get(value, "data_offsets");
    if (!dtype || json_array_size(offsets) != 2)
        return pt_fail(e, PT_FAILED, "%.400s: tensor \"%.100s\": its entry lacks dtype or data_offsets [begin, end]",
                       f->path, tensor->name);
    int status = st_shape(tensor, json_object_get(value, "shape"), f->path, e);
    if (status)
        return status;
    int64_t begin = st_natural(json_array_get(offsets, 0)), end = st_natural(json_array_get(offsets, 1));
    uint64_t room = f->bytes - f->data_begin;
    if (begin < 0 || end < begin)
        return pt_fail(e, PT_FAILED, "%.400s: tensor \"%.100s\": its data_offsets are not two whole numbers begin <= "
                       "end", f->path, tensor->name);
    if ((uint64_t)end > room)
        return pt_fail(e, PT_FAILED, "%.400s: tensor \"%.100s\" ends at byte %lld of the data, but the file has %llu: it is cut off; get "
                                     "another copy", f->path, tensor->name, (long long)end, (unsigned long long)room);
    tensor->bytes = (uint64_t)(end - begin);
    tensor->offset = f->data_begin + (uint64_t)begin;
    int width = st_dtype(tensor, dtype);
    if (width && tensor->bytes != tensor->elements * (uint64_t)width)
        return pt_fail(e, PT_FAILED, "%.400s: tensor \"%.100s\" has %llu bytes by its data_offsets, but %llu by its "
                       "shape and dtype %s", f->path, tensor->name, (unsigned long long)tensor->bytes,
                       (unsigned long long)(tensor->elements * (uint64_t)width), tensor->dtype_text);
    return 0;
}

/* ---- one file ------------------------------------------------------------------------------- */

static int compare_offset(const void *a, const void *b)
{
    const safetensors_tensor *x = a, *y = b;
    if (x->offset != y->offset)
        return x->offset < y->offset ? -1 : 1;
    return x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

static int compare_name(const void *a, const void *b)
{
    return strcmp(((const safetensors_tensor *)a)->name, ((const safetensors_tensor *)b)->name);
}

/* The tensors must cover the file's data without overlaps or holes. */
static int st_check_layout(safetensors_tensor *tensors, size_t n, const st_file *f, pt_error *e)
{
    qsort(tensors, n, sizeof *tensors, compare_offset);
    uint64_t at = f->data_begin;
    for (size_t i = 0; i < n; i++) {
        if (tensors[i].offset < at)
            return pt_fail(e, PT_FAILED, "%.400s: tensors \"%.100s\" and \"%.100s\" overlap: the file is damaged; get another copy",
                           f->path, tensors[i - 1].name, tensors[i].name);
        if (tensors[i].offset > at)
            return pt_fail(e, PT_FAILED, "%.400s: no tensor has the %llu bytes before \"%.100s\": the file is damaged; get another copy",
                           f->path, (unsigned long long)(tensors[i].offset - at), tensors[i].name);
        at += tensors[i].bytes;
    }
    if (at != f->bytes)
        return pt_fail(e, PT_FAILED, "%.400s: has %llu bytes after its last tensor: the file is damaged; get another copy",
                       f->path, (unsigned long long)(f->bytes - at));
    return 0;
}

static int st_read_header(st_file *f, pt_error *e)
{
    struct stat info;
    unsigned char length[8], start[32] = {0};
    f->fd = open(f->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* does not wait for a pipe's writer */
    if (f->fd < 0)
        return pt_fail_errno(e, PT_FAILED, "%.400s: cannot be opened", f->path);
    if (fstat(f->fd, &info))
        return pt_fail_errno(e, PT_FAILED, "%.400s: cannot be examined", f->path);
    if (!S_ISREG(info.st_mode))
        return pt_fail(e, PT_FAILED, "%.400s: is not a regular file", f->path);
    f->bytes = (uint64_t)info.st_size;
    if (f->bytes < 8)
        return pt_fail(e, PT_FAILED, "%.400s: has %llu bytes, but a safetensors file begins with 8 bytes of header length: get another "
                                     "copy", f->path, (unsigned long long)f->bytes);
    int status = fd_pread_all(f->fd, length, 8, 0, f->path, e);
    if (status)
        return status;
    if (!fd_pread_all(f->fd, start, f->bytes < sizeof start ? (size_t)f->bytes : sizeof start, 0, f->path, NULL) &&
        text_is_lfs_pointer((const char *)start, sizeof start))
        return pt_fail(e, PT_FAILED, LFS_POINTER_TEXT, f->path);
    uint64_t n = 0;
    for (int i = 7; i >= 0; i--)
        n = n << 8 | length[i];
    if (!n)
        return pt_fail(e, PT_FAILED, "%.400s: claims a header of 0 bytes, but the shortest is {}: the file is damaged; get another copy",
                       f->path);
    if (n > HEADER_MAX_BYTES)
        return pt_fail(e, PT_FAILED, "%.400s: claims a header of %llu bytes, but at most %d are possible: this is not a safetensors file",
                       f->path, (unsigned long long)n, HEADER_MAX_BYTES);
    if (n > f->bytes - 8)
        return pt_fail(e, PT_FAILED, "%.400s: claims a header of %llu bytes, but only %llu follow: the file is cut off; get another copy",
                       f->path, (unsigned long long)n, (unsigned long long)(f->bytes - 8));
    char *text = malloc((size_t)n + 1);
    if (!text)
        return pt_fail(e, PT_FAILED, "%.400s: no memory for its header of %llu bytes", f->path, (unsigned long long)n);
    status = fd_pread_all(f->fd, text, (size_t)n, 8, f->path, e);
    if (!status && (json_text_load(f->path, text, (size_t)n, JSON_REJECT_DUPLICATES, &f->header, e)))
        status = pt_error_prefix(e, "in the header (byte 8 is its line 1, column 1)");
    free(text);
    f->data_begin = 8 + n;
    posix_fadvise(f->fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    return status;
}

static int st_grow(safetensors *st, size_t more, pt_error *e)
{
    size_t capacity = st->n + more + 1; /* + 1: not NULL for an empty file */
    if (capacity <= st->capacity)
        return 0;
    safetensors_tensor *tensors = realloc(st->tensors, capacity * sizeof *tensors);
    if (!tensors)
        return pt_fail(e, PT_FAILED, "no memory for a table of %zu tensors", capacity);
    st->tensors = tensors;
    st->capacity = capacity;
    return 0;
}

/* Opens files[i], whose path is set, and adds its tensors to the (then unsorted) table. */
static int st_add_file(safetensors *st, int i, pt_error *e)
{
    st_file *f = &st->files[i];
    int status = st_read_header(f, e);
    if (status)
        return status;
    if (!json_is_object(f->header))
        return pt_fail(e, PT_FAILED, "%.400s: its header is %s, but an object { ... } is needed", f->path,
                       json_type_name(f->header));
    status = st_grow(st, json_object_size(f->header), e);
    if (status)
        return status;
    safetensors_tensor *first = st->tensors + st->n, *tensor = first;
    const char *name;
    json_t *value;
    json_object_foreach(f->header, name, value) {
        if (!strcmp(name, "__metadata__"))
            continue;
        *tensor = (safetensors_tensor){.name = name, .file = i};
        status = st_entry(tensor, value, f, e);
        if (status)
            return status;
        tensor++;
    }
    st->n += (size_t)(tensor - first);
    return st_check_layout(first, (size_t)(tensor - first), f, e);
}

/* ---- a folder ------------------------------------------------------------------------------- */

static int st_files_alloc(safetensors *st, int n, pt_error *e)
{
    st->files = calloc((size_t)n + 1, sizeof *st->files);
    if (!st->files)
        return pt_fail(e, PT_FAILED, "no memory for a table of %d files", n);
    for (int i = 0; i < n; i++)
        st->files[i].fd = -1;
    st->n_files = n;
    return 0;
}

static int st_file_path(safetensors *st, int i, const char *path, pt_error *e)
{
    st->files[i].path = strdup(path);
    return st->files[i].path ? 0 : pt_fail(e, PT_FAILED, "%.400s: no memory for this path", path);
}

static int compare_string(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The shard names of an index, sorted, without repetitions. The shards must be in the index's folder. */
static int st_shard_names(const char *index, json_t *map, const char ***names, int *n, pt_error *e)
{
    size_t count = json_object_size(map), k = 0;
    const char **all = malloc((count + 1) * sizeof *all), *name;
    json_t *value;
    *names = all;
    if (!all)
        return pt_fail(e, PT_FAILED, "%.400s: no memory for its %zu names", index, count);
    json_object_foreach(map, name, value) {
        const char *shard = json_string_value(value);
        if (!shard || !*shard || strchr(shard, '/') || !strcmp(shard, ".") || !strcmp(shard, "..") ||
            strlen(shard) != json_string_length(value))
            return pt_fail(e, PT_FAILED, "%.400s: weight_map: \"%.100s\" must name a file in the same folder, not %.100s",
                           index, name, shard ? shard : json_type_name(value));
        all[k++] = shard;
    }
    qsort(all, k, sizeof *all, compare_string);
    *n = 0;
    for (size_t i = 0; i < k; i++)
        if (!i || strcmp(all[i], all[*n - 1])) {
            if (*n == FILES_MAX)
                return pt_fail(e, PT_FAILED, "%.400s: names more than %d files", index, FILES_MAX);
            all[(*n)++] = all[i];
        }
    return 0;
}

static int shard_find(const char **names, int n, const char *shard)
{
    const char **at = bsearch(&shard, names, (size_t)n, sizeof *names, compare_string);
    return at ? (int)(at - names) : -1;
}

/* The index of an open shard. */
static int shard_of(const safetensors *st, const char *shard)
{
    int found = 0;
    for (int i = 0; i < st->n_files; i++) {
        const char *slash = strrchr(st->files[i].path, '/');
        found = !strcmp(slash ? slash + 1 : st->files[i].path, shard) ? i : found;
    }
    return found;
}

/* Keeps only the tensors that are in the shard that the index names. */
static void st_match_index(safetensors *st, json_t *map, const char **names)
{
    size_t kept = 0;
    for (size_t i = 0; i < st->n; i++) {
        const char *shard = json_string_value(json_object_get(map, st->tensors[i].name));
        if (shard && shard_find(names, st->n_files, shard) == st->tensors[i].file)
            st->tensors[kept++] = st->tensors[i];
    }
    st->n = kept;
    qsort(st->tensors, st->n, sizeof *st->tensors, compare_name);
    st->map = json_incref(map);
}

int safetensors_check_index(const safetensors *st, const char *but, pt_error *e)
{
    const char *name;
    json_t *value;
    json_object_foreach(st->map, name, value)
        if ((!but || strcmp(name, but)) && !safetensors_find(st, name))
            return pt_fail(e, PT_FAILED, "%.350s: the index says that \"%.100s\" is in this file, but it is not: get the files again",
                           st->files[shard_of(st, json_string_value(value))].path, name);
    return 0;
}

static int st_open_shards(safetensors *st, const char *index, json_t *map, const char **names, int n, pt_error *e)
{
    const char *slash = strrchr(index, '/');
    int status = st_files_alloc(st, n, e);
    for (int i = 0; !status && i < n; i++) {
        char path[FILE_PATH_BYTES];
        int folder = slash ? (int)(slash - index) + 1 : 0;
        if (snprintf(path, sizeof path, "%.*s%s", folder, index, names[i]) >= (int)sizeof path)
            status = pt_fail(e, PT_FAILED, "%.400s: the path of a shard is too long", index);
        else if (!path_exists(path))
            status = pt_fail(e, PT_FAILED, "%.400s: this shard, which %.300s names, is missing: get it from where the model came from",
                             path, index);
        if (!status)
            status = st_file_path(st, i, path, e);
        if (!status)
            status = st_add_file(st, i, e);
    }
    if (!status)
        st_match_index(st, map, names);
    return status;
}

static int st_open_index(safetensors *st, const char *index, pt_error *e)
{
    json_t *root, *map;
    int status = json_file_load(index, JSON_REJECT_DUPLICATES, &root, e);
    if (status)
        return status;
    const char **names = NULL;
    int n = 0;
    map = json_object_get(root, "weight_map");
    if (!json_is_object(map) || !json_object_size(map))
        status = pt_fail(e, PT_FAILED, "%.400s: has no \"weight_map\" object with tensors in it", index);
    if (!status)
        status = st_shard_names(index, map, &names, &n, e);
    if (!status)
        status = st_open_shards(st, index, map, names, n, e);
    free(names);
    json_decref(root);
    return status;
}

static int st_open_single(safetensors *st, const char *path, pt_error *e)
{
    int status = st_files_alloc(st, 1, e);
    if (!status)
        status = st_file_path(st, 0, path, e);
    if (!status)
        status = st_add_file(st, 0, e);
    if (!status && st->n)
        qsort(st->tensors, st->n, sizeof *st->tensors, compare_name);
    return status;
}

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);
    return n >= m && !strcmp(s + n - m, end);
}

/* True for a dangling link too: opening it reports the error. */
static bool name_is_taken(const char *path)
{
    struct stat st;
    return !lstat(path, &st);
}

/* Names of weight files in other formats. */
static bool names_other_weights(const char *s)
{
    static const char *const ends[] = {".gguf", ".h5", ".msgpack", ".pth"};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (ends_with(s, ends[i]))
            return true;
    return !strncmp(s, "pytorch_model", 13) && (ends_with(s, ".bin") || ends_with(s, ".bin.index.json"));
}

/* Finds a file in the folder whose name says that it contains weights, or a shard of them. */
static bool find_weights(const char *folder, char name[NAME_MAX + 1])
{
    DIR *d = opendir(folder);
    bool found = false;
    for (struct dirent *entry; d && !found && (entry = readdir(d));) {
        const char *s = entry->d_name;
        found = ends_with(s, ".safetensors") || ends_with(s, ".safetensors.index.json") || names_other_weights(s);
        snprintf(name, NAME_MAX + 1, "%s", s);
    }
    if (d)
        closedir(d);
    return found;
}

/* The file to open for `path`: safetensors, or an index (*is_index). */
static int st_resolve(const char *path, char found[FILE_PATH_BYTES], bool *is_index, pt_error *e)
{
    int status = path_is_folder(path) ? path_join(found, path, "model.safetensors", e) : 0;
    if (status)
        return status;
    if (!path_is_folder(path) && snprintf(found, FILE_PATH_BYTES, "%s", path) >= FILE_PATH_BYTES)
        return pt_fail(e, PT_FAILED, "%.300s...: the path is too long; use a shorter one", path);
    *is_index = ends_with(found, ".json");
    if (name_is_taken(found))
        return 0;
    size_t n = strlen(found);
    static const char index[] = ".index.json";
    if (n + sizeof index <= FILE_PATH_BYTES) {
        memcpy(found + n, index, sizeof index);
        *is_index = true;
        if (name_is_taken(found))
            return 0;
    }
    if (!path_is_folder(path))
        return pt_fail(e, PT_FAILED, "%.400s: there is no such file or folder", path);
    char other[NAME_MAX + 1];
    if (!find_weights(path, other))
        return pt_fail(e, PT_FAILED, "%.400s: the folder has neither model.safetensors nor model.safetensors.index.json", path);
    return pt_fail(e, PT_FAILED, "%.400s: the folder has neither model.safetensors nor model.safetensors.index.json; %.255s %s", path,
                   other, names_other_weights(other) ? "is not supported: save the model as safetensors (save_pretrained of Transformers)"
                                                   : "is the only weights file: get the rest from where the model came from, or rename it "
                                                     "to model.safetensors");
}

int safetensors_open(const char *path, safetensors **out, pt_error *e)
{
    *out = NULL;
    char found[FILE_PATH_BYTES];
    bool is_index = false;
    int status = st_resolve(path, found, &is_index, e);
    if (status)
        return status;
    safetensors *st = calloc(1, sizeof *st);
    if (!st)
        return pt_fail(e, PT_FAILED, "%.400s: no memory to open it", path);
    status = is_index ? st_open_index(st, found, e) : st_open_single(st, found, e);
    if (status)
        safetensors_close(st);
    else
        *out = st;
    return status;
}

void safetensors_close(safetensors *st)
{
    if (!st)
        return;
    for (int i = 0; i < st->n_files; i++) {
        if (st->files[i].fd >= 0)
            close(st->files[i].fd);
        json_decref(st->files[i].header);
        free(st->files[i].path);
    }
    json_decref(st->map);
    free(st->files);
    free(st->tensors);
    free(st);
}

bool safetensors_present(const char *folder)
{
    char name[NAME_MAX + 1];
    return find_weights(folder, name);
}

/* ---- use ------------------------------------------------------------------------------------ */

size_t safetensors_count(const safetensors *st) { return st->n; }
const safetensors_tensor *safetensors_at(const safetensors *st, size_t i) { return &st->tensors[i]; }
const char *safetensors_path(const safetensors *st, const safetensors_tensor *tensor) { return st->files[tensor->file].path; }

const safetensors_tensor *safetensors_find(const safetensors *st, const char *name)
{
    safetensors_tensor key = {.name = name};
    return st->n ? bsearch(&key, st->tensors, st->n, sizeof key, compare_name) : NULL;
}

int safetensors_read_stored(const safetensors *st, const safetensors_tensor *tensor, uint64_t from, uint64_t n, void *dst,
                            pt_error *e)
{
    const st_file *f = &st->files[tensor->file];
    if (from > tensor->bytes || n > tensor->bytes - from)
        return pt_fail(e, PT_USAGE, "%.400s: tensor \"%.100s\" has %llu bytes; %llu from byte %llu on were asked for",
                       f->path, tensor->name, (unsigned long long)tensor->bytes, (unsigned long long)n, (unsigned long long)from);
    int status = fd_pread_all(f->fd, dst, n, tensor->offset + from, f->path, e);
    return status ? pt_error_prefix(e, "tensor \"%.100s\"", tensor->name) : 0;
}

int safetensors_read(const safetensors *st, const safetensors_tensor *tensor, uint64_t from, uint64_t n, void *dst,
                     pt_error *e)
{
    if (!tensor->dtype_is_known)
        return pt_fail(e, PT_FAILED, "%.400s: tensor \"%.100s\" has dtype %s, which is not supported; convert it to "
                       "BF16 or F32", st->files[tensor->file].path, tensor->name, tensor->dtype_text);
    return safetensors_read_stored(st, tensor, from, n, dst, e);
}

static void convert_to_f32(pt_dtype dtype, const void *src, size_t n, float *dst)
{
    const uint16_t *half = src;
    const double *wide = src;
    const uint8_t *code = src;
    for (size_t i = 0; i < n; i++)
        dst[i] = dtype == PT_BF16   ? bf16_to_f32(half[i])
                 : dtype == PT_F16  ? f16_to_f32(half[i])
                 : dtype == PT_U8   ? (float)code[i]
                                    : (float)wide[i];
}

int safetensors_read_f32(const safetensors *st, const safetensors_tensor *tensor, uint64_t from, uint64_t n, float *dst,
                         pt_error *e)
{
    _Alignas(64) char piece[65536];
    bool readable =
        tensor->dtype == PT_F32 || tensor->dtype == PT_BF16 || tensor->dtype == PT_F16 || tensor->dtype == PT_F64 || tensor->dtype == PT_U8;
    if (tensor->dtype_is_known && !readable)
        return pt_fail(e, PT_FAILED, "%.400s: tensor \"%.100s\" has dtype %s, but numbers are needed "
                       "(F32, BF16, F16, F64 or U8)", safetensors_path(st, tensor), tensor->name, tensor->dtype_text);
    uint64_t width = dtype_bytes(tensor->dtype), most = sizeof piece / width;
    if (from > tensor->elements || n > tensor->elements - from)
        return pt_fail(e, PT_USAGE, "%.400s: tensor \"%.100s\" has %llu elements; %llu from number %llu on were asked "
                       "for", safetensors_path(st, tensor), tensor->name, (unsigned long long)tensor->elements, (unsigned long long)n,
                       (unsigned long long)from);
    if (tensor->dtype == PT_F32)
        return safetensors_read(st, tensor, from * 4, n * 4, dst, e);
    while (n) {
        uint64_t k = n < most ? n : most;
        int status = safetensors_read(st, tensor, from * width, k * width, piece, e);
        if (status)
            return status;
        convert_to_f32(tensor->dtype, piece, (size_t)k, dst);
        dst += k;
        from += k;
        n -= k;
    }
    return 0;
}
