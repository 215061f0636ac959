/* Layers whose experts do not fit into memory together are computed by ranges of them, and only these. */
#include "random_problem.h"

#include "schedule/check.h"

static model *experts_model(int experts, int layers)
{
    char json[640];
    model *m;
    pt_error e = {0};
    const int used = snprintf(json, sizeof json,
                              "{\"model_type\": \"qwen3_moe\", \"vocab_size\": 500, \"hidden_size\": 256, \"num_attention_heads\": 4, "
                              "\"num_key_value_heads\": 2, \"head_dim\": 64, \"num_hidden_layers\": %d, \"intermediate_size\": 256, "
                              "\"max_position_embeddings\": 1024, \"num_experts\": %d, \"num_experts_per_tok\": 2, "
                              "\"moe_intermediate_size\": 512, \"bos_token_id\": 0, \"eos_token_id\": 0}", layers, experts);
    if (model_from_json("experts", json, (size_t)used, NULL, NULL, &m, &e))
        fail_msg("%s", e.text);
    for (int i = 0; i < m->params_n; i++)
        m->params[i].trainable = m->params[i].trainable && m->params[i].kind->use != USE_EXPERTS;
    return m;
}

/* The bytes of all experts of a layer. */
static uint64_t experts_bytes(const model *m, const step_shape *s)
{
    uint64_t bytes = 0;
    for (int i = 0; i < m->params_n; i++)
        if (m->params[i].block == 1 && m->params[i].kind->use == USE_EXPERTS)
            bytes += (uint64_t)(m->params[i].rows * m->params[i].cols) * dtype_bytes(s->type);
    return bytes;
}

static void layers_pass_by_ranges_of_experts_where_they_do_not_fit(void **state)
{
    (void)state;
    random_source all = random_open();
    for (uint64_t number = 0; number < 4; number++) {
        random_source r = random_fork(&all, number);
        problem p = {.model = experts_model(64, random_from(&r, 2, 3))};
        pt_error e = {0};
        search_result found;
        uint64_t least[TIERS];
        double ns;
        step_shape_init(&p.shape, p.model, random_one_in(&r, 2) ? PT_F32 : PT_BF16, random_from(&r, 1, 2), 64);
        if (p.shape.batch == 2 && random_one_in(&r, 2))
            step_shape_in_lanes(&p.shape, p.model, 2);
        p.costs = problem_costs(&r, p.model, &p.shape);
        p.in = (search_input){.model = p.model, .shape = &p.shape, .costs = &p.costs, .training = true, .clipping = random_one_in(&r, 2),
                              .host_tier = true, .effort = 1, .budget = {UINT64_C(1) << 40, UINT64_C(1) << 40, 0}};
        assert_int_equal(search_leanest(&p.in, least, &ns, &e), 1);
        assert_true(least[TIER_DEVICE] < experts_bytes(p.model, &p.shape) / 2);
        p.in.budget[TIER_DEVICE] = least[TIER_DEVICE] * 21 / 20;
        if (search_plan(&p.in, &found, &e))
            fail_msg("%s", e.text);
        assert_true(found.best.plan.ranges && found.best.bytes[TIER_DEVICE] <= p.in.budget[TIER_DEVICE]);
        for (schedule_kind kind = 0; kind < SCHEDULE_EVAL; kind++) {
            const schedule_input in = search_schedules(&p.in, &found.best.packing, &found.best.plan);
            schedule s;
            if (!(search_kinds(&p.in, found.best.plan.update) & 1u << kind))
                continue;
            if (schedule_build(&in, kind, &s, &e) || schedule_check(&in, &s, p.in.budget, &e))
                fail_msg("%s", e.text);
            schedule_free(&s);
        }
        search_result_free(&found);
        p.in.budget[TIER_DEVICE] += 2 * experts_bytes(p.model, &p.shape);
        assert_int_equal(search_plan(&p.in, &found, &e), 0);
        assert_false(found.best.plan.ranges);
        search_result_free(&found);
        model_close(p.model);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(layers_pass_by_ranges_of_experts_where_they_do_not_fit)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
