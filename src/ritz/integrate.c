/* integrate.c - an energy and its gradient over all points of a drawing; the network at given points. */
#include "ritz/solver.h"

#include <math.h>
#include <string.h>

static double volume(const problem *p)
{
    double v = 1;
    for (int64_t j = 0; j < p->is.dim; j++)
        v *= p->is.upper[j] - p->is.lower[j];
    return v;
}

/* ---- points ---- */

static void put_x(const pt_ritz *r, char *to, int64_t rows)
{
    const int64_t dim = r->net.dim, input = r->net.input;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < input; j++) {
            const double x = j < dim ? r->x[i * dim + j] : 0;
            if (r->net.type == PT_F64)
                ((double *)to)[i * input + j] = x;
            else
                ((float *)to)[i * input + j] = (float)x;
        }
}

/* f, V or g at the unit's points. */
static int values_of(pt_ritz *r, pt_ritz_function function, const char *name, int64_t rows, double *out, pt_error *e)
{
    const int64_t dim = r->net.dim;
    if (!function) {
        memset(out, 0, (size_t)rows * sizeof *out);
        return 0;
    }
    function(r->problem.is.arg, rows, dim, r->x, out);
    for (int64_t i = 0; i < rows; i++)
        if (!isfinite(out[i])) {
            char at[120] = "";
            for (int64_t j = 0; j < dim && strlen(at) < 90; j++)
                snprintf(at + strlen(at), sizeof at - strlen(at), "%s%.17g", j ? ", " : "", r->x[i * dim + j]);
            return pt_fail(e, PT_FAILED, "%s: %s is %g at x = (%s)", r->problem.name, name, out[i], at);
        }
    return 0;
}

static int make_inside(pt_ritz *r, int64_t first, int64_t rows, double *terms, pt_error *e)
{
    const pt_ritz_problem *p = &r->problem.is;
    const int64_t dim = p->dim, half = r->o.n / 2;
    const double weight = volume(&r->problem) / (double)r->o.n;
    points_get(r->inside, first, rows, r->x);
    for (int64_t i = 0; i < rows * dim; i++)
        r->x[i] = p->lower[i % dim] + r->x[i] * (p->upper[i % dim] - p->lower[i % dim]);
    int failed = values_of(r, p->f, "f", rows, r->f, e);
    if (!failed)
        failed = values_of(r, p->equation == PT_RITZ_SCHROEDINGER ? p->V : NULL, "V", rows, r->v, e);
    for (int64_t i = 0; i < rows && !failed; i++) {
        const double t[QUADRATIC_TERMS] = {weight, weight * r->v[i], weight * r->f[i], 0, r->mean[first + i >= half]};
        memcpy(terms + i * QUADRATIC_TERMS, t, sizeof t);
    }
    return failed;
}

/* Point i of all faces together; face 2j is x_j = lower, 2j + 1 is upper. Returns its area. */
static double make_face_point(pt_ritz *r, int64_t i, double *x)
{
    const pt_ritz_problem *p = &r->problem.is;
    const int64_t face = i / r->face_n, across = face / 2;
    double area = 1, at[1];
    if (r->faces && r->part != (uint32_t)face + 1) {
        r->part = (uint32_t)face + 1;
        points_draw(r->faces, r->draw, r->part);
    }
    if (r->faces)
        points_get(r->faces, i % r->face_n, 1, r->v);
    else
        at[0] = 0, r->v[0] = at[0];
    for (int64_t j = 0, k = 0; j < p->dim; j++) {
        const double width = p->upper[j] - p->lower[j];
        if (j == across) {
            x[j] = face % 2 ? p->upper[j] : p->lower[j];
            continue;
        }
        x[j] = p->lower[j] + r->v[k++] * width;
        area *= width;
    }
    return area;
}

static int make_boundary(pt_ritz *r, int64_t first, int64_t rows, double *terms, pt_error *e)
{
    const pt_ritz_problem *p = &r->problem.is;
    for (int64_t i = 0; i < rows; i++)
        terms[i * QUADRATIC_TERMS] = make_face_point(r, first + i, r->x + i * p->dim) / (double)r->face_n;
    int failed = values_of(r, p->g, "g", rows, r->f, e);
    for (int64_t i = 0; i < rows && !failed; i++) {
        double *t = terms + i * QUADRATIC_TERMS;
        const double weight = t[0], g = r->f[i], b = p->penalty;
        const bool given = p->boundary == PT_RITZ_DIRICHLET;
        const double made[QUADRATIC_TERMS] = {0, given ? 2 * b * weight : 0, given ? 2 * b * weight * g : weight * g,
                                              given ? b * weight * g * g : 0, 0};
        memcpy(t, made, sizeof made);
    }
    return failed;
}

