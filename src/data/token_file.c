#include "data/token_file.h"

#include "base/sum.h"
#include "io/files.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { IDS_OFFSET = 4096, BUFFER = 65536 };
#define CHECK_AT_ONCE_BYTES (UINT64_C(1) << 30)

static const char MAGIC[8] = "PTTOKEN6";

typedef struct token_header {
    char magic[8];
    uint64_t key[2];
    uint64_t id_bytes; /* 0: in place */
    uint64_t marked;
    token_tally tally;
    uint64_t tokens, documents, docs_offset, checksums_offset, file_bytes;
    uint64_t hash[2];
    uint64_t check[2]; /* hash of the fields above */
} token_header;

typedef struct out_file {
    int fd;
    const char *path;
    struct out_file *checksums; /* gets the checksum of every buffer written; NULL: no checksums */
    uint64_t offset; /* of the buffer's first byte */
    size_t used;
    unsigned char buffer[BUFFER];
} out_file;

struct token_writer {
    char *path, *partial; /* both NULL: unnamed */
    unsigned id_bytes;
    bool marked;
    token_tally tally;
    uint64_t tokens, documents;
    data_hash hash;
    out_file ids, docs, checksums; /* docs, checksums: unnamed files, appended to the cache at the end */
};

static data_hash header_check(const token_header *h)
{
    data_hash check = DATA_HASH_START;
    hash_bytes(&check, h, offsetof(token_header, check));
    return hash_end(check);
}

/* ---- reading ---- */

static bool header_fits(const token_header *h, data_hash key, const id_file *source, uint64_t file_bytes)
{
    data_hash check = header_check(h);
    return memcmp(h->magic, MAGIC, sizeof MAGIC) == 0 && h->check[0] == check.a && h->check[1] == check.b &&
           h->key[0] == key.a && h->key[1] == key.b && h->file_bytes == file_bytes &&
           (h->id_bytes == 0) == (source != NULL) && (!source || source->n == h->tokens);
}

/* Takes ownership of fd and path on success. */
static int describe(token_file *f, int fd, char *path, const token_header *h, const id_file *source, pt_error *e)
{
    uint64_t checksums = (h->file_bytes - h->checksums_offset) / sizeof(uint64_t);
    *f = (token_file){.documents = h->documents, .docs_offset = h->docs_offset, .checksums_offset = h->checksums_offset,
                       .tally = h->tally};
    f->checked = calloc(checksums / 64 + 1, sizeof *f->checked);
    if (!f->checked)
        return pt_fail(e, PT_FAILED, "out of memory for a token cache");
    f->fd = fd;
    f->path = path;
    f->ids = (id_file){.fd = fd, .path = path, .id_bytes = (unsigned)h->id_bytes, .offset = IDS_OFFSET, .n = h->tokens,
                       .marked = h->marked != 0};
    if (source)
        f->ids = *source;
    hash_hex((data_hash){h->hash[0], h->hash[1]}, f->fingerprint);
    return 0;
}

static uint64_t blocks_of(uint64_t bytes) { return (bytes + BUFFER - 1) / BUFFER; }

/* Verifies the checksum of a block of ids or of document starts. */
static int check_block(const token_file *f, uint64_t block, pt_error *e)
{
    unsigned char bytes[BUFFER];
    uint64_t sum, of_ids = blocks_of(f->docs_offset - IDS_OFFSET);
    uint64_t start = block < of_ids ? IDS_OFFSET + block * BUFFER : f->docs_offset + (block - of_ids) * BUFFER;
    uint64_t left = (block < of_ids ? f->docs_offset : f->checksums_offset) - start;
    size_t n = left < BUFFER ? (size_t)left : BUFFER;
    int rc = fd_pread_all(f->fd, bytes, n, start, f->path, e);
    if (rc == 0)
        rc = fd_pread_all(f->fd, &sum, sizeof sum, f->checksums_offset + block * sizeof sum, f->path, e);
    if (rc == 0 && sum != sum_bytes(block + 1, n, bytes, n))
        rc = pt_fail(e, PT_FAILED, "%s: the token cache is damaged between bytes %llu and %llu: remove it, and it will be made again",
                     f->path, (unsigned long long)start, (unsigned long long)(start + n));
    return rc;
}

