/* profile.json: there and back, what may be missing, and what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "sanitized.h"
#include "base/rng.h"
#include "profile/support.h"
#include "report/profile_text.h"
#include "seed.h"

static uint64_t seed;

/* ---- profile.json ---- */

static void text_and_back_is_the_same(void **state)
{
    (void)state;
    NO_OTHER_THREADS();
    setup s;
    profile_result p, back;
    pt_error e = {0};
    setup_open(&s, test_configs[2], PT_BF16, 4, 16);
    profile_must(&s, &p);
    char *text = profile_to_json(&s.r, &p);
    assert_non_null(text);
    if (profile_from_json("profile.json", text, strlen(text), &s.r, &back, &e))
        fail_msg("%s", e.text);
    assert_memory_equal(&p.costs, &back.costs, sizeof p.costs);
    char *again = profile_to_json(&s.r, &back);
    assert_string_equal(text, again);
    free(text);
    free(again);
    setup_close(&s);
}

/* The text without a key of the machine's part. */
static char *without(const char *text, const char *key)
{
    char quoted[64];
    snprintf(quoted, sizeof quoted, "\"%s\": ", key);
    const char *at = strstr(strstr(text, "\"machine\": {"), quoted), *end = at;
    assert_non_null(at);
    while (*at != ',')
        at--;
    for (int depth = 0; depth > 0 || !strchr(",}\n", *end); end++)
        depth += (*end == '[') - (*end == ']');
    char *out = malloc(strlen(text) + 1);
    assert_non_null(out);
    sprintf(out, "%.*s%s", (int)(at - text), text, end);
    return out;
}

/* Files from before there were these. */
static void what_no_plan_needs_may_be_missing(void **state)
{
    (void)state;
    NO_OTHER_THREADS();
    static const char *const keys[] = {"spread", "check_write", "check_to_device", "check_from_device", "check_update_host",
                                       "update_threads"};
    setup s;
    profile_result p;
    pt_error e = {0};
    setup_open(&s, test_configs[1], PT_BF16, 4, 16);
    profile_must(&s, &p);
    char *text = profile_to_json(&s.r, &p);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        char *less = without(text, keys[i]);
        free(text);
        text = less;
        if (profile_from_json("profile.json", text, strlen(text), &s.r, &p, &e))
            fail_msg("%s", e.text);
    }
    assert_true(p.costs.curves_spread == 0 && p.threads_n == 0 && p.update.amount > 0 && p.read.amount > 0);
    assert_true(p.write.amount == 0 && p.to_device.amount == 0 && p.from_device.amount == 0 && p.update_host.amount == 0);
    char *shown = profile_text(&s.r, &p);
    assert_non_null(strstr(shown, "Times of blocks are certain to"));
    assert_null(strstr(shown, "updates and transfers to"));
    assert_null(strstr(shown, "by threads"));
    free(shown);
    free(text);
    setup_close(&s);
}

/* Measured once; what is read from its text for another request, or after a change, must be refused. */
typedef struct written { setup s; char *text; } written;

static void write_one(written *w)
{
    profile_result p;
    setup_open(&w->s, test_configs[1], PT_F32, 4, 16);
    profile_must(&w->s, &p);
    w->text = profile_to_json(&w->s.r, &p);
    assert_non_null(w->text);
}

static void refused(const written *w, const profile_request *r, const char *text, const char *word)
{
    pt_error e = {0};
    profile_result p;
    assert_int_equal(profile_from_json("some/profile.json", text, strlen(text), r, &p, &e), PT_FAILED);
    if (!strstr(e.text, "some/profile.json") || !strstr(e.text, word))
        fail_msg("no \"%s\" in: %s", word, e.text);
}

static void profiles_of_something_else_are_refused_with_what_differs(void **state)
{
    (void)state;
    NO_OTHER_THREADS();
    written w;
    write_one(&w);
    profile_request r = w.s.r;
    step_shape other = w.s.shape;
    r.shape = &other;
    step_shape_init(&other, w.s.model, PT_F32, 4, 8);
    refused(&w, &r, w.text, "seq_len");
    step_shape_init(&other, w.s.model, PT_F32, 2, 16);
    refused(&w, &r, w.text, "batch");
    step_shape_init(&other, w.s.model, PT_BF16, 4, 16);
    refused(&w, &r, w.text, "dtype");
    r = w.s.r;
    r.threads = 1;
    refused(&w, &r, w.text, "threads");
    r = w.s.r;
    device stranger = *w.s.device;
    strcpy(stranger.info.name, "another processor");
    r.device = &stranger;
    refused(&w, &r, w.text, "processor");
    setup t;
    setup_open(&t, test_configs[0], PT_F32, 4, 16);
    refused(&w, &t.r, w.text, "model_type");
    setup_close(&t);
    free(w.text);
    w.s.device->table->close(w.s.device);
    model_close(w.s.model);
}

/* The text with what stands behind the key, from "measured" on (up to the end of its number or list) replaced. */
static char *with(const char *text, const char *key, const char *value)
{
    char quoted[64];
    snprintf(quoted, sizeof quoted, "\"%s\": ", key);
    const char *at = strstr(strstr(text, "\"measured\""), quoted);
    assert_non_null(at);
    at += strlen(quoted);
    const char *end = at;
    int depth = 0;
    while (depth > 0 || !strchr(",}\n", *end)) {
        depth += *end == '[';
        depth -= *end == ']';
        end++;
    }
    char *out = malloc(strlen(text) + strlen(value) + 1);
    assert_non_null(out);
    sprintf(out, "%.*s%s%s", (int)(at - text), text, value, end);
    return out;
}

