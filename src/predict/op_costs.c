/* op_costs.c - a function for each op of the table (device/op_table.h). */
#include "predict/op_costs.h"

#include <math.h>

/* An op limited by memory: `n` values of the type per element, and other bytes. */
static op_cost bytes_cost(pt_dtype type, double elements, double n, double more)
{
    return (op_cost){type, 0, elements * n * (double)dtype_bytes(type) + more, 0};
}

/* ---- moves ---- */

static op_cost cost_copy(const op_copy *o) { return bytes_cost(PT_F32, 0, 0, 2 * (double)o->bytes); }

static op_cost cost_copy_rows(const op_copy_rows *o)
{
    return bytes_cost(PT_F32, 0, 0, 2 * (double)o->rows * (double)o->bytes);
}

static op_cost cost_zero(const op_copy *o) { return bytes_cost(PT_F32, 0, 0, (double)o->bytes); }
static op_cost cost_disk_read(const op_disk *o) { return bytes_cost(PT_F32, 0, 0, (double)o->bytes); }
static op_cost cost_disk_write(const op_disk *o) { return bytes_cost(PT_F32, 0, 0, (double)o->bytes); }
static op_cost cost_disk_rows(const op_disk_rows *o) { return bytes_cost(PT_F32, 0, 0, 0); } /* by its file's curve */
static op_cost cost_exchange(const op_exchange *o) { return bytes_cost(PT_F32, 0, 0, 0); } /* over its own link */

static op_cost cost_call(const op_call *o) { return bytes_cost(PT_F32, 0, 0, 0); } /* measured by who submits it */

/* ---- matmuls and attention ---- */

static op_cost cost_matmul(const op_matmul *o)
{
    double e = (double)dtype_bytes(o->type), out = (double)dtype_bytes(o->out_type);
    double rows = (double)o->m, n = (double)o->n, k = (double)(o->k + o->more_k);
    double written = rows * n * (out * (o->accumulate ? 2 : 1) + (o->residual ? e : 0) + (o->stream ? 8 : 0));
    return (op_cost){o->type, 2 * rows * n * k, (rows * k + n * k) * e + written, written};
}

/* Pairs of query and key per head and sequence: position p sees min(p + 1, window). */
static double pairs_seen(const op_attention *o)
{
    const double n = (double)o->q_len, past = fmax((double)(o->kv_len - o->q_len), 0);
    const double window = o->window > 0 ? (double)o->window : past + n;
    const double fewer = fmin(fmax(window - past, 0), n); /* rows that see all keys up to their own */
    return fewer * (past + (fewer + 1) / 2) + (n - fewer) * window;
}

static double matmuls_of_pairs(const op_attention *o, double matmuls)
{
    return pairs_seen(o) * (double)(o->seqs * o->heads * o->dim) * 2 * matmuls;
}

/* Bytes of q, or of a tensor of its shape; and of k and v together. */
static double query_bytes(const op_attention *o) { return (double)(o->seqs * o->q_len * o->heads * o->dim) * (double)dtype_bytes(o->type); }

static double key_bytes(const op_attention *o)
{
    return 2 * (double)(o->seqs * o->q_len * o->kv_heads * o->dim) * (double)dtype_bytes(o->type);
}

static op_cost cost_attention(const op_attention *o)
{
    return (op_cost){o->type, matmuls_of_pairs(o, 2), 2 * query_bytes(o) + key_bytes(o), 0};
}

static op_cost cost_attention_backward(const op_attention_backward *b)
{
    const op_attention *o = &b->forward;
    return (op_cost){o->type, matmuls_of_pairs(o, 5), 4 * query_bytes(o) + 2 * key_bytes(o), 0};
}

/* ---- ops limited by memory ---- */

static op_cost cost_bias_backward(const op_bias_backward *o)
{
    return bytes_cost(o->type, (double)(o->rows * o->cols), 1, 0);
}

static op_cost cost_norm(const op_norm *o)
{
    double n = (double)(o->rows * o->heads * o->dim);
    return bytes_cost(o->type, n, 2 + !!o->residual, o->stream ? 8 * n : 0);
}

