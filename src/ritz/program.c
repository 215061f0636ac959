#include "ritz/program.h"

#include "schedule/builder.h"

#include <stdlib.h>
#include <string.h>

enum { CHUNK_BYTES = 1 << 20 };

typedef struct program {
    builder b;
    schedule_input in;      /* for the caches */
    const ritz_space *space;
    const plan *plan;
    ritz_layout layout;
    bool turns;             /* computes energies and gradients */
    int groups, visit;
    int own[RITZ_VISIT_MOST], stream[RITZ_VISIT_MOST]; /* [unit] buffers; -1: not made yet */
} program;

/* ---- chunks and layouts ---- */

uint64_t ritz_slab_bytes(const ritz_space *s, int chunk)
{
    return align_up((uint64_t)s->chunks[chunk].values * dtype_bytes(s->net->type), 4096);
}

void ritz_space_init(ritz_space *s)
{
    const uint64_t each = dtype_bytes(s->net->type);
    s->chunks_n = 0;
    for (int i = 0; i < s->net->stages_n; i++) {
        const int64_t values = ritz_stage_values(&s->net->stages[i]);
        ritz_chunk *c = s->chunks_n ? &s->chunks[s->chunks_n - 1] : NULL;
        if (!c || (uint64_t)(c->values + values) * each > CHUNK_BYTES) {
            c = &s->chunks[s->chunks_n++];
            *c = (ritz_chunk){i, 0, s->net->stages[i].weight_at, 0};
        }
        c->stages_n++;
        c->values += values;
        s->chunk_of_stage[i] = s->chunks_n - 1;
    }
}

bool ritz_has_program(const ritz_space *s, ritz_program p)
{
    switch (p) {
    case RITZ_FACES: return s->training && s->has_faces;
    case RITZ_MEAN: case RITZ_POINTS: return true;
    default: return s->training;
    }
}

void ritz_program_layout(const ritz_space *s, const plan *plan, ritz_program what, ritz_layout *out)
{
    bool kept[RITZ_STAGES];
    for (int g = 0; g < s->net->groups_n; g++)
        kept[g] = plan->blocks[g].level == SAVE_ALL;
    if (s->net->jets && what == RITZ_TURN)
        ritz_layout_jets(out, s->net, s->unit_rows, kept);
    else
        ritz_layout_init(out, s->net, s->unit_rows, what == RITZ_MEAN ? NULL : kept);
}

int ritz_plan_init(const ritz_space *s, plan *out, pt_error *e)
{
    int failed = plan_alloc(out, s->chunks_n, s->net->groups_n, e);
    if (failed)
        return failed;
    for (int g = 0; g < s->net->groups_n; g++)
        out->blocks[g].level = SAVE_ALL;
    out->chunk_bytes = CHUNK_BYTES;
    out->n_buffer = out->n_update = out->n_swap = 1;
    out->visit = 1;
    out->micro_batch = s->unit_rows;
    out->update = UPDATE_END;
    return 0;
}

static int object_weights(const program *p, int chunk) { (void)p; return chunk; }
static int object_states(const program *p, int chunk) { return p->space->chunks_n + chunk; }
static int object_sums(const program *p, int chunk) { return 2 * p->space->chunks_n + chunk; }
static int object_saved(const program *p, int group, int micro) { return 3 * p->space->chunks_n + group * p->visit + micro; }

/* ---- items ---- */

static void item_own(program *p, int micro, unsigned use)
{
    if (p->own[micro] < 0 && !p->b.recording)
        p->own[micro] = builder_buffer(&p->b, OBJECT_BATCH, -1, micro, TIER_DEVICE, p->layout.own_bytes);
    item_operand(&p->b, p->own[micro], use);
}

static void item_stream(program *p, int micro, unsigned use)
{
    if (p->stream[micro] < 0 && !p->b.recording)
        p->stream[micro] = builder_buffer(&p->b, OBJECT_STREAM_GRADIENT, -1, micro, TIER_DEVICE, p->layout.stream_bytes);
    item_operand(&p->b, p->stream[micro], use);
}

static void item_saved(program *p, int group, int micro, unsigned use)
{
    item_needs(&p->b, TIER_DEVICE, object_saved(p, group, micro), use);
}

/* Adds the chunks of a group's stages, each once. */
static void item_chunks(program *p, int group, int (*object)(const program *, int), unsigned use)
{
    const ritz_network *n = p->space->net;
    for (int s = n->group0[group], last = -1; s < n->group0[group + 1]; s++) {
        const int c = p->space->chunk_of_stage[s];
        if (c != last)
            item_needs(&p->b, TIER_DEVICE, object(p, c), use);
        last = c;
    }
}

/* ---- tasks ---- */

static void input(program *p, int micro)
{
    item_begin(&p->b, p->b.now);
    item_saved(p, 0, micro, USE_WRITE);
    item_own(p, micro, USE_WRITE);
    item_end(&p->b, TASK_INPUT, QUEUE_COMPUTE, -1, micro, -1, false);
}

