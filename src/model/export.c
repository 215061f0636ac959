/* export.c - writes parameters as Hugging Face tensors, in a stream.
 *
 * Tensors are written in the order of the model, each from start to end. Rows of a plain part are consecutive rows of the parameter. A
 * transposed part has the parameter's columns as its rows; the scratch is then divided between rows read and rows written:
 *
 *   scratch  [ some rows of the parameter (j, cols) | some rows of the stored tensor (n, part rows) ]
 *
 * and the whole parameter passes through the first area for each filling of the second.
 */
#include "io/safetensors.h"
#include "model/adapter.h"
#include "model/architectures.h"
#include "model/names.h"
#include "model/rows.h"
#include "model/transpose.h"
#include "model/weights.h"

#include <math.h>
#include <string.h>

#define F16_MAX_ROUNDED 65520.0f /* from here on F16 rounds to infinity */

typedef struct exporter {
    const model *m;
    safetensors_writer *w;
    weights_type type_of;
    weights_layout layout;
    weights_getter get;
    void *arg;
    float *scratch;
    int64_t room; /* floats */
    pt_error *e;
} exporter;

static int declare_part(const exporter *x, const param *p, int k, pt_dtype dtype)
{
    const param_part *part = &p->part[k];
    int64_t shape[3];
    const int rank = part_stored_shape(p, k, shape);
    char name[SPELLED_NAME + sizeof ADAPTER_PREFIX] = "";
    if (param_is_adapter(p) || (p->whole && x->layout.adapter))
        strcpy(name, ADAPTER_PREFIX);
    names_spell(architecture_find(x->m->config.model_type), x->layout.naming, part->name, name + strlen(name));
    const int number = safetensors_declare(x->w, name, dtype, rank, shape, x->e);
    return number < 0 ? number : 0;
}

/* The table that an adapter's file also has under the head's name, as PEFT's; -1: none. */
static int twice(const exporter *x)
{
    const int tokens = x->m->blocks[0].param_of_role[PARAM_TOKENS];
    return x->layout.adapter && x->m->config.tied && x->m->params[tokens].whole ? tokens : -1;
}

static int declare_twice(const exporter *x, int index)
{
    int64_t shape[3];
    char name[SPELLED_NAME + sizeof ADAPTER_PREFIX] = ADAPTER_PREFIX;
    const architecture *arch = architecture_find(x->m->config.model_type);
    const int rank = part_stored_shape(&x->m->params[index], 0, shape), type = x->type_of(x->arg, index);
    names_spell(arch, x->layout.naming, arch->head ? arch->head : head_name, name + strlen(name));
    const int number = safetensors_declare(x->w, name, (pt_dtype)type, rank, shape, x->e);
    return number < 0 ? number : 0;
}

/* The next copied tensor of the source, from `i` on; SIZE_MAX: there is none. */
static size_t next_beside(const exporter *x, size_t i)
{
    const size_t n = x->layout.source ? safetensors_count(x->layout.source) : 0;
    while (i < n && !names_beside(x->layout.naming, safetensors_at(x->layout.source, i)->name))
        i++;
    return i < n ? i : SIZE_MAX;
}

static int declare(const exporter *x)
{
    int failed = 0;
    for (int i = 0; i < x->m->params_n; i++) {
        const int type = x->type_of(x->arg, i);
        for (int k = 0; type >= 0 && k < x->m->params[i].parts && !failed; k++)
            failed = declare_part(x, &x->m->params[i], k, (pt_dtype)type);
    }
    if (!failed && twice(x) >= 0)
        failed = declare_twice(x, twice(x));
    for (size_t i = next_beside(x, 0); i != SIZE_MAX && !failed; i = next_beside(x, i + 1)) {
        const int number = safetensors_declare_as(x->w, safetensors_at(x->layout.source, i), x->e);
        failed = number < 0 ? number : 0;
    }
    return failed;
}

