/* 50 steps in bf16 beside PyTorch's autocast, and how far either is from float64. */
#include "protrain.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "train/fixture.h"
#include "sanitized.h"

enum { STEPS = 50 };

/* How far losses are from the float64 ones: relative, the largest and the mean of the steps. */
typedef struct run_distance { double max, mean; } run_distance;

static double number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    assert_true(json_is_number(value));
    return json_number_value(value);
}

static run_distance from_truth(const json_t *truth, const double *losses)
{
    run_distance d = {0};
    assert_int_equal(json_array_size(truth), STEPS);
    for (int i = 0; i < STEPS; i++) {
        double t = json_number_value(json_array_get(truth, (size_t)i)), away = fabs(losses[i] - t) / t;
        assert_true(isfinite(away));
        d.max = fmax(d.max, away);
        d.mean += away / STEPS;
    }
    return d;
}

static run_distance of_pytorch(const fixture *f, const char *kind)
{
    const json_t *d = json_object_get(json_object_get(f->json, "distance_from_fp64"), kind);
    return (run_distance){number(d, "max"), number(d, "mean")};
}

static void print_distance(const char *who, run_distance d) { printf("    %-34s max %.2e  mean %.2e\n", who, d.max, d.mean); }

static void train(const fixture *f, const char *tokens, double *losses)
{
    static int runs;
    pt_error e = {0};
    pt_train_options o;
    pt_trainer *t;
    pt_step s;
    char out[128];
    int more;
    snprintf(out, sizeof out, "%s/%.32s-%d", scratch, f->name, runs++);
    fixture_options(f, (const char *const[]){tokens}, out, &o);
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
    train(&f, f.tokens, losses);
    printf("%s: distance of 50 losses from float64\n", name);
    print_distance("ours", from_truth(json_object_get(f.json, "loss_fp64"), losses));
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
    compare("gemma2");
    compare("olmo2");
}

/* ---- many runs ---- */

/* The fixture's tokens in a file of their own, beginning `shift` tokens later and going round. */
static void shift_tokens(const fixture *f, int64_t shift, char path[600])
{
    static unsigned char bytes[1 << 17], turned[1 << 17];
    snprintf(path, 600, "%s/%.32s-shift-%lld.npy", scratch, f->name, (long long)shift);
    FILE *in = fopen(f->tokens, "rb");
    assert_non_null(in);
    size_t n = fread(bytes, 1, sizeof bytes, in);
    fclose(in);
    assert_true(n > 10 && n < sizeof bytes);
    size_t header = 10 + bytes[8] + 256u * bytes[9], by = 2 * (size_t)shift; /* .npy version 1, uint16 */
    assert_true(header + by < n);
    memcpy(turned, bytes, header);
    memcpy(turned + header, bytes + header + by, n - header - by);
    memcpy(turned + n - by, bytes + header, by);
    FILE *out = fopen(path, "wb");
    assert_non_null(out);
    assert_int_equal(fwrite(turned, 1, n, out), n);
    assert_int_equal(fclose(out), 0);
}

enum { RUNS_MOST = 96, RUNS_OF_A_MODEL = 24 };
typedef struct runs { double ours[RUNS_MOST], sdpa[RUNS_MOST], eager[RUNS_MOST]; int n; } runs;

static double mean(const double *x, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += x[i] / n;
    return sum;
}

static void add_runs(const char *name, runs *r)
{
    fixture f;
    int n0 = r->n;
    size_t i;
    json_t *run;
    fixture_open(&f, "bf16", name);
    json_array_foreach(json_object_get(f.json, "shifted"), i, run)
    {
        char tokens[600];
        double losses[STEPS] = {0};
        if (i == RUNS_OF_A_MODEL)
            break;
        shift_tokens(&f, (int64_t)number(run, "shift"), tokens);
        train(&f, tokens, losses);
        assert_true(r->n < RUNS_MOST);
        r->ours[r->n] = from_truth(json_object_get(run, "loss_fp64"), losses).mean;
        r->sdpa[r->n] = number(run, "mean_bf16");
        r->eager[r->n++] = number(run, "mean_bf16_eager");
    }
    fixture_close(&f);
    int n = r->n - n0;
    assert_int_equal(n, RUNS_OF_A_MODEL);
    printf("%-6s %d runs, mean distance: ours %.2e, autocast with sdpa %.2e, eager %.2e\n", name, n, mean(r->ours + n0, n),
           mean(r->sdpa + n0, n), mean(r->eager + n0, n));
}

/* The mean of ours is at most theirs, but for the standard error of the difference. */
static void is_no_further(const char *who, const double *ours, const double *theirs, int n)
{
    double difference[RUNS_MOST] = {0}, squares = 0;
    for (int i = 0; i < n; i++)
        difference[i] = ours[i] - theirs[i];
    double m = mean(difference, n);
    for (int i = 0; i < n; i++)
        squares += (difference[i] - m) * (difference[i] - m);
    double error = sqrt(squares / (n - 1) / n);
    printf("ours - %-28s %+.1e, standard error %.1e\n", who, m, error);
    assert_true(m <= error);
}

/* A run's distance is half chance, so that many are compared. */
static void bf16_is_no_further_from_float64_than_autocast(void **state)
{
    (void)state;
    NOT_SANITIZED(); /* 96 runs; the test above runs the same code */
    static runs r;
    add_runs("gpt2", &r);
    add_runs("llama", &r);
    add_runs("gemma2", &r);
    add_runs("olmo2", &r);
    is_no_further("autocast with sdpa", r.ours, r.sdpa, r.n);
    is_no_further("autocast with eager", r.ours, r.eager, r.n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bf16_losses_are_within_a_hundredth_of_autocast),
        cmocka_unit_test(bf16_is_no_further_from_float64_than_autocast),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
