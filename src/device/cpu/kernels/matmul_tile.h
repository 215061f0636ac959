/* matmul_tile.h - parts of a matmul, each by one thread. */
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
    PACKED_AT = 1600 << 10 /* where those columns may lie in a thread's scratch space */
};

/* The kernels also exist for pairs of bf16 (matmul_simd.h): by AVX512-BF16, and on AVX2 with the instruction spelled out, for tests
 * alone. */
#define MATMUL_KERNELS(type, name, parameters) \
    KERNELS(type, name, parameters)            \
    type name##_v4bf16 parameters;             \
    type name##_v3pairs parameters;

static inline bool matmul_by_pairs(const op_matmul *o) { return o->type == PT_BF16 && cpu_gains_by_bf16(); }

/* The copy to call for the op's types. */
#define MATMUL_BEST(o, name) (matmul_by_pairs(o) ? name##_v4bf16 : KERNEL_BEST(name))

/* c[m0 .. m0+rows)[n0 .. n0+cols) of the op. scratch: POOL_SCRATCH_BYTES, aligned to 64. */
MATMUL_KERNELS(void, matmul_tile, (const op_matmul *o, int64_t m0, int64_t rows, int64_t n0, int64_t cols, void *scratch))

/* b in panels, from column n0 on, for all rows: as pairs of bf16 (of fp32, in parts that are bf16: matmul_amx.h). Groups of COL_GROUP
 * columns, with all of K, lie in the scratch space of all threads, thread after thread, then behind those. */
typedef struct packed {
    char *scratch;       /* of thread 0, the others' follow; 64-byte aligned */
    int64_t n0, threads, group_bytes;
    int64_t at;          /* bytes from a group's beginning: the columns of the sum's second part lie behind those of the first */
} packed;

enum { PACKED_K_STEP = 32 }; /* as many k as tiles of AMX take at a time */

/* parts: bf16 that a number takes. */
static inline int64_t packed_group_bytes(int64_t k, int parts)
{
    return (k + PACKED_K_STEP - 1) / PACKED_K_STEP * PACKED_K_STEP * COL_GROUP * (int64_t)sizeof(uint16_t) * parts;
}

static inline void *packed_group(const packed *b, int64_t group)
{
    return b->scratch + group % b->threads * POOL_SCRATCH_BYTES + PACKED_AT + group / b->threads * b->group_bytes + b->at;
}

/* Where those of the sum's second part are. */
static inline packed packed_more(const op_matmul *o, const packed *b, int parts)
{
    packed more = *b;
    more.at = packed_group_bytes(o->k, parts);
    return more;
}

#define PACKED_KERNEL(type, name, parameters) \
    type name##_v4bf16 parameters;            \
    type name##_v3pairs parameters;

/* Packs columns [j, j + cols) after b->n0; j is a multiple of TILE_COL_STEP, and no group ends between them. */
PACKED_KERNEL(void, matmul_pack, (const op_matmul *o, const packed *b, int64_t j, int64_t cols))

/* As matmul_tile, the same bits, from packed columns: at most ROW_GROUP rows, columns [j, j + cols) after b->n0; j is a multiple
 * of TILE_COL_STEP, K is not 0. The scratch space is used up to PACKED_AT. */
PACKED_KERNEL(void, matmul_packed, (const op_matmul *o, const packed *b, int64_t m0, int64_t rows, int64_t j, int64_t cols, void *scratch))

#endif
