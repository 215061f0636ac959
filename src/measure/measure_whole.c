/* measure_whole.c - the time of updates that need whole matrices (optimizer/optimizer.h), by FLOPs. The matrices of one layer are measured.
 * If one takes too long or does not fit, its sides are halved; beyond the last point the curve is extrapolated linearly. */
#include "measure/measure_parts.h"

#include <stdlib.h>

typedef struct whole {
    const step_shape *shape;
    param param;
    param_part parts[MODEL_MAX_PARTS];
    const update_rule *rule;
    optimizer_args args;
    update update; /* addresses and sizes; whole_run sets the rest */
} whole;

static void whole_layout(area *a, void *arg)
{
    whole *y = arg;
    const pt_dtype type = param_type(&y->param, y->shape->type);
    const uint64_t n = (uint64_t)(y->param.rows * y->param.cols), bytes = n * dtype_bytes(type);
    y->update = (update){.type = type, .n = (int64_t)n};
    y->update.hi = area_take(a, bytes, PATTERN_WEIGHTS);
    y->update.lo = type == PT_BF16 ? area_take(a, n * sizeof(uint16_t), PATTERN_VALUES) : NULL;
    y->update.g = area_take(a, bytes, PATTERN_GRADIENTS);
    for (int i = 0; i < rule_slabs(y->rule); i++) {
        const slab *slab = &y->rule->slabs[i];
        y->update.slab[i] = area_take(a, (uint64_t)slab_of_param(slab, &y->param) * dtype_bytes(slab->type), PATTERN_SMALL);
    }
    y->update.workspace = area_take(a, rule_workspace(y->rule, &y->param), PATTERN_NONE);
}

static void whole_run(queue *q, void *arg, int index, int turn)
{
    whole *y = arg;
    /* Most steps are not those in which something is found anew. */
    const update_params params = {.lr = 1e-10f, .step = 2, .grad_scale = 1, .momentum = MUON_MOMENTUM, .args = y->args};
    update u = y->update;
    u.params = &params;
    u.param = &y->param;
    y->rule->submit(q, &u);
}

static void halve(whole *y)
{
    param *p = &y->param;
    p->rows = 0;
    p->cols = (p->cols + 1) / 2;
    for (int k = 0; k < p->parts; k++) {
        y->parts[k].row0 = p->rows;
        y->parts[k].rows = (y->parts[k].rows + 1) / 2;
        p->rows += y->parts[k].rows;
    }
}

/* Of a layer's experts, the matrices of some suffice. */
static void copy_parts(whole *y)
{
    param *p = &y->param;
    p->parts = p->parts < MODEL_MAX_PARTS ? p->parts : MODEL_MAX_PARTS;
    p->rows = 0;
    for (int k = 0; k < p->parts; k++) {
        y->parts[k] = p->part[k];
        p->rows += y->parts[k].rows;
    }
    p->part = y->parts;
}

static bool is_small(const param *p) { return p->rows < 2 * p->parts && p->cols < 2; }

static void fit(bench *b, tier t, double most_flops, whole *y)
{
    while (!is_small(&y->param) && (y->rule->flops(&y->param) > most_flops || area_bytes(b, whole_layout, y) > b->r->budget[t]))
        halve(y);
}

static int by_flops(const void *x, const void *y)
{
    const whole *a = x, *b = y;
    const double from = a->rule->flops(&a->param), to = b->rule->flops(&b->param);
    return from < to ? -1 : from > to;
}

/* The parameters of the first layer, trained or not; other layers have the same sizes. */
static int find_params(bench *b, tier t, double most_flops, whole out[PARAM_ROLES])
{
    const model *m = b->r->model;
    optimizer_args args;
    pt_error unused = {0};
    int n = 0;
    optimizer_args_parse(shape_optimizer(b->r->shape), NULL, &args, &unused); /* the defaults: they change no time */
    for (int i = 0; i < m->params_n; i++) {
        const update_rule *r = shape_optimizer(b->r->shape)->rule_of(&m->params[i]);
        if (m->params[i].block != 1 || !r->flops)
            continue;
        out[n] = (whole){.shape = b->r->shape, .param = m->params[i], .rule = r, .args = args};
        copy_parts(&out[n]);
        fit(b, t, most_flops, &out[n++]);
    }
    qsort(out, (size_t)n, sizeof *out, by_flops);
    for (int i = 0; i < n; i++)
        out[i].param.part = out[i].parts;
    return n;
}

static int measure_on(bench *b, tier t, queue *q, double flops_per_ns, double seconds, cost_curve *out, pt_error *e)
{
    whole all[PARAM_ROLES];
    const int n = find_params(b, t, flops_per_ns * seconds * 1e9, all);
    int failed = 0;
    out->n = 0;
    for (int i = 0; i < n && !failed; i++) {
        area a;
        samples s = {0};
        failed = area_open(b, t, &a, "the optimizer", whole_layout, &all[i], e);
        if (failed)
            break;
        failed = measure_stage(q, whole_run, &all[i], 0, seconds, &s, e);
        area_close(&a);
        curve_add(out, all[i].rule->flops(&all[i].param), samples_median(&s));
    }
    return failed;
}

int measure_whole(bench *b, double flops_per_ns, double seconds, costs *costs, pt_error *e)
{
    queue *q;
    int failed = measure_on(b, TIER_DEVICE, b->compute, flops_per_ns, seconds, &costs->whole_device, e);
    costs->whole_host.n = 0;
    if (failed || !b->r->host_tier || device_is_gpu(b->r->device) || !costs->whole_device.n)
        return failed;
    failed = open_host_queue(b, &q, e);
    if (failed)
        return failed;
    failed = measure_on(b, TIER_HOST, q, flops_per_ns / b->compute->threads, seconds, &costs->whole_host, e);
    b->r->host->table->queue_close(q);
    return failed;
}
