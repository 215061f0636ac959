/* device.h - the seam between the program and what computes.
 *
 * A device owns memory (arenas, allocated once) and queues. A queue runs the ops submitted to it in order. Queues run concurrently and are
 * ordered only by waits on each other's timelines: signal() returns a value that the queue's timeline reaches when everything submitted
 * before is done; wait() makes the later ops of a queue wait for such a value. On CUDA a queue is a stream and a timeline value an event;
 * on the CPU a queue is a thread. submit(), signal(), wait() and mark() return at once (submit may wait for space in the queue). Queues of
 * different devices wait for each other in the same way. At most one queue of a device computes at a time; others copy meanwhile.
 *
 * Host code accesses device memory only through copies on a queue: on a GPU it has no address there.
 *
 * Nothing here allocates after open, and the result of an op depends only on its arguments: not on the number of threads, timing, or
 * earlier ops (numerics: fixed tiles, no sum is split by thread). `t` is the compute type of the run, PT_F32 or PT_BF16. Sums, softmax,
 * norm statistics and losses are fp32 inside, and a result is rounded to `t` once, when it is stored. Strides (`ld`) are in elements,
 * except those of OP_COPY_ROWS. Rows are tokens: sequences x T. On a CPU, matmuls (without a stream) and AdamW also take PT_F64, for
 * networks that are not language models; all their operands are fp64 then.
 */
#ifndef PT_DEVICE_H
#define PT_DEVICE_H

#include "base/dtype.h"
#include "base/error.h"
#include "device/call.h"
#include "device/op_table.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define OP_KIND(KIND, ...) OP_##KIND,
typedef enum op_kind { ALL_OPS(OP_KIND) OP_KINDS } op_kind;
#undef OP_KIND

/* dst[0 .. bytes) = src[...], between any two arenas. OP_ZERO uses dst and bytes only. */
typedef struct op_copy { void *dst; const void *src; size_t bytes; } op_copy;
/* `rows` times so many bytes, whose starts are lddst and ldsrc bytes apart (at least as many). */
typedef struct op_copy_rows { void *dst; const void *src; int64_t rows; size_t bytes, lddst, ldsrc; } op_copy_rows;

/* Transfers between memory and the disk tier's file (io/disk.h); host queues only. */
struct disk_channel;
/* sum: receives the checksum of what is written (disk_sum); NULL: none */
typedef struct op_disk { struct disk_channel *channel; void *memory; uint64_t offset; size_t bytes; uint64_t *sum; } op_disk;
/* out[r] = the row ids[r] of a table, of which rows row0 .. row0 + table_rows lie in that file from `offset` on; other rows are unchanged.
 * (io/disk_rows.h) */
struct disk_rows;
typedef struct op_disk_rows {
    struct disk_rows *reader; uint64_t offset; int64_t rows, row0, table_rows; const int32_t *ids; void *out;
} op_disk_rows;

/* Sends to and receives from other ranks (comm/comm.h); host queues only. */
struct comm;
struct comm_move;
typedef struct op_exchange { struct comm *comm; const struct comm_move *moves; int n; } op_exchange;

/* Calls fn for all `rows`, a few at a time: first .. end. Only on a CPU: its compute threads call it concurrently, each with scratch of
 * its own. The result of a row must depend neither on the division nor on the thread. */
enum { CALL_SCRATCH_BYTES = 1 << 20 };
typedef void (*op_call_fn)(void *arg, int64_t first, int64_t end, void *scratch);
typedef struct op_call { op_call_fn fn; void *arg; int64_t rows; } op_call;

/* A factor of an op; 0 stands for 1. */
static inline float op_factor(float x) { return x != 0 ? x : 1; }

typedef enum matmul_layout {
    MATMUL_NT, /* c (M,N) = a (M,K) . b (N,K)^T   forward: x . W^T         */
    MATMUL_NN, /* c (M,N) = a (M,K) . b (K,N)     data gradient: dy . W    */
    MATMUL_TN  /* c (M,N) = a (K,M)^T . b (K,N)   weight gradient: dy^T . x */
} matmul_layout;

/* c = round(alpha * scale[n] * sum + bias[n] + residual[m][n]), or with `accumulate` (out_type F32 only) c += alpha * scale * sum + bias.
 * With a stream: stream += alpha * sum + bias in fp32, and c = round(stream), or as above with a residual. alpha (0 stands for 1) does not
 * apply to the bias. With more_k > 0 the sum continues with more_a (M, more_k) . more_b, laid out like a and b; not for TN. The order of
 * the sum depends only on (layout, M, N, K, more_k). */
typedef struct op_matmul {
    matmul_layout layout;
    pt_dtype type, out_type;  /* type: of a, b, bias, residual; out_type: of c, `type` or PT_F32; PT_F64 only with itself */
    bool accumulate;
    int64_t m, n, k, lda, ldb, ldc;
    const void *a, *b;
    const void *bias;         /* (N) or NULL */
    const void *residual;     /* (M, N), stride ldc, or NULL; may be c itself */
    float *stream;            /* (M, N), stride ldc, or NULL; not with accumulate */
    void *c;
    float alpha;
    int64_t more_k, more_lda, more_ldb;
    const void *more_a, *more_b;
    const float *scale;       /* (N) or NULL; not with accumulate */
} op_matmul;

/* The second part of the sum as a separate matmul, with the same rows and columns. */
static inline op_matmul matmul_more(const op_matmul *o)
{
    op_matmul more = *o;
    more.a = o->more_a, more.b = o->more_b;
    more.k = o->more_k, more.lda = o->more_lda, more.ldb = o->more_ldb;
    more.more_k = 0;
    return more;
}

/* acc[n] (+)= sum over rows of dy[row][n]; acc is fp32. */
typedef struct op_bias_backward {
    pt_dtype type; bool accumulate; int64_t rows, cols, ld; const void *dy; float *acc;
} op_bias_backward;

typedef enum norm_kind { NORM_LAYER, NORM_RMS } norm_kind;

/* y[r][h][:] = norm(x[r][h][:]) * (offset + weight) (+ bias). Rows of x and y have strides ldx and ldy, and the heads of a row lie side by
 * side (heads = 1 for a block's norm, more for q/k norm). y may be x. weight and bias are always fp32, because near 1 bf16 cannot hold the
 * change of one step. offset is 1 if the model's weights are differences from 1, else 0; it is added in fp32. weight may be NULL if
 * offset is not 0: all weights are 0. With a residual or a stream
 * (fp32), both with stride ldy and heads = 1, the norm is added to them, as OP_MATMUL adds its sum: stream += norm in fp32, and y =
 * round(residual + norm), or without a residual round(stream). The residual may be y. */
typedef struct op_norm {
    norm_kind kind; pt_dtype type; int64_t rows, heads, dim, ldx, ldy; float eps;
    const void *x; const float *weight, *bias; void *y; float offset;
    const void *residual; float *stream; /* or NULL */
} op_norm;

/* dx = round(dx_add + stream_add + dnorm) (dx_add may be NULL, or dx itself; stride lddx); the sum before its rounding is also written
 * to stream (unless NULL). stream_add and stream are fp32, stride lddx, and may be the same; stream_add may be NULL. dweight and dbias
 * (fp32, dim; may be NULL) (+)= their gradients. Statistics are recomputed from x. dx may be dy. y (may be NULL): the output of OP_NORM
 * for x and bias again, stride lddy, with the same bits; it may be dy, if dx is not. scratch: norm_backward_scratch_bytes(). offset: as
 * in OP_NORM. */
