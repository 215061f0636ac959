/* sum.h - a fast 64-bit checksum. It detects damaged, moved and exchanged bytes, not deliberate changes. Checkpoints and token caches
 * contain it, so the function must never change. */
#ifndef PT_SUM_H
#define PT_SUM_H

#include <stddef.h>
#include <stdint.h>

/* `a` and `b` identify the bytes (such as their count and position), so that equal bytes in another place have another checksum. */
uint64_t sum_bytes(uint64_t a, uint64_t b, const void *bytes, size_t n);

#endif
