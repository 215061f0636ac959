#include "layer/parts.h"

#include "layer/stage.h"

bool layer_parts_are_possible(const model *m, int layer)
{
    const carried_use use = carried_use_of(m, layer + 1);
    return m->config.sparse[layer] && !use.forward && !use.backward && !use.gradient;
}

/* The matrix of a layer's experts that a step multiplies with; PARAM_NONE: none. */
static param_role matrix_of_step(const layer_program *program, layer_step step)
{
    if (step_is_of_tensor(step) || step.pass == PASS_WEIGHTS)
        return PARAM_NONE;
    const layer_stage *stage = &program->stage[step.stage];
    const bool of_experts = (stage->kind == STAGE_EXPERTS_UP || stage->kind == STAGE_EXPERTS_DOWN) &&
                            (stage->param[0] == PARAM_EXPERTS_UP || stage->param[0] == PARAM_EXPERTS_DOWN);
    return of_experts ? stage->param[0] : PARAM_NONE;
}

static double flops_of_step(const stage_site *at, layer_step step)
{
    if (step_is_of_tensor(step))
        return 0;
    const layer_stage *stage = &at->program->stage[step.stage];
    const stage_type *type = stage_type_of(stage->kind);
    return type->flops ? type->flops(&(stage_site){at->model, at->shape, at->program, stage, at->layer}) : 0;
}

/* Does a step before `end` write the layer's output, which lies in the caller's memory? */
static bool writes_output(const layer_program *program, const layer_step *steps, int end)
{
    bool writes = false;
    for (int i = 0; i < end; i++) {
        int regions[LAYER_STEP_REGIONS], n = layer_step_regions(program, steps[i], regions);
        for (int k = 0; k < n; k++)
            writes = writes || regions[k] == LAYER_OUT;
    }
    return writes;
}

static void add(layer_parts *out, layer_part part)
{
    if (out->n < LAYER_PARTS)
        out->part[out->n] = part;
    out->n++;
}

void layer_parts_find(layer_parts *out, const model *m, int layer, const step_shape *shape, const layer_layout *layout, bool backward,
                      int64_t up, int64_t down)
{
    const layer_program *program = &layout->program;
    const layer_step *steps = backward ? layout->backward : layout->forward;
    const stage_site at = {.model = m, .shape = shape, .program = program, .layer = layer};
    const int n = backward ? layout->backward_n : layout->forward_n;
    double all = 0;
    int begun = 0; /* the first step that is in no part */
    out->n = 0;
    for (int i = 0; i < n; i++)
        all += flops_of_step(&at, steps[i]);
    for (int i = 0; i <= n; i++) {
        const param_role matrix = i < n ? matrix_of_step(program, steps[i]) : PARAM_NONE;
        if (i < n && matrix == PARAM_NONE)
            continue;
        layer_part rest = {.first = begun, .end = i, .matrix = PARAM_NONE};
        for (int k = begun; k < i; k++)
            rest.share += flops_of_step(&at, steps[k]) / all;
        if (rest.end > rest.first)
            add(out, rest);
        const int64_t each = matrix == PARAM_EXPERTS_UP ? up : down, experts = m->config.experts;
        for (int64_t first = 0; i < n && first < experts; first += each) {
            const int64_t some = experts - first < each ? experts - first : each;
            add(out, (layer_part){.first = i, .end = i + 1, .matrix = matrix, .expert0 = first, .experts = some,
                                  .share = flops_of_step(&at, steps[i]) * (double)some / (double)experts / all});
        }
        begun = i + 1;
    }
    const bool output_last = backward || !writes_output(program, steps, out->n <= LAYER_PARTS ? out->part[out->n - 1].first : n);
    if (out->n > LAYER_PARTS || !output_last)
        *out = (layer_parts){1, {{.end = n, .matrix = PARAM_NONE, .whole = true, .share = 1}}};
}
