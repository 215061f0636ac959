#include "data/dataset.h"

#include "data/permute.h"
#include "data/token_file.h"
#include "data/tokenize.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { COPY_IDS = 4096, CACHE_VERSION = 1 };

struct dataset {
    token_file tokens;
    int source_fd; /* of a data file whose ids are used in place, or -1 */
    char *source_path;
    int64_t seq_len, vocab;
    uint64_t seed;
    bool shuffle, documents;
    int64_t eos; /* ends a document where they are apart, -1: nothing does */
    char notice[1024];
};

/* ---- what the cache is made from ---- */

static data_hash cache_key(const dataset_options *o, const data_files *files)
{
    data_hash h = DATA_HASH_START;
    const char *fingerprint = o->tokenizer_fingerprint ? o->tokenizer_fingerprint : "";
    hash_u64(&h, CACHE_VERSION);
    hash_u64(&h, (uint64_t)o->vocab);
    hash_bytes(&h, fingerprint, strlen(fingerprint));
    if (o->tokenizer) {
        hash_u64(&h, tokenizer_template_adds_bos(o->tokenizer));
        hash_u64(&h, (uint64_t)tokenizer_bos(o->tokenizer));
        hash_u64(&h, (uint64_t)tokenizer_eos(o->tokenizer));
    }
    for (size_t i = 0; i < files->n; i++) {
        const data_file *f = &files->files[i];
        hash_bytes(&h, f->path, strlen(f->path));
        hash_u64(&h, f->kind);
        hash_u64(&h, f->bytes);
        hash_u64(&h, (uint64_t)f->mtime_ns);
    }
    return hash_end(h);
}

/* DIR/tokens-HASH.bin, the hash of the paths alone: changed data replace their old cache.
 * *path = NULL where there is no folder. */
static int cache_path(const dataset_options *o, const data_files *files, char **path, pt_error *e)
{
    *path = NULL;
    if (!o->cache_dir)
        return 0;
    if (mkdir(o->cache_dir, 0777) < 0 && errno != EEXIST)
        return pt_fail_errno(e, PT_FAILED, "%s: cannot make the folder of the token cache", o->cache_dir);
    data_hash h = DATA_HASH_START;
    for (size_t i = 0; i < files->n; i++)
        hash_bytes(&h, files->files[i].path, strlen(files->files[i].path));
    if (asprintf(path, "%s/tokens-%016" PRIx64 ".bin", o->cache_dir, hash_end(h).a) < 0) {
        *path = NULL;
        return pt_fail(e, PT_FAILED, "out of memory: the name of the token cache");
    }
    return 0;
}

/* ---- building ---- */

typedef struct builder {
    const dataset_options *o;
    const data_files *files;
    token_writer *w;
    uint64_t done_bytes;
} builder;

/* Checks the ids of a file and appends them as one document. */
static int add_ids(builder *b, const id_file *f, uint64_t file_bytes, pt_error *e)
{
    uint32_t ids[COPY_IDS];
    int rc = token_writer_document(b->w, e);
    for (uint64_t at = 0; at < f->n && rc == 0;) {
        size_t n = f->n - at < COPY_IDS ? (size_t)(f->n - at) : COPY_IDS;
        rc = id_file_read(f, at, n, b->o->vocab, ids, e);
        if (rc == 0)
            rc = token_writer_ids(b->w, ids, n, e);
        at += n;
        if (rc == 0 && b->o->progress && (at % (64 * COPY_IDS) == 0 || at == f->n))
            b->o->progress(b->o->progress_arg, b->done_bytes + f->offset + at * f->id_bytes, b->files->bytes);
    }
    b->done_bytes += file_bytes;
    return rc;
}

