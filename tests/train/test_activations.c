/* Activations in 8 bits: gradients beside those of PyTorch in float64 from the same rounded activations; the loss stays as it is. */
#include "protrain.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "train/fixture.h"

#include "train/direct.h"

enum { BATCH = 2, LENGTH = 9 }; /* of make_activations.py */

/* The fixture of the model, with other ids and gradients. */
static void open_case(fixture *f, const char *name, const char *kind)
{
    char path[600];
    pt_error e = {0};
    fixture_open(f, "models", name);
    safetensors_close(f->reference);
    snprintf(path, sizeof path, "%s/activations/%s_%s.safetensors", fixtures_root(), name, kind);
    must(safetensors_open(path, &f->reference, &e), &e);
}

static double loss_of(const fixture *f, saved_form saved)
{
    direct d;
    direct_open_with(&d, f, PT_F32, SAVE_ALL, BATCH, LENGTH, false, saved);
    const double loss = direct_step(&d, 0).loss;
    direct_close(&d);
    return loss;
}

/* A value that fp32 rounds to the code beside the right one would be some 1e-3. */
static void compare(const fixture *f, const char *kind, saved_form saved, save_level level)
{
    direct d;
    double worst = 0;
    direct_open_with(&d, f, PT_F32, level, BATCH, LENGTH, false, saved);
    direct_step(&d, 0);
    for (int i = 0; i < f->model->params_n; i++) {
        float *ours = direct_gradient(&d, i);
        for (int k = 0; k < f->model->params[i].parts; k++) {
            const distance g = part_distance(f, "grad", i, k, ours, NULL, false);
            if (!(g.error <= 1e-4 * g.size))
                fail_msg("%s, %s, level %d: gradient of %s is off by %.2e of its norm", f->name, kind, (int)level,
                         f->model->params[i].part[k].name, g.error / g.size);
            worst = fmax(worst, g.error / g.size);
        }
        free(ours);
    }
    printf("%s, %s, level %d: relative error of a gradient at most %.1e\n", f->name, kind, (int)level, worst);
    direct_close(&d);
}

static void check(const char *name, const char *kind, saved_form saved)
{
    fixture f;
    open_case(&f, name, kind);
    for (int level = 0; level < SAVE_LEVELS; level++)
        compare(&f, kind, saved, (save_level)level);
    const double exact = loss_of(&f, SAVED_EXACT), coded = loss_of(&f, saved);
    assert_memory_equal(&exact, &coded, sizeof exact);
    fixture_close(&f);
}

static void gradients_are_those_of_rounded_activations(void **state)
{
    (void)state;
    check("llama", "int8", SAVED_INT8);
    check("llama", "fp8", SAVED_FP8);
    check("qwen3", "int8", SAVED_INT8);
}

/* ---- evaluations ---- */

static _Atomic int encoded;
static void (*submit_op)(queue *q, const op *o);

static void submit_counted(queue *q, const op *o)
{
    encoded += o->kind == OP_ENCODE;
    submit_op(q, o);
}

/* The ops that make codes in a run of the schedule, and the sum of its losses. */
static int count_encoded(direct *d, schedule_kind kind, double *loss)
{
    pt_error e = {0};
    executor_batch b = executor_input(d->x);
    direct_ids(d, "inputs", 0, b.ids);
    direct_ids(d, "targets", 0, b.targets);
    encoded = 0;
    must(executor_run(d->x, kind, 1, NULL, &e), &e);
    *loss = 0;
    for (int64_t i = 0; i < BATCH * LENGTH; i++)
        *loss += (double)executor_losses(d->x)[i];
    return encoded;
}

static void evaluations_make_no_codes(void **state)
{
    (void)state;
    fixture f;
    direct d;
    double evaluated, trained;
    open_case(&f, "llama", "int8");
    direct_open_with(&d, &f, PT_F32, SAVE_ALL, BATCH, LENGTH, false, SAVED_INT8);
    device_table counted = *d.device->table;
    submit_op = counted.submit;
    counted.submit = submit_counted;
    d.device->table = &counted;
    assert_int_equal(count_encoded(&d, SCHEDULE_EVAL, &evaluated), 0);
    assert_true(count_encoded(&d, SCHEDULE_STEP, &trained) > 0);
    assert_memory_equal(&evaluated, &trained, sizeof evaluated);
    direct_close(&d);
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(gradients_are_those_of_rounded_activations),
                                       cmocka_unit_test(evaluations_make_no_codes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
