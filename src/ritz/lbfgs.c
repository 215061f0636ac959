/* lbfgs.c - L-BFGS on one fixed point set, after the steps of AdamW (pt_ritz_polish): the last `PAIRS` changes of weights and gradient give
 * the direction, and a step length by bisection fulfils the weak Wolfe conditions. Vectors are fp64 on the host; the weights that are tried
 * are of the network's type. What it does depends only on the weights that it begins with, so a run that is killed meanwhile repeats it. */
#include "base/clock.h"
#include "ritz/solver.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PAIRS = 10, TRIES = 24, VECTORS = 2 * PAIRS + 5 };

typedef struct lbfgs {
    pt_ritz *r;
    uint64_t draw;
    size_t n;
    double *memory, *s[PAIRS], *y[PAIRS], rho[PAIRS];
    double *x, *g, *tried, *tried_g, *direction;
    int64_t pairs;
} lbfgs;

uint64_t ritz_polish_bytes(const pt_ritz *ritz)
{
    return ritz->o.lbfgs_steps ? (uint64_t)ritz->net.params * VECTORS * sizeof(double) : 0;
}

static int lbfgs_open(lbfgs *l, pt_ritz *ritz, pt_error *e)
{
    *l = (lbfgs){.r = ritz, .draw = ritz_draw_of(&ritz->o, ritz->o.steps) + (ritz->o.redraw_every > 0), .n = (size_t)ritz->net.params};
    double *at = l->memory = malloc(ritz_polish_bytes(ritz));
    if (!at)
        return pt_fail(e, PT_FAILED, "out of memory");
    for (int k = 0; k < PAIRS; k++, at += 2 * l->n)
        l->s[k] = at, l->y[k] = at + l->n;
    double **const others[] = {&l->x, &l->g, &l->tried, &l->tried_g, &l->direction};
    for (size_t k = 0; k < sizeof others / sizeof *others; k++, at += l->n)
        *others[k] = at;
    return 0;
}

static double dot(const lbfgs *l, const double *a, const double *b)
{
    double sum = 0;
    for (size_t i = 0; i < l->n; i++)
        sum += a[i] * b[i];
    return sum;
}

/* The weights, which are rounded to the network's type in x, too. */
static int move(lbfgs *l, double *x, bool out, pt_error *e)
{
    pt_ritz *ritz = l->r;
    const bool wide = ritz->net.type == PT_F64;
    int failed = 0;
    for (int c = 0; c < ritz->space.chunks_n && !failed; c++) {
        double *part = x + ritz->space.chunks[c].value0;
        failed = out ? ritz_slab(ritz, OBJECT_WEIGHTS, 0, c, true, e) : 0;
        for (int64_t i = 0; i < ritz->space.chunks[c].values && !failed; i++) {
            part[i] = out ? ritz_value(ritz, ritz->staging, i) : wide ? part[i] : (double)(float)part[i];
            if (wide)
                ((double *)ritz->staging)[i] = part[i];
            else
                ((float *)ritz->staging)[i] = (float)part[i];
        }
        if (!failed && !out)
            failed = ritz_slab(ritz, OBJECT_WEIGHTS, 0, c, false, e);
    }
    return failed;
}

static int measure(lbfgs *l, double *x, double *g, double *energy, pt_error *e)
{
    int failed = move(l, x, false, e);
    if (!failed)
        failed = ritz_integrate(l->r, l->draw, energy, e);
    return failed ? failed : ritz_read_gradient(l->r, g, e);
}

/* The two loops over the pairs. */
static void find_direction(lbfgs *l)
{
    double alpha[PAIRS], *d = l->direction;
    const int64_t first = l->pairs < PAIRS ? 0 : l->pairs - PAIRS;
    for (size_t i = 0; i < l->n; i++)
        d[i] = -l->g[i];
    for (int64_t k = l->pairs - 1; k >= first; k--) {
        const int p = (int)(k % PAIRS);
        alpha[p] = l->rho[p] * dot(l, l->s[p], d);
        for (size_t i = 0; i < l->n; i++)
            d[i] -= alpha[p] * l->y[p][i];
    }
    if (l->pairs) {
        const int p = (int)((l->pairs - 1) % PAIRS);
        const double scale = 1 / (l->rho[p] * dot(l, l->y[p], l->y[p]));
        for (size_t i = 0; i < l->n; i++)
            d[i] *= scale;
    }
    for (int64_t k = first; k < l->pairs; k++) {
        const int p = (int)(k % PAIRS);
        const double beta = l->rho[p] * dot(l, l->y[p], d);
        for (size_t i = 0; i < l->n; i++)
            d[i] += l->s[p][i] * (alpha[p] - beta);
    }
}

