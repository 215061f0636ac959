/* matmul_amx_panel.h - what packing for AMX tiles and multiplying them agree on: matmul_amx_pack.h has the picture. */
#ifndef PT_MATMUL_AMX_PANEL_H
#define PT_MATMUL_AMX_PANEL_H

#include "device/cpu/kernels/matmul_pack.h"
#include "device/cpu/kernels/matmul_tile.h"
#include "device/cpu/kernels/turn.h"

enum {
#ifdef PT_SPLIT
    PARTS = 3, /* of bf16, in a number */
#else
    PARTS = 1,
#endif
    PANEL = 32,                  /* rows of a, columns of b */
    STEP = PACKED_K_STEP,        /* k */
    LINE = STEP / 2,             /* pairs of k, and columns, of a tile's row */
    TILE = 16 * LINE,            /* factors of a tile */
    STEP_FACTORS = PANEL * LINE  /* of a part of a step of a panel */
};

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t steps_of(int64_t k) { return (k + STEP - 1) / STEP; }

/* The first n of 32 elements, none where n <= 0. What a mask leaves out is not read: its address may be anywhere. */
static __mmask32 first(int64_t n) { return n >= 32 ? ~(__mmask32)0 : n <= 0 ? 0 : ((__mmask32)1 << n) - 1; }

#endif
