/* amx.h - AMX: eight tiles of 16 rows of 64 bytes, in the copies that are compiled for it.
 *
 * The tiles' shape has to be set in a thread before its first matmul (tiles_open); what else runs in it sets its own.
 */
#ifndef PT_AMX_H
#define PT_AMX_H

#include <immintrin.h>
#include <stdint.h>

/* The intrinsics do not tell the compiler which memory they read and write. */
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