/* Verifies the checksums of [offset, offset + n), of ids or of document starts, unless verified before. */
static int check_range(const token_file *f, uint64_t offset, uint64_t n, pt_error *e)
{
    bool ids = offset < f->docs_offset;
    uint64_t from = ids ? IDS_OFFSET : f->docs_offset, first = ids ? 0 : blocks_of(f->docs_offset - IDS_OFFSET);
    int rc = 0;
    for (uint64_t block = (offset - from) / BUFFER; n && block <= (offset - from + n - 1) / BUFFER && rc == 0; block++) {
        uint64_t at = first + block, bit = UINT64_C(1) << at % 64;
        if (atomic_load_explicit(&f->checked[at / 64], memory_order_relaxed) & bit)
            continue;
        rc = check_block(f, at, e);
        if (rc == 0)
            atomic_fetch_or_explicit(&f->checked[at / 64], bit, memory_order_relaxed);
    }
    return rc;
}

static int check_all(const token_file *f, pt_error *e)
{
    int rc = check_range(f, IDS_OFFSET, f->docs_offset - IDS_OFFSET, e);
    return rc < 0 ? rc : check_range(f, f->docs_offset, f->checksums_offset - f->docs_offset, e);
}

int token_file_open(const char *path, data_hash key, const id_file *source, token_file *out, bool *damaged, pt_error *e)
{
    struct stat st;
    token_header h;
    *damaged = false;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? 0 : pt_fail_errno(e, PT_FAILED, "%s: cannot open the token cache", path);
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || (size_t)st.st_size < sizeof h ||
        fd_pread_all(fd, &h, sizeof h, 0, path, NULL) < 0 || !header_fits(&h, key, source, (uint64_t)st.st_size)) {
        close(fd);
        return 0;
    }
    char *name = strdup(path);
    int rc = name ? describe(out, fd, name, &h, source, e) : pt_fail(e, PT_FAILED, "out of memory: the name of a token cache");
    if (rc < 0) {
        free(name);
        close(fd);
        return rc;
    }
    if (h.file_bytes <= CHECK_AT_ONCE_BYTES && check_all(out, NULL) < 0) {
        token_file_close(out);
        *damaged = true;
        return 0;
    }
    return 1;
}

void token_file_close(token_file *f)
{
    if (!f->path)
        return;
    close(f->fd);
    free(f->path);
    free(f->checked);
    *f = (token_file){0};
}

int token_file_ids(const token_file *f, uint64_t start, size_t n, int64_t vocab, uint32_t *out, pt_error *e)
{
    const id_file *ids = &f->ids;
    int rc = ids->fd == f->fd ? check_range(f, IDS_OFFSET + start * ids->id_bytes, n * ids->id_bytes, e) : 0;
    return rc < 0 ? rc : id_file_read(ids, start, n, vocab, out, e);
}

int token_file_starts(const token_file *f, uint64_t first, size_t n, uint64_t *out, pt_error *e)
{
    uint64_t offset = f->docs_offset + first * sizeof *out;
    int rc = check_range(f, offset, n * sizeof *out, e);
    return rc < 0 ? rc : fd_pread_all(f->fd, out, n * sizeof *out, offset, f->path, e);
}

int token_file_example(const token_file *f, uint64_t i, token_example *out, uint64_t *ids_n, pt_error *e)
{
    token_example two[2] = {{.start = f->ids.n}, {.start = f->ids.n}};
    uint64_t starts[2] = {f->ids.n, f->ids.n};
    const size_t n = i + 1 < f->documents ? 2 : 1;
    const uint64_t offset = f->docs_offset + i * sizeof *two;
    int rc = 0;
    if (!f->ids.marked) {
        rc = token_file_starts(f, i, n, starts, e);
        *ids_n = starts[1] - starts[0];
        *out = (token_example){.start = starts[0], .learned = *ids_n ? (uint32_t)(*ids_n - 1) : 0};
        return rc;
    }
    rc = check_range(f, offset, n * sizeof *two, e);
    if (rc == 0)
        rc = fd_pread_all(f->fd, two, n * sizeof *two, offset, f->path, e);
    *out = two[0];
    *ids_n = two[1].start - two[0].start;
    return rc;
}

int token_file_document(const token_file *f, uint64_t position, uint64_t *document, uint64_t *start,
                        pt_error *e)
{
    uint64_t low = 0, high = f->documents, found = 0; /* starts[low] <= position < starts[high] */
    while (high - low > 1) {
        uint64_t middle = low + (high - low) / 2, at;
        int rc = token_file_starts(f, middle, 1, &at, e);
        if (rc < 0)
            return rc;
        if (at <= position) {
            low = middle;
            found = at;
        } else {
            high = middle;
        }
    }
    *document = low;
    *start = found;
    return 0;
}

