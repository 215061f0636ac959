#include "predict/analytic.h"
#include "io/files.h"
#include "random_plan.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static bool near(double a, double b, double share) { return fabs(a - b) <= share * (fabs(a) + fabs(b)) / 2 + 1e-9; }

static machine_spec plain_machine(void)
{
    return (machine_spec){.name = "test", .cuda = true, .memory_bytes = {1u << 30, 1u << 30, 1u << 30},
                          .memory_bandwidth = {1e12, 1e11}, .memory_efficiency = {0.8, 0.5}, .bf16_flops = 1e14, .fp32_flops = 2e13,
                          .matmul_efficiency = 0.5, .kernel_s = 0, .to_device_bandwidth = 1e10, .from_device_bandwidth = 2e10,
                          .link_both_ways = 0.5, .read_bandwidth = 3e9, .write_bandwidth = 1e9, .disk_both_ways = 0.5, .ranks = 1};
}

static costs priced(const machine_spec *x, const model *m, const step_shape *s)
{
    costs c;
    pt_error e = {0};
    if (costs_analytic(x, m, s, &c, &e))
        fail_msg("%s", e.text);
    return c;
}

static model *wide_model(int64_t layers)
{
    char json[512];
    model *m;
    pt_error e = {0};
    snprintf(json, sizeof json, "{\"model_type\": \"llama\", \"vocab_size\": 32000, \"hidden_size\": 4096, \"num_attention_heads\": 32, "
             "\"num_key_value_heads\": 8, \"num_hidden_layers\": %lld, \"intermediate_size\": 11008, \"max_position_embeddings\": 4096, "
             "\"bos_token_id\": 0, \"eos_token_id\": 0}", (long long)layers);
    assert_int_equal(model_from_json("wide", json, strlen(json), NULL, NULL, &m, &e), 0);
    return m;
}

/* With memory that costs nothing, a step on a CPU is its operations: as many as everybody counts for it. Attention's backward does five
 * products where the usual count has four, hence the margin. A GPU's kernels lose some of their time, but not much in wide matmuls. */
static void a_step_without_memory_is_its_flops(void **state)
{
    (void)state;
    model *m = wide_model(6);
    step_shape s;
    step_shape_init(&s, m, PT_BF16, 4, 1024);
    for (int gpu = 0; gpu < 2; gpu++) {
        machine_spec x = plain_machine();
        x.cuda = gpu;
        x.memory_bandwidth[TIER_DEVICE] = 1e16;
        costs c = priced(&x, m, &s);
        double unit_ns = 6 * (c.layer[0].forward_ns[SAVE_ALL] + c.layer[0].backward_ns[SAVE_ALL]) + c.head_ns;
        double expected = model_flops_per_token(m, 1024) * (double)s.unit_rows / (x.bf16_flops * x.matmul_efficiency) * 1e9;
        if (gpu ? unit_ns < expected || unit_ns > 1.15 * expected : !near(unit_ns, expected, 0.03))
            fail_msg("%.0f ns, and the flops make %.0f", unit_ns, expected);
    }
    model_close(m);
}

static model *shape_of_bench(const char *name)
{
    char path[600], *text;
    size_t n;
    model *m;
    pt_error e = {0};
    snprintf(path, sizeof path, "%s/../../bench/shapes/%s.json", PT_FIXTURES, name);
    if (file_read_all(path, 1 << 20, &text, &n, &e) || model_from_json(name, text, n, NULL, NULL, &m, &e))
        fail_msg("%s", e.text);
    free(text);
    return m;
}

