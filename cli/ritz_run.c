/* ritz_run.c - one run of the Deep Ritz method, from the first step to the report. */
#include "interrupt.h"
#include "ritz.h"

#include "base/error.h"
#include "base/units.h"

#include <math.h>
#include <stdio.h>

static void draw(ritz_session *s, const pt_ritz_step_info *i, double l2)
{
    char text[80];
    int n = snprintf(text, sizeof text, "%s %.6g", s->o.loss == PT_RITZ_LOSS_RESIDUAL ? "residual loss" : "energy", i->energy);
    if (!isnan(l2))
        snprintf(text + n, sizeof text - (size_t)n, "  L2 error %.3g", l2);
    progress_draw(&s->bar, "training", (uint64_t)i->step, (uint64_t)s->o.steps, text);
}

/* "energy on 8 sets of 4096 other points  -4.93447 +- 2.1e-05, 95% within -4.93452 .. -4.93442; 3.2e-04 above the exact one" */
static void print_estimate(const pt_ritz_summary *m, const pt_ritz_energy *s)
{
    printf("energy on %d sets of %lld other points  %.7g +- %.2g, 95%% within %.7g .. %.7g", s->sets, (long long)s->points, s->energy,
           s->standard_error, s->low, s->high);
    if (!isnan(m->exact_energy))
        printf("; %.2e %s the exact one", fabs(s->energy - m->exact_energy), s->energy < m->exact_energy ? "below" : "above");
    printf("\n");
}

static void print_end(const ritz_session *s, const pt_ritz_summary *m, const pt_ritz_step_info *i)
{
    const bool residual = s->o.loss == PT_RITZ_LOSS_RESIDUAL;
    if (s->json) {
        printf("{\"steps\": %lld, \"%s\": %.17g", (long long)i->step, residual ? "residual" : "energy", i->energy);
        if (!isnan(m->exact_energy))
            printf(", \"exact_energy\": %.17g", m->exact_energy);
        if (i->evaluated)
            printf(", \"l2_error\": %.9g, \"h1_error\": %.9g, \"h1_seminorm_error\": %.9g, \"energy_norm_error\": %.9g, "
                   "\"absolute_errors\": %s", i->l2_error, i->h1_error, i->h1_seminorm_error, i->energy_norm_error,
                   m->exact_is_zero ? "true" : "false");
        if (i->estimated)
            printf(", \"estimated_energy\": %.17g, \"standard_error\": %.9g, \"least_energy_norm_error\": %.9g", i->estimate.energy,
                   i->estimate.standard_error, isnan(i->estimate.least_error) ? 0 : i->estimate.least_error);
        printf("}\n");
        return;
    }
    printf("%lld step%s  %s %.7g", (long long)i->step, plural((uint64_t)i->step), residual ? "residual loss" : "energy", i->energy);
    if (!isnan(m->exact_energy) && !residual)
        printf(" (exact %.7g)", m->exact_energy);
    if (i->evaluated)
        printf("  %s error L2 %.3g  H1 %.3g (seminorm %.3g)  energy norm %.3g", m->exact_is_zero ? "absolute" : "relative", i->l2_error,
               i->h1_error, i->h1_seminorm_error, i->energy_norm_error);
    printf("\n");
    if (i->estimated)
        print_estimate(m, &i->estimate);
}

static int polish(ritz_session *s, pt_ritz *r, pt_ritz_step_info *i, pt_error *e)
{
    int64_t iterations;
    char text[120];
    int failed = pt_ritz_polish(r, &iterations, i, e);
    snprintf(text, sizeof text, "L-BFGS: %lld iteration%s, then the %s on its points is %.7g", (long long)iterations,
             plural((uint64_t)iterations), s->o.loss == PT_RITZ_LOSS_RESIDUAL ? "residual loss" : "energy", i->energy);
    if (!failed && iterations && !s->part)
        progress_notice(&s->bar, text);
    return failed;
}

static int run_steps(ritz_session *s, pt_ritz *r, bool *stopped, pt_error *e)
{
    pt_ritz_summary m;
    pt_ritz_step_info i = {0};
    double l2 = NAN;
    int more = 1;
    while (!(*stopped = interrupt_signal()) && (more = pt_ritz_step(r, &i, e)) > 0) {
        l2 = i.evaluated ? i.l2_error : l2;
        draw(s, &i, l2);
    }
    progress_clear(&s->bar);
    if (more < 0)
        return more;
    if (*stopped)
        return s->o.out ? pt_ritz_save(r, e) : 0;
    more = s->o.lbfgs_steps ? polish(s, r, &i, e) : 0;
    if (!more)
        more = pt_ritz_finish(r, e);
    pt_ritz_get_summary(r, &m);
    if (!more && i.step && !s->part)
        print_end(s, &m, &i);
    return more;
}

/* Checks --steps against the steps that a resumed run has done. */
static int check_done(ritz_session *s, const pt_ritz_summary *m, pt_error *e)
{
    char text[160];
    if (m->first_step > s->o.steps)
        return pt_fail(e, PT_USAGE, "--steps is %lld, but the run in %.400s has done %lld step%s: give at least as many",
                       (long long)s->o.steps, s->o.out, (long long)m->first_step, plural((uint64_t)m->first_step));
    snprintf(text, sizeof text, "step %lld of %lld is done: give more --steps to train on", (long long)m->first_step,
             (long long)s->o.steps);
    if (m->first_step && m->first_step == s->o.steps && !s->part)
        progress_notice(&s->bar, text);
    return 0;
}

enum { FORECAST_STEPS = 100 }; /* a shorter run ends before its time can be forecast */

int ritz_train(ritz_session *s, bool *stopped, pt_error *e)
{
    pt_ritz *r;
    pt_ritz_summary m;
    char plan[RITZ_PLAN_TEXT];
    *stopped = false;
    s->o.forecast = s->o.out && !s->compare && s->o.steps >= FORECAST_STEPS;
    int failed = pt_ritz_open(&s->o, &r, e);
    if (failed)
        return failed;
    pt_ritz_get_summary(r, &m);
    ritz_describe_plan(&m, plan);
    const int64_t points = m.n + m.n_boundary;
    char units[48] = "";
    if (points > m.unit_points)
        snprintf(units, sizeof units, ", in units of %lld", (long long)m.unit_points);
    if (!s->quiet && !s->json)
        printf("%s, %lld dimension%s; %lld parameter%s; %lld point%s a step%s%s; %s\n", m.problem, (long long)m.dim,
               plural((uint64_t)m.dim), (long long)m.parameters, plural((uint64_t)m.parameters), (long long)points,
               plural((uint64_t)points), m.n_boundary ? " with the boundary's" : "", units, plan);
    fflush(stdout);
    failed = check_done(s, &m, e);
    if (!failed)
        failed = run_steps(s, r, stopped, e);
    pt_ritz_close(r);
    return failed;
}
