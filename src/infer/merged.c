#include "infer/merged.h"

#include "model/adapter.h"
#include "model/weights.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

enum { READ_BYTES = 4 << 20 };

int merged_open(merged *x, pt_error *e)
{
    x->index = -1;
    x->read = malloc(READ_BYTES);
    return x->read ? 0 : pt_fail(e, PT_FAILED, "out of memory for reading weights");
}

/* ---- a matrix's adapter ---- */

static void forget(merged *x)
{
    free(x->a);
    free(x->magnitude);
    for (int k = 0; k < MODEL_MAX_PARTS; k++) {
        free(x->b[k]);
        x->b[k] = NULL;
    }
    x->a = x->magnitude = NULL;
    x->index = -1;
}

/* All of a parameter, if the block has it. */
static int read_whole(merged *x, int block, param_role role, float **out, pt_error *e)
{
    const int index = x->m->blocks[block].param_of_role[role];
    if (index < 0)
        return 0;
    const param *p = &x->m->params[index];
    *out = malloc((size_t)(p->rows * p->cols) * sizeof **out);
    if (!*out)
        return pt_fail(e, PT_FAILED, "out of memory for an adapter of %lld values", (long long)(p->rows * p->cols));
    return weights_read(x->m, x->adapter, index, 0, p->rows, *out, x->read, READ_BYTES, e);
}

static int remember(merged *x, int index, pt_error *e)
{
    const param *p = &x->m->params[index];
    const int matrix = adapter_matrix(p->role);
    if (x->index == index)
        return 0;
    forget(x);
    int failed = read_whole(x, p->block, adapter_a(matrix), &x->a, e);
    for (int k = 0; k < adapter_parts(x->m, p->block, matrix) && !failed; k++)
        if (adapter_at(x->m, p->block, matrix, k)->rank)
            failed = read_whole(x, p->block, adapter_b(matrix, k), &x->b[k], e);
    if (!failed && model_has_magnitudes(x->m) && matrix < MODEL_LINEAR_MATRICES)
        failed = read_whole(x, p->block, adapter_magnitude(matrix), &x->magnitude, e);
    x->index = failed ? -1 : index;
    return failed;
}

/* ---- rows ---- */

static float norm_of(const float *row, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)row[i] * (double)row[i];
    return (float)sqrt(sum);
}

/* w (cols) = row `row` of the module that is part k; of experts, of all of them in order. */
static void add_row(const merged *x, const param *p, int k, int64_t row, int64_t magnitude_at, float *w)
{
    const int matrix = adapter_matrix(p->role);
    const adapter_module *of = adapter_at(x->m, p->block, matrix, k);
    const int64_t first = adapter_is_of_experts(matrix) ? row / adapter_outputs(x->m, p, k) * of->rank
                                                       : adapter_column(x->m, p->block, matrix, k);
    const float *a = x->a + first * p->cols, *b = x->b[k] + row * of->rank;
    for (int j = 0; j < of->rank; j++, a += p->cols) {
        const float factor = of->scale * b[j];
        for (int64_t i = 0; i < p->cols; i++)
            w[i] = fmaf(factor, a[i], w[i]);
    }
    if (!x->magnitude)
        return;
    const float norm = norm_of(w, p->cols), gain = norm > 0 ? x->magnitude[magnitude_at + row] / norm : 0;
    for (int64_t i = 0; i < p->cols; i++)
        w[i] *= gain;
}

static int check_finite(const merged *x, const param *p, int64_t row0, int64_t n, const float *values, pt_error *e)
{
    const float bf16_most = 3.3961775e38f, most = x->type == PT_BF16 ? bf16_most : FLT_MAX; /* larger ones round to infinity */
    for (int64_t i = 0; i < n * p->cols; i++)
        if (!(fabsf(values[i]) <= most))
            return pt_fail(e, PT_FAILED, "%s: with this adapter, row %lld of %s is not finite: a value of the adapter is too large, or "
                                         "broken",
                           x->folder, (long long)(row0 + i / p->cols), p->part[0].name);
    return 0;
}

int merged_rows(void *arg, int index, int64_t row0, int64_t n, float *out, pt_error *e)
{
    merged *x = arg;
    const param *p = &x->m->params[index];
    int failed = weights_read(x->m, x->base, index, row0, n, out, x->read, READ_BYTES, e);
    if (failed || (p->kind->use != USE_MATRIX && p->kind->use != USE_EXPERTS) || !x->adapter)
        return failed;
    const int matrix = adapter_matrix(p->role);
    failed = remember(x, index, e);
    int64_t magnitude_at = 0;
    for (int k = 0; k < adapter_parts(x->m, p->block, matrix) && !failed; k++) {
        const int64_t first = adapter_first_output(p, k), end = adapter_is_of_experts(matrix) ? p->rows : first + p->part[k].rows;
        const bool adapted = adapter_at(x->m, p->block, matrix, k)->rank;
        for (int64_t row = 0; row < n && adapted; row++)
            if (row0 + row >= first && row0 + row < end)
                add_row(x, p, k, row0 + row - first, magnitude_at, out + row * p->cols);
        magnitude_at += adapted ? end - first : 0;
    }
    return failed ? failed : check_finite(x, p, row0, n, out, e);
}

void merged_close(merged *x)
{
    forget(x);
    free(x->read);
    x->read = NULL;
}