static op_cost cost_norm_backward(const op_norm_backward *o)
{
    double n = (double)(o->rows * o->heads * o->dim);
    return bytes_cost(o->type, n, 3 + !!o->dx_add + !!o->y, n * ((o->stream_add ? 4 : 0) + (o->stream ? 4 : 0)));
}

static op_cost cost_rope(const op_rope *o)
{
    return bytes_cost(o->type, (double)(o->rows * o->heads * rope_rotated(o)), 2, 0);
}

static op_cost cost_activation(const op_activation *o)
{
    return bytes_cost(o->type, (double)(o->rows * o->cols), o->gated ? 3 : 2, 0);
}

static op_cost cost_scale(const op_scale *o)
{
    const double n = (double)(o->rows * o->cols);
    return bytes_cost(o->type, n, o->stream ? 1 : 2, o->stream ? 8 * n : 0);
}

static op_cost cost_heads(const op_heads *o)
{
    const int64_t from = o->head_from ? o->heads * o->given : o->given, to = o->head_to ? o->heads * o->cols : o->cols;
    return bytes_cost(o->type, (double)(o->rows * (from + to)), 1, 0);
}

static op_cost cost_activation_backward(const op_activation_backward *o)
{
    return bytes_cost(o->type, (double)(o->rows * o->cols), (o->gated ? 5 : 3) + !!o->out, 0);
}

/* ---- mixtures of experts: as many rows as a range has of balanced experts ---- */

static op_cost cost_route(const op_route *o)
{
    return bytes_cost(PT_F32, (double)o->rows * (double)((o->use ? 3 : 1) * o->experts + 2 * o->k), 1, 0);
}

static op_cost cost_route_backward(const op_route_backward *o)
{
    const op_route *f = &o->forward;
    return bytes_cost(o->type, (double)(f->rows * f->experts), 1, (double)f->rows * 4 * (double)(f->experts + 2 * f->k));
}

static op_cost cost_dispatch(const op_dispatch *o)
{
    return bytes_cost(PT_F32, (double)o->slots, 4, 4 * (double)o->experts);
}

static op_cost cost_grouped_matmul(const op_grouped_matmul *o)
{
    op_matmul all = o->of;
    const double experts = (double)o->range.experts, size = (double)dtype_bytes(o->of.layout == MATMUL_TN ? PT_F32 : o->of.type);
    if (all.layout == MATMUL_TN)
        all.k = o->range.rows;
    else
        all.m = o->range.rows;
    op_cost cost = cost_matmul(&all);
    const double each = all.layout == MATMUL_TN ? (double)(all.m * all.n) * (all.accumulate ? 2 : 1)
                                                : (double)((all.k + all.more_k) * all.n);
    cost.bytes += (experts - 1) * each * size; /* the matrices of the other experts */
    cost.written += all.layout == MATMUL_TN ? (experts - 1) * each * size : 0;
    return cost;
}

static op_cost cost_grouped_bias_backward(const op_grouped_bias_backward *o)
{
    return bytes_cost(o->type, (double)(o->range.rows * o->cols), 1, 0);
}

static op_cost cost_grouped_activation(const op_grouped_activation *o)
{
    op_activation all = o->of;
    all.rows = o->range.rows;
    return cost_activation(&all);
}

static op_cost cost_grouped_activation_backward(const op_grouped_activation_backward *o)
{
    op_activation_backward all = o->of;
    all.rows = o->range.rows;
    return cost_activation_backward(&all);
}

static op_cost cost_combine(const op_combine *o)
{
    const double n = (double)(o->rows * o->cols), read = (double)(o->range.ends ? o->range.rows : o->rows * o->k) * (double)o->cols;
    return bytes_cost(o->type, read, 1, n * ((o->out ? 0 : 4) + (o->continues ? 4 : 0) + (o->stream ? 8 : 0)) +
                      n * (double)dtype_bytes(o->type) * (!!o->out + !!o->residual));
}

