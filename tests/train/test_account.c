/* What a run says of itself: the memory of each tier in every line of its metrics, and which steps its times are of. */
#include "protrain.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "train/run.h"

#include "train/plan_file.h"

static const setting llama = {"llama_tied_bias", PT_PRECISION_BF16, 1, true, PT_OPTIMIZER_ADAMW};

/* A plan whose updates run in the next step's forward. */
static void plan_with_waiting_updates(run *r)
{
    random_source random = random_open();
    const plan_case c = {.type = PT_BF16, .batch = r->o.batch_size, .seq_len = r->o.seq_len, .clipping = true};
    const char *update = "";
    json_t *plan = NULL;
    pt_error e = {0};
    snprintf(r->plan_path, sizeof r->plan_path, "%s/next.plan.json", scratch);
    while (strcmp(update, "next_forward") != 0) {
        json_decref(plan);
        write_random_plan(&random, r->f.model, &c, r->plan_path);
        must(json_file_load(r->plan_path, 0, &plan, &e), &e);
        update = json_string_value(json_object_get(plan, "update"));
        assert_non_null(update);
    }
    json_decref(plan);
    r->o.plan_file = r->plan_path;
}

static char *card_of(const run *r)
{
    char path[200], *text;
    size_t n;
    pt_error e = {0};
    snprintf(path, sizeof path, "%s/README.md", r->out);
    must(file_read_all(path, 1 << 20, &text, &n, &e), &e);
    return text;
}

/* The model card; one that another program or a person wrote is kept. */
static void check_card(const run *r, bool own)
{
    static const char *const said[] = {"\nlibrary_name: transformers\nbase_model: \"", "\nbase_model_relation: finetune\n", "\n- sft\n",
                                       "| training loss, step ", "| steps | "};
    char *text = card_of(r);
    if (own)
        assert_string_equal(text, "mine");
    else
        assert_memory_equal(text, "---\n", 4);
    for (size_t i = 0; i < sizeof said / sizeof *said && !own; i++)
        if (!strstr(text, said[i]))
            fail_msg("README.md does not say \"%s\": %s", said[i], text);
    free(text);
}

/* Where each step is followed by an evaluation or a checkpoint, no plan that is searched for leaves updates to the next step: its
 * steps are steady, as are those of a run that is never interrupted. After `steps` steps the summary, the timings and summary.json
 * speak of steps that `word` names. */
static void check_measured_of(run *r, int64_t steps, const char *word)
{
    pt_trainer *t;
    pt_step s;
    pt_summary m;
    pt_timing times[PT_TIMINGS];
    char path[200];
    json_t *summary;
    pt_error e = {0};
    r->o.steps = steps;
    must(pt_trainer_open(&r->o, &t, &e), &e);
    pt_trainer_summary(t, &m);
    assert_string_equal(m.measured_of, "nothing");
    assert_int_equal(pt_trainer_timings(t, times), 0);
    while (pt_trainer_step(t, &s, &e) > 0)
        ;
    must(pt_trainer_finish(t, &e), &e);
    pt_trainer_summary(t, &m);
    if (!strstr(m.measured_of, word))
        fail_msg("%lld steps are measured of \"%s\", not \"%s\"", (long long)steps, m.measured_of, word);
    assert_true(pt_trainer_timings(t, times) > 0);
    assert_string_equal(times[0].name, "step");
    assert_true(times[0].measured_s > 0);
    snprintf(path, sizeof path, "%s/summary.json", r->out);
    must(json_file_load(path, 0, &summary, &e), &e);
    assert_string_equal(json_string_value(json_object_get(summary, "measured_of")), m.measured_of);
    assert_true(json_number_value(json_object_get(json_object_get(summary, "step_s"), "measured")) == times[0].measured_s);
    json_decref(summary);
    pt_trainer_close(t);
}

static void a_run_says_which_steps_its_times_are_of(void **state)
{
    (void)state;
    static const struct { const char *name, *word; int64_t steps; bool given, evaluates, saves; } cases[] = {
        {"one", "first step", 1, true, false, false},     {"apart", "without the updates", 4, true, true, false},
        {"steady", "steady steps", 4, true, false, false}, {"evaluates", "steady steps", 4, false, true, false},
        {"saves", "steady steps", 4, false, false, true}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        run r;
        run_make(&r, &llama, cases[i].name);
        if (cases[i].given)
            plan_with_waiting_updates(&r);
        r.o.save_every = cases[i].saves;
        if (cases[i].evaluates) {
            r.o.eval_data = r.data;
            r.o.eval_data_n = 1;
            r.o.eval_every = 1;
        }
        if (i == 1) {
            char path[200];
            pt_error e = {0};
            snprintf(path, sizeof path, "%s/README.md", r.out);
            must(dir_make(r.out, &e), &e);
            must(file_write_atomic(path, "mine", 4, &e), &e);
        }
        check_measured_of(&r, cases[i].steps, cases[i].word);
        check_card(&r, i == 1);
        run_free(&r);
    }
}

static void every_line_of_the_metrics_has_the_memory_of_all_tiers(void **state)
{
    (void)state;
    static const char *const tiers[] = {"device", "host", "disk"}, *const what[] = {"peak", "predicted", "budget"};
    run r;
    json_t *lines[STEPS];
    pt_error e = {0};
    run_make(&r, &llama, "tiers");
    must(run_until(&r, 3, &e), &e);
    assert_int_equal(read_metrics(&r, lines, STEPS), 3);
    for (int i = 0; i < 3; i++) {
        for (int k = 0; k < 9; k++) {
            char key[64];
            snprintf(key, sizeof key, "%s_%s_bytes", tiers[k / 3], what[k % 3]);
            const json_t *value = json_object_get(lines[i], key);
            if (!json_is_integer(value))
                fail_msg("step %d has no %s", i + 1, key);
            if (k < 3)
                assert_true(json_integer_value(value) > 0);
        }
        json_decref(lines[i]);
    }
    run_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_run_says_which_steps_its_times_are_of),
                                       cmocka_unit_test(every_line_of_the_metrics_has_the_memory_of_all_tiers)};
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
