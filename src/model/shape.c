#include "model/shape.h"

#include "base/units.h"
#include "model/lanes.h"

#include <stdio.h>

enum { UNIT_TOKENS = CPU_GRADIENT_ROWS, SLICE_ROWS = 64, LINE = 64, WHOLE_HEADS = 64 << 10 };

_Static_assert(SLICE_ROWS % SUMSQ_ROWS == 0, "partial sums of squares do not cross slices");

enum { CPU_LOGITS = 512, CPU_WEIGHTS = 4 << 20, GPU_LOGITS = 2048, GPU_WEIGHTS = 16 << 20, GPU_UNIT = 16 << 20,
       GPU_UNIT_MOST = GPU_GRADIENT_ROWS };

static int64_t at_most(int64_t n, int64_t most) { return n < most ? n : most; }
static int64_t at_least(int64_t n, int64_t least) { return n > least ? n : least; }

/* A GPU has 100 to 150 multiprocessors, each of which computes 128 x 256 results of a matmul at a time. Units of about 16 Mi values of a
 * block's input give each of them several such tiles, unless the model is very large. */
static void cut_units(step_shape *shape, const model *m)
{
    const int64_t tokens = !shape->gpu ? UNIT_TOKENS : at_most(at_least(GPU_UNIT / m->config.hidden, UNIT_TOKENS), GPU_UNIT_MOST);
    const int64_t of_lane = at_least(shape->batch / shape_lanes(shape), 1);
    int64_t unit = at_most(at_least(tokens / shape->seq_len, 1), of_lane);
    while (of_lane % unit)
        unit--;
    shape->unit_seqs = unit;
    shape->units_n = shape->batch / unit;
    shape->unit_rows = unit * shape->seq_len;
    shape->tile_rows = gradient_rows(shape);
}

/* For a vocabulary of 50k to 150k, some 100 to 150 MiB of fp32 logits and 4 Mi weights at a time. On a GPU up to 1 GiB of logits and 16 Mi
 * weights: smaller matmuls would have fewer tiles than there are multiprocessors, and take no longer than their launch. */
static void cut_head(step_shape *shape, const model *m)
{
    const model_config *config = &m->config;
    const int64_t few_words = shape->gpu ? 131072 : 65536,
                  rows = (shape->gpu ? GPU_LOGITS : CPU_LOGITS) / (config->vocab <= few_words ? 1 : 2);
    const int64_t table =
        config->position == POSITION_LEARNED ? at_least(config->vocab, config->max_positions + config->position_offset) : config->vocab;
    const int64_t slice = (shape->gpu ? GPU_WEIGHTS : CPU_WEIGHTS) / config->hidden / SLICE_ROWS * SLICE_ROWS;
    shape->head_rows = at_most(rows, shape->unit_rows);
    shape->slice_rows = at_most(at_least(slice, SLICE_ROWS), (int64_t)align_up((uint64_t)table, SLICE_ROWS));
}

void step_shape_init(step_shape *shape, const model *m, pt_dtype type, int64_t batch, int64_t seq_len)
{
    *shape = (step_shape){.type = type, .batch = batch, .seq_len = seq_len, .whole_heads = WHOLE_HEADS};
    cut_units(shape, m);
    cut_head(shape, m);
}

void step_shape_in_lanes(step_shape *shape, const model *m, int lanes)
{
    shape->lanes = lanes;
    cut_units(shape, m);
    cut_head(shape, m);
}

/* The numbers of ranks that can share so many lanes, as a list. */
static const char *write_ranks(int lanes, char out[128])
{
    int used = 0;
    for (int ranks = lanes; ranks > 0 && used < 100; ranks = ranks % 2 ? 0 : ranks / 2)
        used += snprintf(out + used, 128 - (size_t)used, "%s%d", ranks == lanes ? "" : ranks % 2 ? " or " : ", ", ranks);
    return out;
}

void step_shape_divide(step_shape *shape)
{
    const int lanes = shape_lanes(shape);
    if (lanes <= shape->batch)
        return;
    shape->parts = lanes / (int)shape->batch;
    shape->batch = shape->units_n = lanes;
    shape->unit_seqs = 1;
    shape->unit_rows = shape->seq_len /= shape->parts;
    shape->head_rows = at_most(shape->head_rows, shape->unit_rows);
}