static int add_id_file(builder *b, const data_file *file, pt_error *e)
{
    id_file ids;
    int fd = open(file->path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return pt_fail_errno(e, PT_FAILED, "%s: cannot open this file", file->path);
    int rc = id_file_open(fd, file->path, file->kind, &ids, e);
    if (rc == 0)
        rc = add_ids(b, &ids, file->bytes, e);
    close(fd);
    return rc;
}

/* The text files [first, end). */
static int add_text_files(builder *b, size_t first, size_t end, pt_error *e)
{
    const dataset_options *o = b->o;
    tokenize_options t = {
        .tokenizer = o->tokenizer,
        .threads = o->threads,
        .vocab = o->vocab,
        .progress = o->progress,
        .progress_arg = o->progress_arg,
        .done_bytes = b->done_bytes,
        .total_bytes = b->files->bytes,
    };
    uint64_t text_ids;
    if (!o->tokenizer)
        return pt_fail(e, PT_FAILED, "%s: text needs a tokenizer, and the model has none: put its tokenizer.json "
                       "beside config.json, or give token ids (.npy, .bin)", b->files->files[first].path);
    int rc = tokenize_files(b->files->files + first, end - first, &t, b->w, &text_ids, e);
    if (rc == 0 && text_ids == 0)
        rc = pt_fail(e, PT_FAILED, "%s: holds no text", b->files->files[first].path);
    for (size_t i = first; i < end; i++)
        b->done_bytes += b->files->files[i].bytes;
    return rc;
}

static int add_all(builder *b, const id_file *in_place, pt_error *e)
{
    const data_file *files = b->files->files;
    size_t n = b->files->n;
    if (in_place)
        return add_ids(b, in_place, files[0].bytes, e);
    int rc = 0;
    for (size_t i = 0, end; i < n && rc == 0; i = end) {
        end = i + 1;
        if (data_kind_is_text(files[i].kind)) {
            while (end < n && data_kind_is_text(files[end].kind))
                end++;
            rc = add_text_files(b, i, end, e);
        } else {
            rc = add_id_file(b, &files[i], e);
        }
    }
    return rc;
}

static int build(dataset *d, const dataset_options *o, const data_files *files, const char *path, data_hash key,
                 const id_file *in_place, pt_error *e)
{
    builder b = {.o = o, .files = files};
    unsigned id_bytes = in_place ? 0 : o->vocab <= 65536 ? 2 : 4;
    int rc = token_writer_open(path, id_bytes, &b.w, e);
    if (rc < 0)
        return rc;
    /* Whoever held the lock while we waited may have made just this. */
    bool damaged;
    rc = path ? token_file_open(path, key, in_place, &d->tokens, &damaged, e) : 0;
    if (rc == 0) {
        rc = add_all(&b, in_place, e);
        if (rc == 0)
            rc = token_writer_finish(b.w, key, in_place, &d->tokens, e);
    }
    token_writer_close(b.w);
    return rc < 0 ? rc : 0;
}

/* ---- opening ---- */

/* A single file of ids is used where it is. */
static int open_in_place(dataset *d, const data_file *file, id_file *ids, pt_error *e)
{
    d->source_path = strdup(file->path);
    if (!d->source_path)
        return pt_fail(e, PT_FAILED, "out of memory: the path of %s", file->path);
    d->source_fd = open(file->path, O_RDONLY | O_CLOEXEC);
    if (d->source_fd < 0)
        return pt_fail_errno(e, PT_FAILED, "%s: cannot open this file", file->path);
    return id_file_open(d->source_fd, d->source_path, file->kind, ids, e);
}

static int open_tokens(dataset *d, const dataset_options *o, const data_files *files, pt_error *e)
{
    id_file ids, *in_place = NULL;
    char *path;
    if (files->n == 1 && !data_kind_is_text(files->files[0].kind)) {
        int rc = open_in_place(d, &files->files[0], &ids, e);
        if (rc < 0)
            return rc;
        in_place = &ids;
    }
    int rc = cache_path(o, files, &path, e);
    if (rc < 0)
        return rc;
    data_hash key = cache_key(o, files);
    bool damaged = false;
    rc = path ? token_file_open(path, key, in_place, &d->tokens, &damaged, e) : 0;
    if (damaged)
        snprintf(d->notice, sizeof d->notice, "%.400s: the token cache is damaged, and made anew", path);
    if (rc == 0)
        rc = build(d, o, files, path, key, in_place, e);
    free(path);
    return rc < 0 ? rc : 0;
}

static int check_length(const dataset *d, const data_files *files, bool evaluation, pt_error *e)
{
    uint64_t n = dataset_tokens(d);
    char more[48] = "";
    if (files->n > 1)
        snprintf(more, sizeof more, " and %zu more", files->n - 1);
    if (n < 2)
        return pt_fail(e, PT_FAILED, "%s%s: %" PRIu64 " tokens, but one to start from and one to predict are the least",
                       files->files[0].path, more, n);
    if (!evaluation && dataset_windows(d) == 0)
        return pt_fail(e, PT_FAILED, "%s%s: %" PRIu64 " tokens, but one window of sequence length %lld needs %lld: use a "
                       "sequence length of at most %" PRIu64 ", or more data", files->files[0].path, more, n,
                       (long long)d->seq_len, (long long)d->seq_len + 1, n - 1);
    return 0;
}

static void note_endless(dataset *d, const data_files *files)
{
    const size_t used = strlen(d->notice);
    size_t text = 0;
    for (size_t i = 0; i < files->n; i++)
        text += data_kind_is_text(files->files[i].kind);
    const char *so = text && d->tokens.documents > 1 ? "documents follow each other without one"
                     : text < files->n && d->documents ? "each file of token ids is one document" : NULL;
    if (d->eos < 0 && so)
        snprintf(d->notice + used, sizeof d->notice - used, "%sno token is known that ends a text, so %s: set \"eos_token_id\" in "
                 "config.json", used ? "; " : "", so);
}

static void note_skipped(dataset *d, const data_files *files)
{
    size_t used = strlen(d->notice);
    if (files->skipped)
        snprintf(d->notice + used, sizeof d->notice - used, "%s%" PRIu64 " %s of the data folders left out, not being data: %s%s",
                 used ? "; " : "", files->skipped, files->skipped == 1 ? "entry" : "entries", files->first_skipped,
                 files->skipped > 1 ? ", ..." : "");
}

int dataset_open(const dataset_options *o, dataset **out, pt_error *e)
{
    if (o->seq_len < 1 || o->vocab < 1 || o->vocab > INT32_MAX)
        return pt_fail(e, PT_USAGE, "sequence length %lld and vocabulary %lld must be positive (and 32 bits)",
                       (long long)o->seq_len, (long long)o->vocab);
    dataset *d = calloc(1, sizeof *d);
    if (!d)
        return pt_fail(e, PT_FAILED, "out of memory: a dataset");
    *d = (dataset){.source_fd = -1, .seq_len = o->seq_len, .vocab = o->vocab, .seed = o->seed, .shuffle = o->shuffle,
                   .documents = o->documents, .eos = o->tokenizer ? tokenizer_eos(o->tokenizer) : o->eos};
    data_files files;
    int rc = data_files_list(o->paths, o->paths_n, &files, e);
    if (rc == 0)
        rc = open_tokens(d, o, &files, e);
    if (rc == 0)
        rc = check_length(d, &files, o->evaluation, e);
    if (rc == 0)
        note_endless(d, &files);
    note_skipped(d, &files);
    data_files_note(&files, d->notice, sizeof d->notice);
    data_files_free(&files);
    if (rc < 0) {
        dataset_close(d);
        return rc;
    }
    *out = d;
    return 0;
}

void dataset_close(dataset *d)
{
    if (!d)
        return;
    token_file_close(&d->tokens);
    if (d->source_fd >= 0)
        close(d->source_fd);
    free(d->source_path);
    free(d);
}

uint64_t dataset_tokens(const dataset *d)
{
    return d->tokens.ids.n;
}

uint64_t dataset_windows(const dataset *d)
{
    return (dataset_tokens(d) - 1) / (uint64_t)d->seq_len;
}

const char *dataset_fingerprint(const dataset *d)
{
    return d->tokens.fingerprint;
}

const char *dataset_notice(const dataset *d)
{
    return d->notice[0] ? d->notice : NULL;
}

/* ---- windows ---- */

/* n inputs from id `start` on, and their targets. */
static int read_window(const dataset *d, uint64_t start, size_t n, int32_t *ids, int32_t *targets, pt_error *e)
{
    int rc = token_file_ids(&d->tokens, start, n, d->vocab, (uint32_t *)ids, e);
    if (rc < 0)
        return rc;
    memcpy(targets, ids + 1, (n - 1) * sizeof *targets);
    return token_file_ids(&d->tokens, start + n, 1, d->vocab, (uint32_t *)targets + n - 1, e);
}

/* Where documents start, one after the other. */
typedef struct starts { uint64_t document, ahead[64]; size_t n, at; } starts;

/* *start: of the next document, UINT64_MAX where there is none. */
static int next_start(const dataset *d, starts *s, uint64_t *start, pt_error *e)
{
    *start = UINT64_MAX;
    if (s->at == s->n) {
        const uint64_t left = d->tokens.documents - s->document;
        s->at = 0;
        s->n = left < 64 ? (size_t)left : 64;
        int rc = s->n ? token_file_starts(&d->tokens, s->document, s->n, s->ahead, e) : 0;
        if (rc < 0)
            return rc;
        s->document += s->n;
    }
    if (s->n)
        *start = s->ahead[s->at++];
    return 0;
}

/* Keeps the documents of a window apart, which has n inputs from id `start` on. */
static int part_documents(const dataset *d, uint64_t start, size_t n, const int32_t *ids, int32_t *targets, int32_t *first, pt_error *e)
{
    starts s = {0};
    uint64_t unused, begin = 0;
    int32_t current = 0;
    int rc = token_file_document(&d->tokens, start, &s.document, &unused, e);
    s.document++;
    if (rc == 0)
        rc = next_start(d, &s, &begin, e);
    for (size_t t = 0; t < n && rc == 0; t++) {
        bool ends = ids[t] == d->eos;
        for (; rc == 0 && begin <= start + t + 1; rc = next_start(d, &s, &begin, e))
            ends = true;
        first[t] = current;
        if (ends) {
            targets[t] = -100;
            current = (int32_t)t + 1;
        }
    }
    return rc;
}

/* n inputs from id `start` on, their targets, and their documents. */
static int read_sample(const dataset *d, uint64_t start, size_t n, int32_t *ids, int32_t *targets, int32_t *first, pt_error *e)
{
    int rc = read_window(d, start, n, ids, targets, e);
    return rc == 0 && d->documents ? part_documents(d, start, n, ids, targets, first, e) : rc;
}

int dataset_sample(dataset *d, uint64_t index, uint64_t windows_per_epoch, int32_t *ids, int32_t *targets,
                   int32_t *first, pt_error *e)
{
    uint64_t windows = dataset_windows(d);
    if (windows_per_epoch == 0 || windows_per_epoch > windows)
        return pt_fail(e, PT_USAGE, "an epoch of %" PRIu64 " samples cannot be taken from %" PRIu64 " windows",
                       windows_per_epoch, windows);
    uint64_t epoch = index / windows_per_epoch, w = index % windows_per_epoch;
    if (d->shuffle)
        w = permute(d->seed, epoch, w, windows);
    uint64_t start = w * (uint64_t)d->seq_len;
    return read_sample(d, start, (size_t)d->seq_len, ids, targets, first, e);
}

uint64_t dataset_eval_windows(const dataset *d)
{
    uint64_t T = (uint64_t)d->seq_len;
    return (dataset_tokens(d) - 1 + T - 1) / T;
}

int dataset_eval_window(dataset *d, uint64_t w, int32_t *ids, int32_t *targets, int32_t *first, pt_error *e)
{
    uint64_t T = (uint64_t)d->seq_len, start = w * T;
    if (w >= dataset_eval_windows(d))
        return pt_fail(e, PT_USAGE, "window %" PRIu64 " of %" PRIu64 " does not exist", w, dataset_eval_windows(d));
    uint64_t left = dataset_tokens(d) - 1 - start, n = left < T ? left : T;
    int rc = read_sample(d, start, (size_t)n, ids, targets, first, e);
    for (uint64_t t = n; t < T && rc == 0; t++) {
        ids[t] = 0;
        targets[t] = -100;
        if (d->documents)
            first[t] = (int32_t)n;
    }
    return rc;
}
