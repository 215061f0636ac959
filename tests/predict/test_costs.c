#include "predict/random_costs.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static bool near(double a, double b) { return fabs(a - b) <= 1e-9 * (fabs(a) + fabs(b) + 1); }

static void curves_are_straight_between_their_points(void **state)
{
    (void)state;
    cost_curve none = {0}, one = {1, {10}, {50}}, three = {3, {10, 20, 40}, {50, 80, 100}};
    assert_true(cost_at(&none, 7) == 0);
    assert_true(near(cost_at(&one, 3), 50) && near(cost_at(&one, 10), 50) && near(cost_at(&one, 30), 150));
    assert_true(near(cost_at(&three, 0), 50) && near(cost_at(&three, 15), 65) && near(cost_at(&three, 20), 80));
    assert_true(near(cost_at(&three, 30), 90) && near(cost_at(&three, 40), 100) && near(cost_at(&three, 60), 120));
}

/* Every point itself, and never less for more. */
static void random_curves_pass_their_points_and_ascend(void **state)
{
    (void)state;
    random_source r = random_open();
    for (int i = 0; i < 2000; i++) {
        cost_curve c = random_curve(&r, random_ns(&r, 0.01, 3));
        double last = 0;
        for (int k = 0; k < c.n; k++)
            assert_true(near(cost_at(&c, c.amount[k]), c.ns[k]));
        for (double x = 0; x < 2 * c.amount[c.n - 1]; x += c.amount[c.n - 1] / 37) {
            assert_true(cost_at(&c, x) >= last - 1e-6);
            last = cost_at(&c, x);
        }
    }
}

static double bytes_of(const schedule *s, const task *t, int operand) {
    return (double)s->buffers[s->operands[t->operand0 + operand].buffer].bytes; }

static double copy_ns(const costs *c, const schedule *s, const task *t)
{
    return cost_at(t->queue == QUEUE_TO_DEVICE ? &c->to_device : &c->from_device, bytes_of(s, t, 1));
}

/* As many values as an op of this rule may end with where another parameter is to follow. */
static int64_t block_of(const update_rule *r)
{
    int64_t most = 32;
    for (int i = 0; i < rule_slabs(r); i++)
        most = r->slabs[i].values > most ? r->slabs[i].values : most;
    return most;
}

/* By FLOPs, or by values, as much longer as the rule moves more than the one that was timed. */
static double update_ns(const costs *c, const packing *k, const update_rule *r, const param *a, int64_t values, bool on_host)
{
    if (r->flops)
        return cost_at(on_host ? &c->whole_host : &c->whole_device, r->flops(a) * (double)values / (double)(a->rows * a->cols));
    const double ns = cost_at(on_host ? &c->update_host : &c->update_device, (double)values);
    return ns * rule_bytes(r, k->type) / rule_bytes(k->optimizer->rules[0], k->type);
}

/* An op takes bf16 matrices of one rule that follow each other without a gap, or one parameter that stays fp32; in fp32 all that is
 * decayed alike. */
static double updates_ns(const costs *c, const schedule_input *in, int chunk, bool on_host)
{
    const packing *k = in->packing;
    const int pieces = k->chunks[chunk].pieces_n;
    double ns = 0;
    for (int i = 0, next; i < pieces; i = next) {
        const param *a = &in->model->params[chunk_piece(k, chunk, i)->param], *b;
        const update_rule *r = k->optimizer->rule_of(a);
        int64_t values = chunk_piece(k, chunk, i)->rows * a->cols;
        for (next = i + 1; !r->whole && next < pieces; next++) {
            b = &in->model->params[chunk_piece(k, chunk, next)->param];
            bool alone = param_type(a, k->type) != k->type || param_type(b, k->type) != k->type;
            if (alone || a->decay != b->decay || values % block_of(r) || k->optimizer->rule_of(b) != r)
                break;
            values += chunk_piece(k, chunk, next)->rows * b->cols;
        }
        ns += update_ns(c, k, r, a, values, on_host);
    }
    return ns;
}

