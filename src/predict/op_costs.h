/* op_costs.h - what an op asks of a machine, by its shape alone. */
#ifndef PT_OP_COSTS_H
#define PT_OP_COSTS_H

#include "device/device.h"

/* Multiplications and additions, in type; bytes of operands that are read or written, each once. */
typedef struct op_cost { pt_dtype type; double flops, bytes; } op_cost;

/* vocab: how many tokens there are, of which a slice of the embedding has some. */
op_cost op_cost_of(const op *o, int64_t vocab);

#endif
