/* map.c - the network, and its error where the exact solution is known, as maps for a page: in two dimensions over the box, in three over
 * its middle plane along x3. */
#include "ritz/page.h"

#include "report/chart.h"
#include "ritz/solver.h"

#include <math.h>
#include <stdlib.h>

enum { CELLS = 48, SIDE = 480, MARGIN = 34 };

/* From dark blue over green to yellow, of even steps in lightness. */
static void put_color(FILE *out, double part)
{
    static const double stops[][3] = {{68, 1, 84}, {59, 82, 139}, {33, 145, 140}, {94, 201, 98}, {253, 231, 37}};
    const double at = fmin(fmax(part, 0), 1) * 4;
    const int below = at >= 4 ? 3 : (int)at;
    fputs("#", out);
    for (int c = 0; c < 3; c++)
        fprintf(out, "%02x", (int)lround(stops[below][c] + (at - below) * (stops[below + 1][c] - stops[below][c])));
}

/* Cells of one color side by side are one rectangle. NAN: outside the domain. */
static void put_row(FILE *out, const double *v, int row, double low, double high)
{
    const double size = (SIDE - 2.0 * MARGIN) / CELLS;
    for (int i = 0, n; i < CELLS; i += n) {
        const int shade = isnan(v[i]) ? -1 : (int)(63 * (v[i] - low) / (high - low));
        for (n = 1; i + n < CELLS && (isnan(v[i + n]) ? -1 : (int)(63 * (v[i + n] - low) / (high - low))) == shade;)
            n++;
        if (shade < 0)
            continue;
        fprintf(out, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"", MARGIN + i * size,
                MARGIN + (CELLS - 1 - row) * size, n * size + 0.4, size + 0.4);
        put_color(out, shade / 63.0);
        fputs("\"/>", out);
    }
}

static void put_map(FILE *out, const pt_ritz_problem *problem, const char *title, const double *v)
{
    double low = INFINITY, high = -INFINITY;
    for (int i = 0; i < CELLS * CELLS; i++)
        if (!isnan(v[i]))
            low = fmin(low, v[i]), high = fmax(high, v[i]);
    fprintf(out, "<figure><figcaption>%s%s<span class=\"key\">%.4g to %.4g</span></figcaption><svg viewBox=\"0 0 %d %d\" "
                 "role=\"img\">", title,
            problem->dim == 3 ? ", middle of x3" : "", low, high, SIDE, SIDE);
    for (int row = 0; row < CELLS; row++)
        put_row(out, v + row * CELLS, row, low, high > low ? high : low + 1);
    for (int end = 0; end < 2; end++) {
        fprintf(out, "<text class=\"tick\" x=\"%d\" y=\"%d\" text-anchor=\"middle\">%.4g</text>", end ? SIDE - MARGIN : MARGIN,
                SIDE - MARGIN + 18, end ? problem->upper[0] : problem->lower[0]);
        fprintf(out, "<text class=\"tick\" x=\"%d\" y=\"%d\" text-anchor=\"end\">%.4g</text>", MARGIN - 4, end ? MARGIN + 5 : SIDE - MARGIN,
                end ? problem->upper[1] : problem->lower[1]);
    }
    fprintf(out, "<text class=\"tick\" x=\"%d\" y=\"%d\" text-anchor=\"middle\">x1</text><text class=\"tick\" x=\"%d\" y=\"%d\" "
                 "text-anchor=\"end\">x2</text></svg></figure>\n", SIDE / 2, SIDE - MARGIN + 18, MARGIN - 4, SIDE / 2);
}

/* The middles of the cells. */
static void put_points(const pt_ritz_problem *problem, double *x)
{
    for (int i = 0; i < CELLS * CELLS; i++, x += problem->dim)
        for (int64_t j = 0; j < problem->dim; j++) {
            const double part = j == 0 ? (i % CELLS + 0.5) / CELLS : j == 1 ? (i / CELLS + 0.5) / CELLS : 0.5;
            x[j] = problem->lower[j] + part * (problem->upper[j] - problem->lower[j]);
        }
}

int ritz_maps_write(pt_ritz *ritz, FILE *out, pt_error *e)
{
    enum { N = CELLS * CELLS };
    const pt_ritz_problem *problem = &ritz->problem.is;
    if (problem->dim < 2 || problem->dim > 3)
        return 0;
    double *x = malloc((size_t)(N * (problem->dim + 2)) * sizeof *x), *u = x + N * problem->dim, *error = u + N;
    if (!x)
        return pt_fail(e, PT_FAILED, "out of memory");
    put_points(problem, x);
    int failed = pt_ritz_evaluate(ritz, N, x, u, NULL, e);
    if (!failed && problem->exact)
        failed = pt_ritz_exact(ritz, N, x, error, NULL, e);
    for (int i = 0; i < N && !failed; i++) {
        const bool inside = domain_holds(problem, x + i * problem->dim);
        error[i] = inside && problem->exact ? u[i] - error[i] : NAN;
        u[i] = inside ? u[i] : NAN;
    }
    if (!failed) {
        fputs("<div class=\"charts\">\n", out);
        put_map(out, problem, "u", u);
        if (problem->exact)
            put_map(out, problem, problem->equation == PT_RITZ_EIGENVALUE ? "u less exact, which may have another length" : "error", error);
        fputs("</div>\n", out);
    }
    free(x);
    return failed;
}
