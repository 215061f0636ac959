#include "ritz/network.h"

#include "base/rng.h"

#include <math.h>
#include <stdio.h>

static ritz_stage *add_stage(ritz_network *n, int64_t rows, int64_t cols, bool activated, int residual)
{
    ritz_stage *s = &n->stages[n->stages_n++];
    *s = (ritz_stage){.rows = rows, .cols = cols, .activated = activated, .residual = residual, .weight_at = n->params};
    s->bias_at = n->params + rows * cols;
    n->params = s->bias_at + rows;
    return s;
}

static void add_group(ritz_network *n) { n->group0[n->groups_n++] = n->stages_n; }

static void describe_residual(ritz_network *n)
{
    if (!n->direct) {
        add_group(n);
        snprintf(add_stage(n, n->width, n->dim, false, -1)->name, sizeof n->stages->name, "input");
    }
    for (int b = 0; b < n->blocks; b++) {
        const int from = n->stages_n;
        add_group(n);
        for (int k = 0; k < 2; k++)
            snprintf(add_stage(n, n->width, n->width, true, k ? from : -1)->name, sizeof n->stages->name, "blocks.%d.%d", b, k);
    }
}

static void describe_plain(ritz_network *n)
{
    for (int b = 0; b < n->blocks; b++) {
        add_group(n);
        snprintf(add_stage(n, n->width, b ? n->width : n->dim, true, -1)->name, sizeof n->stages->name, "layers.%d", b);
    }
}

static int check(const ritz_network *n, pt_error *e)
{
    if (n->dim < 1 || n->dim > RITZ_WIDTH_MOST)
        return pt_fail(e, PT_USAGE, "the dimension is %lld, but must be from 1 to %d", (long long)n->dim, RITZ_WIDTH_MOST);
    if (n->width < 1 || n->width > RITZ_WIDTH_MOST)
        return pt_fail(e, PT_USAGE, "`width` is %lld, but must be from 1 to %d", (long long)n->width, RITZ_WIDTH_MOST);
    if (n->blocks < 1 || n->blocks > RITZ_BLOCKS_MOST)
        return pt_fail(e, PT_USAGE, "`blocks` is %d, but must be from 1 to %d", n->blocks, RITZ_BLOCKS_MOST);
    if (n->direct && n->plain)
        return pt_fail(e, PT_USAGE, "`no_input_layer` does not work with a plain network, whose first layer is its input layer");
    if (n->direct && n->width < n->dim)
        return pt_fail(e, PT_USAGE, "`no_input_layer` needs a `width` of at least the dimension, %lld, but it is %lld", (long long)n->dim,
                       (long long)n->width);
    return 0;
}

int ritz_network_describe(ritz_network *n, pt_error *e)
{
    int failed = check(n, e);
    if (failed)
        return failed;
    n->stages_n = n->groups_n = 0;
    n->params = 0;
    n->input = n->direct ? n->width : n->dim;
    if (n->plain)
        describe_plain(n);
    else
        describe_residual(n);
    add_group(n);
    snprintf(add_stage(n, 1, n->width, false, -1)->name, sizeof n->stages->name, "output");
    n->group0[n->groups_n] = n->stages_n;
    return 0;
}

void ritz_network_init(const ritz_network *n, int stage, uint64_t seed, void *out)
{
    const ritz_stage *s = &n->stages[stage];
    const double deviation = sqrt(2.0 / (double)(s->rows + s->cols));
    for (int64_t k = 0; k < ritz_stage_values(s); k++) {
        const bool bias = k >= s->rows * s->cols;
        const float w = bias ? 0 : (float)(deviation * rng_normal(seed, RNG_INIT, (uint32_t)stage, (uint64_t)k));
        if (n->type == PT_F64)
            ((double *)out)[k] = w;
        else
            ((float *)out)[k] = w;
    }
}

/* ---- layout ---- */

typedef struct cursor { int set; uint64_t at, each; int64_t rows; } cursor; /* each: bytes per value */

static ritz_spot take_bytes(cursor *c, uint64_t bytes)
{
    const ritz_spot s = {c->set, c->at};
    c->at += (bytes + 63) / 64 * 64;
    return s;
}

static ritz_spot take(cursor *c, int64_t rows_times, int64_t cols)
{
    return take_bytes(c, (uint64_t)(rows_times * c->rows * cols) * c->each);
}

static uint64_t page(uint64_t bytes) { return (bytes + 4095) / 4096 * 4096; }

/* Blocks of rows: of T, of z, of p, of z' and of what goes down. */
typedef struct blocks { int64_t values, z, adjoint, dz, pair, down; } blocks;

/* Tensors of a group that only the group reads. */
static void place_inside(ritz_layout *l, const ritz_network *n, const blocks *b, int group, cursor *c)
{
    for (int s = n->group0[group]; s < n->group0[group + 1]; s++) {
        if (n->stages[s].activated) {
            l->z[s] = take(c, b->z, n->stages[s].rows);
            l->dz[s] = take(c, b->dz, n->stages[s].rows);
        }
        if (s + 1 < n->group0[group + 1]) {
            l->tensor[s + 1] = take(c, b->values, n->stages[s].rows);
            l->adjoint[s + 1] = take(c, b->adjoint, n->stages[s].rows);
        }
    }
}

static void place_own(ritz_layout *l, const ritz_network *n, const blocks *b, uint64_t each)
{
    cursor c = {RITZ_OWN, 0, each, l->rows};
    l->tensor[n->stages_n] = take(&c, b->down, 1);
    l->seed_at = take(&c, b->pair, 1).at;
    l->terms_at = take_bytes(&c, (uint64_t)l->rows * QUADRATIC_TERMS * sizeof(double)).at;
    l->ones_at = take(&c, 1, 1).at;
    l->value_at = take_bytes(&c, (uint64_t)l->rows * sizeof(double)).at;
    l->own_bytes = page(c.at);
}

static void place(ritz_layout *l, const ritz_network *n, int64_t rows, const bool *kept, const blocks *b)
{
    const uint64_t each = dtype_bytes(n->type);
    const int64_t widest = n->width > n->input ? n->width : n->input;
    *l = (ritz_layout){.rows = rows, .stream_bytes = page((uint64_t)(b->down * rows * widest) * each)};
    place_own(l, n, b, each);
    cursor work = {RITZ_WORK, 0, each, rows};
    l->pair_at = take(&work, b->pair, widest).at;
    l->inner_at = take(&work, b->down, widest).at;
    l->work_bytes = work.at;
    for (int g = 0; g < n->groups_n; g++) {
        const int s = n->group0[g];
        cursor c = {g, 0, each, rows}, inside = work;
        l->kept[g] = kept && kept[g];
        l->tensor[s] = take(&c, b->values, n->stages[s].cols);
        l->adjoint[s] = take(&c, b->adjoint, n->stages[s].cols);
        place_inside(l, n, b, g, l->kept[g] ? &c : &inside);
        l->set_bytes[g] = page(c.at);
        l->work_bytes = inside.at > l->work_bytes ? inside.at : l->work_bytes;
    }
    l->work_bytes = page(l->work_bytes);
}

void ritz_layout_init(ritz_layout *l, const ritz_network *n, int64_t rows, const bool *kept)
{
    place(l, n, rows, kept, &(blocks){.values = 2, .z = 1, .adjoint = 1, .dz = 1, .pair = 2, .down = 1});
}

void ritz_layout_jets(ritz_layout *l, const ritz_network *n, int64_t rows, const bool *kept)
{
    place(l, n, rows, kept, &(blocks){.values = n->jets, .z = n->jets, .pair = n->jets, .down = n->jets});
}
