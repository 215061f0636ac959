#include "predict/costs.h"

#include "io/disk_rows.h"
#include "model/lanes.h"

#include <math.h>
#include <string.h>

const char *const cost_class_names[COST_CLASSES] = {"math", "memory", "to_device", "from_device", "host", "read", "write"};

double cost_at(const cost_curve *curve, double amount)
{
    const double *x = curve->amount, *y = curve->ns;
    int last = curve->n - 1, i = 1;
    if (last < 0)
        return 0;
    if (amount <= x[0])
        return y[0];
    if (last == 0)
        return y[0] * (amount / x[0]);
    while (i < last && x[i] < amount)
        i++;
    return y[i - 1] + (y[i] - y[i - 1]) * ((amount - x[i - 1]) / (x[i] - x[i - 1]));
}

cost_class task_class(const task *t)
{
    switch (t->queue) {
    case QUEUE_TO_DEVICE: return COST_TO_DEVICE;
    case QUEUE_FROM_DEVICE: return COST_FROM_DEVICE;
    case QUEUE_HOST: return COST_HOST;
    case QUEUE_READ: return COST_READ;
    case QUEUE_WRITE: return COST_WRITE;
    case QUEUE_RANKS: /* the same classes as copies */
        return t->kind == TASK_GATHER || t->kind == TASK_HEADS ? COST_TO_DEVICE : COST_FROM_DEVICE;
    default: break;
    }
    switch (t->kind) {
    case TASK_EMBED: case TASK_FINISH: case TASK_EMBED_FINISH: case TASK_ROWS_FINISH: case TASK_EMBED_BACKWARD:
    case TASK_UPDATE: return COST_MEMORY;
    default: return COST_MATH;
    }
}

void costs_init(costs *costs)
{
    memset(costs, 0, sizeof *costs);
    costs->kinds_n = 1;
    for (int a = 0; a < COST_CLASSES; a++)
        for (int b = 0; b < COST_CLASSES; b++)
            costs->slow[a][b] = 1;
}

void layer_cost_order(layer_cost *c, double certain_to)
{
    const double little = 0.01; /* more than what the search takes for equally fast */
    for (int level = SAVE_ALL - 1; level >= 0 && c->backward_ns[SAVE_ALL] > 0; level--) {
        const double all = c->forward_ns[level + 1] + c->backward_ns[level + 1], gain = all - c->forward_ns[level] - c->backward_ns[level];
        if (gain > 0 && gain <= certain_to * all)
            c->backward_ns[level] += gain + little * all;
    }
}

double costs_length_share(const costs *costs, cost_class a, double alone_ns)
{
    const double from = costs->slow_ns[a][0], to = costs->slow_ns[a][1];
    if (to <= 0 || (to > from ? alone_ns <= from : alone_ns >= from))
        return 0;
    if (to < from && alone_ns <= to)
        return 1;
    return to / (to - from) * (1 - from / alone_ns);
}

double costs_length_most(const costs *costs, cost_class a)
{
    return fmax(costs_length_share(costs, a, 0), costs_length_share(costs, a, INFINITY));
}

double costs_slow(const costs *costs, cost_class a, cost_class b, double alone_ns)
{
    return costs->slow[a][b] + costs_length_share(costs, a, alone_ns) * costs->slow_more[a][b];
}

/* ---- one task ---- */

static double operand_bytes(const schedule *sched, const task *t)
{
    double bytes = 0;
    for (int i = t->operand0; i < t->operand0 + t->operands_n; i++)
        bytes += (double)sched->buffers[sched->operands[i].buffer].bytes;
    return bytes;
}

static double operand_of_kind(const schedule *sched, const task *t, object_kind kind)
{
    double bytes = 0;
    for (int i = t->operand0; i < t->operand0 + t->operands_n; i++)
        bytes += sched->buffers[sched->operands[i].buffer].kind == kind ? (double)sched->buffers[sched->operands[i].buffer].bytes : 0;
    return bytes;
}

double listed_share(const model *m, const packing *packing) { return (double)packing->rows_most / (double)m->config.vocab; }