/* With everything on the GPU and saved: nothing waits. */
static double step_ns(const char *machine, const char *name, int64_t batch)
{
    char path[MACHINE_PATH_BYTES];
    machine_spec x;
    step_shape s;
    pt_error e = {0};
    model *m = shape_of_bench(name);
    snprintf(path, sizeof path, "%s/../../machines/%s.json", PT_FIXTURES, machine);
    if (machine_file_read(path, &x, &e))
        fail_msg("%s", e.text);
    step_shape_init(&s, m, PT_BF16, batch, 1024);
    step_shape_for_gpu(&s, m);
    const costs c = priced(&x, m, &s);
    double unit = c.embed_ns + c.head_ns, elements = 0;
    for (int i = 0; i < m->config.layers; i++)
        unit += c.layer[c.kind_of_layer[i]].forward_ns[SAVE_ALL] + c.layer[c.kind_of_layer[i]].backward_ns[SAVE_ALL];
    for (int i = 0; i < m->params_n; i++)
        elements += (double)m->params[i].rows * (double)m->params[i].cols;
    model_close(m);
    return (double)s.units_n * unit + cost_at(&c.finish, elements) + cost_at(&c.update_device, elements);
}

/* bench/results/h100.md and h200.md: steps that ran on GPUs, computed from the machine files alone. */
static void measured_steps_are_computed_within_a_tenth(void **state)
{
    (void)state;
    static const struct { const char *machine, *model; int64_t batch; double ms; } all[] = {
        {"h200", "gpt2-124m", 32, 82.0}, {"h100", "gpt2-1.5b", 16, 420}, {"h100", "llama-3.2-1b", 16, 264}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const double ms = step_ns(all[i].machine, all[i].model, all[i].batch) * 1e-6;
        if (!(fabs(ms / all[i].ms - 1) < 0.1))
            fail_msg("%s on %s: %.1f ms, and %.1f were measured", all[i].model, all[i].machine, ms, all[i].ms);
    }
}

/* What a save level drops is computed again: never less time for a level that saves less, and at the lowest the whole forward
 * but its last product. */
static void lower_levels_recompute_what_they_drop(void **state)
{
    (void)state;
    random_source r = random_open();
    machine_spec x = plain_machine();
    for (int i = 0; i < 200; i++) {
        model *m;
        step_shape s;
        pt_error e = {0};
        assert_int_equal(random_model(&r, random_from(&r, 1, 4), &m, &e), 0);
        random_shape(&r, m, &s);
        costs c = priced(&x, m, &s);
        const layer_cost *l = &c.layer[0];
        for (int level = 1; level < SAVE_LEVELS; level++) {
            assert_true(l->forward_ns[level] > 0 && near(l->forward_ns[level], l->forward_ns[0], 1e-12));
            assert_true(l->backward_ns[level] < l->backward_ns[level - 1]);
        }
        double again = l->backward_ns[SAVE_INPUT] - l->backward_ns[SAVE_ALL];
        assert_true(again > 0 && again < l->forward_ns[SAVE_INPUT]);
        assert_true(c.head_ns > c.head_eval_ns && c.head_eval_ns > 0 && c.embed_ns > 0);
        model_close(m);
    }
}

static void twice_the_machine_takes_half_the_time(void **state)
{
    (void)state;
    random_source r = random_open();
    for (int i = 0; i < 100; i++) {
        model *m;
        step_shape s;
        pt_error e = {0};
        machine_spec x = plain_machine(), twice = x;
        assert_int_equal(random_model(&r, random_from(&r, 1, 4), &m, &e), 0);
        random_shape(&r, m, &s);
        twice.bf16_flops *= 2;
        twice.fp32_flops *= 2;
        twice.memory_bandwidth[TIER_DEVICE] *= 2;
        costs a = priced(&x, m, &s), b = priced(&twice, m, &s);
        assert_true(near(a.layer[0].backward_ns[1], 2 * b.layer[0].backward_ns[1], 1e-9) && near(a.head_ns, 2 * b.head_ns, 1e-9));
        assert_true(near(cost_at(&a.update_device, 1e6), 2 * cost_at(&b.update_device, 1e6), 1e-9));
        assert_true(near(cost_at(&a.update_host, 1e6), cost_at(&b.update_host, 1e6), 1e-9));
        twice = x;
        twice.memory_efficiency[TIER_DEVICE] = x.memory_efficiency[TIER_DEVICE] / 2;
        b = priced(&twice, m, &s);
        assert_true(b.layer[0].forward_ns[0] >= a.layer[0].forward_ns[0]);
        model_close(m);
    }
}

