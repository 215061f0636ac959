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

bool config_key_present(const json_source *s, const char *key)
{
    const json_t *value = json_object_get(s->object, key);
    return value && !json_is_null(value);
}

/* A model of text and images: everything after this is read from its text_config. */
static int enter_text_part(config_reader *r, const char **name)
{
    static const struct { const char *model_type, *text_type; bool tied; } wrappers[] = {
        {"gemma3", "gemma3_text", true}, {"mistral3", "mistral", true}, {"gemma4", "gemma4_text", true},
        {"qwen3_5", "qwen3_5_text", false}, {"qwen3_5_moe", "qwen3_5_moe_text", false}};
    for (size_t i = 0; i < sizeof wrappers / sizeof *wrappers; i++) {
        if (strcmp(wrappers[i].model_type, *name))
            continue;
        json_source text = {0};
        int status = json_get_object(&r->source, "text_config", JSON_REQUIRED, &text, r->e);
        if (status)
            return status;
        const json_t *tied = json_object_get(r->source.object, "tie_word_embeddings"); /* the outer value counts */
        const bool by_default = wrappers[i].tied && !r->untied;
        r->tied_unsaid = !tied && wrappers[i].tied;
        if (json_object_set(text.object, "tie_word_embeddings", tied ? (json_t *)tied : json_boolean(by_default)))
            return pt_fail(r->e, PT_FAILED, "out of memory");
        status = config_check_few_bits(r);
        if (status)
            return status;
        r->c->multimodal = true;
        r->outer = r->source.object;
        r->source = text;
        *name = wrappers[i].text_type;
        return json_get_string(&r->source, "model_type", JSON_OPTIONAL, name, r->e);
    }
    return 0;
}

static int read_architecture(config_reader *r)
{
    char known[512], text[64];
    const char *name = NULL;
    int status = json_get_string(&r->source, "model_type", JSON_OPTIONAL, &name, r->e);
    if (!status && name)
        status = enter_text_part(r, &name);
    if (status)
        return status;
    if (name) {
        r->a = architecture_find(name);
        if (!r->a)
            return pt_fail(r->e, PT_FAILED,
                           "%s: \"model_type\" is %s, which is not supported; supported are %s",
                           r->source.where, config_value_text(json_object_get(r->source.object, "model_type"), text),
                           architecture_list(known, sizeof known));
        return 0;
    }
    json_t *classes = NULL;
    status = json_get_array(&r->source, "architectures", JSON_OPTIONAL, &classes, r->e);
    if (status)
        return status;
    const json_t *class_name = json_array_get(classes, 0);
    r->a = json_is_string(class_name) ? architecture_find_class(json_string_value(class_name)) : NULL;
    if (!r->a)
        return pt_fail(r->e, PT_FAILED, "%s: the key \"model_type\" is missing%s%s; add it, one of %s",
                       r->source.where, class_name ? ", and \"architectures\" names an unknown " : "",
                       class_name ? config_value_text(class_name, text) : "",
                       architecture_list(known, sizeof known));
    return 0;
}

/* A size under its name or its alternative spelling; both may be given if they agree. */
int config_read_size(config_reader *r, const config_key *key, int64_t max, int64_t *out)
{
    *out = key->value;
    int status = json_get_int(&r->source, key->name, JSON_OPTIONAL, 1, max, out, r->e);
    if (status || !key->alias || !config_key_present(&r->source, key->alias))
        return status;
    int64_t other;
    status = json_get_int(&r->source, key->alias, JSON_REQUIRED, 1, max, &other, r->e);
    if (status)
        return status;
    if (config_key_present(&r->source, key->name) && other != *out)
        return pt_fail(r->e, PT_FAILED,
                       "%s: \"%s\" is %lld but \"%s\" is %lld, and they mean the same: remove one",
                       r->source.where, key->name, (long long)*out, key->alias, (long long)other);
    *out = other;
    return 0;
}

