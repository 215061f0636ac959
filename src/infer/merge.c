/* merge.c - adds an adapter to the weights of its base.
 *
 *     W' = W + s B A               with magnitudes m (DoRA): each row of that times m / its norm
 *
 * in fp32, rounded once when it is written. A few rows at a time are in memory, and A and B of one matrix. Tensors without an adapter are
 * copied; the vocabulary keeps all its rows, because the tokenizer is not consulted. The head and the embedding have no adapter
 * (model/adapter.h), so a tied model stays tied.
 */
#include "infer/open.h"
#include "chat/prompt.h"
#include "io/files.h"
#include "io/safetensors.h"
#include "model/adapter.h"
#include "model/base_mark.h"
#include "model/storage.h"
#include "model/weights.h"
#include "options/table.h"
#include "train/companions.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SCRATCH_BYTES = 64 << 20, READ_BYTES = 4 << 20 };

typedef struct merger {
    const pt_merge_options *o;
    model *m;
    safetensors *base, *adapter;
    pt_dtype type;
    char *scratch, *read;       /* SCRATCH_BYTES for writing, READ_BYTES for reading */
    int index;                  /* the matrix whose adapter is in memory; -1: none */
    float *a, *b[MODEL_MAX_PARTS], *magnitude;
    int written;                /* parameters */
} merger;

void pt_merge_defaults(pt_merge_options *o)
{
    if (o)
        options_reset(&merge_table, o);
}

/* ---- a matrix's adapter ---- */

static void forget(merger *x)
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
static int read_whole(merger *x, int block, param_role role, float **out, pt_error *e)
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

