/* adapter_config.c - reads and writes PEFT's adapter_config.json.
 *
 * PEFT knows many ways to change a model, and a key that this program does not know may change what is computed. So a key that is not in
 * the list below must have its neutral value (null, false, empty), else the adapter is refused with the key's name.
 */
#include "model/adapter.h"

#include "base/json.h"
#include "base/units.h"
#include "io/files.h"
#include "io/hub.h"
#include "io/safetensors.h"
#include "model/adapter_targets.h"
#include "model/base_mark.h"
#include "model/names.h"
#include "model/weights.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Keys that are read elsewhere, or that do not affect the computation and have a type. */
typedef enum key_type { READ, ANY, TEXT, FLAG } key_type;
static const struct { const char *name; key_type type; } known_keys[] = {
    {"peft_type", READ}, {"r", READ}, {"lora_alpha", READ}, {"rank_pattern", READ}, {"alpha_pattern", READ}, {"use_rslora", READ},
    {"use_dora", READ}, {"lora_dropout", READ}, {"bias", READ}, {"init_lora_weights", READ}, {"target_modules", READ},
    {"target_parameters", READ}, {"exclude_modules", READ}, {"layers_to_transform", READ}, {"modules_to_save", READ},
    {"layers_pattern", READ}, {"task_type", TEXT},
    {"auto_mapping", ANY}, {"peft_version", TEXT}, {"base_model_name_or_path", TEXT}, {"revision", TEXT}, {"inference_mode", FLAG},
    {"fan_in_fan_out", FLAG}, {"megatron_core", TEXT}, {"qalora_group_size", ANY}, {"ensure_weight_tying", FLAG}, {"runtime_config", ANY},
    {"ephemeral_gpu_offload", FLAG}};

static int check_known(const json_source *src, const char *key, bool *known, pt_error *e)
{
    const char *text;
    bool flag;
    key_type type = READ;
    *known = false;
    for (size_t i = 0; i < sizeof known_keys / sizeof *known_keys && !*known; i++) {
        *known = !strcmp(known_keys[i].name, key);
        type = known_keys[i].type;
    }
    if (*known && type == TEXT)
        return json_get_string(src, key, JSON_OPTIONAL, &text, e);
    return *known && type == FLAG ? json_get_bool(src, key, JSON_OPTIONAL, &flag, e) : 0;
}

static bool is_neutral(const json_t *value)
{
    return json_is_null(value) || json_is_false(value) || (json_is_object(value) && !json_object_size(value)) ||
           (json_is_array(value) && !json_array_size(value)) || (json_is_string(value) && !json_string_length(value));
}

static int refuse_key(const json_source *src, const char *key, const char *mend, pt_error *e)
{
    return pt_fail(e, PT_FAILED, "%s: \"%.60s\" is not supported by protrain: %s", src->where, key, mend);
}

static int check_keys(const json_source *src, pt_error *e)
{
    static const char merge[] = "merge the adapter into the base model with PEFT's merge_and_unload first";
    const char *key;
    json_t *value;
    bool known;
    json_object_foreach(src->object, key, value) {
        int failed = check_known(src, key, &known, e);
        if (!failed && !known && !is_neutral(value))
            failed = refuse_key(src, key, merge, e);
        if (failed)
            return failed;
    }
    return adapter_targets_check(src, e);
}

/* Initializations that also change the base's weights: the adapter does not fit the published base. */
static int check_begin(const json_source *src, pt_error *e)
{
    static const char *const fine[] = {"gaussian", "eva", "orthogonal", "true", "false"};
    const json_t *value = json_object_get(src->object, "init_lora_weights");
    const char *text = json_string_value(value);
    bool is_fine = !text;
    for (size_t i = 0; i < sizeof fine / sizeof *fine && text; i++)
        is_fine = is_fine || !strcmp(text, fine[i]);
    return is_fine ? 0 : pt_fail(e, PT_FAILED,
                                 "%s: \"init_lora_weights\" is \"%.40s\", which also changed the base model's weights: convert the "
                                 "adapter to plain LoRA with PEFT (save_pretrained with path_initial_model_for_weight_conversion)",
                                src->where, text);
}

/* ---- numbers ---- */

typedef struct numbers { int64_t rank; double alpha, dropout; bool rslora, dora; } numbers;