/* An op for each parameter, or its part in the chunk; an embedding's tables by all that is finished of them. */
static double finishes_ns(const costs *c, const schedule_input *in, const task *t, double *elements)
{
    const packing *k = in->packing;
    double ns = 0;
    *elements = 0;
    for (int i = 0; i < k->chunks[t->chunk].pieces_n; i++) {
        const piece *p = chunk_piece(k, t->chunk, i);
        const param *a = &in->model->params[p->param];
        if (a->block != t->block)
            continue;
        ns += cost_at(&c->finish, (double)(p->rows * a->cols));
        *elements += (double)(p->rows * a->cols);
    }
    return t->kind == TASK_FINISH ? ns : cost_at(&c->embed_finish, *elements);
}

static bool begins_a_visit_of_several(const schedule_input *in, const task *t)
{
    const int64_t micros = in->shape->batch / in->plan->micro_batch;
    return in->plan->visit < micros && t->micro % in->plan->visit == 0;
}

static const buffer *gradient_sums(const schedule *s, const task *t)
{
    for (int i = 0; i < t->operands_n; i++) {
        const buffer *b = &s->buffers[s->operands[t->operand0 + i].buffer];
        if (b->kind == OBJECT_ACCUMULATOR)
            return b;
    }
    return NULL;
}

/* Counted byte by byte, of a task's sums and those that the backward before it has left: all, where there was none. */
static double share_elsewhere(const schedule *s, const task *t)
{
    const buffer *b = gradient_sums(s, t), *last = NULL;
    for (const task *u = s->tasks; u < t; u++)
        last = u->kind == TASK_LAYER_BACKWARD && gradient_sums(s, u) ? gradient_sums(s, u) : last;
    double elsewhere = 0;
    for (uint64_t i = 0; b && i < b->bytes; i++)
        elsewhere += !last || b->offset + i < last->offset || b->offset + i >= last->offset + last->bytes;
    return b ? elsewhere / (double)b->bytes : 0;
}

/* Lanes that end in the task, counted from the tree: the sum behind lane l takes in as many as l + 1 has zeros at its end, and the last
 * takes in all that are left. */
static double merges_ns(const costs *c, const schedule_input *in, const schedule *s, const task *t)
{
    const int lanes = shape_lanes(in->shape);
    const int64_t each = in->shape->units_n / lanes, first = t->micro * s->micro_units;
    int merges = 0;
    for (int64_t unit = first; unit < first + s->micro_units; unit++)
        for (int64_t lane = (unit + 1) / each, ones = 0; (unit + 1) % each == 0 && lane > 0;) {
            for (int64_t l = lane - 1; l > 0; l /= 2)
                ones += l % 2;
            for (int64_t l = lane; lane < lanes && l % 2 == 0; l /= 2)
                merges++;
            merges += lane == lanes ? (int)ones : 0;
            break;
        }
    const double elements = (double)accumulator_elements(in->model, t->block);
    return elements > 0 && merges ? merges * cost_at(&c->finish, 2 * elements) : 0;
}

static double all_bytes_of(const schedule *s, const task *t)
{
    double sum = 0;
    for (int i = 0; i < t->operands_n; i++)
        sum += bytes_of(s, t, i);
    return sum;
}

/* Rows of all layers' inputs; from the disk each with the blocks around it. */
static double look_up_ns(const costs *c, const schedule_input *in, const schedule *s, const task *t)
{
    const double rows = (double)(s->micro_units * in->shape->unit_rows), bytes = bytes_of(s, t, t->operands_n - 1) / rows;
    return t->queue == QUEUE_HOST ? cost_at(&c->to_device, rows * bytes) : cost_at(&c->read, rows * (ceil(bytes / 4096) + 1) * 4096);
}

