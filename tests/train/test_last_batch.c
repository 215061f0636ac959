/* Windows that do not fill the last batch of an epoch: the step is filled with padding, and computes what a smaller batch would. */
#include "protrain.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "train/run.h"

static const char *const pairs[] = {PT_FIXTURES "/dpo/pairs.jsonl"};

typedef enum kind { STREAM, DOCUMENTS, EXAMPLES, PAIRS, KINDS } kind;
static const char *const names[] = {"a stream", "documents apart", "examples", "pairs"};

static pt_train_options options_of(kind k, const char *out)
{
    static char tokens[600], texts[300];
    static const char *data[1];
    pt_train_options o;
    pt_train_defaults(&o);
    snprintf(tokens, sizeof tokens, "%s/models/llama/tokens.npy", fixtures_root());
    snprintf(texts, sizeof texts, "%s/texts.jsonl", scratch);
    data[0] = k == EXAMPLES ? texts : tokens;
    o.model = k == STREAM || k == DOCUMENTS ? PT_FIXTURES "/models/llama" : PT_FIXTURES "/dpo";
    o.data = k == PAIRS ? pairs : data;
    o.data_n = 1;
    o.out = out;
    o.seq_len = k == PAIRS ? 160 : 16;
    o.document_mask = k == DOCUMENTS;
    o.task = k == PAIRS ? PT_TASK_DPO : PT_TASK_SFT;
    o.loss_per = k == EXAMPLES ? PT_LOSS_PER_EXAMPLE : PT_LOSS_PER_TOKEN;
    o.precision = PT_PRECISION_FP32;
    o.device = "cpu";
    o.threads = 1;
    o.device_memory = 256u << 20;
    return o;
}

static void put_texts(void)
{
    char path[300], text[2048] = "";
    pt_error e = {0};
    for (int i = 0; i < 11; i++)
        sprintf(text + strlen(text), "{\"prompt\": \"%.*s\", \"completion\": \"%.*s\"}\n", 1 + i % 3, "abc", 1 + i % 7, "ghfedcb");
    snprintf(path, sizeof path, "%s/texts.jsonl", scratch);
    must(file_write_atomic(path, text, strlen(text), &e), &e);
}

static pt_trainer *open_run(const pt_train_options *o)
{
    pt_trainer *t;
    pt_error e = {0};
    must(pt_trainer_open(o, &t, &e), &e);
    return t;
}

static pt_step step_of(pt_trainer *t)
{
    pt_step s;
    pt_error e = {0};
    if (pt_trainer_step(t, &s, &e) != 1)
        fail_msg("%s", e.text);
    return s;
}

static int64_t windows_of(pt_trainer *t, int64_t *steps)
{
    pt_summary m;
    pt_trainer_summary(t, &m);
    if (steps)
        *steps = m.steps;
    return m.windows;
}

/* The one step of an epoch of all windows, with a batch of `more` sequences more, and this micro-batch (0: planned). */
static pt_step whole_step(kind k, int64_t windows, int64_t more, int64_t micro, int lanes)
{
    char out[300];
    int64_t steps;
    snprintf(out, sizeof out, "%s/%d-%d-%d-%d", scratch, k, (int)more, (int)micro, lanes);
    pt_train_options o = options_of(k, out);
    o.batch_size = windows + more;
    o.micro_batch = micro;
    o.lanes = lanes;
    pt_trainer *t = open_run(&o);
    assert_int_equal(windows_of(t, &steps), windows);
    assert_int_equal(steps, 1);
    const pt_step s = step_of(t);
    pt_trainer_close(t);
    return s;
}

static void a_padded_step_is_that_of_a_smaller_batch(void **state)
{
    (void)state;
    put_texts();
    for (kind k = 0; k < KINDS; k++) {
        char out[300];
        snprintf(out, sizeof out, "%s/count-%d", scratch, k);
        pt_train_options o = options_of(k, out);
        o.batch_size = 1;
        pt_trainer *t = open_run(&o);
        const int64_t windows = windows_of(t, NULL), fill = 2 * ((windows + 3) / 2) - windows; /* an even batch */
        pt_trainer_close(t);
        assert_true(windows > 2);
        const pt_step whole = whole_step(k, windows, 0, 0, 1), padded = whole_step(k, windows, fill, 0, 1);
        const pt_step parts = whole_step(k, windows, fill, (windows + fill) / 2, 1), lanes = whole_step(k, windows, fill, 0, 2);
        if (!(fabs(padded.loss - whole.loss) <= 1e-6 * whole.loss) || !(fabs(padded.grad_norm - whole.grad_norm) <= 1e-5 * whole.grad_norm))
            fail_msg("%s: loss %.9g, norm %.9g; padded: %.9g, %.9g", names[k], whole.loss, whole.grad_norm, padded.loss, padded.grad_norm);
        assert_int_equal(padded.learned_tokens, whole.learned_tokens);
        assert_int_equal(padded.tokens, whole.tokens);
        assert_int_equal(padded.pairs, whole.pairs);
        assert_true(padded.loss == parts.loss && padded.grad_norm == parts.grad_norm);
        assert_true(fabs(lanes.loss - whole.loss) <= 1e-6 * whole.loss);
    }
}

