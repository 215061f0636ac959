/* 50 steps in bf16 beside PyTorch's autocast, and how far either is from float64. */
#include "protrain.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "train/fixture.h"

enum { STEPS = 50 };

typedef struct run_distance { double max, mean; } run_distance;

static run_distance from_truth(const fixture *f, const double *losses)
{
    run_distance d = {0};
    for (int i = 0; i < STEPS; i++) {
        double truth = fixture_of_step(f, "loss_fp64", i), away = fabs(losses[i] - truth) / truth;
        d.max = fmax(d.max, away);
        d.mean += away / STEPS;
    }
    return d;
}

static void print_distance(const char *who, run_distance d) { printf("    %-34s max %.2e  mean %.2e\n", who, d.max, d.mean); }

static run_distance of_pytorch(const fixture *f, const char *kind)
{
    const json_t *d = json_object_get(json_object_get(f->json, "distance_from_fp64"), kind);
    return (run_distance){json_number_value(json_object_get(d, "max")), json_number_value(json_object_get(d, "mean"))};
}

static void train(const fixture *f, double *losses)
{
    pt_error e = {0};
    pt_train_options o;
    pt_trainer *t;
    pt_step s;
    char out[128];
    int more;
    snprintf(out, sizeof out, "%s/%s", scratch, f->name);
    fixture_options(f, (const char *const[]){f->tokens}, out, &o);
    o.precision = PT_PRECISION_BF16;
    assert_int_equal(o.steps, STEPS);
    must(pt_trainer_open(&o, &t, &e), &e);
    while ((more = pt_trainer_step(t, &s, &e)) > 0)
        losses[s.step - 1] = s.loss;
    must(more, &e);
    pt_trainer_close(t);
}

static void compare(const char *name)
{
    fixture f;
    double losses[STEPS] = {0};
    fixture_open(&f, "bf16", name);
    train(&f, losses);
    printf("%s: distance of 50 losses from float64\n", name);
    print_distance("ours", from_truth(&f, losses));
    print_distance("PyTorch autocast, sdpa", of_pytorch(&f, "bf16"));
    print_distance("PyTorch autocast, eager", of_pytorch(&f, "bf16_eager"));
    print_distance("PyTorch, weights in bf16", of_pytorch(&f, "bf16_weights"));
    for (int i = 0; i < STEPS; i++) {
        double autocast = fixture_of_step(&f, "loss_bf16", i);
        if (!(fabs(losses[i] - autocast) <= 0.01 * autocast))
            fail_msg("%s step %d: loss %.6f, with autocast %.6f", name, i + 1, losses[i], autocast);
    }
    fixture_close(&f);
}

static void bf16_losses_are_within_a_hundredth_of_autocast(void **state)
{
    (void)state;
    compare("gpt2");
    compare("llama");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(bf16_losses_are_within_a_hundredth_of_autocast)};
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
