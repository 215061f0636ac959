/* inference_load.c - weights on their way into an inference: those that stay, the table on the host, layers that are fetched. */
#include "infer/inference_parts.h"
#include "infer/load.h"
#include "model/adapter.h"

#include <stdlib.h>

block_weights inference_enter_block(inference *x, int b)
{
    block_weights w = x->weights[b];
    if (!inference_is_streamed(x->model, x->streamed_n, b))
        return w;
    const uint64_t *at;
    char *base = stream_next(x->streamed, x->queue, b - 1);
    stream_image(x->streamed, b - 1, &at);
    for (int role = 0; role < PARAM_ROLES; role++) {
        const int index = x->model->blocks[b].param_of_role[role];
        w.param[role] = index < 0 ? NULL : base + at[index];
    }
    return w;
}

void inference_leave_block(inference *x, int b)
{
    if (inference_is_streamed(x->model, x->streamed_n, b))
        stream_done(x->streamed, x->queue);
}

/* Once, because the weights do not change: computing the gains takes as long as reading the weights. */
static int measure_gains(inference *x, pt_error *e)
{
    const block_context c = {x->model, &x->shape, x->queue};
    for (int b = 1; b < x->model->blocks_n - 1 && model_has_magnitudes(x->model); b++) {
        const block_weights w = inference_enter_block(x, b);
        layer_gains(&c, b, layer_set_layout(&x->layers, b - 1, SAVE_INPUT), &w, x->arena + x->layout.workspace);
        inference_leave_block(x, b);
    }
    const int failed = queue_sync(x->queue, queue_signal(x->queue), e);
    return failed || !x->streamed ? failed : stream_check(x->streamed, e);
}

/* Progress over all parts of the loading. */
typedef struct passed {
    void (*progress)(void *arg, uint64_t done, uint64_t total);
    void *arg;
    uint64_t total, before, last;
} passed;

static void pass(void *arg, uint64_t done, uint64_t total)
{
    (void)total;
    passed *p = arg;
    p->last = p->before + done;
    p->progress(p->arg, p->last, p->total);
}

/* Loads the table that is kept in host memory. */
static int load_table(inference *x, load_job job, passed *p, pt_error *e)
{
    bool *wanted = calloc((size_t)x->model->params_n, sizeof *wanted);
    if (!wanted)
        return pt_fail(e, PT_FAILED, "out of memory while loading the weights");
    const int index = (int)(host_table(x->model, x->device) - x->model->params);
    wanted[index] = true;
    job.wanted = wanted;
    job.base = x->table;
    p->before = p->last;
    const int failed = load_weights(&job, e);
    free(wanted);
    return failed;
}

/* Loads the layers that do not stay, one after the other. */
static int load_streamed(inference *x, load_job job, passed *p, pt_error *e)
{
    bool *wanted = calloc((size_t)x->model->params_n, sizeof *wanted);
    int failed = wanted ? 0 : pt_fail(e, PT_FAILED, "out of memory while loading the weights");
    job.device = x->host;
    job.wanted = wanted;
    for (int b = 1; b < x->model->blocks_n - 1 && !failed; b++) {
        if (!inference_is_streamed(x->model, x->streamed_n, b))
            continue;
        p->before = p->last;
        inference_want_block(x->model, b, true, wanted);
        job.base = stream_image(x->streamed, b - 1, &job.param_at);
        failed = load_weights(&job, e);
        if (!failed)
            failed = stream_store(x->streamed, b - 1, e);
        inference_want_block(x->model, b, false, wanted);
    }
    free(wanted);
    return failed;
}

int inference_load(inference *x, const struct safetensors *st, const struct safetensors *adapter, uint64_t seed,
                   void (*progress)(void *arg, uint64_t done, uint64_t total), void *arg, pt_error *e)
{
    passed p = {.progress = progress, .arg = arg, .total = inference_params_bytes(x->model, x->shape.type)};
    const load_job job = {.model = x->model, .st = st, .adapter = adapter, .seed = seed, .type = x->shape.type, .device = x->device,
                          .threads = x->threads, .base = x->arena, .param_at = x->param_at, .wanted = x->stays,
                          .progress = progress ? pass : NULL, .arg = &p};
    int failed = load_weights(&job, e);
    if (!failed && x->table)
        failed = load_table(x, job, &p, e);
    if (!failed && x->streamed)
        failed = load_streamed(x, job, &p, e);
    return failed ? failed : measure_gains(x, e);
}

int inference_fetch_s(inference *x, double *seconds, pt_error *e)
{
    *seconds = 0;
    return x->streamed ? stream_measure(x->streamed, x->queue, seconds, e) : 0;
}
