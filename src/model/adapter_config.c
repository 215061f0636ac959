/* adapter_config.c - reads and writes PEFT's adapter_config.json.
 *
 * PEFT knows many ways to change a model, and a key that this program does not know may change what is computed. So a key that is not in
 * the list below must have its neutral value (null, false, empty), else the adapter is refused with the key's name.
 */
#include "model/adapter.h"

#include "base/json.h"
#include "io/files.h"
#include "io/safetensors.h"
#include "model/weights.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <math.h>
#include <string.h>

/* Keys that are read, or that do not affect the computation. */
static const char *const known_keys[] = {
    "peft_type", "r", "lora_alpha", "rank_pattern", "alpha_pattern", "use_rslora", "use_dora", "lora_dropout", "bias", "init_lora_weights",
    "target_modules", "task_type", "auto_mapping", "peft_version", "base_model_name_or_path", "revision", "inference_mode",
    "exclude_modules",
    "fan_in_fan_out", "layers_to_transform", "layers_pattern", "megatron_core", "qalora_group_size", "ensure_weight_tying",
    "runtime_config",
    "ephemeral_gpu_offload"};

static bool is_known(const char *key)
{
    for (size_t i = 0; i < sizeof known_keys / sizeof *known_keys; i++)
        if (!strcmp(known_keys[i], key))
            return true;
    return false;
}

static bool is_neutral(const json_t *value)
{
    return json_is_null(value) || json_is_false(value) || (json_is_object(value) && !json_object_size(value)) ||
           (json_is_array(value) && !json_array_size(value)) || (json_is_string(value) && !json_string_length(value));
}

static int refuse_key(const json_source *s, const char *key, const char *mend, pt_error *e)
{
    return pt_fail(e, PT_FAILED, "%s: \"%.60s\" is not supported by protrain: %s", s->where, key, mend);
}

static int check_keys(const json_source *s, pt_error *e)
{
    const char *key;
    json_t *value;
    json_object_foreach(s->object, key, value)
        if (!is_known(key) && !is_neutral(value))
            return refuse_key(s, key, !strcmp(key,
                                              "modules_to_save") ? "it supports only adapters of linear layers; merge the adapter into "
                                                                   "the base model with PEFT's merge_and_unload first"
                                                                      : "merge the adapter into the base model with PEFT's "
                                                                        "merge_and_unload first", e);
    return 0;
}

/* Initializations that also change the base's weights: the adapter does not fit the published base. */
static int check_begin(const json_source *s, pt_error *e)
{
    static const char *const fine[] = {"gaussian", "eva", "orthogonal", "true", "false"};
    const json_t *value = json_object_get(s->object, "init_lora_weights");
    const char *text = json_string_value(value);
    bool is_fine = !text;
    for (size_t i = 0; i < sizeof fine / sizeof *fine && text; i++)
        is_fine = is_fine || !strcmp(text, fine[i]);
    return is_fine ? 0 : pt_fail(e, PT_FAILED,
                                 "%s: \"init_lora_weights\" is \"%.40s\", which also changed the base model's weights: convert the "
                                 "adapter to plain LoRA with PEFT (save_pretrained with path_initial_model_for_weight_conversion)",
                                s->where, text);
}

typedef struct numbers { int64_t rank; double alpha; bool rslora, dora; } numbers;

static int read_numbers(const json_source *s, void (*notice)(void *, const char *), void *arg, numbers *n, pt_error *e)
{
    const char *type = NULL, *bias = "none";
    double dropout = 0;
    *n = (numbers){.rank = 8, .alpha = 8};
    int failed = json_get_string(s, "peft_type", JSON_REQUIRED, &type, e);
    if (!failed && strcmp(type, "LORA"))
        failed = pt_fail(e, PT_FAILED, "%s: \"peft_type\" is \"%.40s\", but only LORA is supported", s->where, type);
    if (!failed)
        failed = check_keys(s, e);
    if (!failed)
        failed = check_begin(s, e);
    if (!failed)
        failed = json_get_int(s, "r", JSON_OPTIONAL, 1, ADAPTER_MAX_RANK, &n->rank, e);
    if (!failed)
        failed = json_get_double(s, "lora_alpha", JSON_OPTIONAL, 1e-6, 1e6, &n->alpha, e);
    if (!failed)
        failed = json_get_bool(s, "use_rslora", JSON_OPTIONAL, &n->rslora, e);
    if (!failed)
        failed = json_get_bool(s, "use_dora", JSON_OPTIONAL, &n->dora, e);
    if (!failed)
        failed = json_get_double(s, "lora_dropout", JSON_OPTIONAL, 0, 1, &dropout, e);
    if (!failed)
        failed = json_get_string(s, "bias", JSON_OPTIONAL, &bias, e);
    if (!failed && strcmp(bias, "none"))
        failed = refuse_key(s, "bias",
                            "such adapters also train biases; merge the adapter into the base model with PEFT's merge_and_unload first", e);
    if (!failed && dropout > 0 && notice) {
        char sentence[700];
        snprintf(sentence, sizeof sentence, "%s: lora_dropout is %g, but dropout is not applied", s->where, dropout);
        notice(arg, sentence);
    }
    return failed;
}

