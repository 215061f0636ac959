/* isa.h - every file of this folder is compiled once per instruction set (x86-64-v2, v3, v4), with
 * PT_ISA set to v2, v3 or v4, and matmuls and attention for some more (matmul_tile.h, attention.h);
 * matmul_amx.c for AMX alone, twice. KERNEL(name) gives each copy its own symbol. */
#ifndef PT_ISA_H
#define PT_ISA_H

#define PT_PASTE_(a, b) a##_##b
#define PT_PASTE(a, b) PT_PASTE_(a, b)
#define KERNEL(name) PT_PASTE(name, PT_ISA)

/* A function of which one copy does for all who call it: inlined into each, what is rare takes the compiler a minute. It gets values
 * and not pointers to them, so that its callers' own stay in registers. */
#define ONE_COPY static __attribute__((noinline, noclone))

#endif
