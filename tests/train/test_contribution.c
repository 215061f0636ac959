/* How much each tensor contributes: beside PyTorch's gradients in float64 for every architecture, and beside the gradients of different
 * steps one by one. */
#include "protrain.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "train/contribution.h"
#include "train/fixture.h"

/* Windows first .. first + n of the fixture's tokens, one step's; each has one token more than seq_len, which is the next one's first. */
static const char *windows(const fixture *f, const char *name, int64_t first, int64_t n)
{
    static char path[300];
    pt_error e = {0};
    char *data;
    size_t bytes;
    const int64_t t = (int64_t)fixture_setting(f, "seq_len");
    must(file_read_all(f->tokens, 1 << 20, &data, &bytes, &e), &e);
    snprintf(path, sizeof path, "%s/%s.npy", scratch, name);
    assert_true(128 + 2 * (size_t)((first + n) * t + 1) <= bytes);
    write_npy(path, (const uint16_t *)(data + 128) + first * t, (size_t)(n * t + 1));
    free(data);
    return path;
}

static void measure_options(const fixture *f, const char *const *data, pt_train_options *o)
{
    fixture_options(f, data, NULL, o);
    o->disk_path = scratch;
    o->eps = 1e-8;
}

/* The sum of |g| over a parameter, from PyTorch. */
static double reference_sum(const fixture *f, const param *p)
{
    double sum = 0;
    for (int k = 0; k < p->parts; k++) {
        const int64_t n = elements_of_part(p, k);
        float *g = read_reference(f, "grad", p->part[k].name, n);
        for (int64_t i = 0; i < n; i++)
            sum += (double)g[i] * (double)g[i] / (fabs((double)g[i]) + 1e-8);
        free(g);
    }
    return sum;
}

/* All steps have the same batch: its gradient is their mean, without noise, and a contribution the sum of g^2 / (|g| + eps). */
static void beside_pytorch(const char *name)
{
    fixture f;
    pt_train_options o;
    pt_error e = {0};
    fixture_open(&f, "models", name);
    if (!path_exists(f.tokens)) { /* it has masked targets */
        fixture_close(&f);
        return;
    }
    const char *data[] = {windows(&f, name, 0, (int64_t)fixture_setting(&f, "batch_size"))};
    double *all = calloc((size_t)f.model->params_n, sizeof *all), worst = 0;
    assert_non_null(all);
    measure_options(&f, data, &o);
    must(contributions_measure(&o, f.model, 3, all, &e), &e);
    double total = 0;
    for (int i = 0; i < f.model->params_n; i++)
        total += f.model->params[i].kind->use == USE_CONSTANT || !f.model->params[i].trainable ? 0 : reference_sum(&f, &f.model->params[i]);
    for (int i = 0; i < f.model->params_n; i++) {
        const param *p = &f.model->params[i];
        if (p->kind->use == USE_CONSTANT || !p->trainable)
            continue;
        const double expected = reference_sum(&f, p), error = fabs(all[i] - expected) / fmax(expected, 1e-3 * total);
        if (!(error < 2e-5))
            fail_msg("%s: the contribution of %s is %.6g, not %.6g", name, p->part[0].name, all[i], expected);
        worst = fmax(worst, error);
    }
    print_message("%s: %.1e\n", name, worst);
    free(all);
    fixture_close(&f);
}

static void contributions_are_those_of_pytorchs_gradients(void **state)
{
    (void)state;
    assert_true(each_model_fixture(beside_pytorch) > 20);
}

/* The gradient of one step, from the first moment of a run with beta1 0. */
static void gradient_of(const fixture *f, int64_t step, safetensors **out)
{
    pt_train_options o;
    pt_error e = {0};
    char folder[200], moments[300];
    const int64_t batch = (int64_t)fixture_setting(f, "batch_size");
    const char *data[] = {windows(f, "step", step * batch, batch)};
    snprintf(folder, sizeof folder, "%s/gradient-%lld", scratch, (long long)step);
    fixture_options(f, data, folder, &o);
    o.beta1 = 0;
    o.max_grad_norm = 0;
    o.steps = 2;
    must(train_to(&o, 1, &e), &e);
    snprintf(moments, sizeof moments, "%s/checkpoint-1/trainer/exp_avg.safetensors", folder);
    must(safetensors_open(moments, out, &e), &e);
}

static void contributions_leave_out_the_noise_of_different_steps(void **state)
{
    enum { N = 3 };
    (void)state;
    fixture f;
    pt_train_options o;
    pt_error e = {0};
    safetensors *g[N];
    fixture_open(&f, "models", "llama");
    for (int k = 0; k < N; k++)
        gradient_of(&f, k, &g[k]);
    const char *data[] = {windows(&f, "all", 0, N * (int64_t)fixture_setting(&f, "batch_size"))};
    double *all = calloc((size_t)f.model->params_n, sizeof *all);
    assert_non_null(all);
    measure_options(&f, data, &o);
    must(contributions_measure(&o, f.model, N, all, &e), &e);
    for (int i = 0; i < f.model->params_n; i++) {
        const param *p = &f.model->params[i];
        double sum = 0, size = 0;
        float *values[N];
        for (int k = 0; k < N; k++)
            values[k] = read_parameter(f.model, g[k], i);
        for (int64_t at = 0; at < p->rows * p->cols; at++) {
            double m = 0, v = 0;
            for (int k = 0; k < N; k++) {
                m += (double)values[k][at] / N;
                v += (double)values[k][at] * (double)values[k][at] / N;
            }
            sum += (N * m * m - v) / (N - 1) / (sqrt(v) + 1e-8);
            size += sqrt(v);
        }
        for (int k = 0; k < N; k++)
            free(values[k]);
        if (!(fabs(all[i] - sum) <= 1e-3 * size)) /* the means have weights that differ by 1 / 4096 */
            fail_msg("the contribution of %s is %.6g, not %.6g (of %.6g)", p->part[0].name, all[i], sum, size);
    }
    for (int k = 0; k < N; k++)
        safetensors_close(g[k]);
    free(all);
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(contributions_are_those_of_pytorchs_gradients),
                                       cmocka_unit_test(contributions_leave_out_the_noise_of_different_steps)};
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
