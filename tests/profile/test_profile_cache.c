/* What was measured is used again if it agrees, whatever happens to the cache's files and whoever else uses them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include <cmocka.h>

#include "base/rng.h"
#include "profile/lies.h"
#include "profile/profile_parts.h"
#include "sanitized.h"
#include "seed.h"

#include <math.h>
#include <sys/wait.h>

static uint64_t seed;

/* ---- the cache ---- */

static void what_was_measured_is_used_again(void **state)
{
    (void)state;
    setup s;
    profile_result first, p;
    clocked_open(&s, 0, 16);
    profile_must(&s, &first);
    assert_int_equal(each_file(NULL), 2);
    profile_must(&s, &p);
    assert_true(p.cached);
    assert_memory_equal(&p.costs, &first.costs, sizeof p.costs);
    s.r.fresh = true;
    profile_must(&s, &p);
    assert_false(p.cached);
    setup_close(&s);
}

static void another_model_of_that_size_and_rows_measures_its_blocks_only(void **state)
{
    (void)state;
    setup s;
    profile_result p;
    clocked_open(&s, 0, 16);
    profile_must(&s, &p);
    step_shape_init(&s.shape, s.model, PT_F32, 8, 8);
    profile_must(&s, &p);
    assert_int_equal(each_file(NULL), 3);
    step_shape_init(&s.shape, s.model, PT_F32, 2, 16); /* a unit has fewer rows, which have less beside transfers */
    profile_must(&s, &p);
    assert_int_equal(each_file(NULL), 5);
    setup_close(&s);
}

/* Neither what is kept nor a file. */
static void a_profile_of_another_quota_or_number_of_ranks_does_not_serve(void **state)
{
    (void)state;
    NOT_SANITIZED();
    setup s;
    profile_result p;
    pt_error e = {0};
    char path[300];
    write_profile(&s, 0, true, &p, path);
    s.device->info.quota = 1.5;
    assert_int_equal(profile_get(&s.r, &p, &e), PT_FAILED);
    if (!strstr(e.text, "\"quota\" is 0.0 there and 1.5 here"))
        fail_msg("%s", e.text);
    s.device->info.quota = 0;
    s.r.ranks = 2; /* which measure at the same time */
    assert_int_equal(profile_get(&s.r, &p, &e), PT_FAILED);
    if (!strstr(e.text, "\"ranks\" is missing there and 2 here"))
        fail_msg("%s", e.text);
    s.r.file = NULL;
    for (int i = 0; i < 6; i++) {
        s.r.ranks = i / 2 ? 1 : 2;
        s.device->info.quota = (const double[]){0, 1.5, 1.25}[i / 2];
        profile_must(&s, &p);
        assert_int_equal(p.cached, i % 2);
    }
    setup_close(&s);
}

/* Of setup_open's two, and of those that move something. */
static double threads_of(int class) { return class == COST_MATH || class == COST_MEMORY ? 2 : 1; }

/* All threads that work at once want so many times as much of it as those of one alone, and stand still together. */
static void what_works_beside_something_waits_for_the_quota_too(void **state)
{
    (void)state;
    int compared = 0;
    setup s;
    profile_result all, some;
    clocked_open(&s, 0, 16);
    profile_must(&s, &all);
    s.device->info.quota = 0.5;
    profile_must(&s, &some);
    for (int a = 0; a < COST_CLASSES; a++)
        for (int b = 0; b < COST_CLASSES; b++) {
            const double without = all.costs.slow[a][b], with = some.costs.slow[a][b], more = 1 + threads_of(b) / threads_of(a);
            if (without <= 1 || more * without > SLOW_MOST)
                continue;
            if (fabs(with / without / more - 1) > 0.25)
                fail_msg("%s beside %s: %g, under the quota %g", cost_class_names[a], cost_class_names[b], without, with);
            compared++;
        }
    assert_true(compared > 4);
    setup_close(&s);
}

static const check *slowed;
static void slow_down_ten(const char *path) { slow_down(path, slowed, 10); }
static void slow_down_a_little(const char *path) { slow_down(path, slowed, 1.5); }

