/* config.c - config.json -> model_config.
 *
 * Transformers ignores keys that it does not know, and a config may hold any. Here a value that
 * changes what is computed is either honoured or refused. Three nets catch what is not honoured:
 *
 *   1. a key that is read is checked: type, range, known names (activation, rope type, dtype);
 *   2. a key that is not read, but has one of the `markers` in its name ("window", "scal", "quant", ...),
 *      must have its neutral value: null, false, empty, or the number that does nothing;
 *   3. tensors that the architecture does not know are refused when weights are read (weights.c).
 */
#include "base/json.h"
#include "model/architectures.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

/* Sizes beyond any model, and small enough that no product of those that occur passes 2^63. A row of MAX_WIDTH and a
 * head of MAX_HEAD_DIM are the largest whose tiles have room in a thread's scratch (device/cpu). */
enum {
    MAX_WIDTH = 1 << 17,
    MAX_HEADS = 4096,
    MAX_HEAD_DIM = 512,
    MAX_VOCAB = 1 << 24,
    MAX_POSITIONS = 1 << 30
};

typedef struct reader {
    json_source source;
    const architecture *a;
    model_config *c;
    void (*notice)(void *, const char *);
    void *arg;
    pt_error *e;
} reader;

/* A value as it stands in the file, cut to what a message can hold. */
static const char *value_text(const json_t *value, char buffer[64])
{
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_ENSURE_ASCII);
    snprintf(buffer, 64, "%s", text ? text : json_type_name(value));
    free(text);
    return buffer;
}

static bool key_present(const json_source *s, const char *key)
{
    const json_t *value = json_object_get(s->object, key);
    return value && !json_is_null(value);
}

static bool in_list(const char *const list[ARCHITECTURE_MAX_KEYS], const char *key)
{
    for (int i = 0; i < ARCHITECTURE_MAX_KEYS && list[i]; i++)
        if (!strcmp(list[i], key))
            return true;
    return false;
}

