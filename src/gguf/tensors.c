#include "gguf/tensors.h"

#include "model/adapter.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the list ---- */

typedef struct lister {
    gguf_tensors *t;
    const model *m;
    const gguf_family *f;
    pt_error *e;
    int failed;
} lister;

static gguf_tensor *add(lister *l, gguf_tensor tensor, const char *kind, int layer, const char *ending)
{
    gguf_tensors *t = l->t;
    if (t->n == t->capacity) {
        const int capacity = t->capacity ? 2 * t->capacity : 64;
        gguf_tensor *more = realloc(t->list, (size_t)capacity * sizeof *more);
        if (!more) {
            l->failed = pt_fail(l->e, PT_FAILED, "no memory for a table of %d tensors", capacity);
            return NULL;
        }
        t->list = more;
        t->capacity = capacity;
    }
    tensor.layer = layer;
    tensor.stride = 1;
    if (layer < 0)
        snprintf(tensor.name, sizeof tensor.name, "%s.%s", kind, ending);
    else
        snprintf(tensor.name, sizeof tensor.name, "blk.%d.%s%s%s", layer, kind, *ending ? "." : "", ending);
    t->list[t->n] = tensor;
    return &t->list[t->n++];
}

/* Adds rows [row0, row0 + rows) of parameter i, or elements of a vector; rows = 0: all. */
static gguf_tensor *add_part(lister *l, int i, int layer, const char *kind, int64_t row0, int64_t rows)
{
    const param *p = &l->m->params[i];
    const param_use use = p->kind->use;
    const bool vector = p->part[0].vector, bare = p->role == PARAM_DECAY || p->role == PARAM_SKIP;
    const bool bias = use == USE_BIAS || use == USE_NORM_BIAS || use == USE_CORRECTION || (use == USE_MIXER && !bare);
    const int64_t all = vector ? p->cols : p->rows, n = rows ? rows : all;
    gguf_tensor x = {.param = i, .row0 = row0, .rows = vector ? 1 : n, .cols = vector ? n : p->cols, .vector = vector,
                     .whole = vector || p->role == PARAM_POSITIONS || p->role == PARAM_CONV};
    if (p->kind->use == USE_NORM && p->role != PARAM_MIX_NORM)
        x.offset = l->m->config.norm_offset;
    return add(l, x, kind, layer, bare ? "" : bias ? "bias" : "weight");
}

static void set_turn(gguf_tensor *x, int64_t first, int64_t slow, int64_t fast, int64_t run)
{
    if (x && slow > 1 && fast > 1)
        x->turn = (gguf_turn){first, slow, fast, run};
}

/* Scales the first n rows, or elements of a vector. */
static void scale_queries(const lister *l, gguf_tensor *t, int layer, int64_t n)
{
    t->scale = gguf_query_scale(l->f, &l->m->config, layer);
    t->scaled = t->scale != 1 ? n : 0;
}

/* Adds q, k and v, which are one parameter here. A rope pair is element j of a head's first half and element j of its second half here;
 * where pairs are adjacent in the file, the two are. With gates, each head's follow its queries there. */
static void add_qkv(lister *l, int i, int layer)
{
    const model_config *c = &l->m->config;
    const attention_heads h = model_heads(c, layer);
    const qkv_columns at = model_qkv_columns(c, layer);
    const bool adjacent = l->f->pairs_adjacent && !c->rope_neighbours && c->layer_rope[layer] >= 0;
    gguf_tensor *of_q = add_part(l, i, layer, "attn_q", at.q, c->output_gate ? 2 * h.q_wide : h.q_wide);
    if (!of_q)
        return;
    if (adjacent)
        set_turn(of_q, 0, 2, h.dim / 2, 1);
    if (c->output_gate)
        set_turn(of_q, 0, 2, h.heads, h.dim);
    if (c->qk_norm == QK_NORM_NONE)
        scale_queries(l, of_q, layer, h.q_wide);
    gguf_tensor *of_k = add_part(l, i, layer, "attn_k", at.k, h.kv_wide);
    if (adjacent)
        set_turn(of_k, 0, 2, h.dim / 2, 1);
    add_part(l, i, layer, "attn_v", at.v, h.kv_wide);
}

/* ---- layers with a state ---- */

/* llama.cpp orders the heads of values by their place among those of a key, Qwen 3.5's files by their key. */
static void turn_heads(const lister *l, gguf_tensor *x, int64_t first, int64_t run)
{
    const model_config *c = &l->m->config;
    if (l->f->tiled_heads)
        set_turn(x, first, c->scan_key_heads, c->scan_heads / c->scan_key_heads, run);
}