static int read_heads(config_reader *r)
{
    const architecture *a = r->a;
    model_config *c = r->c;
    const char *where = r->source.where;
    int status = config_read_size(r, &a->heads, MAX_HEADS, &c->heads);
    c->kv_heads = c->head_dim = -1;
    if (!status && a->kv_heads.name)
        status = config_read_size(r, &a->kv_heads, MAX_HEADS, &c->kv_heads);
    if (!status && a->head_dim.name)
        status = config_read_size(r, &a->head_dim, MAX_HEAD_DIM, &c->head_dim);
    if (status)
        return status;
    if (a->head_dim.name && json_is_null(json_object_get(r->source.object, a->head_dim.name)))
        c->head_dim = -1;
    if (c->kv_heads < 0 ||
        (a->kv_heads_null_is_heads && json_is_null(json_object_get(r->source.object, a->kv_heads.name))))
        c->kv_heads = c->heads;
    if (c->heads % c->kv_heads)
        return pt_fail(r->e, PT_FAILED, "%s: \"%s\" is %lld, which is not a multiple of \"%s\" %lld%s", where,
                       a->heads.name, (long long)c->heads, a->kv_heads.name, (long long)c->kv_heads,
                       config_key_present(&r->source, a->kv_heads.name) ? "" : " (the default; add the key)");
    if (a->kv_latent.name) {
        status = config_read_latents(r);
        if (status)
            return status;
    }
    if (c->head_dim < 0) {
        if (c->hidden % c->heads)
            return pt_fail(r->e, PT_FAILED,
                           "%s: \"%s\" is %lld, which is not a multiple of \"%s\" %lld: correct one of them",
                           where, a->hidden.name, (long long)c->hidden, a->heads.name, (long long)c->heads);
        c->head_dim = c->hidden / c->heads;
    }
    if (c->head_dim > MAX_HEAD_DIM)
        return pt_fail(r->e, PT_FAILED, "%s: \"%s\" %lld gives heads of %lld elements, but at most %d are supported: raise it", where,
                       a->heads.name, (long long)c->heads, (long long)c->head_dim, MAX_HEAD_DIM);
    return 0;
}

static int read_sizes(config_reader *r)
{
    const architecture *a = r->a;
    model_config *c = r->c;
    int status = config_read_size(r, &a->hidden, MAX_WIDTH, &c->hidden);
    if (!status)
        status = config_read_size(r, &a->layers, MODEL_MAX_LAYERS, &c->layers);
    if (!status && a->one_branch)
        status = config_count_branches(r);
    if (!status)
        status = config_read_size(r, &a->ffn, 64 * MAX_WIDTH, &c->ffn);
    if (!status)
        status = config_read_size(r, &a->positions, MAX_POSITIONS, &c->max_positions);
    if (!status)
        status = config_read_size(r, &a->vocab, MAX_VOCAB, &c->vocab);
    if (!status)
        status = read_heads(r);
    if (c->ffn < 0)
        c->ffn = 4 * c->hidden;
    c->position_offset = a->position_offset;
    int64_t width = c->hidden;
    if (!status && a->width_key)
        status = json_get_int(&r->source, a->width_key, JSON_OPTIONAL, 1, MAX_WIDTH, &width, r->e);
    if (!status && width != c->hidden)
        status = pt_fail(r->e, PT_FAILED, "%s: \"%s\" is %lld, but embeddings of another width than \"%s\" %lld are not supported",
                         r->source.where, a->width_key, (long long)width, a->hidden.name, (long long)c->hidden);
    return status;
}

static int read_activation(config_reader *r)
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
    const char *name = r->a->activation;
    int status = r->a->activation_key ? json_get_string(&r->source, r->a->activation_key, JSON_OPTIONAL, &name, r->e) : 0;
    if (status)
        return status;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (!strcmp(known[i].name, name)) {
            r->c->activation = r->a->gelu_is_tanh && known[i].kind == ACT_GELU_ERF ? ACT_GELU_TANH : known[i].kind;
            return 0;
        }
    char text[64];
    return pt_fail(r->e, PT_FAILED,
                   "%s: \"%s\" is %s, which is not supported; supported are gelu_new, gelu_pytorch_tanh, "
                   "gelu_fast, gelu_accurate, gelu, silu, swish, relu, relu2",
                   r->source.where, r->a->activation_key,
                   config_value_text(json_object_get(r->source.object, r->a->activation_key), text));
}