static void output(program *p, int micro, bool gradient)
{
    item_begin(&p->b, p->b.now);
    if (gradient)
        item_saved(p, 0, micro, USE_READ);
    item_own(p, micro, USE_READ);
    item_end(&p->b, TASK_OUTPUT, QUEUE_COMPUTE, -1, micro, -1, false);
}

static void sweep(program *p, ritz_sweep which, int group, int micro)
{
    const bool last = group + 1 == p->groups, up = which != SWEEP_ADJOINT, first = which == SWEEP_FORWARD || which == SWEEP_JETS;
    item_begin(&p->b, p->b.now);
    item_chunks(p, group, object_weights, USE_READ);
    item_saved(p, group, micro, !up || (p->layout.kept[group] && !last) ? USE_READ | USE_WRITE : USE_READ);
    if (!last)
        item_saved(p, group + 1, micro, first ? USE_WRITE : up ? USE_READ | USE_WRITE : USE_READ);
    if (last)
        item_own(p, micro, first ? USE_READ | USE_WRITE : USE_READ);
    item_workspace(&p->b, p->layout.work_bytes);
    item_end(&p->b, TASK_LAYER, QUEUE_COMPUTE, (int)which * p->groups + group, micro, -1, false);
}

static void energy(program *p, int micro)
{
    item_begin(&p->b, p->b.now);
    item_saved(p, 0, micro, USE_READ | USE_WRITE);
    item_own(p, micro, USE_READ | USE_WRITE);
    item_end(&p->b, TASK_HEAD, QUEUE_COMPUTE, -1, micro, -1, false);
}

static void reverse(program *p, int group, int micro)
{
    const bool last = group + 1 == p->groups;
    item_begin(&p->b, p->b.now);
    item_chunks(p, group, object_weights, USE_READ);
    item_chunks(p, group, object_sums, USE_READ | USE_WRITE);
    item_saved(p, group, micro, USE_READ);
    if (!last)
        item_saved(p, group + 1, micro, USE_READ);
    item_own(p, micro, USE_READ);
    item_stream(p, micro, last ? USE_WRITE : USE_READ | USE_WRITE);
    item_workspace(&p->b, p->layout.work_bytes);
    item_end(&p->b, TASK_LAYER_BACKWARD, QUEUE_COMPUTE, group, micro, -1, micro == 0);
}

static void update_chunk(program *p, int chunk)
{
    const tier t = p->plan->chunks[chunk].update;
    item_begin(&p->b, t == TIER_DEVICE ? p->b.now : 0);
    item_needs(&p->b, t, object_weights(p, chunk), USE_READ | USE_WRITE);
    item_needs(&p->b, t, object_states(p, chunk), USE_READ | USE_WRITE);
    item_needs(&p->b, t, object_sums(p, chunk), USE_READ);
    item_end(&p->b, TASK_UPDATE, t == TIER_DEVICE ? QUEUE_COMPUTE : QUEUE_HOST, -1, -1, chunk, false);
}

/* ---- programs ---- */

static void sweep_all(program *p, ritz_sweep which)
{
    const int n = which == SWEEP_TANGENT ? p->groups - 1 : p->groups;
    for (int i = 0; i < n; i++)
        for (int m = 0; m < p->visit; m++)
            sweep(p, which, which == SWEEP_ADJOINT ? n - 1 - i : i, m);
}

static void run_units(program *p, ritz_program what)
{
    const bool jets = what == RITZ_TURN && p->space->net->jets;
    for (int m = 0; m < p->visit; m++)
        input(p, m);
    sweep_all(p, jets ? SWEEP_JETS : SWEEP_FORWARD);
    if ((what == RITZ_TURN && !jets) || what == RITZ_POINTS)
        sweep_all(p, SWEEP_ADJOINT);
    for (int m = 0; m < p->visit; m++) {
        if (p->turns)
            energy(p, m);
        output(p, m, what == RITZ_POINTS);
    }
    if (what == RITZ_TURN && !jets)
        sweep_all(p, SWEEP_TANGENT);
    for (int g = p->groups - 1; g >= 0 && p->turns; g--)
        for (int m = 0; m < p->visit; m++)
            reverse(p, g, m);
}

static void run_program(program *p, ritz_program what)
{
    p->b.serial = 0;
    p->b.now = 1;
    if (what != RITZ_UPDATE)
        run_units(p, what);
    for (int c = 0; c < p->space->chunks_n && what == RITZ_UPDATE; c++)
        update_chunk(p, c);
}

/* ---- set-up ---- */