double block_finish_ns(const costs *costs, const model *m, const packing *packing, int chunk, int block)
{
    const double share = chunk_has_rows(packing, chunk) ? listed_share(m, packing) : 1;
    double each = 0, all = 0;
    for (int i = 0; i < packing->chunks[chunk].pieces_n && packing->chunks[chunk].trained; i++) {
        const piece *part = chunk_piece(packing, chunk, i);
        const param *p = &m->params[part->param];
        const double values = p->block == block ? share * (double)(part->own_rows * p->cols) : 0;
        each += values > 0 ? cost_at(&costs->finish, values) : 0;
        all += values;
    }
    return block || all == 0 || packing->ranks > 1 ? each : cost_at(&costs->embed_finish, all);
}

double ranks_sums_ns(const costs *costs, const model *m, const packing *packing, int chunk, int block)
{
    const double most = (double)partial_floats(packing, m, block, chunk);
    const double listed = listed_share(m, packing) * (double)packing->chunks[chunk].shard_elements;
    const double floats = chunk_has_rows(packing, chunk) ? fmin(listed, most) : most;
    const bool tied = block == 0 && chunk_has_tied_rows(packing, m, chunk);
    const double second = 2.0 / 3, additions = tied ? 2 * (packing->ranks - 1) : packing->ranks - 2;
    return packing->ranks > 1 && floats > 0 ? additions * cost_at(&costs->finish, 2 * floats) + second * cost_at(&costs->finish, floats)
                                            : 0;
}

static const layer_cost *layer_of(const costs *costs, const task *t) { return &costs->layer[costs->kind_of_layer[t->block - 1]]; }

static save_level level_of(const schedule_input *in, const task *t) { return in->plan->blocks[t->block - 1].level; }

static double transfer_ns(const costs *costs, const schedule *sched, const task *t)
{
    const double bytes = (double)sched->buffers[sched->operands[t->operand0].buffer].bytes;
    switch (t->queue) {
    case QUEUE_READ: return cost_at(&costs->read, bytes);
    case QUEUE_WRITE: return cost_at(&costs->write, bytes);
    case QUEUE_TO_DEVICE: return cost_at(&costs->to_device, bytes);
    default: return cost_at(&costs->from_device, bytes);
    }
}

/* Rules that were not timed take longer in proportion to the bytes that they move. */
static double span_update_ns(const costs *costs, const packing *packing, const update_span *one, bool on_host)
{
    const update_rule *timed = packing->optimizer->rules[0];
    if (one->rule->flops)
        return cost_at(on_host ? &costs->whole_host : &costs->whole_device,
                       one->rule->flops(one->param) * (double)one->values / (double)(one->param->rows * one->param->cols));
    const double ns = cost_at(on_host ? &costs->update_host : &costs->update_device, (double)one->values);
    return one->rule == timed ? ns : ns * rule_bytes(one->rule, packing->type) / rule_bytes(timed, packing->type);
}

double chunk_update_ns(const costs *costs, const model *m, const packing *packing, int chunk, bool on_host)
{
    double ns = 0;
    update_span one;
    for (int at = packing->chunks[chunk].piece0; update_span_next(m, packing, chunk, &at, &one);)
        ns += span_update_ns(costs, packing, &one, on_host);
    const double written = (double)update_gradient_bytes(packing, chunk);
    if (written > 0)
        ns += on_host ? cost_at(&costs->to_device, written) : cost_at(&costs->finish, written / (double)dtype_bytes(packing->type));
    return ns;
}

static bool begins_visit_of_several(const schedule_input *in, const task *t)
{
    const plan *plan = in->plan;
    return in->shape->batch / plan->micro_batch > plan->visit && t->micro % plan->visit == 0;
}

static const buffer *accumulator_of(const schedule *sched, const task *t)
{
    for (int i = t->operand0; i < t->operand0 + t->operands_n; i++)
        if (sched->buffers[sched->operands[i].buffer].kind == OBJECT_ACCUMULATOR)
            return &sched->buffers[sched->operands[i].buffer];
    return NULL;
}