typedef struct op_norm_backward {
    norm_kind kind; pt_dtype type; bool accumulate; int64_t rows, heads, dim, ldx, lddy, lddx; float eps;
    const void *x; const float *weight; const void *dy, *dx_add; void *dx; const float *stream_add; float *stream;
    float *dweight, *dbias; void *scratch; const float *bias; void *y; float offset;
} op_norm_backward;
/* dweight and dbias may be summed over this many parts of the (row, head) vectors, each of NORM_PART_VECTORS or more, before the parts'
 * sums are added. */
enum { NORM_PARTS = 768, NORM_PART_VECTORS = 8 };
static inline int64_t norm_parts(int64_t rows, int64_t heads)
{
    int64_t parts = (rows * heads + NORM_PART_VECTORS - 1) / NORM_PART_VECTORS;
    return parts < NORM_PARTS ? parts : (int64_t)NORM_PARTS;
}
static inline size_t norm_backward_scratch_bytes(int64_t rows, int64_t heads, int64_t dim)
{
    return (size_t)(norm_parts(rows, heads) * 2 * dim) * sizeof(float);
}

/* Rotary embedding in place on x (rows, heads, dim), row stride ld: rotates the first R = `rotated` elements of each head (even; 0: all of
 * dim) and leaves the rest. table (positions, R/2, 2): cos and sin, fp32, perhaps both times a factor. Pair i is elements i and i + R/2,
 * or, if neighbours, 2i and 2i + 1. inverse: the transposed map, for backward, which is the inverse if there is no factor. */
typedef struct op_rope {
    pt_dtype type; bool inverse; int64_t rows, heads, dim, ld;
    const float *table; const int32_t *positions; void *x; int64_t rotated; bool neighbours;
} op_rope;
static inline int64_t rope_rotated(const op_rope *o) { return o->rotated ? o->rotated : o->dim; }

/* Causal attention without the T x T matrix. For each of `seqs` sequences: q (q_len, heads, dim)
 * with row stride ldq; k and v (kv_len, kv_heads, dim) with row stride ldkv; sequences follow each
 * other (stride q_len * ldq, kv_len * ldkv, or kv_seq_stride where that is not 0). Query i stands at
 * position p = kv_len - q_len + i and sees keys max(first[i], p - window + 1, 0) .. p (window 0:
 * unbounded; first (seqs*q_len) may be NULL: the start of the token's document within the sequence, never
 * less than the token's before).
 * out (q_len, heads, dim) row stride ldo; lse (seqs, heads, q_len) fp32, natural log-sum-exp of the
 * scaled scores, may be NULL when not wanted. heads is a multiple of kv_heads, scale > 0. With a softcap c > 0 (0: none) a scaled score s
 * becomes c tanh(s / c) before the mask and the softmax; lse is that of these. */
typedef struct op_attention {
    pt_dtype type; int64_t seqs, q_len, kv_len, heads, kv_heads, dim, window, ldq, ldkv, ldo, kv_seq_stride;
    float scale; const int32_t *first; const void *q, *k, *v; void *out; float *lse; float softcap;
} op_attention;

/* Computes dq, dk, dv (overwritten) from dout; they have the strides of q and k/v. q_len = kv_len = T. scratch:
 * attention_backward_scratch_bytes(). sums: attention_accumulator_bytes(), 64-byte aligned, in which a device may accumulate dk and dv of
 * long sequences instead of computing the scores twice; may be NULL. The results have the same bits. */
typedef struct op_attention_backward {
    op_attention forward; int64_t lddo; const void *dout; void *dq, *dk, *dv; void *scratch; float *sums;
} op_attention_backward;
static inline size_t attention_backward_scratch_bytes(int64_t rows, int64_t heads)
{
    return (size_t)(rows * heads) * sizeof(float); /* dout . out per row and head */
}
enum { ATTENTION_ACCUMULATOR_GRID = 64, ATTENTION_ACCUMULATOR_FEW = 352 << 10 };
/* A head's dimension, padded so that a row has whole vectors of every width. */
static inline int64_t attention_padded(int64_t dim) { return (dim + 15) / 16 * 16; }
/* fp32 sums of dk or of dv for one sequence and kv head. */
static inline int64_t attention_accumulator_floats(int64_t seq_len, int64_t dim)
{
    return (seq_len + ATTENTION_ACCUMULATOR_GRID - 1) / ATTENTION_ACCUMULATOR_GRID * ATTENTION_ACCUMULATOR_GRID * attention_padded(dim);
}
/* 0 if the sequence is so short that a device has room for them elsewhere. */
static inline size_t attention_accumulator_bytes(int64_t seqs, int64_t seq_len, int64_t kv_heads, int64_t dim)
{
    int64_t floats = attention_accumulator_floats(seq_len, dim);
    return floats > ATTENTION_ACCUMULATOR_FEW ? (size_t)(seqs * kv_heads * 2 * floats) * sizeof(float) : 0;
}

/* A head's sink is a logit that joins the softmax's denominator, with a value of 0. After OP_ATTENTION, in place: out (seqs * q_len, heads,
 * dim) with row stride ldo is multiplied by exp(lse - lse'), and lse (seqs, heads, q_len) becomes lse' = log(exp(lse) + exp(sink)). From
 * these, OP_ATTENTION_BACKWARD computes the gradients of q, k and v with the sinks. sinks (heads): fp32. */
typedef struct op_sink {
    pt_dtype type; int64_t seqs, q_len, heads, dim, ldo; const float *sinks; void *out; float *lse;
} op_sink;

/* dsinks (heads) (+)= minus the sum over all tokens of exp(sink - lse') <dout, out>. scratch: sink_scratch_bytes(), for the sums of blocks
 * of tokens, which are added in order. */
typedef struct op_sink_backward {
    op_sink forward; bool accumulate; int64_t lddo; const void *dout; void *scratch; float *dsinks;
} op_sink_backward;
enum { SINK_BLOCK_ROWS = 64 };
static inline size_t sink_scratch_bytes(int64_t rows, int64_t heads)
{
    return (size_t)((rows + SINK_BLOCK_ROWS - 1) / SINK_BLOCK_ROWS * heads) * sizeof(float);
}

typedef enum activation_kind { ACT_GELU_TANH, ACT_GELU_ERF, ACT_SILU, ACT_RELU, ACT_RELU2 } activation_kind; /* RELU2: its square */

/* gated: up is (rows, 2*cols) = [gate | up] and out = act(gate) * up; else out = act(up), up (rows, cols). All rows are dense. Backward
 * computes dup (shape of up) from dout and up; dup may not be up. Its out (may be NULL) is the output again, with the same bits; it may be
 * dout. */
typedef struct op_activation {
    activation_kind kind; bool gated; pt_dtype type; int64_t rows, cols; const void *up; void *out;
} op_activation;
typedef struct op_activation_backward {
    activation_kind kind; bool gated; pt_dtype type; int64_t rows, cols; const void *up, *dout; void *dup, *out;
} op_activation_backward;

/* Columns of heads from one layout to another: column j of head h of a row, at head_to * h + j of a row of `to`, becomes `from`'s, or
 * 0 if j is not less than `given`. head_from 0: all heads read the same columns. head_to 0: it becomes the sum over the heads, in fp32 in
 * ascending order. The two do not overlap. */
typedef struct op_heads {
    pt_dtype type; int64_t rows, heads, cols, given, ld_from, head_from, ld_to, head_to; const void *from; void *to;
} op_heads;

/* x = round(factor x), or with a stream (of one row): stream *= factor, x = round(stream). (rows, cols), rows of x `ld` apart; factor is
 * one fp32 number, or NULL: `times`. */
typedef struct op_scale {
    pt_dtype type; int64_t rows, cols, ld; const float *factor; float times; void *x; float *stream;
} op_scale;