/* ---- sinks ---- */

static op_cost cost_sink(const op_sink *o)
{
    return bytes_cost(o->type, (double)(o->seqs * o->q_len * o->heads * o->dim), 2, 0);
}

static op_cost cost_sink_backward(const op_sink_backward *b)
{
    return bytes_cost(b->forward.type, (double)(b->forward.seqs * b->forward.q_len * b->forward.heads * b->forward.dim), 2, 0);
}

/* ---- layers with a state ---- */

static op_cost cost_conv(const op_conv *o)
{
    return bytes_cost(o->type, (double)(o->seqs * o->len * o->channels), 2 + !!o->before + !!o->after, 0);
}

static op_cost cost_conv_backward(const op_conv_backward *b)
{
    const op_conv *o = &b->forward;
    return bytes_cost(o->type, (double)(o->seqs * o->len * o->channels), 3 + 2 * (!!o->before + !!o->after), 0);
}

static op_cost cost_gates(const op_gates *o)
{
    const double n = (double)(o->rows * o->heads);
    return bytes_cost(o->type, n, 1 + !!o->b, 8 * n);
}

static op_cost cost_gates_backward(const op_gates_backward *b)
{
    const double n = (double)(b->forward.rows * b->forward.heads);
    return bytes_cost(b->forward.type, n, 2 + 2 * !!b->forward.b, 8 * n);
}

static op_cost cost_gated_norm(const op_gated_norm *o)
{
    return bytes_cost(o->type, (double)(o->rows * o->heads * o->dim), 3, 0);
}

static op_cost cost_gated_norm_backward(const op_gated_norm_backward *b)
{
    const op_gated_norm *o = &b->forward;
    return bytes_cost(o->type, (double)(o->rows * o->heads * o->dim), 5 + !!b->y, 0);
}

/* FLOPs of the matmuls of chunks: so many of n rows by n and by key_dim, or by dim, and of n rows by key_dim by dim. */
static double scan_flops(const op_scan *o, double of_keys, double of_values, double states)
{
    const double rows = (double)(o->seqs * o->len), n = o->len < SCAN_CHUNK ? (double)o->len : (double)SCAN_CHUNK;
    const double keys = (double)o->key_dim, values = (double)o->dim;
    return 2 * rows * (double)o->heads * (n * (of_keys * keys + of_values * values) + states * keys * values);
}

static double scan_bytes(const op_scan *o, double keys, double values, double gates)
{
    const double of_keys = (double)(o->key_heads * o->key_dim), of_values = (double)(o->heads * o->dim);
    const double each = (keys * of_keys + values * of_values) * (double)dtype_bytes(o->type) + 4 * gates * (double)o->heads;
    return (double)(o->seqs * o->len) * each;
}

static op_cost cost_scan(const op_scan *o)
{
    const double shared = (double)o->key_heads / (double)o->heads;
    const double flops = o->kind == SCAN_DELTA ? scan_flops(o, 2 * shared, 1.5, 3) : scan_flops(o, shared, 1, 2);
    return (op_cost){o->type, flops, scan_bytes(o, 2, 2, 2), 0};
}

static op_cost cost_scan_backward(const op_scan_backward *b)
{
    const op_scan *o = &b->forward;
    const double shared = (double)o->key_heads / (double)o->heads;
    const double flops = o->kind == SCAN_DELTA ? scan_flops(o, 3 + 2 * shared, 4, 8) : scan_flops(o, 2 + shared, 2, 5);
    return (op_cost){o->type, flops, scan_bytes(o, 4, 3, 4), 0};
}

static op_cost cost_dequantize(const op_dequantize *o)
{
    const double n = (double)(o->rows * o->cols), nf4 = 0.5 + 1.0 / NF4_BLOCK + 4.0 / (NF4_BLOCK * NF4_NESTED_BLOCK);
    const double mxfp4 = 0.5 + 1.0 / MXFP4_BLOCK;
    return bytes_cost(o->type, n, 1, n * (o->kind == FEWBIT_NF4 ? nf4 : o->kind == FEWBIT_MXFP4 ? mxfp4 : 1));
}

