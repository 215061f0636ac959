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
    refused(pt_profile_open(NULL, false, &f, &e), "the options");
    refused(pt_profile_open(&o, false, NULL, &e), "the profile");
    refused(pt_evaluate(NULL, &result, &e), "the options");
    refused(pt_evaluate(&v, NULL, &e), "the result");
    refused(pt_generator_open(NULL, &made, &e), "the options");
    refused(pt_generator_open(&g, NULL, &e), "the generator");
    refused(pt_tokenizer_open("model", NULL, &e), "the tokenizer");
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
    refused(pt_generator_next(NULL, &piece, &n, &e), "the generator");
    refused(pt_tokenizer_encode(NULL, "a", 1, false, &ids, &n, &e), "the tokenizer");
    refused(pt_tokenizer_decode(NULL, (const uint32_t[]){1}, 1, false, &text, &n, &e), "the tokenizer");
}

static void what_has_no_error_does_nothing(void **state)
{
    (void)state;
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
    assert_null(pt_profile_text(NULL));
    assert_null(pt_profile_json(NULL));
    pt_trainer_close(NULL);
    pt_plan_close(NULL);
    pt_profile_close(NULL);
    pt_generator_close(NULL);
    pt_tokenizer_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(opening_without_options_or_a_place_is_wrong_usage),
        cmocka_unit_test(using_what_was_not_opened_is_wrong_usage),
        cmocka_unit_test(what_has_no_error_does_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