static int read_architecture(reader *r)
{
    char known[128], text[64];
    const char *name = NULL;
    int status = json_get_string(&r->source, "model_type", JSON_OPTIONAL, &name, r->e);
    if (status)
        return status;
    if (name) {
        r->a = architecture_find(name);
        if (!r->a)
            return pt_fail(r->e, PT_FAILED,
                           "%s: \"model_type\" is %s, which is not supported; supported are %s",
                           r->source.where, value_text(json_object_get(r->source.object, "model_type"), text),
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
                       class_name ? value_text(class_name, text) : "",
                       architecture_list(known, sizeof known));
    return 0;
}

/* A size under its name or its other spelling; both may stand there if they agree. */
static int read_size(reader *r, const config_key *key, int64_t max, int64_t *out)
{
    *out = key->value;
    int status = json_get_int(&r->source, key->name, JSON_OPTIONAL, 1, max, out, r->e);
    if (status || !key->alias || !key_present(&r->source, key->alias))
        return status;
    int64_t other;
    status = json_get_int(&r->source, key->alias, JSON_REQUIRED, 1, max, &other, r->e);
    if (status)
        return status;
    if (key_present(&r->source, key->name) && other != *out)
        return pt_fail(r->e, PT_FAILED,
                       "%s: \"%s\" is %lld but \"%s\" is %lld; they mean the same, remove one",
                       r->source.where, key->name, (long long)*out, key->alias, (long long)other);
    *out = other;
    return 0;
}

static int read_heads(reader *r)
{
    const architecture *a = r->a;
    model_config *c = r->c;
    const char *where = r->source.where;
    int status = read_size(r, &a->heads, MAX_HEADS, &c->heads);
    c->kv_heads = c->head_dim = -1;
    if (!status && a->kv_heads.name)
        status = read_size(r, &a->kv_heads, MAX_HEADS, &c->kv_heads);
    if (!status && a->head_dim.name)
        status = read_size(r, &a->head_dim, MAX_HEAD_DIM, &c->head_dim);
    if (status)
        return status;
    if (c->kv_heads < 0 ||
        (a->kv_heads_null_is_heads && json_is_null(json_object_get(r->source.object, a->kv_heads.name))))
        c->kv_heads = c->heads;
    if (c->heads % c->kv_heads)
        return pt_fail(r->e, PT_FAILED, "%s: \"%s\" is %lld, which is not a multiple of \"%s\" %lld%s", where,
                       a->heads.name, (long long)c->heads, a->kv_heads.name, (long long)c->kv_heads,
                       key_present(&r->source, a->kv_heads.name) ? "" : " (the default; add the key)");
    if (c->head_dim < 0) {
        if (c->hidden % c->heads)
            return pt_fail(r->e, PT_FAILED,
                           "%s: \"%s\" is %lld, which is not a multiple of \"%s\" %lld; correct one of them",
                           where, a->hidden.name, (long long)c->hidden, a->heads.name, (long long)c->heads);
        c->head_dim = c->hidden / c->heads;
    }
    if (c->head_dim > MAX_HEAD_DIM)
        return pt_fail(r->e, PT_FAILED, "%s: \"%s\" %lld makes heads of %lld, and at most %d are supported; raise it", where,
                       a->heads.name, (long long)c->heads, (long long)c->head_dim, MAX_HEAD_DIM);
    if (a->position == POSITION_ROTARY && c->head_dim % 2)
        return pt_fail(
            r->e, PT_FAILED,
            "%s: heads of %lld (\"%s\" / \"%s\", or \"head_dim\"): rotary positions need an even number",
            where, (long long)c->head_dim, a->hidden.name, a->heads.name);
    return 0;
}

static int read_sizes(reader *r)
{
    const architecture *a = r->a;
    model_config *c = r->c;
    int status = read_size(r, &a->hidden, MAX_WIDTH, &c->hidden);
    if (!status)
        status = read_size(r, &a->layers, MODEL_MAX_LAYERS, &c->layers);
    if (!status)
        status = read_size(r, &a->ffn, 64 * MAX_WIDTH, &c->ffn);
    if (!status)
        status = read_size(r, &a->positions, MAX_POSITIONS, &c->max_positions);
    if (!status)
        status = read_size(r, &a->vocab, MAX_VOCAB, &c->vocab);
    if (!status)
        status = read_heads(r);
    if (c->ffn < 0)
        c->ffn = 4 * c->hidden;
    return status;
}

static int read_activation(reader *r)
{
    static const struct {
        const char *name;
        activation_kind kind;
    } known[] = {
        {"gelu_new", ACT_GELU_TANH},  {"gelu_pytorch_tanh", ACT_GELU_TANH}, {"gelu_python_tanh", ACT_GELU_TANH},
        {"gelu_fast", ACT_GELU_TANH}, {"gelu_accurate", ACT_GELU_TANH},     {"gelu", ACT_GELU_ERF},
        {"silu", ACT_SILU},           {"gelu_python", ACT_GELU_ERF},        {"swish", ACT_SILU},
        {"relu", ACT_RELU},
    };
    const char *name = r->a->activation;
    int status = json_get_string(&r->source, r->a->activation_key, JSON_OPTIONAL, &name, r->e);
    if (status)
        return status;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (!strcmp(known[i].name, name)) {
            r->c->activation = known[i].kind;
            return 0;
        }
    char text[64];
    return pt_fail(r->e, PT_FAILED,
                   "%s: \"%s\" is %s, which is not supported; supported are gelu_new, gelu_pytorch_tanh, "
                   "gelu_fast, gelu_accurate, gelu, silu, swish, relu",
                   r->source.where, r->a->activation_key,
                   value_text(json_object_get(r->source.object, r->a->activation_key), text));
}

static int read_bias(reader *r, bias_rule rule, const char *key, bool *out)
{
    *out = rule == BIAS_ALWAYS;
    return rule == BIAS_BY_KEY ? json_get_bool(&r->source, key, JSON_OPTIONAL, out, r->e) : 0;
}

/* Of a key whose default is true: null is false, as it is to Transformers. */
static int read_truth(reader *r, const char *key, bool *out)
{
    if (json_is_null(json_object_get(r->source.object, key)))
        *out = false;
    return json_get_bool(&r->source, key, JSON_OPTIONAL, out, r->e);
}

static int read_attention_scale(reader *r)
{
    bool scaled = true, by_layer = false;
    int status = 0;
    if (r->a->scale_keys)
        status = read_truth(r, "scale_attn_weights", &scaled);
    if (!status && r->a->scale_keys)
        status = json_get_bool(&r->source, "scale_attn_by_inverse_layer_idx", JSON_OPTIONAL, &by_layer, r->e);
    r->c->attention_scale = scaled ? (float)(1 / sqrt((double)r->c->head_dim)) : 1;
    for (int i = 0; i < r->c->layers; i++)
        r->c->layer_scale[i] = by_layer ? (float)(1.0 / (i + 1)) : 1;
    return status;
}

static int read_flags(reader *r)
{
    const architecture *a = r->a;
    model_config *c = r->c;
    c->norm = a->norm;
    c->position = a->position;
    c->gated = a->gated;
    c->pre_norm = true;
    c->qk_norm = a->qk_norm;
    c->tied = a->tied;
    double eps = a->eps;
    c->initializer_range = 0.02;
    int status = json_get_double(&r->source, a->eps_key, JSON_OPTIONAL, 0, 1, &eps, r->e);
    c->norm_eps = (float)eps;
    if (!status)
        status = read_bias(r, a->qkv_bias, "attention_bias", &c->qkv_bias);
    if (!status)
        status = read_bias(r, a->out_bias, "attention_bias", &c->out_bias);
    if (!status)
        status = read_bias(r, a->mlp_bias, "mlp_bias", &c->mlp_bias);
    if (!status)
        status = read_truth(r, "tie_word_embeddings", &c->tied);
    if (!status)
        status = json_get_double(&r->source, "initializer_range", JSON_OPTIONAL, 0, 1, &c->initializer_range,
                                 r->e);
    return status;
}

/* What `sliding_window` says, before it is known for which layers. 0: no window. */
static int read_window_size(reader *r, int64_t *window)
{
    const json_t *value = json_object_get(r->source.object, "sliding_window");
    const char *key = "sliding_window";
    if (!value && r->a->window == WINDOW_ALL && key_present(&r->source, "sliding_window_size"))
        key = "sliding_window_size";
    *window = value && json_is_null(value) ? 0 : 4096;
    bool used = r->a->window == WINDOW_ALL;
    int status = 0;
    if (r->a->window == WINDOW_LAYERS)
        status = json_get_bool(&r->source, "use_sliding_window", JSON_OPTIONAL, &used, r->e);
    if (!status)
        status = json_get_int(&r->source, key, JSON_OPTIONAL, used ? 1 : 0, MAX_POSITIONS, window, r->e);
    int64_t other = *window;
    if (!status && r->a->window == WINDOW_ALL)
        status = json_get_int(&r->source, "sliding_window_size", JSON_OPTIONAL, 1, MAX_POSITIONS, &other,
                              r->e);
    if (!status && other != *window)
        status = pt_fail(r->e, PT_FAILED,
                         "%s: \"sliding_window_size\" is %lld but \"sliding_window\" is %lld (0: null); "
                         "they mean the same, remove one",
                         r->source.where, (long long)other, (long long)*window);
    if (!used)
        *window = 0;
    return status;
}

/* layer_types: "full_attention" or "sliding_attention" for each layer. */
static int read_layer_types(reader *r, int64_t window)
{
    json_t *types = NULL;
    model_config *c = r->c;
    const char *where = r->source.where;
    int status = json_get_array(&r->source, "layer_types", JSON_OPTIONAL, &types, r->e);
    if (status || !types)
        return status;
    if (json_array_size(types) != (size_t)c->layers)
        return pt_fail(r->e, PT_FAILED, "%s: \"layer_types\" has %zu entries, but \"%s\" is %lld", where,
                       json_array_size(types), r->a->layers.name, (long long)c->layers);
    for (int i = 0; i < c->layers; i++) {
        char text[64];
        const json_t *value = json_array_get(types, (size_t)i);
        const char *type = json_is_string(value) ? json_string_value(value) : "";
        bool sliding = !strcmp(type, "sliding_attention");
        if (!sliding && strcmp(type, "full_attention"))
            return pt_fail(r->e, PT_FAILED,
                           "%s: \"layer_types\"[%d] is %s, which is not supported; supported are "
                           "\"full_attention\" and \"sliding_attention\"",
                           where, i, value_text(value, text));
        if (sliding && !window)
            return pt_fail(
                r->e, PT_FAILED,
                "%s: \"layer_types\"[%d] is \"sliding_attention\", but there is no window: %s", where, i,
                r->a->window == WINDOW_NONE
                    ? "this model_type has none"
                    : "set \"sliding_window\" (and \"use_sliding_window\" where the model_type has it)");
        if (r->a->window != WINDOW_LAYERS && sliding != (c->window[i] > 0))
            return pt_fail(
                r->e, PT_FAILED,
                "%s: \"layer_types\"[%d] is \"%s\", but %s applies its \"sliding_window\" to every layer",
                where, i, type, r->a->model_type);
        c->window[i] = sliding ? window : 0;
    }
    return 0;
}

static int read_windows(reader *r)
{
    int64_t window = 0, first = 0;
    int status = 0;
    if (r->a->window != WINDOW_NONE)
        status = read_window_size(r, &window);
    if (!status && r->a->window == WINDOW_LAYERS) {
        first = 28;
        status = json_get_int(&r->source, "max_window_layers", JSON_OPTIONAL, 0, INT32_MAX, &first, r->e);
    }
    for (int i = 0; i < r->c->layers; i++)
        r->c->window[i] = i >= first ? window : 0;
    return status ? status : read_layer_types(r, window);
}

/* An id, or the first of a list of ids. One outside of the vocabulary can never occur: -1. `from_end`: negative ones count back from the
 * vocabulary's end, as PyTorch's embedding takes its padding row. */
static int read_token_id(reader *r, const config_key *key, bool from_end, int64_t *out)
{
    json_source first = r->source;
    json_t *value = json_object_get(r->source.object, key->name), *wrapped = NULL;
    int64_t id = key->value;
    if (json_is_array(value)) {
        wrapped = json_pack("{s:O?}", key->name, json_array_get(value, 0));
        first.object = wrapped;
        id = -1;
    }
    int status = json_get_int(&first, key->name, JSON_OPTIONAL, INT64_MIN, INT64_MAX, &id, r->e);
    json_decref(wrapped);
    if (value && json_is_null(value))
        id = -1;
    else if (json_is_number(value) && from_end && id < 0)
        id += r->c->vocab;
    *out = id >= 0 && id < r->c->vocab ? id : -1;
    return status;
}

static int read_ids(reader *r)
{
    static const config_key pad = {"pad_token_id", NULL, -1};
    int status = read_token_id(r, &r->a->bos, false, &r->c->bos);
    if (!status)
        status = read_token_id(r, &r->a->eos, false, &r->c->eos);
    r->c->padding = -1;
    if (!status && r->a->padding_row)
        status = read_token_id(r, &pad, true, &r->c->padding);
    return status;
}

static int read_stored_type(reader *r)
{
    static const struct {
        const char *name;
        pt_dtype type;
    } known[] = {{"float32", PT_F32}, {"bfloat16", PT_BF16}, {"float16", PT_F16},
                 {"float", PT_F32},   {"half", PT_F16},      {"auto", PT_F32},
                 {"float64", PT_F32}, {"double", PT_F32}}; /* read, and computed with in less */
    const char *key = key_present(&r->source, "dtype") ? "dtype" : "torch_dtype", *name = "float32";
    int status = json_get_string(&r->source, key, JSON_OPTIONAL, &name, r->e);
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
                   r->source.where, key, value_text(json_object_get(r->source.object, key), text));
}