static void keep_pair(lbfgs *l)
{
    const int p = (int)(l->pairs % PAIRS);
    for (size_t i = 0; i < l->n; i++) {
        l->s[p][i] = l->tried[i] - l->x[i];
        l->y[p][i] = l->tried_g[i] - l->g[i];
    }
    const double curvature = dot(l, l->s[p], l->y[p]);
    if (curvature > 1e-14 * dot(l, l->y[p], l->y[p])) {
        l->rho[p] = 1 / curvature;
        l->pairs++;
    }
}

/* One iteration. *done: no step along the direction lowers the energy any more. */
static int iterate(lbfgs *l, double *energy, bool *done, pt_error *e)
{
    find_direction(l);
    double slope = dot(l, l->g, l->direction), low = 0, high = INFINITY, now = *energy;
    double length = l->pairs ? 1 : fmin(1, 1e-2 / sqrt(dot(l, l->g, l->g)));
    int failed = 0, tries = 0;
    for (bool fits = false; slope < 0 && !fits && tries < TRIES && !failed; tries++) {
        for (size_t i = 0; i < l->n; i++)
            l->tried[i] = l->x[i] + length * l->direction[i];
        failed = measure(l, l->tried, l->tried_g, &now, e);
        if (!isfinite(now) || now > *energy + 1e-4 * length * slope)
            high = length;
        else if (dot(l, l->tried_g, l->direction) < 0.9 * slope)
            low = length;
        else
            fits = true;
        if (!fits)
            length = isinf(high) ? 2 * length : (low + high) / 2;
    }
    *done = !(now < *energy) || !isfinite(now);
    if (failed || *done)
        return failed;
    keep_pair(l);
    memcpy(l->x, l->tried, l->n * sizeof *l->x);
    memcpy(l->g, l->tried_g, l->n * sizeof *l->g);
    *energy = now;
    return 0;
}

int pt_ritz_polish(pt_ritz *ritz, int64_t *iterations, pt_ritz_step_info *s, pt_error *e)
{
    int failed = ritz_check_call(ritz, "pt_ritz_polish", true, e);
    if (failed || !iterations || !s)
        return failed ? failed : pt_fail_null(e, "pt_ritz_polish", iterations ? "step" : "iterations");
    if (!ritz->o.lbfgs_steps || ritz->step < ritz->o.steps)
        return pt_fail(e, PT_USAGE, "pt_ritz_polish: %s", ritz->o.lbfgs_steps ? "the steps are not done yet" : "`lbfgs_steps` is 0");
    lbfgs l;
    bool done = false;
    double energy = NAN;
    const double begin_s = clock_s();
    *iterations = 0;
    if (ritz->polished) /* a resumed run */
        return 0;
    *s = (pt_ritz_step_info){.step = ritz->step};
    ritz->penalty = ritz->problem.is.penalty;
    failed = lbfgs_open(&l, ritz, e);
    if (!failed)
        failed = move(&l, l.x, true, e);
    if (!failed)
        failed = measure(&l, l.x, l.g, &energy, e);
    for (*iterations = 0; *iterations < ritz->o.lbfgs_steps && !failed && !done; *iterations += !done)
        failed = iterate(&l, &energy, &done, e);
    if (!failed)
        failed = move(&l, l.x, false, e);
    free(l.memory);
    if (failed)
        return failed;
    ritz->polished = ritz->o.lbfgs_steps;
    ritz->recent[0] = s->energy = energy;
    ritz->recent_n = 1;
    s->step += *iterations;
    failed = ritz_evaluate(ritz, s, e);
    s->step_s = clock_s() - begin_s;
    return failed ? failed : ritz_metrics_write(ritz, s, e);
}
