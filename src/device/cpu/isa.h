/* isa.h - chooses the copy of a kernel to run.
 *
 * The files of kernels/ are compiled three times (x86-64-v2, -v3, -v4; see kernels/isa.h), matmuls and attention also for AVX512-BF16 and
 * AMX (see kernels/matmul_tile.h, matmul_amx.h and attention.h), so that one program runs on every machine and uses its best instruction
 * set:
 *
 *     KERNELS(void, norm_rows, (const float *x, float *y, int64_t n))     in kernels/norm.h
 *     void KERNEL(norm_rows)(const float *x, float *y, int64_t n) {...}   in kernels/norm.c
 *     KERNEL_BEST(norm_rows)(x, y, n);                                    in ops_norm.c
 *
 * Copies may differ in their bits (fma, width of partial sums); runs of the same copy do not. device_info.arithmetic records the choice.
 */
#ifndef PT_CPU_ISA_H
#define PT_CPU_ISA_H

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

/* 2, 3 or 4: the best x86-64 level that the processor and the system support. The environment variable
 * PROTRAIN_ISA (v2, v3 or v4) can lower it, not raise it; it is read once. */
int cpu_isa(void);

/* PT_FAILED: a processor below x86-64-v2, or an invalid PROTRAIN_ISA, because who sets it wants certain bits. */
int cpu_isa_check(pt_error *e);

/* Multiplies bf16 pairs in hardware (AVX512-BF16). False below v4. */
bool cpu_has_bf16(void);

/* Multiplies bf16 pairs faster than floats. Intel's processors do not: on Emerald Rapids vdpbf16ps has half the rate of fp32 fma
 * (bench/results), and only AMX is fast. Decided by the vendor, not by a measurement, because the bits depend on it. */
bool cpu_gains_by_bf16(void);

/* Multiplies tiles of bf16 (AMX), with permission of the system. False without AVX512-BF16. */
bool cpu_has_amx(void);

/* Whether output of this size is evicted from the caches before it is read. It is then written past them, without reading its lines first
 * (vec.h). At most 64 MiB of a cache count, because a cloud machine may share it. */
bool cpu_exceeds_cache(int64_t bytes);

/* Declares the three copies of a kernel. No semicolon after it. */
#define KERNELS(type, name, parameters) \
    type name##_v2 parameters;          \
    type name##_v3 parameters;          \
    type name##_v4 parameters;

/* The copy to call. */
#define KERNEL_BEST(name) (cpu_isa() == 4 ? name##_v4 : cpu_isa() == 3 ? name##_v3 : name##_v2)

#endif