static int read_flag(config_reader *r, const config_flag *f, bool *out)
{
    *out = f->value;
    return f->name ? json_get_bool(&r->source, f->name, JSON_OPTIONAL, out, r->e) : 0;
}

/* A number of the architecture; null has the value `null`. */
int config_read_number(config_reader *r, const config_number *n, double min, double null, float *out)
{
    double value = n->value;
    if (!n->name)
        return 0;
    if (json_is_null(json_object_get(r->source.object, n->name)))
        value = null;
    int status = json_get_double(&r->source, n->name, JSON_OPTIONAL, min, 1e6, &value, r->e);
    *out = (float)value;
    return status;
}

/* Factors and soft caps. */
static int read_scales(config_reader *r)
{
    const architecture *a = r->a;
    model_config *c = r->c;
    float divisor = 1;
    const double least = 1e-6;
    c->embedding_scale = a->embedding_by_width ? (float)sqrt((double)c->hidden) : 1;
    c->residual_scale = c->logit_scale = 1;
    c->factor = (model_factors){1, 1, 1, 1, 1, 1, {1, 1, 1, 1, 1}};
    int status = config_read_number(r, &a->embedding_scale, least, 1, &c->embedding_scale);
    if (!status)
        status = config_read_number(r, &a->residual_scale, least, 1, &c->residual_scale);
    if (!status)
        status = config_read_number(r, &a->logit_scale, least, 1, &c->logit_scale);
    if (!status)
        status = config_read_number(r, &a->logit_divisor, least, 1, &divisor);
    if (!status)
        status = config_read_number(r, &a->score_softcap, 0, 0, &c->attention_softcap);
    if (!status)
        status = config_read_number(r, &a->logit_softcap, 0, 0, &c->logit_softcap);
    c->logit_scale /= divisor;
    if (c->multimodal && a->softcap_alone)
        c->logit_softcap = 0;
    if (!status && c->residual_scale != 1 && (c->out_bias || c->mlp_bias))
        status = pt_fail(r->e, PT_FAILED, "%s: \"%s\" %g together with biases of the projections that it scales is not supported",
                         r->source.where, a->residual_scale.name, (double)c->residual_scale);
    return status;
}

/* A key whose default is true: null is false, as in Transformers. */
static int read_truth(config_reader *r, const char *key, bool *out)
{
    if (json_is_null(json_object_get(r->source.object, key)))
        *out = false;
    return json_get_bool(&r->source, key, JSON_OPTIONAL, out, r->e);
}

static int read_attention_scale(config_reader *r)
{
    bool scaled = true, by_layer = false;
    int status = 0;
    if (r->a->scale_keys)
        status = read_truth(r, "scale_attn_weights", &scaled);
    if (!status && r->a->scale_keys)
        status = json_get_bool(&r->source, "scale_attn_by_inverse_layer_idx", JSON_OPTIONAL, &by_layer, r->e);
    float scalar = (float)r->c->head_dim;
    if (!status)
        status = config_read_number(r, &r->a->score_scalar, 1e-6, r->a->score_scalar.value, &scalar);
    r->c->attention_scale = scaled && !r->a->scores_unscaled ? (float)(1 / sqrt((double)scalar)) : 1;
    if (!status)
        status = config_read_number(r, &r->a->score_scale, 1e-6, r->a->score_scale.value, &r->c->attention_scale);
    for (int i = 0; i < r->c->layers; i++)
        r->c->layer_scale[i] = by_layer ? (float)(1.0 / (i + 1)) : 1;
    return status;
}

