#include "data/token_cache.h"

#include "data/tokenize.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { COPY_IDS = 4096, CACHE_VERSION = 4 };

/* ---- the key ---- */

static void hash_rules(data_hash *h, const example_rules *r)
{
    hash_u64(h, r->format);
    hash_u64(h, r->on);
    hash_u64(h, r->asked);
    hash_u64(h, r->one_format);
    hash_u64(h, r->plain);
    hash_u64(h, r->chat ? chat_source_sum(r->chat) : 0);
    hash_u64(h, (uint64_t)r->now);
    if (r->labels)
        hash_u64(h, r->labels);
    if (r->scored)
        hash_u64(h, 2 + (uint64_t)r->padding);
    for (int64_t i = 0; r->names && i < r->names->n; i++) {
        const char *name = r->names->name ? r->names->name[i] : "";
        hash_bytes(h, name, strlen(name));
    }
}

static data_hash cache_key(const token_source *s)
{
    const dataset_options *o = s->o;
    const data_files *files = s->files;
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
    if (s->rules)
        hash_rules(&h, s->rules);
    for (size_t i = 0; o->columns && i < o->columns->n; i++) {
        hash_bytes(&h, o->columns->of[i].name, strlen(o->columns->of[i].name));
        hash_bytes(&h, o->columns->of[i].key, strlen(o->columns->of[i].key));
    }
    for (size_t i = 0; i < files->n; i++) {
        const data_file *f = &files->files[i];
        hash_bytes(&h, f->path, strlen(f->path));
        hash_u64(&h, f->kind);
        hash_u64(&h, f->bytes);
        hash_u64(&h, (uint64_t)f->mtime_ns);
        if (f->share < 1)
            hash_bytes(&h, &f->share, sizeof f->share);
    }
    return hash_end(h);
}

/* DIR/tokens-HASH.bin, where the hash is only of the paths, so that the cache of changed data replaces the old one. "" without a folder. */
static int cache_path(const dataset_options *o, const data_files *files, char path[4096], pt_error *e)
{
    path[0] = 0;
    if (!o->cache_dir)
        return 0;
    if (mkdir(o->cache_dir, 0777) < 0 && errno != EEXIST)
        return pt_fail_errno(e, PT_FAILED, "%s: cannot make the folder of the token cache", o->cache_dir);
    data_hash h = DATA_HASH_START;
    for (size_t i = 0; i < files->n; i++)
        hash_bytes(&h, files->files[i].path, strlen(files->files[i].path));
    if (snprintf(path, 4096, "%s/tokens-%016" PRIx64 ".bin", o->cache_dir, hash_end(h).a) >= 4096)
        return pt_fail(e, PT_FAILED, "%.400s: the path of the token cache is too long", o->cache_dir);
    return 0;
}

/* ---- building ---- */

typedef struct builder {
    const dataset_options *o;
    const data_files *files;
    const example_rules *rules;
    token_writer *w;
    token_tally tally;
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

/* Tokenizes the text files [first, end). */
static int add_text_files(builder *b, size_t first, size_t end, pt_error *e)
{
    const dataset_options *o = b->o;
    tokenize_options t = {
        .tokenizer = o->tokenizer,
        .columns = o->columns,
        .rules = b->rules,
        .first_file = (uint32_t)first,
        .threads = o->threads,
        .vocab = o->vocab,
        .progress = o->progress,
        .progress_arg = o->progress_arg,
        .done_bytes = b->done_bytes,
        .total_bytes = b->files->bytes,
    };
    uint64_t text_ids;
    if (!o->tokenizer)
        return pt_fail(e, PT_FAILED, "%s: text needs a tokenizer, but the model has none: put its tokenizer.json beside config.json, or "
                                     "give token ids (.npy, .bin)", b->files->files[first].path);
    int rc = tokenize_files(b->files->files + first, end - first, &t, b->w, &text_ids, &b->tally, e);
    if (rc == 0 && !b->rules && text_ids == 0)
        rc = pt_fail(e, PT_FAILED, "%s: the file has no text", b->files->files[first].path);
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

static int build(const token_source *s, const char *path, data_hash key, token_file *out, pt_error *e)
{
    builder b = {.o = s->o, .files = s->files, .rules = s->rules};
    const int64_t most = s->rules ? INT16_MAX + 1 : UINT16_MAX + 1; /* an id and its mark must fit */
    const unsigned id_bytes = s->in_place ? 0 : s->o->vocab <= most ? 2 : 4;
    int rc = token_writer_open(path, id_bytes, s->rules != NULL, &b.w, e);
    if (rc < 0)
        return rc;
    /* another process may have built this cache while this one waited for the lock */
    bool damaged;
    rc = path ? token_file_open(path, key, s->in_place, out, &damaged, e) : 0;
    if (rc == 0) {
        rc = add_all(&b, s->in_place, e);
        token_writer_tally(b.w, &b.tally);
        if (rc == 0)
            rc = token_writer_finish(b.w, key, s->in_place, out, e);
    }
    token_writer_close(b.w);
    return rc < 0 ? rc : 0;
}

int token_cache_open(const token_source *s, token_file *out, bool *damaged, char path[4096], pt_error *e)
{
    *damaged = false;
    int rc = cache_path(s->o, s->files, path, e);
    if (rc < 0)
        return rc;
    const data_hash key = cache_key(s);
    rc = path[0] ? token_file_open(path, key, s->in_place, out, damaged, e) : 0;
    if (rc == 0)
        rc = build(s, path[0] ? path : NULL, key, out, e);
    return rc < 0 ? rc : 0;
}
