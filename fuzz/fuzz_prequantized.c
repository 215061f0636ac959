/* fuzz_prequantized.c - any bytes as the description of a matrix in few bits (model/prequantized.h): refused with a sentence, or every
 * value and every byte of its slabs can be read. The first byte says whether the magnitudes are quantized too. */
#include "model/prequantized.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

enum { VALUES = 130, BLOCKS = 3, NESTED = 1, LEVELS = PREQUANTIZED_LEVELS * 4, NESTED_LEVELS = PREQUANTIZED_NESTED_LEVELS * 4 };

/* Codes of 130 values in 3 blocks; zeros throughout. */
static int matrix_file(const uint8_t *state, size_t n, bool nested)
{
    static const char zeros[VALUES / 2 + BLOCKS * 4 + NESTED * 4 + LEVELS + NESTED_LEVELS];
    char header[1024];
    size_t at = VALUES / 2, end = at + (nested ? BLOCKS : BLOCKS * 4);
    int used = snprintf(header, sizeof header, "{\"w\":{\"dtype\":\"U8\",\"shape\":[%d,1],\"data_offsets\":[0,%zu]},", VALUES / 2, at);
    used += snprintf(header + used, sizeof header - (size_t)used,
                     "\"w.absmax\":{\"dtype\":\"%s\",\"shape\":[%d],\"data_offsets\":[%zu,%zu]},", nested ? "U8" : "F32", BLOCKS, at, end);
    const struct { const char *name; int n; } floats[] = {{"nested_absmax", NESTED}, {"quant_map", LEVELS / 4},
                                                          {"nested_quant_map", NESTED_LEVELS / 4}};
    for (int i = 0; i < 3; i++) {
        at = end;
        end += (size_t)floats[i].n * 4;
        used += snprintf(header + used, sizeof header - (size_t)used,
                         "\"w.%s\":{\"dtype\":\"F32\",\"shape\":[%d],\"data_offsets\":[%zu,%zu]},", floats[i].name, floats[i].n, at, end);
    }
    used += snprintf(header + used, sizeof header - (size_t)used,
                     "\"w.quant_state.bitsandbytes__nf4\":{\"dtype\":\"U8\",\"shape\":[%zu],\"data_offsets\":[%zu,%zu]}}", n, end, end + n);
    const uint64_t length = (uint64_t)used;
    const int fd = memfd_create("fuzz.safetensors", MFD_CLOEXEC);
    assert(fd >= 0 && used < (int)sizeof header && end <= sizeof zeros);
    assert(write(fd, &length, 8) == 8 && write(fd, header, length) == (ssize_t)length && write(fd, zeros, end) == (ssize_t)end);
    assert(!n || write(fd, state, n) == (ssize_t)n);
    return fd;
}

static void read_all(const prequantized *q)
{
    static float values[VALUES];
    static char bytes[VALUES];
    pt_error e = {0};
    const int64_t n = q->rows * q->cols;
    assert(n >= 1 && n <= VALUES && q->block >= 1);
    int failed = prequantized_read(q, 0, n, values, &e);
    assert(!failed);
    for (int64_t first = 0; first < n; first += 37) {
        failed = prequantized_read(q, first, n - first, values, &e);
        assert(!failed);
    }
    for (int slab = 0; slab < 4 && q->format == STORAGE_NF4; slab++)
        assert(!prequantized_take(q, slab, 0, slab == NF4_CODES ? (uint64_t)(n + 1) / 2 : slab == NF4_ABSMAX ? 1 : 4, bytes, &e));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    char path[64];
    pt_error e = {0};
    safetensors *st;
    prequantized q;
    if (!n)
        return 0;
    const int fd = matrix_file(data + 1, n - 1, data[0] & 1);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int status = safetensors_open(path, &st, &e);
    assert(!status);
    status = prequantized_open(st, safetensors_find(st, "w"), PT_F16, &q, &e);
    if (status == 1)
        read_all(&q);
    else
        assert(status == PT_FAILED && strlen(e.text) > 10);
    safetensors_close(st);
    close(fd);
    return 0;
}