static int read_flags(config_reader *r)
{
    const architecture *a = r->a;
    model_config *c = r->c;
    c->norm = a->norm;
    c->norm_bias = a->norm == NORM_LAYER && !a->norm_unbiased;
    c->parallel = c->one_norm = a->one_norm;
    c->position = a->position;
    c->rope_neighbours = a->rope_neighbours;
    c->gated = a->gated;
    c->norm_offset = a->norm_from_one;
    c->pre_norm = a->norms != NORM_AFTER;
    c->post_norm = a->norms != NORM_BEFORE;
    bool qk_norm = true;
    c->tied = a->tied;
    c->sinks = a->sinks;
    double eps = a->eps;
    c->initializer_range = a->init > 0 ? a->init : 0.02;
    int status = a->eps_key ? json_get_double(&r->source, a->eps_key, JSON_OPTIONAL, 0, 1, &eps, r->e) : 0;
    c->norm_eps = (float)eps;
    if (!status && a->parallel_key) {
        c->parallel = true;
        status = read_truth(r, "use_parallel_residual", &c->parallel);
    }
    if (!status)
        status = read_flag(r, &a->qkv_bias, &c->qkv_bias);
    if (!status)
        status = read_flag(r, &a->out_bias, &c->out_bias);
    if (!status)
        status = read_flag(r, &a->mlp_bias, &c->mlp_bias);
    if (!status && a->qk_norm_flag.name)
        status = read_flag(r, &a->qk_norm_flag, &qk_norm);
    c->qk_norm = qk_norm ? a->qk_norm : QK_NORM_NONE;
    if (!status)
        status = read_truth(r, "tie_word_embeddings", &c->tied);
    if (!status && a->kv_latent.name)
        status = read_truth(r, "rope_interleave", &c->rope_neighbours);
    if (!status && a->tied_key)
        status = json_get_bool(&r->source, a->tied_key, JSON_OPTIONAL, &c->tied, r->e);
    if (!status && a->init_key)
        status = json_get_double(&r->source, a->init_key, JSON_OPTIONAL, 0, 1, &c->initializer_range, r->e);
    if (!status)
        status = json_get_double(&r->source, "initializer_range", JSON_OPTIONAL, 0, 1, &c->initializer_range, r->e);
    return status;
}

/* An id, or the first of a list of ids. An id outside the vocabulary can never occur: -1. `from_end`: negative ids count from the
 * vocabulary's end, as for the padding row of PyTorch's embedding. */
/* A model without it can be trained; a note says so. The padding's row depends on it. */
static int note_token_id(const config_reader *r, const char *key, const json_t *value)
{
    char text[64], sentence[640];
    if (!value || json_is_null(value) || json_is_integer(value) || !strcmp(key, "pad_token_id"))
        return 0;
    snprintf(sentence, sizeof sentence, "%s: \"%s\" is %s, which is not a token id: it is ignored", r->source.where, key,
             config_value_text(value, text));
    if (r->notice)
        r->notice(r->arg, sentence);
    return 1;
}

/* The default id of an architecture is often beyond a smaller vocabulary. */
static int read_token_id(config_reader *r, const config_key *key, bool from_end, int64_t *out)
{
    json_source first = r->source;
    json_t *value = json_object_get(r->source.object, key->name), *wrapped = NULL;
    int64_t id = key->value;
    int status = 0;
    if (json_is_array(value)) {
        wrapped = json_pack("{s:O?}", key->name, json_array_get(value, 0));
        first.object = wrapped;
        id = -1;
    }
    if (note_token_id(r, key->name, json_object_get(first.object, key->name)))
        id = -1;
    else
        status = json_get_int(&first, key->name, JSON_OPTIONAL, INT64_MIN, INT64_MAX, &id, r->e);
    json_decref(wrapped);
    if (value && json_is_null(value))
        id = -1;
    else if (json_is_number(value) && from_end && id < 0)
        id += r->c->vocab;
    *out = id >= 0 && id < r->c->vocab ? id : -1;
    return status;
}

