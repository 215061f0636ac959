#include "train/base.h"

#include "base/json.h"
#include "model/adapter.h"
#include "model/base_mark.h"
#include "model/storage.h"
#include "model/weights.h"

#include <stdio.h>
#include <string.h>

static const char *const names[] = {[PT_BASE_BF16] = "bf16", [PT_BASE_FP32] = "fp32", [PT_BASE_NF4] = "nf4", [PT_BASE_INT8] = "int8",
                                    [PT_BASE_MXFP4] = "mxfp4"};

const char *base_name(pt_base b) { return names[b]; }

static bool has_frozen_matrix(const model *m)
{
    bool any = false;
    for (int i = 0; i < m->params_n; i++)
        any = any || (!m->params[i].trainable && m->params[i].kind->use == USE_MATRIX);
    return any;
}

/* ---- folders in few bits ---- */

/* The format of a matrix by the config.json of such a folder, if model/storage.h has it. In MXFP4 are experts alone. */
static param_storage said_format(const json_t *said, const param *p)
{
    const char *method = json_string_value(json_object_get(said, "quant_method"));
    if (method && !strcmp(method, "mxfp4"))
        return p->kind->use == USE_EXPERTS ? STORAGE_MXFP4 : STORAGE_PLAIN;
    const char *type = json_string_value(json_object_get(said, "bnb_4bit_quant_type"));
    if (json_is_true(json_object_get(said, "load_in_8bit")))
        return STORAGE_INT8;
    return type && !strcmp(type, "nf4") && json_is_true(json_object_get(said, "bnb_4bit_use_double_quant")) ? STORAGE_NF4 : STORAGE_PLAIN;
}

/* Does the name begin with `module`, or does its module end so? */
static bool is_module(const char *name, const char *module)
{
    static const char end[] = ".weight";
    const size_t n = strlen(name) - (sizeof end - 1), k = strlen(module);
    return (k < n && !strncmp(name, module, k) && name[k] == '.') || (k <= n && k && !strncmp(name + n - k, module, k));
}

static bool was_left_whole(const json_t *said, const param *p)
{
    const json_t *module;
    size_t i;
    bool left = false;
    json_array_foreach(json_object_get(said, "llm_int8_skip_modules"), i, module)
        for (int k = 0; k < p->parts; k++)
            left = left || (json_is_string(module) && is_module(p->part[k].name, json_string_value(module)));
    return left;
}

/* A folder, or a config.json alone for planning. */
static int store_like(const char *folder, model *m, pt_error *e)
{
    char path[FILE_PATH_BYTES];
    json_source config;
    safetensors *st = NULL;
    const bool is_folder = path_is_folder(folder);
    int failed = is_folder ? path_join(path, folder, "config.json", e) : 0;
    if (!failed)
        failed = json_source_open(&config, is_folder ? path : folder, e);
    if (failed)
        return failed;
    const json_t *said = json_object_get(config.object, "quantization_config");
    const bool has_weights = is_folder && weights_present(folder);
    for (int i = 0; i < m->params_n && json_is_object(said) && !has_weights; i++)
        if (storage_fits(&m->params[i]) && !was_left_whole(said, &m->params[i]))
            m->params[i].storage = said_format(said, &m->params[i]);
    if (json_is_object(said) && has_weights)
        failed = safetensors_open(folder, &st, e);
    if (st && !failed)
        failed = weights_store_like(m, st, e);
    safetensors_close(st);
    json_source_close(&config);
    return failed;
}

static const param_storage storage_of[] = {[PT_BASE_NF4] = STORAGE_NF4, [PT_BASE_INT8] = STORAGE_INT8, [PT_BASE_MXFP4] = STORAGE_MXFP4};

static int check_type(pt_base b, pt_precision precision, pt_error *e)
{
    const bool is_bf16 = precision == PT_PRECISION_BF16;
    if (b != (is_bf16 ? PT_BASE_FP32 : PT_BASE_BF16))
        return 0;
    return pt_fail(e, PT_USAGE,
                   "`base` %s does not work with `precision` %s: give `precision` %s, or `base` nf4, int8 or mxfp4, which work with both",
                   names[b], is_bf16 ? "bf16" : "fp32", names[b]);
}

int base_apply(const pt_train_options *o, model *m, pt_error *e)
{
    /* Layers trained by turns are frozen for a while only: what they learned is read again from files that are not in few bits. */
    if (o->base == PT_BASE_AS_COMPUTED)
        return has_frozen_matrix(m) && !o->init_random && !o->train_blocks ? store_like(o->model, m, e) : 0;
    int failed = check_type(o->base, o->precision, e);
    if (failed)
        return failed;
    if (!has_frozen_matrix(m))
        return pt_fail(
            e, PT_USAGE,
            "`base` %s sets the format of the layers' frozen matrices, but none is frozen: train adapters with `lora_rank`, freeze layers "
            "with `freeze` or `train_only`, or leave `base` out",
            names[o->base]);
    return o->base >= PT_BASE_NF4 ? model_store(m, storage_of[o->base], e) : 0;
}