/* Dropout of anything that is trained here; that of classification heads does not count. */
static bool is_dropout_key(const char *key)
{
    return strstr(key, "drop") && strncmp(key, "summary_", 8) && strncmp(key, "classifier", 10);
}

static int read_dropout(reader *r)
{
    char names[256] = "";
    size_t used = 0;
    const char *key;
    json_t *value;
    for (int i = 0; i < ARCHITECTURE_MAX_KEYS && r->a->dropout_keys[i]; i++)
        if (!json_object_get(r->source.object, r->a->dropout_keys[i])) {
            used += (size_t)snprintf(names + used, sizeof names - used, "%s%s %g by default",
                                     used ? ", " : "", r->a->dropout_keys[i], r->a->dropout);
        }
    json_object_foreach(r->source.object, key, value)
    {
        if (!is_dropout_key(key) || json_is_boolean(value))
            continue;
        double p = 0;
        int status = json_get_double(&r->source, key, JSON_OPTIONAL, 0, 1, &p, r->e);
        if (status)
            return status;
        if (p > 0 && used + 80 < sizeof names)
            used += (size_t)snprintf(names + used, sizeof names - used, "%s%.40s %g", used ? ", " : "", key,
                                     p);
    }
    r->c->dropout = used > 0;
    char text[900];
    snprintf(text, sizeof text, "%s: dropout (%s) is not applied", r->source.where, names);
    if (used && r->notice)
        r->notice(r->arg, text);
    return 0;
}