/* The gradient of a trained table of layers' inputs, which an update writes out. */
static double written_ns(const costs *c, const schedule_input *in, const task *t)
{
    const chunk_t *k = &in->packing->chunks[t->chunk];
    const double values = k->trained && k->looked_up ? (double)k->elements : 0;
    const double bytes = values * (double)dtype_bytes(in->shape->type);
    return values > 0 ? t->queue == QUEUE_HOST ? cost_at(&c->to_device, bytes) : cost_at(&c->finish, values) : 0;
}

/* A row for each token, but no more than there are; all rows of the table are finished with them. */
static double rows_finished_ns(const costs *c, const schedule_input *in, double *elements)
{
    const double cols = (double)(in->model->config.layers * in->model->config.input_width), vocab = (double)in->model->config.vocab;
    *elements = vocab * cols;
    return cost_at(&c->embed_finish, fmin((double)(in->shape->batch * in->shape->seq_len), vocab) * cols);
}

/* What the header says of each kind of task, written out once more. */
static double expected_ns(const costs *c, const schedule_input *in, const schedule *s, const task *t, double *finished)
{
    const layer_cost *l = t->kind == TASK_LAYER || t->kind == TASK_LAYER_BACKWARD ? &c->layer[c->kind_of_layer[t->block - 1]] : NULL;
    int level = l ? (int)in->plan->blocks[t->block - 1].level : 0;
    const double follow = (double)s->micro_units - (s->kind != SCHEDULE_EVAL && t->micro % in->plan->visit ? 0 : 1);
    double units = (double)s->micro_units;
    switch (t->kind) {
    case TASK_EMBED: return units * c->embed_ns;
    case TASK_LOOK_UP: return look_up_ns(c, in, s, t);
    case TASK_LAYER:
        return (units * l->forward_ns[level] - follow * fmin(l->warm_forward_ns, l->forward_ns[level])) * t->share;
    case TASK_LAYER_BACKWARD:
        return (units * l->backward_ns[level] - follow * fmin(l->warm_backward_ns[level], l->backward_ns[level]) +
                share_elsewhere(s, t) * (t->first ? l->first_accumulators_ns : l->cold_accumulators_ns)) * t->share +
               merges_ns(c, in, s, t) * t->share;
    case TASK_HEAD: return units * c->head_ns + (begins_a_visit_of_several(in, t) &&
                                                 t->micro ? c->head_cold_accumulators_ns : 0) + merges_ns(c, in, s, t);
    case TASK_HEAD_EVAL: return units * c->head_eval_ns;
    case TASK_UPDATE: return updates_ns(c, in, t->chunk, t->queue == QUEUE_HOST) + written_ns(c, in, t);
    case TASK_ROWS_FINISH: return rows_finished_ns(c, in, finished);
    case TASK_READ: return cost_at(&c->read, bytes_of(s, t, 1));
    case TASK_WRITE: return cost_at(&c->write, bytes_of(s, t, 1));
    case TASK_INPUT: return cost_at(&c->to_device, bytes_of(s, t, 0));
    case TASK_COPY: return copy_ns(c, s, t);
    case TASK_OUTPUT: return cost_at(&c->from_device, all_bytes_of(s, t));
    default: return finishes_ns(c, in, t, finished);
    }
}

/* Constants have gradients, too, all 0. */
static double trained_values(const model *m)
{
    double n = 0;
    for (int i = 0; i < m->params_n; i++)
        n += m->params[i].trainable ? (double)(m->params[i].rows * m->params[i].cols) : 0;
    return n;
}

/* The parts of a layer share its time. */
static void check_parts(const schedule_input *in, const schedule *s)
{
    double shares = 0, layers = 0;
    for (const task *t = s->tasks; t < s->tasks + s->tasks_n; t++)
        if (t->kind == TASK_LAYER || t->kind == TASK_LAYER_BACKWARD) {
            shares += t->share;
            layers += t->part == 0;
        }
    assert_true(near(shares, layers));
}

