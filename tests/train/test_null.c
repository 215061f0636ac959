/* NULL where the library needs something: a sentence that names it, and nothing else happens. */
#include "protrain.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static pt_error e;

static void refused(int status, const char *what)
{
    if (status != PT_USAGE || e.code != PT_USAGE || !strstr(e.text, what) || !strstr(e.text, "NULL"))
        fail_msg("%d, %d: %s", status, e.code, e.text);
    memset(&e, 0, sizeof e);
}

static void named(int status, const char *field)
{
    if (status != PT_USAGE || e.code != PT_USAGE || !strstr(e.text, field))
        fail_msg("%d, %d: %s, instead of one about %s", status, e.code, e.text, field);
    memset(&e, 0, sizeof e);
}

#define MODEL PT_FIXTURES "/models/llama"
static const char *const none[] = {MODEL "/tokens.npy", NULL}, *const data[] = {MODEL "/tokens.npy"};

static pt_train_options training(void)
{
    pt_train_options o;
    pt_train_defaults(&o);
    o.model = MODEL;
    o.data = data;
    o.data_n = 1;
    o.out = "test_null.out";
    o.steps = 1;
    o.seq_len = 16;
    o.device = "cpu";
    return o;
}

static pt_evaluate_options evaluating(void)
{
    pt_evaluate_options o;
    pt_evaluate_defaults(&o);
    o.model = MODEL;
    o.data = data;
    o.data_n = 1;
    o.device = "cpu";
    return o;
}

