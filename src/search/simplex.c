#include "search/simplex.h"

#include <math.h>

static const double nothing = 1e-11;

static double *row(const simplex *x, int r) { return x->at + (long)r * (x->columns + 1); }

static void pivot(simplex *x, int r, int column)
{
    double *p = row(x, r);
    const double by = 1 / p[column];
    for (int c = 0; c <= x->columns; c++)
        p[c] *= by;
    for (int o = 0; o <= x->rows; o++) {
        double *q = row(x, o);
        const double times = q[column];
        if (o == r || times == 0)
            continue;
        for (int c = 0; c <= x->columns; c++)
            q[c] -= times * p[c];
        q[column] = 0;
    }
    x->basis[r] = column;
}

/* The variable whose cost falls fastest; of those that fall, the first, where a circle is possible. -1: none falls. */
static int entering(const simplex *x, int careful)
{
    const double *cost = row(x, x->rows);
    int best = -1;
    for (int c = 0; c < x->columns; c++)
        if (cost[c] < -nothing && (best < 0 || (!careful && cost[c] < cost[best])))
            best = c;
    return best;
}

/* The row whose variable reaches 0 first; -1: none does. */
static int leaving(const simplex *x, int column)
{
    int best = -1;
    double least = INFINITY;
    for (int r = 0; r < x->rows; r++) {
        const double *q = row(x, r);
        if (q[column] <= nothing)
            continue;
        const double ratio = q[x->columns] / q[column];
        if (ratio < least - nothing || (ratio <= least && x->basis[r] < x->basis[best])) {
            least = ratio;
            best = r;
        }
    }
    return best;
}

void simplex_solve(simplex *x, int most)
{
    for (int r = 0; r < x->rows; r++)
        pivot(x, r, x->basis[r]);
    for (int i = 0; i < most; i++) {
        const int column = entering(x, i > most / 2), r = column < 0 ? -1 : leaving(x, column);
        if (r < 0)
            return;
        pivot(x, r, column);
    }
}