/* ---- writing ---- */

static int out_put(out_file *o, const void *p, size_t n, pt_error *e);

static int out_flush(out_file *o, pt_error *e)
{
    int rc = fd_pwrite_all(o->fd, o->buffer, o->used, o->offset, o->path, e);
    if (rc < 0)
        return pt_error_prefix(e, "the token cache could not be written");
    if (o->checksums && o->used) {
        uint64_t number = (o->checksums->offset + o->checksums->used) / sizeof number + 1,
        sum = sum_bytes(number, o->used, o->buffer, o->used);
        rc = out_put(o->checksums, &sum, sizeof sum, e);
    }
    o->offset += o->used;
    o->used = 0;
    return rc;
}

static int out_put(out_file *o, const void *p, size_t n, pt_error *e)
{
    if (o->used + n > BUFFER) {
        int rc = out_flush(o, e);
        if (rc < 0)
            return rc;
    }
    memcpy(o->buffer + o->used, p, n);
    o->used += n;
    return 0;
}

/* Opens and locks the partial file. The previous holder may have renamed or removed it; then the name is opened again. On file systems
 * without locks there is no lock. */
static int lock_partial(const char *path, pt_error *e)
{
    for (;;) {
        struct stat held, named;
        int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
        if (fd < 0)
            return pt_fail_errno(e, PT_FAILED, "%s: cannot write the token cache", path);
        while (flock(fd, LOCK_EX) < 0 && errno == EINTR)
            ;
        if (fstat(fd, &held) == 0 && stat(path, &named) == 0 && held.st_ino == named.st_ino &&
            held.st_dev == named.st_dev)
            return fd;
        close(fd);
    }
}

static int open_outputs(token_writer *w, pt_error *e)
{
    char *copy = w->path ? strdup(w->path) : NULL;
    if (w->path && (!copy || asprintf(&w->partial, "%s.partial", w->path) < 0)) {
        free(copy);
        w->partial = NULL;
        return pt_fail(e, PT_FAILED, "out of memory: the name of a token cache");
    }
    const char *folder = copy ? dirname(copy) : NULL;
    w->ids.path = w->docs.path = w->checksums.path = w->partial ? w->partial : "a temporary file";
    w->ids.fd = w->partial ? lock_partial(w->partial, e) : file_unnamed(NULL, e);
    if (w->ids.fd >= 0)
        w->docs.fd = file_unnamed(folder, e);
    if (w->docs.fd >= 0)
        w->checksums.fd = file_unnamed(folder, e);
    free(copy);
    if (w->ids.fd < 0 || w->docs.fd < 0 || w->checksums.fd < 0)
        return PT_FAILED;
    if (ftruncate(w->ids.fd, 0) < 0)
        return pt_fail_errno(e, PT_FAILED, "%s: cannot empty this file", w->ids.path);
    w->ids.offset = IDS_OFFSET;
    w->ids.checksums = &w->checksums;
    return 0;
}

int token_writer_open(const char *path, unsigned id_bytes, bool marked, token_writer **out, pt_error *e)
{
    token_writer *w = calloc(1, sizeof *w);
    if (!w || (path && !(w->path = strdup(path)))) {
        free(w);
        return pt_fail(e, PT_FAILED, "out of memory: buffers to write a token cache");
    }
    w->id_bytes = id_bytes;
    w->marked = marked;
    w->hash = DATA_HASH_START;
    w->ids.fd = w->docs.fd = w->checksums.fd = -1;
    int rc = open_outputs(w, e);
    if (rc < 0) {
        token_writer_close(w);
        return rc;
    }
    *out = w;
    return 0;
}

void token_writer_close(token_writer *w)
{
    if (!w)
        return;
    if (w->ids.fd >= 0) {
        if (w->partial)
            unlink(w->partial);
        close(w->ids.fd);
    }
    if (w->docs.fd >= 0)
        close(w->docs.fd);
    if (w->checksums.fd >= 0)
        close(w->checksums.fd);
    free(w->path);
    free(w->partial);
    free(w);
}

int token_writer_document(token_writer *w, pt_error *e)
{
    w->documents++;
    hash_u64(&w->hash, UINT64_MAX);
    return out_put(&w->docs, &w->tokens, sizeof w->tokens, e);
}

