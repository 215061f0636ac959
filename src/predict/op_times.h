/* op_times.h - how long an op takes on a machine that is not at hand, from its shape and the machine's rates. */
#ifndef PT_OP_TIMES_H
#define PT_OP_TIMES_H

#include "machine/machine_file.h"
#include "predict/op_costs.h"

/* Per nanosecond: what large ops reach. */
typedef struct op_rates {
    bool gpu;
    double flops[2], attention; /* [fp32, bf16], while the device is warm; attention: bf16, forward, of heads of 128 elements */
    double bytes;
    double kernel_ns;
} op_rates;

op_rates op_rates_of(const machine_spec *x);
double op_time_ns(const op_rates *r, const op *o, int64_t vocab);

#endif
