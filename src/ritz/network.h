/* network.h - a network u(x) whose gradient by x is part of what is minimised, and how the gradient of that by the weights is computed.
 *
 *     T0 = x -> [linear] -> T1 -> ( linear, s, linear, s, + ) -> ... -> linear -> u          residual: the Deep Ritz network
 *     T0 = x ->  linear, s -> linear, s -> ... -> linear -> u                                plain
 *
 * A stage is z = T W^T + b, T' = s(z) + what the residual connection brings; the first one of a residual network and the last have no s.
 * An energy that depends on u and on g = du/dx through a(x) = dE/du and b(x) = dE/dg has, by the weights w, the gradient
 *
 *     dE/dw = d/dw of [ a u + D_b u ]        D_b u: the derivative of u in the direction b, with a and b held
 *
 * so that no graph of a graph is needed, only four sweeps, about six forward passes whatever the dimension:
 *
 *     forward   up     z, T
 *     adjoint   down   p = du/dT; at the bottom g. Then a and b are known (OP_QUADRATIC).
 *     tangent   up     z', T' in the direction b
 *     reverse   down   q = d[a u + D_b u]/dT: with p, which is d[...]/dT', the weights' gradients in one product of stacked rows
 *                          dW += [q_z; p_z]^T [T; T']        q_z = s'(z) q + s''(z) z' p,  p_z = s'(z) p
 *
 * Points are independent: a unit of them goes through all sweeps by itself, and its memory is all that is needed. A unit is what sums are
 * accumulated over (numerics.md, rule 1). Groups of stages (a residual block; else a stage) either keep what they make between the
 * sweeps, or only what they hand to each other, and compute the rest again, with the same bits.
 */
#ifndef PT_RITZ_NETWORK_H
#define PT_RITZ_NETWORK_H

#include "device/device.h"

enum { RITZ_BLOCKS_MOST = 256, RITZ_STAGES = 2 * RITZ_BLOCKS_MOST + 2, RITZ_WIDTH_MOST = 1 << 16 };

typedef struct ritz_stage {
    int64_t rows, cols;         /* of W */
    bool activated;
    int residual;               /* tensor that is added to the output, -1: none */
    int64_t weight_at, bias_at; /* values, among all parameters */
    char name[24];              /* "input", "blocks.3.1", "output" */
} ritz_stage;

typedef struct ritz_network {
    int64_t dim, width;
    int blocks;
    bool plain;
    bool direct;                /* no input layer: x and zeros are the first block's input */
    jet_kind activation;
    pt_dtype type;              /* PT_F32 or PT_F64: weights, states and all that is computed */
    int64_t input;              /* columns of T0: dim, or direct the width */
    int64_t params;             /* values */
    int stages_n, groups_n;
    int group0[RITZ_STAGES + 1]; /* first stage of each group */
    ritz_stage stages[RITZ_STAGES];
} ritz_network;

/* What the network is made of is set; fills in the rest. PT_USAGE where it is no network. */
int ritz_network_describe(ritz_network *n, pt_error *e);
/* Xavier's normal distribution for weights, 0 for biases; `out` holds n->params values of the type. */
void ritz_network_init(const ritz_network *n, uint64_t seed, void *out);

/* Where a unit's tensors lie, in bytes from its beginning, for `rows` points. */
typedef struct ritz_layout {
    int64_t rows;
    int again;                                   /* the first so many groups compute again */
    uint64_t tensor_at[RITZ_STAGES + 1];         /* T s: (2 rows, cols), the values and behind them their tangents; the last: u */
    uint64_t adjoint_at[RITZ_STAGES + 1];        /* p s: du/dT s */
    uint64_t z_at[RITZ_STAGES], dz_at[RITZ_STAGES];
    uint64_t pair_at, seed_at, outer_at, inner_at; /* [q_z; p_z]; [a; 1] of the last stage; q between groups, and within one */
    uint64_t terms_at, value_at;                 /* OP_QUADRATIC's, in fp64 */
    uint64_t bytes;                              /* a multiple of 4096 */
} ritz_layout;
void ritz_layout_init(ritz_layout *l, const ritz_network *n, int64_t rows, int again);

/* A unit's turn. x has been written to T0's values, OP_QUADRATIC's terms to terms_at. */
typedef struct ritz_unit {
    const ritz_network *net;
    const ritz_layout *layout;
    queue *queue;
    char *memory;
    const char *weights;
    char *accumulators;   /* like the weights: fp32, or fp64 */
    const char *ones;     /* so many as a unit has rows, of the type */
    int64_t rows;         /* at most the layout's */
    bool flat;            /* the energy does not depend on the gradient: forward and backward are all */
    bool first;           /* accumulates nothing */
} ritz_unit;

void ritz_forward(const ritz_unit *u);
void ritz_adjoint(const ritz_unit *u);   /* with u's gradient by x in p 0 */
void ritz_energy(const ritz_unit *u);    /* value_at, and what the reverse begins with */
void ritz_tangent(const ritz_unit *u);
void ritz_reverse(const ritz_unit *u);

static inline char *ritz_at(const ritz_unit *u, uint64_t offset) { return u->memory + offset; }
/* u, one value a row, and its gradient, `input` values a row. */
static inline char *ritz_u(const ritz_unit *u) { return ritz_at(u, u->layout->tensor_at[u->net->stages_n]); }
static inline char *ritz_gradient(const ritz_unit *u) { return ritz_at(u, u->layout->adjoint_at[0]); }

#endif
