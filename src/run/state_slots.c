/* state_slots.c - loads the state that a step has committed. */
#include "run/state_parts.h"

#include "run/slots.h"

/* Values in whole rows, other entries in any number, as much at a time as the spare scratch holds. */
static int copy_kind(state *to, state *from, int kind, int index, pt_error *e)
{
    const slab *slab = state_slab(to->in, kind, index);
    const int64_t cols = slab && !slab_is_of_values(slab) ? 1 : to->in->model->params[index].cols;
    const int64_t all = state_entries(to->in, kind, index), step = (int64_t)(to->spare_bytes / sizeof(float)) / cols * cols;
    float *values = (float *)to->spare;
    int failed = 0;
    for (int64_t at = 0; at < all && !failed; at += step) {
        const int64_t n = all - at < step ? all - at : step;
        failed = state_read(from, kind, index, at, n, values, e);
        if (!failed)
            failed = state_write(to, kind, index, at, n, values, e);
    }
    return failed;
}

int state_copy_trained(state *to, state *from, pt_error *e)
{
    int failed = 0;
    for (int i = 0; i < to->in->model->params_n; i++)
        for (int kind = 0; kind < state_kinds(to->in) && to->in->model->params[i].trainable && !failed; kind++)
            failed = copy_kind(to, from, kind, i, e);
    return failed;
}

/* The packing of the run that wrote it, which had one rank. */
static int pack_like(const state *state, const slots_view *v, packing *out, pt_error *e)
{
    step_shape shape = *state->in->shape;
    shape.ranks = 1;
    shape.rank = 0;
    shape.slice_rows = slots_view_slice_rows(v);
    return pack(state->in->model, &shape, slots_view_chunk_bytes(v), out, e);
}

int state_load_slots(state *s, slots_view *from, pt_error *e)
{
    packing packing;
    plan plan = {0};
    int failed = pack_like(s, from, &packing, e);
    if (failed)
        return failed;
    failed = slots_view_map(from, &packing, e);
    if (!failed)
        failed = plan_alloc(&plan, packing.chunks_n, 0, e);
    schedule_input in = *s->in;
    in.packing = &packing;
    in.plan = &plan;
    state there = {.in = &in, .chunk = -1, .view = from};
    if (!failed)
        failed = model_trains_all(in.model) ? state_begin(s, &(state_source){.slots = &there}, e) : state_copy_trained(s, &there, e);
    plan_free(&plan);
    packing_free(&packing);
    return failed;
}
