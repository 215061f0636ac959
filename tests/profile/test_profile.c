/* Profiles are measured whole, inside their budgets, and leave nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include <cmocka.h>

#include "sanitized.h"
#include "base/rng.h"
#include "profile/profile_parts.h"
#include "profile/support.h"
#include "report/profile_text.h"
#include "seed.h"

#include <dirent.h>
#include <math.h>

/* ---- what is measured ---- */

static void curve_is_filled(const cost_curve *c, const char *name)
{
    if (c->n < 1)
        fail_msg("%s was not measured", name);
    for (int i = 0; i < c->n; i++)
        assert_true(c->amount[i] > 0 && c->ns[i] > 0 && isfinite(c->ns[i]));
}

static void costs_are_filled(const costs *c, const model *m, bool host, bool disk)
{
    pt_error e = {0};
    if (costs_validate(c, m, "profile", &e))
        fail_msg("%s", e.text);
    for (int k = 0; k < c->kinds_n; k++)
        for (int level = 0; level < SAVE_LEVELS; level++)
            assert_true(c->layer[k].forward_ns[level] > 0 && c->layer[k].backward_ns[level] > 0 &&
                        c->layer[k].forward_ns[level] <= c->layer[k].forward_ns[SAVE_ALL]);
    assert_true(c->embed_ns > 0 && c->head_ns > 0 && c->head_eval_ns > 0 && c->task_ns > 0 && c->step_ns > 0);
    curve_is_filled(&c->finish, "finish");
    curve_is_filled(&c->embed_finish, "embed_finish");
    curve_is_filled(&c->update_device, "update_device");
    assert_int_equal(c->update_host.n > 0, host);
    assert_int_equal(c->to_device.n > 0, host);
    assert_int_equal(c->from_device.n > 0, host);
    assert_int_equal(c->read.n > 0, disk);
    assert_int_equal(c->write.n > 0, disk);
}

/* With what was run again as a check, on this machine as it is. */
static void costs_agree(const setup *s, const profile_result *p)
{
    pt_error e = {0};
    for (int part = 0; part < PROFILE_PARTS; part++)
        if (profile_agrees((profile_part)part, "profile", &s->r, p, &e))
            fail_msg("%s", e.text);
}

static int entries_of(const char *folder)
{
    DIR *d = opendir(folder);
    int n = 0;
    for (struct dirent *entry; d && (entry = readdir(d));)
        n += entry->d_name[0] != '.' || strstr(entry->d_name, "scratch") != NULL;
    if (d)
        closedir(d);
    return n;
}

static void every_cost_is_measured_and_nothing_is_left(void **state)
{
    (void)state;
    for (int i = 0; i < TEST_CONFIGS; i++)
        for (int type = 0; type < 2; type++) {
            setup s;
            profile_result p;
            setup_open(&s, test_configs[i], type ? PT_BF16 : PT_F32, 3, 7 + 9 * i);
            profile_must(&s, &p);
            costs_are_filled(&p.costs, s.model, true, true);
            costs_agree(&s, &p);
            assert_false(p.cached);
            assert_true(p.layer.amount > 0 && p.layer.ns > 0 && p.update.ns > 0 && p.measured_at > 0 && p.fingerprint[0]);
            assert_true(p.read.ns > 0 && p.write.ns > 0 && p.to_device.ns > 0 && p.from_device.ns > 0 && p.update_host.ns > 0);
            assert_true(p.costs.spread > 0 && p.costs.curves_spread > 0);
            assert_int_equal(p.threads[0].threads, 1);
            assert_int_equal(p.threads[p.threads_n - 1].threads, s.r.threads ? s.r.threads : s.r.host->info.threads);
            for (int k = 0; k < p.threads_n; k++)
                assert_true(p.threads[k].ns > 0 &&
                            p.threads[k].amount == (int64_t)p.costs.update_device.amount[p.costs.update_device.n - 1]);
            assert_int_equal(entries_of(scratch), 1); /* the cache */
            setup_close(&s);
        }
}

