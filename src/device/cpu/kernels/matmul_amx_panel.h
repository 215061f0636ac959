/* matmul_amx_panel.h - the layout of packed panels for AMX tiles; matmul_amx_pack.h has the picture. */
#ifndef PT_MATMUL_AMX_PANEL_H
#define PT_MATMUL_AMX_PANEL_H

#include "device/cpu/kernels/matmul_pack.h"
#include "device/cpu/kernels/matmul_tile.h"
#include "device/cpu/kernels/transpose.h"

enum {
#ifdef PT_SPLIT
    PARTS = 3, /* bf16 per number */
#else
    PARTS = 1,
#endif
    PANEL = 32,                  /* rows of a, columns of b */
    STEP = PACKED_K_STEP,        /* k */
    LINE = STEP / 2,             /* pairs of k, and columns, in a row of a tile */
    TILE = 16 * LINE,            /* factors of a tile */
    STEP_FACTORS = PANEL * LINE  /* in one part of a step of a panel */
};

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t steps_of(int64_t k) { return (k + STEP - 1) / STEP; }

/* The mask of the first n of 32 elements; none if n <= 0. Masked elements are not read, so their addresses may be invalid. */
static __mmask32 first(int64_t n) { return n >= 32 ? ~(__mmask32)0 : n <= 0 ? 0 : ((__mmask32)1 << n) - 1; }

#endif