int step_shape_of_rank(step_shape *out, const step_shape *whole, int ranks, int rank, pt_error *e)
{
    const int lanes = shape_lanes(whole), each = lanes / ranks;
    char room[128];
    if (ranks > 1 && (lanes % ranks || each & (each - 1)))
        return pt_fail(e, PT_USAGE,
                       "`ranks` is %d with %d lane%s, but each rank computes a power of two of the lanes: give `ranks` %s, or start a new "
                       "run with `lanes` %d",
                       ranks, lanes, plural((uint64_t)lanes), write_ranks(lanes, room), ranks);
    *out = *whole;
    step_shape_divide(out);
    if (ranks == 1)
        return 0;
    out->ranks = ranks;
    out->rank = rank;
    out->lanes = each;
    out->batch /= ranks;
    out->units_n /= ranks;
    return 0;
}

void step_shape_for_gpu(step_shape *shape, const model *m)
{
    shape->gpu = true;
    cut_units(shape, m);
    cut_head(shape, m);
}

void step_shape_like(step_shape *out, const step_shape *shape, const model *m, int64_t batch, int64_t seq_len)
{
    *out = *shape;
    if (shape->parts > 1)
        out->lanes = (int)batch; /* each part has its own */
    out->batch = batch;
    out->seq_len = seq_len;
    while (out->lanes > 1 && batch % out->lanes)
        out->lanes /= 2;
    cut_units(out, m);
    cut_head(out, m);
}

uint64_t residual_bytes(const model *m, const step_shape *shape)
{
    return shape->type == PT_F32 ? 0 : align_up((uint64_t)(shape->unit_rows * m->config.hidden) * sizeof(float), LINE);
}

static uint64_t take(uint64_t *at, uint64_t bytes)
{
    uint64_t offset = *at;
    *at = align_up(*at + bytes, LINE);
    return offset;
}

/* The kind of a layer: 0 with a window, 1 without. */
static bool has_readers(const model_config *config, int kind)
{
    for (int i = 0; i < config->layers; i++)
        if (model_reads_kv(config, i) && (config->window[i] ? 0 : 1) == kind)
            return true;
    return false;
}

void carried_layout_init(carried_layout *l, const model *m, const step_shape *shape)
{
    const model_config *config = &m->config;
    *l = (carried_layout){0};
    for (int kind = 0; kind < 2; kind++) {
        int layer = 0;
        while (layer + 1 < config->layers && (config->window[layer] ? 0 : 1) != kind)
            layer++;
        const int64_t values = has_readers(config, kind) ? 2 * model_heads(config, layer).kv_wide * shape->unit_rows : 0;
        l->kv[kind] = take(&l->bytes, (uint64_t)values * dtype_bytes(shape->type));
        l->kv_gradient[kind] = take(&l->gradient_bytes, (uint64_t)values * sizeof(float));
    }
    const uint64_t inputs = (uint64_t)(config->layers * config->input_width * shape->unit_rows) * dtype_bytes(shape->type);
    l->inputs = take(&l->bytes, inputs);
    l->inputs_gradient = take(&l->gradient_bytes, inputs);
}

carried_use carried_use_of(const model *m, int block)
{
    const model_config *config = &m->config;
    const int layer = block - 1;
    const unsigned reads = config->input_width ? CARRIED_READ : 0, writes = config->input_width ? CARRIED_WRITE : 0;
    carried_use use = {0};
    if (m->blocks[block].kind == BLOCK_EMBEDDING)
        use.forward = writes;
    if (m->blocks[block].kind != BLOCK_LAYER)
        return use;
    use = (carried_use){layer ? reads : reads | writes, reads, reads | writes};
    if (model_reads_kv(config, layer)) {
        use.forward |= CARRIED_READ;
        use.backward |= CARRIED_READ;
        use.gradient |= CARRIED_READ | CARRIED_WRITE;
    } else if (model_kv_is_read(config, layer)) {
        use.forward |= CARRIED_WRITE;
        use.gradient |= CARRIED_READ;
    }
    return use;
}

bool carried_begins(const model *m, int block)
{
    for (int b = block + 1; b < m->blocks_n; b++)
        if (carried_use_of(m, b).gradient)
            return false;
    return true;
}

