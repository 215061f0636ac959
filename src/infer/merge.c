/* merge.c - writes a folder of a model with adapters merged into its weights, each rounded once (merged.h). Tensors without an adapter
 * are copied; the vocabulary keeps all its rows, because the tokenizer is not consulted. */
#include "infer/merged.h"
#include "infer/open.h"
#include "base/path_share.h"
#include "chat/prompt.h"
#include "data/labels.h"
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

enum { SCRATCH_BYTES = 64 << 20 };

typedef struct merger {
    const pt_merge_options *o;
    int n;
    char **folder;              /* of each adapter */
    model **m;                  /* with each adapter */
    safetensors *base, **adapter;
    merged_adapter *of;
    pt_dtype type;
    char *scratch;              /* SCRATCH_BYTES */
    merged rows;
} merger;

static int get_rows(void *arg, int index, int64_t row0, int64_t n, float *out, pt_error *e)
{
    merger *x = arg;
    const int failed = merged_rows(&x->rows, index, row0, n, out, e);
    if (x->o->progress)
        x->o->progress(x->o->arg, "merging", (uint64_t)index, (uint64_t)x->m[0]->params_n);
    return failed;
}

static int type_of(void *arg, int index)
{
    const merger *x = arg;
    return param_is_adapter(&x->m[0]->params[index]) ? -1 : (int)x->type;
}

/* ---- the folder ---- */

static void tell_ends(const merger *x, const char *adapter)
{
    char sentence[700];
    snprintf(sentence, sizeof sentence,
             "%.400s: replies end with a token that the base does not name as an end: \"eos_token_id\" of the merged "
             "generation_config.json has it, so that other programs stop there, too", adapter);
    if (x->o->notice)
        x->o->notice(x->o->arg, sentence);
}

/* The ends that an adapter was trained with: those that its folder names, and the template's. A tokenizer that cannot be read has none. */
static int add_ends(const merger *x, companions *companions, const char *adapter, const char *template, pt_error *e)
{
    const int64_t usual = x->m[0]->config.eos;
    tokenizer *tok = NULL;
    bool by_folder, by_template = false;
    int failed = companions_add_ends_of(companions, adapter, usual, &by_folder, e);
    if (!failed && template && !tokenizer_open_beside(x->o->model, adapter, &tok, NULL)) {
        const int64_t end = chat_turn_end_of(x->o->model, template, tok, time(NULL));
        if (end >= 0 && end < x->m[0]->config.vocab)
            failed = companions_add_end(companions, end, usual, &by_template, e);
        tokenizer_close(tok);
    }
    if (by_folder || by_template)
        tell_ends(x, adapter);
    return failed;
}

static int add_all_ends(const merger *x, companions *companions, const char *template, pt_error *e)
{
    int failed = 0;
    for (int i = 0; i < x->n && !failed; i++)
        failed = add_ends(x, companions, x->folder[i], i ? NULL : template, e);
    return failed;
}

/* Of a head that scores: its labels, and what does not count behind a text. */
static int take_labels(const merger *x, companions *companions, pt_error *e)
{
    label_names labels = {0};
    tokenizer *tok;
    int64_t padding;
    if (!x->m[0]->config.labels)
        return 0;
    int failed = labels_read(&labels, x->folder[0], LABELS_FILE, e);
    if (!failed && labels.n && labels.n != x->m[0]->config.labels)
        failed = pt_fail(e, PT_FAILED, "%.400s/" LABELS_FILE " names %lld labels, and the head has %lld: the files do not belong together",
                         x->folder[0], (long long)labels.n, (long long)x->m[0]->config.labels);
    if (!failed)
        failed = tokenizer_open_beside(x->o->model, x->folder[0], &tok, e);
    if (!failed) {
        failed = tokenizer_padding(tok, x->o->model, &padding, e);
        if (!failed)
            companions_take_labels(companions, x->m[0], (const char *const *)labels.name, padding);
        tokenizer_close(tok);
    }
    labels_free(&labels);
    return failed;
}