/* The share of its sums that lies where the backward before left none, so that they come from memory. */
static double cold_share(const schedule *sched, const task *t)
{
    const buffer *now = accumulator_of(sched, t), *before = NULL;
    if (!now)
        return 0;
    for (const task *u = t; !before && u > sched->tasks;)
        before = (--u)->kind == TASK_LAYER_BACKWARD ? accumulator_of(sched, u) : NULL;
    if (!before)
        return 1;
    const uint64_t from = now->offset > before->offset ? now->offset : before->offset;
    const uint64_t now_end = now->offset + now->bytes, before_end = before->offset + before->bytes;
    const uint64_t to = now_end < before_end ? now_end : before_end;
    return to > from ? 1 - (double)(to - from) / (double)now->bytes : 1;
}

/* Number of units of a layer's task that follow another unit of their visit. In an evaluation, each micro-batch passes all layers. */
static double following_units(const schedule_input *in, const schedule *sched, const task *t)
{
    const int visit = sched->kind == SCHEDULE_EVAL ? 1 : in->plan->visit;
    return (double)(sched->micro_units - (t->micro % visit == 0));
}

double layer_task_ns(const costs *costs, const schedule_input *in, const schedule *sched, const task *t, save_level level)
{
    const layer_cost *l = layer_of(costs, t);
    const bool forward = t->kind == TASK_LAYER;
    const double one = forward ? l->forward_ns[level] : l->backward_ns[level];
    const double warm = fmin(forward ? l->warm_forward_ns : l->warm_backward_ns[level], one);
    const double cold = forward ? 0 : cold_share(sched, t) * (t->first ? l->first_accumulators_ns : l->cold_accumulators_ns);
    return ((double)sched->micro_units * one - following_units(in, sched, t) * warm + cold) * t->share;
}

/* With pairs, the losses are computed once before the gradients. */
static double pairs_ns(const costs *costs, const schedule_input *in) { return shape_compares(in->shape) ? costs->head_eval_ns : 0; }
/* Additions of lanes after the units of the task; each moves twice the bytes of the rounding of such a sum. */
static double merge_ns(const costs *costs, const schedule_input *in, const schedule *sched, const task *t)
{
    const int64_t elements = shape_lanes(in->shape) > 1 ? accumulator_elements(in->model, t->block) : 0;
    int merges = 0;
    for (int64_t i = 0; elements && i < sched->micro_units; i++)
        merges += lane_place_of_unit(in->shape, t->micro * sched->micro_units + i).merges;
    return merges ? merges * cost_at(&costs->finish, 2 * (double)elements) : 0;
}

double listed_bytes(const model *m, const step_shape *shape, const packing *packing, int chunk)
{
    const double share = shape->gpu ? listed_share(m, packing) : fmin((double)(shape->batch * shape->seq_len) / (double)m->config.vocab, 1);
    return share * (double)packing->chunks[chunk].elements * sizeof(float);
}

double untouched_bytes(const model *m, const step_shape *shape, const packing *packing, int chunk)
{
    const int table = m->blocks[0].param_of_role[PARAM_TOKENS];
    const param *a = &m->params[table];
    const double part = fmin((double)(shape->batch * shape->seq_len) / (double)a->rows, 1);
    double bytes = 0;
    for (int i = 0; !shape->gpu && a->trainable && i < packing->chunks[chunk].pieces_n; i++)
        if (chunk_piece(packing, chunk, i)->param == table)
            bytes += (1 - part) * (double)(chunk_piece(packing, chunk, i)->rows * a->cols) * sizeof(float);
    return bytes;
}

/* The sums of all ranks. */
static double scattered_bytes(const schedule_input *in, const schedule *sched, const task *t)
{
    if (!t->block && chunk_has_rows(in->packing, t->chunk))
        return fmax(listed_bytes(in->model, in->shape, in->packing, t->chunk), 1);
    const double untouched = t->block ? 0 : untouched_bytes(in->model, in->shape, in->packing, t->chunk);
    return fmax(operand_of_kind(sched, t, OBJECT_PARTIAL) - untouched, 1);
}

