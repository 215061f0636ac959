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
    ROW_GROUP = 144,     /* rows of a packed at a time */
    COL_GROUP = 128,     /* columns of b packed at a time for all rows; a multiple of TILE_COL_STEP */
    PACKED_AT = 1600 << 10 /* offset of those columns in a thread's scratch */
};

/* The kernels also exist for pairs of bf16 (matmul_simd.h): for AVX512-BF16 and ARM64's FEAT_BF16 and, for tests alone, with AVX2 in place
 * of the instruction. */
#define PACKED_KERNEL(type, name, parameters) \
    type BF16_COPY(name) parameters;          \
    type name##_v3pairs parameters;
#define MATMUL_KERNELS(type, name, parameters) \
    KERNELS(type, name, parameters)            \
    PACKED_KERNEL(type, name, parameters)

static inline bool matmul_by_pairs(const op_matmul *o) { return o->type == PT_BF16 && cpu_gains_by_bf16(); }

/* The copy to call for the op's types. */
#define MATMUL_BEST(o, name) (matmul_by_pairs(o) ? BF16_COPY(name) : KERNEL_BEST(name))

/* c[m0 .. m0+rows)[n0 .. n0+cols) of the op. scratch: POOL_SCRATCH_BYTES, aligned to 64. */
MATMUL_KERNELS(void, matmul_tile, (const op_matmul *o, int64_t m0, int64_t rows, int64_t n0, int64_t cols, void *scratch))

/* The lines of a and b that are not in place: line i, the elements of a row of c (a in NT and NN) or of a k (a and b in TN), is line a[i]
 * or b[i] of the matrix. NULL: in place. */
typedef struct gathered { const int32_t *a, *b; } gathered;

/* Like matmul_tile, with the same bits as if the lines were in place. Those of the second part of the sum are. */
MATMUL_KERNELS(void, matmul_gathered,
               (const op_matmul *o, gathered from, int64_t m0, int64_t rows, int64_t n0, int64_t cols, void *scratch))

/* Packed panels of b for all rows, from column n0 on: pairs of bf16 (fp32: parts that are bf16, matmul_amx.h). Groups of COL_GROUP columns,
 * each with all of K, are distributed over the scratch of all threads: one to each thread, then the next one to each. */
typedef struct packed {
    char *scratch;       /* of thread 0, followed by the others'; 64-byte aligned */
    int64_t n0, threads, group_bytes;
    int64_t at;          /* offset in a group, in bytes; the second part of the sum comes after the first */
} packed;

enum { PACKED_K_STEP = 32 }; /* k of a step of AMX tiles */

/* parts: bf16 per number. */
static inline int64_t packed_group_bytes(int64_t k, int parts)
{
    return (k + PACKED_K_STEP - 1) / PACKED_K_STEP * PACKED_K_STEP * COL_GROUP * (int64_t)sizeof(uint16_t) * parts;
}

static inline void *packed_group(const packed *b, int64_t group)
{
    return b->scratch + group % b->threads * POOL_SCRATCH_BYTES + PACKED_AT + group / b->threads * b->group_bytes + b->at;
}

/* The packed columns of the second part of the sum. */
static inline packed packed_more(const op_matmul *o, const packed *b, int parts)
{
    packed more = *b;
    more.at = packed_group_bytes(o->k, parts);
    return more;
}

/* Packs columns [j, j + cols) after b->n0, all of one group; j is a multiple of TILE_COL_STEP. */
PACKED_KERNEL(void, matmul_pack, (const op_matmul *o, const packed *b, int64_t j, int64_t cols))

/* Like matmul_tile, with the same bits, from packed columns: at most ROW_GROUP rows, and columns [j, j + cols) after b->n0. j is a multiple
 * of TILE_COL_STEP; K must not be 0. Uses the scratch up to PACKED_AT. */
PACKED_KERNEL(void, matmul_packed, (const op_matmul *o, const packed *b, int64_t m0, int64_t rows, int64_t j, int64_t cols, void *scratch))

#endif
