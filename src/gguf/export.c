/* export.c - pt_export: a Hugging Face folder to a GGUF file. */
#include "chat/prompt.h"
#include "gguf/adapter.h"
#include "gguf/mixture.h"
#include "gguf/modelfile.h"
#include "gguf/tensors.h"
#include "gguf/vocabulary.h"
#include "infer/merged.h"
#include "infer/open.h"
#include "infer/stops.h"
#include "io/files.h"
#include "io/safetensors.h"
#include "model/weights.h"
#include "options/table.h"

#include <ctype.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { QUANTIZATION_VERSION = 2 };

typedef struct export {
    const pt_export_options *o;
    char where[FILE_PATH_BYTES]; /* config.json */
    model *model;
    tokenizer *tokenizer;
    safetensors *st, *adapter; /* adapter NULL: none */
    merged_adapter merged;
    merged rows;
    gguf_adapter alone;    /* with `adapter_only` */
    char template_path[FILE_PATH_BYTES];
    const char *template;  /* the adapter's chat template; NULL: none */
    stop_ids stops;
    const gguf_family *family;
    gguf_tensors tensors;
    gguf_writer *w;
} export;

static int check_alone(const pt_export_options *o, pt_error *e)
{
    if (!o->adapter || !o->adapter[0])
        return pt_fail(e, PT_USAGE, "`adapter_only` needs an adapter: give `adapter` DIR");
    if (o->modelfile)
        return pt_fail(e, PT_USAGE, "`modelfile` is of a whole model: leave it or `adapter_only` out");
    if (o->type > PT_EXPORT_BF16)
        return pt_fail(e, PT_USAGE, "`adapter_only`: the matrices of an adapter are too narrow for blocks: give `type` f32, f16 or bf16");
    return 0;
}

static int check_options(const pt_export_options *o, pt_error *e)
{
    int failed = options_check_size(&export_table, o, e);
    if (failed)
        return failed;
    if (!o->model || !o->model[0])
        return pt_fail(e, PT_USAGE, "no model: `model` names a Hugging Face folder with config.json, weights and tokenizer.json");
    if (!o->out || !o->out[0])
        return pt_fail(e, PT_USAGE, "no file to write: give `out`");
    failed = options_check_values(&export_table, o, e);
    if (!failed && o->adapter_only)
        failed = check_alone(o, e);
    if (!failed)
        failed = file_may_replace(o->out, "out", "GGUF", "GGUF file", e);
    return failed || !o->modelfile ? failed : modelfile_check(o->modelfile, e);
}

/* The model's tensors are replaced by the adapter's. */
static int list_adapter(export *x, pt_error *e)
{
    gguf_tensors of_model = x->tensors;
    const gguf_type type = gguf_base_type(x->o->type);
    x->alone = (gguf_adapter){.m = x->model, .weights = x->adapter};
    int failed = gguf_adapter_open(&x->alone, x->o->adapter, e);
    x->tensors = (gguf_tensors){0};
    if (!failed)
        failed = gguf_adapter_list(&x->alone, &of_model, type, &x->tensors, e);
    gguf_tensors_free(&of_model);
    return failed;
}

static int open_all(export *x, pt_error *e)
{
    const pt_export_options *o = x->o;
    int failed = infer_open_adapted(o->model, o->adapter, o->notice, o->arg, &x->model, &x->adapter, e);
    if (!failed && x->model->config.labels)
        failed = pt_fail(e, PT_FAILED, "%.400s scores texts, and GGUF files are of models that predict tokens", o->model);
    if (!failed)
        failed = path_join(x->where, o->model, "config.json", e);
    if (!failed)
        failed = gguf_family_of(x->model, x->where, o->notice, o->arg, &x->family, e);
    if (!failed)
        failed = safetensors_open(o->model, &x->st, e);
    if (!failed)
        failed = weights_check(x->model, x->st, NULL, e);
    if (!failed && x->adapter)
        failed = weights_check_adapter(x->model, x->adapter, e);
    if (failed)
        return failed;
    weights_notice_unused(x->model, x->st, o->notice, o->arg);
    x->template = chat_template_file(NULL, o->adapter, x->template_path);
    x->merged = (merged_adapter){.m = x->model, .weights = x->adapter, .folder = o->adapter, .weight = 1};
    x->rows = (merged){.m = x->model, .base = x->st, .of = &x->merged, .n = x->adapter ? 1 : 0, .type = PT_F32};
    failed = merged_open(&x->rows, e);
    if (!failed)
        failed = tokenizer_open_beside(o->model, o->adapter, &x->tokenizer, e);
    if (!failed)
        failed = gguf_tensors_list(&x->tensors, x->model, x->family, e);
    if (!failed && o->adapter_only)
        return list_adapter(x, e);
    if (!failed)
        gguf_mix_types(&x->tensors, &x->model->config, x->family, o->type);
    return failed;
}