static void windows_make_kinds_of_layers(void **state)
{
    (void)state;
    model *m = wide_model(6);
    step_shape s;
    machine_spec x = plain_machine();
    step_shape_init(&s, m, PT_BF16, 2, 2048);
    m->config.window[1] = m->config.window[4] = 256;
    m->config.window[2] = 4096; /* sees everything, as 0 does */
    costs c = priced(&x, m, &s);
    assert_int_equal(c.kinds_n, 2);
    assert_true(c.kind_of_layer[1] == c.kind_of_layer[4] && c.kind_of_layer[0] == c.kind_of_layer[2] &&
                c.kind_of_layer[0] != c.kind_of_layer[1]);
    assert_true(c.layer[c.kind_of_layer[1]].forward_ns[0] < c.layer[c.kind_of_layer[0]].forward_ns[0]);
    model_close(m);
}

static void more_windows_than_kinds_share_the_nearest(void **state)
{
    (void)state;
    model *m = wide_model(COST_LAYER_KINDS + 4);
    step_shape s;
    machine_spec x = plain_machine();
    step_shape_init(&s, m, PT_BF16, 2, 2048);
    for (int i = 0; i < COST_LAYER_KINDS + 4; i++)
        m->config.window[i] = 50 * (i + 1);
    costs c = priced(&x, m, &s);
    assert_int_equal(c.kinds_n, COST_LAYER_KINDS);
    assert_int_equal(c.kind_of_layer[COST_LAYER_KINDS + 3], COST_LAYER_KINDS - 1);
    model_close(m);
}

static void amounts_are_bytes_over_bandwidth(void **state)
{
    (void)state;
    model *m = wide_model(1);
    step_shape s;
    machine_spec x = plain_machine();
    x.link_latency_s = 1e-5;
    step_shape_init(&s, m, PT_BF16, 4, 1024);
    costs c = priced(&x, m, &s);
    assert_true(near(cost_at(&c.to_device, 1e8), 1e4 + 1e7, 1e-6) && near(cost_at(&c.from_device, 1e8), 1e4 + 5e6, 1e-6));
    assert_true(near(cost_at(&c.read, 3e8), 1e8, 1e-6) && near(cost_at(&c.write, 3e8), 3e8, 1e-6));
    assert_true(near(cost_at(&c.update_host, 1e9), 26e9 / 50, 1e-6)); /* 26 bytes each at 50 bytes a ns */
    assert_true(near(cost_at(&c.update_device, 1e9), 26e9 / 800, 1e-6));
    x.core_bandwidth = 1e10;
    for (x.host_cores = 2; x.host_cores < 10; x.host_cores *= 2) { /* up to the memory's 50 */
        c = priced(&x, m, &s);
        assert_true(near(cost_at(&c.update_host, 1e9), 26e9 / fmin(10 * x.host_cores, 50), 1e-6));
    }
    model_close(m);
}

static void neighbours_share_a_memory(void **state)
{
    (void)state;
    model *m = wide_model(1);
    step_shape s;
    machine_spec x = plain_machine();
    step_shape_init(&s, m, PT_BF16, 4, 1024);
    costs c = priced(&x, m, &s);
    /* host memory: 50 GB/s, the update takes all of it, a copy 10 */
    assert_true(near(c.slow[COST_HOST][COST_TO_DEVICE], 1.2, 1e-9) && near(c.slow[COST_TO_DEVICE][COST_HOST], 1.2, 1e-9));
    assert_true(near(c.slow[COST_TO_DEVICE][COST_FROM_DEVICE], 2, 1e-9)); /* half of its bandwidth both ways */
    assert_true(near(c.slow[COST_READ][COST_TO_DEVICE], 1, 1e-9));        /* 13 of 50 */
    assert_true(c.slow[COST_MATH][COST_TO_DEVICE] == 1 && c.slow[COST_MATH][COST_MATH] == 1);
    model_close(m);
}

