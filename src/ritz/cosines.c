#include "ritz/cosines.h"

#include <math.h>

enum { PIECE = 512, TERMS = 11 };

/* Taylor's series of sin(pi s): behind these terms, what is left at s = 1/2 is below 1e-17. */
static const double series[TERMS] = {
    0x1.921fb54442d18p+1, -0x1.4abbce625be53p+2, 0x1.466bc6775aae2p+1, -0x1.32d2cce62bd86p-1,
    0x1.50783487ee782p-4, -0x1.e3074fde8871fp-8, 0x1.e8f434d018d63p-12, -0x1.6fadb9f155744p-16,
    0x1.aaec32af93359p-21, -0x1.8a404211f9547p-26, 0x1.2877020d52cf0p-31};

/* cos(pi x) = sin(pi (1/2 - |r|)), where r is x minus an even number, in [-1, 1]. Nothing is fused, so vectors of any width give the same
 * bits. */
static inline __attribute__((always_inline)) void cosines(int64_t n, const double *restrict x, double *restrict out)
{
    const double shift = 0x1.8p52; /* adding it rounds to an integer */
    for (int64_t i = 0; i < n; i++) {
        const double even = 2 * (0.5 * x[i] + shift - shift), s = 0.5 - fabs(x[i] - even), square = s * s;
        double sum = series[TERMS - 1];
        for (int k = TERMS - 2; k >= 0; k--)
            sum = sum * square + series[k];
        out[i] = sum * s;
    }
}

#if defined(__x86_64__)

__attribute__((target("avx2"))) static void cosines_avx2(int64_t n, const double *x, double *out) { cosines(n, x, out); }

__attribute__((target("avx512f,prefer-vector-width=512"))) static void cosines_avx512(int64_t n, const double *x, double *out)
{
    cosines(n, x, out);
}

static void cosines_best(int64_t n, const double *x, double *out)
{
    if (__builtin_cpu_supports("avx512f"))
        cosines_avx512(n, x, out);
    else if (__builtin_cpu_supports("avx2"))
        cosines_avx2(n, x, out);
    else
        cosines(n, x, out);
}

#else

static void cosines_best(int64_t n, const double *x, double *out) { cosines(n, x, out); }

#endif

void cosine_sums(int64_t n, int64_t dim, const double *x, double *out)
{
    double terms[PIECE], sum = 0;
    for (int64_t at = 0, i = 0, j = 0; at < n * dim; at += PIECE) {
        const int64_t count = n * dim - at < PIECE ? n * dim - at : PIECE;
        cosines_best(count, x + at, terms);
        for (int64_t k = 0; k < count; k++) {
            sum += terms[k];
            if (++j == dim)
                out[i++] = sum, sum = 0, j = 0;
        }
    }
}
