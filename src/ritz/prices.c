/* prices.c - measures the times of sweeps, updates and transfers on this machine. */
#include "ritz/planner.h"

#include "base/clock.h"
#include "base/median.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TURNS = 5, SYNCS = 9, REPEATS_MOST = 32, LONG_NS = 1000000, COPY_BYTES = 8 << 20, DISK_BYTES = 16 << 20, TOGETHER_BYTES = 64 << 20 };

typedef struct bench {
    const ritz_space *space;
    device *device;
    queue *queue;
    ritz_unit unit;
    const ritz_layout *jets; /* [kept] */
    char *weights, *sums, *states;
    int64_t most;         /* values of the largest group */
    char *room[2];        /* COPY_BYTES each */
    char *all;            /* for time_together: the groups' sets, and all weights and sums */
    double sync;
    bool once;            /* its calls must be done before they are made again (ritz_unit.calls) */
} bench;

typedef void (*bench_fn)(bench *b);

static int time_once(bench *b, bench_fn fn, int repeats, double *ns, pt_error *e)
{
    const int64_t begin = clock_ns();
    for (int i = 0; i < repeats; i++)
        fn(b);
    int failed = queue_sync(b->queue, queue_signal(b->queue), e);
    const double all = (double)(clock_ns() - begin);
    *ns = fmax(all - b->sync, all / 8) / repeats;
    return failed;
}

static void run_least(bench *b) { queue_submit(b->queue, &(op){OP_COPY, .copy = {b->room[0], b->room[1], 64}}); }

/* What waiting for a queue takes, of which each measurement has one. */
static int time_sync(bench *b, ritz_prices *out, pt_error *e)
{
    double all[SYNCS] = {0};
    int failed = 0;
    for (int i = 0; i < SYNCS && !failed; i++)
        failed = time_once(b, run_least, 1, &all[i], e);
    median(all, SYNCS); /* in order */
    b->sync = out->sync = failed ? 0 : all[0];
    return failed;
}

/* The least of a few runs, after two that are not counted, for others may take the processor meanwhile. A short sweep is repeated: in a
 * step nothing waits for the end of each one. */
static int take_time(bench *b, bench_fn fn, double *ns, pt_error *e)
{
    double all[TURNS], once = 0;
    int failed = time_once(b, fn, 1, &once, e);
    if (!failed)
        failed = time_once(b, fn, 1, &once, e);
    const int repeats = b->once ? 1 : once * REPEATS_MOST < LONG_NS ? REPEATS_MOST : once < LONG_NS ? (int)(LONG_NS / once) : 1;
    for (int i = 0; i < TURNS && !failed; i++)
        failed = time_once(b, fn, repeats, &all[i], e);
    if (failed)
        return failed;
    median(all, TURNS); /* in order */
    *ns = all[0];
    return 0;
}

static void run_forward(bench *b) { ritz_forward(&b->unit); }
static void run_adjoint(bench *b) { ritz_adjoint(&b->unit); }
static void run_tangent(bench *b) { ritz_tangent(&b->unit); }
static void run_reverse(bench *b) { ritz_reverse(&b->unit); }
static void run_energy(bench *b) { ritz_energy(&b->unit); }
static void run_jets(bench *b) { jets_forward(&b->unit); }
static void run_jets_back(bench *b) { jets_reverse(&b->unit); }
static void run_copy(bench *b) { queue_submit(b->queue, &(op){OP_COPY, .copy = {b->room[0], b->room[1], COPY_BYTES}}); }

static void run_update(bench *b)
{
    queue_submit(b->queue, &(op){OP_ADAMW, .adamw = {.type = b->space->net->type, .n = b->most, .hi = b->weights, .m = (float *)b->states,
                                                     .v = (float *)(b->states + (uint64_t)b->most * 8), .g = b->sums, .grad_scale = 1,
                                                     .decay = 1, .beta1 = 0.9f, .beta2 = 0.99f, .eps = 1e-8f, .sqrt_correction2 = 1,
                                                     .rates = {1, 0.9, 0.99, 1e-8, 0, 1}}});
}

/* A group of this kind; -1: there is none. */
static int group_of(const ritz_network *n, int kind)
{
    const int last = n->groups_n - 1;
    return kind == GROUP_FIRST ? 0 : kind == GROUP_LAST ? last : last > 1 ? 1 : -1;
}

/* The sweeps of a residual loss. */
static int time_jets(bench *b, int kind, bool kept, ritz_prices *out, pt_error *e)
{
    const ritz_layout *plain = b->unit.layout;
    b->unit.layout = &b->jets[kept];
    b->unit.flat = false;
    b->once = true;
    int failed = take_time(b, run_jets, &out->sweep[SWEEP_JETS][kind][kept], e);
    if (!failed)
        failed = take_time(b, run_jets_back, &out->reverse[kind][kept], e);
    b->unit.layout = plain;
    b->once = false;
    return failed;
}

