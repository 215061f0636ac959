/* ritz.c - solves -div grad u + u = f on the unit square by the Deep Ritz method, through the library.
 *
 *     cc ritz.c $(pkg-config --cflags --libs protrain) -lm -o ritz
 *     ./ritz STEPS
 */
#include <protrain_ritz.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* At n points of dim coordinates each. */
static void one(void *arg, int64_t n, int64_t dim, const double *x, double *out)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = 1;
}

static void f(void *arg, int64_t n, int64_t dim, const double *x, double *out)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = exp(x[i * dim]) * cos(3 * x[i * dim + 1]);
}

int main(int argc, char **argv)
{
    const pt_ritz_problem problem = {.dim = 2, .equation = PT_RITZ_SCHROEDINGER, .V = one, .f = f,
                                     .concurrent = true};
    const double middle[2] = {0.5, 0.5};
    double u, gradient[2];
    pt_ritz_options o;
    pt_ritz_defaults(&o);
    o.problem = NULL;
    o.own = &problem;
    o.steps = argc > 1 ? atoll(argv[1]) : 500;

    pt_error e = {0};
    pt_ritz *r = NULL;
    pt_ritz_step_info s;
    int more = pt_ritz_open(&o, &r, &e);
    while (more >= 0 && (more = pt_ritz_step(r, &s, &e)) > 0)
        if (s.step % 100 == 0)
            printf("step %lld  energy %.6f\n", (long long)s.step, s.energy);
    if (more == 0 && (more = pt_ritz_evaluate(r, 1, middle, &u, gradient, &e)) == 0)
        printf("in the middle u = %.4f, its gradient (%.4f, %.4f)\n", u, gradient[0], gradient[1]);
    if (more < 0)
        fprintf(stderr, "ritz: %s\n", e.text);
    pt_ritz_close(r);
    return more < 0;
}
