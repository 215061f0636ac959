/* arithmetic.h - compares records of what the bits depend on (device_info.arithmetic). */
#ifndef PT_ARITHMETIC_H
#define PT_ARITHMETIC_H

#include <stdbool.h>

/* Does training get the same bits? ARM64's NEON has those of x86-64-v3 (device/cpu/isa.h). */
bool arithmetic_same(const char *a, const char *b);

#endif