static void add_delta_matrix(lister *l, int i, int layer)
{
    const model_config *c = &l->m->config;
    const mix_columns at = model_mix_columns(c, layer);
    const int64_t keys = 2 * c->scan_key_heads * c->scan_key_dim, heads = c->scan_heads;
    turn_heads(l, add_part(l, i, layer, "attn_qkv", at.channel, at.channels), keys, c->scan_dim);
    turn_heads(l, add_part(l, i, layer, "attn_gate", at.gate, heads * c->scan_dim), 0, c->scan_dim);
    if (!l->f->tiled_heads) { /* steps and decays of a key head's heads together, as in the checkpoint */
        set_turn(add_part(l, i, layer, "ssm_ba", at.step, 2 * heads), 0, 2, c->scan_key_heads, heads / c->scan_key_heads);
        return;
    }
    turn_heads(l, add_part(l, i, layer, "ssm_beta", at.step, heads), 0, 1);
    turn_heads(l, add_part(l, i, layer, "ssm_alpha", at.decay, heads), 0, 1);
}

static void add_scan_vector(lister *l, int i, int layer, const char *kind, int64_t split)
{
    gguf_tensor *x = add_part(l, i, layer, kind, 0, 0);
    if (!x)
        return;
    x->negative_exp = l->m->params[i].role == PARAM_DECAY;
    if (l->m->config.mixer[layer] == MIXER_DELTA && l->m->params[i].role != PARAM_MIX_NORM)
        turn_heads(l, x, 0, 1);
    else if (l->m->config.mixer[layer] == MIXER_MAMBA)
        x->split = split;
}

/* The parameters of a mixer that is not attention; false: it is another one. */
static bool add_mixer(lister *l, int i, int layer)
{
    const model_config *c = &l->m->config;
    const bool conv = c->mixer[layer] == MIXER_CONV, delta = c->mixer[layer] == MIXER_DELTA;
    gguf_tensor *x;
    switch (l->m->params[i].role) {
    case PARAM_MIX_IN:
        if (delta)
            add_delta_matrix(l, i, layer);
        else
            add_part(l, i, layer, conv ? "shortconv.in_proj" : "ssm_in", 0, 0);
        return true;
    case PARAM_CONV:
        x = add_part(l, i, layer, conv ? "shortconv.conv" : "ssm_conv1d", 0, 0);
        if (delta)
            turn_heads(l, x, 2 * c->scan_key_heads * c->scan_key_dim, c->scan_dim);
        return true;
    case PARAM_CONV_BIAS: add_part(l, i, layer, "ssm_conv1d", 0, 0); return true;
    case PARAM_DECAY: add_scan_vector(l, i, layer, "ssm_a", 1); return true;
    case PARAM_DECAY_BIAS: add_scan_vector(l, i, layer, "ssm_dt", 0); return true;
    case PARAM_SKIP: add_scan_vector(l, i, layer, "ssm_d", 1); return true;
    case PARAM_MIX_NORM: add_scan_vector(l, i, layer, "ssm_norm", model_mix_norm(c, layer)); return true;
    case PARAM_MIX_OUT:
        x = add_part(l, i, layer, conv ? "shortconv.out_proj" : "ssm_out", 0, 0);
        if (x && delta) {
            turn_heads(l, x, 0, c->scan_dim);
            x->columns = true;
        }
        return true;
    default: return false;
    }
}

/* ---- layers with experts ---- */

/* A matrix for each expert: `rows` rows from `first` on, of each expert's in the parameter. */
static void add_experts(lister *l, int i, int layer, const char *kind, int64_t first, int64_t rows)
{
    const param *p = &l->m->params[i];
    const int64_t experts = param_experts(&l->m->config, p), each = p->rows / experts;
    gguf_tensor *x = add_part(l, i, layer, kind, first, experts * rows);
    if (!x || p->role < PARAM_ROUTER) /* a shared expert is one matrix */
        return;
    x->experts = experts;
    x->skipped = each - rows;
}

/* Of experts with a limit: rows (or elements) of gate and up are in turn. */
static void add_mixed_experts(lister *l, int i, int layer, const char *kind, int64_t first)
{
    const model_config *c = &l->m->config;
    gguf_tensor *x = add_part(l, i, layer, kind, first, c->experts * c->expert_ffn);
    if (!x)
        return;
    x->stride = 2;
    if (x->vector)
        x->split = c->expert_ffn;
    else
        x->experts = c->experts;
}