static void lists_with_null_are_wrong_usage(void **state)
{
    (void)state;
    pt_trainer *t;
    pt_plan *p;
    pt_profile *f;
    pt_evaluation result;
    for (int n = -1; n <= 2; n += 3) { /* a negative number, and an entry of NULL */
#define LIST(name)                                                                                                                         \
    do {                                                                                                                                   \
        pt_train_options o = training();                                                                                                   \
        o.name = none;                                                                                                                     \
        o.name##_n = n;                                                                                                                    \
        named(pt_trainer_open(&o, &t, &e), #name);                                                                                         \
        o.name = NULL;                                                                                                                     \
        named(pt_trainer_open(&o, &t, &e), #name);                                                                                         \
    } while (0)
        LIST(data);
        LIST(eval_data);
        LIST(sample);
        LIST(freeze);
        LIST(train_only);
#undef LIST
        pt_train_options o = training();
        o.freeze = none;
        o.freeze_n = n;
        named(pt_plan_open(&o, &p, &e), "freeze");
        named(pt_profile_open(&o, false, &f, &e), "freeze");
        pt_evaluate_options v = evaluating();
        v.data = none;
        v.data_n = n;
        named(pt_evaluate(&v, &result, &e), "data");
    }
}

static void values_outside_of_their_enum_are_wrong_usage(void **state)
{
    (void)state;
    static const char record[] = "[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":\"b\"}]";
    pt_trainer *t;
    pt_evaluation result;
    pt_generator *g;
    pt_example x;
    for (int wrong = -1; wrong <= 99; wrong += 100) {
#define CHOICE(make, open, name)                                                                                                           \
    do {                                                                                                                                   \
        __typeof__(make) o = make;                                                                                                         \
        memcpy(&o.name, &wrong, sizeof o.name); /* an assignment could be undefined */                                                     \
        named(open, #name);                                                                                                                \
    } while (0)
        CHOICE(training(), pt_trainer_open(&o, &t, &e), data_format);
        CHOICE(training(), pt_trainer_open(&o, &t, &e), train_on);
        CHOICE(training(), pt_trainer_open(&o, &t, &e), long_examples);
        CHOICE(training(), pt_trainer_open(&o, &t, &e), task);
        CHOICE(training(), pt_trainer_open(&o, &t, &e), dpo_loss);
        CHOICE(training(), pt_trainer_open(&o, &t, &e), loss_per);
        CHOICE(training(), pt_trainer_open(&o, &t, &e), precision);
        CHOICE(training(), pt_trainer_open(&o, &t, &e), optimizer);
        CHOICE(training(), pt_trainer_open(&o, &t, &e), lr_schedule);
        CHOICE(training(), pt_trainer_open(&o, &t, &e), lr_adjust);
        CHOICE(training(), pt_trainer_open(&o, &t, &e), base);
        CHOICE(training(), pt_trainer_open(&o, &t, &e), save_type);
        CHOICE(evaluating(), pt_evaluate(&o, &result, &e), data_format);
        CHOICE(evaluating(), pt_evaluate(&o, &result, &e), train_on);
        CHOICE(evaluating(), pt_evaluate(&o, &result, &e), long_examples);
        CHOICE(evaluating(), pt_evaluate(&o, &result, &e), precision);
        CHOICE(evaluating(), pt_evaluate(&o, &result, &e), base);
        pt_generate_options made;
        pt_generate_defaults(&made);
        made.model = MODEL;
        CHOICE(made, pt_generator_open(&o, &g, &e), precision);
        CHOICE(made, pt_generator_open(&o, &g, &e), base);
        const pt_merge_options merged = {.size = sizeof merged, .model = MODEL, .adapter = (const char *const[]){MODEL}, .adapter_n = 1,
                                         .out = "test_null.out"};
        CHOICE((pt_merge_options)merged, pt_merge(&o, &e), save_type);
        const pt_export_options exported = {.size = sizeof exported, .model = MODEL, .out = "test_null.out"};
        CHOICE((pt_export_options)exported, pt_export(&o, &e), type);
#undef CHOICE
        pt_train_on on;
        memcpy(&on, &wrong, sizeof on);
        named(pt_example_make(MODEL, NULL, on, false, "r", record, strlen(record), &x, &e), "train_on");
    }
}

static void opening_without_options_or_a_place_is_wrong_usage(void **state)
{
    (void)state;
    pt_train_options o;
    pt_evaluate_options v;
    pt_generate_options g;
    pt_trainer *t;
    pt_plan *p;
    pt_profile *f;
    pt_generator *made;
    pt_evaluation result;
    pt_train_defaults(&o);
    pt_evaluate_defaults(&v);
    pt_generate_defaults(&g);
    refused(pt_trainer_open(NULL, &t, &e), "the options");
    refused(pt_trainer_open(&o, NULL, &e), "the trainer");
    refused(pt_plan_open(NULL, &p, &e), "the options");
    refused(pt_plan_open(&o, NULL, &e), "the plan");
    char *table;
    refused(pt_plan_machines(NULL, false, &table, &e), "the options");
    refused(pt_plan_machines(&o, false, NULL, &e), "the table");
    named(pt_plan_machines(&o, false, &table, &e), "machine_file");
    refused(pt_select(NULL, 1 << 30, 2, false, &table, &e), "the options");
    refused(pt_select(&o, 1 << 30, 2, false, NULL, &e), "the place for the text");
    named(pt_select(&o, 1 << 30, 2, false, &table, &e), "model");
    refused(pt_profile_open(NULL, false, &f, &e), "the options");
    refused(pt_profile_open(&o, false, NULL, &e), "the profile");
    refused(pt_evaluate(NULL, &result, &e), "the options");
    refused(pt_evaluate(&v, NULL, &e), "the result");
    refused(pt_generator_open(NULL, &made, &e), "the options");
    refused(pt_generator_open(&g, NULL, &e), "the generator");
    refused(pt_tokenizer_open("model", NULL, &e), "the tokenizer");
    refused(pt_merge(NULL, &e), "the options");
    refused(pt_export(NULL, &e), "the options");
    pt_report *report;
    pt_example x;
    uint64_t bytes;
    refused(pt_report_open(NULL, &report, &e), "the folder");
    refused(pt_report_open(".", NULL, &e), "the report");
    refused(pt_example_make(MODEL, NULL, PT_TRAIN_ON_AUTO, false, "r", "{}", 2, NULL, &e), "the example");
    refused(pt_example_make(MODEL, NULL, PT_TRAIN_ON_AUTO, false, NULL, "{}", 2, &x, &e), "the name");
    refused(pt_example_make(MODEL, NULL, PT_TRAIN_ON_AUTO, false, "r", NULL, 2, &x, &e), "the record");
    refused(pt_size_parse(NULL, &bytes, &e), "the text");
    refused(pt_size_parse("1", NULL, &e), "the number");
    named(pt_tokenizer_open(NULL, &(pt_tokenizer *){NULL}, &e), "model");
    named(pt_example_make(NULL, NULL, PT_TRAIN_ON_AUTO, false, "r", "{}", 2, &x, &e), "model");
    named(pt_trainer_open(&o, &t, &e), "model"); /* all strings of the options are NULL */
    named(pt_plan_open(&o, &p, &e), "model");
    named(pt_profile_open(&o, false, &f, &e), "model");
    named(pt_evaluate(&v, &result, &e), "model");
    named(pt_generator_open(&g, &made, &e), "model");
    named(pt_merge(&(pt_merge_options){.size = sizeof (pt_merge_options)}, &e), "model");
    named(pt_export(&(pt_export_options){.size = sizeof (pt_export_options)}, &e), "model");
    v = evaluating();
    v.device = NULL;
    named(pt_evaluate(&v, &result, &e), "device");
    o = training();
    o.device = NULL;
    named(pt_trainer_open(&o, &t, &e), "device");
    o = training();
    o.out = NULL;
    named(pt_trainer_open(&o, &t, &e), "out");
    assert_int_equal(pt_trainer_open(NULL, &t, NULL), PT_USAGE); /* the error may be NULL too */
}

static void using_what_was_not_opened_is_wrong_usage(void **state)
{
    (void)state;
    pt_step s;
    double loss;
    int64_t tokens;
    uint32_t *ids;
    size_t n;
    char *text;
    const char *piece;
    refused(pt_trainer_step(NULL, &s, &e), "the trainer");
    refused(pt_trainer_evaluate(NULL, &loss, &tokens, &e), "the trainer");
    refused(pt_trainer_save(NULL, &e), "the trainer");
    refused(pt_trainer_finish(NULL, &e), "the trainer");
    refused(pt_ranks_find(NULL, NULL, &e), "the options");
    refused(pt_ranks_run(2, NULL, NULL, &e), "arguments");
    refused(pt_profile_write(NULL, "profile.json", &e), "the profile");
    refused(pt_generator_prompt(NULL, "a", 1, 1, &e), "the generator");
    refused(pt_generator_say(NULL, "a", 1, 1, &e), "the generator");
    refused(pt_generator_next(NULL, &piece, &n, &e), "the generator");
    refused(pt_report_write(NULL, NULL, NULL, &e), "the report");
    refused(pt_tokenizer_encode(NULL, "a", 1, false, &ids, &n, &e), "the tokenizer");
    refused(pt_tokenizer_decode(NULL, (const uint32_t[]){1}, 1, false, &text, &n, &e), "the tokenizer");
}

static void what_has_no_error_does_nothing(void **state)
{
    (void)state;
    const char *no_text = NULL;
    pt_summary s;
    pt_timing times[PT_TIMINGS];
    memset(&s, 1, sizeof s);
    pt_train_defaults(NULL);
    pt_evaluate_defaults(NULL);
    pt_generate_defaults(NULL);
    pt_trainer_summary(NULL, NULL);
    pt_trainer_summary(NULL, &s);
    assert_true(!s.model_type && !s.steps && !s.memory_n);
    assert_int_equal(pt_trainer_timings(NULL, times), 0);
    assert_null(pt_trainer_plan_json(NULL));
    assert_null(pt_plan_text(NULL));
    assert_null(pt_plan_json(NULL));
    assert_null(pt_plan_others_text(NULL));
    assert_null(pt_profile_text(NULL));
    assert_null(pt_profile_json(NULL));
    int64_t prompt = 1;
    assert_int_equal(pt_generator_tokens(NULL, &prompt), 0);
    assert_int_equal(prompt, 0);
    assert_int_equal(pt_generator_tokens(NULL, NULL), 0);
    assert_null(pt_size_text(NULL, 5));
    assert_null(pt_seconds_text(NULL, 5));
    assert_null(pt_count_text(NULL, 5));
    assert_null(pt_report_note(NULL, 0));
    assert_null(pt_report_json(NULL));
    assert_null(pt_example_json(NULL));
    assert_int_equal(pt_fail(&e, PT_FAILED, no_text), PT_FAILED);
    assert_string_equal(e.text, "");
    assert_int_equal(pt_fail(NULL, PT_FAILED, "a"), PT_FAILED);
    assert_int_equal(pt_fail_errno(NULL, PT_FAILED, "a"), PT_FAILED);
    assert_int_equal(pt_error_prefix(NULL, "a"), PT_FAILED);
    pt_ranks_launcher(NULL, NULL);
    assert_false(pt_ranks_ended(NULL, NULL, NULL));
    pt_merge_defaults(NULL);
    pt_export_defaults(NULL);
    pt_generator_forget(NULL);
    pt_report_close(NULL);
    pt_example_free(NULL);
    pt_trainer_close(NULL);
    pt_plan_close(NULL);
    pt_profile_close(NULL);
    pt_generator_close(NULL);
    pt_tokenizer_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_with_null_are_wrong_usage),
        cmocka_unit_test(values_outside_of_their_enum_are_wrong_usage),
        cmocka_unit_test(opening_without_options_or_a_place_is_wrong_usage),
        cmocka_unit_test(using_what_was_not_opened_is_wrong_usage),
        cmocka_unit_test(what_has_no_error_does_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