/* Whatever is saved of one token of so small a layer fits into a page. */
static void a_layer_that_saves_a_page_at_every_level_has_its_costs(void **state)
{
    (void)state;
    static const char tiny[] = "{\"model_type\": \"llama\", \"vocab_size\": 64, \"hidden_size\": 16, \"num_attention_heads\": 2, "
                               "\"num_key_value_heads\": 1, \"num_hidden_layers\": 2, \"intermediate_size\": 32, "
                               "\"max_position_embeddings\": 16, \"hidden_act\": \"silu\", \"bos_token_id\": 0, \"eos_token_id\": 0}";
    setup s;
    profile_result p;
    setup_open(&s, tiny, PT_BF16, 1, 1);
    layer_layout input, all;
    layer_layout_init(&input, s.model, 0, s.r.shape, SAVE_INPUT);
    layer_layout_init(&all, s.model, 0, s.r.shape, SAVE_ALL);
    assert_true(input.saved_bytes == all.saved_bytes);
    profile_must(&s, &p);
    costs_are_filled(&p.costs, s.model, true, true);
    setup_close(&s);
}

static void layers_with_other_windows_are_other_kinds(void **state)
{
    (void)state;
    NO_OTHER_THREADS();
    setup s;
    profile_result p;
    setup_open(&s, test_configs[2], PT_F32, 2, 16);
    profile_must(&s, &p);
    assert_int_equal(p.costs.kinds_n, 2);
    for (int i = 0; i < 4; i++)
        assert_int_equal(p.costs.kind_of_layer[i], s.model->config.window[i] != 0);
    setup_close(&s);
    setup_open(&s, test_configs[2], PT_F32, 2, 5); /* nothing lies outside the window */
    profile_must(&s, &p);
    assert_int_equal(p.costs.kinds_n, 1);
    setup_close(&s);
}

static void only_the_tiers_that_exist_are_measured(void **state)
{
    (void)state;
    NO_OTHER_THREADS();
    for (int host = 0; host < 2; host++)
        for (int transfers = 0; transfers < 2; transfers++) {
            setup s;
            profile_result p;
            setup_open(&s, test_configs[0], PT_BF16, 2, 16);
            s.r.host_tier = host;
            s.r.transfers = transfers;
            profile_must(&s, &p);
            costs_validate(&p.costs, s.model, "profile", NULL);
            assert_int_equal(p.costs.update_host.n > 0, host);
            assert_int_equal(p.costs.to_device.n > 0, host && transfers);
            assert_int_equal(p.costs.read.n > 0, transfers);
            assert_int_equal(p.update_host.amount > 0, host);
            assert_int_equal(p.to_device.amount > 0, host && transfers);
            assert_int_equal(p.from_device.amount > 0, host && transfers);
            assert_int_equal(p.read.amount > 0, transfers);
            assert_int_equal(p.write.amount > 0, transfers);
            setup_close(&s);
        }
}

/* Many rows' forward takes so long that a layer is run once; of few rows' backward every other takes much longer. */
static void uneven_submit(queue *q, const op *o)
{
    static int turn;
    struct timespec pause = {0, 0};
    if (o->kind == OP_ACTIVATION && o->activation.rows >= 1024)
        pause.tv_nsec = 800000000;
    if (o->kind == OP_ACTIVATION_BACKWARD && o->activation_backward.rows < 1024)
        pause.tv_nsec = turn++ % 3 ? 0 : 900000000; /* another one in each round */
    nanosleep(&pause, NULL);
    real_table->submit(q, o);
}

/* ---- a clock of their own, however busy the machine is ---- */

static int64_t own_ns;

static void own_mark(queue *q, int64_t *ns) { *ns = own_ns; }

/* Sums that are begun take longer, and so does backward, unless it comes right behind what was computed again; that takes longest. */
static void caches_submit(queue *q, const op *o)
{
    static op_kind before;
    own_ns += 1000;
    if (o->kind == OP_MATMUL && o->matmul.layout == MATMUL_TN && !o->matmul.accumulate)
        own_ns += 3000000;
    if (o->kind == OP_ATTENTION)
        own_ns += 30000000;
    if (o->kind == OP_ACTIVATION_BACKWARD && before != OP_ATTENTION)
        own_ns += 20000000;
    if (o->kind == OP_ATTENTION || o->kind == OP_ACTIVATION_BACKWARD || o->kind == OP_GRADIENT_FINISH)
        before = o->kind;
    real_table->submit(q, o);
}