int token_writer_ids(token_writer *w, const uint32_t *ids, size_t n, pt_error *e)
{
    int rc = 0;
    for (size_t i = 0; i < n && rc == 0; i++) {
        const uint16_t narrow = (uint16_t)(w->marked ? ids[i] >> 16 & 0x8000 : 0) | (uint16_t)ids[i];
        hash_u64(&w->hash, ids[i]);
        if (w->id_bytes == 2)
            rc = out_put(&w->ids, &narrow, 2, e);
        else if (w->id_bytes == 4)
            rc = out_put(&w->ids, &ids[i], 4, e);
    }
    w->tokens += n;
    return rc;
}

int token_writer_example(token_writer *w, const token_example *x, const uint32_t *ids, size_t n, pt_error *e)
{
    token_example at = *x;
    at.start = w->tokens;
    w->documents++;
    hash_u64(&w->hash, UINT64_MAX);
    int rc = out_put(&w->docs, &at, sizeof at, e);
    return rc < 0 ? rc : token_writer_ids(w, ids, n, e);
}

void token_writer_tally(token_writer *w, const token_tally *tally) { w->tally = *tally; }

/* Appends the contents of another file. */
static int append(out_file *to, out_file *from, pt_error *e)
{
    int rc = out_flush(from, e);
    for (uint64_t at = 0; at < from->offset && rc == 0;) {
        uint64_t left = from->offset - at;
        to->used = left < BUFFER ? (size_t)left : BUFFER;
        at += to->used;
        rc = fd_pread_all(from->fd, to->buffer, to->used, at - to->used, from->path, e);
        if (rc == 0)
            rc = out_flush(to, e);
    }
    return rc;
}

static int append_all(token_writer *w, pt_error *e)
{
    static const char zero[8];
    int rc = out_put(&w->ids, zero, (8 - (w->ids.offset + w->ids.used) % 8) % 8, e);
    if (rc == 0)
        rc = out_flush(&w->ids, e);
    if (rc == 0)
        rc = append(&w->ids, &w->docs, e);
    w->ids.checksums = NULL;
    return rc < 0 ? rc : append(&w->ids, &w->checksums, e);
}

/* Makes the rename durable. */
static void sync_folder(const char *path)
{
    char *copy = strdup(path);
    int fd = copy ? open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (fd >= 0) {
        fsync(fd);
        close(fd);
    }
    free(copy);
}

static int publish(token_writer *w, pt_error *e)
{
    if (!w->path)
        return 0;
    if (fsync(w->ids.fd) < 0)
        return pt_fail_errno(e, PT_FAILED, "%s: cannot sync the token cache", w->partial);
    if (rename(w->partial, w->path) < 0)
        return pt_fail_errno(e, PT_FAILED, "%s: cannot rename the token cache to %s", w->partial, w->path);
    sync_folder(w->path);
    free(w->partial);
    w->partial = NULL;
    return 0;
}

int token_writer_finish(token_writer *w, data_hash key, const id_file *source, token_file *out, pt_error *e)
{
    int rc = append_all(w, e);
    if (rc < 0)
        return rc;
    data_hash hash = hash_end(w->hash);
    token_header h = {
        .key = {key.a, key.b},
        .id_bytes = w->id_bytes,
        .marked = w->marked,
        .tally = w->tally,
        .tokens = w->tokens,
        .documents = w->documents,
        .docs_offset = w->ids.offset - w->checksums.offset - w->docs.offset,
        .checksums_offset = w->ids.offset - w->checksums.offset,
        .file_bytes = w->ids.offset,
        .hash = {hash.a, hash.b},
    };
    memcpy(h.magic, MAGIC, sizeof MAGIC);
    data_hash check = header_check(&h);
    h.check[0] = check.a;
    h.check[1] = check.b;
    rc = fd_pwrite_all(w->ids.fd, &h, sizeof h, 0, w->ids.path, e);
    if (rc == 0)
        rc = publish(w, e);
    if (rc < 0)
        return rc;
    char *name = strdup(w->path ? w->path : "the temporary token cache");
    rc = name ? describe(out, w->ids.fd, name, &h, source, e) : pt_fail(e, PT_FAILED, "out of memory: the name of a token cache");
    if (rc < 0) {
        free(name);
        return rc;
    }
    flock(w->ids.fd, LOCK_UN);
    w->ids.fd = -1;
    return 0;
}
