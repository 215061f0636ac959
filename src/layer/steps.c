/* steps.c - from a layer's program: the steps of forward and backward, and what is saved. */
#include "layer/steps.h"

#include "layer/groups.h"
#include "layer/stage.h"
#include "layer/tiles.h"

#include <string.h>

static const stage_type *type_of(const layer_program *program, int stage) { return stage_type_of(program->stage[stage].kind); }

bool layer_is_rewritten(const layer_program *program, int tensor)
{
    for (int i = 0; i < program->stages_n; i++)
        if (program->stage[i].out[0] == tensor)
            return type_of(program, i)->rewrites;
    return false;
}

/* Where the gradient of a tensor lies; LAYER_NONE: in the caller's memory. */
static int gradient_region(const layer_program *program, int tensor)
{
    const layer_tensor *t = &program->tensor[tensor];
    return t->residual || t->carried ? LAYER_NONE : REGION_GRADIENT + (t->gradient_in == LAYER_NONE ? tensor : t->gradient_in);
}

typedef struct region_list { int *of, n; } region_list;

static void touch(region_list *l, int region)
{
    for (int i = 0; i < l->n; i++)
        if (l->of[i] == region)
            return;
    if (region != LAYER_NONE)
        l->of[l->n++] = region;
}

static void touch_tensor(region_list *l, const layer_program *program, int tensor, bool itself, bool gradient)
{
    if (tensor == LAYER_NONE || program->tensor[tensor].carried)
        return;
    if (itself)
        touch(l, REGION_TENSOR + tensor);
    if (gradient)
        touch(l, gradient_region(program, tensor));
}

int layer_step_regions(const layer_program *program, layer_step step, int regions[LAYER_STEP_REGIONS])
{
    region_list l = {regions, 0};
    if (step_is_of_tensor(step)) {
        touch(&l, REGION_TENSOR + step.stage);
        return l.n;
    }
    const layer_stage *stage = &program->stage[step.stage];
    const unsigned what = stage_type_of(stage->kind)->touches(stage, step.pass);
    for (int k = 0; k < STAGE_INPUTS; k++)
        touch_tensor(&l, program, stage->in[k], what & TOUCH_IN(k), what & TOUCH_IN_GRADIENT(k));
    for (int k = 0; k < STAGE_OUTPUTS; k++)
        touch_tensor(&l, program, stage->out[k], what & TOUCH_OUT(k), what & TOUCH_OUT_GRADIENT(k));
    if (what & TOUCH_OPERAND)
        touch(&l, layer_is_rewritten(program, stage->in[0]) ? gradient_region(program, stage->in[0]) : REGION_TENSOR + stage->in[0]);
    for (int k = 0; k < STAGE_SCRATCH; k++)
        if (what & TOUCH_SCRATCH(k))
            touch(&l, REGION_SCRATCH + step.stage * STAGE_SCRATCH + k);
    return l.n;
}

static void add_step(layer_layout *layout, step_pass pass, int stage)
{
    layout->backward[layout->backward_n++] = (layer_step){pass, stage};
}

static bool has_step(const layer_layout *layout, step_pass pass, int of)
{
    for (int i = 0; i < layout->backward_n; i++)
        if (layout->backward[i].pass == pass && layout->backward[i].stage == of)
            return true;
    return false;
}

/* A step of the gradients; before the first one that reads a tensor rounded to codes, the step that makes the rounding. */
static void add_gradient_step(layer_layout *layout, step_pass pass, int stage)
{
    int regions[LAYER_STEP_REGIONS], n = layer_step_regions(&layout->program, (layer_step){pass, stage}, regions);
    for (int k = 0; k < n; k++) {
        const int t = regions[k];
        if (t < LAYER_TENSORS && layout->rounded[t] && !has_step(layout, PASS_READ, t) && !has_step(layout, PASS_ROUND, t))
            add_step(layout, layout->saved[t] ? PASS_READ : PASS_ROUND, t);
    }
    add_step(layout, pass, stage);
}

/* The stages that run for each group of heads; false: none do. */
static bool group_stages(const layer_layout *layout, int *first, int *attention)
{
    *first = *attention = 0;
    for (int i = 0; i < layout->program.stages_n && layout->groups > 1; i++)
        if (layout->program.stage[i].kind == STAGE_ATTENTION) {
            *first = layer_first_of_group(&layout->program, i);
            *attention = i;
        }
    return layout->groups > 1;
}

