/* bound.c - a time that no plan can be faster than.
 *
 * A plan decides for each chunk where it lives and who updates it, for each layer what it saves and where. Each choice is so many
 * nanoseconds on some queues and so many bytes in some tiers. No step ends before its busiest queue, and no tier holds more than its
 * budget. Everything else is left out here: waiting, order, most contention, buffers that only some chunks need. Choices may be divided,
 * too. So the least time of this smaller problem is at most that of every plan:
 *
 *   min t   with   sum of loads of queue q <= t  for each q,   sum of bytes in tier r <= budget of r  for each r
 *
 * Reads and writes slow each other down, and so do the two directions of a link. While both run, for a time b, they get 1 / s and 1 / z of
 * their work done. If they have A and B to do, alone, they take A + B - b (1 / s + 1 / z - 1), where b is at most s A and z B. That gives
 * two more loads, of two queues together, for each pair.
 *
 * Where gradients wait for their norm, no update begins before it is known, and all end before the head of the next step begins. From
 * there to the next norm the device computes everything but the first visit's forward pass. So this computation and what updates do between
 * the norm and that head take no longer than a step, together: four more loads, for updates on the host, copies to the device, reads and
 * writes. States may come earlier and go later. Then they are in memory at the norm, or at the head.
 *
 * With a weight of at least 0 for each queue (in all 1) and a price of at least 0 for each tier, every choice can be made on its own, and
 *
 *   f(weights, prices) = sum over choices of min over its options of (weights . loads + prices . bytes)  -  prices . budgets
 *
 * is at most that least time, whatever the weights and prices are (weak duality). The simplex method finds the best ones (simplex.h). f is
 * then computed from them, so that no rounding of the method makes the bound too high. Times are relative to the plan at hand, bytes to
 * the budgets.
 *
 * Chunk sizes and divisions of the step are tried one after another: the bound is the least of theirs. Chunk sizes are those of the search.
 *
 * Memory is counted at two moments: at the head in the last visit of a step, when a whole visit's saved tensors exist, and after backward,
 * when all gradients exist that wait for the norm. A chunk that is kept in a buffer when the direction turns is not fetched again; it is
 * counted as a chunk that is fetched once and has its weights on the device in addition.
 */
#include "search/simplex.h"
#include "search/space.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef enum moment { AT_HEAD, AFTER_BACKWARD, MOMENTS } moment;
enum { TOGETHER = 4, WAITS = QUEUES + TOGETHER, WAIT_HOST = WAITS, WAIT_TO_DEVICE, WAIT_READ, WAIT_WRITE, WEIGHTS,
       MULTIPLIERS = WEIGHTS + MOMENTS * TIERS, OPTIONS = 33 };

typedef struct option { double of[MULTIPLIERS]; } option; /* loads of queues in ns, of two queues together, bytes */
typedef struct choice { double times; int n; option options[OPTIONS]; } choice; /* so many equal things */

typedef struct relaxed {
    const space *s;
    double unit[MULTIPLIERS]; /* of loads, of bytes */
    option fixed;             /* what every plan has */
    choice *choices;
    int n, room;
    double at[MULTIPLIERS];   /* the multipliers of the division before; those of the next differ little */
} relaxed;

typedef struct division { const chunking *chunks; double micros, per_micro, visit, group, passes; } division;

/* ---- what a plan can choose ---- */

static void load(option *o, queue_kind q, double ns) { o->of[q] += ns; }
/* What the device computes between the first visit's forward pass and the norm. */
static void load_before_norm(option *o, double ns)
{
    for (int w = WAITS; w < WEIGHTS; w++)
        o->of[w] += ns;
}
static void hold(option *o, moment m, tier t, double bytes) { o->of[WEIGHTS + m * TIERS + t] += bytes; }

static void hold_always(option *o, tier t, double bytes)
{
    hold(o, AT_HEAD, t, bytes);
    hold(o, AFTER_BACKWARD, t, bytes);
}