static int read_numbers(const json_source *src, void (*notice)(void *, const char *), void *arg, numbers *n, pt_error *e)
{
    const char *type = NULL, *bias = "none";
    *n = (numbers){.rank = 8, .alpha = 8};
    int failed = json_get_string(src, "peft_type", JSON_REQUIRED, &type, e);
    if (!failed && strcmp(type, "LORA"))
        failed = pt_fail(e, PT_FAILED, "%s: \"peft_type\" is \"%.40s\", but only LORA is supported", src->where, type);
    if (!failed)
        failed = check_keys(src, e);
    if (!failed)
        failed = check_begin(src, e);
    if (!failed)
        failed = adapter_patterns_check(src, e);
    if (!failed)
        failed = json_get_int(src, "r", JSON_OPTIONAL, 1, ADAPTER_MAX_RANK, &n->rank, e);
    if (!failed)
        failed = json_get_double(src, "lora_alpha", JSON_OPTIONAL, ADAPTER_LEAST_ALPHA, ADAPTER_MOST_ALPHA, &n->alpha, e);
    if (!failed)
        failed = json_get_bool(src, "use_rslora", JSON_OPTIONAL, &n->rslora, e);
    if (!failed)
        failed = json_get_bool(src, "use_dora", JSON_OPTIONAL, &n->dora, e);
    if (!failed)
        failed = json_get_double(src, "lora_dropout", JSON_OPTIONAL, 0, ADAPTER_MOST_DROPOUT, &n->dropout, e);
    if (!failed)
        failed = json_get_string(src, "bias", JSON_OPTIONAL, &bias, e);
    if (!failed && strcmp(bias, "none"))
        failed = refuse_key(src, "bias",
                            "such adapters also train biases; merge the adapter into the base model with PEFT's merge_and_unload first", e);
    if (!failed && n->dropout > 0 && n->dora && notice) {
        char sentence[700];
        snprintf(sentence, sizeof sentence, "%s: lora_dropout is %g, but dropout is not applied with DoRA", src->where, n->dropout);
        notice(arg, sentence);
    }
    return failed;
}

/* ---- tensors ---- */

static int shape_error(const safetensors *st, const safetensors_tensor *tensor, int64_t rows, int64_t cols, const char *mend, pt_error *e)
{
    return pt_fail(e, PT_FAILED, "%s: tensor \"%.150s\" has %lld rows of %lld values, but %lld rows of %lld are needed: %s",
                   safetensors_path(st, tensor), tensor->name, tensor->rank > 0 ? (long long)tensor->shape[0] : 1LL,
                   tensor->rank > 1 ? (long long)tensor->shape[1] : 1LL, (long long)rows, (long long)cols, mend);
}

static bool has_shape(const safetensors_tensor *tensor, int64_t rows, int64_t cols)
{
    return tensor->rank == 2 && tensor->shape[0] == rows && tensor->shape[1] == cols;
}

static const safetensors_tensor *find(const model *m, const safetensors *st, const char *module, const char *what)
{
    char name[MODEL_NAME + 32];
    snprintf(name, sizeof name, "%s.%s", module, what);
    return weights_find_adapter(m, st, name);
}

typedef struct reader {
    model *m;
    const json_source *config;
    const safetensors *st;
    weights_naming naming; /* of the adapter's tensors, and so of the modules of the model that PEFT adapted */
    adapters *a;
    numbers n;
    size_t claimed;
    void (*notice)(void *arg, const char *sentence);
    void *arg;
    pt_error *e;
} reader;

/* The module's name in PEFT's model. */
static const char *spell(const reader *r, weights_naming naming, const param *base, int part, char out[SPELLED_NAME])
{
    char module[MODEL_NAME];
    adapter_module_name(r->m, base, part, module);
    return names_spell(architecture_find(r->m->config.model_type), naming, module, out);
}

static bool has_naming(const reader *r, weights_naming naming)
{
    char module[SPELLED_NAME], name[SPELLED_NAME + 64];
    bool found = false;
    for (int b = 1; b < r->m->blocks_n - 1; b++)
        for (int k = 0; k < MODEL_MATRICES; k++) {
            const param *base = block_param(r->m, &r->m->blocks[b], adapter_base(k));
            for (int part = 0; part < adapter_parts(r->m, b, k) && !found; part++) {
                char owner[MODEL_NAME];
                adapter_owner_name(r->m, r->a, base, part, owner);
                names_spell(architecture_find(r->m->config.model_type), naming, owner, module);
                snprintf(name, sizeof name, ADAPTER_PREFIX "%s.lora_A.weight", module);
                found = safetensors_find(r->st, name) != NULL;
            }
        }
    return found;
}

