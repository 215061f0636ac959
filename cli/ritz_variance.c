/* ritz_variance.c - the variance of the gradient by number and set of points, as a table, a page and JSON. */
#include "interrupt.h"
#include "ritz.h"

#include <stdio.h>

enum { SIZES = 24, MOMENTS = 3, LEAST_POINTS = 32 };
static const char *const moments[MOMENTS] = {"before training", "half-way", "after training"};

typedef struct variances {
    int n, sets[PT_RITZ_SETS][SIZES];
    double points[SIZES], of[PT_RITZ_SETS][SIZES], error[PT_RITZ_SETS][SIZES];
} variances;

static int measure(ritz_session *s, pt_ritz *r, const ritz_set *kinds, int kinds_n, variances *v, pt_error *e)
{
    const int sets = s->seeds ? (int)s->seeds : 50;
    v->n = 0;
    for (int64_t n = LEAST_POINTS; n <= s->o.n && v->n < SIZES && !interrupt_signal(); n *= 2, v->n++) {
        v->points[v->n] = (double)n;
        for (int k = 0; k < kinds_n; k++) {
            pt_ritz_spread spread;
            int failed = pt_ritz_gradient_spread(r, kinds[k].points, kinds[k].randomize, n, sets, &spread, e);
            if (failed)
                return failed;
            v->of[k][v->n] = spread.variance;
            v->error[k][v->n] = spread.standard_error;
            v->sets[k][v->n] = spread.sets;
        }
        progress_draw(&s->bar, "measuring", (uint64_t)n, (uint64_t)s->o.n, NULL);
    }
    progress_clear(&s->bar);
    return 0;
}

static void print_variances(const variances *v, const char *moment, const ritz_set *kinds, int kinds_n)
{
    printf("%s\n   points", moment);
    for (int k = 0; k < kinds_n; k++)
        printf("  %14s +-95%%", kinds[k].name);
    for (int i = 0; i < v->n; i++) {
        printf("\n%9.0f", v->points[i]);
        for (int k = 0; k < kinds_n; k++)
            printf("  %14.3e %4.0f%%", v->of[k][i], 196 * v->error[k][i] / v->of[k][i]);
    }
    printf("\n    slope");
    for (int k = 0; k < kinds_n; k++)
        printf("  %14.2f %5.2f", pt_ritz_slope(v->n, v->points, v->of[k]),
               1.96 * pt_ritz_slope_error(v->n, v->points, v->of[k], v->error[k]));
    printf("\n");
    fflush(stdout);
}

static void print_json(const variances *v, const ritz_set *kinds, int kinds_n)
{
    printf("{\"variances\": [");
    for (int m = 0; m < MOMENTS; m++) {
        printf("%s{\"weights\": \"%s\", \"points\": [", m ? ", " : "", moments[m]);
        for (int i = 0; i < v[m].n; i++)
            printf("%s%.0f", i ? ", " : "", v[m].points[i]);
        printf("], \"kinds\": [");
        for (int k = 0; k < kinds_n; k++) {
            printf("%s{\"points\": \"%s\", \"slope\": %.6g, \"slope_error\": %.3g, \"variance\": [", k ? ", " : "",
                   kinds[k].name, pt_ritz_slope(v[m].n, v[m].points, v[m].of[k]),
                   pt_ritz_slope_error(v[m].n, v[m].points, v[m].of[k], v[m].error[k]));
            for (int i = 0; i < v[m].n; i++)
                printf("%s%.9g", i ? ", " : "", v[m].of[k][i]);
            printf("], \"standard_error\": [");
            for (int i = 0; i < v[m].n; i++)
                printf("%s%.9g", i ? ", " : "", v[m].error[k][i]);
            printf("]}");
        }
        printf("]}");
    }
    printf("]}\n");
}

static int write_csv(const ritz_session *s, const variances *v, int done, const ritz_set *kinds, int kinds_n, pt_error *e)
{
    FILE *out = ritz_open_table(s, "variances.csv", e);
    if (!out)
        return PT_FAILED;
    fputs("weights,points,n,variance,standard_error,sets\n", out);
    for (int m = 0; m < done; m++)
        for (int k = 0; k < kinds_n; k++)
            for (int i = 0; i < v[m].n; i++)
                fprintf(out, "%s,%s,%.0f,%.9g,%.9g,%d\n", moments[m], kinds[k].name, v[m].points[i], v[m].of[k][i],
                        v[m].error[k][i], v[m].sets[k][i]);
    return ritz_close_table(out, "variances.csv", e);
}

/* Writes the page of the first `done` moments. */
static int write_variances(const ritz_session *s, const variances *v, int done, const ritz_set *kinds, int kinds_n, pt_error *e)
{
    pt_ritz_variances figures[MOMENTS];
    for (int m = 0; m < done; m++) {
        figures[m] = (pt_ritz_variances){.title = moments[m], .sizes = v[m].n, .n = v[m].points, .kinds = kinds_n};
        for (int k = 0; k < kinds_n; k++) {
            figures[m].points[k] = kinds[k].points;
            figures[m].randomize[k] = kinds[k].randomize;
            figures[m].variance[k] = v[m].of[k];
            figures[m].error[k] = v[m].error[k];
        }
    }
    int failed = pt_ritz_variance_report(s->o.out, s->o.problem, figures, done, e);
    return failed ? failed : write_csv(s, v, done, kinds, kinds_n, e);
}

/* Trains with the kind of points that --points names, and measures all kinds at the same weights. */
int ritz_variances(ritz_session *s, pt_error *e)
{
    static variances v[MOMENTS];
    ritz_set kinds[PT_RITZ_SETS];
    pt_ritz *r;
    const int kinds_n = ritz_sets(s->compare, "mc,sobol", kinds, e);
    pt_ritz_options o = s->o;
    if (kinds_n < 0)
        return kinds_n;
    if (s->o.n < 2 * LEAST_POINTS)
        return pt_fail(e, PT_USAGE, "--gradient-variance starts at %d points: give --n %d or more", LEAST_POINTS, 2 * LEAST_POINTS);
    o.out = NULL;
    int failed = pt_ritz_open(&o, &r, e);
    if (failed)
        return failed;
    for (int m = 0, more = 1; m < MOMENTS && !failed && !interrupt_signal(); m++) {
        pt_ritz_step_info i;
        for (int64_t step = 0; m && step < s->o.steps / 2 && more > 0 && !interrupt_signal(); step++)
            more = pt_ritz_step(r, &i, e);
        failed = more < 0 ? more : measure(s, r, kinds, kinds_n, &v[m], e);
        if (!failed && !s->json)
            print_variances(&v[m], moments[m], kinds, kinds_n);
        if (!failed && s->o.out && !interrupt_signal())
            failed = write_variances(s, v, m + 1, kinds, kinds_n, e);
    }
    if (!failed && s->json && !interrupt_signal())
        print_json(v, kinds, kinds_n);
    pt_ritz_close(r);
    return failed;
}
