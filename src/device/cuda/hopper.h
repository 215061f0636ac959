/* hopper.h - bf16 matmuls of a warpgroup (wgmma, compute capability 9.0), and the tiles that they read.
 *
 * A warpgroup is four consecutive warps; its matmul is 64 x 64. Warp w has rows 16 w .. 16 w + 15, with lanes as in mma.h: c[4 n ..] are
 * the lane's elements of columns 8 n .. 8 n + 7. The right operand, and for group_product also the left one, is in shared memory at a
 * multiple of 1024 bytes:
 *
 *     a tile of D columns is D / 64 panels; a row of a panel is 128 bytes, eight words of 16 bytes
 *     element (r, c) of a panel: word (c / 8) ^ (r % 8) of row r        no two of eight rows share a bank
 *
 * Matmuls are asynchronous. They are issued between group_begin and group_end; group_wait<N> waits for all but the last N groups. Until
 * then their registers must not be accessed. group_settle and group_settle_left tell the compiler that these registers have changed, or
 * will be read. Matmuls see writes of threads (also cp.async) to shared memory after group_publish and a barrier.
 *
 * Source: NVIDIA's PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions".
 */
#ifndef PT_CUDA_HOPPER_H
#define PT_CUDA_HOPPER_H

#include "device/cuda/mma.h"

enum { GROUP = 128, GROUP_ROWS = 64, PANEL = 64, PANEL_ALIGN = 1024 };

#ifdef PT_CUDA_SHIM
#define HOPPER_CODE 1
#include "shim_hopper.h"
#else
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define HOPPER_CODE 1
#endif

/* The matrix descriptor of an operand: its address, the stride of groups of eight rows (1024 bytes) and of panels (an instruction reads
 * only one), and the 128-byte swizzle. In units of 16 bytes. */
DEVICE uint64_t panel_descriptor(const uint16_t *p)
{
    return (uint64_t)(shared_address(p) >> 4 & 0x3fff) | (uint64_t)1 << 16 | (uint64_t)(1024 >> 4) << 32 | (uint64_t)1 << 62;
}

DEVICE void group_begin() { asm volatile("wgmma.fence.sync.aligned;" : : : "memory"); }
DEVICE void group_end() { asm volatile("wgmma.commit_group.sync.aligned;" : : : "memory"); }
template <int N> DEVICE void group_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" : : "n"(N) : "memory"); }
DEVICE void group_publish() { asm volatile("fence.proxy.async.shared::cta;" : : : "memory"); }

DEVICE void group_settle(float c[32])
{
#pragma unroll
    for (int i = 0; i < 32; i++)
        asm volatile("" : "+f"(c[i]) : : "memory");
}

DEVICE void group_settle_left(uint32_t a[4][4])
{
#pragma unroll
    for (int i = 0; i < 16; i++)
        asm volatile("" : "+r"(a[i / 4][i % 4]) : : "memory");
}

#define GROUP_SUMS                                                                                                                        \
    "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, " \
    "%28, %29, %30, %31}"
#define GROUP_OPERANDS(c)                                                                                                            \
    "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]), "+f"(c[4]), "+f"(c[5]), "+f"(c[6]), "+f"(c[7]), "+f"(c[8]), "+f"(c[9]),          \
        "+f"(c[10]), "+f"(c[11]), "+f"(c[12]), "+f"(c[13]), "+f"(c[14]), "+f"(c[15]), "+f"(c[16]), "+f"(c[17]), "+f"(c[18]),         \
        "+f"(c[19]), "+f"(c[20]), "+f"(c[21]), "+f"(c[22]), "+f"(c[23]), "+f"(c[24]), "+f"(c[25]), "+f"(c[26]), "+f"(c[27]),         \
        "+f"(c[28]), "+f"(c[29]), "+f"(c[30]), "+f"(c[31])

/* c (64, 64) = or += columns k .. k+15 of 64 rows of panel a, times those of 64 rows of panel b. */
DEVICE void group_product(float c[32], const uint16_t *a, const uint16_t *b, int k, bool add)
{
#ifdef HOPPER_CODE
    asm volatile("{ .reg .pred add; setp.ne.b32 add, %34, 0;"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " GROUP_SUMS ", %32, %33, add, 1, 1, 0, 0; }"
                 : GROUP_OPERANDS(c) : "l"(panel_descriptor(a + k)), "l"(panel_descriptor(b + k)), "r"((int)add));
#endif
}

/* c (64, 64) += a (64, 16), held as the left operand of mma(), times rows row .. row+15 of panel b. */
DEVICE void group_sum(float c[32], const uint32_t a[4], const uint16_t *b, int row)
{
#ifdef HOPPER_CODE
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " GROUP_SUMS ", {%32, %33, %34, %35}, %36, 1, 1, 1, 1;"
                 : GROUP_OPERANDS(c) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(panel_descriptor(b + row * PANEL)));
#endif
}

#endif

/* ---- tiles ---- */

/* The first aligned address for panels in `memory`, which must have PANEL_ALIGN extra bytes. */
DEVICE uint16_t *panels_begin(unsigned char *memory)
{
    return (uint16_t *)(memory + (PANEL_ALIGN - (uintptr_t)memory % PANEL_ALIGN) % PANEL_ALIGN);
}

/* Like tile_copy() of mma.h, to D / 64 panels of ROWS rows. The words of a thread are in one column, which makes their addresses cheap. */
template <int ROWS, int D, int THREADS>
DEVICE void panels_copy(uint16_t *panels, const uint16_t *from, int64_t ld, int64_t row0, int64_t rows, int cols)
{
    const int STEP = THREADS / (D / 8);
    const int row = threadIdx.x / (D / 8), word = threadIdx.x % (D / 8);
    const int left = word * 8 >= cols ? 0 : rows - row0 > ROWS ? ROWS : (int)(rows - row0);
    const uint16_t *source = from + (row0 + row) * ld + word * 8;
    uint16_t *to = panels + word / 8 * ROWS * PANEL + row * PANEL + (word % 8 ^ row % 8) * 8;
#pragma unroll
    for (int i = 0; i < (ROWS + STEP - 1) / STEP; i++, source += STEP * ld) {
        bool there = row + i * STEP < left;
        if (ROWS % STEP == 0 || row + i * STEP < ROWS)
            copy_async(to + i * STEP * PANEL, there ? source : from, there);
    }
}

/* c (64, 64) = rows of a times rows of b, over D columns; their panels have ROWS_A and ROWS_B rows. */
template <int D, int ROWS_A, int ROWS_B> DEVICE void group_products(float c[32], const uint16_t *a, const uint16_t *b)
{
#pragma unroll
    for (int d = 0; d < D; d += 16)
        group_product(c, a + d / PANEL * ROWS_A * PANEL, b + d / PANEL * ROWS_B * PANEL, d % PANEL, d > 0);
}

/* c (64, D) += a (64, 64) . b (64 rows, D) */
template <int D, int ROWS> DEVICE void group_sums(float c[D / PANEL][32], const uint32_t a[4][4], const uint16_t *b)
{
#pragma unroll
    for (int k = 0; k < 4; k++)
#pragma unroll
        for (int panel = 0; panel < D / PANEL; panel++)
            group_sum(c[panel], a[k], b + panel * ROWS * PANEL, 16 * k);
}

/* A sum (64, 64) as the left operand of four matmuls, rounded to bf16. */
DEVICE void group_round(uint32_t a[4][4], const float c[32])
{
#pragma unroll
    for (int k = 0; k < 4; k++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            a[k][i] = bf16_pair(c[8 * k + 2 * i], c[8 * k + 2 * i + 1]);
}

#endif