static int time_group(bench *b, int kind, bool kept, ritz_prices *out, pt_error *e)
{
    const ritz_network *n = b->space->net;
    static const bench_fn sweeps[SWEEPS] = {run_forward, run_adjoint, run_tangent};
    const int g = group_of(n, kind);
    uint64_t at = 0;
    if (g < 0)
        return 0;
    b->unit.group = g;
    b->unit.flat = false;
    for (int k = 0; k < n->group0[g + 1] - n->group0[g]; k++) {
        b->unit.weights[k] = b->weights + at;
        b->unit.sums[k] = b->sums + at;
        at += (uint64_t)ritz_stage_values(&n->stages[n->group0[g] + k]) * dtype_bytes(n->type);
    }
    int failed = 0;
    for (int s = 0; s < SWEEP_JETS && !failed; s++)
        if (s != SWEEP_TANGENT || kind != GROUP_LAST)
            failed = take_time(b, sweeps[s], &out->sweep[s][kind][kept], e);
    if (!failed && !n->jets)
        failed = take_time(b, run_reverse, &out->reverse[kind][kept], e);
    b->unit.flat = true;
    if (!failed)
        failed = take_time(b, run_reverse, &out->reverse_flat[kind][kept], e);
    return failed || !n->jets ? failed : time_jets(b, kind, kept, out, e);
}

/* ---- a whole unit ---- */

static void place_group(bench *b, int g)
{
    const ritz_network *n = b->space->net;
    const uint64_t each = dtype_bytes(n->type), sums = align_up((uint64_t)n->params * each, 4096);
    const ritz_layout *l = b->unit.layout;
    char *at = b->all + 2 * sums;
    b->unit.group = g;
    for (int k = 0; k < g; k++)
        at += l->set_bytes[k];
    b->unit.set[0] = at;
    b->unit.set[1] = g + 1 < n->groups_n ? at + l->set_bytes[g] : NULL;
    for (int k = 0; k < n->group0[g + 1] - n->group0[g]; k++) {
        b->unit.weights[k] = b->all + (uint64_t)n->stages[n->group0[g] + k].weight_at * each;
        b->unit.sums[k] = (char *)b->unit.weights[k] + sums;
    }
}

static void run_together(bench *b)
{
    static void (*const sweeps[])(const ritz_unit *) = {ritz_forward, ritz_adjoint, ritz_energy, ritz_tangent, ritz_reverse};
    const int groups = b->space->net->groups_n;
    for (int k = 0; k < 5; k++)
        for (int i = 0; i < (k == 2 ? 1 : groups - (k == 3)); i++) {
            place_group(b, k == 1 || k == 4 ? groups - 1 - i : i);
            sweeps[k](&b->unit);
        }
}

/* All tasks of a unit, beside the sum of their times. Large networks need more memory for it, and have nothing to join. */
static int time_together(bench *b, const ritz_layout *l, ritz_prices *out, pt_error *e)
{
    const ritz_network *n = b->space->net;
    device *d = b->device;
    uint64_t bytes = 2 * align_up((uint64_t)n->params * dtype_bytes(n->type), 4096);
    double parts = out->energy, whole = 0;
    void *all;
    for (int g = 0; g < n->groups_n; g++) {
        const int kind = g == 0 ? GROUP_FIRST : g + 1 == n->groups_n ? GROUP_LAST : GROUP_MIDDLE;
        bytes += l->set_bytes[g];
        parts += out->sweep[SWEEP_FORWARD][kind][1] + out->sweep[SWEEP_ADJOINT][kind][1] + out->sweep[SWEEP_TANGENT][kind][1] +
                 out->reverse[kind][1];
    }
    out->together = 1;
    if (n->jets || bytes > TOGETHER_BYTES)
        return 0;
    int failed = d->table->memory_open(d, MEMORY_DEVICE, bytes, &all, e);
    if (failed)
        return failed;
    b->all = all;
    b->unit.layout = l;
    b->unit.flat = false;
    queue_submit(b->queue, &(op){OP_ZERO, .copy = {.dst = all, .bytes = bytes}});
    failed = take_time(b, run_together, &whole, e);
    if (!failed)
        out->together = whole / parts;
    d->table->memory_close(d, MEMORY_DEVICE, all, bytes);
    return failed;
}

