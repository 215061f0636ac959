#include "ritz/variance.h"

#include "ritz/solver.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Welford's algorithm: mean and sum of squared differences of each value. */
static int add_sets(pt_ritz *r, int sets, double *gradient, double *mean, double *squares, pt_error *e)
{
    for (int k = 0; k < sets; k++) {
        double energy;
        int failed = ritz_integrate(r, (uint64_t)k, &energy, e);
        if (!failed)
            failed = ritz_read_gradient(r, gradient, e);
        if (failed)
            return failed;
        for (int64_t i = 0; i < r->net.params; i++) {
            const double off = gradient[i] - mean[i];
            mean[i] += off / (k + 1);
            squares[i] += off * (gradient[i] - mean[i]);
        }
    }
    return 0;
}

static int open_like(pt_ritz *at, pt_ritz_points kind, int64_t n, pt_ritz **out, pt_error *e)
{
    pt_ritz_options o = at->o;
    o.points = kind;
    if ((points_randomize)o.randomize != RANDOMIZE_DEFAULT && kind != at->o.points)
        o.randomize = PT_RITZ_RANDOMIZE_DEFAULT;
    o.n = n;
    o.n_boundary = at->boundary_n ? n : 0;
    o.out = NULL;
    o.resume = false;
    o.notice = NULL;
    int failed = pt_ritz_open(&o, out, e);
    if (failed)
        return failed;
    for (int c = 0; c < at->space.chunks_n && !failed; c++) {
        failed = ritz_slab(at, OBJECT_WEIGHTS, 0, c, true, e);
        memcpy((*out)->staging, at->staging, (size_t)at->space.chunks[c].values * dtype_bytes(at->net.type));
        if (!failed)
            failed = ritz_slab(*out, OBJECT_WEIGHTS, 0, c, false, e);
    }
    if (failed)
        pt_ritz_close(*out);
    return failed;
}

int ritz_gradient_variance(pt_ritz *at, pt_ritz_points kind, int64_t n, int sets, double *variance, double *mean_square, pt_error *e)
{
    pt_ritz *r;
    int failed = sets < 2 ? pt_fail(e, PT_USAGE, "a variance needs at least 2 point sets, but %d were asked for", sets) : open_like(at,
                                    kind, n, &r, e);
    if (failed)
        return failed;
    const size_t params = (size_t)r->net.params;
    double *work = calloc(3 * params, sizeof *work), length = 0;
    *variance = 0;
    failed = work ? add_sets(r, sets, work, work + params, work + 2 * params, e) : pt_fail(e, PT_FAILED, "out of memory");
    for (size_t i = 0; i < params && !failed; i++) {
        *variance += work[2 * params + i] / (sets - 1);
        length += work[params + i] * work[params + i];
    }
    if (mean_square)
        *mean_square = length;
    free(work);
    pt_ritz_close(r);
    return failed;
}

double ritz_slope(const double *x, const double *y, int n)
{
    double mx = 0, my = 0, xy = 0, xx = 0;
    for (int i = 0; i < n; i++)
        mx += log(x[i]) / n, my += log(y[i]) / n;
    for (int i = 0; i < n; i++)
        xy += (log(x[i]) - mx) * (log(y[i]) - my), xx += (log(x[i]) - mx) * (log(x[i]) - mx);
    return xy / xx;
}