static int read_ids(config_reader *r)
{
    const config_key pad = {"pad_token_id", NULL, r->a->padding};
    int status = read_token_id(r, &r->a->bos, false, &r->c->bos);
    if (!status)
        status = read_token_id(r, &r->a->eos, false, &r->c->eos);
    r->c->padding = -1;
    if (!status && r->a->padding_row)
        status = read_token_id(r, &pad, true, &r->c->padding);
    return status;
}

static int read_stored_type(config_reader *r)
{
    static const struct {
        const char *name;
        pt_dtype type;
    } known[] = {{"float32", PT_F32}, {"bfloat16", PT_BF16}, {"float16", PT_F16},
                 {"float", PT_F32},   {"half", PT_F16},      {"auto", PT_F32},
                 {"float64", PT_F32}, {"double", PT_F32}}; /* read, and computed in a smaller type */
    json_source source = r->source;
    if (r->outer && (json_object_get(r->outer, "dtype") || json_object_get(r->outer, "torch_dtype")))
        source.object = r->outer;
    const char *key = config_key_present(&source, "dtype") ? "dtype" : "torch_dtype", *name = "float32";
    int status = json_get_string(&source, key, JSON_OPTIONAL, &name, r->e);
    if (status)
        return status;
    const char *bare = strncmp(name, "torch.", 6) ? name : name + 6;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (!strcmp(known[i].name, bare)) {
            r->c->stored_type = known[i].type;
            return 0;
        }
    char text[64];
    return pt_fail(r->e, PT_FAILED,
                   "%s: \"%s\" is %s, which is not supported; supported are float32, bfloat16, float16",
                   source.where, key, config_value_text(json_object_get(source.object, key), text));
}

static int scale_rope(config_reader *r)
{
    if (r->a->rope == ROPE_RULE_NONE)
        return pt_fail(r->e, PT_FAILED, "%s: a %s model has no rotary positions: `rope_scaling` cannot extend it", r->source.where,
                       r->a->model_type);
    if (r->a->rope == ROPE_RULE_QUERY)
        return pt_fail(r->e, PT_FAILED, "%s: a %s model scales its queries with the position: change its rope in the file, not by "
                       "`rope_scaling`", r->source.where, r->a->model_type);
    return model_scale_rope(r->source.object, r->source.where, r->changes.rope_scaling, r->e);
}

/* The labels of a model that scores classes; 0: it predicts tokens. */
static int count_labels(config_reader *r, int64_t *n)
{
    const json_t *class_name = json_array_get(json_object_get(r->source.object, "architectures"), 0);
    const json_t *names = json_object_get(r->source.object, "id2label");
    *n = 0;
    if (!json_is_string(class_name) || !architecture_scores(json_string_value(class_name)))
        return 0;
    *n = 2; /* the default of Transformers */
    if (json_is_object(names)) {
        *n = (int64_t)json_object_size(names);
        if (*n > 0 && *n <= MODEL_MAX_LABELS)
            return 0;
        return pt_fail(r->e, PT_FAILED, "%s: \"id2label\" has %lld labels, but must have from 1 to %d", r->source.where, (long long)*n,
                       MODEL_MAX_LABELS);
    }
    return json_get_int(&r->source, "num_labels", JSON_OPTIONAL, 1, MODEL_MAX_LABELS, n, r->e);
}

/* Without what scales or caps the logits of tokens. */
static int read_labels(config_reader *r)
{
    model_config *c = r->c;
    int64_t stored;
    int failed = count_labels(r, &stored);
    c->labels = r->changes.labels ? r->changes.labels : stored;
    if (failed || !c->labels)
        return failed;
    if (stored && c->labels != stored)
        return pt_fail(r->e, PT_FAILED, "%s: the model's head has %lld label%s, but %lld %s needed: give a model without such a head, or "
                                        "data with its labels", r->source.where, (long long)stored, stored == 1 ? "" : "s",
                       (long long)c->labels, c->labels == 1 ? "is" : "are");
    if (r->outer || !architecture_scorer(c->model_type))
        return pt_fail(r->e, PT_FAILED, "%s: Transformers has no sequence classification for this model (%s): `task` reward and classify "
                                        "need a model of text that has", r->source.where, c->model_type);
    c->tied = false;
    c->logit_scale = 1;
    c->logit_softcap = 0;
    return 0;
}