static void make_chunk(program *p, int c)
{
    const tier t = p->plan->chunks[c].placement;
    const uint64_t slab = ritz_slab_bytes(p->space, c);
    object *all[] = {&p->b.objects[object_weights(p, c)], &p->b.objects[object_states(p, c)], &p->b.objects[object_sums(p, c)]};
    for (int i = 0; i < 3; i++) {
        const uint64_t bytes = i == 1 ? 2 * slab : slab;
        *all[i] = (object){.kind = (object_kind)(OBJECT_WEIGHTS + i), .index = c, .micro = -1, .placement_tier = t, .placement = -1,
                           .placement_slot = -1, .partner = -1, .bytes = bytes, .keep = true};
        if (i && !p->space->training)
            continue;
        all[i]->placement = builder_buffer(&p->b, all[i]->kind, c, -1, t, bytes);
        if (all[i]->placement >= 0)
            p->b.s->buffers[all[i]->placement].placement = true;
    }
}

/* RITZ_MEAN needs the sets of only two neighbouring groups at a time. */
static void make_saved(program *p, ritz_program what, int g)
{
    const bool passing = what == RITZ_MEAN;
    for (int m = 0; m < p->visit; m++)
        p->b.objects[object_saved(p, g, m)] =
            (object){.kind = OBJECT_SAVED, .index = g, .micro = m, .placement_tier = passing ? TIER_DEVICE : p->plan->blocks[g].place,
                     .placement = -1, .placement_slot = passing ? g % 2 * p->visit + m : -1, .partner = -1,
                     .bytes = p->layout.set_bytes[g]};
    p->b.s->slots_n = passing ? 2 * p->visit : 0;
}

static int make_caches(program *p)
{
    const int n[CACHES] = {[CACHE_WEIGHTS] = p->plan->n_buffer, [CACHE_STATES] = p->plan->n_update, [CACHE_GRADIENT] = p->plan->n_update,
                           [CACHE_SAVED] = p->plan->n_swap};
    for (int t = TIER_DEVICE; t <= TIER_HOST; t++)
        for (int k = 0; k < CACHES; k++) {
            /* a group's sums pass through buffers together with its weights */
            const int slots = k == CACHE_GRADIENT && n[k] < p->plan->n_buffer ? p->plan->n_buffer : n[k];
            p->b.caches[t][k] = (cache){.tier = (tier)t, .slots_n = slots, .slots = calloc((size_t)slots + 1, sizeof(slot))};
            if (!p->b.caches[t][k].slots)
                return -1;
            for (int i = 0; i < slots; i++)
                p->b.caches[t][k].slots[i] = (slot){.object = -1, .buffer = -1, .id = -1, .pinned = -1};
        }
    return 0;
}

/* RITZ_POINTS, and RITZ_MEAN when it only evaluates, take one unit at a time. */
static int visit_of(const ritz_space *s, const plan *plan, ritz_program what)
{
    return what == RITZ_POINTS || (what == RITZ_MEAN && !s->has_mean) ? 1 : plan->visit;
}

static int program_init(program *p, const ritz_space *space, const plan *plan, ritz_program what, schedule *sched, pt_error *e)
{
    *p = (program){.space = space, .plan = plan, .turns = what == RITZ_TURN || what == RITZ_FACES, .groups = space->net->groups_n,
                   .visit = visit_of(space, plan, what), .in = {.plan = plan, .host_tier = space->host_tier}};
    memset(p->own, -1, sizeof p->own);
    memset(p->stream, -1, sizeof p->stream);
    ritz_program_layout(space, plan, what, &p->layout);
    *sched = (schedule){.kind = p->turns ? SCHEDULE_STEP : what == RITZ_UPDATE ? SCHEDULE_DRAIN : SCHEDULE_EVAL, .micro_n = p->visit,
                    .micro_units = 1};
    p->b = (builder){.in = &p->in, .s = sched, .e = e, .objects_n = 3 * space->chunks_n + p->groups * p->visit};
    p->b.objects = calloc((size_t)p->b.objects_n, sizeof *p->b.objects);
    if (!p->b.objects || make_caches(p) < 0)
        return pt_fail(e, PT_FAILED, "out of memory while building a schedule");
    for (int c = 0; c < space->chunks_n; c++)
        make_chunk(p, c);
    sched->placements_n = sched->buffers_n;
    for (int g = 0; g < p->groups; g++)
        make_saved(p, what, g);
    builder_start(&p->b);
    return p->b.failed;
}

static void program_close(program *p)
{
    builder_close(&p->b);
}

int ritz_schedule_place(const ritz_space *s, const plan *plan, ritz_program what, schedule *out, pt_error *e)
{
    program x;
    *out = (schedule){0};
    int failed = program_init(&x, s, plan, what, out, e);
    if (!failed) {
        x.b.recording = true;
        run_program(&x, what);
        x.b.recording = false;
        run_program(&x, what);
        cache_flush(&x.b);
        failed = x.b.failed;
    }
    if (!failed)
        failed = builder_sort(&x.b);
    program_close(&x);
    if (!failed)
        failed = schedule_layout(out, e);
    if (failed)
        schedule_free(out);
    return failed;
}

int ritz_schedule_build(const ritz_space *s, const plan *plan, ritz_program what, schedule *out, pt_error *e)
{
    int failed = ritz_schedule_place(s, plan, what, out, e);
    if (!failed && (failed = schedule_link(out, e)))
        schedule_free(out);
    return failed;
}
