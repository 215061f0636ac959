/* layer.c - runs the stages of a decoder layer, forward and backward, in the order of its layout.
 *
 * If the stream is kept in fp32 (block.h), the ends of the branches add to it, and the layer's output is its rounding. Backward first
 * runs the forward stages again whose results it reads and which were not saved. This recomputation does not touch the stream, which
 * holds a gradient by then.
 */
#include "layer/sequence.h"
#include "layer/tiles.h"
#include "layer/work.h"

#include "model/adapter.h"

static layer_work work_open(const block_context *ctx, int block, const layer_layout *layout, const block_weights *w, const block_unit *u,
                            char *saved, char *workspace)
{
    const model_config *m = &ctx->model->config;
    carried_layout carried;
    carried_layout_init(&carried, ctx->model, ctx->shape);
    return (layer_work){.c = ctx, .config = m, .l = layout, .w = w, .u = u, .saved = saved, .workspace = workspace, .block = block,
                        .layer = ctx->model->blocks[block].layer, .groups = 1, .rows = ctx->shape->unit_rows,
                        .hidden = m->hidden, .type = ctx->shape->type, .carried = carried};
}

static void run_step(const layer_work *work, layer_step step)
{
    layer_work of = *work;
    of.pass = step.pass;
    if (step_is_of_tensor(step)) {
        if (step.pass != PASS_KEEP || !work->u->no_backward)
            kept_run(&of, step.stage);
        return;
    }
    const layer_stage *stage = &work->l->program.stage[step.stage];
    stage_type_of(stage->kind)->pass[step.pass](&of, stage);
}

/* The inputs of a unit from a row on, as far as stages that work row by row read them. */
static block_unit unit_from(const layer_work *work, int64_t row)
{
    block_unit u = *work->u;
    u.positions += row;
    u.row += row;
    u.stream = u.stream ? u.stream + row * work->hidden : NULL;
    return u;
}

/* Runs the steps for one tile of rows after the other. */
static void run_tiles(const layer_work *whole, const layer_step *steps, int n)
{
    const int64_t tile = whole->c->shape->tile_rows;
    for (int64_t row = 0; row < whole->rows; row += tile) {
        const block_unit u = unit_from(whole, row);
        layer_work work = *whole;
        work.u = &u;
        work.row = row;
        work.rows = whole->rows - row < tile ? whole->rows - row : tile;
        work.out = whole->out ? column(whole->out, row * whole->hidden, whole->type) : NULL;
        work.stream = whole->stream ? whole->stream + row * whole->hidden : NULL;
        work.first = whole->first && !row;
        work.first_of_group = whole->first_of_group && !row;
        for (int i = 0; i < n; i++)
            run_step(&work, steps[i]);
    }
}

static void run_in_tiles(const layer_work *work, const layer_tiles *t, const layer_step *steps, int begin, int n)
{
    for (int i = begin, end; i < n; i = end) {
        end = layer_run_end(t, n, i);
        if (t->step[i])
            run_tiles(work, steps + i, end - i);
        else
            run_step(work, steps[i]);
    }
}

/* Neighbouring steps of groups together, for one group after the other. */
static void run_steps(const layer_work *work, const layer_tiles *t, const layer_step *steps, int begin, int n)
{
    for (int i = begin, end; i < n; i = end) {
        layer_work part = *work;
        end = layer_groups_end(t, n, i);
        part.groups = t->group[i] ? work->l->groups : 1;
        part.first_of_group = work->first;
        for (part.group = 0; part.group < part.groups; part.group++) {
            part.first = work->first && !part.group;
            run_in_tiles(&part, t, steps, i, end);
        }
    }
}

/* Of a layer whose sequences are divided, rows are exchanged for heads around the steps. */
static void run_part(const layer_work *work, const layer_tiles *t, const layer_step *steps, const layer_part *part)
{
    if (part->kind == PART_ATTEND) {
        sequence_attend(work, part);
        return;
    }
    if (part->takes)
        sequence_take(work, part);
    run_steps(work, t, steps, part->first, part->end);
    if (part->gives)
        sequence_give(work, part);
}

void layer_forward_part(const block_context *ctx, int block, const layer_layout *layout, const layer_part *part, const block_weights *w,
                        const block_unit *u, char *saved, char *workspace, void *out)
{
    layer_work work = work_open(ctx, block, layout, w, u, saved, workspace);
    work.expert0 = part->expert0;
    work.experts = part->experts;
    work.at = layout->forward_at;
    work.tiled = layout->forward_tiles.region;
    work.stream = u->stream;
    work.out = out;
    run_part(&work, &layout->forward_tiles, layout->forward, part);
}

void layer_forward(const block_context *ctx, int block, const layer_layout *layout, const block_weights *w, const block_unit *u,
                   char *saved, char *workspace, void *out)
{
    const layer_part whole = {.end = layout->forward_n, .matrix = PARAM_NONE};
    layer_forward_part(ctx, block, layout, &whole, w, u, saved, workspace, out);
}

void layer_gains(const block_context *ctx, int block, const layer_layout *layout, const block_weights *w, char *workspace)
{
    layer_work work = work_open(ctx, block, layout, w, NULL, NULL, workspace);
    work.at = layout->forward_at;
    work.tiled = layout->forward_tiles.region;
    for (int i = 0; i < layout->program.stages_n; i++) {
        const layer_stage *stage = &layout->program.stage[i];
        if (stage->kind == STAGE_GAIN)
            adapter_measure_gain(&work, stage, w->gains[adapter_matrix(stage->param[0])]);
    }
}

void layer_recompute(const block_context *ctx, int block, const layer_layout *layout, const block_weights *w, const block_unit *u,
                     char *saved, char *workspace)
{
    layer_work work = work_open(ctx, block, layout, w, u, saved, workspace);
    work.at = layout->backward_at;
    work.tiled = layout->backward_tiles.region;
    run_steps(&work, &layout->backward_tiles, layout->backward, 0, layout->again_n);
}

void layer_backward_part(const block_context *ctx, int block, const layer_layout *layout, const layer_part *part, const block_weights *w,
                         const block_unit *u, char *saved, char *workspace, void *dx, float *accumulators, bool first,
                         bool summed[PARAM_ROLES])
{
    layer_work work = work_open(ctx, block, layout, w, u, saved, workspace);
    work.expert0 = part->expert0;
    work.experts = part->experts;
    work.at = layout->backward_at;
    work.tiled = layout->backward_tiles.region;
    work.out = dx;
    work.accumulators = accumulators;
    work.summed = summed;
    work.first = first;
    run_part(&work, &layout->backward_tiles, layout->backward, part);
}

void layer_backward(const block_context *ctx, int block, const layer_layout *layout, const block_weights *w, const block_unit *u,
                    char *saved, char *workspace, void *dx, float *accumulators, bool first)
{
    const layer_part whole = {.end = layout->backward_n, .matrix = PARAM_NONE};
    layer_backward_part(ctx, block, layout, &whole, w, u, saved, workspace, dx, accumulators, first, NULL);
}