/* The weights of stages whose input was just written again. */
static void add_waiting(layer_layout *layout, bool waits[LAYER_STAGES], int written)
{
    for (int i = layout->program.stages_n - 1; i >= 0; i--)
        if (waits[i] && layout->program.stage[i].in[0] == written) {
            add_gradient_step(layout, PASS_WEIGHTS, i);
            waits[i] = false;
        }
}

/* The stages in reverse; before attention's backward of a group, what it reads is made again. If the backward of the stage before one with
 * weights writes that one's input again, the gradients of its weights come after it. */
static void add_reversed(layer_layout *layout)
{
    bool waits[LAYER_STAGES] = {false};
    int first, attention;
    const bool grouped = group_stages(layout, &first, &attention);
    for (int i = layout->program.stages_n - 1; i >= 0; i--) {
        const layer_stage *stage = &layout->program.stage[i];
        const stage_type *type = type_of(&layout->program, i);
        if (grouped && i == attention)
            for (int k = first; k < attention; k++)
                add_step(layout, PASS_FORWARD, k);
        if (!type->pass[PASS_INPUT])
            continue; /* another stage computes its gradients */
        add_gradient_step(layout, PASS_INPUT, i);
        if (type->rewrites)
            add_waiting(layout, waits, stage->out[0]);
        if (!type->pass[PASS_WEIGHTS])
            continue;
        if (layer_is_rewritten(&layout->program, stage->in[0]))
            waits[i] = true;
        else
            add_gradient_step(layout, PASS_WEIGHTS, i);
    }
}

/* Tensors that backward reads are saved, if the level says so, or recomputed. The same holds for the inputs of the recomputation. */
static void add_again(layer_layout *layout, const bool needed_by_gradients[LAYER_TENSORS], save_level level)
{
    const layer_program *program = &layout->program;
    bool needed[LAYER_TENSORS], again[LAYER_STAGES] = {false};
    memcpy(needed, needed_by_gradients, sizeof needed);
    layout->saved[LAYER_X] = true;
    for (int i = program->stages_n - 1; i >= 0; i--) {
        const layer_stage *stage = &program->stage[i];
        for (int k = 0; k < STAGE_OUTPUTS; k++)
            if (stage->out[k] != LAYER_NONE && needed[stage->out[k]] && !program->tensor[stage->out[k]].carried) {
                layout->saved[stage->out[k]] = level >= program->tensor[stage->out[k]].saved_from;
                again[i] |= !layout->saved[stage->out[k]];
            }
        for (int k = 0; k < STAGE_INPUTS && again[i]; k++)
            if (stage->in[k] != LAYER_NONE)
                needed[stage->in[k]] = true;
    }
    for (int i = 0; i < program->stages_n; i++)
        if (again[i])
            add_step(layout, PASS_FORWARD, i);
    layout->again_n = layout->backward_n;
}

/* What the steps of a group make again does not count. */
static void find_needed(const layer_program *program, int groups, bool needed[LAYER_TENSORS])
{
    layer_layout all = {.program = *program, .groups = groups};
    bool made[LAYER_REGIONS] = {false};
    add_reversed(&all);
    for (int i = 0; i < all.backward_n; i++) {
        int regions[LAYER_STEP_REGIONS], n = layer_step_regions(program, all.backward[i], regions);
        for (int k = 0; k < n; k++) {
            made[regions[k]] |= layer_makes(program, all.backward[i], regions[k]);
            if (regions[k] < REGION_GRADIENT && !made[regions[k]])
                needed[regions[k]] = true;
        }
    }
}

/* Which tensors the gradients read rounded: what they read and a level can save, in the compute type. */
static void find_rounded(layer_layout *layout, const step_shape *shape, const bool needed_by_gradients[LAYER_TENSORS])
{
    for (int i = 0; i < layout->program.tensors_n; i++) {
        const layer_tensor *t = &layout->program.tensor[i];
        layout->rounded[i] = shape->saved != SAVED_EXACT && needed_by_gradients[i] && t->saved_from < SAVE_LEVELS &&
                             t->per == ROWS_TOKENS && !t->four_bytes && !t->carried && !t->exact;
    }
}

static bool is_touched_by_forward(const layer_layout *layout, int tensor)
{
    for (int i = 0; i < layout->backward_n; i++) {
        int regions[LAYER_STEP_REGIONS], n = layer_step_regions(&layout->program, layout->backward[i], regions);
        for (int k = 0; k < n; k++)
            if (layout->backward[i].pass == PASS_FORWARD && regions[k] == REGION_TENSOR + tensor)
                return true;
    }
    return false;
}

