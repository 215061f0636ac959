#include "random_plan.h"

#include "search/space.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

/* 12 layers of 0.6 M parameters: in chunks of 1 MiB, 12 to 24 of them. */
static const char json[] =
    "{\"model_type\": \"llama\", \"hidden_size\": 256, \"intermediate_size\": 512, \"num_hidden_layers\": 12, "
    "\"num_attention_heads\": 8, \"num_key_value_heads\": 4, \"vocab_size\": 1024, \"tie_word_embeddings\": true}";

typedef struct fixture {
    model *model;
    step_shape shape;
    costs costs;
    search_input in;
    uint64_t states_bytes; /* weights, states and waiting gradients of all chunks */
} fixture;

static int open_fixture(void **state)
{
    pt_error e = {0};
    fixture *f = calloc(1, sizeof *f);
    packing k;
    if (!f || model_from_json("config.json", json, strlen(json), NULL, NULL, &f->model, &e))
        return -1;
    step_shape_init(&f->shape, f->model, PT_BF16, 4, 32);
    costs_init(&f->costs);
    f->in = (search_input){.model = f->model, .shape = &f->shape, .costs = &f->costs, .training = true, .clipping = true, .evaluates = true,
                           .effort = 1e-3};
    if (pack(f->model, &f->shape, 1 << 20, &k, &e))
        return -1;
    for (int c = 0; c < k.chunks_n; c++)
        f->states_bytes += chunk_weight_bytes(&k, c) + chunk_state_bytes(&k, c) + chunk_gradient_bytes(&k, c);
    packing_free(&k);
    *state = f;
    return 0;
}

static int close_fixture(void **state)
{
    fixture *f = *state;
    model_close(f->model);
    free(f);
    return 0;
}

static void set_budget(fixture *f, uint64_t device, uint64_t host, uint64_t disk)
{
    f->in.host_tier = host > 0;
    f->in.budget[TIER_DEVICE] = device;
    f->in.budget[TIER_HOST] = host;
    f->in.budget[TIER_DISK] = disk;
}

/* The plan found in no time: 0 with the number of chunks in their placements on each tier, or PT_DOES_NOT_FIT. What it needs is within
 * the budgets in any case. */
static int plan_placements(const fixture *f, int placements[TIERS])
{
    pt_error e = {0};
    search_result r;
    uint64_t bytes[TIERS];
    int failed = search_plan(&f->in, &r, &e);
    memset(placements, 0, TIERS * sizeof *placements);
    if (failed) {
        assert_int_equal(failed, PT_DOES_NOT_FIT);
        return failed;
    }
    const plan *p = &r.best.plan;
    const schedule_input in = search_schedules(&f->in, &r.best.packing, p);
    assert_int_equal(plan_validate(p, f->model, &f->shape, &r.best.packing, true, &e), 0);
    assert_int_equal(schedule_plan_bytes(&in, search_kinds(&f->in, p->update), bytes, &e), 0);
    for (int t = 0; t < TIERS; t++)
        assert_true(bytes[t] <= f->in.budget[t]);
    for (int c = 0; c < p->chunks_n; c++)
        placements[p->chunks[c].placement]++;
    search_result_free(&r);
    return 0;
}

/* The costs of test_stride.c, for which the model says 6. */
static void the_stride_of_the_model_is_among_those_that_are_tried(void **state)
{
    fixture *f = *state;
    pt_error e = {0};
    space s;
    set_budget(f, f->states_bytes / 2, 2 * f->states_bytes, 0);
    f->costs.to_device = (cost_curve){1, {1}, {0.1}};
    f->costs.update_device = (cost_curve){1, {1}, {0.02}};
    f->costs.update_host = (cost_curve){1, {1}, {0.5}};
    assert_int_equal(space_open(&s, &f->in, &e), 0);
    assert_int_equal(s.stride, 6);
    space_close(&s);
    f->costs.update_host = (cost_curve){0}; /* the host costs nothing: no stride is worth it */
    assert_int_equal(space_open(&s, &f->in, &e), 0);
    assert_int_equal(s.stride, 0);
    space_close(&s);
    costs_init(&f->costs);
}