static int append_values(exporter *x, int number, pt_dtype dtype, const param_part *part, const float *values, int64_t n)
{
    for (int64_t i = 0; dtype == PT_F16 && i < n && safetensors_has_turn(x->w); i++)
        if (fabsf(values[i]) >= F16_MAX_ROUNDED && isfinite(values[i]))
            return pt_fail(x->e, PT_FAILED,
                           "tensor \"%s\": %g is beyond what F16 can hold; save as bf16 or fp32", part->name,
                           (double)values[i]);
    return safetensors_append_f32(x->w, number, values, (uint64_t)n, x->e);
}

static int append_vector(exporter *x, int index, int k, int number, pt_dtype dtype)
{
    const param_part *part = &x->m->params[index].part[k];
    float *whole = x->scratch, *stored = x->scratch + x->m->params[index].cols;
    int status = x->get(x->arg, index, 0, 1, whole, x->e);
    for (int64_t at = 0, run, row; at < part->rows; at += run) {
        run = part_stored_run(part, at, part->rows - at, &row);
        memcpy(stored + at, whole + part->row0 + row, (size_t)run * sizeof *stored);
    }
    return status ? status : append_values(x, number, dtype, part, stored, part->rows);
}

static int append_rows(exporter *x, int index, int k, int number, pt_dtype dtype)
{
    const param *p = &x->m->params[index];
    const param_part *part = &p->part[k];
    int64_t step = x->room / p->cols;
    int status = 0;
    for (int64_t r = 0, n, row; r < part->rows && !status; r += n) {
        n = part_stored_run(part, r, part->rows - r < step ? part->rows - r : step, &row);
        status = x->get(x->arg, index, part->row0 + row, n, x->scratch, x->e);
        if (!status)
            status = append_values(x, number, dtype, part, x->scratch, n * p->cols);
    }
    return status;
}

/* Rows row0 .. row0 + whole of the parameter, as columns. */
static int append_matrix(exporter *x, int index, const param_part *part, int64_t row0, int64_t whole, int number, pt_dtype dtype)
{
    const param *p = &x->m->params[index];
    int64_t in = x->room / 4 > p->cols ? x->room / 4 / p->cols : 1;
    int64_t step = (x->room - in * p->cols) / whole;
    float *stored = x->scratch + in * p->cols;
    int status = 0;
    for (int64_t c = 0; c < p->cols && !status; c += step) {
        int64_t n = p->cols - c < step ? p->cols - c : step;
        for (int64_t r = 0; r < whole && !status; r += in) {
            int64_t rows = whole - r < in ? whole - r : in;
            status = x->get(x->arg, index, row0 + r, rows, x->scratch, x->e);
            if (!status && safetensors_has_turn(x->w))
                transpose(stored + r, whole, x->scratch + c, p->cols, rows, n);
        }
        if (!status)
            status = append_values(x, number, dtype, part, stored, n * whole);
    }
    return status;
}

static int append_transposed(exporter *x, int index, int k, int number, pt_dtype dtype)
{
    const param *p = &x->m->params[index];
    const int64_t whole = part_whole_rows(p, k);
    int status = 0;
    for (int64_t r = 0; r < p->part[k].rows && !status; r += whole)
        status = append_matrix(x, index, &p->part[k], p->part[k].row0 + r, whole, number, dtype);
    return status;
}

/* Experts side by side: as many of their rows as fit are collected, expert after expert. */
static int append_abreast(exporter *x, int index, int k, int number, pt_dtype dtype)
{
    const param *p = &x->m->params[index];
    const param_part *part = &p->part[k];
    const int64_t experts = part->abreast, outputs = part->rows / experts, width = p->cols * experts;
    const int64_t step = x->room / (width + p->cols);
    float *stored = x->scratch + step * p->cols;
    int status = 0;
    for (int64_t i = 0, n; i < outputs && !status; i += n) {
        n = outputs - i < step ? outputs - i : step;
        for (int64_t expert = 0; expert < experts && !status; expert++) {
            status = x->get(x->arg, index, part->row0 + expert * outputs + i, n, x->scratch, x->e);
            for (int64_t at = 0; at < n * p->cols; at++)
                stored[at / p->cols * width + at % p->cols * experts + expert] = x->scratch[at];
        }
        if (!status)
            status = append_values(x, number, dtype, part, stored, n * width);
    }
    return status;
}