static void what_does_not_agree_is_measured_anew(void **state)
{
    (void)state;
    setup s;
    profile_result p;
    clocked_open(&s, 1, 16);
    profile_must(&s, &p);
    for (int i = 0; i < CHECKS; i++) {
        const profile_check *c = (const profile_check *)((const char *)&p + checks[i].at);
        double before = c->ns;
        assert_true(c->amount > 0);
        slowed = &checks[i];
        assert_int_equal(each_file(slow_down_ten), 2);
        profile_must(&s, &p);
        assert_false(p.cached);
        if (!(c->ns > before / 8))
            fail_msg("%s %g ns, as the file says", checks[i].what, c->ns);
    }
    setup_close(&s);
}

static bool is_used(setup *s, profile_result *p)
{
    profile_must(s, p);
    return p->cached;
}

static double spread_there;
static int64_t seconds_ago;

/* Layers and head as if they had been measured then, and as surely. */
static void date_back(const char *path)
{
    json_t *all = json_load_file(path, 0, NULL), *measured = json_object_get(json_object_get(all, "blocks"), "measured");
    if (measured) {
        char at[32];
        const time_t then = time(NULL) - (time_t)seconds_ago;
        strftime(at, sizeof at, "%Y-%m-%dT%H:%M:%SZ", gmtime(&then));
        json_object_set_new(measured, "at", json_string(at));
        json_object_set_new(measured, "spread", json_real(spread_there));
        assert_int_equal(json_dump_file(all, path, 0), 0);
    }
    json_decref(all);
}

static void what_is_unsure_serves_for_an_hour(void **state)
{
    (void)state;
    static const struct { double spread; int64_t ago; bool used; } cases[] = {
        {0.3, 60, true}, {0.3, 3500, true}, {0.3, 3700, false}, {0.3, -3700, false}, {0.09, 3700, true}, {0.09, 1 << 28, true}};
    setup s;
    profile_result p;
    clocked_open(&s, 1, 16);
    profile_must(&s, &p);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        spread_there = cases[i].spread;
        seconds_ago = cases[i].ago;
        each_file(date_back);
        if (is_used(&s, &p) != cases[i].used)
            fail_msg("sure to %g, %lld s ago: %s", spread_there, (long long)seconds_ago, p.cached ? "used" : "measured");
    }
    setup_close(&s);
}

/* In so little memory the update on the host and the disk are still checked, and nothing is measured: the notice tells that it was
 * tried. */
static void where_there_is_no_memory_to_measure_what_was_kept_serves(void **state)
{
    (void)state;
    setup s;
    profile_result p;
    pt_error e = {0};
    char said[8192];
    clocked_open(&s, 1, 16);
    s.r.notice = keep_notice;
    s.r.arg = said;
    const uint64_t whole = s.r.budget[TIER_DEVICE], little = 130 << 10;
    spread_there = 0.3;
    seconds_ago = 3700;
    for (slowed = checks; slowed < checks + CHECKS; slowed++) {
        const bool host_or_disk = strstr(slowed->key, "host") || strstr(slowed->key, "read") || strstr(slowed->key, "write");
        if (!host_or_disk && slowed != checks)
            continue;
        profile_must(&s, &p);
        each_file(host_or_disk ? slow_down_ten : date_back);
        s.r.budget[TIER_DEVICE] = little;
        said[0] = 0;
        if (!is_used(&s, &p) || !strstr(said, "or more; the earlier profile is used"))
            fail_msg("%s: \"%s\"", slowed->what, said);
        s.r.budget[TIER_DEVICE] = whole;
        assert_false(is_used(&s, &p));
    }
    s.r.budget[TIER_DEVICE] = little;
    s.r.fresh = true;
    assert_int_equal(profile_get(&s.r, &p, &e), PT_DOES_NOT_FIT);
    setup_close(&s);
}

static double last_amount(const cost_curve *c) { return c->amount[c->n - 1]; }

