/* matmul.h - how the CPU's matrix products are computed; the op itself is cpu_matmul in ops.h. */
#ifndef PT_CPU_MATMUL_H
#define PT_CPU_MATMUL_H

#include <stddef.h>

/* What the bits of a product depend on beside its shape: "own", or "own fp32, oneDNN 2.6.3 bf16". */
void matmul_arithmetic(char *out, size_t size);

#endif
