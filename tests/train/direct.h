/* direct.h - a fixture on the executor itself, without trainer and data: batches come from the reference, updates run at the end of
 * each step, and the gradients can be looked at before that. Include after fixture.h. */
#ifndef PT_TEST_DIRECT_H
#define PT_TEST_DIRECT_H

#include "plan/plan.h"
#include "test_device.h"
#include "run/executor.h"
#include "run/state.h"

typedef struct direct {
    const fixture *f;
    step_shape shape;
    packing packing;
    plan plan;
    schedule_input input;
    device *device, *host;
    executor *x;
} direct;

enum { DIRECT_TILE = 5 }; /* rows of a tile beside groups of heads */

/* All on the device; layers save as said. groups: attention by groups of heads, in tiles of few rows. saved: what backward reads. `d` must
 * not move. */
static inline void direct_open_with(direct *d, const fixture *f, pt_dtype type, save_level level, int64_t batch, int64_t seq_len,
                                    bool groups, saved_form saved)
{
    pt_error e = {0};
    memset(d, 0, sizeof *d);
    d->f = f;
    step_shape_init(&d->shape, f->model, type, batch, seq_len);
    if (strcmp(test_device_name(), "cpu"))
        step_shape_for_gpu(&d->shape, f->model);
    d->shape.whole_heads = groups ? 0 : d->shape.whole_heads;
    d->shape.tile_rows = groups ? DIRECT_TILE : d->shape.tile_rows;
    d->shape.saved = saved;
    d->shape.router_aux = (float)fixture_router_aux(f);
    must(pack(f->model, &d->shape, 1 << 20, &d->packing, &e), &e);
    must(plan_alloc(&d->plan, d->packing.chunks_n, (int)f->model->config.layers, &e), &e);
    d->plan.chunk_bytes = 1 << 20;
    d->plan.n_buffer = d->plan.n_update = d->plan.n_swap = 4;
    d->plan.micro_batch = d->shape.unit_seqs;
    d->plan.visit = 1;
    d->plan.update = UPDATE_END;
    for (int i = 0; i < d->plan.blocks_n; i++)
        d->plan.blocks[i].level = i < model_passing_layers(f->model) ? SAVE_INPUT : level;
    must(test_device_named(test_device_name(), 2, &d->device, &d->host, &e), &e);
    bool host_tier = !d->device->info.host_addressable;
    d->input = (schedule_input){.model = f->model, .shape = &d->shape, .packing = &d->packing, .plan = &d->plan, .training = true,
                                .host_tier = host_tier};
    executor_options o = {.device = d->device, .host = d->host, .input = d->input, .threads = 2,
                          .schedules = 1u << SCHEDULE_STEP | 1u << SCHEDULE_DRAIN | 1u << SCHEDULE_EVAL,
                          .budget = {1u << 30, host_tier ? 1u << 30 : 0, 0}};
    must(executor_open(&o, &d->x, &e), &e);
    state s;
    state_open(&s, d->x);
    must(f->model->adapters ? state_load_adapted(&s, f->weights, NULL, 0, &e) : state_load(&s, f->weights, &e), &e);
    must(state_close(&s, &e), &e);
}

static inline void direct_open(direct *d, const fixture *f, pt_dtype type, save_level level)
{
    direct_open_with(d, f, type, level, (int64_t)fixture_setting(f, "batch_size"), (int64_t)fixture_setting(f, "seq_len"), false,
                     SAVED_EXACT);
}

static inline void direct_close(direct *d)
{
    executor_close(d->x);
    device_close(d->device, d->host);
    plan_free(&d->plan);
    packing_free(&d->packing);
}

static inline void direct_ids(const direct *d, const char *name, int step, int32_t *out)
{
    pt_error e = {0};
    const safetensors_tensor *t = safetensors_find(d->f->reference, name);
    uint64_t bytes = (uint64_t)(d->shape.batch * d->shape.seq_len) * sizeof *out;
    assert_true(t && t->bytes >= (uint64_t)(step + 1) * bytes);
    must(safetensors_read(d->f->reference, t, (uint64_t)step * bytes, bytes, out, &e), &e);
}

typedef struct step_result { double loss, norm; } step_result;