/* ---- evaluation and generation ---- */

int base_apply_whole(pt_base b, pt_precision precision, model *m, pt_error *e)
{
    if (b < PT_BASE_AS_COMPUTED || b > PT_BASE_MXFP4)
        return pt_fail(e, PT_USAGE, "`base` is %d: it must be from %d to %d", b, PT_BASE_AS_COMPUTED, PT_BASE_MXFP4);
    int failed = check_type(b, precision, e);
    if (failed || b < PT_BASE_NF4)
        return failed;
    for (int i = 0; i < m->params_n; i++)
        m->params[i].trainable = m->params[i].trainable && param_is_adapter(&m->params[i]);
    return model_store(m, storage_of[b], e);
}

bool base_is_whole(const model *m)
{
    for (int i = 0; i < m->params_n; i++)
        if (m->params[i].kind->use == USE_MATRIX && m->params[i].kind->block == BLOCK_LAYER && m->params[i].storage != model_storage(m))
            return false;
    return true;
}

/* In a format of its own that is kept; files in FP8 are decoded. */
static bool is_in_few_bits(const char *folder)
{
    char path[FILE_PATH_BYTES];
    json_source config;
    pt_error ignored;
    const bool is_folder = path_is_folder(folder);
    if (is_folder && path_join(path, folder, "config.json", &ignored))
        return false;
    if (json_source_open(&config, is_folder ? path : folder, &ignored))
        return false;
    const json_t *quantized = json_object_get(config.object, "quantization_config");
    const char *method = json_string_value(json_object_get(quantized, "quant_method"));
    const bool is = json_is_object(quantized) && (!method || strcmp(method, "fp8"));
    json_source_close(&config);
    return is;
}

pt_base base_of_adapter(pt_base b, const char *folder, const char *adapter, void (*notice)(void *, const char *), void *arg)
{
    char sentence[1200];
    const param_storage s = adapter ? base_mark_storage(adapter) : STORAGE_PLAIN;
    if (s == STORAGE_PLAIN || (b < PT_BASE_NF4 && is_in_few_bits(folder)))
        return b;
    const pt_base its = s == STORAGE_NF4 ? PT_BASE_NF4 : s == STORAGE_INT8 ? PT_BASE_INT8 : PT_BASE_MXFP4;
    const char *plain = "`base` bf16 (or fp32, as `precision`) gives the base as it is stored";
    if (b == PT_BASE_AS_COMPUTED)
        snprintf(sentence, sizeof sentence, "%.400s: this adapter was trained on a base in %s, which is used here, too; %s", adapter,
                 names[its], plain);
    else if (b != its)
        snprintf(sentence, sizeof sentence, "%.400s: this adapter was trained on a base in %s, and `base` is %s: expect other results",
                 adapter, names[its], names[b]);
    if (notice && b != its)
        notice(arg, sentence);
    return b == PT_BASE_AS_COMPUTED ? its : b;
}

/* ---- where a run reads it from ---- */

int base_open(base *b, const model *m, const char *folder, uint64_t seed, pt_error *e)
{
    safetensors *st = NULL;
    *b = (base){.in_few_bits = model_storage(m) != STORAGE_PLAIN, .origin = {.seed = seed}};
    snprintf(b->folder, sizeof b->folder, "%s", folder ? folder : "");
    if (!b->in_few_bits || !folder)
        return 0;
    int failed = safetensors_open(folder, &st, e);
    b->origin.st = st;
    return failed ? failed : weights_check(m, st, NULL, e);
}

void base_close(base *b)
{
    safetensors_close((safetensors *)b->origin.st);
    b->origin.st = NULL;
}

void base_lend(const base *b, state *state) { state->origin = b->in_few_bits ? &b->origin : NULL; }

void base_take_sum(base *b, const state *state) { b->sum = state->origin_sum; }

void base_write(const base *b, json_t *counters)
{
    if (b->in_few_bits)
        json_object_set_new(counters, "base_in_few_bits", json_sprintf("%016llx", (unsigned long long)b->sum));
}

/* The file was read and validated before. */
int base_compare(const base *b, const state *loaded, const char *checkpoint, pt_error *e)
{
    char path[FILE_PATH_BYTES], now[20];
    json_source src;
    const char *before;
    if (!b->in_few_bits)
        return 0;
    int failed = path_join(path, checkpoint, "trainer/trainer.json", e);
    if (!failed)
        failed = json_source_open(&src, path, e);
    if (failed)
        return failed;
    snprintf(now, sizeof now, "%016llx", (unsigned long long)loaded->origin_sum);
    failed = json_get_string(&src, "base_in_few_bits", JSON_REQUIRED, &before, e);
    if (!failed && strcmp(before, now))
        failed = pt_fail(e, PT_FAILED,
                         "%.300s: the frozen matrices of `model` %.300s are not those that the run began with (their checksum was %s and "
                         "is %s): give the folder, or the seed, that the run began with",
                         path, b->folder[0] ? b->folder : "(random weights)", before, now);
    json_source_close(&src);
    return failed;
}