static void what_caches_make_of_a_layer_is_measured(void **state)
{
    (void)state;
    static const char config[] =
        "{\"model_type\": \"gpt2\", \"n_embd\": 32, \"n_layer\": 6, \"n_head\": 2, \"n_positions\": 16, \"vocab_size\": 64}";
    setup s;
    profile_result p;
    setup_open(&s, config, PT_F32, 1, 16);
    s.r.transfers = s.r.host_tier = false;
    counting_table.submit = caches_submit;
    counting_table.mark = own_mark;
    profile_must(&s, &p);
    const layer_cost *l = &p.costs.layer[0];
    const double ms = 1e6, all = l->backward_ns[SAVE_ALL], input = l->backward_ns[SAVE_INPUT];
    /* four matmuls */
    assert_true(l->first_accumulators_ns > 11.9 * ms && l->first_accumulators_ns < 12.1 * ms && l->cold_accumulators_ns < 0.1 * ms);
    assert_true(all > 20 * ms && all < 20.1 * ms && input > 30 * ms && input < 30.1 * ms); /* 50 apart */
    setup_close(&s);
}

static int tables; /* roundings of a part of the embedding's table, counted from its zeroing before */

/* Each takes longer than the time for all, so that there are no more than have to be; the first that counts is held up. */
static void held_up_submit(queue *q, const op *o)
{
    static bool zeroed;
    own_ns += 1000;
    if (o->kind == OP_EMBEDDING_BACKWARD && zeroed) {
        nanosleep(&(struct timespec){0, 20000000}, NULL);
        own_ns += ++tables == 2 ? 1000000000 : 0;
    }
    if (o->kind == OP_ZERO || o->kind == OP_EMBEDDING_BACKWARD)
        zeroed = o->kind == OP_ZERO;
    real_table->submit(q, o);
}

static void one_run_that_is_held_up_is_not_what_the_embedding_takes(void **state)
{
    (void)state;
    static const char config[] =
        "{\"model_type\": \"gpt2\", \"n_embd\": 32, \"n_layer\": 2, \"n_head\": 2, \"n_positions\": 16, \"vocab_size\": 64}";
    setup s;
    profile_result p;
    setup_open(&s, config, PT_F32, 1, 16);
    s.r.transfers = s.r.host_tier = false;
    counting_table.submit = held_up_submit;
    counting_table.mark = own_mark;
    tables = 0;
    profile_must(&s, &p);
    assert_true(tables >= 2 && p.costs.embed_finish.n == 1 && p.costs.embed_finish.ns[0] < 1e6);
    setup_close(&s);
}

static void a_layer_that_is_run_once_is_as_sure_as_fewer_rows_of_it(void **state)
{
    (void)state;
    static const char config[] =
        "{\"model_type\": \"gpt2\", \"n_embd\": 512, \"n_layer\": 2, \"n_head\": 8, \"n_positions\": 512, \"vocab_size\": 211}";
    setup s;
    profile_result p;
    NOT_SANITIZED(); /* computing takes longer than the pauses there */
    setup_open(&s, config, PT_F32, 4, 512);
    for (int t = 0; t < TIERS; t++)
        s.r.budget[t] = 512 << 20;
    s.r.transfers = s.r.host_tier = false;
    counting_table.submit = uneven_submit;
    profile_must(&s, &p);
    assert_true(p.costs.spread > 0.1);
    setup_close(&s);
}

/* ---- memory ---- */

static void measured_inside_its_budget(setup *s)
{
    profile_result p;
    profile_must(s, &p);
    costs_are_filled(&p.costs, s->model, true, true);
    assert_true(memory_most[MEMORY_DEVICE] <= s->r.budget[TIER_DEVICE]);
    assert_true(memory_most[MEMORY_HOST] <= s->r.budget[TIER_HOST] + (2 << 20)); /* the values that all is filled with */
    setup_close(s);
}