static weights_naming find_naming(const reader *r)
{
    for (int n = 0; n < NAMINGS; n++)
        if (has_naming(r, (weights_naming)n))
            return (weights_naming)n;
    return NAMES_WHOLE;
}

/* PEFT ignores tensors of modules that the config does not adapt, and starts new adapters where it has none. */
static int check_target(const reader *r, int layer, const char *module, bool has_tensors)
{
    adapter_target t;
    int failed = adapter_targets_find(r->config, module, layer, &t, r->e);
    if (failed || !t.known || t.adapted == has_tensors)
        return failed;
    if (has_tensors)
        return pt_fail(r->e, PT_FAILED,
                       "%s: \"%s\" leaves %.150s out, but " ADAPTER_WEIGHTS " has tensors of it, which PEFT would ignore: correct the key, "
                       "or take another copy of both files",
                       r->config->where, t.key, module);
    return pt_fail(r->e, PT_FAILED,
                   "%s: \"%s\" names %.150s, but " ADAPTER_WEIGHTS " has no tensors of it: the file is incomplete, or of an adapter of "
                   "another model; take another copy of both files, or give the model that they belong to",
                   r->config->where, t.key, module);
}

static int check_pair(reader *r, const param *base, int part, const char *spelled, const safetensors_tensor *a, const safetensors_tensor *b)
{
    const char *of_other = "it is an adapter of another model";
    const int64_t experts = adapter_is_of_experts(adapter_matrix(base->role)) ? r->m->config.experts : 1;
    const int64_t outputs = adapter_outputs(r->m, base, part), rank = a->rank == 2 ? a->shape[0] / experts : 0;
    double wanted = (double)r->n.rank;
    int failed = adapter_pattern_read(r->config, "rank_pattern", spelled, &wanted, r->e);
    if (failed)
        return failed;
    if (rank < 1 || !has_shape(a, rank * experts, base->cols))
        return shape_error(r->st, a, (int64_t)wanted * experts, base->cols, of_other, r->e);
    if (!has_shape(b, outputs, rank * experts))
        return shape_error(r->st, b, outputs, rank * experts, of_other, r->e);
    return rank == (int64_t)wanted ? 0 : shape_error(r->st, a, (int64_t)wanted * experts, base->cols, "its rank differs from that of "
                                                                                            "" ADAPTER_CONFIG ", so that the two files do "
                                                                                            "not belong together", r->e);
}

/* The experts' parameters that are adapted, before their tensors are looked for: the tensors' names depend on whether both are. */
static int read_parameters(reader *r)
{
    const json_t *names = json_object_get(r->config->object, "target_parameters"), *entry;
    char spelled[SPELLED_NAME];
    size_t i;
    if (names && !json_is_null(names) && !json_is_array(names))
        return pt_fail(r->e, PT_FAILED, "%s: \"target_parameters\" must be a list of names: correct it, or take another copy of the file",
                       r->config->where);
    json_array_foreach(names, i, entry) {
        bool known = false;
        if (!json_is_string(entry) || !*json_string_value(entry))
            return pt_fail(r->e, PT_FAILED, "%s: \"target_parameters\" has an entry that is no name: correct it, or take another copy of "
                                            "the file", r->config->where);
        for (int b = 1; b < r->m->blocks_n - 1; b++)
            for (int k = MODEL_MATRICES - 2; k < MODEL_MATRICES; k++) {
                if (!adapter_parts(r->m, b, k))
                    continue;
                spell(r, NAMES_WHOLE, block_param(r->m, &r->m->blocks[b], adapter_base(k)), 0, spelled);
                const bool named = adapter_name_ends(spelled, json_string_value(entry));
                known = known || named;
                if (named)
                    r->a->of[b - 1][k][0].rank = 1; /* until its tensors have been read */
            }
        if (!known)
            return pt_fail(r->e, PT_FAILED,
                           "%s: \"target_parameters\" names \"%.100s\", but only parameters of experts can have adapters here, and a %s "
                           "model has none of this name: it is an adapter of another model, or of a router",
                           r->config->where, json_string_value(entry), r->m->config.model_type);
    }
    if (json_array_size(names) && r->n.dora)
        return pt_fail(r->e, PT_FAILED, "%s: \"use_dora\" has no meaning for \"target_parameters\" (PEFT refuses it): remove one",
                       r->config->where);
    return 0;
}