/* When states come for an update, and go after it: between the norm and the next head, or apart from that. Then they are in memory at the
 * norm or at that head: in the memory that the disk is read to, or on the device. */
typedef enum move_time { WITH_UPDATE, APART_IN_MEMORY, APART_ON_DEVICE, MOVE_TIMES } move_time;
typedef struct moves { move_time come, go; } moves;

static bool gradients_wait(const space *space) { return !search_may_update(space->in, UPDATE_BACKWARD); }
static bool is_staged(const space *space, tier t) { return t == TIER_HOST || space->in->host_tier; }

/* One transfer of a tensor from the device to the tier, or back. */
static void move_out(const space *space, option *o, tier t, double times, double bytes)
{
    const costs *costs = space->in->costs;
    if (is_staged(space, t))
        load(o, QUEUE_FROM_DEVICE, times * (cost_at(&costs->from_device, bytes) + costs->task_ns));
    if (t == TIER_DISK)
        load(o, QUEUE_WRITE, times * (cost_at(&costs->write, bytes) + costs->task_ns));
}

static void move_in(const space *space, option *o, tier t, double times, double bytes)
{
    const costs *costs = space->in->costs;
    if (is_staged(space, t))
        load(o, QUEUE_TO_DEVICE, times * (cost_at(&costs->to_device, bytes) + costs->task_ns));
    if (t == TIER_DISK)
        load(o, QUEUE_READ, times * (cost_at(&costs->read, bytes) + costs->task_ns));
}

static void host_disk(const space *space, option *o, double read, double written)
{
    const costs *costs = space->in->costs;
    load(o, QUEUE_READ, cost_at(&costs->read, read) + costs->task_ns);
    load(o, QUEUE_WRITE, cost_at(&costs->write, written) + costs->task_ns);
}

/* What an update of a chunk of tier t still has to do when the norm is known. */
static void wait_for_norm(const space *space, const division *d, option *o, int chunk, tier t, bool by_host, moves when)
{
    const costs *costs = space->in->costs;
    const packing *packing = &d->chunks->packing;
    const double weights = (double)chunk_weight_bytes(packing, chunk), states = (double)chunk_state_bytes(packing, chunk);
    const tier memory = space->in->host_tier ? TIER_HOST : TIER_DEVICE;
    if (by_host)
        o->of[WAIT_HOST] += chunk_update_ns(costs, space->in->model, packing, chunk, true);
    if (is_staged(space, t) && (by_host || when.come != APART_ON_DEVICE))
        o->of[WAIT_TO_DEVICE] += by_host && packing->chunks[chunk].looked_up ? 0 : cost_at(&costs->to_device, by_host ? weights : states);
    if (t == TIER_DISK && when.come == WITH_UPDATE)
        o->of[WAIT_READ] += cost_at(&costs->read, states);
    if (t == TIER_DISK && when.go == WITH_UPDATE && d->micros == d->visit)
        o->of[WAIT_WRITE] += cost_at(&costs->write, states) + cost_at(&costs->write, weights);
    if (when.come != WITH_UPDATE)
        hold(o, AFTER_BACKWARD, when.come == APART_ON_DEVICE ? TIER_DEVICE : memory, states);
    if (when.go != WITH_UPDATE)
        hold(o, AT_HEAD, when.go == APART_ON_DEVICE ? TIER_DEVICE : memory, states);
}

/* Do states move so? Those that go are asked about where a step is one visit, whose head is the moment AT_HEAD. */
static bool may_move(const space *space, const division *d, tier t, bool by_host, moves when)
{
    const bool on_device = !by_host && is_staged(space, t), disk = t == TIER_DISK;
    const bool come = when.come == WITH_UPDATE || (gradients_wait(space) && (when.come == APART_IN_MEMORY ? disk : on_device));
    const bool go = when.go == WITH_UPDATE || (gradients_wait(space) && disk && d->micros == d->visit &&
                                                (when.go == APART_IN_MEMORY || on_device));
    return come && go;
}

