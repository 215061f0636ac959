/* isa.h - every file of this folder is compiled once per instruction set (x86-64-v2, v3, v4), with PT_ISA set to v2, v3 or v4; matmuls and
 * attention also for others (matmul_tile.h, attention.h); matmul_amx.c only for AMX, twice. KERNEL(name) gives each copy its own symbol. */
#ifndef PT_ISA_H
#define PT_ISA_H

#define PT_PASTE_(a, b) a##_##b
#define PT_PASTE(a, b) PT_PASTE_(a, b)
#define KERNEL(name) PT_PASTE(name, PT_ISA)

/* A rare path that is not inlined into its callers, which would take minutes to compile. Its arguments are passed by value, so that the
 * callers' own copies stay in registers. */
#define ONE_COPY static __attribute__((noinline, noclone))

#endif
