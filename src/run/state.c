/* state.c - kinds of state, and the memory of a chunk: in place, on the device, or in the window for chunks on the disk. */
#include "run/state_parts.h"

#include "run/slots.h"

#include <string.h>

enum { SPARE_BYTES = 64 << 20 }; /* more would not make reading and writing faster */

/* ---- kinds ---- */

int state_kinds(const schedule_input *in)
{
    const char *names[OPTIMIZER_STATES];
    return 1 + optimizer_states(in->packing->optimizer, names);
}

const char *state_name(const schedule_input *in, int kind)
{
    const char *names[OPTIMIZER_STATES];
    optimizer_states(in->packing->optimizer, names);
    return kind == STATE_MASTER ? "master" : names[kind - 1];
}

const slab *state_slab(const schedule_input *in, int kind, int index)
{
    const update_rule *r = optimizer_rule(in->packing->optimizer, &in->model->params[index]);
    const int k = kind == STATE_MASTER ? -1 : rule_find(r, state_name(in, kind));
    return k < 0 ? NULL : &r->slabs[k];
}

static int64_t values_of(const schedule_input *in, int index) { return in->model->params[index].rows * in->model->params[index].cols; }

int64_t state_entries(const schedule_input *in, int kind, int index)
{
    const slab *slab = state_slab(in, kind, index);
    return kind == STATE_MASTER ? values_of(in, index) : slab ? slab_of_param(slab, &in->model->params[index]) : 0;
}

/* ---- chunks ---- */

static int window_disk(state *state, bool write, pt_error *e)
{
    int failed = executor_disk(state->x, write, kept_weights(state->in, state->chunk), state->chunk, state->window, e);
    if (failed || !state->in->training || !chunk_state_bytes(state->in->packing, state->chunk))
        return failed;
    return executor_disk(state->x, write, OBJECT_STATES, state->chunk, state->window + kept_weight_bytes(state->in, state->chunk), e);
}

static int window_close(state *state, pt_error *e)
{
    int failed = state->chunk >= 0 && state->changed ? window_disk(state, true, e) : 0;
    state->chunk = -1;
    state->changed = false;
    return failed;
}

static int window_open(state *state, pt_error *e)
{
    const packing *packing = state->in->packing;
    if (!state->fresh || !state->fresh[state->chunk])
        return window_disk(state, false, e);
    memset(state->window, 0,
           kept_weight_bytes(state->in, state->chunk) + (state->in->training ? chunk_state_bytes(packing, state->chunk) : 0));
    state->fresh[state->chunk] = false;
    state->changed = true;
    return 0;
}

int state_chunk_open(state *state, int chunk, bool change, chunk_memory *out, pt_error *e)
{
    uint64_t at;
    if (state->view) {
        out->weights = (char *)slots_view_at(state->view, OBJECT_WEIGHTS, chunk); /* nobody writes there */
        out->states = (char *)slots_view_at(state->view, OBJECT_STATES, chunk);
        out->away = false;
        return 0;
    }
    if (state->in->plan->chunks[chunk].placement != TIER_DISK) {
        out->weights = executor_placement(state->x, kept_weights(state->in, chunk), chunk, &at);
        out->states = state->in->training ? executor_placement(state->x, OBJECT_STATES, chunk, &at) : NULL;
        out->away = state->bounce && state->in->plan->chunks[chunk].placement == TIER_DEVICE;
        return 0;
    }
    int failed = 0;
    if (state->chunk != chunk) {
        failed = window_close(state, e);
        state->chunk = chunk;
        if (!failed)
            failed = window_open(state, e);
        if (failed)
            state->chunk = -1;
    }
    state->changed |= change;
    out->weights = state->window;
    out->states = state->window + kept_weight_bytes(state->in, chunk);
    out->away = false;
    return failed;
}

void state_open(state *s, executor *exec)
{
    *s = (state){.x = exec, .in = executor_input_of(exec), .chunk = -1};
    uint64_t taken = schedule_window_bytes(s->in), bytes = taken + STATE_BOUNCE_BYTES + SPARE_BYTES;
    s->window = executor_scratch(exec, &bytes);
    if (s->in->host_tier) {
        s->bounce = s->window + taken;
        taken += STATE_BOUNCE_BYTES;
    }
    s->spare = s->window + taken;
    s->spare_bytes = bytes - taken;
}

int state_close(state *state, pt_error *e) { return window_close(state, e); }

size_t state_half_of_spare(const state *state) { return state->spare_bytes / 2 / 64 * 64; }

/* The bytes of the chunk that this rank keeps: all, or its shard. */
void state_kept_range(const state *state, int chunk, int64_t *begin, int64_t *end)
{
    const packing *packing = state->in->packing;
    const int64_t e = (int64_t)dtype_bytes(packing->type);
    const bool sharded = state->in->plan->chunks[chunk].sharded;
    *begin = kept_weight_start(state->in, chunk) * e;
    *end = sharded ? shard_start(packing, chunk, packing->rank + 1) * e : (int64_t)chunk_weight_bytes(packing, chunk);
}
