/* random_problem.h - what a search is asked: a random small model, step, costs and budgets somewhere between the least and plenty. */
#ifndef PT_RANDOM_PROBLEM_H
#define PT_RANDOM_PROBLEM_H

#include "predict/random_costs.h"

#include "search/search.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

typedef struct problem {
    model *model;
    step_shape shape;
    costs costs;
    search_input in;
} problem;

static inline uint64_t states_bytes(const problem *p)
{
    packing k;
    pt_error e = {0};
    uint64_t bytes = 0;
    if (pack(p->model, &p->shape, 1 << 20, &k, &e))
        fail_msg("%s", e.text);
    for (int c = 0; c < k.chunks_n; c++)
        bytes += chunk_weight_bytes(&k, c) + chunk_gradient_bytes(&k, c) + chunk_state_bytes(&k, c);
    packing_free(&k);
    return bytes;
}

/* Wide enough that saved sets, gradients and states are many MiB: building and simulating cost no more for that. */
static inline void problem_model(random_source *r, int layers, model **out)
{
    char json[640];
    pt_error e = {0};
    int heads = 4 << random_below(r, 2), hidden = 256 * random_from(r, 1, 4), kind = random_below(r, 3);
    snprintf(json, sizeof json,
             "{\"model_type\": \"%s\", \"vocab_size\": %d, \"hidden_size\": %d, \"num_attention_heads\": %d, "
             "\"num_key_value_heads\": %d, \"num_hidden_layers\": %d, \"intermediate_size\": %d, \"max_position_embeddings\": 1024, "
             "\"head_dim\": %d, \"hidden_act\": \"silu\", \"tie_word_embeddings\": %s, \"bos_token_id\": 0, \"eos_token_id\": 0}",
             kind ? "llama" : "qwen3", random_from(r, 300, 20000), hidden, heads, random_divisor(r, heads), layers,
             hidden * random_from(r, 1, 4), hidden / heads, random_one_in(r, 2) ? "true" : "false");
    if (model_from_json("random model", json, strlen(json), NULL, NULL, out, &e))
        fail_msg("%s", e.text);
}

/* By bytes or elements: a start-up time, and then a rate. */
static inline cost_curve problem_curve(random_source *r, double ns_each)
{
    double start = random_ns(r, 0, 2e4);
    return (cost_curve){2, {1, 1e9}, {start, start + 1e9 * ns_each}};
}

static inline double layer_elements(const model *m)
{
    double n = 0;
    for (int i = 0; i < m->params_n; i++)
        n += m->params[i].block == 1 ? (double)align_up((uint64_t)(m->params[i].rows * m->params[i].cols), 16) : 0;
    return n;
}

/* A layer takes some milliseconds, and moving its weights a tenth to three times as long. */
static inline costs problem_costs(random_source *r, const model *m, const step_shape *s)
{
    costs c;
    costs_init(&c);
    double layer = random_ns(r, 1e6, 1e7), bytes = layer_elements(m) * (double)dtype_bytes(s->type);
    c.kinds_n = random_from(r, 1, 2);
    for (int i = 0; i < (int)m->config.layers; i++)
        c.kind_of_layer[i] = (unsigned char)random_below(r, c.kinds_n);
    for (int k = 0; k < c.kinds_n; k++) {
        double forward = layer * random_ns(r, 0.7, 1.3), again = forward;
        for (int level = 0; level < SAVE_LEVELS; level++) { /* what is saved need not be computed again */
            c.layer[k].forward_ns[level] = forward;
            c.layer[k].backward_ns[level] = 2 * forward + again;
            again = level == SAVE_ALL - 1 ? 0 : again * random_ns(r, 0.1, 0.9);
        }
    }
    c.embed_ns = random_ns(r, 0, 1e5);
    c.head_eval_ns = random_ns(r, 1e5, 1e7);
    c.head_ns = 3 * c.head_eval_ns;
    cost_curve *curves[] = {&c.finish, &c.embed_finish, &c.update_device, &c.update_host, &c.to_device, &c.from_device, &c.read, &c.write};
    static const double slower[] = {0.1, 0.1, 0.3, 2, 1, 1, 2, 3};
    for (size_t i = 0; i < sizeof curves / sizeof *curves; i++)
        *curves[i] = problem_curve(r, layer / bytes * slower[i] * random_ns(r, 0.1, 3));
    c.task_ns = random_one_in(r, 2) ? 0 : random_ns(r, 0, 2e4);
    c.step_ns = random_one_in(r, 2) ? 0 : random_ns(r, 0, 1e5);
    for (int a = 0; a < COST_CLASSES && random_one_in(r, 2); a++)
        for (int b = 0; b < COST_CLASSES; b++)
            c.slow[a][b] = random_one_in(r, 3) ? 1 : random_ns(r, 1, 1.5);
    return c;
}

