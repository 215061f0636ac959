/* config.c - config.json -> model_config.
 *
 * Transformers ignores keys that it does not know. Here a value that changes the computation is applied or refused. Three checks catch
 * what is not applied:
 *
 *   1. a key that is read is checked: type, range, known names (activation, rope type, dtype);
 *   2. a key that is not read, but has one of the `markers` in its name ("window", "scal", "quant", ...), must have its neutral value:
 *      null, false, empty, or the number without effect;
 *   3. tensors that the architecture does not know are refused when weights are read (weights.c).
 */
#include "model/config_reader.h"

#include "io/files.h"
#include "io/hub.h"
#include "io/safetensors.h"
#include "model/adapter.h"
#include "model/weights.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

const char *config_value_text(const json_t *value, char buffer[64])
{
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_ENSURE_ASCII);
    snprintf(buffer, 64, "%s", text ? text : json_type_name(value));
    free(text);
    return buffer;
}

bool config_key_present(const json_source *src, const char *key)
{
    const json_t *value = json_object_get(src->object, key);
    return value && !json_is_null(value);
}

/* A model of text and images: everything after this is read from its text_config. */
static int enter_text_part(config_reader *reader, const char **name)
{
    static const struct { const char *model_type, *text_type; bool tied; } wrappers[] = {
        {"gemma3", "gemma3_text", true}, {"mistral3", "mistral", true}, {"gemma4", "gemma4_text", true},
        {"qwen3_5", "qwen3_5_text", false}, {"qwen3_5_moe", "qwen3_5_moe_text", false}};
    for (size_t i = 0; i < sizeof wrappers / sizeof *wrappers; i++) {
        if (strcmp(wrappers[i].model_type, *name))
            continue;
        json_source text = {0};
        int status = json_get_object(&reader->source, "text_config", JSON_REQUIRED, &text, reader->e);
        if (status)
            return status;
        const json_t *tied = json_object_get(reader->source.object, "tie_word_embeddings"); /* the outer value counts */
        const bool by_default = wrappers[i].tied && !reader->untied;
        reader->tied_unsaid = !tied && wrappers[i].tied;
        if (json_object_set(text.object, "tie_word_embeddings", tied ? (json_t *)tied : json_boolean(by_default)))
            return pt_fail(reader->e, PT_FAILED, "out of memory");
        status = config_check_few_bits(reader);
        if (status)
            return status;
        reader->c->multimodal = true;
        reader->outer = reader->source.object;
        reader->source = text;
        *name = wrappers[i].text_type;
        return json_get_string(&reader->source, "model_type", JSON_OPTIONAL, name, reader->e);
    }
    return 0;
}

static int read_architecture(config_reader *reader)
{
    char known[512], text[64];
    const char *name = NULL;
    int status = json_get_string(&reader->source, "model_type", JSON_OPTIONAL, &name, reader->e);
    if (!status && name)
        status = enter_text_part(reader, &name);
    if (status)
        return status;
    if (name) {
        reader->a = architecture_find(name);
        if (!reader->a)
            return pt_fail(reader->e, PT_FAILED,
                           "%s: \"model_type\" is %s, which is not supported; supported are %s",
                           reader->source.where, config_value_text(json_object_get(reader->source.object, "model_type"), text),
                           architecture_list(known, sizeof known));
        return 0;
    }
    json_t *classes = NULL;
    status = json_get_array(&reader->source, "architectures", JSON_OPTIONAL, &classes, reader->e);
    if (status)
        return status;
    const json_t *class_name = json_array_get(classes, 0);
    reader->a = json_is_string(class_name) ? architecture_find_class(json_string_value(class_name)) : NULL;
    if (!reader->a)
        return pt_fail(reader->e, PT_FAILED, "%s: the key \"model_type\" is missing%s%s; add it, one of %s",
                       reader->source.where, class_name ? ", and \"architectures\" names an unknown " : "",
                       class_name ? config_value_text(class_name, text) : "",
                       architecture_list(known, sizeof known));
    return 0;
}