/* The last step of forward that reads the layer's input. */
static int last_of_input(const layer_layout *layout)
{
    int last = 0;
    for (int i = 0; i < layout->forward_n; i++) {
        int regions[LAYER_STEP_REGIONS], n = layer_step_regions(&layout->program, layout->forward[i], regions);
        for (int k = 0; k < n; k++)
            last = regions[k] == REGION_TENSOR + LAYER_X ? i : last;
    }
    return last;
}

bool layer_is_kept_late(const layer_layout *layout, int tensor)
{
    for (int i = last_of_input(layout) + 1; i < layout->forward_n; i++)
        if (layout->forward[i].pass == PASS_KEEP && layout->forward[i].stage == tensor)
            return true;
    return false;
}

static bool is_made_later(const layer_program *program, int stage, int tensor)
{
    for (int i = stage + 1; i < program->stages_n; i++)
        for (int k = 0; k < STAGE_OUTPUTS; k++)
            if (program->stage[i].out[k] == tensor)
                return true;
    return false;
}

/* All stages; codes are saved after the last stage that writes a tensor. */
static void add_forward(layer_layout *layout)
{
    for (int i = 0; i < layout->program.stages_n; i++) {
        layout->forward[layout->forward_n++] = (layer_step){PASS_FORWARD, i};
        for (int k = 0; k < STAGE_OUTPUTS; k++) {
            const int t = layout->program.stage[i].out[k];
            if (t != LAYER_NONE && layout->coded[t] && !is_made_later(&layout->program, i, t))
                layout->forward[layout->forward_n++] = (layer_step){PASS_KEEP, t};
        }
    }
}

/* The input is in the saved memory, where codes that are saved later take its place; its own codes lie elsewhere. That gains something if
 * the former are more than the latter. In a run of tiles the input is read to the end; which experts a token has lies where all levels have
 * it. */
static bool may_code_input(const layer_layout *layout, const step_shape *shape)
{
    uint64_t late = 0;
    bool experts = false;
    for (int t = 0; t < layout->program.tensors_n; t++)
        late += layer_is_kept_late(layout, t) ? layer_code_bytes(&layout->program, shape, t) : 0;
    for (int i = 0; i < layout->program.stages_n; i++)
        experts = experts || layout->program.stage[i].kind == STAGE_DISPATCH;
    return layout->rounded[LAYER_X] && !is_touched_by_forward(layout, LAYER_X) && shape->tile_rows >= shape->unit_rows && !experts &&
           late > layer_code_bytes(&layout->program, shape, LAYER_X);
}

static void find_coded(layer_layout *layout, const step_shape *shape)
{
    for (int t = 0; t < layout->program.tensors_n; t++)
        layout->coded[t] = layout->saved[t] && layout->rounded[t] && t != LAYER_X && !is_touched_by_forward(layout, t);
    add_forward(layout);
    layout->coded[LAYER_X] = may_code_input(layout, shape);
    if (!layout->coded[LAYER_X])
        return;
    memmove(layout->forward + 1, layout->forward, (size_t)layout->forward_n++ * sizeof *layout->forward);
    layout->forward[0] = (layer_step){PASS_KEEP, LAYER_X};
}

/* The steps of the stages from the norm to attention, and those that round what these read. */
static void mark_groups(layer_layout *layout)
{
    int first, attention;
    if (!group_stages(layout, &first, &attention))
        return;
    for (int i = 0; i < layout->forward_n; i++)
        layout->forward_tiles.group[i] =
            layout->forward[i].pass == PASS_FORWARD && layout->forward[i].stage >= first && layout->forward[i].stage <= attention;
    for (int i = layout->backward_n - 1; i >= 0; i--)
        layout->backward_tiles.group[i] = step_is_of_tensor(layout->backward[i])
                                         ? layout->backward_tiles.group[i + 1]
                                         : layout->backward[i].stage >= first && layout->backward[i].stage <= attention;
}

void layer_steps_find(layer_layout *layout, const step_shape *shape, save_level level)
{
    bool needed[LAYER_TENSORS] = {false};
    find_needed(&layout->program, layout->groups, needed);
    find_rounded(layout, shape, needed);
    add_again(layout, needed, level);
    add_reversed(layout);
    find_coded(layout, shape);
    mark_groups(layout);
}