static void add_gate_and_up(lister *l, int i, int layer, const char *gate, const char *up)
{
    const param *p = &l->m->params[i];
    if (p->role >= PARAM_EXPERTS_UP && l->m->config.expert_limit > 0) {
        add_mixed_experts(l, i, layer, gate, 0);
        add_mixed_experts(l, i, layer, up, 1);
        return;
    }
    const int64_t half = p->rows / (p->kind->use == USE_EXPERTS ? param_experts(&l->m->config, p) : 1) / 2;
    add_experts(l, i, layer, gate, 0, half);
    add_experts(l, i, layer, up, half, half);
}

/* The parameters of a layer with experts beside its norms and attention; false: it is another one. */
static bool add_sparse(lister *l, int i, int layer)
{
    const param *p = &l->m->params[i];
    gguf_tensor *x;
    switch (p->role) {
    case PARAM_ROUTER: case PARAM_SHARED_GATE:
        x = add_part(l, i, layer, p->role == PARAM_ROUTER ? "ffn_gate_inp" : "ffn_gate_inp_shexp", 0, 0);
        if (x)
            x->whole = true, x->vector = p->role == PARAM_SHARED_GATE;
        return true;
    case PARAM_ROUTER_BIAS: add_part(l, i, layer, "ffn_gate_inp", 0, 0); return true;
    case PARAM_CORRECTION: add_part(l, i, layer, "exp_probs_b", 0, 0); return true;
    case PARAM_EXPERTS_UP: case PARAM_EXPERTS_UP_BIAS: add_gate_and_up(l, i, layer, "ffn_gate_exps", "ffn_up_exps"); return true;
    case PARAM_EXPERTS_DOWN: add_experts(l, i, layer, "ffn_down_exps", 0, l->m->config.hidden); return true;
    case PARAM_EXPERTS_DOWN_BIAS:
        x = add_part(l, i, layer, "ffn_down_exps", 0, 0);
        if (x)
            x->split = l->m->config.hidden;
        return true;
    case PARAM_UP: case PARAM_SHARED_UP: add_gate_and_up(l, i, layer, "ffn_gate_shexp", "ffn_up_shexp"); return true;
    case PARAM_DOWN: case PARAM_SHARED_DOWN: add_part(l, i, layer, "ffn_down_shexp", 0, 0); return true;
    default: return false;
    }
}

static void add_up(lister *l, int i, int layer)
{
    const int64_t half = l->m->config.ffn;
    if (!l->m->config.gated || l->f->fused_up) {
        add_part(l, i, layer, "ffn_up", 0, 0);
        return;
    }
    add_part(l, i, layer, "ffn_gate", 0, half);
    add_part(l, i, layer, "ffn_up", half, half);
}

static const char *const plain_names[PARAM_ROLES] = {
    [PARAM_TOKENS] = "token_embd", [PARAM_POSITIONS] = "position_embd",
    [PARAM_NORM1] = "attn_norm", [PARAM_NORM1_BIAS] = "attn_norm",
    [PARAM_QNORM] = "attn_q_norm", [PARAM_KNORM] = "attn_k_norm",
    [PARAM_OUT] = "attn_output", [PARAM_OUT_BIAS] = "attn_output", [PARAM_POST_NORM1] = "post_attention_norm",
    [PARAM_NORM2] = "ffn_norm", [PARAM_NORM2_BIAS] = "ffn_norm",
    [PARAM_DOWN] = "ffn_down", [PARAM_DOWN_BIAS] = "ffn_down", [PARAM_POST_NORM2] = "post_ffw_norm",
    [PARAM_SINKS] = "attn_sinks", [PARAM_NORMF] = "output_norm", [PARAM_NORMF_BIAS] = "output_norm", [PARAM_HEAD] = "output",
};