static void profiles_that_lie_are_refused(void **state)
{
    (void)state;
    NO_OTHER_THREADS();
    static const struct { const char *key, *value, *word; } lies[] = {
        {"head_ns", "-1", "head_ns"}, {"head_ns", "1e400", "profile.json"}, {"head_ns", "\"1\"", "head_ns"}, {"head_ns", "NaN", "JSON"},
        {"task_ns", "null", "task_ns"}, {"forward_ns", "[1, 2]", "forward_ns"}, {"forward_ns", "[1, 2, 3, 4]", "forward_ns"},
        {"forward_ns", "[1, 2, -4]", "forward"},
        {"backward_ns", "[1, 2, []]", "backward_ns"}, {"cold_sums_ns", "-1", "cold_sums_ns"},
        {"head_cold_sums_ns", "-1", "head_cold_sums_ns"}, {"warm_forward_ns", "-1", "warm_forward_ns"},
        {"warm_backward_ns", "[1, 2]", "warm_backward_ns"}, {"warm_backward_ns", "[1, 2, -1]", "warm_backward_ns"},
        {"first_sums_ns", "null", "first_sums_ns"},
        {"read", "[[2, 1], [1, 2]]", "read"}, {"read", "[[1, 2], [2, 1]]", "read"},
        {"read", "[[1, 2, 3]]", "read"}, {"read", "[[0, 1]]", "read"}, {"write",
            "[[1,1],[2,2],[3,3],[4,4],[5,5],[6,6],[7,7],[8,8],[9,9]]", "write"},
        {"layers", "[[0, 1]]", "layers"}, {"layers", "[[0, 3]]", "layers"}, {"layers", "[[7, 2]]", "kind"},
        {"layers", "[[1e300, 2]]", "layers"},
        {"memory", "[1, 1, 1, 0.5, 1, 1, 1]", "memory"}, {"memory", "[1]", "memory"}, {"at", "\"yesterday\"", "at"},
        {"spread", "-1", "spread"},
        {"check", "[0, 1]", "check"}, {"check", "[1e9, 1]", "check"}, {"embed_finish", "{}", "embed_finish"},
        {"check_write", "[-1, 1]", "check_write"}, {"check_to_device", "[1]", "check_to_device"},
        {"check_from_device", "{}", "check_from_device"}, {"check_update_host", "[1e9, 1]", "check_update_host"},
        {"update_threads", "{}", "update_threads"}, {"update_threads", "[[0, 4, 1]]", "update_threads"},
        {"update_threads", "[[1, 4]]", "update_threads"},
        {"update_threads", "[[2, 4, 1], [1, 4, 1]]", "update_threads"}, {"update_threads", "[[1, 4, 0]]", "update_threads"},
        {"update_threads", "[[1,4,1],[2,4,1],[3,4,1],[4,4,1],[5,4,1],[6,4,1],[7,4,1],[8,4,1],[9,4,1]]", "update_threads"}};
    written w;
    write_one(&w);
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        char *changed = with(w.text, lies[i].key, lies[i].value);
        refused(&w, &w.s.r, changed, lies[i].word);
        free(changed);
    }
    char *unknown = with(w.text, "task_ns", "1, \"tusk_ns\": 2");
    refused(&w, &w.s.r, unknown, "tusk_ns");
    free(unknown);
    char cut[64];
    snprintf(cut, sizeof cut, "%.60s", w.text);
    refused(&w, &w.s.r, cut, "JSON");
    refused(&w, &w.s.r, "[]", "a profile");
    refused(&w, &w.s.r, "{\"blocks\": {}}", "made_for");
    free(w.text);
    setup_close(&w.s);
}

static void a_profile_without_transfers_does_not_serve_where_they_are_needed(void **state)
{
    (void)state;
    NO_OTHER_THREADS();
    setup s;
    profile_result p;
    setup_open(&s, test_configs[1], PT_F32, 4, 16);
    s.r.transfers = false;
    profile_must(&s, &p);
    written w = {.s = s, .text = profile_to_json(&s.r, &p)};
    profile_request r = s.r;
    r.transfers = true;
    refused(&w, &r, w.text, "transfer_bytes");
    free(w.text);
    setup_close(&s);
}

static void damaged_profiles_are_refused_or_valid(void **state)
{
    (void)state;
    NO_OTHER_THREADS();
    written w;
    write_one(&w);
    size_t n = strlen(w.text);
    for (uint64_t round = 0; round < 3000; round++) {
        char *text = strdup(w.text);
        for (uint32_t k = 0; k < 1 + round % 3; k++) {
            uint32_t v[4];
            rng_words(seed, RNG_TEST, k, round, v);
            text[v[0] % n] = "0123456789-.,[]{}\"eE: abz"[v[1] % 25];
        }
        pt_error e = {0};
        profile_result p;
        if (profile_from_json("p.json", text, n, &w.s.r, &p, &e))
            assert_true(e.code == PT_FAILED && strstr(e.text, "p.json"));
        else if (costs_validate(&p.costs, w.s.model, "p.json", &e))
            fail_msg("round %llu: %s", (unsigned long long)round, e.text);
        free(text);
    }
    free(w.text);
    setup_close(&w.s);
}

int main(void)
{
    seed = test_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_and_back_is_the_same),
        cmocka_unit_test(what_no_plan_needs_may_be_missing),
        cmocka_unit_test(profiles_of_something_else_are_refused_with_what_differs),
        cmocka_unit_test(profiles_that_lie_are_refused),
        cmocka_unit_test(a_profile_without_transfers_does_not_serve_where_they_are_needed),
        cmocka_unit_test(damaged_profiles_are_refused_or_valid),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