/* ---- mixtures of experts ----
 *
 * Each of T tokens goes to k experts. Slot j of token t is number t * k + j; a token's slots are in ascending order of experts. OP_DISPATCH
 * sorts all slots by expert, those of an expert by token, and the other ops work on these rows:
 *
 *     ids        slot -> expert             order      row -> slot             ends       expert -> its last row + 1
 *     weights    slot -> factor             place      slot -> row
 *
 * They compute the rows of a range of experts, so that the experts of a layer may be computed in several parts. The number of an expert's
 * rows is only known from `ends` when they run. A row's result depends neither on other rows nor on the range. */
enum { EXPERTS_MOST = 1024, SLOTS_MOST = 32 /* per token */, EXPERT_BLOCK_ROWS = 2048 /* of an expert, that have one partial sum */ };

/* Experts first .. first + experts - 1. rows: how many rows they have if all experts have as many, which costs are computed from. */
typedef struct expert_range { int64_t first, experts, rows; const int32_t *ends; } expert_range;

/* Where the operand for row r is: in row r, in row r - the range's first row, or in row order[r] / k, the token's. */
typedef enum row_place { AT_ROW, AT_ROW_OF_RANGE, AT_TOKEN } row_place;

/* ids and weights (T, k) from logits (T, experts), both kinds in fp32:
 *
 *     p = softmax(logits) or sigmoid(logits)        choice = p + bias          bias NULL: p, compared by its logits
 *     ids = the k experts of the largest choice, of equal ones the first
 *     weights = scale * p[id] / D * expert_scale[id]    D = max(sum of p[id], least) + eps if norm, else 1
 *
 * With groups > 1 neighbouring experts form groups of equal size, and only those of the groups_used groups are eligible whose two largest
 * choices have the largest sum. NaN is smaller than all numbers, so that ids are always k different experts. scale: 0 stands for 1. With
 * softmax, norm, and least and eps of 0, the weights are the softmax of the chosen logits. given: ids are input.
 *
 * use (T, 2 experts; or NULL), for the balance of experts: 1 for each of the k largest logits, else 0; then softmax(logits). Both are 0 in
 * rows of padding, which `targets` (T; or NULL) marks (base/target.h). */
typedef enum route_kind { ROUTE_SOFTMAX, ROUTE_SIGMOID } route_kind;
typedef struct op_route {
    route_kind kind; bool norm, given; int64_t rows, experts, k, groups, groups_used; float scale, eps, least;
    const float *logits, *bias, *expert_scale /* or NULL */; const int32_t *targets; int32_t *ids; float *weights, *use;
} op_route;

/* dlogits (T, experts), rounded to `type`, from the gradient of the weights. ids and logits are those of `forward`. dexpert_scale (T, k;
 * may be NULL): the gradient of a slot's expert_scale. used (experts; or NULL): the rows of each expert in `use`, summed over all rows of
 * some layers, n rows; adds the gradient, but in rows of padding, of
 *
 *     balance * sum over the experts of used[expert] / n * softmax(logits)[expert] / n */
typedef struct op_route_backward {
    op_route forward; pt_dtype type; const float *dweights; void *dlogits; float *dexpert_scale; const float *used; float balance;
} op_route_backward;

typedef struct op_dispatch { int64_t slots, experts; const int32_t *ids; int32_t *order, *place, *ends; } op_dispatch;

/* A matmul for each expert of the range, over its rows: they are M in NT and NN, K in TN. Operands that are not rows are those of the
 * range's first expert, with steps to the next one in elements.
 *
 *     NT, NN    row r of c = row r of a . b of the expert, as OP_MATMUL; bias (experts, N)        b_step, more_b_step
 *     TN        c of the expert = a^T . b over its rows, in fp32: in blocks of EXPERT_BLOCK_ROWS,  c_step
 *               counted from its first row, whose sums are added in order. Without rows: 0, or unchanged if it accumulates.
 *
 * of.m (TN: of.k) is ignored, residual, stream and scale are NULL. The bits of a row are those of a matmul with AMX_ROWS_LEAST or more
 * rows. b_at: of TN. more_a has its rows where c has. */
typedef struct op_grouped_matmul {
    op_matmul of; expert_range range; row_place a_at, b_at, c_at; const int32_t *order; int64_t k, b_step, more_b_step, c_step;
} op_grouped_matmul;

/* acc (experts, cols) (+)= sum over an expert's rows of weights[slot] * dy, in blocks as above; fp32. With a bias (experts, cols):
 * dots[slot] += <dy, bias of the expert>. weights, bias and acc may be NULL; order only without weights, bias and AT_TOKEN. */
typedef struct op_grouped_bias_backward {
    pt_dtype type; bool accumulate; expert_range range; int64_t cols, ld, k; row_place dy_at; const int32_t *order; const void *dy;
    const float *weights; float *acc; const void *bias; float *dots;
} op_grouped_bias_backward;

/* OP_ACTIVATION on the range's rows; of.rows is ignored. limit (0: none): gated, with columns 2i of `up` as gate g and 2i + 1 as up u:
 * out = (u' + 1) * g' * sigmoid(alpha * g'), g' = min(g, limit), u' = u within +-limit; the kind is ignored. */
typedef struct op_grouped_activation {
    op_activation of; expert_range range; row_place up_at, out_at; float alpha, limit;
} op_grouped_activation;

/* Its backward. Without weights as OP_ACTIVATION_BACKWARD. With weights, dout is the gradient of weights[slot] * out: dweights[slot] =
 * <out, dout>, dup is for weights[slot] * dout, and out = round(weights[slot] * out), for the gradient of the matrix after it. */
typedef struct op_grouped_activation_backward {
    op_activation_backward of; expert_range range; row_place up_at, dout_at /* out's too */, dup_at; float alpha, limit;
    const int32_t *order; const float *weights; float *dweights;
} op_grouped_activation_backward;

/* sum[t] = (continues ? sums[t] : 0) + the slots of token t whose rows are of the range, in order: fma(weights[slot], y[place[slot]], sum),
 * in fp32. Then out NULL: sums[t] = sum[t]. Else stream and out are written as by OP_NORM: stream += sum, out = round(stream), or with a
 * residual round(residual + sum). weights NULL: all 1. range.ends NULL: all rows. place NULL: that of a slot is its number. All (T, cols),
 * dense; y_at: AT_ROW or AT_ROW_OF_RANGE. With k = 1 and no place, out may be y. */
typedef struct op_combine {
    pt_dtype type; int64_t rows, cols, k; expert_range range; row_place y_at; const void *y; const int32_t *place; const float *weights;
    float *sums; bool continues; const void *residual; float *stream; void *out;
} op_combine;

/* ---- layers with a state ----
 *
 * Sequences of `len` rows each; rows are seqs x len. Documents restart: `first` as in OP_ATTENTION (the start of the row's document within
 * its sequence; NULL: 0). A row of the document that begins at 0 continues the state that is given, if any. */

/* Causal depthwise convolution. With p = x, or before * x, element by element, and s = the row's place in its sequence:
 *
 *     sum[s][c] = bias[c] + sum over j of weight[c][j] * p[s - taps + 1 + j][c]      p: 0 before the document
 *     y = round(act(sum)), or round(after * act(sum))                                act: silu or none
 *
 * x, before, after: stride ldx. weight (channels, taps) and bias (channels) are fp32. past (seqs, taps - 1, channels), fp32: p of the rows
 * before the first one, the oldest first. last: the same after the last row; it may be past. bias, before, after, past, last: or NULL. */
enum { CONV_TAPS_MOST = 8, CONV_BLOCK_ROWS = 256 };
typedef struct op_conv {
    pt_dtype type; bool silu; int64_t seqs, len, channels, taps, ldx, ldy; const int32_t *first;
    const void *x, *before, *after; const float *weight, *bias, *past; void *y; float *last;
} op_conv;

