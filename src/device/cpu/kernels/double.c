#include "device/cpu/kernels/double.h"
#include "device/cpu/kernels/isa.h"
#include "device/cpu/kernels/vec.h"

#include <math.h>
#include <string.h>

/* ---- matmuls ---- */

enum { DOUBLES = VEC_LANES / 2, PANEL_VECS = DOUBLE_COLS / DOUBLES, ROWS = 4 }; /* vectors of a panel's row; rows at a time */
typedef double vd_at __attribute__((vector_size(VEC_LANES * 4), aligned(8), may_alias));

static INLINE vd double_fma(double a, vd b, vd c)
{
#if VEC_LANES == 16
    return (vd)_mm512_fmadd_pd(_mm512_set1_pd(a), (__m512d)b, (__m512d)c);
#elif VEC_LANES == 8
    return (vd)_mm256_fmadd_pd(_mm256_set1_pd(a), (__m256d)b, (__m256d)c);
#elif defined(__aarch64__)
    return (vd)vfmaq_n_f64((float64x2_t)c, (float64x2_t)b, a);
#else
    return a * b + c;
#endif
}

void KERNEL(double_pack)(const op_matmul *o, int64_t n0, double *panel)
{
    const int64_t cols = o->n - n0 < DOUBLE_COLS ? o->n - n0 : DOUBLE_COLS;
    const double *b = o->b;
    if (cols < DOUBLE_COLS)
        memset(panel, 0, (size_t)(o->k * DOUBLE_COLS) * sizeof *panel);
    for (int64_t k = 0; k < o->k; k++)
        for (int64_t j = 0; j < cols; j++)
            panel[k * DOUBLE_COLS + j] = o->layout == MATMUL_NT ? b[(n0 + j) * o->ldb + k] : b[k * o->ldb + n0 + j];
}

static INLINE void store_row(const op_matmul *o, int64_t row, int64_t n0, const double *sum)
{
    const int64_t cols = o->n - n0 < DOUBLE_COLS ? o->n - n0 : DOUBLE_COLS;
    const double alpha = op_factor(o->alpha), *bias = o->bias, *residual = o->residual;
    double *c = (double *)o->c + row * o->ldc;
    for (int64_t j = 0; j < cols; j++) {
        double x = alpha * sum[j] + (bias ? bias[n0 + j] : 0);
        x += residual ? residual[row * o->ldc + n0 + j] : 0;
        c[n0 + j] = o->accumulate ? c[n0 + j] + x : x;
    }
}

/* `rows` is a constant where this is inlined. */
static INLINE void tile_rows(const op_matmul *o, int rows, int64_t row, int64_t n0, const double *panel)
{
    const bool across = o->layout == MATMUL_TN;
    const int64_t step = across ? 1 : o->lda, next = across ? o->lda : 1;
    const double *a = (const double *)o->a + row * step;
    vd sum[ROWS][PANEL_VECS] = {0};
    for (int64_t k = 0; k < o->k; k++, a += next) {
        vd b[PANEL_VECS];
#pragma GCC unroll 8
        for (int v = 0; v < PANEL_VECS; v++)
            b[v] = *(const vd_at *)(panel + k * DOUBLE_COLS + v * DOUBLES);
#pragma GCC unroll 4
        for (int i = 0; i < rows; i++)
#pragma GCC unroll 8
            for (int v = 0; v < PANEL_VECS; v++)
                sum[i][v] = double_fma(a[i * step], b[v], sum[i][v]);
    }
    for (int i = 0; i < rows; i++)
        store_row(o, row + i, n0, (const double *)sum[i]);
}

void KERNEL(double_tile)(const op_matmul *o, int64_t m0, int64_t m1, int64_t n0, const double *panel)
{
    int64_t row = m0;
    for (; row + ROWS <= m1; row += ROWS)
        tile_rows(o, ROWS, row, n0, panel);
    for (; row < m1; row++)
        tile_rows(o, 1, row, n0, panel);
}

/* ---- AdamW ---- */

void KERNEL(adamw_double_part)(const op_adamw *o, int64_t begin, int64_t end)
{
    double *w = o->hi, *m = (double *)o->m, *v = (double *)o->v;
    const double *gradient = o->g;
    const adamw_rates r = o->rates;
    for (int64_t i = begin; i < end; i++) {
        const double g = gradient[i];
        m[i] += (1 - r.beta1) * (g - m[i]);
        v[i] = r.beta2 * v[i] + (1 - r.beta2) * (g * g);
        w[i] = w[i] * r.decay - r.step_size * (m[i] / (sqrt(v[i]) / r.sqrt_correction2 + r.eps));
    }
}
