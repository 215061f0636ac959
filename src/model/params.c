/* params.c - the blocks and parameters that a configuration implies. */
#include "model/architectures.h"

#include <stdlib.h>
#include <string.h>

/* Far above any model, and 16 bytes for each still fit into 63 bits. */
#define MAX_PARAMETERS 1e15

typedef struct shape_of {
    bool exists;
    int64_t rows, cols;
} shape_of;

/* Which parameters there are, and their shapes: the one place that knows. */
static shape_of role_shape(const model_config *c, param_role role)
{
    int64_t C = c->hidden, F = c->ffn, q = c->heads * c->head_dim, kv = c->kv_heads * c->head_dim;
    bool bias = c->norm == NORM_LAYER;
    switch (role) {
    case PARAM_TOKENS: return (shape_of){true, c->vocab, C};
    case PARAM_POSITIONS: return (shape_of){c->position == POSITION_LEARNED, c->max_positions, C};
    case PARAM_NORM1: case PARAM_NORM2: case PARAM_NORMF: return (shape_of){true, 1, C};
    case PARAM_NORM1_BIAS: case PARAM_NORM2_BIAS: case PARAM_NORMF_BIAS: return (shape_of){bias, 1, C};
    case PARAM_QKV: return (shape_of){true, q + 2 * kv, C};
    case PARAM_QKV_BIAS: return (shape_of){c->qkv_bias, 1, q + 2 * kv};
    case PARAM_QNORM: case PARAM_KNORM: return (shape_of){c->qk_norm, 1, c->head_dim};
    case PARAM_OUT: return (shape_of){true, C, q};
    case PARAM_OUT_BIAS: case PARAM_DOWN_BIAS:
        return (shape_of){role == PARAM_OUT_BIAS ? c->out_bias : c->mlp_bias, 1, C};
    case PARAM_UP: return (shape_of){true, c->gated ? 2 * F : F, C};
    case PARAM_UP_BIAS: return (shape_of){c->mlp_bias, 1, c->gated ? 2 * F : F};
    case PARAM_DOWN: return (shape_of){true, C, F};
    case PARAM_HEAD: return (shape_of){!c->tied, c->vocab, C};
    default: return (shape_of){0};
    }
}

/* The extent of part `i` along the outputs: rows of a matrix, elements of a vector. */
static int64_t part_extent(const model_config *c, param_role role, int i, int parts, int64_t whole)
{
    if (parts == 1)
        return whole;
    if (role == PARAM_QKV || role == PARAM_QKV_BIAS)
        return (i ? c->kv_heads : c->heads) * c->head_dim;
    return whole / parts;
}

static block_kind role_block(param_role role)
{
    if (role <= PARAM_POSITIONS)
        return BLOCK_EMBEDDING;
    return role < PARAM_NORMF ? BLOCK_LAYER : BLOCK_HEAD;
}

static bool is_matrix_of_layer(param_role role)
{
    return role == PARAM_QKV || role == PARAM_OUT || role == PARAM_UP || role == PARAM_DOWN;
}

static void param_init(param *p, const model_config *c, const architecture *a, int block, int layer,
                       param_role role)
{
    shape_of shape = role_shape(c, role);
    bool matrix = is_matrix_of_layer(role);
    bool table = role == PARAM_TOKENS || role == PARAM_POSITIONS || role == PARAM_HEAD;
    *p = (param){.role = role, .block = block, .rows = shape.rows, .cols = shape.cols, .trainable = true};
    p->decay = matrix || table;
    while (p->parts < MODEL_MAX_PARTS && a->names[role][p->parts])
        p->parts++;
    int64_t at = 0;
    for (int i = 0; i < p->parts; i++) {
        param_part *part = &p->part[i];
        architecture_name(part->name, role == PARAM_HEAD ? "" : a->prefix, a->names[role][i], layer);
        part->vector = !matrix && !table;
        part->transposed = matrix && a->transposed;
        part->row0 = at;
        part->rows = part_extent(c, role, i, p->parts, part->vector ? shape.cols : shape.rows);
        at += part->rows;
    }
}