/* Without past and last. dx, dbefore, dafter: stride lddx, overwritten; dbefore and dafter as the forward has before and after. dweight and
 * dbias (+)= their gradients (or NULL), summed over blocks of CONV_BLOCK_ROWS rows, in order. sum is computed again. dy is no output. */
typedef struct op_conv_backward {
    op_conv forward; bool accumulate; int64_t lddy, lddx; const void *dy; void *dx, *dbefore, *dafter; float *dweight, *dbias;
    void *scratch;
} op_conv_backward;
static inline size_t conv_backward_scratch_bytes(int64_t rows, int64_t channels, int64_t taps)
{
    return (size_t)((rows + CONV_BLOCK_ROWS - 1) / CONV_BLOCK_ROWS * channels * (taps + 1)) * sizeof(float);
}

/* The gates of OP_SCAN, fp32 (rows, heads), from rows a and b with stride ld:
 *
 *     step = softplus(a + step_bias)       SSD: within least .. most (0: no limit)
 *     g = -exp(a_log) * step
 *     beta = sigmoid(b)                    SSD: step; b is NULL
 *
 * a_log and step_bias (heads) are fp32. */
typedef enum scan_kind { SCAN_DELTA, SCAN_SSD } scan_kind;
enum { GATES_BLOCK_ROWS = 256 };
typedef struct op_gates {
    scan_kind kind; pt_dtype type; int64_t rows, heads, ld; const void *a, *b; const float *a_log, *step_bias; float least, most;
    float *g, *beta;
} op_gates;
/* da, db: stride ldd. da_log and dstep_bias (or NULL) (+)= their gradients, in blocks of GATES_BLOCK_ROWS rows, in order. g and beta of the
 * forward are not read. */
typedef struct op_gates_backward {
    op_gates forward; bool accumulate; int64_t ldd; const float *dg, *dbeta; void *da, *db; float *da_log, *dstep_bias; void *scratch;
} op_gates_backward;
static inline size_t gates_backward_scratch_bytes(int64_t rows, int64_t heads)
{
    return (size_t)((rows + GATES_BLOCK_ROWS - 1) / GATES_BLOCK_ROWS * 2 * heads) * sizeof(float);
}

/* For each row and head, with r(x) = 1 / sqrt(mean x^2 + eps) over the head's `dim` elements, and act = silu or sigmoid of z:
 *
 *     GATED_NORM_FIRST    y = round(x * r(x) * weight * act)
 *     GATED_GATE_FIRST    y = round(p * r(p) * weight), p = x * act
 *     GATED_ONLY          y = round(x * act)
 *
 * weight is fp32: (dim) with a weight_step of 0, (heads, dim) with one of dim, NULL with GATED_ONLY. Rows have strides ldx, ldz and ldy.
 * The heads of a row of x and y lie side by side, those of z are z_step apart (0: side by side). y may be x. */
typedef enum gated_kind { GATED_NORM_FIRST, GATED_GATE_FIRST, GATED_ONLY } gated_kind;
typedef struct op_gated_norm {
    gated_kind kind; bool sigmoid; pt_dtype type; int64_t rows, heads, dim, ldx, ldz, ldy, z_step, weight_step; float eps;
    const void *x, *z; const float *weight; void *y;
} op_gated_norm;
/* dx (stride lddx) and dz (stride lddz, heads z_step apart) are overwritten; dx may be dy. dweight (or NULL) (+)=. y (or NULL): the output
 * again, stride lddy, with the same bits; it may be dy if dx is not. */
typedef struct op_gated_norm_backward {
    op_gated_norm forward; bool accumulate; int64_t lddy, lddx, lddz; const void *dy; void *dx, *dz, *y; float *dweight; void *scratch;
} op_gated_norm_backward;
enum { GATED_NORM_BLOCKS = 64, GATED_NORM_BLOCK_ROWS = 32 /* at least */ };
static inline int64_t gated_norm_block_rows(int64_t rows)
{
    const int64_t each = (rows + GATED_NORM_BLOCKS - 1) / GATED_NORM_BLOCKS;
    return each < GATED_NORM_BLOCK_ROWS ? (int64_t)GATED_NORM_BLOCK_ROWS : each;
}
/* weights: all of them, dim or heads * dim. */
static inline size_t gated_norm_backward_scratch_bytes(int64_t rows, int64_t weights)
{
    const int64_t each = gated_norm_block_rows(rows);
    return (size_t)((rows + each - 1) / each * weights) * sizeof(float);
}

/* A linear recurrence over each sequence and head, with a state S (key_dim, dim) in fp32:
 *
 *     S' = exp(g[t]) * S[t-1]
 *     u  = beta[t] * (v[t] - S'^T k[t])       SCAN_DELTA, the gated delta rule
 *     u  = beta[t] * v[t]                     SCAN_SSD, Mamba-2 with q = C, k = B, v = x, beta = step
 *     S[t] = S' + k[t] u^T                    0 at the start of a document
 *     out[t] = round(scale * S[t]^T q[t] + skip * v[t])
 *
 * q and k (rows, key_heads, key_dim), v and out (rows, heads, dim), rows of q, k and v `ld` apart, of out ldo; value head h uses key head
 * h / (heads / key_heads). norm_eps > 0: q and k are first divided by sqrt(sum of their squares + norm_eps) (0: not). g <= 0 and beta
 * (rows, heads) are fp32, dense. skip (heads) fp32, or NULL. scale: 0 stands for 1.
 *
 * Computed in chunks of SCAN_CHUNK rows, counted from the sequence's start. before, after (seqs, heads, key_dim, dim): S before the first
 * row (NULL: 0), and after the last (or NULL; may be before). states: what backward needs, scan_states_bytes(), or NULL: the states at the
 * starts of all segments but the first; a segment is scan_segment() chunks. */
enum { SCAN_CHUNK = 64, SCAN_SEGMENT = 8, SCAN_HEADS = 4, SCAN_DIM_MOST = 256 /* of key_dim and dim */ };
enum { SCAN_GPU_CHUNK = 16, SCAN_GPU_BLOCKS = 132 /* most tasks of backward at a time */ };
typedef struct op_scan {
    scan_kind kind; pt_dtype type; int64_t seqs, len, key_heads, heads, key_dim, dim, ld, ldo; float scale, norm_eps;
    const int32_t *first; const void *q, *k, *v; const float *g, *beta, *skip, *before; float *after, *states; void *out;
} op_scan;
DEVICE_CALL int64_t scan_segment(int64_t key_dim, int64_t dim) { return key_dim <= 128 && dim <= 128 ? (int64_t)SCAN_SEGMENT : 2; }
DEVICE_CALL int64_t scan_segments(int64_t len, int64_t key_dim, int64_t dim)
{
    const int64_t rows = SCAN_CHUNK * scan_segment(key_dim, dim);
    return (len + rows - 1) / rows;
}
static inline size_t scan_states_bytes(int64_t seqs, int64_t len, int64_t heads, int64_t key_dim, int64_t dim)
{
    return (size_t)(seqs * (scan_segments(len, key_dim, dim) - 1) * heads * key_dim * dim) * sizeof(float);
}

/* dq, dk, dv: stride ldd, overwritten, as dg and dbeta (rows, heads) fp32. dskip (heads; or NULL) (+)=. The forward's `after` is not used,
 * out is not read, `before` is NULL. Gradients of q and k are summed over their value heads in order, in fp32. */
