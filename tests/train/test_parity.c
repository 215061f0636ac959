/* Whole runs beside PyTorch and Transformers: losses, gradient norms and updated weights of every architecture. */
#include "protrain.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "random_plan.h"
#include "sanitized.h"
#include "test_device.h"
#include "train/fixture.h"

typedef struct trained { const model *model; const safetensors *weights; } trained;

static float *trained_parameter(void *arg, int index)
{
    const trained *t = arg;
    return read_parameter(t->model, t->weights, index);
}

/* Losses and norms of all steps; the largest relative error of either. */
static void run_steps(const fixture *f, pt_trainer *t, double *loss_error, double *norm_error)
{
    pt_error e = {0};
    pt_step s;
    int more, done = 0;
    *loss_error = *norm_error = 0;
    while ((more = pt_trainer_step(t, &s, &e)) > 0) {
        double loss = fixture_of_step(f, "loss_fp64", done), norm = fixture_of_step(f, "grad_norm_fp64", done);
        double lr = fixture_of_step(f, "learning_rate", done);
        done++;
        assert_int_equal(s.step, done);
        if (fabs(s.lr - lr) > 1e-12 * lr)
            fail_msg("%s step %d: learning rate %.17g, not %.17g", f->name, done, s.lr, lr);
        if (!(fabs(s.loss - loss) <= 1e-5 * loss))
            fail_msg("%s step %d: loss %.9f, in fp64 %.9f", f->name, done, s.loss, loss);
        if (!(fabs(s.grad_norm - norm) <= 1e-4 * norm))
            fail_msg("%s step %d: gradient norm %.9f, in fp64 %.9f", f->name, done, s.grad_norm, norm);
        if (done == 1 && fixture_router_aux(f) > 0)
            assert_true(fabs(s.aux_loss / fixture_setting(f, "aux_loss_of_step_1") - 1) <= 1e-5);
        assert_true(!isnan(s.aux_loss) == (fixture_router_aux(f) > 0));
        *loss_error = fmax(*loss_error, fabs(s.loss - loss) / loss);
        *norm_error = fmax(*norm_error, fabs(s.grad_norm - norm) / norm);
    }
    must(more, &e);
    assert_int_equal(done, (int)fixture_setting(f, "steps"));
}

/* Where it takes minutes, one fixture of six or twelve, from a random one on: gradients are compared of all of them (test_gradients), and
 * what comes after them knows no architecture. */
static int every, ran, seen;

static void compare_run(const char *name)
{
    fixture f;
    pt_error e = {0};
    pt_train_options o;
    pt_trainer *t;
    char out[128];
    double loss_error, norm_error;
    if (seen++ % every)
        return;
    fixture_open(&f, "models", name);
    snprintf(out, sizeof out, "%s/%s", scratch, name);
    if (path_exists(f.tokens)) {
        fixture_options(&f, (const char *const[]){f.tokens}, out, &o);
        must(pt_trainer_open(&o, &t, &e), &e);
        run_steps(&f, t, &loss_error, &norm_error);
        must(pt_trainer_finish(t, &e), &e);
        pt_trainer_close(t);
        trained after = {.model = f.model};
        safetensors *st;
        must(safetensors_open(out, &st, &e), &e);
        after.weights = st;
        double update = worst_update(&f, trained_parameter, &after, 1e-3);
        printf("%-22s relative error of loss %.1e, norm %.1e, update %.1e\n", name, loss_error, norm_error, update);
        safetensors_close(st);
        ran++;
    }
    fixture_close(&f);
}

static void every_architecture_trains_as_in_pytorch(void **state)
{
    (void)state;
    every = test_device_is_emulated() ? 12 : SANITIZED ? 6 : 1;
    random_source random = random_open();
    seen = random_below(&random, every);
    int fixtures = each_model_fixture(compare_run);
    assert_true(fixtures >= 18);
    assert_true(ran >= fixtures / every - 1); /* masked targets are in no token file: test_gradients */
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_architecture_trains_as_in_pytorch)};
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
