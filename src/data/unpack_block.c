#include "data/unpack.h"

#include <snappy-c.h>
#include <stdbool.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>

static bool unpack_snappy(const void *p, size_t n, void *out, size_t m)
{
    size_t size;
    return snappy_uncompressed_length(p, n, &size) == SNAPPY_OK && size == m && snappy_uncompress(p, n, out, &size) == SNAPPY_OK;
}

static bool unpack_gzip(const void *p, size_t n, void *out, size_t m)
{
    z_stream z = {.next_in = (unsigned char *)p, .avail_in = (uInt)n, .next_out = out, .avail_out = (uInt)m};
    if (n > UINT32_MAX || m > UINT32_MAX || inflateInit2(&z, 15 + 32) != Z_OK) /* 32: gzip or zlib by the header */
        return false;
    const bool done = inflate(&z, Z_FINISH) == Z_STREAM_END && z.total_out == m;
    inflateEnd(&z);
    return done;
}

const char *unpack_block(block_packing packing, const void *p, size_t n, void *out, size_t m)
{
    bool done;
    switch (packing) {
    case BLOCK_SNAPPY: done = unpack_snappy(p, n, out, m); break;
    case BLOCK_GZIP: done = unpack_gzip(p, n, out, m); break;
    case BLOCK_ZSTD: done = (!n && !m) || ZSTD_decompress(out, m, p, n) == m; break;
    default: done = n == m; memcpy(out, p, done ? n : 0);
    }
    return done ? NULL : "compressed data";
}