/* Forward and backward of step `step` (from 0). */
static inline step_result direct_step(direct *d, int step)
{
    pt_error e = {0};
    executor_batch b = executor_input(d->x);
    int64_t tokens = d->shape.batch * d->shape.seq_len, targets = 0;
    double loss = 0, norm = 0;
    direct_ids(d, "inputs", step, b.ids);
    direct_ids(d, "targets", step, b.targets);
    for (int64_t i = 0; i < tokens; i++)
        targets += b.targets[i] >= 0;
    must(executor_run(d->x, SCHEDULE_STEP, (float)(1.0 / (double)targets), NULL, &e), &e);
    for (int64_t i = 0; i < tokens; i++)
        loss += (double)executor_losses(d->x)[i];
    for (int64_t i = 0; i < sumsq_count(d->f->model); i++)
        norm += executor_sumsq(d->x)[i];
    return (step_result){loss / (double)targets, sqrt(norm)};
}

/* The update of step `step`, whose gradient has this norm. */
static inline void direct_update(direct *d, int step, double norm)
{
    pt_error e = {0};
    const fixture *f = d->f;
    double clip = fixture_setting(f, "max_grad_norm") / (norm + 1e-6);
    update_params u = {.lr = (float)fixture_of_step(f, "learning_rate", step), .beta1 = (float)fixture_setting(f, "beta1"),
                       .beta2 = (float)fixture_setting(f, "beta2"), .eps = (float)fixture_setting(f, "eps"),
                       .weight_decay = (float)fixture_setting(f, "weight_decay"), .step = step + 1,
                       .grad_scale = clip < 1 ? (float)clip : 1};
    must(executor_run(d->x, SCHEDULE_DRAIN, 0, &u, &e), &e);
}

/* A gradient that is a list of the rows of the step's tokens, by ascending numbers; of all other rows it is 0. */
static inline void direct_rows(const direct *d, const param *p, float *values)
{
    uint64_t unused, at = 0;
    const float *g = (const float *)executor_placement(d->x, OBJECT_ROWS_GRADIENT, -1, &unused);
    const int32_t *ids = executor_input(d->x).ids;
    pt_error e = {0};
    memset(values, 0, (size_t)(p->rows * p->cols) * sizeof *values);
    for (int64_t row = 0; row < p->rows; row++) {
        bool has = false;
        for (int64_t i = 0; i < d->shape.batch * d->shape.seq_len; i++)
            has = has || ids[i] == row;
        if (has)
            must(executor_move(d->x, values + row * p->cols, g + p->cols * (int64_t)at++, (size_t)p->cols * sizeof *values, &e), &e);
    }
}

/* Gradient of parameter `index` (fp32 runs), to be freed. */
static inline float *direct_gradient(void *arg, int index)
{
    const direct *d = arg;
    const param *p = &d->f->model->params[index];
    float *values = malloc((size_t)(p->rows * p->cols) * sizeof *values);
    assert_non_null(values);
    if (chunk_has_rows(&d->packing, d->packing.pieces[d->packing.piece_of_param[index]].chunk)) {
        direct_rows(d, p, values);
        return values;
    }
    for (int i = d->packing.piece_of_param[index]; i < d->packing.piece_of_param[index + 1]; i++) {
        const piece *q = &d->packing.pieces[i];
        uint64_t unused;
        const float *g = (const float *)executor_placement(d->x, OBJECT_GRADIENT, q->chunk, &unused);
        pt_error e = {0};
        must(executor_move(d->x, values + q->row0 * p->cols, g + q->offset, (size_t)(q->rows * p->cols) * sizeof *values, &e), &e);
    }
    return values;
}

static inline float *direct_parameter(void *arg, int index)
{
    direct *d = arg;
    pt_error e = {0};
    const param *p = &d->f->model->params[index];
    float *values = malloc((size_t)(p->rows * p->cols) * sizeof *values);
    state s;
    assert_non_null(values);
    state_open(&s, d->x);
    must(state_read(&s, STATE_MASTER, index, 0, p->rows * p->cols, values, &e), &e);
    must(state_close(&s, &e), &e);
    return values;
}

#endif
