/* adamw_rates.h - the rates of an OP_ADAMW in fp64, which its floats would round: 1 - beta2 by a part in 10^5. */
#ifndef PT_ADAMW_RATES_H
#define PT_ADAMW_RATES_H

typedef struct adamw_rates { double decay, beta1, beta2, eps, step_size, sqrt_correction2; } adamw_rates;

#endif
