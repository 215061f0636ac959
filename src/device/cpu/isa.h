/* isa.h - chooses the copy of a kernel to run.
 *
 * The files of kernels/ are compiled three times for x86-64 (x86-64-v2, -v3, -v4; see kernels/isa.h), matmuls and attention also for
 * AVX512-BF16 and AMX (see kernels/matmul_tile.h, matmul_amx.h and attention.h), so that one program runs on every machine and uses its
 * best instruction set. For ARM64 there is one copy (NEON), whose bits are those of x86-64-v3, and of matmuls and attention another, with
 * the instructions for bf16:
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

/* The best level that the processor and the system support: of x86-64 2, 3 or 4; of ARM64 1 (NEON) or 2 (and FEAT_BF16). The environment
 * variable PROTRAIN_ISA (v2, v3 or v4; neon or neonbf16) can lower it, not raise it; it is read once. */
int cpu_isa(void);
int cpu_isa_choose(void); /* what cpu_isa keeps (isa_x86.c, isa_arm64.c) */
const char *cpu_isa_name(void); /* "x86-64-v3" */

/* PT_FAILED: a processor below x86-64-v2, or an invalid PROTRAIN_ISA, because who sets it wants certain bits. */
int cpu_isa_check(pt_error *e);

/* Multiplies bf16 pairs in hardware (AVX512-BF16, which needs v4; FEAT_BF16). */
bool cpu_has_bf16(void);

/* Multiplies bf16 pairs faster than floats. Intel's processors do not: on Emerald Rapids vdpbf16ps has half the rate of fp32 fma
 * (bench/results), and only AMX is fast; nor do Apple's. Decided by the vendor, not by a measurement, because the bits depend on it. */
bool cpu_gains_by_bf16(void);

/* Multiplies tiles of bf16 (AMX), with permission of the system. False without AVX512-BF16. */
bool cpu_has_amx(void);

/* Whether output of this size is evicted from the caches before it is read. It is then written past them, without reading its lines first
 * (vec.h). At most 64 MiB of a cache count, because a cloud machine may share it. Never on ARM64, which has no such stores. */
bool cpu_exceeds_cache(int64_t bytes);

/* KERNELS declares the copies of a kernel. No semicolon after it. KERNEL_BEST is the copy to call, BF16_COPY the one for pairs of bf16. */
#if defined(__x86_64__)
#define KERNELS(type, name, parameters) \
    type name##_v2 parameters;          \
    type name##_v3 parameters;          \
    type name##_v4 parameters;
#ifdef PT_ONE_COPY /* builds with a sanitizer have one copy of most kernels, for the processor that builds */
#define KERNEL_OF(name, isa) name##_##isa
#define KERNEL_COPY(name, isa) KERNEL_OF(name, isa)
#define KERNEL_BEST(name) KERNEL_COPY(name, PT_ONE_COPY)
#else
#define KERNEL_BEST(name) (cpu_isa() == 4 ? name##_v4 : cpu_isa() == 3 ? name##_v3 : name##_v2)
#endif
#define BF16_COPY(name) name##_v4bf16
#else
#define KERNELS(type, name, parameters) type name##_neon parameters;
#define KERNEL_BEST(name) name##_neon
#define BF16_COPY(name) name##_neonbf16
#endif

#endif