/* On CPUs the rank's own part is copied once; what it sends and what it receives are copied once each, too. */
static double tied_bytes(const schedule_input *in, const schedule *sched, const task *t)
{
    const double others = in->packing->ranks - 1, bytes = operand_of_kind(sched, t, OBJECT_PARTIAL_TIED);
    return in->shape->gpu ? bytes : bytes * (1 + 1 / (2 * others));
}

/* Without the rounding, which is a task of its own if there are several ranks. */
static double embed_backward_ns(const costs *costs, double elements)
{
    return fmax(cost_at(&costs->embed_finish, elements) - cost_at(&costs->finish, elements), 0);
}

double rows_finish_ns(const costs *costs, const model *m, const step_shape *shape)
{
    return cost_at(&costs->embed_finish, (double)(listed_rows_most(m, shape) * m->config.layers * m->config.input_width));
}

/* On the host the rows are copied, which moves as many bytes as a copy to the device. */
double rows_look_up_ns(const costs *costs, const model *m, const step_shape *shape, int64_t units, bool from_disk)
{
    const double rows = (double)(units * shape->unit_rows);
    const size_t row_bytes = (size_t)(schedule_rows_bytes(m, shape) / (uint64_t)shape->unit_rows);
    return cost_at(from_disk ? &costs->read : &costs->to_device, rows * (double)(from_disk ? disk_row_blocks(row_bytes) : row_bytes));
}

double heads_exchange_ns(const costs *costs, const step_shape *shape, double bytes)
{
    const double sharers = shape_sharers(shape), ranks = shape_ranks(shape);
    return cost_at(&costs->gather, bytes * (1 - 1 / sharers) / (1 - 1 / ranks));
}

static double work_ns(const costs *costs, const schedule_input *in, const schedule *sched, const task *t)
{
    const double units = (double)sched->micro_units;
    switch (t->kind) {
    case TASK_LOOK_UP: return rows_look_up_ns(costs, in->model, in->shape, sched->micro_units, t->queue == QUEUE_READ);
    case TASK_EMBED: return units * costs->embed_ns;
    case TASK_LAYER: return layer_task_ns(costs, in, sched, t, level_of(in, t));
    case TASK_LAYER_BACKWARD: return layer_task_ns(costs, in, sched, t, level_of(in, t)) + merge_ns(costs, in, sched, t) * t->share;
    case TASK_HEAD:
        return units * (costs->head_ns + pairs_ns(costs, in)) +
               (t->micro && begins_visit_of_several(in, t) ? costs->head_cold_accumulators_ns : 0) + merge_ns(costs, in, sched, t);
    case TASK_HEAD_EVAL: return units * costs->head_eval_ns;
    case TASK_FINISH: case TASK_EMBED_FINISH:
        return block_finish_ns(costs, in->model, in->packing, t->chunk, t->block) +
               ranks_sums_ns(costs, in->model, in->packing, t->chunk, t->block);
    case TASK_ROWS_FINISH: return rows_finish_ns(costs, in->model, in->shape);
    case TASK_UPDATE: return chunk_update_ns(costs, in->model, in->packing, t->chunk, t->queue == QUEUE_HOST);
    case TASK_INPUT: return cost_at(&costs->to_device, operand_bytes(sched, t));
    case TASK_OUTPUT: return cost_at(&costs->from_device, operand_bytes(sched, t));
    case TASK_EMBED_BACKWARD: return embed_backward_ns(costs, (double)accumulator_elements(in->model, 0));
    case TASK_SCATTER: return cost_at(&costs->scatter, scattered_bytes(in, sched, t));
    case TASK_SCATTER_TIED: return cost_at(&costs->scatter, tied_bytes(in, sched, t));
    case TASK_HEADS: return heads_exchange_ns(costs, in->shape, (double)t->bytes);
    case TASK_GATHER: return cost_at(&costs->gather, operand_of_kind(sched, t, OBJECT_WEIGHTS));
    default: return transfer_ns(costs, sched, t);
    }
}

double costs_task_ns(const costs *costs, const schedule_input *in, const schedule *sched, const task *t)
{
    return costs->task_ns + (costs->network_ns ? costs->network_ns(costs->network, sched, t) : work_ns(costs, in, sched, t));
}

/* ---- validate ---- */

