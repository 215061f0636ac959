/* network.h - a network u(x), its gradient with respect to x, and the gradient of an energy of both with respect to the weights.
 *
 *     T0 = x -> [linear] -> T1 -> ( linear, s, linear, s, + ) -> ... -> linear -> u          residual: the Deep Ritz network
 *     T0 = x ->  linear, s -> linear, s -> ... -> linear -> u                                plain
 *
 * A stage is z = T W^T + b, T' = s(z) + residual. The first stage of a residual network and the last stage have no activation s. If an
 * energy E depends on u and g = du/dx, with a(x) = dE/du and b(x) = dE/dg, its gradient with respect to the weights w is
 *
 *     dE/dw = d/dw of [ a u + D_b u ]        D_b u: the derivative of u in the direction b, with a and b held
 *
 * So no graph of a graph is needed, only four sweeps, which cost about six forward passes in any dimension:
 *
 *     forward   up     z, T
 *     adjoint   down   p = du/dT; at the bottom it is g. Then a and b are known (OP_QUADRATIC).
 *     tangent   up     z', T': derivatives in the direction b
 *     reverse   down   q = d[a u + D_b u]/dT; p is d[a u + D_b u]/dT', so one matmul of stacked rows gives a weight's gradient
 *                          dW += [q_z; p_z]^T [T; T']        q_z = s'(z) q + s''(z) z' p,  p_z = s'(z) p
 *
 * Points are independent, so a unit of points passes through all sweeps by itself. Gradients accumulate unit by unit (numerics.md, rule
 * 1). A group of stages (a residual block, or a single stage) is computed at a time: a sweep of a group over a unit is a task (program.h).
 * A group either saves its tensors between the sweeps, or saves only its input and recomputes the others, with the same bits.
 */
#ifndef PT_RITZ_NETWORK_H
#define PT_RITZ_NETWORK_H

#include "device/device.h"

enum { RITZ_BLOCKS_MOST = 256, RITZ_STAGES = 2 * RITZ_BLOCKS_MOST + 2, RITZ_WIDTH_MOST = 1 << 16 };

typedef struct ritz_stage {
    int64_t rows, cols;         /* of W */
    bool activated;
    int residual;               /* index of the tensor that is added to the output, -1: none */
    int64_t weight_at, bias_at; /* offsets in values, in the list of all parameters */
    char name[24];              /* "input", "blocks.3.1", "output" */
} ritz_stage;

typedef struct ritz_network {
    int64_t dim, width;
    int blocks;
    bool plain;
    bool direct;                /* no input layer: x padded with zeros is the first block's input */
    int64_t jets;               /* blocks of rows of a residual loss's sweeps (jets.h): dim + 2; 0: the loss is an energy */
    jet_kind activation;
    pt_dtype type;              /* PT_F32 or PT_F64, of weights, states and computation */
    int64_t input;              /* columns of T0: dim; if direct, width */
    int64_t params;             /* values */
    int stages_n, groups_n;
    int group0[RITZ_STAGES + 1]; /* first stage of each group */
    ritz_stage stages[RITZ_STAGES];
} ritz_network;

/* dim, width, blocks, plain, direct, activation and type are set; computes the rest. PT_USAGE: they describe no network. */
int ritz_network_describe(ritz_network *n, pt_error *e);
/* Initial values of a stage, ritz_stage_values of the network's type: weights from Xavier's normal distribution, biases 0. */
void ritz_network_init(const ritz_network *n, int stage, uint64_t seed, void *out);

/* Place of a tensor of a unit: in the saved set of a group (`set` is the group), which lasts from the forward sweep to its last reader; in
 * the unit's own buffer; or in the workspace of one task. */
enum { RITZ_OWN = -1, RITZ_WORK = -2, RITZ_GROUP_STAGES = 2 };
typedef struct ritz_spot { int set; uint64_t at; } ritz_spot;

/* Layout of a unit of `rows` points, in bytes. All sizes are multiples of 4096. */
typedef struct ritz_layout {
    int64_t rows;
    bool kept[RITZ_STAGES];                  /* [group] its inner tensors are saved; else they are recomputed */
    ritz_spot tensor[RITZ_STAGES + 1];       /* T s: (2 rows, cols), values, then tangents; the last one: u */
    ritz_spot adjoint[RITZ_STAGES + 1];      /* p s: du/dT s */
    ritz_spot z[RITZ_STAGES], dz[RITZ_STAGES];
    uint64_t pair_at, inner_at;              /* in the workspace: [q_z; p_z]; q within a group */
    uint64_t seed_at, ones_at, terms_at, value_at; /* own: [a; 1] for the last stage; `rows` ones; OP_QUADRATIC's terms and values */
    uint64_t set_bytes[RITZ_STAGES];         /* of each group */
    uint64_t own_bytes, stream_bytes, work_bytes;
} ritz_layout;
/* kept: for each group; NULL: no group saves its inner tensors. */
void ritz_layout_init(ritz_layout *l, const ritz_network *n, int64_t rows, const bool *kept);
/* For the sweeps of jets.h: T, z and what goes down have n->jets blocks of rows, and there is no p. */
void ritz_layout_jets(ritz_layout *l, const ritz_network *n, int64_t rows, const bool *kept);

/* A group and a unit, for one task. x has been copied to T0's values, OP_QUADRATIC's terms and ones to the unit's own buffer. */
typedef struct ritz_unit {
    const ritz_network *net;
    const ritz_layout *layout;
    queue *queue;
    int group;
    char *set[2];         /* saved sets of the group and of the next one */
    char *own, *work;
    char *stream;         /* q of the group's output; the reverse sweep replaces it by q of its input */
    const char *weights[RITZ_GROUP_STAGES]; /* of the group's stages: W, then the bias */
    char *sums[RITZ_GROUP_STAGES];          /* their gradients, alike */
    struct ansatz_energy *composed; /* not NULL: computes the energy (ansatz.h), until the queue has done it; tensors are set here */
    struct residual_loss *residual; /* computes a residual loss, likewise (residual.h) */
    struct jets_call *calls;        /* jets_calls of them, likewise (jets.h) */
    int64_t rows;         /* at most the layout's */
    bool flat;            /* the energy does not depend on g: the forward and the reverse sweep suffice */
    bool first;           /* gradients overwrite the sums instead of being added */
} ritz_unit;

void ritz_forward(const ritz_unit *u);
void ritz_adjoint(const ritz_unit *u);   /* of group 0: also g, in p 0 */
void ritz_energy(const ritz_unit *u);    /* energies of the points, [a; 1], and b in T0's tangents */
void ritz_tangent(const ritz_unit *u);   /* not needed for the last group */
void ritz_reverse(const ritz_unit *u);

/* Enclose other ops on the unit's rows (OP_ROWS). */
void ritz_rows_begin(const ritz_unit *u);
void ritz_rows_end(const ritz_unit *u);

static inline char *ritz_at(const ritz_unit *u, ritz_spot s)
{
    return (s.set == RITZ_OWN ? u->own : s.set == RITZ_WORK ? u->work : u->set[s.set - u->group]) + s.at;
}
/* u (rows), and its gradient (rows, input), of group 0. */
static inline char *ritz_u(const ritz_unit *u) { return ritz_at(u, u->layout->tensor[u->net->stages_n]); }
static inline char *ritz_gradient(const ritz_unit *u) { return ritz_at(u, u->layout->adjoint[0]); }
/* Number of values of a stage: W and the bias. */
static inline int64_t ritz_stage_values(const ritz_stage *s) { return s->rows * s->cols + s->rows; }

#endif