static void add_param(lister *l, int i)
{
    const param *p = &l->m->params[i];
    const model_config *c = &l->m->config;
    const int layer = l->m->blocks[p->block].layer;
    const bool qkv = p->role == PARAM_QKV || p->role == PARAM_QKV_BIAS;
    if (layer >= 0 && ((c->sparse[layer] && add_sparse(l, i, layer)) || add_mixer(l, i, layer)))
        return;
    if (qkv && l->f->fused_qkv) {
        gguf_tensor *x = add_part(l, i, layer, "attn_qkv", 0, 0);
        if (x)
            scale_queries(l, x, layer, model_heads(c, layer).q_wide);
    } else if (qkv)
        add_qkv(l, i, layer);
    else if (p->role == PARAM_UP || p->role == PARAM_UP_BIAS)
        add_up(l, i, layer);
    else if (l->f->second_norm && (p->role == PARAM_NORM2 || p->role == PARAM_NORM2_BIAS))
        add_part(l, i, layer, l->f->second_norm, 0, 0);
    else if (l->f->final_norm && p->role == PARAM_NORMF)
        add_part(l, i, layer, l->f->final_norm, 0, 0);
    else {
        gguf_tensor *x = add_part(l, i, layer, plain_names[p->role], 0, 0);
        if (x && p->role == PARAM_QNORM) { /* queries have a norm: its gain is scaled */
            scale_queries(l, x, layer, p->cols);
            x->offset *= x->scale;
        }
    }
    const gguf_tensor zeros = {.param = -1, .vector = true, .rows = 1, .cols = p->rows, .whole = true};
    if (!l->f->needs_biases)
        return;
    if (p->role == PARAM_QKV && l->f->fused_qkv && !c->qkv_bias)
        add(l, zeros, "attn_qkv", layer, "bias");
    if ((p->role == PARAM_OUT && !c->out_bias) || ((p->role == PARAM_UP || p->role == PARAM_DOWN) && !c->mlp_bias))
        add(l, zeros, p->role == PARAM_UP ? "ffn_up" : plain_names[p->role], layer, "bias");
}

static void add_factors(lister *l, const char *kind, const float *values)
{
    add(l,
        (gguf_tensor){.param = -1,
                      .vector = true,
                      .rows = 1,
                      .cols = l->m->config.rope[0].rotated / 2,
                      .values = values,
                      .whole = true},
        kind, -1, "weight");
}

static void add_rope(lister *l)
{
    const rope_config *r = &l->m->config.rope[0];
    const int64_t pairs = r->rotated / 2;
    if (l->m->config.position != POSITION_ROTARY || (r->kind != ROPE_LONG && !gguf_has_factors(l->f, r)))
        return;
    l->t->factors = malloc((size_t)(2 * pairs) * sizeof(float));
    if (!l->t->factors) {
        l->failed = pt_fail(l->e, PT_FAILED, "no memory for %lld rope factors", (long long)pairs);
        return;
    }
    if (r->kind != ROPE_LONG) {
        gguf_rope_factors(r, l->t->factors);
        add_factors(l, "rope_freqs", l->t->factors);
        return;
    }
    for (int64_t i = 0; i < pairs; i++) {
        l->t->factors[i] = (float)r->long_factor[i];
        l->t->factors[pairs + i] = (float)r->short_factor[i];
    }
    add_factors(l, "rope_factors_long", l->t->factors);
    add_factors(l, "rope_factors_short", l->t->factors + pairs);
}

int gguf_tensors_list(gguf_tensors *t, const model *m, const gguf_family *f, pt_error *e)
{
    *t = (gguf_tensors){0};
    lister l = {t, m, f, e, 0};
    add_rope(&l);
    for (int i = 0; i < m->params_n && !l.failed; i++)
        if (!param_is_adapter(&m->params[i]))
            add_param(&l, i);
    for (int i = 0; i < m->params_n && !l.failed && m->config.tied && f->own_head; i++)
        if (m->params[i].role == PARAM_TOKENS)
            add_part(&l, i, -1, "output", 0, 0);
    if (l.failed)
        gguf_tensors_free(t);
    return l.failed;
}

void gguf_tensors_free(gguf_tensors *t)
{
    free(t->list);
    free(t->factors);
    *t = (gguf_tensors){0};
}

/* ---- values ---- */

enum { PIECE_VALUES = 1 << 20 };

typedef struct copier {
    gguf_writer *w;
    const model *m;
    weights_getter get;
    void *get_arg;
    float *in, *out;     /* `room` values each */
    int64_t room;
    void (*done)(void *arg, uint64_t bytes);
    void *arg;
    uint64_t bytes;
    pt_error *e;
} copier;

/* Of an expert's matrix, or of a part of it. */
static int64_t experts_rows(const gguf_tensor *t)
{
    const int64_t each = t->rows / t->experts, most = PIECE_VALUES / t->cols;
    return each < most ? each : most > 1 ? most : 1;
}

static int64_t turned(const gguf_turn *t, int64_t i)
{
    if (!t->slow || i < t->first)
        return i;
    const int64_t block = t->slow * t->fast * t->run, at = (i - t->first) % block, run = at / t->run;
    return i - at + (run % t->slow * t->fast + run / t->slow) * t->run + at % t->run;
}

/* Where row r (or element) of the tensor is in the parameter. */
static int64_t of_param(const gguf_tensor *t, int64_t r)
{
    return t->row0 + (t->columns ? r : turned(&t->turn, r)) * t->stride + (t->experts ? r / (t->rows / t->experts) * t->skipped : 0);
}