static int missing_tensors(const reader *r, const char *module)
{
    return pt_fail(r->e, PT_FAILED,
                   "%s: \"target_parameters\" names %.150s, but " ADAPTER_WEIGHTS " has no tensors of it: the file is incomplete, or of an "
                   "adapter of another model; take another copy of both files, or give the model that they belong to",
                   r->config->where, module);
}

static int read_module(reader *r, int layer, int matrix, const param *base, int part)
{
    char module[MODEL_NAME], owner[MODEL_NAME], spelled[SPELLED_NAME];
    const bool of_experts = adapter_is_of_experts(matrix);
    adapter_module_name(r->m, base, part, module);
    adapter_owner_name(r->m, r->a, base, part, owner);
    spell(r, r->naming, base, part, spelled);
    if (of_experts && !r->a->of[layer][matrix][part].rank)
        return 0;
    const safetensors_tensor *a = find(r->m, r->st, owner, "lora_A.weight"), *b = find(r->m, r->st, owner, "lora_B.weight");
    const bool magnitudes = r->n.dora && matrix < MODEL_LINEAR_MATRICES;
    const safetensors_tensor *magnitude = magnitudes ? find(r->m, r->st, owner, "lora_magnitude_vector") : NULL;
    double alpha = r->n.alpha;
    if (!a && !b)
        return of_experts ? missing_tensors(r, module) : 0;
    if (r->n.dora && !magnitudes)
        return pt_fail(r->e, PT_FAILED,
                       "%s: \"use_dora\" is true, but %.150s is a matrix of a shared expert with a gate, which can have no magnitudes "
                       "here: train the adapter without them", r->config->where, module);
    if (!a || !b || (magnitudes && !magnitude))
        return pt_fail(r->e, PT_FAILED, "%s: \"%s\" has no %s beside its other tensors: the file is incomplete; take another copy",
                       safetensors_path(r->st, a ? a : b), module,
                       !a ? "lora_A" : !b ? "lora_B" : "lora_magnitude_vector, which use_dora asks for");
    int failed = check_pair(r, base, part, spelled, a, b);
    if (!failed && magnitude && magnitude->elements != (uint64_t)base->part[part].rows)
        failed = shape_error(r->st, magnitude, base->part[part].rows, 1, "it is an adapter of another model", r->e);
    if (!failed)
        failed = adapter_pattern_read(r->config, "alpha_pattern", spelled, &alpha, r->e);
    if (failed)
        return failed;
    const int rank = (int)(a->shape[0] / (of_experts ? r->m->config.experts : 1));
    r->a->of[layer][matrix][part] = (adapter_module){rank, (float)(alpha / (r->n.rslora ? sqrt((double)rank) : (double)rank))};
    r->claimed += magnitude ? 3 : 2;
    return 0;
}

static int check_targets(const reader *r)
{
    char spelled[SPELLED_NAME];
    int failed = 0;
    for (int b = 1; b < r->m->blocks_n - 1; b++)
        for (int k = 0; k < MODEL_MATRICES; k++) {
            const param *base = block_param(r->m, &r->m->blocks[b], adapter_base(k));
            for (int part = 0; part < adapter_parts(r->m, b, k) && !failed && !adapter_is_of_experts(k); part++)
                failed = check_target(r, b - 1, spell(r, r->naming, base, part, spelled), r->a->of[b - 1][k][part].rank > 0);
        }
    return failed;
}

static int matches_adapted(const reader *r, const char *key, bool *out)
{
    char spelled[SPELLED_NAME];
    int failed = 0;
    *out = false;
    for (int b = 1; b < r->m->blocks_n - 1; b++)
        for (int k = 0; k < MODEL_MATRICES; k++) {
            const param *base = block_param(r->m, &r->m->blocks[b], adapter_base(k));
            for (int part = 0; part < adapter_parts(r->m, b, k) && !failed && !*out; part++)
                if (r->a->of[b - 1][k][part].rank)
                    failed = adapter_pattern_matches(r->config->where, key, spell(r, r->naming, base, part, spelled), out, r->e);
        }
    return failed;
}