/* A chunk of a tier other than the device; `kept`: in a buffer whenever the direction turns. */
static option chunk_elsewhere(const space *space, const division *d, int chunk, tier t, bool by_host, bool kept, moves when)
{
    const packing *packing = &d->chunks->packing;
    const double weights = (double)chunk_weight_bytes(packing, chunk), states = (double)chunk_state_bytes(packing, chunk);
    const double gradient = (double)chunk_gradient_bytes(packing, chunk);
    const bool waits = gradients_wait(space);
    option o = {0};
    hold_always(&o, t, weights + states);
    hold(&o, AFTER_BACKWARD, t, waits ? gradient : 0);
    const bool rows = packing->chunks[chunk].looked_up; /* its weights are moved for an update alone, and its gradient is a list of rows */
    if (kept)
        hold(&o, AT_HEAD, TIER_DEVICE, weights);
    if (!rows)
        move_in(space, &o, t, kept ? 1 : chunk < d->chunks->back0 ? d->passes / 2 : d->passes, weights);
    if (!packing->chunks[chunk].trained)
        return o;
    load(&o, by_host ? QUEUE_HOST : QUEUE_COMPUTE,
         chunk_update_ns(space->in->costs, space->in->model, packing, chunk, by_host) + space->in->costs->task_ns);
    if (by_host) {
        if (!rows)
            load(&o, QUEUE_FROM_DEVICE, cost_at(&space->in->costs->from_device, gradient) + space->in->costs->task_ns);
        if (t == TIER_DISK) {
            host_disk(space, &o, states, states);
            load(&o, QUEUE_WRITE, cost_at(&space->in->costs->write, weights) + space->in->costs->task_ns);
        }
    } else {
        move_in(space, &o, t, rows, weights);
        move_in(space, &o, t, 1, states);
        move_out(space, &o, t, 1, states);
        move_out(space, &o, t, 1, weights);
    }
    if (waits)
        wait_for_norm(space, d, &o, chunk, t, by_host, when);
    if (waits && t == TIER_DISK && !rows)
        host_disk(space, &o, gradient, gradient);
    if (waits && !by_host && is_staged(space, t) && !rows) {
        load(&o, QUEUE_FROM_DEVICE, cost_at(&space->in->costs->from_device, gradient) + space->in->costs->task_ns);
        load(&o, QUEUE_TO_DEVICE, cost_at(&space->in->costs->to_device, gradient) + space->in->costs->task_ns);
    }
    return o;
}

static option chunk_on_device(const space *space, const division *d, int chunk)
{
    const packing *packing = &d->chunks->packing;
    option o = {0};
    hold_always(&o, TIER_DEVICE, (double)(chunk_weight_bytes(packing, chunk) + chunk_state_bytes(packing, chunk)));
    if (gradients_wait(space))
        hold(&o, AFTER_BACKWARD, TIER_DEVICE, (double)chunk_gradient_bytes(packing, chunk));
    if (packing->chunks[chunk].trained)
        load(&o, QUEUE_COMPUTE, chunk_update_ns(space->in->costs, space->in->model, packing, chunk, false) + space->in->costs->task_ns);
    return o;
}

static choice chunk_choice(const space *space, const division *d, int chunk)
{
    choice c = {.times = 1, .n = 1, .options = {chunk_on_device(space, d, chunk)}};
    const bool trained = d->chunks->packing.chunks[chunk].trained;
    for (tier t = TIER_HOST; t <= TIER_DISK; t++)
        for (int kept = 0; kept < 2 && space_has(space, t); kept++)
            for (int by_host = 0; by_host < (trained && space_updates_on_host(space) ? 2 : 1); by_host++)
                for (int i = 0; i < (trained ? MOVE_TIMES * MOVE_TIMES : 1); i++) {
                    const moves when = {(move_time)(i / MOVE_TIMES), (move_time)(i % MOVE_TIMES)};
                    if (may_move(space, d, t, by_host, when))
                        c.options[c.n++] = chunk_elsewhere(space, d, chunk, t, by_host, kept, when);
                }
    return c;
}

