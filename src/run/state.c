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
    const slab *l = state_slab(in, kind, index);
    return kind == STATE_MASTER ? values_of(in, index) : l ? slab_of_param(l, &in->model->params[index]) : 0;
}

/* ---- chunks ---- */

static int window_disk(state *s, bool write, pt_error *e)
{
    int failed = executor_disk(s->x, write, kept_weights(s->in, s->chunk), s->chunk, s->window, e);
    if (failed || !s->in->training || !chunk_state_bytes(s->in->packing, s->chunk))
        return failed;
    return executor_disk(s->x, write, OBJECT_STATES, s->chunk, s->window + kept_weight_bytes(s->in, s->chunk), e);
}

static int window_close(state *s, pt_error *e)
{
    int failed = s->chunk >= 0 && s->changed ? window_disk(s, true, e) : 0;
    s->chunk = -1;
    s->changed = false;
    return failed;
}

static int window_open(state *s, pt_error *e)
{
    const packing *k = s->in->packing;
    if (!s->fresh || !s->fresh[s->chunk])
        return window_disk(s, false, e);
    memset(s->window, 0, kept_weight_bytes(s->in, s->chunk) + (s->in->training ? chunk_state_bytes(k, s->chunk) : 0));
    s->fresh[s->chunk] = false;
    s->changed = true;
    return 0;
}

int state_chunk_open(state *s, int chunk, bool change, chunk_memory *out, pt_error *e)
{
    uint64_t at;
    if (s->view) {
        out->weights = (char *)slots_view_at(s->view, OBJECT_WEIGHTS, chunk); /* nobody writes there */
        out->states = (char *)slots_view_at(s->view, OBJECT_STATES, chunk);
        out->away = false;
        return 0;
    }
    if (s->in->plan->chunks[chunk].placement != TIER_DISK) {
        out->weights = executor_placement(s->x, kept_weights(s->in, chunk), chunk, &at);
        out->states = s->in->training ? executor_placement(s->x, OBJECT_STATES, chunk, &at) : NULL;
        out->away = s->bounce && s->in->plan->chunks[chunk].placement == TIER_DEVICE;
        return 0;
    }
    int failed = 0;
    if (s->chunk != chunk) {
        failed = window_close(s, e);
        s->chunk = chunk;
        if (!failed)
            failed = window_open(s, e);
        if (failed)
            s->chunk = -1;
    }
    s->changed |= change;
    out->weights = s->window;
    out->states = s->window + kept_weight_bytes(s->in, chunk);
    out->away = false;
    return failed;
}

void state_open(state *s, executor *x)
{
    *s = (state){.x = x, .in = executor_input_of(x), .chunk = -1};
    uint64_t taken = schedule_window_bytes(s->in), bytes = taken + STATE_BOUNCE_BYTES + SPARE_BYTES;
    s->window = executor_scratch(x, &bytes);
    if (s->in->host_tier) {
        s->bounce = s->window + taken;
        taken += STATE_BOUNCE_BYTES;
    }
    s->spare = s->window + taken;
    s->spare_bytes = bytes - taken;
}

int state_close(state *s, pt_error *e) { return window_close(s, e); }

size_t state_half_of_spare(const state *s) { return s->spare_bytes / 2 / 64 * 64; }

/* The bytes of the chunk that this rank keeps: all, or its shard. */
void state_kept_range(const state *s, int chunk, int64_t *begin, int64_t *end)
{
    const packing *k = s->in->packing;
    const int64_t e = (int64_t)dtype_bytes(k->type);
    const bool sharded = s->in->plan->chunks[chunk].sharded;
    *begin = kept_weight_start(s->in, chunk) * e;
    *end = sharded ? shard_start(k, chunk, k->rank + 1) * e : (int64_t)chunk_weight_bytes(k, chunk);
}