static int write_folder(merger *x, const char *folder, pt_error *e)
{
    companions companions;
    safetensors_writer *writer = NULL;
    const weights_layout layout = {.naming = weights_naming_of(x->m[0], x->base), .source = x->m[0]->config.multimodal ? x->base : NULL};
    char path[FILE_PATH_BYTES];
    const char *template = NULL;
    int failed = companions_read(&companions, x->o->model, x->m[0], e);
    if (!failed)
        failed = companions_take_tokenizer_of(&companions, x->folder[0], e);
    if (!failed)
        failed = take_labels(x, &companions, e);
    for (int i = 0; i < x->n && !template; i++)
        template = chat_template_file(NULL, x->folder[i], path);
    if (!failed && template)
        failed = companions_take_template(&companions, template, e);
    if (!failed)
        failed = add_all_ends(x, &companions, template, e);
    if (!failed)
        failed = companions_write(&companions, folder, x->type, x->m[0]->config.model_type, e);
    if (!failed)
        failed = safetensors_writer_open(folder, "model", SAFETENSORS_SHARD_DEFAULT, &writer, e);
    if (!failed)
        failed = weights_export_some(x->m[0], writer, type_of, layout, get_rows, x, x->scratch, SCRATCH_BYTES, e);
    safetensors_writer_close(writer);
    companions_free(&companions);
    return failed;
}

static void tell_few_bits(const merger *x, const char *adapter)
{
    char sentence[700];
    const param_storage s = base_mark_storage(adapter);
    if (s == STORAGE_PLAIN || !x->o->notice)
        return;
    snprintf(sentence, sizeof sentence,
             "%.400s: this adapter was trained on a base in %s; it is merged, as usual, into the weights that `model` stores, so that "
             "results differ a little from those of eval and generate with `adapter`",
             adapter, storage_format_of(s)->name);
    x->o->notice(x->o->arg, sentence);
}

/* The weight of adapter i, whose folder is found. */
static int take_adapter(merger *x, int i, double *weight, pt_error *e)
{
    const char *text = x->o->adapter[i];
    const size_t n = path_weight(text, weight);
    x->folder[i] = strndup(text, n);
    if (!x->folder[i])
        return pt_fail(e, PT_FAILED, "out of memory for merging");
    return fabs(*weight) <= FLT_MAX ? 0 : pt_fail(e, PT_USAGE, "`adapter` %.400s: the weight is too large", text);
}

static bool same_rope(const char *a, const char *b)
{
    char first[ROPE_MARK], second[ROPE_MARK];
    const char *of_a = base_mark_rope(a, first), *of_b = base_mark_rope(b, second);
    return !of_a || !of_b ? !of_a && !of_b : !strcmp(of_a, of_b);
}

static int open_adapter(merger *x, int i, pt_error *e)
{
    double weight;
    int failed = take_adapter(x, i, &weight, e);
    if (!failed)
        failed = infer_open_adapted(x->o->model, x->folder[i], x->o->notice, x->o->arg, &x->m[i], &x->adapter[i], e);
    if (!failed)
        failed = weights_check_adapter(x->m[i], x->adapter[i], e);
    if (failed)
        return failed;
    if (!same_rope(x->folder[0], x->folder[i]))
        return pt_fail(e, PT_FAILED, "%.400s was trained with other `rope_scaling` than %.400s: adapters with different positions have no "
                                     "sum", x->folder[i], x->folder[0]);
    if (model_has_whole(x->m[i]) && (x->n > 1 || weight != 1))
        return pt_fail(e, PT_FAILED, "%.400s has modules that were trained in full (\"modules_to_save\"), which have no sum with other "
                                     "adapters and no weight: merge it alone, without a weight", x->folder[i]);
    if (model_has_magnitudes(x->m[i]) && (x->n > 1 || weight != 1))
        return pt_fail(e, PT_FAILED, "%.400s is an adapter of DoRA, whose magnitudes have no sum with other adapters and no weight: merge "
                                     "it alone, without a weight", x->folder[i]);
    tell_few_bits(x, x->folder[i]);
    x->of[i] = (merged_adapter){.m = x->m[i], .weights = x->adapter[i], .folder = x->folder[i], .weight = (float)weight};
    return 0;
}