static int time_disk(const ritz_planning *p, bench *b, ritz_prices *out, pt_error *e)
{
    disk_file *file;
    disk_channel *channel = NULL;
    int failed = disk_open(p->disk_path, DISK_BYTES, NULL, &file, e);
    if (failed)
        return failed;
    failed = disk_channel_open(file, &channel, e);
    for (int i = 0; i < 2 && !failed; i++) {
        double *ns = i ? &out->read : &out->write;
        const int64_t begin = clock_ns();
        for (uint64_t at = 0; at < DISK_BYTES && !failed; at += COPY_BYTES)
            failed = i ? disk_read(channel, at, b->room[0], COPY_BYTES, e) : disk_write(channel, at, b->room[0], COPY_BYTES, e);
        *ns = (double)(clock_ns() - begin) / DISK_BYTES;
    }
    disk_channel_close(channel);
    disk_close(file);
    return failed;
}

static int time_all(const ritz_planning *p, bench *b, const ritz_layout layouts[2], ritz_prices *out, pt_error *e)
{
    const uint64_t each = dtype_bytes(b->space->net->type);
    int failed = time_sync(b, out, e);
    for (int kept = 0; kept < 2 && !failed; kept++) {
        b->unit.layout = &layouts[kept];
        for (int kind = 0; kind < GROUP_KINDS && !failed; kind++)
            failed = time_group(b, kind, kept, out, e);
    }
    b->unit.group = 0;
    b->unit.flat = false;
    if (!failed)
        failed = take_time(b, run_energy, &out->energy, e);
    if (!failed)
        failed = time_together(b, &layouts[1], out, e);
    if (!failed)
        failed = take_time(b, run_update, &out->update, e);
    if (!failed)
        failed = take_time(b, run_copy, &out->copy, e);
    out->update /= (double)b->most;
    out->copy /= COPY_BYTES;
    if (!failed && p->budget[TIER_DISK] && p->disk_path && each)
        failed = time_disk(p, b, out, e);
    for (int k = 0; k < 2 && !failed && p->make_points; k++)
        out->points[k] = p->make_points(p->arg, k);
    return failed;
}

int ritz_prices_measure(const ritz_planning *p, ritz_prices *out, pt_error *e)
{
    const ritz_network *n = p->space->net;
    ritz_layout layouts[2], jets[2];
    bench b = {.space = p->space, .device = p->device, .jets = jets};
    bool kept[RITZ_STAGES];
    uint64_t set = 0;
    void *base, *room;
    memset(out, 0, sizeof *out);
    out->rows = p->inside_n > 0 && p->inside_n < p->space->unit_rows ? p->inside_n : p->space->unit_rows;
    memset(kept, 1, sizeof kept);
    ritz_layout_init(&layouts[0], n, p->space->unit_rows, NULL);
    ritz_layout_init(&layouts[1], n, p->space->unit_rows, kept);
    for (int k = 0; k < 2 && n->jets; k++)
        ritz_layout_jets(&jets[k], n, p->space->unit_rows, k ? kept : NULL);
    const ritz_layout *large = n->jets ? jets : layouts; /* jets have more blocks than the others */
    for (int g = 0; g < n->groups_n; g++) {
        int64_t values = 0;
        for (int s = n->group0[g]; s < n->group0[g + 1]; s++)
            values += ritz_stage_values(&n->stages[s]);
        b.most = values > b.most ? values : b.most;
        set = large[1].set_bytes[g] > set ? large[1].set_bytes[g] : set;
    }
    const uint64_t slab = align_up((uint64_t)b.most * 8, 4096), own = large[1].own_bytes, work = large[0].work_bytes;
    const uint64_t bytes = 4 * slab + 2 * set + own + work + large[0].stream_bytes;
    jets_call *calls = calloc((size_t)jets_calls(n), sizeof *calls);
    int failed = calls ? p->device->table->memory_open(p->device, MEMORY_DEVICE, bytes, &base, e) : pt_fail(e, PT_FAILED, "out of memory");
    if (failed) {
        free(calls);
        return failed;
    }
    failed = p->device->table->memory_open(p->device, MEMORY_HOST, 2 * COPY_BYTES, &room, e);
    if (!failed) {
        char *at = base;
        b.weights = at, b.sums = at + slab, b.states = at + 2 * slab, at += 4 * slab;
        b.unit = (ritz_unit){.net = n, .set = {at, at + set}, .own = at + 2 * set, .work = at + 2 * set + own,
                             .stream = at + 2 * set + own + work, .calls = calls, .rows = out->rows};
        b.room[0] = room, b.room[1] = b.room[0] + COPY_BYTES;
        failed = p->device->table->queue_open(p->device, "prices", p->threads, &b.queue, e);
        b.unit.queue = b.queue;
        if (!failed) {
            queue_submit(b.queue, &(op){OP_ZERO, .copy = {.dst = base, .bytes = bytes}});
            failed = time_all(p, &b, layouts, out, e);
            p->device->table->queue_close(b.queue);
        }
        p->device->table->memory_close(p->device, MEMORY_HOST, room, 2 * COPY_BYTES);
    }
    p->device->table->memory_close(p->device, MEMORY_DEVICE, base, bytes);
    free(calls);
    return failed;
}
