/* op_costs.h - the work of an op, from its shape alone. */
#ifndef PT_OP_COSTS_H
#define PT_OP_COSTS_H

#include "device/device.h"

/* Multiplications and additions, in `type`; bytes of operands read or written, each once. `written`, of matmuls only: the bytes of the
 * result and of what is added to it. */
typedef struct op_cost { pt_dtype type; double flops, bytes, written; } op_cost;

/* vocab: number of tokens, of which a slice of the embedding has some. */
op_cost op_cost_of(const op *o, int64_t vocab);

#endif