/* ---- patterns ---- */

/* Does the module's name, or its end after a dot, match the expression, as in PEFT? */
static int matches(const char *where, const char *key, const char *module, bool *out, pt_error *e)
{
    enum { MATCH_LIMIT = 100000 };
    char expression[512];
    int code_of;
    PCRE2_SIZE at;
    if ((size_t)snprintf(expression, sizeof expression, "^(.*\\.)?(%s)$", key) >= sizeof expression)
        return pt_fail(e, PT_FAILED, "%s: the pattern \"%.60s...\" is too long", where, key);
    pcre2_code *code = pcre2_compile((PCRE2_SPTR)expression, PCRE2_ZERO_TERMINATED, 0, &code_of, &at, NULL);
    pcre2_match_data *data = code ? pcre2_match_data_create(1, NULL) : NULL;
    pcre2_match_context *context = data ? pcre2_match_context_create(NULL) : NULL;
    int found = PCRE2_ERROR_NOMEMORY;
    if (context) {
        pcre2_set_match_limit(context, MATCH_LIMIT);
        found = pcre2_match(code, (PCRE2_SPTR)module, strlen(module), 0, 0, data, context);
    }
    pcre2_match_context_free(context);
    pcre2_match_data_free(data);
    pcre2_code_free(code);
    *out = found >= 0;
    return found >= 0 || found == PCRE2_ERROR_NOMATCH ? 0 : pt_fail(e, PT_FAILED,
                                                                    "%s: the pattern \"%.100s\" is not a valid regular expression: "
                                                                    "correct it", where, key);
}

/* Sets *out to the number that a pattern gives the module, if one does. */
static int read_pattern(const json_source *s, const char *which, const char *module, double most, double *out, pt_error *e)
{
    json_source patterns = {0};
    const char *key;
    json_t *value;
    bool found = false;
    int failed = json_get_object(s, which, JSON_OPTIONAL, &patterns, e);
    if (failed || !patterns.object)
        return failed;
    json_object_foreach(patterns.object, key, value) {
        failed = matches(patterns.where, key, module, &found, e);
        if (failed)
            return failed;
        if (found)
            return json_get_double(&patterns, key, JSON_REQUIRED, 1e-6, most, out, e);
    }
    return 0;
}

/* ---- tensors ---- */

static int shape_error(const safetensors *st, const safetensors_tensor *t, int64_t rows, int64_t cols, const char *mend, pt_error *e)
{
    return pt_fail(e, PT_FAILED, "%s: tensor \"%.150s\" has %lld rows of %lld values, but %lld rows of %lld are needed: %s",
                   safetensors_path(st, t), t->name,
                   t->rank > 0 ? (long long)t->shape[0] : 1LL, t->rank > 1 ? (long long)t->shape[1] : 1LL, (long long)rows,
                   (long long)cols, mend);
}

static bool has_shape(const safetensors_tensor *t, int64_t rows, int64_t cols)
{
    return t->rank == 2 && t->shape[0] == rows && t->shape[1] == cols;
}

static const safetensors_tensor *find(const model *m, const safetensors *st, const char *module, const char *what)
{
    char name[MODEL_NAME + 32];
    snprintf(name, sizeof name, "%s.%s", module, what);
    return weights_find_adapter(m, st, name);
}

typedef struct reader {
    const model *m;
    const json_source *config;
    const safetensors *st;
    adapters *a;
    numbers n;
    size_t claimed;
    pt_error *e;
} reader;

