/* When training goes wrong, a run says so, once for each kind; losses and norms that are only noisy say nothing. */
#include "train/watch.h"

#include "base/json.h"
#include "protrain.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "random_plan.h"
#include "train/fixture.h"
#include "train/heard.h"

static const double GUESS = 10.8;

static double normal(random_source *r)
{
    double sum = 0;
    for (int i = 0; i < 12; i++)
        sum += (double)random_below(r, 1 << 20) / (1 << 20);
    return sum - 6;
}

static void assert_silent(const watch *w)
{
    for (int k = 0; k < WATCH_KINDS; k++)
        if (w->at[k])
            fail_msg("step %lld: %s", (long long)w->at[k], w->text[k]);
}

/* Losses that fall from `from` to `to`, log-normal around that, with norms that vary as much; evaluations go up and down a little. */
static void run_well(random_source *r, double from, double to, double spread, int64_t batch, watch *w)
{
    enum { STEPS = 600 };
    watch_open(w, GUESS, batch);
    for (int i = 1; i <= STEPS; i++) {
        const double mean = to + (from - to) * exp(-i / 100.0), much = spread / sqrt((double)batch);
        watch_step(w, i, mean * exp(much * normal(r)), 0.5 * exp(2 * much * normal(r)));
        if (i % 50 == 0)
            watch_evaluation(w, i, mean * 1.1 + 0.01 * mean * normal(r));
    }
}

static void good_runs_say_nothing(void **state)
{
    (void)state;
    random_source r = random_open();
    watch w;
    for (int i = 0; i < 50; i++) {
        run_well(&r, 11, 3, 0.1, 8, &w); /* from random weights */
        assert_silent(&w);
        run_well(&r, 2, 1.5, 0.6, 1, &w); /* replies of very different length, one a step */
        assert_silent(&w);
        run_well(&r, 0.02, 0.01, 1, 2, &w); /* learned by heart already */
        assert_silent(&w);
        run_well(&r, 1, 0.98, 0.3, 32, &w); /* nothing is learned */
        assert_silent(&w);
    }
}

static void what_goes_wrong_is_said_once(void **state)
{
    (void)state;
    static const double starts[] = {0.016, 2, 10.8}, ends[] = {174, 7.5, 14};
    random_source r = random_open();
    watch w;
    for (int i = 0; i < 3; i++) {
        int said = 0;
        watch_open(&w, GUESS, 8);
        for (int step = 1; step <= 100; step++)
            said += watch_step(&w, step, (step < 4 ? starts[i] : ends[i]) * exp(0.02 * normal(&r)), 1);
        assert_int_equal(said, 1);
        assert_int_equal(w.at[WATCH_LOSS], 3 + WATCH_ROW);
    }
    static const double risen[] = {6.7, 3.8, 8.3, 5.4, 3, 3.2, 3.8, 2.9, 2.5, 2.3, 2}; /* from the second step on, with small batches */
    for (int batch = 1; batch < 8; batch++) {
        watch_open(&w, GUESS, batch);
        watch_step(&w, 1, 0.008, 0.02);
        for (int i = 0; i < 11; i++)
            watch_step(&w, i + 2, risen[i], 2 * risen[i]);
        assert_int_equal(w.at[WATCH_LOSS], 1 + WATCH_ROW);
        watch_open(&w, GUESS, batch);
        watch_step(&w, 1, 0.3, 0.2); /* an easy batch */
        for (int i = 0; i < 11; i++)
            watch_step(&w, i + 2, 2, 1);
        assert_silent(&w);
    }
    watch_open(&w, GUESS, 8);
    for (int step = 1; step <= 100; step++)
        watch_step(&w, step, 2, step == 30 || step >= 50 ? 40 : 0.3 * exp(0.3 * normal(&r)));
    assert_int_equal(w.at[WATCH_NORM], 49 + WATCH_ROW); /* one step alone says nothing */
    assert_int_equal(w.at[WATCH_LOSS], 0);
    watch_open(&w, GUESS, 8);
    for (int step = 1; step <= 100; step++) {
        watch_step(&w, step, 2 - step * 0.01, 1);
        if (step % 10 == 0)
            watch_evaluation(&w, step, step <= 40 ? 2 - step * 0.005 : 1.8 + (step - 40) * 0.01);
    }
    assert_int_equal(w.at[WATCH_EVALUATION], 60);
    watch_open(&w, GUESS, 8);
    for (int step = 1; step <= 100; step++) { /* both rise: that is another thing */
        watch_step(&w, step, 2 + step * 0.01, 1);
        if (step % 10 == 0)
            watch_evaluation(&w, step, 2 + step * 0.01);
    }
    assert_silent(&w);
}

