/* sum.h - a fast 64-bit sum of bytes: what an accident damages, moves or exchanges changes it (nothing is safe from intent). It is
 * written into checkpoints and token caches, so it must stay as it is. */
#ifndef PT_SUM_H
#define PT_SUM_H

#include <stddef.h>
#include <stdint.h>

/* `a` and `b` say which bytes these are (their number, their place), so that equal bytes elsewhere have another sum. */
uint64_t sum_bytes(uint64_t a, uint64_t b, const void *bytes, size_t n);

#endif