static choice layer_choice(const space *space, const division *d, int layer)
{
    const layer_cost *l = &space->in->costs->layer[space->in->costs->kind_of_layer[layer]];
    const bool passing = layer < space->passing;
    const double units = d->micros * d->per_micro, following = units - d->micros / d->visit;
    choice c = {.times = 1};
    for (int level = 0; level < (passing ? 1 : SAVE_LEVELS); level++)
        for (tier t = TIER_DEVICE; t <= (passing ? TIER_DEVICE : TIER_DISK); t++) {
            option o = {0};
            const double saved = passing ? 0 : (double)layer_set_layout(&space->layouts, layer, (save_level)level)->saved_bytes;
            if (!space_has(space, t))
                continue;
            load(&o, QUEUE_COMPUTE, units * l->forward_ns[level] - following * fmin(l->warm_forward_ns, l->forward_ns[level]));
            if (!passing)
                load(&o, QUEUE_COMPUTE,
                     units * l->backward_ns[level] - following * fmin(l->warm_backward_ns[level], l->backward_ns[level]));
            if (gradients_wait(space))
                load_before_norm(&o, (units - d->group) * l->forward_ns[level] -
                                         (following - d->group + 1) * fmin(l->warm_forward_ns, l->forward_ns[level]) +
                                         (passing ? 0 : units * l->backward_ns[level] -
                                                            following * fmin(l->warm_backward_ns[level], l->backward_ns[level])));
            hold(&o, AT_HEAD, t, saved * d->group);
            if (t != TIER_DEVICE) {
                move_out(space, &o, t, d->micros, saved * d->per_micro);
                move_in(space, &o, t, d->micros, saved * d->per_micro);
            }
            c.options[c.n++] = o;
        }
    return c;
}

/* ---- the smaller problem of one division of the step ---- */

static bool same_choice(const choice *a, const choice *b)
{
    return a->n == b->n && !memcmp(a->options, b->options, (size_t)a->n * sizeof *a->options);
}

static int add_choice(relaxed *x, choice c, pt_error *e)
{
    for (int i = x->n - 1; i >= 0; i--)
        if (same_choice(&x->choices[i], &c)) {
            x->choices[i].times++;
            return 0;
        }
    if (x->n == x->room) {
        const int room = x->room ? 2 * x->room : 32;
        choice *more = realloc(x->choices, (size_t)room * sizeof *more);
        if (!more)
            return pt_fail(e, PT_FAILED, "out of memory while bounding the time of a step");
        x->choices = more;
        x->room = room;
    }
    x->choices[x->n++] = c;
    return 0;
}

static void fill_fixed(relaxed *x, const division *d)
{
    const space *space = x->s;
    const costs *costs = space->in->costs;
    const bool grouped = d->micros > d->visit;
    memset(&x->fixed, 0, sizeof x->fixed);
    load(&x->fixed, QUEUE_COMPUTE, d->micros * d->per_micro * (costs->embed_ns + costs->head_ns) +
                                       d->micros * (2 * space->layers - space->passing + 2) * costs->task_ns +
                                       d->chunks->sum[SUM_FINISH][d->chunks->packing.chunks_n] + space->rows_finish_ns);
    if (gradients_wait(space))
        load_before_norm(&x->fixed, d->micros * d->per_micro * costs->head_ns + d->chunks->sum[SUM_FINISH][d->chunks->packing.chunks_n] +
                                        space->rows_finish_ns);
    hold_always(&x->fixed, TIER_DEVICE, (double)space->placement_bytes);
    hold(&x->fixed, AT_HEAD, TIER_DEVICE, (double)(space->head.bytes + (grouped ? space->accumulator_all : space->accumulator_head)) +
                                              (double)space->input_bytes * d->group);
}

static double least_slow(const costs *costs, cost_class a, cost_class b)
{
    return fmax(1, costs->slow[a][b] + fmin(0, costs->slow_more[a][b]) * costs_length_most(costs, a));
}

