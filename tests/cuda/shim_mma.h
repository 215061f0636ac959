/* shim_mma.h - the tensor cores and shared memory of src/device/cuda/mma.h on the CPU. What each lane holds of a matrix is
 * written down there. Addresses have to be multiples of 16 inside of what the launch asked for. Asynchronous copies are done
 * at once, so a missing wait does not show here. */
#ifndef PT_CUDA_SHIM_MMA_H
#define PT_CUDA_SHIM_MMA_H

#include "shim.h"

#include <cstdio>
#include <cstdlib>

/* As much as a block may have on the GPU with the most; shim_shared: as much as this launch asked for. */
static const unsigned char *shim_memory;
static size_t shim_shared;
enum { SHIM_SHARED_BYTES = 227 << 10 };
#define SHARED_BYTES(name) alignas(128) static unsigned char name[SHIM_SHARED_BYTES]; shim_memory = name

/* Sixteen bytes of the block's shared memory. */
DEVICE void shim_check(const void *p)
{
    const uintptr_t at = (uintptr_t)p, begin = (uintptr_t)shim_memory;
    if (at % 16 == 0 && at >= begin && at + 16 <= begin + shim_shared)
        return;
    fprintf(stderr, "shared memory: 16 bytes at %lld of %zu\n", (long long)(at - begin), shim_shared);
    abort();
}

DEVICE float shim_half(uint32_t pair, int half) { return bf16_value(half ? pair >> 16 : pair & 0xffff); }

/* A lane unpacks no more than its four sums are made of: rows g and g + 8 of the left matrix, columns t and t + 1 of the right. */
DEVICE void mma(float c[4], const uint32_t a[4], const uint32_t b[2])
{
    int g = threadIdx.x % WARP / 4, t = threadIdx.x % 4 * 2;
    float x[2][16], y[2][16];
    for (int part = 0; part < 3; part++) {
        const uint64_t *all = shim_gather(part < 2 ? a[2 * part] | (uint64_t)a[2 * part + 1] << 32 : b[0] | (uint64_t)b[1] << 32);
        for (int reg = 0; reg < 2; reg++)
            for (int k = 0; k < 8; k++)
                if (part < 2) {
                    x[reg][k + 8 * part] = shim_half((uint32_t)(all[4 * g + k / 2] >> (32 * reg)), k % 2);
                } else {
                    y[0][k + 8 * reg] = shim_half((uint32_t)(all[4 * t + k / 2] >> (32 * reg)), k % 2);
                    y[1][k + 8 * reg] = shim_half((uint32_t)(all[4 * t + 4 + k / 2] >> (32 * reg)), k % 2);
                }
    }
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < 16; k++)
            c[i] += x[i / 2][k] * y[i % 2][k];
}

DEVICE void shim_matrix_load(uint32_t r[4], const uint16_t *row, bool turned)
{
    shim_check(row);
    const uint64_t *rows = shim_gather((uint64_t)(uintptr_t)row);
    int g = threadIdx.x % WARP / 4, t = threadIdx.x % 4 * 2;
    for (int m = 0; m < 4; m++) {
        uint16_t pair[2];
        for (int half = 0; half < 2; half++)
            pair[half] = turned ? ((const uint16_t *)(uintptr_t)rows[8 * m + t + half])[g]
                                : ((const uint16_t *)(uintptr_t)rows[8 * m + g])[t + half];
        r[m] = pair[0] | (uint32_t)pair[1] << 16;
    }
}
DEVICE void matrix_load(uint32_t r[4], const uint16_t *row) { shim_matrix_load(r, row, false); }
DEVICE void matrix_load_transposed(uint32_t r[4], const uint16_t *row) { shim_matrix_load(r, row, true); }

DEVICE void copy_async(uint16_t *to, const uint16_t *from, bool there)
{
    shim_check(to);
    if (there && (uintptr_t)from % 16)
        abort();
    if (there)
        memcpy(to, from, 16);
    else
        memset(to, 0, 16);
}
DEVICE void copy_word_async(void *to, const void *from, bool there)
{
    const uint32_t none = 0;
    shim_check((const void *)((uintptr_t)to / 16 * 16));
    memcpy(to, there ? from : &none, sizeof none);
}
DEVICE void copies_commit() {}
template <int N> DEVICE void copies_wait() {}

#endif