/* Every kind of task has its price; and what is finished of a chunk adds up to the chunk's parameters. */
static void every_task_has_its_price(void **state)
{
    (void)state;
    random_source all = random_open();
    int seen[TASK_KINDS] = {0}, shares[3] = {0}; /* of sums that lie elsewhere: none, some, all */
    for (uint64_t i = 0; i < 400 || (!(seen[TASK_LOOK_UP] && seen[TASK_ROWS_FINISH]) && i < 4000); i++) { /* few models have such a table */
        random_source r = random_fork(&all, i);
        random_case c;
        schedule s;
        pt_error e = {0};
        assert_int_equal(random_case_open(&r, &c, &e), 0);
        costs k = random_costs(&r, c.model, true);
        double finished = 0, per_task = k.task_ns;
        schedule_kind kind = random_kind(&r, &c);
        if (!schedule_build(&c.input, kind, &s, &e)) {
            check_parts(&c.input, &s);
            for (int j = 0; j < s.tasks_n; j++) {
                const task *t = &s.tasks[j];
                double elements = 0, ns = costs_task_ns(&k, &c.input, &s, t), expected = expected_ns(&k, &c.input, &s, t, &elements);
                seen[t->kind]++;
                if (t->kind == TASK_LAYER_BACKWARD) {
                    const double share = share_elsewhere(&s, t);
                    shares[share > 0 ? share < 1 ? 1 : 2 : 0]++;
                }
                finished += elements;
                if (!near(ns, expected + per_task))
                    fail_msg("case %llu, task %d (%s): %g ns, not %g", (unsigned long long)i, j, task_names[t->kind], ns,
                             expected + per_task);
            }
            if (kind == SCHEDULE_STEP || kind == SCHEDULE_STEP_UPDATE)
                assert_true(finished == trained_values(c.model));
            schedule_free(&s);
        }
        random_case_close(&c);
    }
    for (int k = 0; k < TASK_EMBED_BACKWARD; k++) /* behind it what only several ranks have */
        assert_true(seen[k] > 0);
    assert_true(shares[0] > 0 && shares[1] > 0 && shares[2] > 0);
}

/* Of the embedding's tables, a CPU sends as many rows as there are tokens; of the table of layers' inputs, a GPU those of all tokens. */
static double sent_bytes(const random_case *c, const task *t)
{
    const double tokens = (double)(c->shape.batch * c->shape.seq_len), vocab = (double)c->model->config.vocab;
    double rows = 0;
    if (!t->block && chunk_has_rows(&c->packing, t->chunk))
        return fmax((double)c->packing.chunks[t->chunk].elements * 4 * fmin(tokens * (c->shape.gpu ? c->packing.ranks : 1) / vocab, 1), 1);
    for (int i = 0; i < c->packing.pieces_n && t->block == 0; i++) {
        const piece *p = &c->packing.pieces[i];
        rows += p->chunk == t->chunk && c->model->params[p->param].role == PARAM_TOKENS ? (double)p->rows : 0;
    }
    const double less = c->shape.gpu || tokens >= vocab ? 0 : rows * (1 - tokens / vocab) * (double)c->model->config.hidden * 4;
    return fmax((double)partial_bytes(&c->packing, c->model, t->block, t->chunk) - less, 1);
}

/* Before the rounding of this rank's rows, each of the other ranks' sums is added to them, and to those of the head. */
static double additions_ns(const random_case *c, const costs *k, const task *t)
{
    const packing *p = &c->packing;
    const double most = (double)partial_floats(p, c->model, t->block, t->chunk), vocab = (double)c->model->config.vocab;
    const double tokens = (double)(c->shape.batch * c->shape.seq_len * p->ranks);
    const double listed = fmin(tokens / vocab, 1) * (double)p->chunks[t->chunk].shard_elements;
    const double floats = !t->block && chunk_has_rows(p, t->chunk) ? fmin(listed, most) : most, one = cost_at(&k->finish, 2 * floats);
    const double fused = cost_at(&k->finish, floats) * 2 / 3;
    const bool tied = !t->block && chunk_has_tied_rows(p, c->model, t->chunk);
    return tied ? 2 * (p->ranks - 1) * one + fused : (p->ranks - 2) * one + fused;
}