/* A size under its name or its alternative spelling; both may be given if they agree. */
int config_read_size(config_reader *reader, const config_key *key, int64_t max, int64_t *out)
{
    *out = key->value;
    int status = json_get_int(&reader->source, key->name, JSON_OPTIONAL, 1, max, out, reader->e);
    if (status || !key->alias || !config_key_present(&reader->source, key->alias))
        return status;
    int64_t other;
    status = json_get_int(&reader->source, key->alias, JSON_REQUIRED, 1, max, &other, reader->e);
    if (status)
        return status;
    if (config_key_present(&reader->source, key->name) && other != *out)
        return pt_fail(reader->e, PT_FAILED,
                       "%s: \"%s\" is %lld but \"%s\" is %lld, and they mean the same: remove one",
                       reader->source.where, key->name, (long long)*out, key->alias, (long long)other);
    *out = other;
    return 0;
}

static int read_heads(config_reader *reader)
{
    const architecture *arch = reader->a;
    model_config *config = reader->c;
    const char *where = reader->source.where;
    int status = config_read_size(reader, &arch->heads, MAX_HEADS, &config->heads);
    config->kv_heads = config->head_dim = -1;
    if (!status && arch->kv_heads.name)
        status = config_read_size(reader, &arch->kv_heads, MAX_HEADS, &config->kv_heads);
    if (!status && arch->head_dim.name)
        status = config_read_size(reader, &arch->head_dim, MAX_HEAD_DIM, &config->head_dim);
    if (status)
        return status;
    if (arch->head_dim.name && json_is_null(json_object_get(reader->source.object, arch->head_dim.name)))
        config->head_dim = -1;
    if (config->kv_heads < 0 ||
        (arch->kv_heads_null_is_heads && json_is_null(json_object_get(reader->source.object, arch->kv_heads.name))))
        config->kv_heads = config->heads;
    if (config->heads % config->kv_heads)
        return pt_fail(reader->e, PT_FAILED, "%s: \"%s\" is %lld, which is not a multiple of \"%s\" %lld%s", where,
                       arch->heads.name, (long long)config->heads, arch->kv_heads.name, (long long)config->kv_heads,
                       config_key_present(&reader->source, arch->kv_heads.name) ? "" : " (the default; add the key)");
    if (arch->kv_latent.name) {
        status = config_read_latents(reader);
        if (status)
            return status;
    }
    if (config->head_dim < 0) {
        if (config->hidden % config->heads)
            return pt_fail(reader->e, PT_FAILED,
                           "%s: \"%s\" is %lld, which is not a multiple of \"%s\" %lld: correct one of them",
                           where, arch->hidden.name, (long long)config->hidden, arch->heads.name, (long long)config->heads);
        config->head_dim = config->hidden / config->heads;
    }
    if (config->head_dim > MAX_HEAD_DIM)
        return pt_fail(reader->e, PT_FAILED, "%s: \"%s\" %lld gives heads of %lld elements, but at most %d are supported: raise it", where,
                       arch->heads.name, (long long)config->heads, (long long)config->head_dim, MAX_HEAD_DIM);
    return 0;
}

static int read_sizes(config_reader *reader)
{
    const architecture *arch = reader->a;
    model_config *config = reader->c;
    int status = config_read_size(reader, &arch->hidden, MAX_WIDTH, &config->hidden);
    if (!status)
        status = config_read_size(reader, &arch->layers, MODEL_MAX_LAYERS, &config->layers);
    if (!status && arch->one_branch)
        status = config_count_branches(reader);
    if (!status)
        status = config_read_size(reader, &arch->ffn, 64 * MAX_WIDTH, &config->ffn);
    if (!status)
        status = config_read_size(reader, &arch->positions, MAX_POSITIONS, &config->max_positions);
    if (!status)
        status = config_read_size(reader, &arch->vocab, MAX_VOCAB, &config->vocab);
    if (!status)
        status = read_heads(reader);
    if (config->ffn < 0)
        config->ffn = 4 * config->hidden;
    config->position_offset = arch->position_offset;
    int64_t width = config->hidden;
    if (!status && arch->width_key)
        status = json_get_int(&reader->source, arch->width_key, JSON_OPTIONAL, 1, MAX_WIDTH, &width, reader->e);
    if (!status && width != config->hidden)
        status = pt_fail(reader->e, PT_FAILED, "%s: \"%s\" is %lld, but embeddings of another width than \"%s\" %lld are not supported",
                         reader->source.where, arch->width_key, (long long)width, arch->hidden.name, (long long)config->hidden);
    return status;
}

