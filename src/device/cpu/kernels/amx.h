/* amx.h - AMX: eight tiles of 16 rows of 64 bytes.
 *
 * A thread sets the shape of its tiles before its first matmul (tiles_open). Other code in the thread may change it.
 */
#ifndef PT_AMX_H
#define PT_AMX_H

#include <immintrin.h>
#include <stdint.h>

/* A compiler barrier: the intrinsics do not declare which memory they read and write. */
#define TILES_SEE_MEMORY() __asm__ volatile("" ::: "memory")

static inline void tiles_open(void)
{
    static const struct {
        uint8_t palette, start_row, reserved[14];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } all_full = {.palette = 1, .row_bytes = {64, 64, 64, 64, 64, 64, 64, 64}, .rows = {16, 16, 16, 16, 16, 16, 16, 16}};
    _tile_loadconfig(&all_full);
}
static inline void tiles_close(void) { _tile_release(); }

#endif
