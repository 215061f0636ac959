/* ops.h - the CPU's ops, cpu_NAME of op_table.h. Each runs one op to its end on a pool; none can fail. For shapes and meaning see
 * device.h. */
#ifndef PT_CPU_OPS_H
#define PT_CPU_OPS_H

#include "device/cpu/pool.h"
#include "device/device.h"

#define CPU_OP(KIND, name, member, doing) void cpu_##name(pool *p, const op_##member *o);
CALL_OPS(CPU_OP)
LIBRARY_OPS(CPU_OP)
KERNEL_OPS(CPU_OP)
#undef CPU_OP

/* cpu_matmul for PT_F64. */
void cpu_matmul_double(pool *pool, const op_matmul *o);

/* Rows m0 .. m0 + rows of a narrow matmul (kernels/matmul_narrow.h), by one thread. */
void cpu_matmul_rows(const op_matmul *o, int64_t m0, int64_t rows, void *scratch);

#endif