static int read_activation(config_reader *reader)
{
    static const struct {
        const char *name;
        activation_kind kind;
    } known[] = {
        {"gelu_new", ACT_GELU_TANH},  {"gelu_pytorch_tanh", ACT_GELU_TANH}, {"gelu_python_tanh", ACT_GELU_TANH},
        {"gelu_fast", ACT_GELU_TANH}, {"gelu_accurate", ACT_GELU_TANH},     {"gelu", ACT_GELU_ERF},
        {"silu", ACT_SILU},           {"gelu_python", ACT_GELU_ERF},        {"swish", ACT_SILU},
        {"relu", ACT_RELU},           {"relu2", ACT_RELU2},
    };
    const char *name = reader->a->activation;
    int status =
        reader->a->activation_key ? json_get_string(&reader->source, reader->a->activation_key, JSON_OPTIONAL, &name, reader->e) : 0;
    if (status)
        return status;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (!strcmp(known[i].name, name)) {
            reader->c->activation = reader->a->gelu_is_tanh && known[i].kind == ACT_GELU_ERF ? ACT_GELU_TANH : known[i].kind;
            return 0;
        }
    char text[64];
    return pt_fail(reader->e, PT_FAILED,
                   "%s: \"%s\" is %s, which is not supported; supported are gelu_new, gelu_pytorch_tanh, "
                   "gelu_fast, gelu_accurate, gelu, silu, swish, relu, relu2",
                   reader->source.where, reader->a->activation_key,
                   config_value_text(json_object_get(reader->source.object, reader->a->activation_key), text));
}

static int read_flag(config_reader *reader, const config_flag *f, bool *out)
{
    *out = f->value;
    return f->name ? json_get_bool(&reader->source, f->name, JSON_OPTIONAL, out, reader->e) : 0;
}

/* A number of the architecture; null has the value `null`. */
int config_read_number(config_reader *reader, const config_number *n, double min, double null, float *out)
{
    double value = n->value;
    if (!n->name)
        return 0;
    if (json_is_null(json_object_get(reader->source.object, n->name)))
        value = null;
    int status = json_get_double(&reader->source, n->name, JSON_OPTIONAL, min, 1e6, &value, reader->e);
    *out = (float)value;
    return status;
}

/* Factors and soft caps. */
static int read_scales(config_reader *reader)
{
    const architecture *arch = reader->a;
    model_config *config = reader->c;
    float divisor = 1;
    const double least = 1e-6;
    config->embedding_scale = arch->embedding_by_width ? (float)sqrt((double)config->hidden) : 1;
    config->residual_scale = config->logit_scale = 1;
    config->factor = (model_factors){1, 1, 1, 1, 1, 1, {1, 1, 1, 1, 1}};
    int status = config_read_number(reader, &arch->embedding_scale, least, 1, &config->embedding_scale);
    if (!status)
        status = config_read_number(reader, &arch->residual_scale, least, 1, &config->residual_scale);
    if (!status)
        status = config_read_number(reader, &arch->logit_scale, least, 1, &config->logit_scale);
    if (!status)
        status = config_read_number(reader, &arch->logit_divisor, least, 1, &divisor);
    if (!status)
        status = config_read_number(reader, &arch->score_softcap, 0, 0, &config->attention_softcap);
    if (!status)
        status = config_read_number(reader, &arch->logit_softcap, 0, 0, &config->logit_softcap);
    config->logit_scale /= divisor;
    if (config->multimodal && arch->softcap_alone)
        config->logit_softcap = 0;
    if (!status && config->residual_scale != 1 && (config->out_bias || config->mlp_bias))
        status = pt_fail(reader->e, PT_FAILED, "%s: \"%s\" %g together with biases of the projections that it scales is not supported",
                         reader->source.where, arch->residual_scale.name, (double)config->residual_scale);
    return status;
}

