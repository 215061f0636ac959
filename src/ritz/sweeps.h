/* sweeps.h - ops on a unit's rows that the sweeps of an energy (sweeps.c) and of a residual loss (jets.c) share. */
#ifndef PT_RITZ_SWEEPS_H
#define PT_RITZ_SWEEPS_H

#include "ritz/network.h"

/* to (rows, W's rows) = from . W^T + bias */
void ritz_linear(const ritz_unit *u, int stage, const char *from, bool bias, char *to);
/* to (rows, W's columns) = from . W + residual */
void ritz_transposed(const ritz_unit *u, int stage, const char *from, const char *residual, char *to);
/* dW += pair^T T, over `stacked` rows of both; db += column sums of the pair's first `rows`. */
void ritz_accumulate(const ritz_unit *u, int stage, const char *pair, int64_t stacked);
/* The stage whose residual is this tensor, -1: none. */
int ritz_adds(const ritz_unit *u, int tensor);

#endif