static int widen(config_reader *r)
{
    model_config *c = r->c;
    if (r->changes.vocab <= c->vocab)
        return 0;
    if (c->input_width)
        return pt_fail(r->e, PT_FAILED, "%s: a %s model has a second table of the vocabulary for its layers: it cannot take new tokens",
                       r->source.where, r->a->model_type);
    c->stored_vocab = c->vocab;
    c->vocab = r->changes.vocab;
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

static int config_read(config_reader *r)
{
    int status = read_architecture(r);
    if (status)
        return status;
    snprintf(r->c->model_type, sizeof r->c->model_type, "%s", r->a->model_type);
    if (r->changes.rope_scaling && r->changes.rope_scaling[0]) {
        snprintf(r->c->rope_scaling, sizeof r->c->rope_scaling, "%s", r->changes.rope_scaling);
        status = scale_rope(r);
        if (status)
            return status;
    }
    int (*const steps[])(config_reader *) = {
        read_sizes, read_activation, read_flags, read_attention_scale, read_scales, config_read_mixers, config_read_windows,
        config_read_heads, config_read_ropes, config_read_mixer_sizes, read_ids, read_stored_type, config_check_fixed_keys,
        config_check_other_keys, config_read_experts, config_read_dropout, read_labels};
    for (size_t i = 0; i < sizeof steps / sizeof steps[0] && !status; i++)
        status = steps[i](r);
    return status ? status : widen(r);
}

static int model_from_source(config_reader *r, model **out)
{
    model *m = calloc(1, sizeof *m);
    if (!m)
        return pt_fail(r->e, PT_FAILED, "%s: no memory for the model's description", r->source.where);
    r->c = &m->config;
    int status = config_read(r);
    if (!status)
        status = params_build(m, r->a, r->source.where, r->e);
    if (status)
        model_close(m);
    else
        *out = m;
    return status;
}

static int model_from_file(config_reader *r, const char *file, model **out)
{
    int status = json_source_open(&r->source, file, r->e);
    if (status)
        return status;
    status = model_from_source(r, out);
    if (r->outer)
        r->source.object = r->outer;
    json_source_close(&r->source);
    return status;
}

/* What config.json does not say about the weights beside it. As in Transformers: if the config of a model of text and images does not say
 * whether its tables are tied, and two different ones are stored, they are not tied. */
static void look_at_weights(const model *m, const char *folder, const config_reader *r, bool *two_tables, bool *fused)
{
    safetensors *st;
    *two_tables = *fused = false;
    if ((!r->tied_unsaid && !m->config.experts) || !weights_present(folder) || safetensors_open(folder, &st, NULL))
        return; /* errors are reported where they are read */
    *two_tables = r->tied_unsaid && weights_have_two_tables(m, st);
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
    config_reader r = {.notice = notice, .arg = arg, .e = e, .changes = *c};
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
    int status = model_from_file(&r, file, out);
    bool two_tables, fused;
    if (status || !folder)
        return status;
    look_at_weights(*out, path, &r, &two_tables, &fused);
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
    config_reader r = {.notice = notice, .arg = arg, .e = e};
    *out = NULL;
    snprintf(r.source.where, sizeof r.source.where, "%s", name);
    int status = json_text_load(name, json, n, 0, &r.source.object, e);
    if (status)
        return status;
    if (!json_is_object(r.source.object))
        status = pt_fail(e, PT_FAILED, "%.400s: holds %s, but an object { ... } is needed", name,
                         json_type_name(r.source.object));
    else
        status = model_from_source(&r, out);
    if (r.outer)
        r.source.object = r.outer;
    json_source_close(&r.source);
    return status;
}