/* Of several ranks: a chunk's weights from all of them, sharded or not; and their sums, which come to a rank from each. */
static void what_ranks_send_is_priced_by_its_bytes(void **state)
{
    (void)state;
    random_source all = random_open();
    int gathers = 0, sharded = 0, scatters = 0, tied = 0, finishes = 0;
    for (uint64_t i = 0; i < 200; i++) {
        random_source r = random_fork(&all, i);
        random_case c;
        schedule s;
        pt_error e = {0};
        assert_int_equal(random_case_open(&r, &c, &e), 0);
        assert_int_equal(random_share(&r, &c, &e), 0);
        const costs k = random_costs(&r, c.model, true);
        if (schedule_build(&c.input, random_kind(&r, &c), &s, &e)) {
            random_case_close(&c);
            continue;
        }
        for (int j = 0; j < s.tasks_n; j++) {
            const task *t = &s.tasks[j];
            const double ns = costs_task_ns(&k, &c.input, &s, t) - k.task_ns;
            if (t->kind == TASK_GATHER) {
                assert_true(near(ns, cost_at(&k.gather, (double)chunk_weight_bytes(&c.packing, t->chunk))));
                gathers++;
                sharded += t->operands_n == 2;
            } else if (t->kind == TASK_SCATTER) {
                assert_true(near(ns, cost_at(&k.scatter, sent_bytes(&c, t))));
                scatters++;
            } else if (t->kind == TASK_SCATTER_TIED) {
                const double bytes = (double)partial_bytes(&c.packing, c.model, 0, t->chunk), ranks = c.packing.ranks;
                const double own = c.shape.gpu ? 0 : bytes / (2 * (ranks - 1)); /* copied once, not twice as those of the others */
                assert_true(near(ns, cost_at(&k.scatter, bytes + own)));
                tied++;
            } else if (t->kind == TASK_FINISH) {
                const double rounding = block_finish_ns(&k, c.model, &c.packing, t->chunk, t->block);
                assert_true(near(ns, rounding + (c.packing.ranks > 1 ? additions_ns(&c, &k, t) : 0)));
                finishes += c.packing.ranks > 2;
            }
        }
        schedule_free(&s);
        random_case_close(&c);
    }
    printf("%d gathers, %d of them sharded, %d scatters, %d of tied tables\n", gathers, sharded, scatters, tied);
    assert_true(sharded > 30 && gathers > sharded + 30 && scatters > 30 && tied > 0 && finishes > 30);
}

