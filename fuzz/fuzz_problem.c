/* fuzz_problem.c - any bytes as a problem of the Deep Ritz method: refused with a sentence that names the file, or a problem with a box
 * whose functions can be evaluated anywhere in it. */
#include "ritz/problem.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void problem_try(const problem *p)
{
    const pt_ritz_function all[] = {p->is.f, p->is.V, p->is.g, p->is.r, p->is.a, p->is.exact};
    const int64_t dim = p->is.dim;
    assert(dim >= 1 && dim <= 65536);
    double *x = malloc((size_t)(3 * dim) * sizeof *x), out[3];
    for (int64_t i = 0; i < 3 * dim; i++) {
        assert(isfinite(p->is.lower[i % dim]) && p->is.lower[i % dim] < p->is.upper[i % dim]);
        x[i] = i < dim ? p->is.lower[i] : i < 2 * dim ? p->is.upper[i % dim] : 0.5 * p->is.lower[i % dim] + 0.5 * p->is.upper[i % dim];
    }
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i])
            all[i](p->is.arg, 3, dim, x, out);
    for (int64_t k = 0; k < domain_faces(&p->is); k++) {
        const domain_face face = domain_face_of(&p->is, k);
        assert(face.axis < dim && face.number != 0 && face.lower[face.axis] < face.upper[face.axis]);
        domain_face_holds(&p->is, &face, x);
        problem_face_values(p, p->is.g, k, 3, x, out);
    }
    if (p->is.G)
        p->is.G(p->is.arg, 1, dim, x, out, out + 1, out + 2);
    assert(domain_volume(&p->is) > 0);
    free(x);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    pt_error e = {0};
    problem p;
    if (problem_text_open("fuzz/problem.json", (const char *)data, n, &p, &e))
        assert(e.code && strlen(e.text) > 20 && !control_character(e.text));
    else
        problem_try(&p);
    problem_close(&p);
    return 0;
}