typedef struct op_scan_backward {
    op_scan forward; bool accumulate; int64_t lddo, ldd; const void *dout; void *dq, *dk, *dv; float *dg, *dbeta, *dskip; void *scratch;
} op_scan_backward;
/* A task of backward has up to SCAN_HEADS value heads of one key head: the tasks of a sequence, and the fp32 memory of one on a GPU. */
DEVICE_CALL int64_t scan_tasks(int64_t key_heads, int64_t heads)
{
    return key_heads * ((heads / key_heads + SCAN_HEADS - 1) / SCAN_HEADS);
}
DEVICE_CALL int64_t scan_gpu_floats(int64_t len, int64_t key_dim, int64_t dim)
{
    const int64_t most = SCAN_CHUNK * scan_segment(key_dim, dim), rows = len < most ? len : most;
    return ((rows + SCAN_GPU_CHUNK - 1) / SCAN_GPU_CHUNK + SCAN_HEADS) * key_dim * dim + 2 * rows * key_dim;
}
/* Sums of dskip per sequence; of dq and dk per task, if a key head has several; a GPU's memory for tasks. */
static inline size_t scan_backward_scratch_bytes(int64_t seqs, int64_t len, int64_t key_heads, int64_t heads, int64_t key_dim, int64_t dim,
                                                 bool gpu)
{
    const int64_t tasks = scan_tasks(key_heads, heads), blocks = seqs * tasks < SCAN_GPU_BLOCKS ? seqs * tasks : (int64_t)SCAN_GPU_BLOCKS;
    return (size_t)(seqs * heads + (tasks > key_heads ? 2 * seqs * len * tasks * key_dim : 0) +
                    (gpu ? blocks * scan_gpu_floats(len, key_dim, dim) : 0)) * sizeof(float);
}

/* out[r] = round(scale * table[ids[r]] + positions_table[positions[r]]) for the rows whose id lies in [row0, row0 + table_rows); other rows
 * are unchanged, so that a table may come in slices; ids NULL: row r of the table. The sum before its rounding is also written to stream
 * (rows, cols) fp32 (may be NULL). scale: 0 stands for 1; the product is fp32. noise > 0: a value of dropout.h from -noise to noise is
 * added to the product first, under `key`; first: the number of the first row. */
typedef struct op_embedding {
    pt_dtype type; int64_t rows, cols, row0, table_rows;
    const int32_t *ids, *positions; const void *table, *position_table /* or NULL */; void *out; float *stream; float scale;
    float noise; uint64_t key; int64_t first;
} op_embedding;
/* acc[id - row0] (+)= scale * dy[r] for the rows whose id lies in the slice, in ascending r; rows of the id `skip` (-1: none) are left out.
 * acc (table_rows, cols) is fp32, cleared first unless accumulate. scale: 0 stands for 1; product and sum are fp32. */
typedef struct op_embedding_backward {
    pt_dtype type; bool accumulate; int64_t rows, cols, row0, table_rows, skip;
    const int32_t *ids; const void *dy; float *acc; float scale;
} op_embedding_backward;

/* loss[r] = logsumexp(z[r]) - z[r][target], 0 if target is negative, with z = logit_scale * logits, or with a softcap c > 0 (0: none)
 * z = c tanh(logit_scale * logits / c). logit_scale is positive; 0 stands for 1. right[r] (may be NULL) = 1 if no logit is above the
 * target's, else 0, and 0 if ignored. dlogits (may be NULL): the gradient by the logits, dlogits[r] = round((softmax - onehot) * (scale *
 * weights[r]) * dz/dlogits), 0 if ignored; weights NULL: all 1. With smoothing s > 0: loss[r] = logsumexp(z[r]) - (1 - s) z[r][target] -
 * s mean(z[r]), and (1 - s) onehot + s / vocab in place of onehot. linear: loss[r] = -z[r][target], and 0 in place of softmax; it has no
 * smoothing. dlogits' rows have stride lddl. It may start at the address of logits if
 * lddl * sizeof(type) and ld * 4 are equal; each row is read before it is overwritten, and the rest of its bytes is undefined then. */
typedef struct op_cross_entropy {
    pt_dtype type; int64_t rows, vocab, ld, lddl; float scale;
    const float *logits; const int32_t *targets; float *loss; void *dlogits; float logit_scale, softcap;
    const float *weights; float *right; float smoothing; bool linear;
} op_cross_entropy;

/* The weights of rows in the loss of their pairs (training on preferences). An example begins at each row whose `first` is the
 * row's place in its sequence of seq_len rows. Examples 0 and 1 of a sequence are a pair, the chosen one and the rejected one, so are 2 and
 * 3, and so on; one that is left over is padding. Of a pair, in fp64, in the order of rows, over the n rows of an example that have a
 * target:
 *
 *     kind        score of an example                 loss of its pair, margin = score(chosen) - score(rejected)
 *     SIGMOID     sum of tail (given[r] - loss[r])    (1 - smoothing) -log sigmoid(beta margin) + smoothing -log sigmoid(-beta margin)
 *     IPO         mean of tail (given[r] - loss[r])   (margin - 1 / (2 beta))^2
 *     NORM        mean of tail (given[r] - loss[r])   as SIGMOID
 *     REWARD      sum of -loss[r]                     -log sigmoid(margin - sum of given[r]) + center (score(chosen) + score(rejected))^2
 *     SIMPO       mean of -loss[r]                    the same of beta margin - gamma
 *     ORPO        mean of -loss[r], rows with a       -beta log sigmoid(log odds(chosen) - log odds(rejected)) + sum of |given[r]| loss[r],
 *                 negative given[r] left out          odds = e^score / (1 - e^score)
 *     KTO         as SIGMOID                          desirable (1 - sigmoid(beta (score(chosen) - baseline))) +
 *                                                     undesirable (1 - sigmoid(beta (baseline - score(rejected)))), where an example
 *                                                     without targets adds nothing
 *
 * tail is 1. With cut > 0 (SIGMOID, IPO, NORM), |given[r]| stands for given[r], and tail is 1 - cut where given[r] has a minus sign.
 * weights[r] = the derivative of that by loss[r]. Where there is no target it is any number, of padding 0. loss and given are 0 there.
 * SIMPO has no `given` (NULL). The formulas: device/preference.h. */
typedef enum preference_kind {
    PREFERENCE_NONE, PREFERENCE_SIGMOID, PREFERENCE_IPO, PREFERENCE_NORM, PREFERENCE_SIMPO, PREFERENCE_ORPO, PREFERENCE_KTO,
    PREFERENCE_REWARD
} preference_kind;
typedef struct preference_rule {
    preference_kind kind; float beta, gamma, smoothing, desirable, undesirable, baseline, cut, center;
} preference_rule;
typedef struct op_preference {
    preference_rule rule; int64_t sequences, seq_len;
    const int32_t *targets, *first; const float *loss, *given; float *weights;
} op_preference;

/* Rows of a tensor that share one partial sum of squares, and the lanes of the sum: element i of these rows is added to lane i mod
 * SUMSQ_LANES, in ascending order; then lane j + n / 2 to lane j of n, until one is left. Few rows and many lanes, because a GPU is slow if
 * few threads add long sums. */
enum { SUMSQ_ROWS = 8, SUMSQ_LANES = 128 };

/* g = round(acc + acc2) (acc2 may be NULL), the only rounding of a gradient; sumsq[i] = sum of the squares of the rounded values of rows 8i
 * .. 8i+7, in fp64, in that order. A slice of a tensor starts at a multiple of 8 rows. sumsq may be NULL (only round). g may be acc
 * (element i of g is written after element i of acc was read).
 * ids: row r is row ids[r] of a tensor whose other rows are 0, ascending. Then sumsq[i] has the bits that all rows would give, and is
 * written for the i = ids[r] / 8 alone, whose rows all come in one op. sumsq is not NULL then, and g is not acc. */
