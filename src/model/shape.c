#include "model/shape.h"

#include <string.h>

enum { UNIT_TOKENS = 2048, SLICE_ROWS = 64, LINE = 64, PAGE = 4096 };

_Static_assert(SLICE_ROWS % SUMSQ_ROWS == 0, "partial sums of squares do not cross slices");

enum { CPU_LOGITS = 512, CPU_WEIGHTS = 4 << 20, GPU_LOGITS = 2048, GPU_WEIGHTS = 16 << 20, GPU_UNIT = 16 << 20, GPU_UNIT_MOST = 8192 };

static int64_t at_most(int64_t n, int64_t most) { return n < most ? n : most; }
static int64_t at_least(int64_t n, int64_t least) { return n > least ? n : least; }

/* A GPU has 100 to 150 multiprocessors, each of which takes 128 x 256 results of a product at a time: units of about 16 Mi values of a
 * block's input give each of them several, where the model is not very large. */
static void cut_units(step_shape *s, const model *m)
{
    const int64_t tokens = !s->gpu ? UNIT_TOKENS : at_most(at_least(GPU_UNIT / m->config.hidden, UNIT_TOKENS), GPU_UNIT_MOST);
    int64_t unit = at_most(at_least(tokens / s->seq_len, 1), s->batch);
    while (s->batch % unit)
        unit--;
    s->unit_seqs = unit;
    s->units_n = s->batch / unit;
    s->unit_rows = unit * s->seq_len;
}

/* Of 50k to 150k words some 100 to 150 MiB of fp32 logits and 4 Mi weights at a time; on a GPU up to 1 GiB of logits and 16 Mi
 * weights, for its products would else have fewer tiles than there are multiprocessors, and take no longer than they take to launch. */
static void cut_head(step_shape *s, const model *m)
{
    const model_config *c = &m->config;
    const int64_t few_words = s->gpu ? 131072 : 65536, rows = (s->gpu ? GPU_LOGITS : CPU_LOGITS) / (c->vocab <= few_words ? 1 : 2);
    const int64_t table = c->position == POSITION_LEARNED ? at_least(c->vocab, c->max_positions) : c->vocab;
    const int64_t slice = (s->gpu ? GPU_WEIGHTS : CPU_WEIGHTS) / c->hidden / SLICE_ROWS * SLICE_ROWS;
    s->head_rows = at_most(rows, s->unit_rows);
    s->slice_rows = at_most(at_least(slice, SLICE_ROWS), (int64_t)align_up((uint64_t)table, SLICE_ROWS));
}

void step_shape_init(step_shape *s, const model *m, pt_dtype type, int64_t batch, int64_t seq_len)
{
    *s = (step_shape){.type = type, .batch = batch, .seq_len = seq_len};
    cut_units(s, m);
    cut_head(s, m);
}

void step_shape_for_gpu(step_shape *s, const model *m)
{
    s->gpu = true;
    cut_units(s, m);
    cut_head(s, m);
}

void step_shape_like(step_shape *out, const step_shape *s, const model *m, int64_t batch, int64_t seq_len)
{
    step_shape_init(out, m, s->type, batch, seq_len);
    out->optimizer = s->optimizer;
    if (s->gpu)
        step_shape_for_gpu(out, m);
}

uint64_t residual_bytes(const model *m, const step_shape *s)
{
    return s->type == PT_F32 ? 0 : align_up((uint64_t)(s->unit_rows * m->config.hidden) * sizeof(float), LINE);
}

pt_dtype param_type(const param *p, pt_dtype type)
{
    switch (p->role) {
    case PARAM_NORM1: case PARAM_NORM1_BIAS: case PARAM_NORM2: case PARAM_NORM2_BIAS: case PARAM_NORMF: case PARAM_NORMF_BIAS:
    case PARAM_QNORM: case PARAM_KNORM: return PT_F32;
    default: return type;
    }
}

static bool is_saved(save_level level, layer_tensor t)
{
    switch (t) {
    case LAYER_X: return true;
    case LAYER_QK: case LAYER_QKV: case LAYER_ATT: case LAYER_LSE: case LAYER_XM: return level >= SAVE_ATTENTION;
    case LAYER_UP: return level >= SAVE_ALL;
    default: return false;
    }
}

/* It is not saved, and read by what is computed again too, or by a gradient's op that does not make it. */
static bool is_made_again(save_level level, layer_tensor t)
{
    switch (t) {
    case LAYER_N1: return !is_saved(level, LAYER_QKV);
    case LAYER_N2: return !is_saved(level, LAYER_UP);
    case LAYER_ACT: return false;
    default: return !is_saved(level, t);
    }
}

static uint64_t take(uint64_t *at, uint64_t bytes)
{
    uint64_t offset = *at;
    *at = align_up(*at + bytes, LINE);
    return offset;
}

static uint64_t max_u64(uint64_t a, uint64_t b) { return a > b ? a : b; }

static void tensor_bytes(uint64_t bytes[LAYER_TENSORS], const model_config *c, const step_shape *s)
{
    uint64_t rows = (uint64_t)s->unit_rows, e = dtype_bytes(s->type);
    uint64_t q = (uint64_t)(c->heads * c->head_dim), kv = (uint64_t)(c->kv_heads * c->head_dim);
    bytes[LAYER_X] = bytes[LAYER_N1] = bytes[LAYER_XM] = bytes[LAYER_N2] = rows * (uint64_t)c->hidden * e;
    bytes[LAYER_QKV] = rows * (q + 2 * kv) * e;
    bytes[LAYER_QK] = c->qk_norm ? rows * (q + kv) * e : 0;
    bytes[LAYER_ATT] = rows * q * e;
    bytes[LAYER_LSE] = rows * (uint64_t)c->heads * sizeof(float);
    bytes[LAYER_UP] = rows * (uint64_t)c->ffn * (c->gated ? 2 : 1) * e;
    bytes[LAYER_ACT] = rows * (uint64_t)c->ffn * e;
}