/* Is it a valid time of a task or a part of one? At most eleven days, so that sums and products stay finite. */
static bool is_time(double ns) { return ns >= 0 && ns <= 1e15; }

/* Bytes or elements, stored as whole numbers. */
static bool is_amount(double amount) { return amount >= 1 && amount <= 0x1p53 && amount == floor(amount); }

static int validate_curve(const cost_curve *curve, const char *key, const char *name, pt_error *e)
{
    if (curve->n < 0 || curve->n > COST_POINTS)
        return pt_fail(e, PT_FAILED, "%s: \"%s\" has %d points; 0 to %d are possible, measure again", name, key, curve->n, COST_POINTS);
    for (int i = 0; i < curve->n; i++) {
        if (!is_amount(curve->amount[i]) || (i && curve->amount[i] <= curve->amount[i - 1]))
            return pt_fail(e, PT_FAILED, "%s: \"%s\": the amount of point %d is %g; amounts are whole numbers from 1 to 2^53 and ascend, "
                                         "measure again", name, key, i, curve->amount[i]);
        if (!is_time(curve->ns[i]) || (i && curve->ns[i] < curve->ns[i - 1]))
            return pt_fail(e, PT_FAILED, "%s: \"%s\": the time of point %d is %g ns; times are from 0 to 1e15 and more never takes less, "
                                         "measure again", name, key, i, curve->ns[i]);
    }
    return 0;
}

static int validate_curves(const costs *costs, const char *name, pt_error *e)
{
    const struct { const char *key; const cost_curve *curve; } all[] = {
        {"finish", &costs->finish}, {"embed_finish", &costs->embed_finish}, {"update_device", &costs->update_device},
        {"update_host", &costs->update_host}, {"to_device", &costs->to_device}, {"from_device", &costs->from_device},
        {"whole_device", &costs->whole_device}, {"whole_host", &costs->whole_host}, {"read", &costs->read}, {"write", &costs->write},
        {"waking", &costs->wake_latency},
        {"gather", &costs->gather}, {"scatter", &costs->scatter}};
    int failed = 0;
    for (size_t i = 0; i < sizeof all / sizeof *all && !failed; i++)
        failed = validate_curve(all[i].curve, all[i].key, name, e);
    return failed;
}

static int validate_layers(const costs *costs, const model *m, const char *name, pt_error *e)
{
    if (costs->kinds_n < 1 || costs->kinds_n > COST_LAYER_KINDS)
        return pt_fail(e, PT_FAILED, "%s: there are %d kinds of layer; 1 to %d are possible, measure again", name, costs->kinds_n,
                       COST_LAYER_KINDS);
    for (int64_t i = 0; i < m->config.layers; i++)
        if (costs->kind_of_layer[i] >= costs->kinds_n)
            return pt_fail(e, PT_FAILED, "%s: layer %lld is of kind %d, and there are %d; measure again", name, (long long)i,
                           costs->kind_of_layer[i], costs->kinds_n);
    for (int k = 0; k < costs->kinds_n; k++) {
        const layer_cost *l = &costs->layer[k];
        const struct { const char *key; double ns; } all[] = {{"first_sums_ns", l->first_accumulators_ns},
            {"cold_sums_ns", l->cold_accumulators_ns},
                                                              {"warm_forward_ns", l->warm_forward_ns}};
        for (size_t i = 0; i < sizeof all / sizeof *all; i++)
            if (!is_time(all[i].ns))
                return pt_fail(e, PT_FAILED, "%s: layers of kind %d: \"%s\" is %g; it must be from 0 to 1e15, measure again", name,
                               k, all[i].key, all[i].ns);
    }
    for (int k = 0; k < costs->kinds_n; k++)
        for (int level = 0; level < SAVE_LEVELS; level++)
            if (!is_time(costs->layer[k].forward_ns[level]) || !is_time(costs->layer[k].backward_ns[level]) ||
                !is_time(costs->layer[k].warm_backward_ns[level]))
                return pt_fail(e, PT_FAILED,
                               "%s: layers of kind %d take %g ns forward and %g ns backward at save level %d, "
                               "\"warm_backward_ns\" %g; times are from 0 to 1e15, measure again",
                               name, k, costs->layer[k].forward_ns[level], costs->layer[k].backward_ns[level], level,
                               costs->layer[k].warm_backward_ns[level]);
    return 0;
}