static int check_pair(reader *r, const param *base, int part, const char *module, const safetensors_tensor *a, const safetensors_tensor *b)
{
    const char *of_other = "it is an adapter of another model";
    const int64_t rank = a->rank == 2 ? a->shape[0] : 0;
    double wanted = (double)r->n.rank;
    int failed = read_pattern(r->config, "rank_pattern", module, ADAPTER_MAX_RANK, &wanted, r->e);
    if (failed)
        return failed;
    if (rank < 1 || !has_shape(a, rank, base->cols))
        return shape_error(r->st, a, (int64_t)wanted, base->cols, of_other, r->e);
    if (!has_shape(b, base->part[part].rows, rank))
        return shape_error(r->st, b, base->part[part].rows, rank, of_other, r->e);
    return rank == (int64_t)wanted ? 0 : shape_error(r->st, a, (int64_t)wanted, base->cols, "its rank differs from that of "
                                                                                            "" ADAPTER_CONFIG ", so that the two files do "
                                                                                            "not belong together", r->e);
}

static int read_module(reader *r, int layer, int matrix, const param *base, int part)
{
    char module[MODEL_NAME];
    adapter_module_name(base, part, module);
    const safetensors_tensor *a = find(r->m, r->st, module, "lora_A.weight"), *b = find(r->m, r->st, module, "lora_B.weight");
    const safetensors_tensor *magnitude = r->n.dora ? find(r->m, r->st, module, "lora_magnitude_vector") : NULL;
    double alpha = r->n.alpha;
    if (!a && !b)
        return 0;
    if (!a || !b || (r->n.dora && !magnitude))
        return pt_fail(r->e, PT_FAILED, "%s: \"%s\" has no %s beside its other tensors: the file is incomplete; take another copy",
                       safetensors_path(r->st, a ? a : b), module,
                       !a ? "lora_A" : !b ? "lora_B" : "lora_magnitude_vector, which use_dora asks for");
    int failed = check_pair(r, base, part, module, a, b);
    if (!failed && magnitude && magnitude->elements != (uint64_t)base->part[part].rows)
        failed = shape_error(r->st, magnitude, base->part[part].rows, 1, "it is an adapter of another model", r->e);
    if (!failed)
        failed = read_pattern(r->config, "alpha_pattern", module, 1e6, &alpha, r->e);
    if (failed)
        return failed;
    const double rank = (double)a->shape[0];
    r->a->of[layer][matrix][part] = (adapter_module){(int)a->shape[0], (float)(alpha / (r->n.rslora ? sqrt(rank) : rank))};
    r->claimed += magnitude ? 3 : 2;
    return 0;
}

/* A tensor that belongs to no module. */
static int refuse_tensor(const reader *r)
{
    for (size_t i = 0; i < safetensors_count(r->st); i++) {
        const safetensors_tensor *t = safetensors_at(r->st, i);
        bool ours = false;
        for (int b = 1; b < r->m->blocks_n - 1 && !ours; b++)
            for (int k = 0; k < MODEL_MATRICES && !ours; k++) {
                const param *base = block_param(r->m, &r->m->blocks[b], adapter_base(k));
                for (int part = 0; part < base->parts && !ours; part++) {
                    char module[MODEL_NAME];
                    adapter_module_name(base, part, module);
                    ours = r->a->of[b - 1][k][part].rank && (find(r->m, r->st, module, "lora_A.weight") == t ||
                           find(r->m, r->st, module, "lora_B.weight") == t || (r->n.dora &&
                                                                               find(r->m, r->st, module, "lora_magnitude_vector") == t));
                }
            }
        if (!ours)
            return pt_fail(r->e, PT_FAILED,
                           "%s: tensor \"%.150s\" belongs to no linear layer of a %s model with %lld layers: it is an adapter of "
                           "another model, or of its embedding or head, which are not supported", safetensors_path(r->st, t), t->name,
                           r->m->config.model_type, (long long)r->m->config.layers);
    }
    return 0;
}

static int read_modules(reader *r)
{
    int failed = 0;
    for (int b = 1; b < r->m->blocks_n - 1; b++)
        for (int k = 0; k < MODEL_MATRICES; k++) {
            const param *base = block_param(r->m, &r->m->blocks[b], adapter_base(k));
            for (int part = 0; part < base->parts && !failed; part++)
                failed = read_module(r, b - 1, k, base, part);
        }
    if (!failed && r->claimed != safetensors_count(r->st))
        failed = refuse_tensor(r);
    if (!failed && !r->claimed)
        failed = pt_fail(r->e, PT_FAILED, "%s: no tensor of an adapter belongs to it: the folder is incomplete", r->config->where);
    return failed;
}