/* A key whose default is true: null is false, as in Transformers. */
static int read_truth(config_reader *reader, const char *key, bool *out)
{
    if (json_is_null(json_object_get(reader->source.object, key)))
        *out = false;
    return json_get_bool(&reader->source, key, JSON_OPTIONAL, out, reader->e);
}

static int read_attention_scale(config_reader *reader)
{
    bool scaled = true, by_layer = false;
    int status = 0;
    if (reader->a->scale_keys)
        status = read_truth(reader, "scale_attn_weights", &scaled);
    if (!status && reader->a->scale_keys)
        status = json_get_bool(&reader->source, "scale_attn_by_inverse_layer_idx", JSON_OPTIONAL, &by_layer, reader->e);
    float scalar = (float)reader->c->head_dim;
    if (!status)
        status = config_read_number(reader, &reader->a->score_scalar, 1e-6, reader->a->score_scalar.value, &scalar);
    reader->c->attention_scale = scaled && !reader->a->scores_unscaled ? (float)(1 / sqrt((double)scalar)) : 1;
    if (!status)
        status = config_read_number(reader, &reader->a->score_scale, 1e-6, reader->a->score_scale.value, &reader->c->attention_scale);
    for (int i = 0; i < reader->c->layers; i++)
        reader->c->layer_scale[i] = by_layer ? (float)(1.0 / (i + 1)) : 1;
    return status;
}

static int read_flags(config_reader *reader)
{
    const architecture *arch = reader->a;
    model_config *config = reader->c;
    config->norm = arch->norm;
    config->norm_bias = arch->norm == NORM_LAYER && !arch->norm_unbiased;
    config->parallel = config->one_norm = arch->one_norm;
    config->position = arch->position;
    config->rope_neighbours = arch->rope_neighbours;
    config->gated = arch->gated;
    config->norm_offset = arch->norm_from_one;
    config->pre_norm = arch->norms != NORM_AFTER;
    config->post_norm = arch->norms != NORM_BEFORE;
    bool qk_norm = true;
    config->tied = arch->tied;
    config->sinks = arch->sinks;
    double eps = arch->eps;
    config->initializer_range = arch->init > 0 ? arch->init : 0.02;
    int status = arch->eps_key ? json_get_double(&reader->source, arch->eps_key, JSON_OPTIONAL, 0, 1, &eps, reader->e) : 0;
    config->norm_eps = (float)eps;
    if (!status && arch->parallel_key) {
        config->parallel = true;
        status = read_truth(reader, "use_parallel_residual", &config->parallel);
    }
    if (!status)
        status = read_flag(reader, &arch->qkv_bias, &config->qkv_bias);
    if (!status)
        status = read_flag(reader, &arch->out_bias, &config->out_bias);
    if (!status)
        status = read_flag(reader, &arch->mlp_bias, &config->mlp_bias);
    if (!status && arch->qk_norm_flag.name)
        status = read_flag(reader, &arch->qk_norm_flag, &qk_norm);
    config->qk_norm = qk_norm ? arch->qk_norm : QK_NORM_NONE;
    if (!status)
        status = read_truth(reader, "tie_word_embeddings", &config->tied);
    if (!status && arch->kv_latent.name)
        status = read_truth(reader, "rope_interleave", &config->rope_neighbours);
    if (!status && arch->tied_key)
        status = json_get_bool(&reader->source, arch->tied_key, JSON_OPTIONAL, &config->tied, reader->e);
    if (!status && arch->init_key)
        status = json_get_double(&reader->source, arch->init_key, JSON_OPTIONAL, 0, 1, &config->initializer_range, reader->e);
    if (!status)
        status = json_get_double(&reader->source, "initializer_range", JSON_OPTIONAL, 0, 1, &config->initializer_range, reader->e);
    return status;
}

/* An id, or the first of a list of ids. An id outside the vocabulary can never occur: -1. `from_end`: negative ids count from the
 * vocabulary's end, as for the padding row of PyTorch's embedding. */
