#include "data/unpack.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

enum { PACKED_BLOCK = 65536 };

struct unpack {
    int fd;
    const char *path;
    data_packing packing;
    uint64_t file_bytes;
    bool ended;           /* the file's end has been read */
    bool inside;          /* a stream has begun and not ended */
    uint64_t streams;     /* that have ended */
    size_t at, n;         /* the next byte in the block; the block's size */
    z_stream gzip;
    bool gzip_open;
    ZSTD_DStream *zstd;
    unsigned char block[PACKED_BLOCK];
};

data_packing packing_of_name(const char *name, size_t *length)
{
    static const struct { const char *end; data_packing packing; } known[] = {{".gz", PACKING_GZIP}, {".zst", PACKING_ZSTD}};
    *length = strlen(name);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        const size_t m = strlen(known[i].end);
        if (*length > m && !strcasecmp(name + *length - m, known[i].end)) {
            *length -= m;
            return known[i].packing;
        }
    }
    return PACKING_NONE;
}

int unpack_open(int fd, const char *path, data_packing packing, unpack **out, pt_error *e)
{
    unpack *u = calloc(1, sizeof *u);
    if (!u)
        return pt_fail(e, PT_FAILED, "out of memory: a buffer to read %s", path);
    *u = (unpack){.fd = fd, .path = path, .packing = packing};
    u->gzip_open = packing == PACKING_GZIP && inflateInit2(&u->gzip, 15 + 16) == Z_OK; /* 16: a gzip header */
    u->zstd = packing == PACKING_ZSTD ? ZSTD_createDStream() : NULL;
    if (packing == PACKING_NONE || u->gzip_open || u->zstd) {
        *out = u;
        return 0;
    }
    unpack_close(u);
    return pt_fail(e, PT_FAILED, "out of memory: the window to unpack %s", path);
}

void unpack_close(unpack *u)
{
    if (u && u->gzip_open)
        inflateEnd(&u->gzip);
    if (u)
        ZSTD_freeDStream(u->zstd);
    free(u);
}

uint64_t unpack_file_bytes(const unpack *u) { return u->file_bytes; }

static int read_bytes(unpack *u, void *p, size_t room, size_t *n, pt_error *e)
{
    ssize_t got;
    do
        got = read(u->fd, p, room);
    while (got < 0 && errno == EINTR);
    if (got < 0)
        return pt_fail_errno(e, PT_FAILED, "%s: cannot read at byte %llu", u->path, (unsigned long long)u->file_bytes);
    u->file_bytes += (uint64_t)got;
    u->ended = got == 0;
    *n = (size_t)got;
    return 0;
}

static int fill(unpack *u, pt_error *e)
{
    if (u->at < u->n || u->ended)
        return 0;
    u->at = u->n = 0;
    return read_bytes(u, u->block, PACKED_BLOCK, &u->n, e);
}

static int damaged(const unpack *u, const char *why, pt_error *e)
{
    const uint64_t at = u->file_bytes - (u->n - u->at);
    return pt_fail(e, PT_FAILED, "%s: damaged compressed data before byte %llu (%s): get the file again", u->path, (unsigned long long)at,
                   why);
}

/* One call of the library: takes bytes of the block, and writes up to `room` bytes, *n. */
static int inflate_some(unpack *u, void *p, size_t room, size_t *n, pt_error *e)
{
    z_stream *z = &u->gzip;
    z->next_in = u->block + u->at;
    z->avail_in = (uInt)(u->n - u->at);
    z->next_out = p;
    z->avail_out = room < UINT32_MAX ? (uInt)room : UINT32_MAX;
    const uInt out = z->avail_out;
    const int rc = inflate(z, Z_NO_FLUSH);
    u->at = u->n - z->avail_in;
    *n = out - z->avail_out;
    u->inside = rc != Z_STREAM_END;
    if (rc == Z_STREAM_END)
        inflateReset(z);
    if (rc == Z_MEM_ERROR)
        return pt_fail(e, PT_FAILED, "out of memory: to unpack %s", u->path);
    return rc == Z_OK || rc == Z_STREAM_END || rc == Z_BUF_ERROR ? 0 : damaged(u, z->msg ? z->msg : "not gzip", e);
}

static int decompress_some(unpack *u, void *p, size_t room, size_t *n, pt_error *e)
{
    ZSTD_inBuffer in = {u->block, u->n, u->at};
    ZSTD_outBuffer out = {p, room, 0};
    const size_t rc = ZSTD_decompressStream(u->zstd, &out, &in);
    u->at = in.pos;
    *n = out.pos;
    u->inside = rc != 0;
    return ZSTD_isError(rc) ? damaged(u, ZSTD_getErrorName(rc), e) : 0;
}

/* What follows the last stream may be zeros: tapes and some disks fill blocks with them. */
static int skip_zeros(unpack *u, pt_error *e)
{
    int rc = 0;
    while (rc == 0 && !u->ended) {
        while (u->at < u->n && !u->block[u->at])
            u->at++;
        if (u->at < u->n)
            return 0;
        rc = fill(u, e);
    }
    return rc;
}

int unpack_read(unpack *u, void *p, size_t room, size_t *n, pt_error *e)
{
    *n = 0;
    if (u->packing == PACKING_NONE)
        return read_bytes(u, p, room, n, e);
    while (*n == 0) {
        int rc = !u->inside && u->streams && u->packing == PACKING_GZIP ? skip_zeros(u, e) : fill(u, e);
        if (rc < 0)
            return rc;
        if (u->at == u->n && !u->inside && u->streams)
            return 0;
        const size_t before = u->at;
        rc = u->packing == PACKING_GZIP ? inflate_some(u, p, room, n, e) : decompress_some(u, p, room, n, e);
        if (rc < 0)
            return rc;
        u->streams += !u->inside;
        if (u->ended && *n == 0 && u->inside && before == u->at)
            return pt_fail(e, PT_FAILED, "%s: the compressed data end too early, after %llu bytes: the file is cut off: get it again",
                           u->path, (unsigned long long)u->file_bytes);
    }
    return 0;
}