pt_dtype param_type(const param *p, pt_dtype type)
{
    switch (p->kind->use) {
    case USE_NORM: case USE_NORM_BIAS: case USE_MIXER: case USE_CONSTANT: case USE_CONV: case USE_MAGNITUDE: case USE_CORRECTION:
    case USE_SINK: return PT_F32;
    default: return type;
    }
}

static uint64_t max_u64(uint64_t a, uint64_t b) { return a > b ? a : b; }

void head_layout_init(head_layout *h, const model *m, const step_shape *shape)
{
    const model_config *config = &m->config;
    uint64_t at = 0, e = dtype_bytes(shape->type);
    h->normed = take(&at, (uint64_t)(shape->unit_rows * config->hidden) * e);
    h->dn = take(&at, (uint64_t)(shape->unit_rows * config->hidden) * e);
    h->dn32 = take(&at, (uint64_t)(shape->head_rows * config->hidden) * sizeof(float));
    h->ld = (int64_t)align_up((uint64_t)model_outputs(config), LINE / sizeof(float));
    h->logits = take(&at, (uint64_t)(shape->head_rows * h->ld) * sizeof(float));
    h->weights = take(&at, shape_compares(shape) ? (uint64_t)shape->unit_rows * sizeof(float) : 0);
    h->scratch = h->logits; /* the norm's backward runs when the logits are no longer needed */
    h->bytes = max_u64(at, align_up(h->scratch + norm_backward_scratch_bytes(shape->unit_rows, 1, config->hidden), LINE));
}

static bool accumulates_here(const model *m, int block, param_role role)
{
    const struct block *b = &m->blocks[block];
    return role != PARAM_LAYER_TOKENS && b->param_of_role[role] >= 0 && m->params[b->param_of_role[role]].trainable;
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

uint64_t accumulator_bytes(const model *m, const step_shape *shape, int block)
{
    return (uint64_t)accumulator_elements(m, block) * sizeof(float) * (uint64_t)lane_planes(shape_lanes(shape));
}

bool inputs_are_trained(const model *m)
{
    const param *p = block_param(m, &m->blocks[0], PARAM_LAYER_TOKENS);
    return p && p->trainable;
}

int64_t listed_rows_most(const model *m, const step_shape *shape)
{
    const int64_t tokens = shape->batch * shape->seq_len * shape_ranks(shape);
    return tokens < m->config.vocab ? tokens : m->config.vocab;
}

uint64_t embedding_sums_bytes(const model *m, const step_shape *shape)
{
    const int64_t inputs = inputs_are_trained(m) ? m->config.layers * m->config.input_width : 0, hidden = m->config.hidden;
    return (uint64_t)(shape->slice_rows * (inputs > hidden ? inputs : hidden)) * sizeof(float) * (uint64_t)lane_planes(shape_lanes(shape));
}

static int64_t sumsq_of(const param *p) { return (p->rows + SUMSQ_ROWS - 1) / SUMSQ_ROWS; }

int64_t sumsq_index(const model *m, int index)
{
    int64_t n = 0;
    for (int i = 0; i < index; i++)
        n += m->params[i].trainable ? sumsq_of(&m->params[i]) : 0;
    return n;
}

int64_t sumsq_count(const model *m) { return sumsq_index(m, m->params_n); }

int64_t routing_entries(const model *m, const step_shape *shape) { return m->config.experts * (shape->router_aux > 0 ? 3 : 1); }

int64_t routing_offset(const model *m, const step_shape *shape, int layer)
{
    int64_t sparse = 0;
    for (int i = 0; i < layer; i++)
        sparse += m->config.sparse[i];
    return sparse * routing_entries(m, shape);
}

uint64_t routing_bytes(const model *m, const step_shape *shape)
{
    return (uint64_t)(shape->units_n * routing_offset(m, shape, (int)m->config.layers)) * sizeof(int32_t);
}

step_shape shape_cut(const step_shape *shape, int64_t rows)
{
    step_shape c = *shape;
    c.parts = 0;
    if (rows >= shape->unit_rows)
        return c;
    c.unit_seqs = rows / shape->seq_len;
    if (c.unit_seqs < 1) {
        c.unit_seqs = 1;
        c.seq_len = rows < 1 ? 1 : rows;
    }
    c.unit_rows = c.unit_seqs * c.seq_len;
    c.head_rows = c.head_rows < c.unit_rows ? c.head_rows : c.unit_rows;
    return c;
}
