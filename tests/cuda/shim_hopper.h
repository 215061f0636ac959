/* shim_hopper.h - a warpgroup's matmuls of src/device/cuda/hopper.h on the CPU: done at once, so a missing wait does not show here. */
#ifndef PT_CUDA_SHIM_HOPPER_H
#define PT_CUDA_SHIM_HOPPER_H

DEVICE float shim_panel(const uint16_t *panel, int row, int column)
{
    const uint16_t *word = panel + row * PANEL + (column / 8 ^ row % 8) * 8;
    shim_check(word);
    return bf16_value(word[column % 8]);
}

/* A panel begins at a multiple of 1024 bytes, a group of eight of its rows too. */
DEVICE void shim_panel_check(const uint16_t *panel)
{
    if ((uintptr_t)panel % PANEL_ALIGN)
        abort();
}

DEVICE void group_begin() {}
DEVICE void group_end() {}
template <int N> DEVICE void group_wait() {}
DEVICE void group_publish() {}
DEVICE void group_settle(float *) {}
DEVICE void group_settle_left(uint32_t[4][4]) {}

DEVICE void group_product(float c[32], const uint16_t *a, const uint16_t *b, int k, bool add)
{
    shim_panel_check(a), shim_panel_check(b);
    int row = threadIdx.x % GROUP / WARP * 16 + threadIdx.x % WARP / 4, column = threadIdx.x % 4 * 2;
    float x[2][16];
    for (int half = 0; half < 2; half++)
        for (int i = 0; i < 16; i++)
            x[half][i] = shim_panel(a, row + 8 * half, k + i);
    for (int n = 0; n < 8; n++)
        for (int j = 0; j < 2; j++) {
            float y[16];
            for (int i = 0; i < 16; i++)
                y[i] = shim_panel(b, 8 * n + column + j, k + i);
            for (int half = 0; half < 2; half++) {
                float *sum = &c[4 * n + 2 * half + j];
                *sum = add ? *sum : 0.0f;
                for (int i = 0; i < 16; i++)
                    *sum += x[half][i] * y[i];
            }
        }
}

DEVICE void group_sum(float c[32], const uint32_t a[4], const uint16_t *b, int row)
{
    shim_panel_check(b);
    for (int n = 0; n < 8; n++) { /* as the matmuls of warps, with the panel's rows for right operand */
        uint32_t y[2];
        int g = threadIdx.x % WARP / 4, t = threadIdx.x % 4 * 2;
        for (int reg = 0; reg < 2; reg++) {
            uint16_t pair[2];
            for (int half = 0; half < 2; half++) {
                int r = row + t + 8 * reg + half, column = 8 * n + g;
                const uint16_t *word = b + r * PANEL + (column / 8 ^ r % 8) * 8;
                shim_check(word);
                pair[half] = word[column % 8];
            }
            y[reg] = pair[0] | (uint32_t)pair[1] << 16;
        }
        mma(c + 4 * n, a, y);
    }
}

#endif