static inline void problem_open_with(random_source *r, int layers, bool freezes, problem *p)
{
    pt_error e = {0};
    search_result least;
    memset(p, 0, sizeof *p);
    problem_model(r, layers, &p->model);
    if (freezes)
        random_freeze(r, p->model);
    step_shape_init(&p->shape, p->model, random_one_in(r, 2) ? PT_F32 : PT_BF16, random_from(r, 1, 8), 512 << random_below(r, 2));
    p->costs = problem_costs(r, p->model, &p->shape);
    p->in = (search_input){.model = p->model, .shape = &p->shape, .costs = &p->costs, .training = !random_one_in(r, 5),
                           .clipping = random_one_in(r, 2), .host_tier = random_one_in(r, 2), .evaluates = random_one_in(r, 2),
                           .effort = 4};
    p->in.micro_batch = random_one_in(r, 4) ? p->shape.unit_seqs : 0;
    if (!search_plan(&p->in, &least, &e)) /* without any memory */
        fail_msg("a plan without memory");
    uint64_t all = states_bytes(p);
    p->in.budget[TIER_DEVICE] = least.least[TIER_DEVICE] + all * (uint64_t)random_from(r, 0, 20) / 16;
    p->in.budget[TIER_HOST] = p->in.host_tier ? least.least[TIER_HOST] + all * (uint64_t)random_from(r, 0, 12) / 8 : 0;
    p->in.budget[TIER_DISK] = random_one_in(r, 3) ? 0 : 4 * all;
}

static inline void problem_open(random_source *r, int layers, problem *p) { problem_open_with(r, layers, false, p); }

/* ---- what else a step's times depend on ---- */

/* Of a layer's place in it: sums that lie elsewhere, weights that are still in the cache. */
static inline void problem_places(random_source *r, layer_cost *l)
{
    const double forward = l->forward_ns[SAVE_ALL];
    l->first_accumulators_ns = random_one_in(r, 2) ? 0 : forward * random_ns(r, 0, 0.2);
    l->cold_accumulators_ns = random_one_in(r, 2) ? 0 : forward * random_ns(r, 0, 0.3);
    l->warm_forward_ns = random_one_in(r, 2) ? 0 : forward * random_ns(r, 0, 0.2);
    for (int level = 0; level < SAVE_LEVELS; level++)
        l->warm_backward_ns[level] = random_one_in(r, 2) ? 0 : l->backward_ns[level] * random_ns(r, 0, 0.2);
}

/* Of a transfer's length, beside others: of copies longer ones lose more or less, of disk transfers shorter ones. */
static inline void problem_lengths(random_source *r, costs *c, double layer)
{
    static const int classes[] = {COST_TO_DEVICE, COST_FROM_DEVICE, COST_READ, COST_WRITE};
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++) {
        const int a = classes[i];
        const double times = random_ns(r, 2, 8);
        c->slow_ns[a][0] = layer * random_ns(r, 0.01, 0.5);
        c->slow_ns[a][1] = c->slow_ns[a][0] * (i < 2 ? times : 1 / times);
        for (int b = 0; b < COST_CLASSES; b++)
            c->slow_more[a][b] = random_one_in(r, 2) ? 0 : random_ns(r, (1 - c->slow[a][b]) / costs_length_most(c, (cost_class)a), 1);
    }
}

/* Of pauses, too; and every step may be followed by something that wants its updates. For problems that are drawn anew each time: those
 * of a fixed seed stay what they were. */
static inline void problem_more(random_source *r, problem *p)
{
    costs *c = &p->costs;
    const double layer = c->layer[0].forward_ns[SAVE_ALL];
    for (int k = 0; k < c->kinds_n; k++)
        problem_places(r, &c->layer[k]);
    if (random_one_in(r, 2))
        problem_lengths(r, c, layer);
    c->head_cold_accumulators_ns = random_one_in(r, 2) ? 0 : c->head_ns * random_ns(r, 0, 0.2);
    if (random_one_in(r, 2))
        c->wake_latency = (cost_curve){2, {1, 2 + (double)(int)(layer * random_ns(r, 0.1, 4))}, {0, layer * random_ns(r, 0, 0.5)}};
    p->in.drains = random_one_in(r, 4);
    if (random_one_in(r, 4))
        c->quota = (cost_quota){layer * random_ns(r, 2, 50), 2, {2, 2, 1, 1, 2, random_ns(r, 0, 2), random_ns(r, 0, 2)}};
    if (random_one_in(r, 6)) { /* a forward pass goes before each step */
        p->shape.compare.kind = PREFERENCE_KTO;
        p->in.drains = p->in.evaluates = true;
    }
}

static inline void assert_same_result(const problem *p, const search_result *x, const search_result *y)
{
    char *a = plan_to_json(&x->best.plan, p->model, &p->shape), *b = plan_to_json(&y->best.plan, p->model, &p->shape);
    assert_string_equal(a, b);
    free(a);
    free(b);
    assert_true(x->best.step_ns == y->best.step_ns);
    assert_int_equal(x->others_n, y->others_n);
    for (int k = 0; k < x->others_n; k++) {
        assert_string_equal(x->others[k].name, y->others[k].name);
        assert_true(x->others[k].step_ns == y->others[k].step_ns);
    }
}

#endif