static void random_costs_are_valid_and_broken_ones_are_named(void **state)
{
    (void)state;
    random_source r = random_open();
    for (int i = 0; i < 500; i++) {
        model *m;
        pt_error e = {0};
        assert_int_equal(random_model(&r, random_from(&r, 1, 5), &m, &e), 0);
        costs good = random_costs(&r, m, true), c = good;
        assert_int_equal(costs_validate(&c, m, "profile.json", &e), 0);
        double bad = random_one_in(&r, 3) ? NAN : random_one_in(&r, 2) ? INFINITY : -1;
        const char *named = "layers of kind";
        switch (random_below(&r, 20)) {
        case 0: c.layer[c.kinds_n - 1].forward_ns[random_below(&r, SAVE_LEVELS)] = bad; break;
        case 1: c.layer[0].backward_ns[random_below(&r, SAVE_LEVELS)] = bad; break;
        case 2: c.head_ns = bad, named = "head_ns"; break;
        case 3: c.read.ns[c.read.n - 1] = bad, named = "read"; break;
        case 4: c.to_device.amount[0] = random_one_in(&r, 2) ? 0 : bad, named = "to_device"; break;
        case 5: c.slow[COST_HOST][COST_READ] = random_one_in(&r, 2) ? 0.99 : bad, named = "host beside read"; break;
        case 6: c.update_host.n = COST_POINTS + 1, named = "update_host"; break;
        case 7: c.gather.ns[c.gather.n - 1] = bad, named = "gather"; break;
        case 8: c.layer[0].cold_accumulators_ns = bad, named = "cold_sums_ns"; break;
        case 10: c.layer[c.kinds_n - 1].warm_forward_ns = bad, named = "warm_forward_ns"; break;
        case 11: c.layer[0].warm_backward_ns[1] = bad, named = "warm_backward_ns"; break;
        case 12: c.layer[0].first_accumulators_ns = bad, named = "first_sums_ns"; break;
        case 13:
            c.slow_ns[COST_WRITE][0] = 2000;
            c.slow_ns[COST_WRITE][1] = 8000;
            c.slow_more[COST_WRITE][COST_MATH] = bad < 0 ? -c.slow[COST_WRITE][COST_MATH] : bad;
            named = "write beside math";
            break;
        case 14:
            c.slow_ns[COST_TO_DEVICE][0] = 2000;
            c.slow_ns[COST_TO_DEVICE][1] = random_one_in(&r, 2) ? 2400 : bad;
            named = "one to_device";
            break;
        case 15: c.head_ns = 2e15, named = "head_ns"; break;
        case 16: c.quota.period_ns = random_one_in(&r, 2) ? 1 : bad, named = "its period"; break;
        case 17: c.quota = (cost_quota){1e8, random_one_in(&r, 2) ? 0.5 : bad, {0}}, named = "processors; 1 to"; break;
        case 18: c.quota = (cost_quota){1e8, 2, {[COST_READ] = bad}}, named = "read keeps"; break;
        case 9: c.head_cold_accumulators_ns = bad, named = "head_cold_sums_ns"; break;
        default: c.kind_of_layer[m->config.layers - 1] = (unsigned char)c.kinds_n, named = "of kind"; break;
        }
        assert_int_equal(costs_validate(&c, m, "profile.json", &e), PT_FAILED);
        if (strncmp(e.text, "profile.json: ", 14) || !strstr(e.text, named))
            fail_msg("\"%s\" does not say %s", e.text, named);
        model_close(m);
    }
}

static double in_all(const layer_cost *c, int level) { return c->forward_ns[level] + c->backward_ns[level]; }

/* What seems to be gained by computing again is believed only if it is more than times are certain to. */
static void computing_again_gains_nothing_within_the_uncertainty(void **state)
{
    (void)state;
    const layer_cost noise = {.forward_ns = {90, 97, 100}, .backward_ns = {205, 200, 200}}; /* 295, 297, 300 in all */
    const layer_cost usual = {.forward_ns = {98, 99, 100}, .backward_ns = {280, 240, 200}};
    const layer_cost forward = {.forward_ns = {98, 99, 100}};
    layer_cost c = noise;
    layer_cost_order(&c, 0.05);
    assert_true(in_all(&c, SAVE_INPUT) > in_all(&c, SAVE_ATTENTION) * 1.005 && in_all(&c, SAVE_ATTENTION) > in_all(&c, SAVE_ALL) * 1.005);
    assert_true(c.forward_ns[SAVE_INPUT] == 90 && c.backward_ns[SAVE_ALL] == 200);
    c = noise;
    layer_cost_order(&c, 0.001);
    assert_memory_equal(&c, &noise, sizeof c);
    c = usual;
    layer_cost_order(&c, 1);
    assert_memory_equal(&c, &usual, sizeof c);
    c = forward; /* a layer without backward */
    layer_cost_order(&c, 1);
    assert_memory_equal(&c, &forward, sizeof c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(curves_are_straight_between_their_points),
        cmocka_unit_test(random_curves_pass_their_points_and_ascend),
        cmocka_unit_test(computing_again_gains_nothing_within_the_uncertainty),
        cmocka_unit_test(every_task_has_its_price), cmocka_unit_test(what_ranks_send_is_priced_by_its_bytes),
        cmocka_unit_test(random_costs_are_valid_and_broken_ones_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
