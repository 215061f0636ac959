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
 *     reverse   down   q = d[a u + D_b u]/dT: with p, which is d[...]/dT', the weights' gradients in one matmul of stacked rows
 *                          dW += [q_z; p_z]^T [T; T']        q_z = s'(z) q + s''(z) z' p,  p_z = s'(z) p
 *
 * Points are independent: a unit of them can go through all sweeps by itself. A unit is what sums are accumulated over (numerics.md,
 * rule 1). Groups of stages (a residual block; else a stage) are what is computed at a time: a sweep of a group over a unit is a task
 * (program.h). They either keep what they make between the sweeps, or only what they hand to each other, and compute the rest again, with
 * the same bits.
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
/* Xavier's normal distribution for a stage's weights, 0 for its biases: ritz_stage_values of the type. */
void ritz_network_init(const ritz_network *n, int stage, uint64_t seed, void *out);

/* Where a tensor of a unit lies: in the set of tensors that belongs to a group and lasts from the first sweep to the last (or as long as
 * anything reads it), in the unit's own, or in the workspace of one task. */
enum { RITZ_OWN = -1, RITZ_WORK = -2, RITZ_GROUP_STAGES = 2 };
typedef struct ritz_spot { int set; uint64_t at; } ritz_spot;

/* Of `rows` points, in bytes. All sizes are multiples of 4096. */
typedef struct ritz_layout {
    int64_t rows;
    bool kept[RITZ_STAGES];                  /* group: what it makes inside is kept; else computed again */
    ritz_spot tensor[RITZ_STAGES + 1];       /* T s: (2 rows, cols), the values and behind them their tangents; the last: u */
    ritz_spot adjoint[RITZ_STAGES + 1];      /* p s: du/dT s */
    ritz_spot z[RITZ_STAGES], dz[RITZ_STAGES];
    uint64_t pair_at, inner_at;              /* workspace: [q_z; p_z]; q within a group */
    uint64_t seed_at, ones_at, terms_at, value_at; /* own: [a; 1] of the last stage; `rows` ones; OP_QUADRATIC's, in fp64 */
    uint64_t set_bytes[RITZ_STAGES];         /* of each group */
    uint64_t own_bytes, stream_bytes, work_bytes;
} ritz_layout;
void ritz_layout_init(ritz_layout *l, const ritz_network *n, int64_t rows, const bool *kept); /* kept NULL: nothing is */

/* A group's turn on a unit. x has been written to T0's values, OP_QUADRATIC's terms and ones to the unit's own set. */
typedef struct ritz_unit {
    const ritz_network *net;
    const ritz_layout *layout;
    queue *queue;
    int group;
    char *set[2];         /* of the group, and of the one behind it */
    char *own, *work;
    char *stream;         /* q of the group's output, and in the end q of its input */
    const char *weights[RITZ_GROUP_STAGES]; /* of the group's stages: W, and behind it the bias */
    char *sums[RITZ_GROUP_STAGES];          /* gradients, likewise */
    int64_t rows;         /* at most the layout's */
    bool flat;            /* the energy does not depend on the gradient: forward and backward are all */
    bool first;           /* accumulates nothing */
} ritz_unit;

void ritz_forward(const ritz_unit *u);
void ritz_adjoint(const ritz_unit *u);   /* with u's gradient by x in p 0 */
void ritz_energy(const ritz_unit *u);    /* group 0 and the last: value_at, and what the reverse begins with */
void ritz_tangent(const ritz_unit *u);   /* of the last group there is nothing to do */
void ritz_reverse(const ritz_unit *u);

/* Around ops on the unit's rows (OP_ROWS), beside the sweeps. */
void ritz_rows_begin(const ritz_unit *u);
void ritz_rows_end(const ritz_unit *u);

static inline char *ritz_at(const ritz_unit *u, ritz_spot s)
{
    return (s.set == RITZ_OWN ? u->own : s.set == RITZ_WORK ? u->work : u->set[s.set - u->group]) + s.at;
}
/* u, one value a row, and its gradient, `input` values a row (of group 0). */
static inline char *ritz_u(const ritz_unit *u) { return ritz_at(u, u->layout->tensor[u->net->stages_n]); }
static inline char *ritz_gradient(const ritz_unit *u) { return ritz_at(u, u->layout->adjoint[0]); }
/* Values of a stage: its W and its bias. */
static inline int64_t ritz_stage_values(const ritz_stage *s) { return s->rows * s->cols + s->rows; }

#endif
