#include "data/id_file.h"

#include "io/files.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { NPY_HEADER_MAX = 65536, BIN_HEADER = 1024, READ_BYTES = 8192 };

/* The Python dictionary in an .npy header; missing keys keep their initial values. */
typedef struct npy_header {
    char descr[16];
    int fortran, dimensions;
    uint64_t n;
} npy_header;

typedef struct cursor {
    const char *p, *end;
} cursor;

static void skip_space(cursor *c)
{
    while (c->p < c->end && isspace((unsigned char)*c->p))
        c->p++;
}

static bool take(cursor *c, const char *word)
{
    skip_space(c);
    size_t n = strlen(word);
    if ((size_t)(c->end - c->p) < n || memcmp(c->p, word, n) != 0)
        return false;
    c->p += n;
    return true;
}

/* 'word' or "word" without escapes. */
static bool take_quoted(cursor *c, char *out, size_t size)
{
    skip_space(c);
    if (c->p == c->end || (*c->p != '\'' && *c->p != '"'))
        return false;
    char quote = *c->p++;
    const char *close = memchr(c->p, quote, (size_t)(c->end - c->p));
    if (!close || (size_t)(close - c->p) >= size)
        return false;
    memcpy(out, c->p, (size_t)(close - c->p));
    out[close - c->p] = 0;
    c->p = close + 1;
    return true;
}

/* (3,) or (3, 4) or (): reads the first dimension and their number. */
static bool take_shape(cursor *c, npy_header *h)
{
    if (!take(c, "("))
        return false;
    while (!take(c, ")")) {
        uint64_t n = 0;
        if (c->p == c->end || !isdigit((unsigned char)*c->p))
            return false;
        for (; c->p < c->end && isdigit((unsigned char)*c->p); c->p++)
            if (__builtin_mul_overflow(n, (uint64_t)10, &n) ||
                __builtin_add_overflow(n, (uint64_t)(*c->p - '0'), &n))
                return false;
        if (h->dimensions++ == 0)
            h->n = n;
        if (!take(c, ",")) {
            if (!take(c, ")"))
                return false;
            break;
        }
    }
    return true;
}

static bool parse_npy(const char *text, size_t n, npy_header *h)
{
    cursor c = {text, text + n};
    *h = (npy_header){.fortran = -1, .dimensions = -1};
    if (!take(&c, "{"))
        return false;
    while (!take(&c, "}")) {
        char key[32];
        if (!take_quoted(&c, key, sizeof key) || !take(&c, ":"))
            return false;
        if (strcmp(key, "descr") == 0) {
            if (!take_quoted(&c, h->descr, sizeof h->descr))
                return false;
        } else if (strcmp(key, "fortran_order") == 0) {
            if (take(&c, "True"))
                h->fortran = 1;
            else if (take(&c, "False"))
                h->fortran = 0;
            else
                return false;
        } else if (strcmp(key, "shape") == 0) {
            h->dimensions = 0;
            if (!take_shape(&c, h))
                return false;
        } else {
            return false;
        }
        if (!take(&c, ",") && !(take(&c, "}") && (c.p--, true)))
            return false;
    }
    skip_space(&c);
    return c.p == c.end && h->descr[0] && h->fortran >= 0 && h->dimensions >= 0;
}

static int check_npy(const npy_header *h, id_file *f, pt_error *e)
{
    static const struct { const char *descr; unsigned id_bytes; bool is_signed; } known[] = {
        {"<u2", 2, false}, {"<u4", 4, false}, {"<i4", 4, true}, {"<i8", 8, true},
    };
    if (h->dimensions != 1)
        return pt_fail(e, PT_FAILED, "%s: the array has %d dimensions, but token ids are one row: save "
                       "ids.reshape(-1)", f->path, h->dimensions);
    if (h->fortran)
        return pt_fail(e, PT_FAILED, "%s: the array is in Fortran order: save numpy.ascontiguousarray(ids)",
                       f->path);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(h->descr, known[i].descr) == 0) {
            f->id_bytes = known[i].id_bytes;
            f->is_signed = known[i].is_signed;
            f->n = h->n;
            return 0;
        }
    return pt_fail(e, PT_FAILED, "%s: elements of type '%s', but token ids are little-endian uint16, uint32, "
                   "int32 or int64: save ids.astype('<u4')", f->path, h->descr);
}