static void the_disk_stays_empty_where_the_host_has_room(void **state)
{
    fixture *f = *state;
    int placements[TIERS];
    set_budget(f, f->states_bytes / 2, 2 * f->states_bytes, 0);
    assert_int_equal(plan_placements(f, placements), 0);
    assert_true(placements[TIER_HOST] > 0);
    assert_int_equal(placements[TIER_DISK], 0);
}

static void a_disk_too_small_for_everything_holds_what_the_device_does_not(void **state)
{
    fixture *f = *state;
    int placements[TIERS];
    set_budget(f, f->states_bytes * 9 / 10, 0, f->states_bytes * 7 / 10);
    assert_int_equal(plan_placements(f, placements), 0);
    assert_true(placements[TIER_DEVICE] > 0 && placements[TIER_DISK] > 0);
}

static void device_and_host_together_hold_what_neither_does(void **state)
{
    fixture *f = *state;
    int placements[TIERS];
    set_budget(f, f->states_bytes * 9 / 10, f->states_bytes * 7 / 10, 0);
    assert_int_equal(plan_placements(f, placements), 0);
    assert_true(placements[TIER_DEVICE] > 0 && placements[TIER_HOST] > 0);
}

static void more_memory_never_turns_a_plan_into_a_refusal(void **state)
{
    fixture *f = *state;
    random_source r = random_open();
    int placements[TIERS], fitted = 0, refused = 0;
    for (int i = 0; i < 24; i++) {
        uint64_t part = f->states_bytes / 8, b[TIERS];
        for (int t = 0; t < TIERS; t++)
            b[t] = part * (uint64_t)random_from(&r, t == TIER_DEVICE ? 1 : 0, 6);
        bool more = false;
        for (int step = 0; step < 3; step++) {
            set_budget(f, b[TIER_DEVICE], b[TIER_HOST], b[TIER_DISK]);
            bool fits = plan_placements(f, placements) == 0;
            if (more && !fits)
                fail_msg("device %llu, host %llu, disk %llu: less was enough", (unsigned long long)b[0], (unsigned long long)b[1],
                         (unsigned long long)b[2]);
            fits ? fitted++ : refused++;
            more = fits;
            int t = random_below(&r, TIERS);
            b[t] += b[t] ? part : 0; /* a host or a disk where there was none is another machine */
        }
    }
    assert_true(fitted > 0 && refused > 0);
}

/* Where the disk is forbidden, what is said to be needed is enough without it. */
static void what_is_missing_without_a_disk_is_what_a_plan_without_one_needs(void **state)
{
    fixture *f = *state;
    pt_error e = {0};
    search_result r;
    int placements[TIERS];
    f->in.host_tier = false;
    for (uint64_t device = 1; device <= 1 << 20; device <<= 10) {
        set_budget(f, device, 0, 0);
        assert_int_equal(search_plan(&f->in, &r, &e), PT_DOES_NOT_FIT);
        assert_int_equal(r.least[TIER_DISK], 0);
        set_budget(f, r.least[TIER_DEVICE], 0, 0);
        assert_int_equal(plan_placements(f, placements), 0);
        assert_int_equal(placements[TIER_DISK], 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_stride_of_the_model_is_among_those_that_are_tried),
        cmocka_unit_test(the_disk_stays_empty_where_the_host_has_room),
        cmocka_unit_test(a_disk_too_small_for_everything_holds_what_the_device_does_not),
        cmocka_unit_test(device_and_host_together_hold_what_neither_does),
        cmocka_unit_test(more_memory_never_turns_a_plan_into_a_refusal),
        cmocka_unit_test(what_is_missing_without_a_disk_is_what_a_plan_without_one_needs),
    };
    return cmocka_run_group_tests(tests, open_fixture, close_fixture);
}