static bool is_passing(layer_tensor t) { return t == LAYER_N1 || t == LAYER_N2 || t == LAYER_ACT; }

/* What is not saved and stays through the whole of backward, and the scratch. */
static uint64_t place_tensors(layer_layout *l, const model_config *c, const step_shape *s, const uint64_t bytes[LAYER_TENSORS])
{
    uint64_t work = 0;
    for (int t = 0; t < LAYER_TENSORS; t++)
        if (!is_passing(t) && (l->saved[t] || t != LAYER_UP))
            l->tensor[t] = take(l->saved[t] ? &l->saved_bytes : &work, bytes[t]);
    l->saved_bytes = align_up(l->saved_bytes, PAGE);
    l->temp[TEMP_SCRATCH] = take(&work, max_u64(c->qk_norm ? norm_backward_scratch_bytes(s->unit_rows, c->heads, c->head_dim) : 0,
                                                attention_backward_scratch_bytes(s->unit_rows, c->heads)));
    return work;
}

/* The workspace: what lives through the whole of backward, then one area that the MLP's and then the attention's temporaries use in turn,
 * then the gradient of what a norm made. What a norm or an activation makes passes: the next product reads it, on the way forward and when
 * it is computed again; so does its gradient, which it replaces backward. Sums of a norm's backward lie where one of these is not wanted
 * any more.
 *
 *     ... scratch |  up  | n1, n2, act, dact, sums of norm 2 |  dup  |       | dn
 *                 |  dqkv  | datt, sums of norm 1 |  sums of attention  |
 */
void layer_layout_init(layer_layout *l, const model *m, const step_shape *s, save_level level)
{
    const model_config *c = &m->config;
    uint64_t bytes[LAYER_TENSORS];
    tensor_bytes(bytes, c, s);
    memset(l, 0, sizeof *l);
    for (int t = 0; t < LAYER_TENSORS; t++) {
        l->saved[t] = is_saved(level, t);
        l->again[t] = is_made_again(level, t);
    }
    uint64_t mlp = place_tensors(l, c, s, bytes), attention = mlp;
    const uint64_t sums = norm_backward_scratch_bytes(s->unit_rows, 1, c->hidden);
    if (!l->saved[LAYER_UP])
        l->tensor[LAYER_UP] = take(&mlp, bytes[LAYER_UP]);
    l->tensor[LAYER_N1] = l->tensor[LAYER_N2] = l->tensor[LAYER_ACT] = l->temp[TEMP_DACT] = l->temp[TEMP_NORM2] = mlp;
    l->forward_workspace = align_up(mlp + max_u64(bytes[LAYER_N1], bytes[LAYER_ACT]), LINE);
    take(&mlp, max_u64(sums, max_u64(bytes[LAYER_N1], bytes[LAYER_ACT])));
    l->temp[TEMP_DUP] = take(&mlp, bytes[LAYER_UP]);
    l->temp[TEMP_DQKV] = take(&attention, bytes[LAYER_QKV]);
    l->temp[TEMP_DATT] = l->temp[TEMP_NORM1] = take(&attention, max_u64(sums, bytes[LAYER_ATT]));
    l->temp[TEMP_SUMS] = take(&attention, attention_sums_bytes(s->unit_seqs, s->seq_len, c->kv_heads, c->head_dim));
    uint64_t end = max_u64(mlp, attention);
    l->temp[TEMP_DN] = take(&end, bytes[LAYER_N1]);
    l->backward_workspace = end;
}

void head_layout_init(head_layout *h, const model *m, const step_shape *s)
{
    const model_config *c = &m->config;
    uint64_t at = 0, e = dtype_bytes(s->type);
    h->normed = take(&at, (uint64_t)(s->unit_rows * c->hidden) * e);
    h->dn = take(&at, (uint64_t)(s->unit_rows * c->hidden) * e);
    h->dn32 = take(&at, (uint64_t)(s->head_rows * c->hidden) * sizeof(float));
    h->ld = (int64_t)align_up((uint64_t)c->vocab, LINE / sizeof(float));
    h->logits = take(&at, (uint64_t)(s->head_rows * h->ld) * sizeof(float));
    h->scratch = h->logits; /* of which the norm's backward finds nothing that is still wanted */
    h->bytes = max_u64(at, align_up(h->scratch + norm_backward_scratch_bytes(s->unit_rows, 1, c->hidden), LINE));
}

static bool accumulates_here(const model *m, int block, param_role role)
{
    const struct block *b = &m->blocks[block];
    return b->param_of_role[role] >= 0;
}

int64_t accumulator_offset(const model *m, int block, param_role role)
{
    int64_t offset = 0;
    for (int r = 0; r < (int)role; r++)
        if (accumulates_here(m, block, r)) {
            const param *p = block_param(m, &m->blocks[block], r);
            offset += (int64_t)align_up((uint64_t)(p->rows * p->cols), LINE / sizeof(float));
        }
    return offset;
}

int64_t accumulator_elements(const model *m, int block)
{
    return accumulator_offset(m, block, PARAM_ROLES);
}

static int64_t sumsq_of(const param *p) { return (p->rows + SUMSQ_ROWS - 1) / SUMSQ_ROWS; }

int64_t sumsq_index(const model *m, int index)
{
    int64_t n = 0;
    for (int i = 0; i < index; i++)
        n += sumsq_of(&m->params[i]);
    return n;
}

int64_t sumsq_count(const model *m) { return sumsq_index(m, m->params_n); }
