/* What is said of how far a prediction may be off, held to what was measured: the collections of bench/results, a machine a time. */
#include "predict/forecast.h"

#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

/* The newest collection of each machine. */
static const char *const collections[] = {"emerald-rapids-avx512", "intel-amx", "zen3-avx2", "zen4-avx512bf16", "zen5-avx512bf16-8329844"};
enum { MACHINES = sizeof collections / sizeof *collections, MOST = 1024 };

typedef struct errors { double off[MOST]; int n; } errors;

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double median_of(const json_t *list)
{
    double v[256];
    int n = 0;
    for (size_t i = 0; i < json_array_size(list) && n < 256; i++)
        v[n++] = json_number_value(json_array_get(list, i));
    qsort(v, (size_t)n, sizeof *v, by_value);
    return n ? v[n / 2] : 0;
}

static void read_collection(const char *name, errors *out)
{
    char path[512], *line = NULL;
    size_t room = 0;
    snprintf(path, sizeof path, "%s/../../bench/results/predict-%s.jsonl", PT_FIXTURES, name);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    while (getline(&line, &room, f) > 0 && out->n < MOST) {
        json_t *o = json_loads(line, 0, NULL);
        const double predicted = json_number_value(json_object_get(o, "predicted_s")),
            measured = median_of(json_object_get(o, "measured_s"));
        if (predicted > FORECAST_SHORT_S && measured > 0)
            out->off[out->n++] = fabs(measured / predicted - 1);
        json_decref(o);
    }
    free(line);
    fclose(f);
}

static double share_within(const errors *x, double bound)
{
    int n = 0;
    for (int i = 0; i < x->n; i++)
        n += x->off[i] <= bound;
    return (double)n / x->n;
}

/* What nine of ten plans of the other machines keep to. */
static double bound_of_others(const errors all[MACHINES], int but)
{
    static double off[MACHINES * MOST];
    int n = 0;
    for (int m = 0; m < MACHINES; m++)
        for (int i = 0; i < all[m].n && m != but; i++)
            off[n++] = all[m].off[i];
    qsort(off, (size_t)n, sizeof *off, by_value);
    return off[n * 9 / 10];
}

static void most_plans_keep_to_what_is_said_on_every_machine(void **state)
{
    (void)state;
    static errors all[MACHINES];
    for (int m = 0; m < MACHINES; m++)
        read_collection(collections[m], &all[m]);
    for (int m = 0; m < MACHINES; m++) {
        const double others = bound_of_others(all, m), kept = share_within(&all[m], others), said = share_within(&all[m], FORECAST_OFF);
        print_message("%s: %.0f%% of %d plans within %.0f%%, which nine of ten of the others keep to; %.0f%% within what is said\n",
                      collections[m], 100 * kept, all[m].n, 100 * others, 100 * said);
        assert_true(all[m].n >= 100);
        assert_true(others <= FORECAST_OFF && others > FORECAST_OFF / 2); /* neither too little nor too much is said */
        assert_true(kept >= 0.75);
        assert_true(said >= 0.85);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(most_plans_keep_to_what_is_said_on_every_machine)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