/* A model without it can be trained; a note says so. The padding's row depends on it. */
static int note_token_id(const config_reader *reader, const char *key, const json_t *value)
{
    char text[64], sentence[640];
    if (!value || json_is_null(value) || json_is_integer(value) || !strcmp(key, "pad_token_id"))
        return 0;
    snprintf(sentence, sizeof sentence, "%s: \"%s\" is %s, which is not a token id: it is ignored", reader->source.where, key,
             config_value_text(value, text));
    if (reader->notice)
        reader->notice(reader->arg, sentence);
    return 1;
}

/* The default id of an architecture is often beyond a smaller vocabulary. */
static int read_token_id(config_reader *reader, const config_key *key, bool from_end, int64_t *out)
{
    json_source first = reader->source;
    json_t *value = json_object_get(reader->source.object, key->name), *wrapped = NULL;
    int64_t id = key->value;
    int status = 0;
    if (json_is_array(value)) {
        wrapped = json_pack("{s:O?}", key->name, json_array_get(value, 0));
        first.object = wrapped;
        id = -1;
    }
    if (note_token_id(reader, key->name, json_object_get(first.object, key->name)))
        id = -1;
    else
        status = json_get_int(&first, key->name, JSON_OPTIONAL, INT64_MIN, INT64_MAX, &id, reader->e);
    json_decref(wrapped);
    if (value && json_is_null(value))
        id = -1;
    else if (json_is_number(value) && from_end && id < 0)
        id += reader->c->vocab;
    *out = id >= 0 && id < reader->c->vocab ? id : -1;
    return status;
}

static int read_ids(config_reader *reader)
{
    const config_key pad = {"pad_token_id", NULL, reader->a->padding};
    int status = read_token_id(reader, &reader->a->bos, false, &reader->c->bos);
    if (!status)
        status = read_token_id(reader, &reader->a->eos, false, &reader->c->eos);
    reader->c->padding = -1;
    if (!status && reader->a->padding_row)
        status = read_token_id(reader, &pad, true, &reader->c->padding);
    return status;
}

static int read_stored_type(config_reader *reader)
{
    static const struct {
        const char *name;
        pt_dtype type;
    } known[] = {{"float32", PT_F32}, {"bfloat16", PT_BF16}, {"float16", PT_F16},
                 {"float", PT_F32},   {"half", PT_F16},      {"auto", PT_F32},
                 {"float64", PT_F32}, {"double", PT_F32}}; /* read, and computed in a smaller type */
    json_source source = reader->source;
    if (reader->outer && (json_object_get(reader->outer, "dtype") || json_object_get(reader->outer, "torch_dtype")))
        source.object = reader->outer;
    const char *key = config_key_present(&source, "dtype") ? "dtype" : "torch_dtype", *name = "float32";
    int status = json_get_string(&source, key, JSON_OPTIONAL, &name, reader->e);
    if (status)
        return status;
    const char *bare = strncmp(name, "torch.", 6) ? name : name + 6;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (!strcmp(known[i].name, bare)) {
            reader->c->stored_type = known[i].type;
            return 0;
        }
    char text[64];
    return pt_fail(reader->e, PT_FAILED,
                   "%s: \"%s\" is %s, which is not supported; supported are float32, bfloat16, float16",
                   source.where, key, config_value_text(json_object_get(source.object, key), text));
}

static int scale_rope(config_reader *reader)
{
    if (reader->a->rope == ROPE_RULE_NONE)
        return pt_fail(reader->e, PT_FAILED, "%s: a %s model has no rotary positions: `rope_scaling` cannot extend it",
                       reader->source.where, reader->a->model_type);
    if (reader->a->rope == ROPE_RULE_QUERY)
        return pt_fail(reader->e, PT_FAILED, "%s: a %s model scales its queries with the position: change its rope in the file, not by "
                       "`rope_scaling`", reader->source.where, reader->a->model_type);
    return model_scale_rope(reader->source.object, reader->source.where, reader->changes.rope_scaling, reader->e);
}

