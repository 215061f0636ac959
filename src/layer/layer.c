/* layer.c - runs the stages of a decoder layer, forward and backward, in the order of its layout.
 *
 * If the stream is kept in fp32 (block.h), the ends of the branches add to it, and the layer's output is its rounding. Backward first
 * runs the forward stages again whose results it reads and which were not saved. This recomputation does not touch the stream, which
 * holds a gradient by then.
 */
#include "layer/work.h"

#include "model/adapter.h"

static layer_work work_open(const block_context *c, int block, const layer_layout *l, const block_weights *w, const block_unit *u,
                            char *saved, char *workspace)
{
    const model_config *m = &c->model->config;
    return (layer_work){.c = c, .config = m, .l = l, .w = w, .u = u, .saved = saved, .workspace = workspace, .block = block,
                        .layer = c->model->blocks[block].layer, .rows = c->shape->unit_rows, .hidden = m->hidden, .type = c->shape->type};
}

static void run_step(const layer_work *work, layer_step step)
{
    const layer_stage *s = &work->l->program.stage[step.stage];
    stage_type_of(s->kind)->pass[step.pass](work, s);
}

void layer_forward(const block_context *c, int block, const layer_layout *l, const block_weights *w, const block_unit *u,
                   char *saved, char *workspace, void *out)
{
    layer_work work = work_open(c, block, l, w, u, saved, workspace);
    work.at = l->forward_at;
    work.stream = u->stream;
    work.out = out;
    for (int i = 0; i < l->program.stages_n; i++)
        run_step(&work, (layer_step){PASS_FORWARD, i});
}

void layer_gains(const block_context *c, int block, const layer_layout *l, const block_weights *w, char *workspace)
{
    layer_work work = work_open(c, block, l, w, NULL, NULL, workspace);
    work.at = l->forward_at;
    for (int i = 0; i < l->program.stages_n; i++) {
        const layer_stage *s = &l->program.stage[i];
        if (s->kind == STAGE_GAIN)
            adapter_measure_gain(&work, s, w->gains[adapter_matrix(s->param[0])]);
    }
}

void layer_recompute(const block_context *c, int block, const layer_layout *l, const block_weights *w, const block_unit *u,
                     char *saved, char *workspace)
{
    layer_work work = work_open(c, block, l, w, u, saved, workspace);
    work.at = l->backward_at;
    for (int i = 0; i < l->again_n; i++)
        run_step(&work, l->backward[i]);
}

void layer_backward(const block_context *c, int block, const layer_layout *l, const block_weights *w, const block_unit *u,
                    char *saved, char *workspace, void *dx, float *accumulators, bool first)
{
    layer_work work = work_open(c, block, l, w, u, saved, workspace);
    work.at = l->backward_at;
    work.out = dx;
    work.accumulators = accumulators;
    work.first = first;
    for (int i = 0; i < l->backward_n; i++)
        run_step(&work, l->backward[i]);
}