static int open_npy(id_file *f, uint64_t file_bytes, pt_error *e)
{
    unsigned char head[12];
    size_t fixed = file_bytes < sizeof head ? (size_t)file_bytes : sizeof head;
    int rc = fd_pread_all(f->fd, head, fixed, 0, f->path, e);
    if (rc < 0)
        return rc;
    if (fixed < 10 || memcmp(head, "\x93NUMPY", 6) != 0)
        return pt_fail(e, PT_FAILED, "%s: not an .npy file: it does not begin with \\x93NUMPY", f->path);
    if (head[6] < 1 || head[6] > 3)
        return pt_fail(e, PT_FAILED, "%s: .npy format %d.%d is unknown (1.0, 2.0 and 3.0 are read)", f->path,
                       head[6], head[7]);
    size_t start = head[6] == 1 ? 10 : 12, n = head[8] | (size_t)head[9] << 8;
    if (head[6] > 1 && fixed == sizeof head)
        n |= (size_t)head[10] << 16 | (size_t)head[11] << 24;
    if (fixed < start || n > NPY_HEADER_MAX || start + n > file_bytes)
        return pt_fail(e, PT_FAILED, "%s: the .npy header should end at byte %zu, but the file has %llu bytes "
                       "(and a header at most %d): it is damaged", f->path, start + n,
                       (unsigned long long)file_bytes, NPY_HEADER_MAX);
    char *text = malloc(n + 1);
    if (!text)
        return pt_fail(e, PT_FAILED, "out of memory: the header of %s", f->path);
    npy_header h;
    rc = fd_pread_all(f->fd, text, n, start, f->path, e);
    if (rc == 0 && !parse_npy(text, n, &h))
        rc = pt_fail(e, PT_FAILED, "%s: the .npy header at byte %zu is not a dictionary of descr, "
                     "fortran_order and shape: the file is damaged", f->path, start);
    free(text);
    if (rc < 0)
        return rc;
    f->offset = start + n;
    return check_npy(&h, f, e);
}

static int open_bin(id_file *f, uint64_t file_bytes, pt_error *e)
{
    int32_t header[3];
    if (file_bytes < BIN_HEADER)
        return pt_fail(e, PT_FAILED, "%s: the file has %llu bytes, less than the header of a token file (%d bytes): it is damaged or of "
                                     "another kind", f->path, (unsigned long long)file_bytes, BIN_HEADER);
    int rc = fd_pread_all(f->fd, header, sizeof header, 0, f->path, e);
    if (rc < 0)
        return rc;
    if (!(header[0] == 20240520 && header[1] == 1) && !(header[0] == 20240801 && header[1] == 7))
        return pt_fail(e, PT_FAILED, "%s: magic %d version %d at byte 0 is not that of llm.c's token files (20240520 version 1, 20240801 "
                                     "version 7): save raw ids as .npy instead", f->path,
                       header[0], header[1]);
    if (header[2] < 0)
        return pt_fail(e, PT_FAILED, "%s: the header at byte 8 says %d ids: the file is damaged", f->path, header[2]);
    f->id_bytes = header[0] == 20240520 ? 2 : 4;
    f->offset = BIN_HEADER;
    f->n = (uint64_t)header[2];
    return 0;
}

int id_file_open(int fd, const char *path, data_kind kind, id_file *out, pt_error *e)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return pt_fail_errno(e, PT_FAILED, "%s: cannot examine this file", path);
    uint64_t file_bytes = (uint64_t)st.st_size, ids_bytes, want;
    *out = (id_file){.fd = fd, .path = path};
    int rc = kind == DATA_NPY ? open_npy(out, file_bytes, e) : open_bin(out, file_bytes, e);
    if (rc < 0)
        return rc;
    if (__builtin_mul_overflow(out->n, (uint64_t)out->id_bytes, &ids_bytes) ||
        __builtin_add_overflow(ids_bytes, out->offset, &want) || want != file_bytes)
        return pt_fail(e, PT_FAILED, "%s: the header says %llu ids of %u bytes from byte %llu, which is not "
                       "the file's size of %llu bytes: it was cut or damaged, write it again", path,
                       (unsigned long long)out->n, out->id_bytes, (unsigned long long)out->offset,
                       (unsigned long long)file_bytes);
    return 0;
}

static int64_t id_at(const id_file *f, const unsigned char *p)
{
    uint16_t u2;
    uint32_t u4;
    int64_t i8;
    switch (f->id_bytes) {
    case 2:
        memcpy(&u2, p, 2);
        return u2;
    case 4:
        memcpy(&u4, p, 4);
        return f->is_signed ? (int64_t)(int32_t)u4 : (int64_t)u4;
    default:
        memcpy(&i8, p, 8);
        return i8;
    }
}

int id_file_read(const id_file *f, uint64_t start, size_t n, int64_t vocab, uint32_t *out, pt_error *e)
{
    unsigned char block[READ_BYTES];
    const int64_t mark = f->marked ? INT64_C(1) << (8 * f->id_bytes - 1) : 0;
    for (size_t done = 0; done < n;) {
        size_t ids = READ_BYTES / f->id_bytes;
        if (ids > n - done)
            ids = n - done;
        int rc = fd_pread_all(f->fd, block, ids * f->id_bytes, f->offset + (start + done) * f->id_bytes, f->path, e);
        if (rc < 0)
            return rc;
        for (size_t i = 0; i < ids; i++) {
            const int64_t stored = id_at(f, block + i * f->id_bytes), id = stored & ~mark;
            if (id < 0 || id >= vocab)
                return pt_fail(e, PT_FAILED, "%s: id %lld at index %llu is outside the model's vocabulary of %lld: these ids were made by "
                                             "another tokenizer", f->path, (long long)id,
                               (unsigned long long)(start + done + i), (long long)vocab);
            out[done + i] = (uint32_t)id | (stored & mark ? ID_LEARNED : 0);
        }
        done += ids;
    }
    return 0;
}