/* Patterns for no module have no effect, as in PEFT. */
static int tell_idle_patterns(const reader *r)
{
    char sentence[900];
    const char *key;
    json_t *value;
    bool matches;
    int failed = 0;
    for (int i = 0; i < ADAPTER_PATTERNS && r->notice; i++)
        json_object_foreach(json_object_get(r->config->object, adapter_patterns[i]), key, value) {
            failed = matches_adapted(r, key, &matches);
            if (failed)
                return failed;
            snprintf(sentence, sizeof sentence, "%s: the key \"%.100s\" of \"%s\" matches no module with an adapter, and has no effect",
                     r->config->where, key, adapter_patterns[i]);
            if (!matches)
                r->notice(r->arg, sentence);
        }
    return 0;
}

/* ---- modules in full ---- */

/* PEFT saves resized embeddings twice more, under the names of its wrapper: as they are, and as they were. */
enum { WRAPPED = 2 };
static const safetensors_tensor *find_wrapped(const reader *r, const char *name, int i)
{
    static const char *const of[WRAPPED] = {"modules_to_save", "original_module"};
    char wrapped[MODEL_NAME + 32];
    const char *end = strrchr(name, '.');
    snprintf(wrapped, sizeof wrapped, "%.*s.%s%s", (int)(end - name), name, of[i], end);
    return weights_find_adapter(r->m, r->st, wrapped);
}

static bool is_whole_tensor(const reader *r, const safetensors_tensor *tensor)
{
    bool is = false;
    for (int i = 0; i < r->m->params_n; i++)
        for (int k = 0; k < r->m->params[i].parts && r->m->params[i].whole; k++) {
            const char *name = r->m->params[i].part[k].name;
            is = is || weights_find_adapter(r->m, r->st, name) == tensor;
            for (int w = 0; w < WRAPPED; w++)
                is = is || find_wrapped(r, name, w) == tensor;
        }
    return is;
}

/* The head's copy of a tied table, which PEFT writes beside it. */
static const safetensors_tensor *tied_copy(const reader *r)
{
    const param *table = block_param(r->m, &r->m->blocks[0], PARAM_TOKENS);
    return r->m->config.tied && table->whole ? weights_find_adapter(r->m, r->st, "lm_head.weight") : NULL;
}

static int read_whole_module(reader *r, const char *name)
{
    const bool is_head = (r->m->config.tied && !strcmp(name, "lm_head")) || (r->m->config.labels && !strcmp(name, "classifier"));
    if (r->m->config.tied && !json_is_true(json_object_get(r->config->object, "ensure_weight_tying")))
        return pt_fail(r->e, PT_FAILED, "%s: \"modules_to_save\" has \"%.60s\", which makes two tables of the model's one: protrain trains "
                                        "a tied table as one, with \"ensure_weight_tying\": true", r->config->where, name);
    if (!is_head && !adapter_mark_whole(r->m, name))
        return pt_fail(r->e, PT_FAILED,
                       "%s: \"modules_to_save\" names \"%.60s\", but only modules outside the layers can be trained in full here, and a %s "
                       "model has none of this name: merge the adapter into the base model with PEFT's merge_and_unload first",
                       r->config->where, name, r->m->config.model_type);
    return 0;
}

/* Counts the tensors of whole modules. */
static int claim_whole(reader *r)
{
    for (int i = 0; i < r->m->params_n; i++)
        for (int k = 0; k < r->m->params[i].parts && r->m->params[i].whole; k++) {
            const char *name = r->m->params[i].part[k].name;
            if (!weights_find_adapter(r->m, r->st, name))
                return pt_fail(r->e, PT_FAILED,
                               "%s: \"modules_to_save\" names the module of %.150s, but " ADAPTER_WEIGHTS " has no such tensor: the file "
                               "is incomplete, or of an adapter of another model; take another copy of both files", r->config->where, name);
            r->claimed++;
            for (int w = 0; w < WRAPPED; w++)
                r->claimed += find_wrapped(r, name, w) != NULL;
        }
    r->claimed += tied_copy(r) != NULL;
    return 0;
}

static int read_whole(reader *r)
{
    const json_t *names = json_object_get(r->config->object, "modules_to_save"), *entry;
    size_t i;
    int failed = 0;
    if (names && !json_is_null(names) && !json_is_array(names))
        return pt_fail(r->e, PT_FAILED, "%s: \"modules_to_save\" must be a list of names: correct it, or take another copy of the file",
                       r->config->where);
    json_array_foreach(names, i, entry) {
        if (!json_is_string(entry) || !*json_string_value(entry))
            return pt_fail(r->e, PT_FAILED, "%s: \"modules_to_save\" has an entry that is no name: correct it, or take another copy of the "
                                            "file", r->config->where);
        failed = failed ? failed : read_whole_module(r, json_string_value(entry));
    }
    return failed ? failed : claim_whole(r);
}

