#include "data/unpack.h"

#include <brotli/decode.h>
#include <limits.h>
#include <lz4.h>
#include <lz4frame.h>
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

static bool unpack_brotli(const void *p, size_t n, void *out, size_t m)
{
    size_t size = m;
    return BrotliDecoderDecompress(n, p, &size, out) == BROTLI_DECODER_RESULT_SUCCESS && size == m;
}

static bool unpack_lz4(const void *p, size_t n, void *out, size_t m)
{
    return n <= INT_MAX && m <= INT_MAX && LZ4_decompress_safe(p, out, (int)n, (int)m) == (int)m;
}

/* A frame says where it ends. */
static bool unpack_lz4_frame(const void *p, size_t n, void *out, size_t m)
{
    LZ4F_dctx *context;
    size_t taken = 0, given = 0, left = 1;
    if (LZ4F_isError(LZ4F_createDecompressionContext(&context, LZ4F_VERSION)))
        return false;
    for (size_t in = 1, to = 1; left && !LZ4F_isError(left) && (in || to); taken += in, given += to) {
        in = n - taken;
        to = m - given;
        left = LZ4F_decompress(context, (char *)out + given, &to, (const char *)p + taken, &in, NULL);
    }
    LZ4F_freeDecompressionContext(context);
    return !left && taken == n && given == m;
}

const char *unpack_block(block_packing packing, const void *p, size_t n, void *out, size_t m)
{
    bool done;
    if (!n && !m)
        return NULL; /* of nothing, some writers keep nothing */
    switch (packing) {
    case BLOCK_SNAPPY: done = unpack_snappy(p, n, out, m); break;
    case BLOCK_GZIP: done = unpack_gzip(p, n, out, m); break;
    case BLOCK_ZSTD: done = ZSTD_decompress(out, m, p, n) == m; break;
    case BLOCK_BROTLI: done = unpack_brotli(p, n, out, m); break;
    case BLOCK_LZ4: done = unpack_lz4(p, n, out, m); break;
    case BLOCK_LZ4_FRAME: done = unpack_lz4_frame(p, n, out, m); break;
    default: done = n == m; memcpy(out, p, done ? n : 0);
    }
    return done ? NULL : "compressed data";
}
