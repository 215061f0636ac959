/* protrain plan for several ranks of a machine that is not here: what is theirs together falls with their number, weights are sharded where
 * they have no room whole, and what a file does not say is asked for. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "cli/planned.h"

static int sharded_chunks(const json_t *o)
{
    const json_t *chunks = json_object_get(json_object_get(o, "plan"), "chunks"), *one;
    size_t i;
    int n = 0;
    json_array_foreach(chunks, i, one)
        n += json_is_true(json_object_get(one, "sharded")) ? (int)json_integer_value(json_object_get(one, "count")) : 0;
    return n;
}

/* On all tiers. */
static double optimizer_bytes(const json_t *o)
{
    const char *name;
    json_t *parts;
    double bytes = 0;
    json_object_foreach(json_object_get(o, "memory"), name, parts)
        bytes += json_number_value(json_object_get(parts, "optimizer"));
    return bytes;
}

/* Of a sequence a rank; the caller's. */
static json_t *plan_for(const char *machine, const char *ranks)
{
    put_text("config.json", large);
    const int status = plan_with(WORDS("--model", scratch_path("config.json"), "--machine", machine, "--ranks", ranks), WORDS("--json",
                                 "--batch-size", ranks));
    if (status)
        fail_msg("%s ranks: exit status %d: %s", ranks, status, text_of(scratch_path("err")));
    return printed();
}

static void more_ranks_need_less_each(void **state)
{
    (void)state;
    json_t *few = plan_for("h200", "8"), *many = plan_for("h200", "32");
    assert_int_equal(json_integer_value(json_object_get(few, "ranks")), 8);
    assert_true(sharded_chunks(few) > 0 && sharded_chunks(many) > 0); /* 131 GiB of weights */
    const double of_few = optimizer_bytes(few), of_many = optimizer_bytes(many);
    assert_true(of_many > 0.2 * of_few && of_many < 0.3 * of_few);
    json_decref(few);
    json_decref(many);
}

/* The step is the whole one, and its part is told. */
static void a_rank_s_part_of_the_step_is_told(void **state)
{
    (void)state;
    words asked = WORDS("--model", fixture("llama"), "--machine", "h100", "--seq-len", "32");
    assert_int_equal(plan_with(asked, WORDS("--ranks", "8", "--batch-size", "16", "--quiet")), 0);
    const char *said = text_of(scratch_path("out"));
    if (!strstr(said, "a step is 16 sequences of 32 tokens") || !strstr(said, "8 ranks: each computes 2 of the sequences"))
        fail_msg("%s", said);
    check_refusal("3 of 8", plan_with(asked, WORDS("--ranks", "3", "--batch-size", "8")), 2,
                  WORDS("--ranks 3", "give --ranks 2, or --batch-size 6 or 9"));
    check_refusal("more than there are", plan_with(asked, WORDS("--ranks", "8", "--batch-size", "6")), 2,
                  WORDS("--ranks 8", "give --ranks 6, or --batch-size 8"));
}

/* With more ranks than sequences each has a part of one, and the longest sequence is one that all share. */
static void ranks_share_a_sequence(void **state)
{
    (void)state;
    words asked = WORDS("--model", fixture("llama"), "--machine", "h100", "--seq-len", "64", "--batch-size", "2");
    assert_int_equal(plan_with(asked, WORDS("--ranks", "8", "--quiet")), 0);
    const char *said = text_of(scratch_path("out"));
    if (!strstr(said, "a step is 2 sequences of 64 tokens") || !strstr(said, "8 ranks: each computes 1 / 4 of the sequences"))
        fail_msg("%s", said);
    assert_non_null(strstr(said, "of a sequence, "));
    check_refusal("six of two", plan_with(asked, WORDS("--ranks", "6")), 2, WORDS("--ranks 6", "give --ranks 4, or --batch-size 6"));
    check_refusal("a state", plan_with(WORDS("--model", fixture("qwen3_5"), "--machine", "h100", "--batch-size", "1"),
                                       WORDS("--ranks", "2", "--seq-len", "64")), 2,
                  WORDS("--ranks 2", "state", "give --ranks 1 or --batch-size 2"));
    check_refusal("a norm of two", plan_with(WORDS("--model", fixture("cohere"), "--machine", "h100", "--batch-size", "1"),
                                             WORDS("--ranks", "2", "--seq-len", "64")), 2, WORDS("--ranks 2", "norm"));
}

/* A step of more units than are searched is searched as a shorter one, whose lanes are fewer. */
static void thousands_of_lanes_can_be_planned_for(void **state)
{
    (void)state;
    assert_int_equal(plan_with(WORDS("--model", fixture("gemma3"), "--machine", "h100", "--lanes", "4096"),
                               WORDS("--batch-size", "4096", "--seq-len", "8", "--quiet")), 0);
}

static void three_ranks_have_a_longest_sequence(void **state)
{
    (void)state;
    assert_int_equal(plan_with(WORDS("--model", fixture("llama"), "--machine", "h100", "--ranks", "3"),
                               WORDS("--batch-size", "3", "--seq-len", "32", "--quiet")), 0);
    assert_non_null(strstr(text_of(scratch_path("out")), "\nlongest "));
}

static void thousands_can_be_planned_for(void **state)
{
    (void)state;
    assert_int_equal(plan_with(WORDS("--model", fixture("llama"), "--machine", "h100", "--ranks", "1024"),
                               WORDS("--batch-size", "1024", "--seq-len", "32", "--quiet")), 0);
}

static void what_a_file_does_not_say_is_asked_for(void **state)
{
    (void)state;
    words asked = WORDS("--model", fixture("llama"), "--batch-size", "16", "--seq-len", "32");
    check_refusal("no links", plan_with(asked, WORDS("--machine", "laptop16", "--ranks", "2")), 2,
                  WORDS("--ranks is 2", "laptop16.json", "\"collective_bandwidth\""));
    static const char text[] = "{\"name\": \"two\", \"kind\": \"cuda\", \"device\": {\"memory_bytes\": 1073741824, \"memory_bandwidth\": "
                               "1e11, \"bf16_flops\": 1e13, \"fp32_flops\": 1e13}, \"devices\": 2, \"collective_bandwidth\": 1e10}";
    put_text("two.json", text);
    check_refusal("no network", plan_with(asked, WORDS("--machine", scratch_path("two.json"), "--ranks", "4")), 2,
                  WORDS("--ranks is 4", "two.json", "\"network_bandwidth\""));
    assert_int_equal(plan_with(asked, WORDS("--machine", scratch_path("two.json"), "--ranks", "2", "--quiet")), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(more_ranks_need_less_each),
        cmocka_unit_test(a_rank_s_part_of_the_step_is_told),
        cmocka_unit_test(ranks_share_a_sequence),
        cmocka_unit_test(thousands_of_lanes_can_be_planned_for),
        cmocka_unit_test(three_ranks_have_a_longest_sequence),
        cmocka_unit_test(thousands_can_be_planned_for),
        cmocka_unit_test(what_a_file_does_not_say_is_asked_for),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
