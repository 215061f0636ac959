/* sum.h - a fast 64-bit checksum of bytes that any damage, move or exchange changes (it does not protect against intent). Checkpoints and
 * token caches contain it, so it must never change. */
#ifndef PT_SUM_H
#define PT_SUM_H

#include <stddef.h>
#include <stdint.h>

/* `a` and `b` identify the bytes (their number, their place), so that equal bytes elsewhere have another checksum. */
uint64_t sum_bytes(uint64_t a, uint64_t b, const void *bytes, size_t n);

#endif