/* A tensor that belongs to no module. */
static int refuse_tensor(const reader *r)
{
    for (size_t i = 0; i < safetensors_count(r->st); i++) {
        const safetensors_tensor *tensor = safetensors_at(r->st, i);
        bool ours = is_whole_tensor(r, tensor) || tensor == tied_copy(r);
        for (int b = 1; b < r->m->blocks_n - 1 && !ours; b++)
            for (int k = 0; k < MODEL_MATRICES && !ours; k++) {
                const param *base = block_param(r->m, &r->m->blocks[b], adapter_base(k));
                for (int part = 0; part < adapter_parts(r->m, b, k) && !ours; part++) {
                    char module[MODEL_NAME];
                    adapter_owner_name(r->m, r->a, base, part, module);
                    ours = r->a->of[b - 1][k][part].rank &&
                           (find(r->m, r->st, module, "lora_A.weight") == tensor || find(r->m, r->st, module, "lora_B.weight") == tensor ||
                            (r->n.dora && find(r->m, r->st, module, "lora_magnitude_vector") == tensor));
                }
            }
        if (!ours && !r->n.dora && strstr(tensor->name, ".lora_magnitude_vector"))
            return pt_fail(r->e, PT_FAILED,
                           "%s: \"use_dora\" is false, but " ADAPTER_WEIGHTS " has magnitudes (\"%.150s\"): correct the key, or take "
                           "another copy of both files",
                           r->config->where, tensor->name);
        if (!ours)
            return pt_fail(r->e, PT_FAILED,
                           "%s: tensor \"%.150s\" belongs to no linear layer of a %s model with %lld layer%s: it is an adapter of "
                           "another model, or of a part that gets none here: the embedding, the head, or what reads images",
                           safetensors_path(r->st, tensor), tensor->name, r->m->config.model_type, (long long)r->m->config.layers,
                           plural((uint64_t)r->m->config.layers));
    }
    return 0;
}

static int read_modules(reader *r)
{
    int failed = read_parameters(r);
    r->naming = find_naming(r);
    for (int b = 1; b < r->m->blocks_n - 1; b++)
        for (int k = 0; k < MODEL_MATRICES; k++) {
            const param *base = block_param(r->m, &r->m->blocks[b], adapter_base(k));
            for (int part = 0; part < adapter_parts(r->m, b, k) && !failed; part++)
                failed = read_module(r, b - 1, k, base, part);
        }
    if (!failed)
        failed = read_whole(r);
    if (!failed && r->claimed != safetensors_count(r->st))
        failed = refuse_tensor(r);
    if (!failed && !r->claimed)
        failed = pt_fail(r->e, PT_FAILED, "%s: the folder has no tensor of an adapter: it is incomplete", r->config->where);
    if (!failed)
        failed = check_targets(r);
    return failed ? failed : tell_idle_patterns(r);
}

/* ---- the folder ---- */

static int open_weights(const char *folder, safetensors **st, pt_error *e)
{
    char path[FILE_PATH_BYTES], old[FILE_PATH_BYTES];
    int failed = path_join(path, folder, ADAPTER_WEIGHTS, e);
    if (!failed)
        failed = path_join(old, folder, "adapter_model.bin", e);
    if (!failed && !path_exists(path) && path_exists(old))
        return pt_fail(e, PT_FAILED, "%s: an old PEFT wrote this file, but " ADAPTER_WEIGHTS " is needed: load the adapter with PEFT and "
                                     "save it again", old);
    return failed ? failed : safetensors_open(path, st, e);
}

/* What an adapter's file says of the base beside it: rows of its vocabulary, and labels of a head that scores classes; 0: it has no such
 * table, or cannot be read, which is reported later. */