/* A tensor of the source's other parts, byte for byte. */
static int append_copy(exporter *x, const safetensors_tensor *tensor, int number)
{
    const uint64_t room = (uint64_t)x->room * sizeof(float);
    int status = 0;
    for (uint64_t at = 0, n; at < tensor->bytes && !status; at += n) {
        n = tensor->bytes - at < room ? tensor->bytes - at : room;
        status = safetensors_read_stored(x->layout.source, tensor, at, n, x->scratch, x->e);
        if (!status)
            status = safetensors_append(x->w, number, x->scratch, n, x->e);
    }
    return status;
}

size_t weights_scratch_bytes(const model *m)
{
    int64_t most = 0;
    for (int i = 0; i < m->params_n; i++) {
        const param *p = &m->params[i];
        int64_t need = p->cols + (p->part[0].transposed ? part_whole_rows(p, 0) : p->cols * p->part[0].abreast);
        most = need > most ? need : most;
    }
    return (size_t)most * 2 * sizeof(float);
}

static int append(exporter *x)
{
    int number = 0, status = 0;
    for (int i = 0; i < x->m->params_n && !status; i++) {
        const int type = x->type_of(x->arg, i);
        for (int k = 0; type >= 0 && k < x->m->params[i].parts && !status; k++, number++) {
            const param_part *part = &x->m->params[i].part[k];
            status = part->vector       ? append_vector(x, i, k, number, (pt_dtype)type)
                     : part->abreast    ? append_abreast(x, i, k, number, (pt_dtype)type)
                     : part->transposed ? append_transposed(x, i, k, number, (pt_dtype)type)
                                        : append_rows(x, i, k, number, (pt_dtype)type);
        }
    }
    if (twice(x) >= 0 && !status)
        status = append_rows(x, twice(x), 0, number++, (pt_dtype)x->type_of(x->arg, twice(x)));
    for (size_t i = next_beside(x, 0); i != SIZE_MAX && !status; i = next_beside(x, i + 1), number++)
        status = append_copy(x, safetensors_at(x->layout.source, i), number);
    return status;
}

int weights_export_some(const model *m, safetensors_writer *writer, weights_type type_of, weights_layout layout, weights_getter get,
                        void *arg, void *scratch, size_t scratch_bytes, pt_error *e)
{
    exporter x = {m, writer, type_of, layout, get, arg, scratch, (int64_t)(scratch_bytes / sizeof(float)), e};
    if (scratch_bytes < weights_scratch_bytes(m))
        return pt_fail(e, PT_FAILED, "exporting needs a scratch of %zu bytes, but %zu were given",
                       weights_scratch_bytes(m), scratch_bytes);
    int status = declare(&x);
    if (!status)
        status = safetensors_begin(writer, e);
    if (!status)
        status = append(&x);
    return status ? status : safetensors_finish(writer, e);
}

typedef struct all { const model *m; pt_dtype dtype; weights_getter get; void *arg; } all;

static int type_of_all(void *arg, int index)
{
    const all *a = arg;
    return (int)(a->m->params[index].kind->use == USE_CORRECTION ? PT_F32 : a->dtype);
}

static int get_of_all(void *arg, int index, int64_t row0, int64_t n_rows, float *out, pt_error *e)
{
    const all *a = arg;
    return a->get(a->arg, index, row0, n_rows, out, e);
}

int weights_export(const model *m, safetensors_writer *writer, pt_dtype dtype, weights_layout layout, weights_getter get,
                   void *arg, void *scratch, size_t scratch_bytes, pt_error *e)
{
    all a = {m, dtype, get, arg};
    return weights_export_some(m, writer, type_of_all, layout, get_of_all, &a, scratch, scratch_bytes, e);
}