/* ---- the folder ---- */

static int open_weights(const char *folder, safetensors **st, pt_error *e)
{
    char path[FILE_PATH_BYTES], old[FILE_PATH_BYTES];
    int failed = path_join(path, folder, ADAPTER_WEIGHTS, e);
    if (!failed)
        failed = path_join(old, folder, "adapter_model.bin", e);
    if (!failed && !path_exists(path) && path_exists(old))
        return pt_fail(e, PT_FAILED, "%s: is of an old PEFT, and " ADAPTER_WEIGHTS " is needed: load the adapter with PEFT and save it "
                                     "again", old);
    return failed ? failed : safetensors_open(path, st, e);
}

static int attach(model *m, reader *r, const json_source *s)
{
    r->a->dora = r->n.dora;
    r->a->config = json_deep_copy(s->object);
    if (r->a->config)
        json_object_set_new(r->a->config, "lora_dropout", json_real(0));
    return adapters_attach(m, r->a, r->e);
}

int model_adapt_like(model *m, const char *folder, void (*notice)(void *, const char *), void *arg, pt_error *e)
{
    char path[FILE_PATH_BYTES];
    json_source s;
    if (!path_is_folder(folder))
        return pt_fail(e, PT_FAILED, "%.400s is not a folder: `adapter` must be a folder with " ADAPTER_CONFIG " and "ADAPTER_WEIGHTS,
                       folder);
    int failed = path_join(path, folder, ADAPTER_CONFIG, e);
    if (!failed && !path_exists(path))
        failed = pt_fail(e, PT_FAILED, "%.400s: is not there: `adapter` wants a folder with " ADAPTER_CONFIG " and " ADAPTER_WEIGHTS, path);
    if (!failed)
        failed = json_source_open(&s, path, e);
    if (failed)
        return failed;
    safetensors *st = NULL;
    reader r = {.m = m, .config = &s, .e = e};
    failed = read_numbers(&s, notice, arg, &r.n, e);
    if (!failed)
        failed = open_weights(folder, &st, e);
    if (!failed)
        failed = adapters_new(m, &r.a, e);
    if (!failed) {
        r.st = st;
        failed = read_modules(&r);
        if (failed)
            adapters_free(r.a);
        else
            failed = attach(m, &r, &s);
    }
    safetensors_close(st);
    json_source_close(&s);
    return failed;
}

int model_adapt_from_json(model *m, const char *name, const char *json, size_t n, pt_error *e)
{
    json_source s;
    reader r = {.m = m, .config = &s, .e = e};
    int failed = json_source_text(&s, name, json, n, "an adapter's config", e);
    if (failed)
        return failed;
    failed = read_numbers(&s, NULL, NULL, &r.n, e);
    if (!failed)
        failed = adapters_new(m, &r.a, e);
    for (int layer = 0; layer < m->config.layers && !failed; layer++) {
        char module[MODEL_NAME];
        double rank = (double)r.n.rank, alpha = r.n.alpha;
        const param *base = block_param(m, &m->blocks[layer + 1], PARAM_QKV);
        adapter_module_name(base, 0, module);
        failed = read_pattern(&s, "rank_pattern", module, ADAPTER_MAX_RANK, &rank, e);
        if (!failed)
            failed = read_pattern(&s, "alpha_pattern", module, 1e6, &alpha, e);
        r.a->of[layer][0][0] = (adapter_module){rank < 1 ? 1 : (int)rank, (float)(alpha / rank)};
    }
    if (!failed)
        failed = attach(m, &r, &s);
    else
        adapters_free(r.a);
    json_source_close(&s);
    return failed;
}

int adapter_write_config(const model *m, const char *folder, const char *base, pt_error *e)
{
    char path[FILE_PATH_BYTES];
    json_t *config = json_copy(m->adapters->config);
    int failed = config && !json_object_set_new(config, "base_model_name_or_path", json_string(base)) &&
                         !json_object_set_new(config, "inference_mode", json_true())
                     ? path_join(path, folder, ADAPTER_CONFIG, e) : pt_fail(e, PT_FAILED, "out of memory");
    if (!failed)
        failed = file_write_json(path, config, e);
    json_decref(config);
    return failed;
}
