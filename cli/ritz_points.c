/* ritz_points.c - --print-points: the points of a step as CSV. */
#include "ritz.h"

#include "base/error.h"

#include <stdio.h>
#include <stdlib.h>

enum { ROWS = 1024 };

static void print_rows(const pt_ritz_summary *m, int64_t n, const double *x, const int64_t *face, const double *weight)
{
    for (int64_t i = 0; i < n; i++) {
        for (int64_t j = 0; j < m->dim; j++)
            printf("%.17g,", x[i * m->dim + j]);
        printf("%lld,%.17g\n", (long long)face[i], weight[i]);
    }
}

int ritz_print_points(ritz_session *s, pt_error *e)
{
    pt_ritz *r;
    pt_ritz_summary m;
    if (s->print_points < 1)
        return pt_fail(e, PT_USAGE, "--print-points needs the number of a step, 1 or more");
    s->o.out = NULL;
    s->o.forecast = false;
    int failed = pt_ritz_open(&s->o, &r, e);
    if (failed)
        return failed;
    pt_ritz_get_summary(r, &m);
    double *x = malloc((size_t)(ROWS * (m.dim + 1)) * sizeof *x), *weight = x + ROWS * m.dim;
    int64_t face[ROWS];
    if (!x)
        failed = pt_fail(e, PT_FAILED, "out of memory");
    for (int64_t j = 0; j < m.dim && !failed; j++)
        printf("x%lld,", (long long)j + 1);
    if (!failed)
        puts("face,weight");
    for (int64_t first = 0, n; first < m.n + m.n_boundary && !failed; first += n) {
        n = m.n + m.n_boundary - first < ROWS ? m.n + m.n_boundary - first : ROWS;
        failed = pt_ritz_points_of_step(r, s->print_points, first, n, x, face, weight, e);
        if (!failed)
            print_rows(&m, n, x, face, weight);
    }
    free(x);
    pt_ritz_close(r);
    return failed;
}