static model_changes changes_of(const model *m, const char *folder)
{
    enum { VOCAB_MOST = 1 << 24 };
    model_changes c = {0};
    safetensors *st = NULL;
    if (!path_is_folder(folder) || open_weights(folder, &st, NULL))
        return c;
    const safetensors_tensor *tensor = weights_find_adapter(m, st, block_param(m, &m->blocks[0], PARAM_TOKENS)->part[0].name);
    const safetensors_tensor *head = weights_find_adapter(m, st, SCORE_NAME);
    c.vocab = tensor && tensor->rank == 2 && tensor->shape[0] <= VOCAB_MOST ? tensor->shape[0] : 0;
    c.labels = head && head->rank == 2 && head->shape[0] <= MODEL_MAX_LABELS ? head->shape[0] : 0;
    safetensors_close(st);
    return c;
}

int model_open_beside(const char *path, const model_changes *c, const char *adapter, void (*notice)(void *, const char *), void *arg,
                      model **out, pt_error *e)
{
    int failed = model_open_changed(path, c, notice, arg, out, e);
    if (failed || !adapter)
        return failed;
    model_changes changes = changes_of(*out, adapter);
    if (changes.vocab <= (*out)->config.vocab && (!changes.labels || changes.labels == (*out)->config.labels))
        return 0;
    changes.rope_scaling = c->rope_scaling;
    changes.labels = changes.labels ? changes.labels : c->labels;
    model_close(*out);
    *out = NULL;
    return model_open_changed(path, &changes, NULL, NULL, out, e); /* notices were already given */
}

static int attach(model *m, reader *r, const json_source *src)
{
    r->a->dora = r->n.dora;
    r->a->config = json_deep_copy(src->object);
    const double dropout = r->n.dora ? 0 : r->n.dropout;
    const int failed = adapters_attach(m, r->a, r->e);
    if (!failed)
        adapter_set_dropout(m, dropout);
    return failed;
}

void adapter_set_dropout(model *m, double dropout)
{
    m->adapters->dropout = dropout;
    if (m->adapters->config)
        json_object_set_new(m->adapters->config, "lora_dropout", json_real(dropout));
}

int model_adapt_like(model *m, const char *folder, void (*notice)(void *, const char *), void *arg, pt_error *e)
{
    char path[FILE_PATH_BYTES];
    json_source src;
    if (!path_is_folder(folder))
        return hub_fail_model(folder, "`adapter` must be a folder with " ADAPTER_CONFIG " and " ADAPTER_WEIGHTS, e);
    int failed = base_mark_check(folder, e);
    if (!failed)
        failed = path_join(path, folder, ADAPTER_CONFIG, e);
    if (!failed && !path_exists(path))
        failed = pt_fail(e, PT_FAILED, "%.400s does not exist: `adapter` must be a folder with " ADAPTER_CONFIG " and " ADAPTER_WEIGHTS,
                         path);
    if (!failed)
        failed = json_source_open(&src, path, e);
    if (failed)
        return failed;
    safetensors *st = NULL;
    reader r = {.m = m, .config = &src, .notice = notice, .arg = arg, .e = e};
    failed = read_numbers(&src, notice, arg, &r.n, e);
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
            failed = attach(m, &r, &src);
    }
    safetensors_close(st);
    json_source_close(&src);
    return failed;
}

int model_adapt_from_json(model *m, const char *name, const char *json, size_t n, pt_error *e)
{
    json_source src;
    reader r = {.m = m, .config = &src, .e = e};
    int failed = json_source_text(&src, name, json, n, "an adapter's config", e);
    if (failed)
        return failed;
    failed = read_numbers(&src, NULL, NULL, &r.n, e);
    if (!failed)
        failed = adapters_new(m, &r.a, e);
    if (!failed)
        failed = read_parameters(&r);
    for (int layer = 0; layer < m->config.layers && !failed; layer++) {
        char module[MODEL_NAME];
        double rank = (double)r.n.rank, alpha = r.n.alpha;
        adapter_target target;
        const param *base = block_param(m, &m->blocks[layer + 1], PARAM_QKV);
        adapter_module_name(m, base, 0, module);
        failed = adapter_pattern_read(&src, "rank_pattern", module, &rank, e);
        if (!failed)
            failed = adapter_pattern_read(&src, "alpha_pattern", module, &alpha, e);
        if (!failed)
            failed = adapter_targets_find(&src, module, layer, &target, e);
        r.a->of[layer][0][0] = (adapter_module){rank < 1 ? 1 : (int)rank, (float)(alpha / rank)};
    }
    if (!failed)
        failed = attach(m, &r, &src);
    else
        adapters_free(r.a);
    json_source_close(&src);
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
