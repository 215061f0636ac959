/* op_times.c - the roofline model, and on a GPU how far from it this project's kernels and cuBLASLt are.
 *
 *     max(flops / rate, bytes / bandwidth) + launch time
 *
 * The shares were measured on an H100 and an H200 (bench/results/h100.md, h200.md). As shares they are taken for other GPUs, too: each
 * follows from what limits the kernel. A matmul loses the part of the last wave of tiles that is idle, and most of the time in which its
 * sums are written, which begins when a tile's products are done. Attention has a rate of its own (machine_spec.attention_efficiency).
 * Kernels with sums over rows have too few bytes in flight.
 */
#include "predict/op_times.h"

#include <math.h>

static double max_of(double a, double b) { return a > b ? a : b; }

op_rates op_rates_of(const machine_spec *x)
{
    const double warm = x->sustained > 0 ? x->sustained : 1, reached = warm * x->matmul_efficiency * 1e-9;
    const double attention = x->attention_efficiency > 0 ? x->attention_efficiency : 0.6 * x->matmul_efficiency;
    return (op_rates){.gpu = x->cuda, .flops = {x->fp32_flops * reached, x->bf16_flops * reached},
                      .attention = x->bf16_flops * attention * warm * 1e-9,
                      .bytes = x->memory_bandwidth[TIER_DEVICE] * x->memory_efficiency[TIER_DEVICE] * 1e-9, .kernel_ns = x->kernel_s * 1e9};
}

/* ---- on a GPU ---- */

/* Weight gradients have few tiles and long sums, which are divided among the multiprocessors. */
static double matmul_ns(const op_rates *r, matmul_layout layout, double m, double n, const op_cost *c)
{
    enum { EDGE = 128 };
    const double IDLE = 20, IDLE_OF_SUMS = 10 /* tiles */, SEEN = 0.8 /* of the time of writing */;
    const double edges = ceil(m / EDGE) * EDGE / m * (ceil(n / EDGE) * EDGE / n); /* of tiles, beyond the matrix */
    const double idle = (layout == MATMUL_TN ? IDLE_OF_SUMS : IDLE) * 2 * EDGE * EDGE / (m * n);
    const double compute = c->flops * edges / r->flops[c->type == PT_BF16] * (1 + (idle < 1 ? idle : 1));
    return max_of(compute + SEEN * c->written / r->bytes, c->bytes / r->bytes);
}

static double grouped_ns(const op_rates *r, const op_grouped_matmul *o, const op_cost *c)
{
    const bool sums = o->of.layout == MATMUL_TN;
    const double rows = sums ? (double)(o->of.m * o->range.experts) : (double)o->range.rows;
    return matmul_ns(r, o->of.layout, rows, (double)o->of.n, c);
}

/* Shorter heads have more scores per product; backward waits for sums. */
static double attention_ns(const op_rates *r, const op_attention *o, bool backward, const op_cost *c)
{
    const double size = o->dim < 128 ? (double)o->dim / 128 : 1;
    const double share = backward ? 0.87 * (0.6 + 0.4 * size) : 0.94 + 0.06 * size;
    const double rate = c->type == PT_BF16 ? r->attention : r->flops[0];
    return max_of(c->flops / (rate * share), c->bytes / r->bytes);
}

/* Of the bandwidth of a copy. */
static double share_of_bandwidth(const op *o)
{
    switch (o->kind) {
    case OP_NORM: return o->norm.kind == NORM_LAYER ? (o->norm.dim < 2048 ? 0.55 : 0.7) : 0.9;
    case OP_NORM_BACKWARD: return 0.72;
    case OP_BIAS_BACKWARD: return o->bias_backward.cols < 2048 ? 0.3 : 0.5;
    case OP_EMBEDDING_BACKWARD: return 0.52;
    case OP_ACTIVATION: case OP_ACTIVATION_BACKWARD: case OP_GRADIENT_FINISH: return 0.9;
    default: return 1;
    }
}

static double gpu_ns(const op_rates *r, const op *o, const op_cost *c)
{
    switch (o->kind) {
    case OP_MATMUL: return matmul_ns(r, o->matmul.layout, (double)o->matmul.m, (double)o->matmul.n, c);
    case OP_GROUPED_MATMUL: return grouped_ns(r, &o->grouped_matmul, c);
    case OP_ATTENTION: return attention_ns(r, &o->attention, false, c);
    case OP_ATTENTION_BACKWARD: return attention_ns(r, &o->attention_backward.forward, true, c);
    default: return max_of(c->flops / r->flops[c->type == PT_BF16], c->bytes / (r->bytes * share_of_bandwidth(o)));
    }
}

double op_time_ns(const op_rates *r, const op *o, int64_t vocab)
{
    const op_cost c = op_cost_of(o, vocab);
    const double ns = r->gpu ? gpu_ns(r, o, &c) : max_of(c.flops / r->flops[c.type == PT_BF16], c.bytes / r->bytes);
    return ns + r->kernel_ns;
}