/* Rows to read at once, which follow one another in the parameter; all of a matrix that is stored transposed. */
static int64_t rows_at_once(const model *m, const gguf_tensor *t)
{
    if (t->param < 0 || t->vector || t->stride > 1)
        return 1;
    if (m->params[t->param].part[0].transposed)
        return t->rows;
    if (t->experts)
        return experts_rows(t);
    const int64_t most = PIECE_VALUES / t->cols, n = t->turn.slow && !t->columns ? t->turn.run : t->rows;
    return n < most ? n : most > 1 ? most : 1;
}

static int64_t values_at_once(const model *m, const gguf_tensor *t)
{
    const int64_t row = t->vector && t->param >= 0 ? m->params[t->param].cols : t->cols;
    return rows_at_once(m, t) * row;
}

/* n rows of the tensor, from `first` on, of those that were read. */
static void change(const copier *x, const gguf_tensor *t, int64_t first, int64_t n, int64_t cols)
{
    for (int64_t i = 0; i < n; i++) {
        const float *from = x->in + i * cols;
        float *to = x->out + i * cols;
        const float scale = first + i < t->scaled ? t->scale : 1;
        for (int64_t k = 0; k < cols; k++) {
            const float value = from[t->columns ? turned(&t->turn, k) : k];
            to[k] = t->negative_exp ? -expf(value) : scale == 1 && t->offset == 0 ? value : value * scale + t->offset;
        }
    }
}

static int append(copier *x, const gguf_tensor *t, const float *values, int64_t n)
{
    const int status = gguf_append(x->w, values, n, x->e);
    x->bytes += (uint64_t)(n / gguf_block_values(t->type) * gguf_block_bytes(t->type));
    if (x->done)
        x->done(x->arg, x->bytes);
    return status;
}

static int write_vector(copier *x, const gguf_tensor *t)
{
    if (t->param < 0) {
        memset(x->out, 0, (size_t)t->cols * sizeof *x->out);
        return append(x, t, t->values ? t->values : x->out, t->cols);
    }
    const int status = x->get(x->get_arg, t->param, 0, 1, x->in, x->e);
    if (status)
        return status;
    for (int64_t i = 0; i < t->cols; i++)
        x->out[i] = x->in[of_param(t, i)];
    memcpy(x->in, x->out, (size_t)t->cols * sizeof *x->in);
    change(x, t, 0, t->cols, 1);
    return append(x, t, x->out, t->cols);
}

/* Of n rows from r on those before the next run of a turn. */
static int64_t rows_from(const gguf_tensor *t, int64_t r, int64_t n)
{
    if (!t->turn.slow || t->columns)
        return n;
    const int64_t left = r < t->turn.first ? t->turn.first - r : t->turn.run - (r - t->turn.first) % t->turn.run;
    return n < left ? n : left;
}

static int write_matrix(copier *x, const gguf_tensor *t)
{
    const int64_t step = rows_at_once(x->m, t);
    int status = 0;
    for (int64_t r = 0, n; r < t->rows && !status; r += n) {
        const int64_t whole = t->experts ? t->rows / t->experts : t->rows, left = whole - r % whole;
        n = rows_from(t, r, left < step ? left : step);
        status = x->get(x->get_arg, t->param, of_param(t, r), n, x->in, x->e);
        if (status)
            break;
        change(x, t, r, n, t->cols);
        status = append(x, t, x->out, n * t->cols);
    }
    return status;
}

int gguf_tensors_write(gguf_writer *w, const gguf_tensors *t, const model *m, weights_getter get, void *get_arg,
                       void (*done)(void *arg, uint64_t bytes), void *arg, pt_error *e)
{
    copier x = {.w = w, .m = m, .get = get, .get_arg = get_arg, .done = done, .arg = arg, .e = e};
    for (int i = 0; i < t->n; i++) {
        const int64_t need = values_at_once(m, &t->list[i]);
        x.room = need > x.room ? need : x.room;
    }
    x.in = malloc((size_t)x.room * sizeof *x.in);
    x.out = malloc((size_t)x.room * sizeof *x.out);
    int status = x.in && x.out ? 0 : pt_fail(e, PT_FAILED, "no memory for %lld values of a tensor", (long long)x.room);
    for (int i = 0; i < t->n && !status; i++)
        status = t->list[i].vector ? write_vector(&x, &t->list[i]) : write_matrix(&x, &t->list[i]);
    free(x.in);
    free(x.out);
    return status;
}