/* The labels of a model that scores classes; 0: it predicts tokens. */
static int count_labels(config_reader *reader, int64_t *n)
{
    const json_t *class_name = json_array_get(json_object_get(reader->source.object, "architectures"), 0);
    const json_t *names = json_object_get(reader->source.object, "id2label");
    *n = 0;
    if (!json_is_string(class_name) || !architecture_scores(json_string_value(class_name)))
        return 0;
    *n = 2; /* the default of Transformers */
    if (json_is_object(names)) {
        *n = (int64_t)json_object_size(names);
        if (*n > 0 && *n <= MODEL_MAX_LABELS)
            return 0;
        return pt_fail(reader->e, PT_FAILED, "%s: \"id2label\" has %lld labels, but must have from 1 to %d", reader->source.where,
                       (long long)*n, MODEL_MAX_LABELS);
    }
    return json_get_int(&reader->source, "num_labels", JSON_OPTIONAL, 1, MODEL_MAX_LABELS, n, reader->e);
}

/* Without what scales or caps the logits of tokens. */
static int read_labels(config_reader *reader)
{
    model_config *config = reader->c;
    int64_t stored;
    int failed = count_labels(reader, &stored);
    config->labels = reader->changes.labels ? reader->changes.labels : stored;
    if (failed || !config->labels)
        return failed;
    if (stored && config->labels != stored)
        return pt_fail(reader->e, PT_FAILED,
                       "%s: the model's head has %lld label%s, but %lld %s needed: give a model without such a head, or "
                       "data with its labels",
                       reader->source.where, (long long)stored, stored == 1 ? "" : "s", (long long)config->labels,
                       config->labels == 1 ? "is" : "are");
    if (reader->outer || !architecture_scorer(config->model_type))
        return pt_fail(reader->e, PT_FAILED,
                       "%s: Transformers has no sequence classification for this model (%s): `task` reward and classify "
                       "need a model of text that has",
                       reader->source.where, config->model_type);
    config->tied = false;
    config->logit_scale = 1;
    config->logit_softcap = 0;
    return 0;
}

static int widen(config_reader *reader)
{
    model_config *config = reader->c;
    if (reader->changes.vocab <= config->vocab)
        return 0;
    if (config->input_width)
        return pt_fail(reader->e, PT_FAILED,
                       "%s: a %s model has a second table of the vocabulary for its layers: it cannot take new tokens",
                       reader->source.where, reader->a->model_type);
    config->stored_vocab = config->vocab;
    config->vocab = reader->changes.vocab;
    return 0;
}

void model_set_vocab(json_t *config, const model_config *c)
{
    const config_key *key = &architecture_find(c->model_type)->vocab;
    if (key->alias && json_object_get(config, key->alias))
        json_object_set_new(config, key->alias, json_integer((json_int_t)c->vocab));
    if (!key->alias || !json_object_get(config, key->alias) || json_object_get(config, key->name))
        json_object_set_new(config, key->name, json_integer((json_int_t)c->vocab));
}

static int config_read(config_reader *reader)
{
    int status = read_architecture(reader);
    if (status)
        return status;
    snprintf(reader->c->model_type, sizeof reader->c->model_type, "%s", reader->a->model_type);
    if (reader->changes.rope_scaling && reader->changes.rope_scaling[0]) {
        snprintf(reader->c->rope_scaling, sizeof reader->c->rope_scaling, "%s", reader->changes.rope_scaling);
        status = scale_rope(reader);
        if (status)
            return status;
    }
    int (*const steps[])(config_reader *) = {
        read_sizes, read_activation, read_flags, read_attention_scale, read_scales, config_read_mixers, config_read_windows,
        config_read_heads, config_read_ropes, config_read_mixer_sizes, read_ids, read_stored_type, config_check_fixed_keys,
        config_check_other_keys, config_read_experts, config_read_dropout, read_labels};
    for (size_t i = 0; i < sizeof steps / sizeof steps[0] && !status; i++)
        status = steps[i](reader);
    return status ? status : widen(reader);
}

static int model_from_source(config_reader *reader, model **out)
{
    model *m = calloc(1, sizeof *m);
    if (!m)
        return pt_fail(reader->e, PT_FAILED, "%s: no memory for the model's description", reader->source.where);
    reader->c = &m->config;
    int status = config_read(reader);
    if (!status)
        status = params_build(m, reader->a, reader->source.where, reader->e);
    if (status)
        model_close(m);
    else
        *out = m;
    return status;
}