static int remember(merger *x, int index, pt_error *e)
{
    const param *p = &x->m->params[index];
    const int matrix = adapter_matrix(p->role);
    if (x->index == index)
        return 0;
    forget(x);
    int failed = read_whole(x, p->block, adapter_a(matrix), &x->a, e);
    for (int k = 0; k < p->parts && !failed; k++)
        if (adapter_at(x->m, p->block, matrix, k)->rank)
            failed = read_whole(x, p->block, adapter_b(matrix, k), &x->b[k], e);
    if (!failed && model_has_magnitudes(x->m))
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

/* w (cols) = row `row` of the module that is part k. */
static void add_row(const merger *x, const param *p, int k, int64_t row, int64_t magnitude_at, float *w)
{
    const int matrix = adapter_matrix(p->role);
    const adapter_module *of = adapter_at(x->m, p->block, matrix, k);
    const float *a = x->a + adapter_column(x->m, p->block, matrix, k) * p->cols, *b = x->b[k] + row * of->rank;
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

static int check_finite(const merger *x, const param *p, int64_t row0, int64_t n, const float *values, pt_error *e)
{
    const float bf16_most = 3.3961775e38f, most = x->type == PT_BF16 ? bf16_most : FLT_MAX; /* larger ones round to infinity */
    for (int64_t i = 0; i < n * p->cols; i++)
        if (!(fabsf(values[i]) <= most))
            return pt_fail(e, PT_FAILED, "%s: with this adapter, row %lld of %s is not finite: a value of the adapter is too large, or "
                                         "broken",
                           x->o->adapter, (long long)(row0 + i / p->cols), p->part[0].name);
    return 0;
}

static int get_rows(void *arg, int index, int64_t row0, int64_t n, float *out, pt_error *e)
{
    merger *x = arg;
    const param *p = &x->m->params[index];
    int failed = weights_read(x->m, x->base, index, row0, n, out, x->read, READ_BYTES, e);
    if (failed || p->kind->use != USE_MATRIX)
        return failed;
    failed = remember(x, index, e);
    int64_t magnitude_at = 0;
    for (int k = 0; k < p->parts && !failed; k++) {
        const param_part *part = &p->part[k];
        const bool adapted = adapter_at(x->m, p->block, adapter_matrix(p->role), k)->rank;
        for (int64_t row = 0; row < n && adapted; row++)
            if (row0 + row >= part->row0 && row0 + row < part->row0 + part->rows)
                add_row(x, p, k, row0 + row - part->row0, magnitude_at, out + row * p->cols);
        magnitude_at += adapted ? part->rows : 0;
    }
    if (!failed)
        failed = check_finite(x, p, row0, n, out, e);
    if (x->o->progress)
        x->o->progress(x->o->arg, "merging", (uint64_t)index, (uint64_t)x->m->params_n);
    return failed;
}

static int type_of(void *arg, int index)
{
    const merger *x = arg;
    return param_is_adapter(&x->m->params[index]) ? -1 : (int)x->type;
}

/* ---- the folder ---- */

static void tell_ends(const merger *x)
{
    char sentence[700];
    snprintf(sentence, sizeof sentence,
             "%.400s: replies end with a token that the base does not name as an end: \"eos_token_id\" of the merged "
             "generation_config.json has it, so that other programs stop there, too", x->o->adapter);
    if (x->o->notice)
        x->o->notice(x->o->arg, sentence);
}

/* The ends that the adapter was trained with: those that its folder names, and its template's. A tokenizer that cannot be read has none. */
static int add_ends(const merger *x, companions *c, const char *template, pt_error *e)
{
    const int64_t usual = x->m->config.eos;
    tokenizer *t = NULL;
    bool by_folder, by_template = false;
    int failed = companions_add_ends_of(c, x->o->adapter, usual, &by_folder, e);
    if (!failed && template && !tokenizer_open(x->o->model, &t, NULL)) {
        const int64_t end = chat_turn_end_of(x->o->model, template, t, time(NULL));
        if (end >= 0 && end < x->m->config.vocab)
            failed = companions_add_end(c, end, usual, &by_template, e);
        tokenizer_close(t);
    }
    if (by_folder || by_template)
        tell_ends(x);
    return failed;
}

static int write_folder(merger *x, const char *folder, pt_error *e)
{
    companions c;
    safetensors_writer *w = NULL;
    const weights_layout layout = {.naming = weights_naming_of(x->m, x->base), .source = x->m->config.multimodal ? x->base : NULL};
    char path[FILE_PATH_BYTES];
    int failed = companions_read(&c, x->o->model, e);
    const char *template = chat_template_file(NULL, x->o->adapter, path);
    if (!failed && template)
        failed = companions_take_template(&c, template, e);
    if (!failed)
        failed = add_ends(x, &c, template, e);
    if (!failed)
        failed = companions_write(&c, folder, x->type, x->m->config.model_type, e);
    if (!failed)
        failed = safetensors_writer_open(folder, "model", SAFETENSORS_SHARD_DEFAULT, &w, e);
    if (!failed)
        failed = weights_export_some(x->m, w, type_of, layout, get_rows, x, x->scratch, SCRATCH_BYTES, e);
    safetensors_writer_close(w);
    companions_free(&c);
    return failed;
}

static void tell_few_bits(const merger *x)
{
    char sentence[700];
    const param_storage s = base_mark_storage(x->o->adapter);
    if (s == STORAGE_PLAIN || !x->o->notice)
        return;
    snprintf(sentence, sizeof sentence,
             "%.400s: this adapter was trained on a base in %s; it is merged, as usual, into the weights that `model` stores, so that "
             "results differ a little from those of eval and generate with `adapter`",
             x->o->adapter, storage_format_of(s)->name);
    x->o->notice(x->o->arg, sentence);
}

static int merge(merger *x, pt_error *e)
{
    static const pt_dtype types[] = {PT_F32, PT_F32, PT_BF16, PT_F16};
    dir_stage stage;
    pt_dtype stored;
    int failed = infer_open_adapted(x->o->model, x->o->adapter, x->o->notice, x->o->arg, &x->m, &x->adapter, e);
    if (!failed)
        failed = weights_check_adapter(x->m, x->adapter, e);
    if (!failed)
        failed = safetensors_open(x->o->model, &x->base, e);
    if (!failed)
        failed = weights_check(x->m, x->base, &stored, e);
    if (!failed && x->m->config.multimodal)
        failed = weights_check_beside(x->m, x->base, e);
    if (failed)
        return failed;
    tell_few_bits(x);
    weights_notice_unused(x->m, x->base, x->o->notice, x->o->arg);
    x->type = x->o->save_type == PT_SAVE_AS_STORED ? stored : types[x->o->save_type];
    x->scratch = malloc(SCRATCH_BYTES);
    x->read = malloc(READ_BYTES);
    if (!x->scratch || !x->read)
        return pt_fail(e, PT_FAILED, "out of memory for merging");
    failed = dir_stage_begin(&stage, x->o->out, e);
    if (failed)
        return failed;
    failed = write_folder(x, stage.path, e);
    if (failed) {
        dir_stage_abort(&stage);
        return failed;
    }
    if (x->o->progress)
        x->o->progress(x->o->arg, "merging", (uint64_t)x->m->params_n, (uint64_t)x->m->params_n);
    return dir_stage_commit(&stage, e);
}

int pt_merge(const pt_merge_options *o, pt_error *e)
{
    merger x = {.o = o, .index = -1};
    if (!o)
        return pt_fail_null(e, "pt_merge", "the options");
    if (!o->model || !o->model[0])
        return pt_fail(e, PT_USAGE, "no model: `model` names a Hugging Face folder with weights");
    if (!o->adapter || !o->adapter[0])
        return pt_fail(e, PT_USAGE, "no adapter: `adapter` DIR names a folder with " ADAPTER_CONFIG);
    if (!o->out || !o->out[0])
        return pt_fail(e, PT_USAGE, "no output folder: give `out`");
    int failed = options_check_values(&merge_table, o, e);
    if (!failed && path_exists(o->out))
        failed = pt_fail(e, PT_FAILED, "%.400s already exists: give a new `out`", o->out);
    if (!failed)
        failed = merge(&x, e);
    forget(&x);
    free(x.scratch);
    free(x.read);
    safetensors_close(x.base);
    safetensors_close(x.adapter);
    model_close(x.m);
    return failed;
}