static int validate_numbers(const costs *costs, const char *name, pt_error *e)
{
    const struct { const char *key; double value; } all[] = {
        {"embed_ns", costs->embed_ns}, {"head_ns", costs->head_ns}, {"head_eval_ns", costs->head_eval_ns},
        {"head_cold_sums_ns", costs->head_cold_accumulators_ns},
        {"task_ns", costs->task_ns},   {"step_ns", costs->step_ns}, {"spread", costs->spread}, {"curves_spread", costs->curves_spread}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!is_time(all[i].value))
            return pt_fail(e, PT_FAILED, "%s: \"%s\" is %g; it must be from 0 to 1e15, measure again", name, all[i].key,
                           all[i].value);
    return 0;
}

static int validate_slow(const costs *costs, const char *name, pt_error *e)
{
    for (int a = 0; a < COST_CLASSES; a++) {
        for (int b = 0; b < COST_CLASSES; b++) {
            if (!(costs->slow[a][b] >= 1) || !isfinite(costs->slow[a][b]))
                return pt_fail(e, PT_FAILED, "%s: %s beside %s takes %g times as long; it must be finite and at least 1, measure again",
                               name, cost_class_names[a], cost_class_names[b], costs->slow[a][b]);
            if (!is_time(fabs(costs->slow_more[a][b])))
                return pt_fail(e, PT_FAILED, "%s: of another length %s beside %s takes %g times as long more; it must be from -1e15 to "
                               "1e15, measure again", name, cost_class_names[a], cost_class_names[b], costs->slow_more[a][b]);
        }
        const double from = costs->slow_ns[a][0], to = costs->slow_ns[a][1];
        if (!is_time(from) || !is_time(to) || (to > 0 && !(fmax(from, to) >= COST_LENGTHS_LEAST * fmin(from, to))))
            return pt_fail(e, PT_FAILED, "%s: one %s is of %g ns, the other of %g; one of both has to be a quarter longer at least, "
                           "measure again", name, cost_class_names[a], from, to);
        for (int b = 0; b < COST_CLASSES; b++) {
            const double least = costs->slow[a][b] + costs_length_most(costs, (cost_class)a) * fmin(costs->slow_more[a][b], 0);
            if (!(least >= 1 - 2e-6 * costs->slow[a][b])) /* the digits of a file are rounded */
                return pt_fail(e, PT_FAILED, "%s: of some length %s beside %s takes %g times as long; it must be at least 1, measure again",
                               name, cost_class_names[a], cost_class_names[b], least);
        }
    }
    return 0;
}

static int validate_quota(const costs *costs, const char *name, pt_error *e)
{
    const cost_quota *q = &costs->quota;
    if (q->period_ns == 0)
        return 0;
    if (!(q->period_ns >= 1e6 && q->period_ns <= 1e10))
        return pt_fail(e, PT_FAILED, "%s: \"quota\": its period is %g ns; 0 for none, or 1e6 to 1e10, measure again", name, q->period_ns);
    if (!(q->processors >= 1 && q->processors <= 1e6))
        return pt_fail(e, PT_FAILED, "%s: \"quota\": %g processors; 1 to 1e6 are possible, measure again", name, q->processors);
    for (int a = 0; a < COST_CLASSES; a++)
        if (!(q->busy[a] >= 0 && q->busy[a] <= 1e6))
            return pt_fail(e, PT_FAILED, "%s: \"quota\": %s keeps %g processors busy; 0 to 1e6 are possible, measure again", name,
                           cost_class_names[a], q->busy[a]);
    return 0;
}

int costs_validate(const costs *costs, const model *m, const char *name, pt_error *e)
{
    int failed = validate_layers(costs, m, name, e);
    if (!failed)
        failed = validate_curves(costs, name, e);
    if (!failed)
        failed = validate_numbers(costs, name, e);
    if (!failed)
        failed = validate_slow(costs, name, e);
    if (!failed)
        failed = validate_quota(costs, name, e);
    return failed;
}