/* ---- its name ---- */

static bool mentions_phi3(const char *name)
{
    char lower[256];
    size_t n = 0;
    for (; name[n] && n < sizeof lower - 1; n++)
        lower[n] = (char)tolower((unsigned char)name[n]);
    lower[n] = 0;
    return strstr(lower, "phi-3") || strstr(lower, "phi3");
}

/* The folder's name, or none if it contains "phi-3": llama.cpp derives from such a name how spaces after special tokens are treated, and
 * which tokens exist. */
static void put_name(const export *x)
{
    char path[FILE_PATH_BYTES], name[FILE_PATH_BYTES];
    char *real = realpath(x->o->model, NULL);
    snprintf(path, sizeof path, "%s", real ? real : x->o->model);
    free(real);
    snprintf(name, sizeof name, "%s", basename(path));
    bool needed = !strcmp(x->family->name, "phi3");
    static const char *const tokens[] = {"</s>", "<unk>", "<s>", "<|endoftext|>"};
    for (int i = 0; i < 4; i++)
        needed = needed && tokenizer_find(x->tokenizer, tokens[i]) >= 0;
    if (needed && !mentions_phi3(name))
        snprintf(name, sizeof name, "Phi-3 %.200s", basename(path));
    if (needed || !mentions_phi3(name))
        gguf_put_string(x->w, "general.name", name);
}

/* ---- writing ---- */

/* The template's end of a reply, if no file names it. */
static void add_turn_end(const export *x, stop_ids *stops)
{
    char sentence[200];
    const int known = stops->n;
    const int64_t end = chat_turn_end_of(x->o->model, x->template, x->tokenizer, time(NULL));
    stops_add(stops, x->model, end);
    snprintf(sentence, sizeof sentence,
             "the chat template ends replies with token %lld, which no \"eos_token_id\" names: the file has it as an end of text",
             (long long)end);
    if (stops->n > known && x->o->notice)
        x->o->notice(x->o->arg, sentence);
}

static int find_stops(export *x, pt_error *e)
{
    const pt_export_options *o = x->o;
    int failed = stops_find(&x->stops, o->model, x->model, x->tokenizer, e);
    if (!failed && o->adapter)
        failed = stops_add_named(&x->stops, o->adapter, "generation_config.json", x->model, e);
    if (!failed)
        add_turn_end(x, &x->stops);
    return failed;
}

static int put_adapter_pairs(const export *x)
{
    gguf_put_string(x->w, "general.architecture", x->family->name);
    gguf_put_string(x->w, "general.type", "adapter");
    gguf_put_string(x->w, "adapter.type", "lora");
    gguf_put_f32(x->w, "adapter.lora.alpha", x->alone.alpha);
    gguf_put_u32(x->w, "general.file_type", gguf_file_type(x->o->type));
    gguf_put_u32(x->w, "general.quantization_version", QUANTIZATION_VERSION);
    return 0;
}

static int put_pairs(const export *x, pt_error *e)
{
    const pt_export_options *o = x->o;
    if (o->adapter_only)
        return put_adapter_pairs(x);
    gguf_put_string(x->w, "general.architecture", x->family->name);
    gguf_put_string(x->w, "general.type", "model");
    put_name(x);
    gguf_put_u32(x->w, "general.file_type", gguf_file_type(o->type));
    gguf_put_u32(x->w, "general.quantization_version", QUANTIZATION_VERSION);
    gguf_put_config(x->w, x->family, &x->model->config);
    const model_config *config = &x->model->config;
    const vocabulary v = {o->model, x->tokenizer, config->vocab, config->bos, x->stops.ids, x->stops.n,
                          !strcmp(x->family->name, "gemma4"), x->template, o->notice, o->arg};
    return gguf_put_vocabulary(x->w, &v, e);
}

