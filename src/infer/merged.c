#include "infer/merged.h"

#include "model/adapter.h"
#include "model/weights.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

enum { READ_BYTES = 4 << 20 };

int merged_open(merged *x, pt_error *e)
{
    for (int i = 0; i < x->n; i++)
        x->of[i].index = -1;
    x->read = malloc(READ_BYTES);
    return x->read ? 0 : pt_fail(e, PT_FAILED, "out of memory for reading weights");
}

/* ---- a matrix's adapter ---- */

static void forget(merged_adapter *y)
{
    free(y->a);
    free(y->magnitude);
    for (int k = 0; k < MODEL_MAX_PARTS; k++) {
        free(y->b[k]);
        y->b[k] = NULL;
    }
    y->a = y->magnitude = NULL;
    y->index = -1;
}

/* All of a parameter, if the block has it. */
static int read_whole(const merged *x, const merged_adapter *y, int block, param_role role, float **out, pt_error *e)
{
    const int index = y->m->blocks[block].param_of_role[role];
    if (index < 0)
        return 0;
    const param *p = &y->m->params[index];
    *out = malloc((size_t)(p->rows * p->cols) * sizeof **out);
    if (!*out)
        return pt_fail(e, PT_FAILED, "out of memory for an adapter of %lld values", (long long)(p->rows * p->cols));
    return weights_read(y->m, y->weights, index, 0, p->rows, *out, x->read, READ_BYTES, e);
}

static int remember(const merged *x, merged_adapter *y, int index, pt_error *e)
{
    const param *p = &y->m->params[index];
    const int matrix = adapter_matrix(p->role);
    if (y->index == index)
        return 0;
    forget(y);
    int failed = read_whole(x, y, p->block, adapter_a(matrix), &y->a, e);
    for (int k = 0; k < adapter_parts(y->m, p->block, matrix) && !failed; k++)
        if (adapter_at(y->m, p->block, matrix, k)->rank)
            failed = read_whole(x, y, p->block, adapter_b(matrix, k), &y->b[k], e);
    if (!failed && model_has_magnitudes(y->m) && matrix < MODEL_LINEAR_MATRICES)
        failed = read_whole(x, y, p->block, adapter_magnitude(matrix), &y->magnitude, e);
    y->index = failed ? -1 : index;
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
static void add_row(const merged_adapter *x, const param *p, int k, int64_t row, int64_t magnitude_at, float *w)
{
    const int matrix = adapter_matrix(p->role);
    const adapter_module *of = adapter_at(x->m, p->block, matrix, k);
    const int64_t first = adapter_is_of_experts(matrix) ? row / adapter_outputs(x->m, p, k) * of->rank
                                                       : adapter_column(x->m, p->block, matrix, k);
    const float *a = x->a + first * p->cols, *b = x->b[k] + row * of->rank;
    for (int j = 0; j < of->rank; j++, a += p->cols) {
        const float factor = x->weight * of->scale * b[j];
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
            return pt_fail(e, PT_FAILED, "%s: with %s, row %lld of %s is not finite: a value of the adapter is too large, or "
                                         "broken",
                           x->of[0].folder, x->n > 1 ? "this adapter and the others" : "this adapter", (long long)(row0 + i / p->cols),
                           p->part[0].name);
    return 0;
}

/* of_base: the matrix, of x->m. */
static int add_adapter(const merged *x, merged_adapter *y, const param *of_base, int64_t row0, int64_t n, float *out, pt_error *e)
{
    const int index = y->m->blocks[of_base->block].param_of_role[of_base->role], matrix = adapter_matrix(of_base->role);
    const param *p = &y->m->params[index];
    int failed = remember(x, y, index, e);
    int64_t magnitude_at = 0;
    for (int k = 0; k < adapter_parts(y->m, p->block, matrix) && !failed; k++) {
        const int64_t first = adapter_first_output(p, k), end = adapter_is_of_experts(matrix) ? p->rows : first + p->part[k].rows;
        const bool adapted = adapter_at(y->m, p->block, matrix, k)->rank;
        for (int64_t row = 0; row < n && adapted; row++)
            if (row0 + row >= first && row0 + row < end)
                add_row(y, p, k, row0 + row - first, magnitude_at, out + row * p->cols);
        magnitude_at += adapted ? end - first : 0;
    }
    return failed;
}

int merged_rows(void *arg, int index, int64_t row0, int64_t n, float *out, pt_error *e)
{
    merged *x = arg;
    const param *p = &x->m->params[index];
    const struct safetensors *from = p->whole ? x->of[0].weights : x->base;
    int failed = weights_read(x->m, from, index, row0, n, out, x->read, READ_BYTES, e);
    if (failed || p->whole || (p->kind->use != USE_MATRIX && p->kind->use != USE_EXPERTS) || !x->n)
        return failed;
    for (int i = 0; i < x->n && !failed; i++)
        failed = add_adapter(x, &x->of[i], p, row0, n, out, e);
    return failed ? failed : check_finite(x, p, row0, n, out, e);
}

void merged_close(merged *x)
{
    for (int i = 0; i < x->n; i++)
        forget(&x->of[i]);
    free(x->read);
    x->read = NULL;
}