static int model_from_file(config_reader *reader, const char *file, model **out)
{
    int status = json_source_open(&reader->source, file, reader->e);
    if (status)
        return status;
    status = model_from_source(reader, out);
    if (reader->outer)
        reader->source.object = reader->outer;
    json_source_close(&reader->source);
    return status;
}

/* What config.json does not say about the weights beside it. As in Transformers: if the config of a model of text and images does not say
 * whether its tables are tied, and two different ones are stored, they are not tied. */
static void look_at_weights(const model *m, const char *folder, const config_reader *reader, bool *two_tables, bool *fused)
{
    safetensors *st;
    *two_tables = *fused = false;
    if ((!reader->tied_unsaid && !m->config.experts) || !weights_present(folder) || safetensors_open(folder, &st, NULL))
        return; /* errors are reported where they are read */
    *two_tables = reader->tied_unsaid && weights_have_two_tables(m, st);
    *fused = m->config.experts && weights_fuse_experts(m, st);
    safetensors_close(st);
}

/* The error for a folder without config.json. */
static int refuse_folder(const char *path, pt_error *e)
{
    char file[FILE_PATH_BYTES];
    const int reason = errno;
    if (!path_join(file, path, ADAPTER_CONFIG, NULL) && path_exists(file))
        return pt_fail(e, PT_FAILED, "%.300s: holds an adapter and no model: give it by `adapter` beside its `model`, or merge both first, "
                       "by protrain merge --model DIR --adapter %.300s --out MERGED", path, path);
    errno = reason;
    return pt_fail_errno(e, PT_FAILED, "%.400s: a model's folder needs a config.json, but it cannot be opened", path);
}

int model_open(const char *path, void (*notice)(void *, const char *), void *arg, model **out, pt_error *e)
{
    return model_open_changed(path, &(model_changes){0}, notice, arg, out, e);
}

int model_open_changed(const char *path, const model_changes *c, void (*notice)(void *, const char *), void *arg, model **out, pt_error *e)
{
    config_reader reader = {.notice = notice, .arg = arg, .e = e, .changes = *c};
    char file[4096];
    struct stat st;
    *out = NULL;
    bool folder = !stat(path, &st) && S_ISDIR(st.st_mode);
    int n = (int)strnlen(path, sizeof file);
    while (n > 1 && path[n - 1] == '/')
        n--;
    if (snprintf(file, sizeof file, "%.*s%s", n, path, folder ? "/config.json" : "") >= (int)sizeof file)
        return pt_fail(e, PT_FAILED, "%.200s...: the path is too long", path);
    if (folder && stat(file, &st))
        return refuse_folder(path, e);
    if (!folder && hub_is_name(path) && !path_exists(path))
        return hub_fail_model(path, "a model's folder or its config.json is needed", e);
    if (!folder && stat(file, &st))
        return pt_fail_errno(e, PT_FAILED, "%.400s: a model's folder or its config.json is needed, but it cannot be opened", path);
    int status = model_from_file(&reader, file, out);
    bool two_tables, fused;
    if (status || !folder)
        return status;
    look_at_weights(*out, path, &reader, &two_tables, &fused);
    if (!two_tables && !fused)
        return 0;
    model_close(*out);
    *out = NULL;
    config_reader again = {.e = e, .untied = two_tables, .fused = fused, .changes = *c}; /* notices were already given */
    return model_from_file(&again, file, out);
}

int model_from_json(const char *name, const char *json, size_t n, void (*notice)(void *, const char *),
                    void *arg, model **out, pt_error *e)
{
    config_reader reader = {.notice = notice, .arg = arg, .e = e};
    *out = NULL;
    snprintf(reader.source.where, sizeof reader.source.where, "%s", name);
    int status = json_text_load(name, json, n, 0, &reader.source.object, e);
    if (status)
        return status;
    if (!json_is_object(reader.source.object))
        status = pt_fail(e, PT_FAILED, "%.400s: holds %s, but an object { ... } is needed", name,
                         json_type_name(reader.source.object));
    else
        status = model_from_source(&reader, out);
    if (reader.outer)
        reader.source.object = reader.outer;
    json_source_close(&reader.source);
    return status;
}