/* Its states are many times larger than the budget; a layer and the head just fit. */
static void a_model_much_larger_than_the_budget_is_measured_inside_it(void **state)
{
    (void)state;
    static const char config[] =
        "{\"model_type\": \"llama\", \"vocab_size\": 600, \"hidden_size\": 64, \"num_attention_heads\": 4, \"num_hidden_layers\": 120, "
        "\"intermediate_size\": 160, \"max_position_embeddings\": 64, \"hidden_act\": \"silu\", \"bos_token_id\": 0, \"eos_token_id\": 0}";
    setup s;
    setup_open(&s, config, PT_BF16, 2, 32);
    s.r.budget[TIER_DEVICE] = 1200 << 10;
    s.r.budget[TIER_HOST] = 1 << 20;
    s.r.budget[TIER_DISK] = 2 << 20;
    assert_true((uint64_t)s.model->parameters * 12 > 40 * s.r.budget[TIER_DEVICE]);
    measured_inside_its_budget(&s);
}

/* A layer's weights and sums fit, as the least plan wants them, and its gradients beside them do not. */
static void a_layer_that_just_fits_is_measured_without_what_only_makes_it_truer(void **state)
{
    (void)state;
    NO_OTHER_THREADS();
    static const char config[] =
        "{\"model_type\": \"llama\", \"vocab_size\": 40, \"hidden_size\": 256, \"num_attention_heads\": 4, \"num_hidden_layers\": 3, "
        "\"intermediate_size\": 1024, \"max_position_embeddings\": 64, \"hidden_act\": \"silu\", \"bos_token_id\": 0, \"eos_token_id\": 0}";
    setup s;
    setup_open(&s, config, PT_BF16, 1, 8);
    const uint64_t layer = (uint64_t)accumulator_elements(s.model, 1);
    s.r.budget[TIER_DEVICE] = 7 * layer;
    measured_inside_its_budget(&s);
}

/* Half of it fits: of two or three right sides of the matmul that stands for a unit's one is left. */
static void a_timed_matmul_of_few_right_sides_gets_smaller(void **state)
{
    (void)state;
    NO_OTHER_THREADS();
    static const char config[] =
        "{\"model_type\": \"gpt2\", \"n_embd\": 256, \"n_layer\": 2, \"n_head\": 4, \"n_positions\": 16, \"vocab_size\": 3000}";
    setup s;
    setup_open(&s, config, PT_F32, 2, 16);
    assert_int_equal(s.model->parameters >> 20, 2);
    s.r.budget[TIER_DEVICE] = s.r.budget[TIER_HOST] = 160 << 20;
    s.r.budget[TIER_DISK] = 512 << 20;
    measured_inside_its_budget(&s);
}

static void a_budget_below_one_block_is_refused_with_the_bytes(void **state)
{
    (void)state;
    NO_OTHER_THREADS();
    setup s;
    profile_result p;
    pt_error e = {0};
    setup_open(&s, test_configs[0], PT_F32, 2, 16);
    s.r.budget[TIER_DEVICE] = 40 << 10;
    assert_int_equal(profile_get(&s.r, &p, &e), PT_DOES_NOT_FIT);
    assert_non_null(strstr(e.text, "`device_memory`"));
    setup_close(&s);
}

static void a_disk_that_cannot_be_written_is_named(void **state)
{
    (void)state;
    setup s;
    profile_result p;
    pt_error e = {0};
    setup_open(&s, test_configs[0], PT_F32, 2, 16);
    s.r.disk_path = "/proc/1/nothing/here";
    assert_int_equal(profile_get(&s.r, &p, &e), PT_DOES_NOT_FIT); /* /proc has no room for files */
    assert_non_null(strstr(e.text, "/proc"));
    setup_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_cost_is_measured_and_nothing_is_left),
        cmocka_unit_test(a_layer_that_saves_a_page_at_every_level_has_its_costs),
        cmocka_unit_test(layers_with_other_windows_are_other_kinds),
        cmocka_unit_test(only_the_tiers_that_exist_are_measured),
        cmocka_unit_test(what_caches_make_of_a_layer_is_measured),
        cmocka_unit_test(one_run_that_is_held_up_is_not_what_the_embedding_takes),
        cmocka_unit_test(a_layer_that_is_run_once_is_as_sure_as_fewer_rows_of_it),
        cmocka_unit_test(a_model_much_larger_than_the_budget_is_measured_inside_it),
        cmocka_unit_test(a_layer_that_just_fits_is_measured_without_what_only_makes_it_truer),
        cmocka_unit_test(a_timed_matmul_of_few_right_sides_gets_smaller),
        cmocka_unit_test(a_budget_below_one_block_is_refused_with_the_bytes),
        cmocka_unit_test(a_disk_that_cannot_be_written_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