typedef struct op_gradient_finish {
    pt_dtype type; int64_t rows, cols; const float *acc, *acc2; void *g; double *sumsq; const int32_t *ids;
} op_gradient_finish;

/* For each row n of v = w + scale * b . a, in fp32: inverse[n] = 1 / |v[n]| (0 if the norm is 0), gain[n] = magnitude[n] * inverse[n]. w
 * (rows, cols), a (rank, cols), b (rows, rank), all dense. The sum of squares has 32 lanes, element i in lane i mod 32. */
typedef struct op_gain {
    pt_dtype type; int64_t rows, cols, rank; float scale; const void *w, *a, *b; const float *magnitude; float *gain, *inverse;
} op_gain;
/* For y = gain * sums, by column: acc[n] (+)= factor * inverse[n] * sum over rows of dy[row][n] * sums[row][n], the gradient of the
 * magnitude; then sums[row][n] = round(gain[n] * dy[row][n]). dy and sums have stride ld, acc is fp32. */
typedef struct op_gain_backward {
    pt_dtype type; bool accumulate; int64_t rows, cols, ld; const void *dy; void *sums; const float *gain, *inverse; float factor;
    float *acc;
} op_gain_backward;

/* out = x times 1 / (1 - p) where dropout.h keeps the value, else 0. add: out = round(out + that), or with a stream: stream += that, out =
 * round(stream). All (rows, cols), dense; row0: the number of the first row. Without `add`, out may be x. */
typedef struct op_dropout {
    pt_dtype type; bool add; int64_t rows, cols, row0; uint64_t key; double p; const void *x; void *out; float *stream;
} op_dropout;

/* AdamW as PyTorch's, in fp32 with explicit fma, the same sequence on every backend:
 *   g' = g * grad_scale
 *   w  = w * (1 - lr * weight_decay)
 *   m  = fma(1 - beta1, g' - m, m)
 *   v  = fma(1 - beta2, g' * g', beta2 * v)          m and v: 0 where they would be denormal (v only beside an eps that it
 *                                                    would vanish beside, or it would be divided by 0)
 *   w  = fma(-step_size, m / (sqrt(v) / sqrt_correction2 + eps), w)     step_size = lr / correction1
 * bf16: weights are hi and lo (base/dtype.h, master_split); fp32: `hi` holds fp32, lo is NULL. PT_F64, without fma and zeros: hi, m, v, g
 * hold fp64; `rates` is in place of the floats here, which would round 1 - beta2 by a part in 10^5. */
typedef struct adamw_rates { double decay, beta1, beta2, eps, step_size, sqrt_correction2; } adamw_rates;
typedef struct op_adamw {
    pt_dtype type; int64_t n; void *hi; uint16_t *lo; float *m, *v; const void *g;
    float grad_scale, decay /* 1 - lr * weight_decay */, beta1, beta2, eps, step_size, sqrt_correction2;
    adamw_rates rates;
} op_adamw;

enum { MOMENT_LEAST = 0x00800000 }; /* bits of the least normal number */
static inline uint32_t adamw_second_least(const op_adamw *o) { return o->eps >= 1e-9f ? MOMENT_LEAST : 0; }

/* The same with 8-bit moments (moment_map.h): m and v have a code per value, and m_scale and v_scale the largest magnitude of each
 * ADAMW8BIT_BLOCK values, from the first on. A moment is the code's value times that magnitude. After the weight was updated, moments are
 * encoded by the new largest magnitude: the code of m / m_scale (of m if m_scale is 0); v likewise, except that a positive v never gets the
 * code of 0. */
enum { ADAMW8BIT_BLOCK = 256 };
typedef struct op_adamw8bit { op_adamw adamw /* without m and v */; uint8_t *m, *v; float *m_scale, *v_scale; } op_adamw8bit;

/* m and v, n values each, decoded from such codes, or encoded to them. scale has two entries a block, of m and of v. */
typedef struct op_moment_codes { bool encode; int64_t n; float *m, *v; uint8_t *m_code, *v_code; float *scale; } op_moment_codes;

/* What Muon does beside matmuls, in the order of an update; x is bf16, and all else fp32. "fma": explicit.
 *
 *   momentum   g' = g * grad_scale;  m = fma(1 - keep, g' - m, m);  x = round(fma(-(1 - keep), m - g', m))
 *              sums[i] = sum of the squares of x over values MUON_SUM_VALUES i .. MUON_SUM_VALUES (i + 1) - 1, in fp64, value j of them in
 *              lane j mod SUMSQ_LANES, as those of OP_GRADIENT_FINISH
 *   scale      x = round(x / max(norm, least));  norm: bf16 of the root of all sums, of which sum i is in lane i mod SUMSQ_LANES
 *   combine    out = round(fma(b, s, a * x)), of rows that are ldx, lds and ldo apart; out may be x
 *   apply      w = fma(-step, x, w * decay) */
enum { MUON_SUM_VALUES = 4096 };
static inline int64_t muon_sums(int64_t values) { return (values + MUON_SUM_VALUES - 1) / MUON_SUM_VALUES; }
typedef struct op_muon_momentum {
    pt_dtype type; int64_t n; const void *g; float *m; uint16_t *x; double *sums; float grad_scale, keep;
} op_muon_momentum;
typedef struct op_muon_scale { int64_t n; uint16_t *x; const double *sums; float least; } op_muon_scale;
typedef struct op_muon_combine {
    int64_t rows, cols, ldx, lds, ldo; const uint16_t *x; const float *s; uint16_t *out; float a, b;
} op_muon_combine;
typedef struct op_muon_apply { pt_dtype type; int64_t n; void *hi; uint16_t *lo; const uint16_t *x; float decay, step; } op_muon_apply;

/* Second moments of a matrix by rows and by columns, and updates by a gradient that is scaled by rows and columns and limited as a whole.
 * All fp32 but sums of squares, which are fp64 with the lanes of OP_GRADIENT_FINISH. g' = g * grad_scale.
 *
 *   sums       row[i] = fma(1 - keep, (sum of g'^2 of row i) / cols + eps, keep * row[i]); NULL: none
 *              partial[b][j] = fma(g', g', partial[b][j]) over rows FACTOR_ROWS b .. FACTOR_ROWS (b + 1) - 1 of column j, from 0;
 *              NULL: none
 *   fold       col[j] = fma(1 - keep, (fp64 sum of partial[..][j] in order) / rows + eps, keep * col[j])
 *              row_factor[i] = 1 / sqrt(row[i] / mean of row), the mean from an fp64 sum, entry i in lane i mod SUMSQ_LANES; 1 without row
 *              col_factor[j] = 1 / sqrt(col[j])
 *   squares    sums[i] = sum of the squares of u = g' * row[i] * col[j] over row i; row or col NULL: without
 *   masters    sums[i] = the same of the weights
 *   limit      norm = sqrt of the total of sums_n sums, sum i in lane i mod SUMSQ_LANES
 *              RMS:     s = weights ? lr * max(least, root mean square of the weights, from their sums) : lr
 *                       out = {s / max(norm / sqrt(values) / most, 1), fma(-decay, s, 1)}
 *              GROWTH:  d = last > 0 ? max(norm / (last + 1e-8), most) / most : 1;  last = norm / d
 *                       out = {lr / d * (1 - decay), 1 - decay}
 *              NONE:    as GROWTH with d = 1, without sums
 *   apply      w = fma(-limit[0], u, w * limit[1]) */