/* Net 2: words in a key's name, and the number under which such a key does nothing. */
static const struct marker {
    const char *word;
    double neutral;
} markers[] = {
    {"window", 0}, {"scal", 1},  {"multiplier", 1}, {"softcap", 0},   {"rope", 0},            {"rotary", 1},
    {"quant", 0},  {"expert", 0}, {"moe", 0},        {"bias", 0},      {"qk_", 0},             {"alibi", 0},
    {"pruned", 0}, {"per_layer", 0},                 {"cross_attention", 0},                   {"encoder_decoder", 0},
};

static const struct marker *key_marker(const char *key)
{
    for (size_t i = 0; i < sizeof markers / sizeof markers[0]; i++) {
        size_t n = strlen(markers[i].word);
        for (const char *at = key; *at; at++) /* only where a word begins: "prope" is no rope */
            if ((at == key || at[-1] == '_' || at[-1] == '.') && !strncasecmp(at, markers[i].word, n))
                return &markers[i];
    }
    return NULL;
}

static bool is_neutral(const json_t *value, double neutral)
{
    switch (json_typeof(value)) {
    case JSON_NULL: case JSON_FALSE: return true;
    case JSON_OBJECT: return json_object_size(value) == 0;
    case JSON_ARRAY: return json_array_size(value) == 0;
    case JSON_STRING: return json_string_length(value) == 0;
    case JSON_INTEGER: case JSON_REAL: return json_number_value(value) == neutral;
    default: return false;
    }
}

