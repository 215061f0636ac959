/* jets.h - the sweeps of a residual loss, which depends on u, its gradient and its Laplacian. Each point carries a jet through the layers:
 * dim + 2 blocks of rows,
 *
 *     [ T ; dT/dx_1 ; ... ; dT/dx_dim ; sum of all d2T/dx_j^2 ]
 *
 * A linear layer maps all blocks alike, with its bias in the first alone. An activation s maps (z, z_j, L) to
 *
 *     s(z),    s'(z) z_j,    s'(z) L + s''(z) (sum of z_j^2)
 *
 * So one sweep up gives u, its gradient and its Laplacian. One sweep down takes the loss's derivatives by these, also blocks of rows, to
 * the gradients of all weights; it needs s'''. Activations and the loss are calls on the CPU's threads.
 */
#ifndef PT_RITZ_JETS_H
#define PT_RITZ_JETS_H

#include "ritz/network.h"

/* An activation of a stage in a unit, for OP_CALL: it lasts until the queue has done it. */
typedef struct jets_call {
    jet_kind kind;
    pt_dtype type;
    int64_t blocks, rows, cols;
    const char *z, *residual, *q; /* residual may be NULL; q: of the output, for the sweep down */
    char *out;
} jets_call;

/* Calls of a unit's sweeps: up, up again in the sweep down, down; and the input. */
static inline int jets_calls(const ritz_network *n) { return 3 * n->stages_n + 1; }

/* The derivatives of x: 1 along its own axis. */
void jets_input(const ritz_unit *u);
void jets_forward(const ritz_unit *u);
void jets_loss(const ritz_unit *u);      /* of group 0: the points' losses, and their derivatives */
void jets_reverse(const ritz_unit *u);

/* s(z) and its first three derivatives. */
void jets_of(jet_kind kind, double z, double s[4]);

#endif