enum { FACTOR_ROWS = 64 };
static inline int64_t factor_blocks(int64_t rows) { return (rows + FACTOR_ROWS - 1) / FACTOR_ROWS; }
typedef struct op_factor_sums {
    pt_dtype type; int64_t rows, cols; const void *g; float grad_scale, keep, eps; float *row, *partial;
} op_factor_sums;
typedef struct op_factor_fold {
    int64_t rows, cols; const float *row, *partial; float keep, eps; float *col, *row_factor, *col_factor;
} op_factor_fold;
typedef struct op_scaled_squares {
    pt_dtype type; int64_t rows, cols; const void *g; float grad_scale; const float *row, *col; double *sums;
} op_scaled_squares;
typedef struct op_master_squares { pt_dtype type; int64_t rows, cols; const void *hi; const uint16_t *lo; double *sums; } op_master_squares;
typedef enum limit_kind { LIMIT_RMS, LIMIT_GROWTH, LIMIT_NONE } limit_kind;
typedef struct op_update_limit {
    limit_kind kind; int64_t sums_n, values; const double *sums, *weights; float lr, decay, most, least; float *last, *out;
} op_update_limit;
typedef struct op_scaled_apply {
    pt_dtype type, g_type; int64_t rows, cols; void *hi; uint16_t *lo; const void *g; float grad_scale; const float *row, *col, *limit;
} op_scaled_apply;

/* Projections onto few dimensions, Adam's moments there, and Adam with a second moment for each row.
 *
 *   random     element i of out is x - 60 with x the sum of the eight hexadecimal digits of word i mod 4 of the counter value
 *              (stream, refresh * 2^32 + i / 4): nearly normal, of variance RANDOM_VARIANCE, and exact in bf16
 *   moments    of r (rank, channels) or, by_rows, (channels, rank): x = r * scale;  m = fma(1 - beta1, x - m, m)
 *              v = fma(1 - beta2, x * x, beta2 * v);  y = m / (sqrt(v) + eps);  small m and v become 0 as in OP_ADAMW
 *              moved[c] = sum of y^2, given[c] = sum of x^2 of channel c, in fp64: by_rows in lanes as OP_GRADIENT_FINISH, else in order
 *              n: gets y; n, or moved and given, may be NULL
 *   channels   out[c] = sqrt(moved[c]) / (sqrt(given[c]) + 1e-8) with roots rounded to fp32; together: all are that
 *              of the totals, added in the lanes of OP_GRADIENT_FINISH
 *   orthonormal  out: the rows of y / |y| + ORTHONORMAL_NOISE * noise (y 0: of the noise), made orthonormal in order: each row loses its
 *              parts along those before it, one after the other, twice, and is divided by its norm. Sums are fp64 with lanes as
 *              OP_GRADIENT_FINISH, rounded to fp32
 *   row_adam   m = fma(1 - beta1, g' - m, m);  w = fma(-step_size, m / (sqrt(v[row]) / sqrt_correction2 + eps), w * decay) */
#define RANDOM_VARIANCE 170.0f
typedef struct op_random_matrix { pt_dtype type; int64_t n; uint64_t seed; uint32_t stream, refresh; void *out; } op_random_matrix;
typedef struct op_low_moments {
    int64_t channels, rank; bool by_rows; const float *r; float scale, beta1, beta2, eps; float *m, *v, *n; double *moved, *given;
} op_low_moments;
typedef struct op_channel_scale { int64_t channels; bool together; const double *moved, *given; float *out; } op_channel_scale;
#define ORTHONORMAL_NOISE 1e-20f
typedef struct op_orthonormal { int64_t rows, cols; const float *y, *noise; float *out; } op_orthonormal;
typedef struct op_row_adam {
    pt_dtype type; int64_t rows, cols; void *hi; uint16_t *lo; const void *g; float grad_scale; float *m; const float *v;
    float decay, beta1, eps, step_size, sqrt_correction2;
} op_row_adam;

/* out (rows, cols), stride ld: part of a tensor that is kept in few bits, each value computed in fp32 and rounded to the type once. Row r,
 * column c is value i = first + r * stride + c of the tensor, whose rows have `stride` values.
 *
 *   nf4    s = map[absmax[i / 64]] * nested[i / 64 / 256] + *offset       value = nf4_levels[code] * s
 *          code: the upper half of codes[i / 2] where i is even, else the lower one; map: moment_map_get(true)
 *   int8   value = (codes[i], signed) * scales[i / stride] * (1 / 127)    from left to right
 *   mxfp4  value = mxfp4_levels[code] * 2^(absmax[i / 32] - 127)
 *          code: the lower half of codes[i / 2] where i is even, else the upper one */
typedef enum fewbit_kind { FEWBIT_NF4, FEWBIT_INT8, FEWBIT_MXFP4 } fewbit_kind;
enum { NF4_LEVELS = 16, NF4_BLOCK = 64, NF4_NESTED_BLOCK = 256, MXFP4_BLOCK = 32, MXFP4_LEAST_SCALE = 0x400000 /* 2^-127 */ };
/* The bits of 2^(scale - 127) in fp32; scale < 255. */
#define MXFP4_SCALE_BITS(scale) ((scale) ? (uint32_t)(scale) << 23 : (uint32_t)MXFP4_LEAST_SCALE)
#define INT8_STEP 7.874015718698502e-3f
typedef struct op_dequantize {
    fewbit_kind kind; pt_dtype type; int64_t rows, cols, ld, first, stride; const uint8_t *codes;
    const uint8_t *absmax;                               /* nf4, mxfp4 */
    const float *nested, *offset;                        /* nf4 */
    const float *scales;                                 /* int8 */
    void *out;
} op_dequantize;

/* Rows (rows, cols) of activations in codes of 8 bits, in groups of CODE_GROUP neighbouring columns; the last group of a row may have
 * fewer. A group keeps its largest magnitude m, which is in the type. All in fp32:
 *
 *   int8   c = nearest integer to x * (127 / m), of two the even one     value = round(c * (m * CODE_INT8_STEP))
 *   fp8    c = nearest e4m3 number to x * (448 / m), of two the even one value = round(c * (m * CODE_FP8_STEP))
 *
 * codes: (rows, cols), int8 or e4m3; largest: (rows, code_groups(cols)) in the type. If m is below CODE_LEAST, or not finite, c is 0; so
 * values of a group that has NaN or infinity are NaN. encode: codes and largest may both be NULL, and out, which gets the values and may be
 * x, may be NULL. decode gives the same values. */
typedef enum code_kind { CODES_INT8, CODES_FP8 } code_kind;
enum { CODE_GROUP = 64 };
#define CODE_INT8_STEP 7.874015718698502e-3f
#define CODE_FP8_STEP 2.2321429569274187e-3f
#define CODE_LEAST 7.888609052210118e-31f /* 2^-100 */
typedef struct op_encode {
    code_kind kind; pt_dtype type; int64_t rows, cols; const void *x; uint8_t *codes; void *largest, *out;
} op_encode;
typedef struct op_decode {
    code_kind kind; pt_dtype type; int64_t rows, cols; const uint8_t *codes; const void *largest; void *out;
} op_decode;
static inline int64_t code_groups(int64_t cols) { return (cols + CODE_GROUP - 1) / CODE_GROUP; }

/* A smooth activation s and its derivatives at z, elementwise on n values, for networks whose gradient by their input is part of what is
 * minimised (src/ritz/network.h). In PT_F32 or PT_F64.
 *
 *   value     out = s(z) + residual; behind it z holds what the other passes read instead: tanh z of both kinds of tanh, else z still
 *   slope     out = s'(z) a + residual
 *   reverse   out = s'(z) a + s''(z) b c, other = s'(z) c
 *
 * residual may be NULL, and out of the value pass, where z alone is wanted. out may be a or residual. */