static void add_together(const costs *costs, option *o)
{
    static const struct { queue_kind a, b; cost_class of_a, of_b; } pairs[TOGETHER / 2] = {
        {QUEUE_READ, QUEUE_WRITE, COST_READ, COST_WRITE}, {QUEUE_TO_DEVICE, QUEUE_FROM_DEVICE, COST_TO_DEVICE, COST_FROM_DEVICE}};
    for (int i = 0; i < TOGETHER / 2; i++) {
        const double s = least_slow(costs, pairs[i].of_a, pairs[i].of_b), z = least_slow(costs, pairs[i].of_b, pairs[i].of_a);
        const double a = o->of[pairs[i].a], b = o->of[pairs[i].b], both = fmax(0, 1 / s + 1 / z - 1);
        o->of[QUEUES + 2 * i] = a + b - both * s * a;
        o->of[QUEUES + 2 * i + 1] = a + b - both * z * b;
    }
}

static void finish_option(const relaxed *x, option *o)
{
    add_together(x->s->in->costs, o);
    for (int m = 0; m < MULTIPLIERS; m++)
        o->of[m] *= x->unit[m];
}

static int fill_choices(relaxed *x, const division *d, pt_error *e)
{
    int failed = 0;
    x->n = 0;
    for (int i = 0; i < x->s->layers && !failed; i++)
        failed = add_choice(x, layer_choice(x->s, d, i), e);
    for (int i = 0; i < d->chunks->packing.chunks_n && !failed; i++)
        failed = add_choice(x, chunk_choice(x->s, d, i), e);
    fill_fixed(x, d);
    for (int i = 0; i < x->n; i++)
        for (int k = 0; k < x->choices[i].n; k++)
            finish_option(x, &x->choices[i].options[k]);
    finish_option(x, &x->fixed);
    return failed;
}

/* f at the multipliers. */
static double value(const relaxed *x)
{
    double f = 0;
    for (int m = 0; m < MULTIPLIERS; m++)
        f += x->at[m] * (x->fixed.of[m] - (m < WEIGHTS ? 0 : 1));
    for (int i = 0; i < x->n; i++) {
        const choice *c = &x->choices[i];
        double least = INFINITY;
        for (int k = 0; k < c->n; k++) {
            double price = 0;
            for (int m = 0; m < MULTIPLIERS; m++)
                price += x->at[m] * c->options[k].of[m];
            least = fmin(least, price);
        }
        f += c->times * least;
    }
    return f;
}

/* ---- the best multipliers ---- */

/* The columns of the linear program: the time, each choice's options, what each load and each moment's bytes are below their limit, and
 * by how much bytes are above theirs. */
enum { TIME, FIRST_OPTION, ABOVE_COST = 1000 };

static void fill_program(const relaxed *x, simplex *p, int slack)
{
    int column = FIRST_OPTION, busiest = 0;
    double most = -1;
#define AT(row, column) p->at[(size_t)(row) * (size_t)(p->columns + 1) + (size_t)(column)]
    for (int i = 0; i < x->n; i++) {
        const choice *c = &x->choices[i];
        const int row = MULTIPLIERS + i;
        p->basis[row] = column;
        AT(row, p->columns) = c->times;
        for (int k = 0; k < c->n; k++, column++) {
            AT(row, column) = 1;
            for (int m = 0; m < MULTIPLIERS; m++)
                AT(m, column) = c->options[k].of[m];
        }
    }
    for (int m = 0; m < MULTIPLIERS; m++) {
        double has = x->fixed.of[m];
        for (int i = 0; i < x->n; i++)
            has += x->choices[i].times * x->choices[i].options[0].of[m];
        AT(m, slack + m) = 1;
        p->basis[m] = slack + m;
        AT(m, p->columns) = (m < WEIGHTS ? 0 : 1) - x->fixed.of[m];
        if (m < WEIGHTS) {
            AT(m, TIME) = -1;
            busiest = has > most ? m : busiest;
            most = has > most ? has : most;
        } else {
            const int above = slack + MULTIPLIERS + m - WEIGHTS;
            AT(m, above) = -1;
            AT(p->rows, above) = ABOVE_COST;
            if (has > 1)
                p->basis[m] = above;
        }
    }
    p->basis[busiest] = TIME;
    AT(p->rows, TIME) = 1;
#undef AT
}