/* ---- units ---- */

static int64_t rows_of(const pt_ritz *r, int64_t unit, int64_t *first)
{
    const bool inside = unit < r->inside_units;
    const int64_t all = inside ? r->o.n : r->boundary_n;
    *first = (inside ? unit : unit - r->inside_units) * r->unit_rows;
    return all - *first < r->unit_rows ? all - *first : r->unit_rows;
}

static void copy(pt_ritz *r, void *to, const void *from, uint64_t bytes)
{
    if (bytes)
        queue_submit(r->queue, &(op){OP_COPY, .copy = {to, from, bytes}});
}

static ritz_unit unit_at(const pt_ritz *r, int place, int64_t rows)
{
    return (ritz_unit){.net = &r->net, .layout = &r->layout, .queue = r->queue, .memory = r->units + (uint64_t)place * r->layout.bytes,
                       .weights = r->weights, .accumulators = r->sums, .ones = r->ones, .rows = rows};
}

/* Makes the unit's points and sends them; the slot's last ones have been sent before. */
static int load_unit(pt_ritz *r, int64_t unit, ritz_unit *u, pt_error *e)
{
    ritz_slot *slot = &r->slots[unit % (2 * r->micro)];
    int64_t first, rows = rows_of(r, unit, &first);
    int failed = slot->busy_until ? queue_sync(r->queue, slot->busy_until, e) : 0;
    *u = unit_at(r, (int)(unit % r->micro), rows);
    u->flat = unit >= r->inside_units;
    u->first = unit == 0;
    if (!failed)
        failed = u->flat ? make_boundary(r, first, rows, slot->terms, e) : make_inside(r, first, rows, slot->terms, e);
    if (failed)
        return failed;
    put_x(r, slot->x, rows);
    copy(r, ritz_at(u, r->layout.tensor_at[0]), slot->x, (uint64_t)(rows * r->net.input) * dtype_bytes(r->net.type));
    copy(r, ritz_at(u, r->layout.terms_at), slot->terms, (uint64_t)rows * QUADRATIC_TERMS * sizeof(double));
    slot->busy_until = queue_signal(r->queue);
    return 0;
}

enum { MICRO_MOST = 64 };

static int run_batch(pt_ritz *r, int64_t unit, int n, pt_error *e)
{
    ritz_unit u[MICRO_MOST];
    int64_t first;
    for (int i = 0; i < n; i++) {
        int failed = load_unit(r, unit + i, &u[i], e);
        if (failed)
            return failed;
    }
    for (int i = 0; i < n; i++)
        ritz_forward(&u[i]);
    for (int i = 0; i < n; i++)
        if (!u[i].flat)
            ritz_adjoint(&u[i]);
    for (int i = 0; i < n; i++) {
        rows_of(r, unit + i, &first);
        ritz_energy(&u[i]);
        copy(r, r->values + (u[i].flat ? r->o.n : 0) + first, ritz_at(&u[i], r->layout.value_at), (uint64_t)u[i].rows * sizeof(double));
    }
    for (int i = 0; i < n; i++)
        if (!u[i].flat)
            ritz_tangent(&u[i]);
    for (int i = 0; i < n; i++)
        ritz_reverse(&u[i]);
    return 0;
}

static double u_value(const pt_ritz *r, int64_t i) { return r->net.type == PT_F64 ? ((const double *)r->u)[i] : ((const float *)r->u)[i]; }

/* int u over the box from points first .. end. */
static double mean_of(const pt_ritz *r, int64_t first, int64_t end)
{
    double sum = 0;
    for (int64_t i = first; i < end; i++)
        sum += u_value(r, i);
    return sum * volume(&r->problem) / (double)(end - first);
}