static op_cost cost_encode(const op_encode *o)
{
    const double n = (double)(o->rows * o->cols), groups = (double)(o->rows * code_groups(o->cols));
    return bytes_cost(o->type, n, 1 + !!o->out, o->codes ? n + groups * (double)dtype_bytes(o->type) : 0);
}

static op_cost cost_decode(const op_decode *o)
{
    const double n = (double)(o->rows * o->cols), groups = (double)(o->rows * code_groups(o->cols));
    return bytes_cost(o->type, n, 1, n + groups * (double)dtype_bytes(o->type));
}

/* The rows of a unit whose id lies in the slice of the table. */
static double rows_in_slice(int64_t rows, int64_t table_rows, int64_t vocab) { return (double)rows * (double)table_rows / (double)vocab; }

static op_cost slice_cost(const op_embedding *o, int64_t vocab)
{
    double looked_up = rows_in_slice(o->rows, o->table_rows, vocab) * (double)o->cols;
    return bytes_cost(o->type, looked_up, o->position_table ? 3 : 2, (o->stream ? looked_up * 4 : 0) + (double)o->rows * 4);
}

static op_cost slice_backward_cost(const op_embedding_backward *o, int64_t vocab)
{
    double touched = rows_in_slice(o->rows, o->table_rows, vocab) * (double)o->cols, set = (double)(o->table_rows * o->cols);
    return bytes_cost(o->type, touched, 1, touched * 8 + (o->accumulate ? 0 : set * 4) + (double)o->rows * 4);
}

/* The logits are read once for maximum and sum, and again to become the gradient. */
static op_cost cost_cross_entropy(const op_cross_entropy *o)
{
    double logits = (double)(o->rows * o->vocab);
    return bytes_cost(o->type, logits, o->dlogits ? 1 : 0, logits * (o->dlogits ? 8 : 4));
}

static op_cost cost_preference(const op_preference *o)
{
    return bytes_cost(PT_F32, (double)(o->sequences * o->seq_len), 5, 0);
}

static op_cost cost_gradient_finish(const op_gradient_finish *o)
{
    double n = (double)(o->rows * o->cols);
    return bytes_cost(o->type, n, 1, n * (o->acc2 ? 8 : 4));
}

static op_cost cost_gain(const op_gain *o)
{
    const double values = (double)(o->rows * o->cols), more = (double)((o->rows + o->cols) * o->rank);
    return (op_cost){PT_F32, 2 * values * (double)(o->rank + 1), (values + more) * (double)dtype_bytes(o->type), 0};
}

static op_cost cost_gain_backward(const op_gain_backward *o)
{
    return bytes_cost(o->type, (double)(o->rows * o->cols), 3, 0);
}

static op_cost cost_dropout(const op_dropout *o)
{
    const double n = (double)(o->rows * o->cols);
    return bytes_cost(o->type, n, o->add ? 3 : 2, o->stream ? 8 * n : 0);
}

/* Reads and writes both halves of the weights and two moments. */
static op_cost cost_adamw(const op_adamw *o) { return bytes_cost(o->type, (double)o->n, 1, (double)o->n * 2 * (4 + 4 + 4)); }

/* Codes instead of fp32 moments, and the entries of blocks. */
static op_cost cost_adamw8bit(const op_adamw8bit *o)
{
    const double n = (double)o->adamw.n;
    return bytes_cost(o->adamw.type, n, 1, n * 2 * (4 + 1 + 1 + 8.0 / ADAMW8BIT_BLOCK));
}

/* Two moments and their codes. */
static op_cost cost_moment_codes(const op_moment_codes *o)
{
    return bytes_cost(PT_F32, (double)o->n, 2, (double)o->n * (2 + 8.0 / ADAMW8BIT_BLOCK));
}