/* The multipliers with which f is largest, but for rounding. */
static int solve(relaxed *x, pt_error *e)
{
    int options = 0;
    for (int i = 0; i < x->n; i++)
        options += x->choices[i].n;
    const int slack = FIRST_OPTION + options;
    simplex p = {.rows = MULTIPLIERS + x->n, .columns = slack + MULTIPLIERS + MOMENTS * TIERS};
    p.at = calloc((size_t)(p.rows + 1) * (size_t)(p.columns + 1), sizeof *p.at);
    p.basis = calloc((size_t)p.rows, sizeof *p.basis);
    int failed = p.at && p.basis ? 0 : pt_fail(e, PT_FAILED, "out of memory while bounding the time of a step");
    if (!failed) {
        double sum = 0;
        fill_program(x, &p, slack);
        simplex_solve(&p, 20 * p.rows);
        const double *cost = p.at + (size_t)p.rows * (size_t)(p.columns + 1) + slack;
        for (int m = 0; m < WEIGHTS; m++)
            sum += fmax(cost[m], 0);
        for (int m = 0; m < MULTIPLIERS && sum > 0; m++)
            x->at[m] = fmax(cost[m], 0) / sum;
    }
    free(p.at);
    free(p.basis);
    return failed;
}

/* The bound of one division, or one that is above `enough`. */
static int bound_division(relaxed *x, double enough, double *bound, pt_error *e)
{
    *bound = value(x);
    if (*bound >= enough)
        return 0;
    const int failed = solve(x, e);
    *bound = fmax(*bound, value(x));
    return failed;
}

/* ---- all divisions ---- */

/* The least bound of the visits of micro-batches of so many units. */
static int bound_visits(relaxed *x, const chunking *g, int64_t units, double *least, pt_error *e)
{
    const search_input *in = x->s->in;
    const int micros = (int)(in->shape->units_n / units);
    int failed = 0;
    double bound;
    for (int visit = 1; visit <= micros && !failed; visit++) {
        if (!space_divides(in, units * visit))
            continue;
        const double per_micro = (double)units, group = per_micro * visit;
        const division d = {.chunks = g, .micros = micros, .per_micro = per_micro, .visit = visit, .group = group,
                            .passes = 2.0 * micros / visit};
        failed = fill_choices(x, &d, e);
        if (!failed)
            failed = bound_division(x, *least, &bound, e);
        if (!failed)
            *least = fmin(*least, bound);
    }
    return failed;
}

int search_bound(const search_input *in, double step_ns, double *bound_ns, pt_error *e)
{
    space space;
    relaxed x = {.s = &space};
    double least = 1;
    *bound_ns = 0;
    if (!in->training || search_ranks(in) > 1 || in->costs->network_ns)
        return 0;
    int failed = space_open(&space, in, e);
    if (failed)
        return failed;
    for (int q = 0; q < WEIGHTS; q++)
        x.unit[q] = 1 / (step_ns - in->costs->step_ns);
    for (int m = WEIGHTS; m < MULTIPLIERS; m++)
        x.unit[m] = space.budget[(m - WEIGHTS) % TIERS] ? 1 / (double)space.budget[(m - WEIGHTS) % TIERS] : 0;
    x.at[QUEUE_COMPUTE] = 1;
    for (int g = 0; g < space.chunkings_n && !failed; g++)
        for (int64_t units = in->shape->units_n; units > 0 && !failed; units--)
            if (space_divides(in, units) && space_is_asked_for(in, units))
                failed = bound_visits(&x, &space.chunkings[g], units, &least, e);
    if (!failed)
        *bound_ns = least * (step_ns - in->costs->step_ns) + in->costs->step_ns;
    free(x.choices);
    space_close(&space);
    return failed;
}