/* r->mean; *energy: (int u)^2 / 2. */
static int find_mean(pt_ritz *r, double *energy, pt_error *e)
{
    const uint64_t each = dtype_bytes(r->net.type);
    const int64_t n = r->o.n, half = n / 2;
    const double v = volume(&r->problem);
    r->mean[0] = r->mean[1] = 0;
    for (int64_t unit = 0; unit < r->inside_units; unit++) {
        ritz_unit u;
        int64_t first;
        int failed = load_unit(r, unit, &u, e);
        if (failed)
            return failed;
        rows_of(r, unit, &first);
        ritz_forward(&u);
        copy(r, r->u + (uint64_t)first * each, ritz_u(&u), (uint64_t)u.rows * each);
    }
    int failed = queue_sync(r->queue, queue_signal(r->queue), e);
    if (failed)
        return failed;
    const bool halves = r->o.points == PT_RITZ_MC && n > 1;
    const double all = mean_of(r, 0, n), first = halves ? mean_of(r, 0, half) : all, second = halves ? mean_of(r, half, n) : all;
    *energy = 0.5 * first * second;
    r->mean[0] = halves ? 0.5 * v / (double)half * second : all * v / (double)n;
    r->mean[1] = halves ? 0.5 * v / (double)(n - half) * first : all * v / (double)n;
    return 0;
}

int ritz_integrate(pt_ritz *r, uint64_t draw, double *energy, pt_error *e)
{
    const int64_t units = r->inside_units + r->boundary_units;
    double sum = 0;
    r->draw = draw;
    r->part = 0;
    r->mean[0] = r->mean[1] = 0;
    points_draw(r->inside, draw, 0);
    int failed = problem_has_mean(&r->problem) ? find_mean(r, &sum, e) : 0;
    for (int64_t unit = 0; unit < units && !failed; unit += r->micro)
        failed = run_batch(r, unit, units - unit < r->micro ? (int)(units - unit) : r->micro, e);
    const int late = queue_sync(r->queue, queue_signal(r->queue), failed ? NULL : e);
    if (failed || late)
        return failed ? failed : late;
    for (int64_t i = 0; i < r->o.n + r->boundary_n; i++)
        sum += r->values[i];
    *energy = sum;
    return 0;
}

int ritz_slab(pt_ritz *r, char *slab, bool out, pt_error *e)
{
    copy(r, out ? r->staging : slab, out ? slab : r->staging, (uint64_t)r->net.params * dtype_bytes(r->net.type));
    return queue_sync(r->queue, queue_signal(r->queue), e);
}

int ritz_read_gradient(pt_ritz *r, double *gradient, pt_error *e)
{
    int failed = ritz_slab(r, r->sums, true, e);
    for (int64_t i = 0; i < r->net.params && !failed; i++)
        gradient[i] = r->net.type == PT_F64 ? ((double *)r->staging)[i] : ((float *)r->staging)[i];
    return failed;
}

/* ---- the network at given points ---- */

static double taken(const pt_ritz *r, const char *base, int64_t i) {
    return r->net.type == PT_F64 ? ((const double *)base)[i] : ((const float *)base)[i]; }

/* A unit's u and gradient come back through its slot. */
static int evaluate_unit(pt_ritz *r, int64_t rows, const double *x, double *u, double *gradient, pt_error *e)
{
    const int64_t dim = r->net.dim, input = r->net.input;
    const uint64_t each = dtype_bytes(r->net.type);
    ritz_unit unit = unit_at(r, 0, rows);
    char *slot = r->slots[0].x;
    memcpy(r->x, x, (size_t)(rows * dim) * sizeof *x);
    put_x(r, slot, rows);
    copy(r, ritz_at(&unit, r->layout.tensor_at[0]), slot, (uint64_t)(rows * input) * each);
    ritz_forward(&unit);
    copy(r, r->staging, ritz_u(&unit), (uint64_t)rows * each);
    if (gradient) {
        ritz_adjoint(&unit);
        copy(r, slot, ritz_gradient(&unit), (uint64_t)(rows * input) * each);
    }
    int failed = queue_sync(r->queue, queue_signal(r->queue), e);
    for (int64_t i = 0; i < rows && !failed; i++) {
        u[i] = taken(r, r->staging, i);
        for (int64_t j = 0; j < dim && gradient; j++)
            gradient[i * dim + j] = taken(r, slot, i * input + j);
    }
    return failed;
}

int pt_ritz_evaluate(pt_ritz *r, int64_t n, const double *x, double *u, double *gradient, pt_error *e)
{
    if (!r || (n > 0 && (!x || !u)))
        return pt_fail_null(e, "pt_ritz_evaluate", !r ? "run" : !x ? "x" : "u");
    int failed = queue_sync(r->queue, queue_signal(r->queue), e);
    for (int64_t first = 0; first < n && !failed; first += r->unit_rows) {
        const int64_t rows = n - first < r->unit_rows ? n - first : r->unit_rows;
        failed = evaluate_unit(r, rows, x + first * r->net.dim, u + first, gradient ? gradient + first * r->net.dim : NULL, e);
    }
    return failed;
}