static op_cost cost_muon_momentum(const op_muon_momentum *o)
{
    return bytes_cost(o->type, (double)o->n, 1, (double)o->n * 10);
}
static op_cost cost_muon_scale(const op_muon_scale *o) { return bytes_cost(PT_BF16, (double)o->n, 2, 0); }
static op_cost cost_muon_apply(const op_muon_apply *o) { return bytes_cost(PT_BF16, (double)o->n, 1, (double)o->n * 8); }

static op_cost cost_muon_combine(const op_muon_combine *o)
{
    return bytes_cost(PT_BF16, (double)(o->rows * o->cols), 2, (double)(o->rows * o->cols) * 4);
}

static op_cost cost_factor_sums(const op_factor_sums *o)
{
    return bytes_cost(o->type, (double)(o->rows * o->cols), 2, (double)o->rows * 8 + (double)(factor_blocks(o->rows) * o->cols) * 8);
}

static op_cost cost_factor_fold(const op_factor_fold *o)
{
    return bytes_cost(PT_F32, (double)(factor_blocks(o->rows) * o->cols), 1, (double)(o->rows + o->cols) * 12);
}

static op_cost cost_scaled_squares(const op_scaled_squares *o)
{
    return bytes_cost(o->type, (double)(o->rows * o->cols), 1, (double)(o->rows + o->cols) * 8);
}

static op_cost cost_master_squares(const op_master_squares *o)
{
    return bytes_cost(PT_F32, (double)(o->rows * o->cols), 1, (double)o->rows * 8);
}

static op_cost cost_update_limit(const op_update_limit *o) { return bytes_cost(PT_F64, (double)o->sums_n, 1, 0); }

static op_cost cost_scaled_apply(const op_scaled_apply *o)
{
    const double n = (double)(o->rows * o->cols);
    return bytes_cost(o->g_type, n, 1, n * 8);
}

static op_cost cost_random_matrix(const op_random_matrix *o)
{
    const op_cost c = bytes_cost(o->type, (double)o->n, 1, 0);
    return (op_cost){PT_F32, 40 * (double)o->n, c.bytes, 0};
}

static op_cost cost_low_moments(const op_low_moments *o)
{
    return bytes_cost(PT_F32, (double)(o->channels * o->rank), 5, (double)o->channels * 16);
}

static op_cost cost_channel_scale(const op_channel_scale *o) { return bytes_cost(PT_F32, (double)o->channels, 5, 0); }

static op_cost cost_orthonormal(const op_orthonormal *o)
{
    const double n = (double)(o->rows * o->cols);
    return (op_cost){PT_F32, 4 * n * (double)o->rows, 8 * n * (double)o->rows, 0};
}

static op_cost cost_row_adam(const op_row_adam *o)
{
    const double n = (double)(o->rows * o->cols);
    return bytes_cost(o->type, n, 1, n * 16);
}

static bool keeps_tanh(const op_jet *o) { return o->kind == JET_TANH || o->kind == JET_TANH3; }

static op_cost cost_jet(const op_jet *o)
{
    const int more = o->pass == JET_VALUE ? keeps_tanh(o) : o->pass == JET_SLOPE ? 1 : 4;
    return bytes_cost(o->type, (double)o->n, 1 + !!o->out + (o->out && o->residual) + more, 0);
}

static op_cost cost_quadratic(const op_quadratic *o)
{
    return bytes_cost(o->type, (double)o->rows, 2 + (o->g ? 2 * (double)o->ld : 0),
                      (double)o->rows * (QUADRATIC_TERMS + 1) * sizeof(double));
}

static op_cost cost_rows(const op_rows *o) { return (op_cost){0}; }

op_cost op_cost_of(const op *o, int64_t vocab)
{
    switch (o->kind) {
#define cost_embedding(o) slice_cost(o, vocab)
#define cost_embedding_backward(o) slice_backward_cost(o, vocab)
#define COST(KIND, name, member, doing) case OP_##KIND: return cost_##name(&o->member);
    ALL_OPS(COST)
#undef COST
    default: return (op_cost){0};
    }
}
