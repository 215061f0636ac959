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
        return pt_fail(e, PT_USAGE, "the dimension is %lld: 1 to %d are possible", (long long)n->dim, RITZ_WIDTH_MOST);
    if (n->width < 1 || n->width > RITZ_WIDTH_MOST)
        return pt_fail(e, PT_USAGE, "the width is %lld: 1 to %d are possible", (long long)n->width, RITZ_WIDTH_MOST);
    if (n->blocks < 1 || n->blocks > RITZ_BLOCKS_MOST)
        return pt_fail(e, PT_USAGE, "there are %d blocks: 1 to %d are possible", n->blocks, RITZ_BLOCKS_MOST);
    if (n->direct && n->plain)
        return pt_fail(e, PT_USAGE, "a plain network's first layer is its input layer: it cannot be left out");
    if (n->direct && n->width < n->dim)
        return pt_fail(e, PT_USAGE, "without an input layer the width is at least the dimension, %lld, and not %lld", (long long)n->dim,
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

void ritz_network_init(const ritz_network *n, uint64_t seed, void *out)
{
    for (int i = 0; i < n->stages_n; i++) {
        const ritz_stage *s = &n->stages[i];
        const double deviation = sqrt(2.0 / (double)(s->rows + s->cols));
        for (int64_t k = 0; k < s->rows * s->cols + s->rows; k++) {
            const bool bias = k >= s->rows * s->cols;
            const float w = bias ? 0 : (float)(deviation * rng_normal(seed, RNG_INIT, (uint32_t)i, (uint64_t)k));
            if (n->type == PT_F64)
                ((double *)out)[s->weight_at + k] = w;
            else
                ((float *)out)[s->weight_at + k] = w;
        }
    }
}

/* ---- layout ---- */

typedef struct cursor { uint64_t at, each; int64_t rows; } cursor; /* each: bytes of a value */

static uint64_t take_bytes(cursor *c, uint64_t bytes)
{
    const uint64_t at = c->at;
    c->at += (bytes + 63) / 64 * 64;
    return at;
}

static uint64_t take(cursor *c, int64_t rows_times, int64_t cols) { return take_bytes(c,
    (uint64_t)(rows_times * c->rows * cols) * c->each); }

/* What a group makes and nobody else reads. */
static void place_inside(ritz_layout *l, const ritz_network *n, int group, cursor *c)
{
    for (int s = n->group0[group]; s < n->group0[group + 1]; s++) {
        if (n->stages[s].activated) {
            l->z_at[s] = take(c, 1, n->stages[s].rows);
            l->dz_at[s] = take(c, 1, n->stages[s].rows);
        }
        if (s + 1 < n->group0[group + 1]) {
            l->tensor_at[s + 1] = take(c, 2, n->stages[s].rows);
            l->adjoint_at[s + 1] = take(c, 1, n->stages[s].rows);
        }
    }
}

static void place_between(ritz_layout *l, const ritz_network *n, cursor *c)
{
    l->tensor_at[0] = take(c, 2, n->input);
    l->adjoint_at[0] = take(c, 1, n->input);
    for (int g = 1; g < n->groups_n; g++) {
        const int s = n->group0[g];
        l->tensor_at[s] = take(c, 2, n->stages[s].cols);
        l->adjoint_at[s] = take(c, 1, n->stages[s].cols);
    }
    l->tensor_at[n->stages_n] = take(c, 1, 1);
}

void ritz_layout_init(ritz_layout *l, const ritz_network *n, int64_t rows, int again)
{
    cursor c = {0, dtype_bytes(n->type), rows};
    const int64_t widest = n->width > n->input ? n->width : n->input;
    *l = (ritz_layout){.rows = rows, .again = again < n->groups_n ? again : n->groups_n};
    place_between(l, n, &c);
    l->pair_at = take(&c, 2, widest);
    l->seed_at = take(&c, 2, 1);
    l->outer_at = take(&c, 1, widest);
    l->inner_at = take(&c, 1, widest);
    l->terms_at = take_bytes(&c, (uint64_t)rows * QUADRATIC_TERMS * sizeof(double));
    l->value_at = take_bytes(&c, (uint64_t)rows * sizeof(double));
    const uint64_t shared = c.at;
    uint64_t end = shared;
    for (int g = 0; g < l->again; g++) { /* they take turns in one place */
        c.at = shared;
        place_inside(l, n, g, &c);
        end = c.at > end ? c.at : end;
    }
    c.at = end;
    for (int g = l->again; g < n->groups_n; g++)
        place_inside(l, n, g, &c);
    l->bytes = (c.at + 4095) / 4096 * 4096;
}
