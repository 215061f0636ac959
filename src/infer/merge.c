/* merge.c - writes a folder of a model with an adapter merged into its weights, each rounded once (merged.h). Tensors without an adapter
 * are copied; the vocabulary keeps all its rows, because the tokenizer is not consulted. */
#include "infer/merged.h"
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

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SCRATCH_BYTES = 64 << 20 };

typedef struct merger {
    const pt_merge_options *o;
    model *m;
    safetensors *base, *adapter;
    pt_dtype type;
    char *scratch;              /* SCRATCH_BYTES */
    merged rows;
} merger;

static int get_rows(void *arg, int index, int64_t row0, int64_t n, float *out, pt_error *e)
{
    merger *x = arg;
    const int failed = merged_rows(&x->rows, index, row0, n, out, e);
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
    int failed = companions_read(&c, x->o->model, x->m, e);
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
    if (!x->scratch)
        return pt_fail(e, PT_FAILED, "out of memory for merging");
    x->rows = (merged){.m = x->m, .base = x->base, .adapter = x->adapter, .folder = x->o->adapter, .type = x->type};
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
        x->o->progress(x->o->arg, "merging", (uint64_t)x->m->params_n, (uint64_t)x->m->params_n);
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
    if (!o->adapter || !o->adapter[0])
        return pt_fail(e, PT_USAGE, "no adapter: `adapter` DIR names a folder with " ADAPTER_CONFIG);
    if (!o->out || !o->out[0])
        return pt_fail(e, PT_USAGE, "no output folder: give `out`");
    failed = options_check_values(&merge_table, o, e);
    if (!failed && path_exists(o->out))
        failed = pt_fail(e, PT_FAILED, "%.400s already exists: give a new `out`", o->out);
    if (!failed)
        failed = merge(&x, e);
    merged_close(&x.rows);
    free(x.scratch);
    safetensors_close(x.base);
    safetensors_close(x.adapter);
    model_close(x.m);
    return failed;
}