static int open_adapters(merger *x, pt_error *e)
{
    const size_t n = (size_t)x->o->adapter_n;
    x->folder = calloc(n, sizeof *x->folder);
    x->m = calloc(n, sizeof *x->m);
    x->adapter = calloc(n, sizeof *x->adapter);
    x->of = calloc(n, sizeof *x->of);
    x->scratch = malloc(SCRATCH_BYTES);
    if (!x->folder || !x->m || !x->adapter || !x->of || !x->scratch)
        return pt_fail(e, PT_FAILED, "out of memory for merging");
    int failed = 0;
    for (x->n = x->o->adapter_n; x->rows.n < x->n && !failed; x->rows.n += !failed)
        failed = open_adapter(x, x->rows.n, e);
    return failed;
}

static void close_all(merger *x)
{
    merged_close(&x->rows);
    for (int i = 0; i < x->n; i++) {
        safetensors_close(x->adapter[i]);
        model_close(x->m[i]);
        free(x->folder[i]);
    }
    free(x->folder);
    free(x->m);
    free(x->adapter);
    free(x->of);
    free(x->scratch);
    safetensors_close(x->base);
}

static int merge(merger *x, pt_error *e)
{
    static const pt_dtype types[] = {PT_F32, PT_F32, PT_BF16, PT_F16};
    dir_stage stage;
    pt_dtype stored;
    int failed = open_adapters(x, e);
    if (!failed)
        failed = safetensors_open(x->o->model, &x->base, e);
    if (!failed)
        failed = weights_check(x->m[0], x->base, &stored, e);
    if (!failed && x->m[0]->config.multimodal)
        failed = weights_check_beside(x->m[0], x->base, e);
    if (failed)
        return failed;
    weights_notice_unused(x->m[0], x->base, x->o->notice, x->o->arg);
    x->type = x->o->save_type == PT_SAVE_AS_STORED ? stored : types[x->o->save_type];
    x->rows = (merged){.m = x->m[0], .base = x->base, .of = x->of, .n = x->n, .type = x->type};
    failed = merged_open(&x->rows, e);
    if (!failed)
        failed = dir_stage_begin(&stage, x->o->out, e);
    if (failed)
        return failed;
    failed = write_folder(x, stage.path, e);
    if (failed) {
        dir_stage_abort(&stage);
        return failed;
    }
    if (x->o->progress)
        x->o->progress(x->o->arg, "merging", (uint64_t)x->m[0]->params_n, (uint64_t)x->m[0]->params_n);
    return dir_stage_commit(&stage, e);
}

int pt_merge(const pt_merge_options *o, pt_error *e)
{
    merger x = {.o = o};
    if (!o)
        return pt_fail_null(e, "pt_merge", "the options");
    int failed = options_check_size(&merge_table, o, e);
    if (failed)
        return failed;
    if (!o->model || !o->model[0])
        return pt_fail(e, PT_USAGE, "no model: `model` names a Hugging Face folder with weights");
    if (!o->adapter || o->adapter_n < 1 || !o->adapter[0] || !o->adapter[0][0])
        return pt_fail(e, PT_USAGE, "no adapter: `adapter` DIR names a folder with " ADAPTER_CONFIG);
    if (!o->out || !o->out[0])
        return pt_fail(e, PT_USAGE, "no output folder: give `out`");
    failed = options_check_values(&merge_table, o, e);
    if (!failed && path_exists(o->out))
        failed = pt_fail(e, PT_FAILED, "%.400s already exists: give a new `out`", o->out);
    if (!failed)
        failed = merge(&x, e);
    close_all(&x);
    return failed;
}
