/* isa.h - which copy of a kernel to run.
 *
 * The files of kernels/ are compiled three times (x86-64-v2, -v3, -v4; see kernels/isa.h; matmuls and
 * attention also for AVX512-BF16 and for AMX, see kernels/matmul_tile.h, matmul_amx.h and attention.h), so that
 * one program serves every machine and uses what the processor has:
 *
 *     KERNELS(void, norm_rows, (const float *x, float *y, int64_t n))     in kernels/norm.h
 *     void KERNEL(norm_rows)(const float *x, float *y, int64_t n) {...}   in kernels/norm.c
 *     KERNEL_BEST(norm_rows)(x, y, n);                                    in ops_norm.c
 *
 * Bits may differ between the copies (fma, width of partial sums); they do not differ between two
 * runs of one copy. The choice is part of what device_info.arithmetic records.
 */
#ifndef PT_CPU_ISA_H
#define PT_CPU_ISA_H

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

/* 2, 3 or 4: the best x86-64 level that the processor and the system support. The environment
 * variable PROTRAIN_ISA (v2, v3 or v4) lowers it, never raises it; it is read once. */
int cpu_isa(void);

/* PT_FAILED of a processor below x86-64-v2, and of a PROTRAIN_ISA that is none of these: who sets it wants certain bits. */
int cpu_isa_check(pt_error *e);

/* Multiplies bf16 pairs in hardware (AVX512-BF16). False below v4. */
bool cpu_has_bf16(void);

/* Multiplies them faster than it multiplies floats. Intel's processors do not: on Emerald Rapids vdpbf16ps reaches half the rate of
 * fp32 fma (bench/results); AMX is what they are fast with. By the maker, not by a measurement: the bits follow from it. */
bool cpu_gains_by_bf16(void);

/* Multiplies tiles of bf16, and the system lets it. False without AVX512-BF16. */
bool cpu_has_amx(void);

/* Whether so much output leaves the caches before anybody reads it: its lines then need not be read into them to be written (vec.h).
 * Of a cache that a machine's neighbours have a part of, 64 MiB count. */
bool cpu_exceeds_cache(int64_t bytes);

/* Declares the three copies of a kernel; ends without a semicolon in use. */
#define KERNELS(type, name, parameters) \
    type name##_v2 parameters;          \
    type name##_v3 parameters;          \
    type name##_v4 parameters;

/* The copy to call. */
#define KERNEL_BEST(name) (cpu_isa() == 4 ? name##_v4 : cpu_isa() == 3 ? name##_v3 : name##_v2)

#endif