static void what_was_measured_within_smaller_budgets_is_measured_anew(void **state)
{
    (void)state;
    NOT_SANITIZED();
    for (int transfers = 0; transfers < 2; transfers++) {
        setup s;
        profile_result small, p;
        clocked_open(&s, 0, 16);
        const tier t = transfers ? TIER_DISK : TIER_DEVICE; /* a smaller disk leaves updates as they are */
        const uint64_t whole = s.r.budget[t];
        s.r.transfers = transfers;
        s.r.budget[t] = 1 << 20;
        profile_must(&s, &small);
        assert_true(is_used(&s, &small));
        s.r.budget[t] = whole;
        profile_must(&s, &p);
        assert_false(p.cached);
        if (transfers)
            assert_true(last_amount(&p.costs.to_device) > last_amount(&small.costs.to_device));
        else
            assert_true(last_amount(&p.costs.update_device) > last_amount(&small.costs.update_device));
        assert_true(is_used(&s, &p));
        s.r.budget[t] = 1 << 20;
        assert_true(is_used(&s, &p));
        setup_close(&s);
    }
}

/* Of the layers fewer sets of weights fit into the small budget, which then lie in the cache. */
static void blocks_that_had_less_memory_are_measured_anew(void **state)
{
    (void)state;
    NOT_SANITIZED();
    setup s;
    profile_result small, p;
    clocked_open(&s, 0, 64);
    const uint64_t whole = s.r.budget[TIER_DEVICE];
    s.r.transfers = s.r.host_tier = false;
    s.r.budget[TIER_DEVICE] = 700 << 10;
    profile_must(&s, &small);
    assert_true(is_used(&s, &small) && small.within_bytes == 700 << 10);
    s.r.budget[TIER_DEVICE] = whole;
    profile_must(&s, &p);
    assert_true(!p.cached && p.within_bytes == (int64_t)whole);
    assert_true(is_used(&s, &p));
    s.r.budget[TIER_DEVICE] = 700 << 10;
    assert_true(is_used(&s, &p));
    setup_close(&s);
}

/* Of many layers the head needs the most memory, for what lies between its visits: budgets in which all else is measured as with much. */
static void a_head_that_had_less_memory_is_measured_anew(void **state)
{
    (void)state;
    NOT_SANITIZED();
    static const char deep[] = "{\"model_type\": \"llama\", \"vocab_size\": 12000, \"hidden_size\": 32, \"num_attention_heads\": 4, "
                               "\"num_key_value_heads\": 2, \"num_hidden_layers\": 64, \"intermediate_size\": 192, "
                               "\"max_position_embeddings\": 64, \"hidden_act\": \"silu\", \"bos_token_id\": 0, \"eos_token_id\": 0}";
    setup s;
    int head_only = 0;
    setup_open(&s, deep, PT_F32, 2, 8);
    for (uint64_t bytes = s.r.budget[TIER_DEVICE]; bytes > 1 << 20; bytes -= 1 << 18) {
        profile_request small = s.r;
        bench now = {.r = &s.r}, then = {.r = &small};
        small.budget[TIER_DEVICE] = bytes;
        if (!layer_suffices(&now, &then) || !embed_finish_suffices(&now, &then) || head_suffices(&now, &then))
            continue;
        assert_false(blocks_suffice(&now, bytes));
        head_only++;
    }
    assert_true(head_only > 0);
    setup_close(&s);
}

static void damage(const char *path)
{
    static uint64_t round;
    char *text;
    read_text(path, &text);
    size_t n = strlen(text);
    uint32_t w[4];
    rng_words(seed, RNG_TEST, 0, round++, w);
    switch (w[0] % 3) {
    case 0: put(path, text, w[1] % n); break;
    case 1: put(path, "", 0); break;
    default:
        for (int i = 0; i < 8; i++)
            text[(w[1] + (uint32_t)i * 977) % n] = (char)w[2];
        put(path, text, n);
    }
    free(text);
}

static void damaged_files_are_measured_anew(void **state)
{
    (void)state;
    setup s;
    profile_result p;
    pt_error e = {0};
    clocked_open(&s, 1, 16);
    profile_must(&s, &p);
    for (int i = 0; i < 6; i++) {
        each_file(damage);
        profile_must(&s, &p);
        if (costs_validate(&p.costs, s.model, "cached", &e))
            fail_msg("%s", e.text);
        assert_int_equal(each_file(NULL), 2);
    }
    setup_close(&s);
}