static int declare(const export *x, pt_error *e)
{
    int failed = 0;
    for (int i = 0; i < x->tensors.n && !failed; i++) {
        const gguf_tensor *t = &x->tensors.list[i];
        const int64_t shape[3] = {t->experts, t->experts ? t->rows / t->experts : t->rows, t->cols};
        const int64_t parts[3] = {0, t->split ? t->cols / t->split : 0, t->split};
        const int rank = t->vector && !t->split ? 1 : t->experts ? 3 : 2;
        failed = gguf_declare(x->w, t->name, t->type, rank, (t->split ? parts : shape) + 3 - rank, e);
    }
    return failed;
}

static void pass_progress(void *arg, uint64_t bytes)
{
    const export *x = arg;
    const uint64_t all = gguf_bytes(x->w);
    if (x->o->progress)
        x->o->progress(x->o->arg, "exporting", bytes < all ? bytes : all, all);
}

/* The first matrix whose rows are not whole blocks of what is asked for. */
static const gguf_tensor *first_unblocked(const export *x)
{
    for (int i = 0; i < x->tensors.n; i++)
        if (!x->tensors.list[i].whole && x->tensors.list[i].cols % gguf_block_values(gguf_base_type(x->o->type)))
            return &x->tensors.list[i];
    return NULL;
}

static void tell_unblocked(const export *x)
{
    char sentence[300];
    const gguf_type base = gguf_base_type(x->o->type);
    const gguf_tensor *t = first_unblocked(x);
    if (!x->tensors.unblocked || !t || !x->o->notice)
        return;
    snprintf(sentence, sizeof sentence,
             "%d matri%s rows that are not a multiple of %lld values, what a block of %s has: %s is %s instead, as llama.cpp has it",
             x->tensors.unblocked, x->tensors.unblocked == 1 ? "x has" : "ces have", (long long)gguf_block_values(base),
             gguf_type_name(base), t->name, gguf_type_name(t->type));
    x->o->notice(x->o->arg, sentence);
}

static int write_all(export *x, pt_error *e)
{
    int failed = x->o->adapter_only ? 0 : find_stops(x, e);
    if (!failed)
        failed = gguf_create(x->o->out, &x->w, e);
    if (!failed)
        failed = put_pairs(x, e);
    if (!failed)
        failed = declare(x, e);
    if (failed)
        return failed;
    if (!x->o->adapter_only)
        tell_unblocked(x);
    failed = gguf_begin(x->w, e);
    const weights_getter get = x->o->adapter_only ? gguf_adapter_rows : merged_rows;
    void *of = x->o->adapter_only ? (void *)&x->alone : &x->rows;
    if (!failed)
        failed = gguf_tensors_write(x->w, &x->tensors, x->model, get, of, pass_progress, x, e);
    if (!failed && x->o->progress)
        x->o->progress(x->o->arg, "exporting", gguf_bytes(x->w), gguf_bytes(x->w));
    if (!failed)
        failed = gguf_finish(x->w, e);
    if (failed || !x->o->modelfile)
        return failed;
    const modelfile about = {x->o->modelfile, x->o->out, x->o->model, x->tokenizer, &x->stops};
    return modelfile_write(&about, e);
}

int pt_export(const pt_export_options *o, pt_error *e)
{
    if (!o)
        return pt_fail_null(e, "pt_export", "the options");
    int failed = check_options(o, e);
    if (failed)
        return failed;
    export x = {.o = o};
    failed = open_all(&x, e);
    if (!failed)
        failed = write_all(&x, e);
    gguf_close(x.w);
    gguf_tensors_free(&x.tensors);
    merged_close(&x.rows);
    gguf_adapter_close(&x.alone);
    safetensors_close(x.st);
    safetensors_close(x.adapter);
    tokenizer_close(x.tokenizer);
    model_close(x.model);
    return failed;
}