/* Two epochs of steps; returns their number, and the targets of each. */
static int64_t targets_of_steps(const char *name, int64_t batch, bool drop_last, int64_t targets[16], int64_t *windows)
{
    char out[300];
    int64_t steps, before = 0;
    snprintf(out, sizeof out, "%s/%s", scratch, name);
    pt_train_options o = options_of(STREAM, out);
    o.batch_size = batch;
    o.drop_last = drop_last;
    o.epochs = 2;
    pt_trainer *t = open_run(&o);
    *windows = windows_of(t, &steps);
    assert_true(steps <= 16);
    for (int64_t i = 0; i < steps; i++) {
        const pt_step s = step_of(t);
        targets[i] = s.learned_tokens - before;
        before = s.learned_tokens;
    }
    pt_trainer_close(t);
    return steps;
}

static void the_last_step_of_an_epoch_has_the_rest(void **state)
{
    (void)state;
    int64_t windows, targets[16], steps = targets_of_steps("all", 4, false, targets, &windows), n = (windows + 3) / 4;
    assert_true(windows % 4 != 0);
    assert_int_equal(steps, 2 * n);
    for (int64_t i = 0; i < steps; i++)
        assert_int_equal(targets[i], 16 * (i % n == n - 1 ? windows % 4 : 4));
    steps = targets_of_steps("dropped", 4, true, targets, &windows);
    assert_int_equal(steps, 2 * (windows / 4));
    for (int64_t i = 0; i < steps; i++)
        assert_int_equal(targets[i], 16 * 4);
}

/* As a checkpoint of a version without the option. */
static void forget_drop_last(const char *out)
{
    char path[400];
    snprintf(path, sizeof path, "%s/checkpoint-1/trainer/trainer.json", out);
    json_t *all = json_load_file(path, 0, NULL);
    assert_int_equal(json_object_del(json_object_get(all, "settings"), "drop-last"), 0);
    assert_int_equal(json_dump_file(all, path, 0), 0);
    json_decref(all);
}

static void an_old_run_goes_on_without_the_rest(void **state)
{
    (void)state;
    char out[300];
    pt_error e = {0};
    pt_trainer *t;
    snprintf(out, sizeof out, "%s/old", scratch);
    pt_train_options o = options_of(STREAM, out);
    o.batch_size = 4;
    o.steps = 6;
    must(train_to(&o, 1, &e), &e);
    o.resume = o.drop_last = true;
    assert_int_equal(pt_trainer_open(&o, &t, &e), PT_FAILED);
    assert_non_null(strstr(e.text, "without `drop_last`"));
    forget_drop_last(out);
    o.drop_last = false;
    assert_int_equal(pt_trainer_open(&o, &t, &e), PT_FAILED);
    assert_non_null(strstr(e.text, "with `drop_last`"));
    o.drop_last = true;
    pt_trainer_close(open_run(&o));
}

static void settings_name_it_only_if_it_was_given(void **state)
{
    (void)state;
    char out[300];
    for (int given = 0; given < 2; given++) {
        snprintf(out, sizeof out, "%s/settings-%d", scratch, given);
        pt_train_options o = options_of(STREAM, out);
        o.batch_size = 1;
        o.drop_last = given;
        pt_trainer *t = open_run(&o);
        pt_summary m;
        pt_trainer_summary(t, &m);
        assert_int_equal(m.windows % m.batch_size, 0);
        assert_int_equal(strstr(m.settings, "drop-last") != NULL, given);
        pt_trainer_close(t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_padded_step_is_that_of_a_smaller_batch),
                                       cmocka_unit_test(the_last_step_of_an_epoch_has_the_rest),
                                       cmocka_unit_test(an_old_run_goes_on_without_the_rest),
                                       cmocka_unit_test(settings_name_it_only_if_it_was_given)};
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
