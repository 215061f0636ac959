/* Each tensor's gradient beside PyTorch's in float64, and whole runs on targets of which some are left out. */
#include "protrain.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "train/fixture.h"

#include "train/direct.h"

static void compare_gradients(const char *name, save_level level, bool groups)
{
    fixture f;
    direct d;
    double worst = 0;
    fixture_open(&f, "models", name);
    direct_open_with(&d, &f, PT_F32, level, (int64_t)fixture_setting(&f, "batch_size"), (int64_t)fixture_setting(&f, "seq_len"), groups,
                     SAVED_EXACT);
    step_result r = direct_step(&d, 0);
    double loss = fixture_of_step(&f, "loss_fp64", 0), norm = fixture_of_step(&f, "grad_norm_fp64", 0);
    if (!(fabs(r.loss - loss) <= 1e-5 * loss && fabs(r.norm - norm) <= 1e-4 * norm))
        fail_msg("%s: loss %.9f and norm %.9f, in fp64 %.9f and %.9f", name, r.loss, r.norm, loss, norm);
    for (int i = 0; i < f.model->params_n; i++) {
        if (!f.model->params[i].trainable)
            continue;
        float *ours = direct_gradient(&d, i);
        for (int k = 0; k < f.model->params[i].parts; k++) {
            distance g = part_distance(&f, "grad", i, k, ours, NULL, true), all = part_distance(&f, "grad", i, k, ours, NULL, false);
            double relative = g.error / fmax(g.size, 1e-6 * norm);
            if (!(relative <= 1e-4 && all.error <= fmax(1e-4 * all.size, 1e-7 * norm)))
                fail_msg("%s: gradient of %s is off by %.2e of its norm", name, f.model->params[i].part[k].name, relative);
            worst = fmax(worst, relative);
        }
        free(ours);
    }
    if (level == SAVE_ALL)
        printf("%-22s relative error of a gradient at most %.1e\n", name, worst);
    direct_close(&d);
    fixture_close(&f);
}

static void compare_at_both_ends(const char *name)
{
    compare_gradients(name, SAVE_ALL, false);
    compare_gradients(name, SAVE_INPUT, true);
    if (test_device_is_emulated()) /* it takes minutes there */
        return;
    compare_gradients(name, SAVE_INPUT, false);
    compare_gradients(name, SAVE_ATTENTION, true);
}

static void gradients_of_every_tensor_are_as_in_pytorch(void **state)
{
    (void)state;
    assert_true(each_model_fixture(compare_at_both_ends) >= 36);
}

static void whole_run(const char *name)
{
    fixture f;
    direct d;
    fixture_open(&f, "models", name);
    direct_open(&d, &f, PT_F32, SAVE_ALL);
    for (int step = 0; step < (int)fixture_setting(&f, "steps"); step++) {
        step_result r = direct_step(&d, step);
        double loss = fixture_of_step(&f, "loss_fp64", step), norm = fixture_of_step(&f, "grad_norm_fp64", step);
        if (!(fabs(r.loss - loss) <= 1e-5 * loss && fabs(r.norm - norm) <= 1e-4 * norm))
            fail_msg("%s step %d: loss %.9f and norm %.9f, in fp64 %.9f and %.9f", name, step + 1, r.loss, r.norm, loss, norm);
        direct_update(&d, step, r.norm);
    }
    printf("%-22s relative error of an update at most %.1e\n", name, worst_update(&f, direct_parameter, &d, 1e-3));
    direct_close(&d);
    fixture_close(&f);
}

static void masked_targets_count_for_nothing(void **state)
{
    (void)state;
    whole_run("llama_masked_labels");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(gradients_of_every_tensor_are_as_in_pytorch),
                                       cmocka_unit_test(masked_targets_count_for_nothing)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