static void without_a_home_nothing_is_kept(void **state)
{
    (void)state;
    setup s;
    profile_result p;
    char *home = getenv("HOME") ? strdup(getenv("HOME")) : NULL;
    clocked_open(&s, 1, 16);
    unsetenv("HOME");
    for (int i = 0; i < 2; i++) {
        if (i)
            setenv("XDG_CACHE_HOME", "/proc/nothing", 1); /* cannot be made */
        else
            unsetenv("XDG_CACHE_HOME");
        for (int k = 0; k < 2; k++) {
            profile_must(&s, &p);
            assert_false(p.cached);
        }
    }
    assert_int_equal(each_file(NULL), 0);
    if (home)
        setenv("HOME", home, 1);
    free(home);
    setup_close(&s);
}

static void processes_do_not_disturb_each_other(void **state)
{
    (void)state;
    enum { PROCESSES = 4 };
    setup s;
    profile_result p;
    pt_error e = {0};
    pid_t children[PROCESSES];
    clocked_open(&s, 1, 16);
    fflush(NULL);
    for (int i = 0; i < PROCESSES; i++) {
        children[i] = fork();
        assert_true(children[i] >= 0);
        if (children[i])
            continue;
        int failed = 0;
        for (int k = 0; k < 3 && !failed; k++) {
            s.r.fresh = k == 1;
            failed = profile_get(&s.r, &p, &e) || costs_validate(&p.costs, s.model, "child", &e);
        }
        if (failed)
            fprintf(stderr, "%s\n", e.text);
        _exit(failed ? 1 : 0);
    }
    for (int i = 0; i < PROCESSES; i++) {
        int status;
        assert_true(waitpid(children[i], &status, 0) == children[i]);
        assert_int_equal(status, 0);
    }
    assert_int_equal(each_file(NULL), 2);
    setup_close(&s);
}

/* A disk's cache takes writes at a speed of its own. Of what is kept nothing is told, since no one named it. */
static void a_write_that_is_off_a_little_is_used_without_a_word(void **state)
{
    (void)state;
    setup s;
    profile_result p;
    char said[8192] = "";
    clocked_open(&s, 0, 16);
    s.r.notice = keep_notice;
    s.r.arg = said;
    slowed = &checks[CHECKS - 1];
    profile_must(&s, &p);
    double was = p.write.ns;
    each_file(slow_down_a_little);
    profile_must(&s, &p);
    assert_true(p.cached && p.write.ns < was);
    assert_string_equal(said, "");
    setup_close(&s);
}

static const lie *told;
static void tell_it(const char *path) { tell_lie(path, told); }

/* Some of them: the same check refuses all of them in a file, below, and measuring takes long. */
static void what_is_kept_and_lies_is_measured_anew(void **state)
{
    (void)state;
    setup s;
    profile_result p;
    clocked_open(&s, 2, 16);
    profile_must(&s, &p);
    enum { EVERY = 4 };
    for (told = lies; told < lies + LIES; told += EVERY) {
        each_file(tell_it);
        profile_must(&s, &p);
        if (p.cached)
            fail_msg("%s times %g was used", told->key, told->by);
        assert_true(is_used(&s, &p));
    }
    setup_close(&s);
}

int main(void)
{
    seed = test_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_measured_is_used_again),
        cmocka_unit_test(another_model_of_that_size_and_rows_measures_its_blocks_only),
        cmocka_unit_test(a_profile_of_another_quota_or_number_of_ranks_does_not_serve),
        cmocka_unit_test(what_works_beside_something_waits_for_the_quota_too),
        cmocka_unit_test(what_does_not_agree_is_measured_anew),
        cmocka_unit_test(what_is_unsure_serves_for_an_hour),
        cmocka_unit_test(where_there_is_no_memory_to_measure_what_was_kept_serves),
        cmocka_unit_test(what_was_measured_within_smaller_budgets_is_measured_anew),
        cmocka_unit_test(blocks_that_had_less_memory_are_measured_anew),
        cmocka_unit_test(a_head_that_had_less_memory_is_measured_anew),
        cmocka_unit_test(damaged_files_are_measured_anew),
        cmocka_unit_test(without_a_home_nothing_is_kept),
        cmocka_unit_test(processes_do_not_disturb_each_other),
        cmocka_unit_test(a_write_that_is_off_a_little_is_used_without_a_word),
        cmocka_unit_test(what_is_kept_and_lies_is_measured_anew),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
