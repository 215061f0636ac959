/* inference_load.c - weights on their way into an inference: those that stay, the table on the host, layers that are fetched. */
#include "infer/inference_parts.h"
#include "infer/load.h"
#include "model/adapter.h"

#include <stdlib.h>

block_weights inference_enter_block(inference *infer, int b)
{
    block_weights w = infer->weights[b];
    if (!inference_is_streamed(infer->model, infer->streamed_n, b))
        return w;
    const uint64_t *at;
    char *base = stream_next(infer->streamed, infer->queue, b - 1);
    stream_image(infer->streamed, b - 1, &at);
    for (int role = 0; role < PARAM_ROLES; role++) {
        const int index = infer->model->blocks[b].param_of_role[role];
        w.param[role] = index < 0 ? NULL : base + at[index];
    }
    return w;
}

void inference_leave_block(inference *infer, int b)
{
    if (inference_is_streamed(infer->model, infer->streamed_n, b))
        stream_done(infer->streamed, infer->queue);
}

/* Once, because the weights do not change: computing the gains takes as long as reading the weights. */
static int measure_gains(inference *infer, pt_error *e)
{
    const block_context ctx = {infer->model, &infer->shape, infer->queue};
    for (int b = 1; b < infer->model->blocks_n - 1 && model_has_magnitudes(infer->model); b++) {
        const block_weights w = inference_enter_block(infer, b);
        layer_gains(&ctx, b, layer_set_layout(&infer->layers, b - 1, SAVE_INPUT), &w, infer->arena + infer->layout.workspace);
        inference_leave_block(infer, b);
    }
    const int failed = queue_sync(infer->queue, queue_signal(infer->queue), e);
    return failed || !infer->streamed ? failed : stream_check(infer->streamed, e);
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
static int load_table(inference *infer, load_job job, passed *p, pt_error *e)
{
    bool *wanted = calloc((size_t)infer->model->params_n, sizeof *wanted);
    if (!wanted)
        return pt_fail(e, PT_FAILED, "out of memory while loading the weights");
    const int index = (int)(host_table(infer->model, infer->device) - infer->model->params);
    wanted[index] = true;
    job.wanted = wanted;
    job.base = infer->table;
    p->before = p->last;
    const int failed = load_weights(&job, e);
    free(wanted);
    return failed;
}

/* Loads the layers that do not stay, one after the other. */
static int load_streamed(inference *infer, load_job job, passed *p, pt_error *e)
{
    bool *wanted = calloc((size_t)infer->model->params_n, sizeof *wanted);
    int failed = wanted ? 0 : pt_fail(e, PT_FAILED, "out of memory while loading the weights");
    job.device = infer->host;
    job.wanted = wanted;
    for (int b = 1; b < infer->model->blocks_n - 1 && !failed; b++) {
        if (!inference_is_streamed(infer->model, infer->streamed_n, b))
            continue;
        p->before = p->last;
        inference_want_block(infer->model, b, true, wanted);
        job.base = stream_image(infer->streamed, b - 1, &job.param_at);
        failed = load_weights(&job, e);
        if (!failed)
            failed = stream_store(infer->streamed, b - 1, e);
        inference_want_block(infer->model, b, false, wanted);
    }
    free(wanted);
    return failed;
}

int inference_load(inference *infer, const struct safetensors *st, const struct safetensors *adapter, uint64_t seed,
                   void (*progress)(void *arg, uint64_t done, uint64_t total), void *arg, pt_error *e)
{
    passed p = {.progress = progress, .arg = arg, .total = inference_params_bytes(infer->model, infer->shape.type)};
    const load_job job = {.model = infer->model,
                          .st = st,
                          .adapter = adapter,
                          .seed = seed,
                          .type = infer->shape.type,
                          .device = infer->device,
                          .threads = infer->threads,
                          .base = infer->arena,
                          .param_at = infer->param_at,
                          .wanted = infer->stays,
                          .progress = progress ? pass : NULL,
                          .arg = &p};
    int failed = load_weights(&job, e);
    if (!failed && infer->table)
        failed = load_table(infer, job, &p, e);
    if (!failed && infer->streamed)
        failed = load_streamed(infer, job, &p, e);
    return failed ? failed : measure_gains(infer, e);
}

int inference_fetch_s(inference *infer, double *seconds, pt_error *e)
{
    *seconds = 0;
    return infer->streamed ? stream_measure(infer->streamed, infer->queue, seconds, e) : 0;
}