typedef enum jet_kind { JET_TANH, JET_TANH3, JET_RELU3, JET_SOFTPLUS, JET_SIN, JET_SILU, JET_KINDS } jet_kind;
typedef enum jet_pass { JET_VALUE, JET_SLOPE, JET_REVERSE } jet_pass;
typedef struct op_jet {
    jet_kind kind; jet_pass pass; pt_dtype type; int64_t n; void *z; const void *a, *b, *c, *residual; void *out, *other;
} op_jet;

/* For each row r: u[r], the first `dim` values g of its gradient (stride ld), and five terms w, q, f, c, m in fp64 give
 *
 *   value[r] = w g.g / 2 + q u^2 / 2 - f u + c        in fp64
 *   du[r]    = round(q u - f + m)                     the derivative of value[r] by u, plus m
 *   dg[r]    = round(w g), 0 behind `dim`             stride ld
 *
 * g may be NULL if dg is; w is then ignored. PT_F32 or PT_F64. */
enum { QUADRATIC_TERMS = 5 };
typedef struct op_quadratic {
    pt_dtype type; int64_t rows, dim, ld; const void *u, *g; const double *terms; double *value; void *du, *dg;
} op_quadratic;

/* Begins a sequence of ops on the same rows. The next such op, with rows = 0, ends it. NT and NN matmuls, OP_COPY, OP_CALL, OP_JET and
 * OP_QUADRATIC have this many rows each, and row r of their output depends only on row r of their inputs. TN matmuls sum over the rows, or
 * over twice as many, of which rows r and rows + r depend on row r; no op of the sequence reads their output. So a device may pass a few
 * rows at a time through several of these ops. */
typedef struct op_rows { int64_t rows; } op_rows;

#define MEMBER(KIND, name, member, doing) op_##member member;
typedef struct op {
    op_kind kind;
    union {
        op_copy copy; op_copy_rows copy_rows; op_disk disk; op_disk_rows disk_rows; op_exchange exchange; op_call call;
        LIBRARY_OPS(MEMBER) KERNEL_OPS(MEMBER)
    };
} op;
#undef MEMBER

typedef struct device device;
typedef struct queue queue;

typedef enum memory_kind { MEMORY_DEVICE, MEMORY_HOST } memory_kind;

typedef struct device_options {
    int threads;          /* compute threads of a queue opened with threads = 0; 0: all cores */
    double quota;         /* number of processors whose time all threads together get; 0: of all */
    int ordinal;          /* which GPU */
    void (*notice)(void *arg, const char *sentence); /* notes about what works, but slowly; may be NULL */
    void *arg;
} device_options;

/* For messages, and for the record of what the bits depend on ("cpu x86-64-v4 bf16, matmul own"). */
typedef struct device_info {
    char name[64], arithmetic[128];
    int threads;
    double quota;                              /* as given; 0 on a GPU */
    bool host_addressable;                     /* MEMORY_DEVICE is RAM: a host tier is not needed */
    bool shares_ram;                           /* a GPU without memory of its own: device and host memory are one pool of RAM */
    uint64_t threads_bytes;                    /* RAM that its threads need outside the arenas, if there are more than a few of them */
    /* Measured at open, or when an arena did not fit. If device memory is RAM, use machine/machine.h instead. */
    uint64_t memory_bytes, memory_free_bytes;
} device_info;

struct device {
    const struct device_table *table;
    device_info info;
};
static inline bool device_is_gpu(const device *d) { return !d->info.host_addressable; }

struct queue {
    struct device *device; /* named so that C++ can read it, too */
    int threads;           /* that run one op together; 0: no processor computes */
    /* Set where it is measured (measure/measure.h): its threads are more than the processors, so that they wait for each other; other
     * programs had the processors when it was measured last. */
    bool crowded, disturbed;
};

typedef struct device_table {
    void (*close)(device *d);
    /* One block of `bytes`, aligned to 4096 (with huge pages where they help), zeroed, and really allocated, so that later use
     * cannot run out of memory. The device copies from and to MEMORY_HOST at full speed. */
    int (*memory_open)(device *d, memory_kind kind, size_t bytes, void **base, pt_error *e);
    void (*memory_close)(device *d, memory_kind kind, void *base, size_t bytes);
    /* threads: how many run one op together (0: the device's default). */
    int (*queue_open)(device *d, const char *name, int threads, queue **out, pt_error *e);
    void (*queue_close)(queue *q);
    /* Checks nothing: wrong arguments are a bug. A failing op (disk I/O) makes the queue fail: later ops are skipped, waits on it are
     * released, and sync() reports the first error. */
    void (*submit)(queue *q, const op *o);
    uint64_t (*signal)(queue *q);
    void (*wait)(queue *q, queue *other, uint64_t value);
    /* Stores the time (ns, CLOCK_MONOTONIC) at which the queue reaches this point; valid after sync. */
    void (*mark)(queue *q, int64_t *ns);
    /* The same with the processor time that the queue's threads have used, and with the time for which they had to wait for a processor
     * because other threads had it. NULL: no processor computes. */
    void (*mark_work)(queue *q, int64_t *ns);
    void (*mark_waited)(queue *q, int64_t *ns);
    int (*sync)(queue *q, uint64_t value, pt_error *e); /* blocks the caller until the value is reached */
} device_table;

int device_cpu_open(const device_options *o, device **out, pt_error *e);

/* The device for --device: "cpu"; "cuda" or "cuda:N", a GPU through the CUDA module (a library that is loaded here), or an error with the
 * reason; "auto", a usable GPU, else the CPU. *host is the device whose queues do the host's work: the same one on a CPU. PT_USAGE: an
 * invalid name. */
int device_open(const char *name, const device_options *o, device **out, device **host, pt_error *e);
int device_name_check(const char *name, pt_error *e);

/* "cuda:0,2": the GPUs of several ranks, in the order in which the ranks take them. device_open takes one. */
enum { GPUS_MOST = 64 };
typedef struct gpu_list {
    int n, ordinal[GPUS_MOST];
    uint64_t id[GPUS_MOST]; /* the same in every process, whatever the GPU's place in its list; only device_gpus sets it */
    bool numbered;          /* by the name: exactly these are meant, also one that stands there twice */
} gpu_list;
/* The numbers in a name; none for "cpu", "cuda" and "auto". */
int device_numbers(const char *name, gpu_list *out, pt_error *e);
/* All usable GPUs if the name has no numbers. None for "cpu", and for "auto" if it means the CPU. */
int device_gpus(const char *name, gpu_list *out, pt_error *e);
void device_close(device *d, device *host); /* after their queues and memory are closed; may be NULL */

/* Threads of the queue for the host's work (AdamW): one if the processor also does all other computation, else all. */
static inline int host_queue_threads(const device *d, const device *host, int threads) { return d == host ? 1 : threads; }

static inline void queue_submit(queue *q, const op *o) { q->device->table->submit(q, o); }
static inline uint64_t queue_signal(queue *q) { return q->device->table->signal(q); }
static inline void queue_wait(queue *q, queue *other, uint64_t value) { q->device->table->wait(q, other, value); }
static inline void queue_mark(queue *q, int64_t *ns) { q->device->table->mark(q, ns); }
/* *ns is unchanged if no processor computes. */
static inline void queue_mark_work(queue *q, int64_t *ns)
{
    if (q->device->table->mark_work)
        q->device->table->mark_work(q, ns);
}
static inline void queue_mark_waited(queue *q, int64_t *ns)
{
    if (q->device->table->mark_waited)
        q->device->table->mark_waited(q, ns);
}
static inline int queue_sync(queue *q, uint64_t value, pt_error *e) { return q->device->table->sync(q, value, e); }

#endif