/* ---- a run ---- */

enum { STEPS = 24 };

static int times(const char *text, const char *what)
{
    int n = 0;
    while ((text = strstr(text, what))) {
        n++;
        text++;
    }
    return n;
}

static void assert_on_page(const char *out, const char *what)
{
    const char *path;
    char *text;
    size_t n;
    pt_report *r;
    pt_error e = {0};
    must(pt_report_open(out, &r, &e), &e);
    must(pt_report_write(r, NULL, &path, &e), &e);
    must(file_read_all(path, 1 << 24, &text, &n, &e), &e);
    assert_non_null(memmem(text, n, what, strlen(what)));
    free(text);
    text = pt_report_json(r);
    assert_int_equal(times(text, what), 1);
    free(text);
    pt_report_close(r);
}

static void train(const fixture *f, const char *out, bool resume, int64_t to, heard *said)
{
    pt_train_options o;
    pt_error e = {0};
    const char *tokens = f->tokens;
    fixture_options(f, &tokens, out, &o);
    o.steps = STEPS;
    o.lr = 3; /* at which every loss after the first is above 50, whatever the last bits of the ISA are */
    o.lr_schedule = PT_LR_CONSTANT;
    o.warmup_steps = 0;
    o.max_grad_norm = 1;
    o.resume = resume;
    o.notice = hear;
    o.arg = said;
    must(train_to(&o, to, &e), &e);
}

static int64_t warned_step(const char *out)
{
    char path[300];
    json_t *summary;
    pt_error e = {0};
    snprintf(path, sizeof path, "%s/summary.json", out);
    must(json_file_load(path, 0, &summary, &e), &e);
    const json_t *first = json_array_get(json_object_get(summary, "warnings"), 0);
    assert_non_null(strstr(json_string_value(json_object_get(first, "text")), "loss"));
    const int64_t step = json_integer_value(json_object_get(first, "step"));
    json_decref(summary);
    return step;
}

/* On the screen, in summary.json and on the page; a run that was stopped in between says the same. */
static void a_run_that_diverges_says_so(void **state)
{
    (void)state;
    char whole[200], parts[200];
    heard said = {0};
    fixture f;
    fixture_open(&f, "models", "llama");
    snprintf(whole, sizeof whole, "%s/whole", scratch);
    snprintf(parts, sizeof parts, "%s/parts", scratch);
    train(&f, whole, false, STEPS, &said);
    assert_int_equal(times(said.text, "training diverges"), 1);
    assert_non_null(strstr(said.text, "`lr`"));
    const int64_t step = warned_step(whole);
    assert_in_range(step, WATCH_ROW, STEPS);
    assert_on_page(whole, "the loss has risen from");
    said = (heard){0};
    train(&f, parts, false, step - 2, &said);
    assert_int_equal(times(said.text, "training diverges"), 0);
    train(&f, parts, true, step + 2, &said);
    train(&f, parts, true, STEPS, &said);
    assert_int_equal(times(said.text, "training diverges"), 1);
    assert_int_equal(warned_step(parts), step);
    assert_on_page(parts, "the loss has risen from");
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(good_runs_say_nothing), cmocka_unit_test(what_goes_wrong_is_said_once),
                                       cmocka_unit_test(a_run_that_diverges_says_so)};
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
