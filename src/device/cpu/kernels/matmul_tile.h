/* matmul_tile.h - one rectangle of a matrix product, by one thread. */
#ifndef PT_MATMUL_TILE_H
#define PT_MATMUL_TILE_H

#include "device/cpu/isa.h"
#include "device/cpu/pool.h"
#include "device/device.h"

enum {
    TILE_ROWS = 576,     /* the largest rectangle */
    TILE_COLS = 768,
    TILE_ROW_STEP = 12,  /* a rectangle starts at a multiple of these */
    TILE_COL_STEP = 32,
    ROW_GROUP = 144,     /* rows of a that are packed at a time */
    COL_GROUP = 128,     /* columns of b that are packed once for all rows: a multiple of TILE_COL_STEP */
    PACKED_AT = 1600 << 10 /* where they may lie in a thread's scratch space */
};

/* The kernels also exist for pairs of bf16 (matmul_simd.h): by AVX512-BF16, and on AVX2 with the instruction spelled out, for tests
 * alone. */
#define MATMUL_KERNELS(type, name, parameters) \
    KERNELS(type, name, parameters)            \
    type name##_v4bf16 parameters;             \
    type name##_v3pairs parameters;

/* The copy to call for the op's types. */
#define MATMUL_BEST(o, name) ((o)->type == PT_BF16 && cpu_has_bf16() ? name##_v4bf16 : KERNEL_BEST(name))

/* c[m0 .. m0+rows)[n0 .. n0+cols) of the op. scratch: POOL_SCRATCH_BYTES, aligned to 64. */
MATMUL_KERNELS(void, matmul_tile, (const op_matmul *o, int64_t m0, int64_t rows, int64_t n0, int64_t cols, void *scratch))

/* b in panels, from column n0 on: groups of COL_GROUP columns in the scratch space of all threads, thread after thread, then behind
 * those. */
typedef struct packed {
    char *scratch;       /* of thread 0; the others' follow */
    int64_t n0, threads, group_bytes;
} packed;

static inline void *packed_group(const packed *p, int64_t group)
{
    return p->scratch + group % p->threads * POOL_SCRATCH_BYTES + PACKED_AT + group / p->threads * p->group_bytes;
}

/* Columns [n0, n0 + cols) of b, at most COL_GROUP, with all of K: `to`: packed_bytes. */
MATMUL_KERNELS(void, matmul_pack, (const op_matmul *o, int64_t n0, int64_t cols, void *to))

static inline int64_t packed_bytes(const op_matmul *o)
{
    return (o->type == PT_BF16 && cpu_has_bf16() ? (o->k + 1) / 2 : o->k) * COL_GROUP * 4;
}

/* As matmul_tile, the same bits, from packed columns: at most ROW_GROUP rows, any number of columns; n0 is a multiple of TILE_COL_STEP
 * after that of `b`. The scratch space is used up to PACKED_AT. */
MATMUL_KERNELS(void, matmul_packed, (const op_matmul *o, const packed *b, int64_t m0, int64_t rows, int64_t n0, int64_t cols, void *scratch))

#endif