static void block_init(model *m, const architecture *a, int index)
{
    block *b = &m->blocks[index];
    b->kind = index == 0 ? BLOCK_EMBEDDING : index == m->blocks_n - 1 ? BLOCK_HEAD : BLOCK_LAYER;
    b->layer = b->kind == BLOCK_LAYER ? index - 1 : -1;
    for (param_role role = 0; role < PARAM_ROLES; role++) {
        b->param_of_role[role] = -1;
        if (role_block(role) != b->kind || !role_shape(&m->config, role).exists)
            continue;
        b->param_of_role[role] = m->params_n;
        param_init(&m->params[m->params_n++], &m->config, a, index, b->layer, role);
    }
    if (b->kind == BLOCK_HEAD && m->config.tied)
        b->param_of_role[PARAM_TOKENS] = m->blocks[0].param_of_role[PARAM_TOKENS];
}

int params_build(model *m, const architecture *a, const char *where, pt_error *e)
{
    double total = 0;
    for (param_role role = 0; role < PARAM_ROLES; role++) {
        shape_of s = role_shape(&m->config, role);
        if (s.exists)
            total += (double)s.rows * (double)s.cols *
                     (double)(role_block(role) == BLOCK_LAYER ? m->config.layers : 1);
    }
    if (total > MAX_PARAMETERS)
        return pt_fail(e, PT_FAILED,
                       "%s: the sizes make a model of %g parameters, and at most %g are taken; correct them",
                       where, total, MAX_PARAMETERS);
    m->blocks_n = (int)m->config.layers + 2;
    m->blocks = calloc((size_t)m->blocks_n, sizeof *m->blocks);
    m->params = calloc((size_t)m->blocks_n * PARAM_ROLES, sizeof *m->params);
    if (!m->blocks || !m->params)
        return pt_fail(e, PT_FAILED, "%s: no memory for the description of %d blocks", where, m->blocks_n);
    for (int i = 0; i < m->blocks_n; i++)
        block_init(m, a, i);
    m->parameters = (int64_t)total;
    return 0;
}

void model_close(model *m)
{
    if (!m)
        return;
    free(m->blocks);
    free(m->params);
    free(m);
}

/* Keys that a token sees, on average over a sequence of T. */
static double average_keys(int64_t window, double T)
{
    double w = window && (double)window < T ? (double)window : T;
    return (w * (w + 1) / 2 + (T - w) * w) / T;
}

double model_flops_per_token(const model *m, int64_t seq_len)
{
    const model_config *c = &m->config;
    double matmul = (double)c->vocab * (double)c->hidden, attention = 0;
    for (int i = 0; i < m->params_n; i++)
        if (is_matrix_of_layer(m->params[i].role))
            matmul += (double)m->params[i].rows * (double)m->params[i].cols;
    for (int i = 0; i < c->layers; i++) /* scores and values, 2 each forward and twice that backward */
        attention += 12.0 * (double)(c->heads * c->head_dim) * average_keys(c->window[i], (double)seq_len);
    return 6 * matmul + attention;
}

double model_layer_flops(const model *m, int block, int64_t rows, int64_t seq_len)
{
    const model_config *c = &m->config;
    double of_token = 4 * (double)(c->heads * c->head_dim) * average_keys(c->window[m->blocks[block].layer], (double)seq_len);
    for (int role = 0; role < PARAM_ROLES; role++) {
        const param *p = block_param(m, &m->blocks[block], role);
        if (p && is_matrix_of_layer(p->role))
            of_token += 2 * (double)p->rows * (double)p->cols;
    }
    return of_token * (double)rows;
}

double model_head_flops(const model *m, int64_t rows) { return 2 * (double)rows * (double)m->config.vocab * (double)m->config.hidden; }