static int check_other_keys(reader *r)
{
    const char *key;
    json_t *value;
    json_object_foreach(r->source.object, key, value)
    {
        char text[64];
        const struct marker *m = in_list(r->a->keys, key) ? NULL : key_marker(key);
        if (m && !is_neutral(value, m->neutral))
            return pt_fail(
                r->e, PT_FAILED,
                "%s: \"%.60s\" is %s, which %s models do not support here, and it may change what is "
                "computed; only null, false or %g are taken, or remove the key if it has no effect",
                r->source.where, key, value_text(value, text), r->a->model_type, m->neutral);
        if (!strcmp(key, "is_causal") && !json_is_true(value) && !json_is_null(value))
            return pt_fail(r->e, PT_FAILED, "%s: \"is_causal\" is %s: models whose tokens see those behind them are not trained here",
                           r->source.where, value_text(value, text));
        if (!strcmp(key, "attention_sink_size") && !is_neutral(value, 0) && r->notice) {
            char sentence[640];
            snprintf(sentence, sizeof sentence,
                     "%s: \"attention_sink_size\" concerns generation elsewhere and is not applied",
                     r->source.where);
            r->notice(r->arg, sentence);
        }
    }
    return 0;
}

static int config_read(reader *r)
{
    int status = read_architecture(r);
    if (status)
        return status;
    snprintf(r->c->model_type, sizeof r->c->model_type, "%s", r->a->model_type);
    int (*const steps[])(reader *) = {read_sizes,           read_activation,  read_flags,
                                      read_attention_scale, read_windows,     read_ids,
                                      read_stored_type,     check_other_keys, read_dropout};
    for (size_t i = 0; i < sizeof steps / sizeof steps[0] && !status; i++)
        status = steps[i](r);
    if (!status && r->a->position == POSITION_ROTARY)
        status = rope_config_read(&r->source, r->c, r->e);
    return status;
}

static int model_from_source(reader *r, model **out)
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

int model_open(const char *path, void (*notice)(void *, const char *), void *arg, model **out, pt_error *e)
{
    reader r = {.notice = notice, .arg = arg, .e = e};
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
        return pt_fail_errno(e, PT_FAILED,
                             "%.400s: a model's folder needs a config.json, but it cannot be opened", path);
    int status = json_source_open(&r.source, file, e);
    if (status)
        return status;
    status = model_from_source(&r, out);
    json_source_close(&r.source);
    return status;
}

int model_from_json(const char *name, const char *json, size_t n, void (*notice)(void *, const char *),
                    void *arg, model **out, pt_error *e)
{
    reader r = {.notice = notice, .arg = arg, .e = e};
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
    json_source_close(&r.source);
    return status;
}
