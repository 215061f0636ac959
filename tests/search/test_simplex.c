/* The simplex method beside every basis of small programs. */
#include "random_plan.h"
#include "search/simplex.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <math.h>

#include <cmocka.h>

enum { ROWS = 3, MOST = 8 };

typedef struct program { int rows, columns; double a[ROWS][MOST], b[ROWS], cost[MOST]; } program;

/* Rows `a . x <= b` with b >= 0, of which one bounds every x, and equal numbers here and there: several corners are the same. */
static program random_program(random_source *r)
{
    program p = {.rows = random_from(r, 1, ROWS)};
    const int free = random_from(r, 1, MOST - ROWS);
    p.columns = free + p.rows;
    for (int i = 0; i < p.rows; i++) {
        for (int c = 0; c < free; c++)
            p.a[i][c] = i ? random_from(r, -4, 4) : random_from(r, 1, 5);
        p.a[i][free + i] = 1;
        p.b[i] = random_from(r, 0, 6);
    }
    for (int c = 0; c < free; c++)
        p.cost[c] = random_from(r, -5, 3);
    return p;
}

/* The cost of the corner at which only the columns of `basis` are not 0; INFINITY: there is none, or it is outside. */
static double corner(const program *p, const int basis[ROWS])
{
    double m[ROWS][ROWS + 1], cost = 0;
    for (int i = 0; i < p->rows; i++) {
        for (int k = 0; k < p->rows; k++)
            m[i][k] = p->a[i][basis[k]];
        m[i][p->rows] = p->b[i];
    }
    for (int k = 0; k < p->rows; k++) {
        int best = k;
        for (int i = k; i < p->rows; i++)
            best = fabs(m[i][k]) > fabs(m[best][k]) ? i : best;
        if (fabs(m[best][k]) < 1e-9)
            return INFINITY;
        for (int c = 0; c <= p->rows; c++) {
            const double kept = m[k][c];
            m[k][c] = m[best][c];
            m[best][c] = kept;
        }
        for (int i = 0; i < p->rows; i++)
            for (int c = p->rows; c >= k && i != k; c--)
                m[i][c] -= m[i][k] / m[k][k] * m[k][c];
    }
    for (int k = 0; k < p->rows; k++) {
        const double x = m[k][p->rows] / m[k][k];
        if (x < -1e-9)
            return INFINITY;
        cost += p->cost[basis[k]] * x;
    }
    return cost;
}

static double least_corner(const program *p, int basis[ROWS], int chosen, int from)
{
    double least = INFINITY;
    if (chosen == p->rows || chosen == ROWS)
        return corner(p, basis);
    for (int c = from; c < p->columns; c++) {
        basis[chosen] = c;
        least = fmin(least, least_corner(p, basis, chosen + 1, c + 1));
    }
    return least;
}

/* The multipliers of the rows price every column at no more than its cost, and the right side at the least cost. */
static void check_multipliers(const program *p, const double *reduced, double least)
{
    double priced = 0;
    for (int i = 0; i < p->rows; i++) {
        assert_true(reduced[p->columns - p->rows + i] >= -1e-9);
        priced -= reduced[p->columns - p->rows + i] * p->b[i];
    }
    if (fabs(priced - least) > 1e-9 * (1 + fabs(least)))
        fail_msg("%g by the multipliers, %g at the best corner", priced, least);
}

static void the_least_cost_is_that_of_the_best_corner(void **state)
{
    (void)state;
    random_source r = random_open();
    for (int n = 0; n < 2000; n++) {
        const program p = random_program(&r);
        double at[(ROWS + 1) * (MOST + 1)] = {0};
        int basis[ROWS], any[ROWS];
        simplex x = {p.rows, p.columns, at, basis};
        for (int i = 0; i < p.rows; i++) {
            memcpy(at + i * (p.columns + 1), p.a[i], (size_t)p.columns * sizeof *at);
            at[i * (p.columns + 1) + p.columns] = p.b[i];
            basis[i] = p.columns - p.rows + i;
        }
        double *cost = at + p.rows * (p.columns + 1);
        memcpy(cost, p.cost, (size_t)p.columns * sizeof *at);
        simplex_solve(&x, 1000);
        const double least = least_corner(&p, any, 0, 0);
        if (fabs(-cost[p.columns] - least) > 1e-9 * (1 + fabs(least)))
            fail_msg("program %d: %g instead of %g", n, -cost[p.columns], least);
        check_multipliers(&p, cost, least);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_least_cost_is_that_of_the_best_corner)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