/* Several devices share the host's memory; what they send each other takes its bytes over the links, or over the network. */
static void ranks_share_a_host_and_send_each_other_bytes(void **state)
{
    (void)state;
    model *m = wide_model(1);
    step_shape s;
    machine_spec x = plain_machine();
    step_shape_init(&s, m, PT_BF16, 4, 1024);
    x.collective_bandwidth = 3e10;
    const costs a = priced(&x, m, &s);
    s.ranks = 4;
    machine_spec four = machine_share(&x, 4);
    const costs b = priced(&four, m, &s);
    assert_true(four.memory_bytes[TIER_HOST] == x.memory_bytes[TIER_HOST] / 4 && four.memory_bytes[TIER_DEVICE] ==
                x.memory_bytes[TIER_DEVICE]);
    assert_true(!a.gather.n && near(cost_at(&b.gather, 4e8), 1e7, 1e-6)); /* three quarters come from the others */
    assert_true(near(cost_at(&b.update_host, 1e6), 4 * cost_at(&a.update_host, 1e6), 1e-6));
    assert_true(near(b.layer[0].forward_ns[0], a.layer[0].forward_ns[0], 1e-12));
    x.devices = 2;
    x.network_bandwidth = 1e9;
    x.collective_latency_s = 1e-3;
    four = machine_share(&x, 4);
    const costs far = priced(&four, m, &s);
    assert_true(four.memory_bytes[TIER_HOST] == x.memory_bytes[TIER_HOST] / 2);
    assert_true(near(cost_at(&far.gather, 4e8), 1e6 + 2e8, 1e-6)); /* half of it from another machine */
    model_close(m);
}

/* What a profile of a machine says leads back to the machine. */
static void a_measured_machine_is_the_machine(void **state)
{
    (void)state;
    model *m = wide_model(1);
    step_shape s;
    machine_spec x = plain_machine(), y, z;
    pt_error e = {0};
    x.link_latency_s = 1e-4;
    step_shape_init(&s, m, PT_BF16, 4, 1024);
    costs c = priced(&x, m, &s);
    c.slow[COST_TO_DEVICE][COST_FROM_DEVICE] = 1 / x.link_both_ways;
    assert_int_equal(machine_measured("this", true, x.memory_bytes, &c, m, &s, &y, &e), 0);
    json_t *all = machine_to_json(&y, "measured");
    char *text = json_dumps(all, 0);
    assert_int_equal(machine_from_json("m.json", text, strlen(text), &z, &e), 0);
    assert_true(z.cuda);
    assert_memory_equal(z.memory_bytes, x.memory_bytes, sizeof x.memory_bytes);
    for (tier t = TIER_DEVICE; t <= TIER_HOST; t++)
        assert_true(near(z.memory_bandwidth[t], x.memory_bandwidth[t] * x.memory_efficiency[t], 0.01));
    assert_true(near(z.to_device_bandwidth, x.to_device_bandwidth, 0.01));
    assert_true(near(z.from_device_bandwidth, x.from_device_bandwidth, 0.01));
    assert_true(near(z.link_latency_s, x.link_latency_s, 0.01) && near(z.link_both_ways, x.link_both_ways, 0.01));
    assert_true(near(z.bf16_flops, x.bf16_flops * x.matmul_efficiency, 0.05));
    c.to_device.n = 0; /* everything fitted: the link was not measured */
    assert_int_equal(machine_measured("this", true, x.memory_bytes, &c, m, &s, &y, &e), 0);
    assert_true(y.cuda && !y.memory_bytes[TIER_HOST]);
    free(text);
    json_decref(all);
    model_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_without_memory_is_its_flops),
        cmocka_unit_test(measured_steps_are_computed_within_a_tenth),
        cmocka_unit_test(lower_levels_recompute_what_they_drop),
        cmocka_unit_test(twice_the_machine_takes_half_the_time),
        cmocka_unit_test(windows_make_kinds_of_layers),
        cmocka_unit_test(more_windows_than_kinds_share_the_nearest),
        cmocka_unit_test(amounts_are_bytes_over_bandwidth),
        cmocka_unit_test(neighbours_share_a_memory),
        cmocka_unit_test(ranks_share_a_host_and_send_each_other_bytes),
        cmocka_unit_test(a_measured_machine_is_the_machine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
