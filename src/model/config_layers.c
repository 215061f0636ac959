/* config_layers.c - which layers have a sliding window, which have rope, and which have experts. */
#include "model/config_reader.h"

#include <string.h>

static bool window_may_be_off(const architecture *arch)
{
    return arch->window == WINDOW_LAYERS || arch->window == WINDOW_SWITCHED || arch->window == WINDOW_UNROTATED;
}

/* The value of `sliding_window`, before it is known for which layers. 0: no window. */
static int read_window_size(config_reader *reader, int64_t *window)
{
    const json_t *value = json_object_get(reader->source.object, "sliding_window");
    const char *key = "sliding_window";
    if (!value && reader->a->window == WINDOW_ALL && config_key_present(&reader->source, "sliding_window_size"))
        key = "sliding_window_size";
    *window = value && json_is_null(value) ? 0 : reader->a->window_default;
    bool used = !window_may_be_off(reader->a);
    int status = 0;
    if (!used)
        status = json_get_bool(&reader->source, "use_sliding_window", JSON_OPTIONAL, &used, reader->e);
    if (!status)
        status = json_get_int(&reader->source, key, JSON_OPTIONAL, used ? 1 : 0, MAX_POSITIONS, window, reader->e);
    int64_t other = *window;
    if (!status && reader->a->window == WINDOW_ALL)
        status = json_get_int(&reader->source, "sliding_window_size", JSON_OPTIONAL, 1, MAX_POSITIONS, &other,
                              reader->e);
    if (!status && other != *window)
        status = pt_fail(reader->e, PT_FAILED,
                         "%s: \"sliding_window_size\" is %lld but \"sliding_window\" is %lld (0: null); "
                         "they mean the same, remove one",
                         reader->source.where, (long long)other, (long long)*window);
    if (!used && (reader->a->window == WINDOW_LAYERS || reader->a->window == WINDOW_SWITCHED))
        *window = 0;
    return status;
}

static const char *why_no_window(const architecture *arch)
{
    switch (arch->window) {
    case WINDOW_NONE: return "this model_type has none";
    case WINDOW_LAYERS: case WINDOW_SWITCHED: return "set \"sliding_window\" (and \"use_sliding_window\" where the model_type has it)";
    default: return "set \"sliding_window\"";
    }
}

/* layer_types: "full_attention" or "sliding_attention" for each layer. */
static int read_layer_types(config_reader *reader, int64_t window)
{
    json_t *types = NULL;
    model_config *config = reader->c;
    const char *where = reader->source.where;
    const bool other_name = reader->a->layer_types_alias && config_key_present(&reader->source, reader->a->layer_types_alias);
    const char *key = other_name ? reader->a->layer_types_alias : "layer_types";
    if (other_name && config_key_present(&reader->source, "layer_types"))
        return pt_fail(reader->e, PT_FAILED, "%s: \"layer_types\" and \"%s\" mean the same: remove one", where, key);
    int status = reader->a->one_branch ? 0 : json_get_array(&reader->source, key, JSON_OPTIONAL, &types, reader->e);
    if (status || !types)
        return status;
    if (json_array_size(types) != (size_t)config->layers)
        return pt_fail(reader->e, PT_FAILED, "%s: \"%s\" has %zu entries, but \"%s\" is %lld", where, key,
                       json_array_size(types), reader->a->layers.name, (long long)config->layers);
    for (int i = 0; i < config->layers; i++) {
        char text[64];
        const json_t *value = json_array_get(types, (size_t)i);
        const char *type = json_is_string(value) ? json_string_value(value) : "";
        const char *other = reader->a->mixer_type ? reader->a->mixer_type : "sliding_attention";
        bool sliding = !reader->a->mixer_type && !strcmp(type, other);
        if (reader->a->mixer_type_old && !strcmp(type, reader->a->mixer_type_old))
            type = other;
        if (reader->a->mixer_type_old && !strcmp(type, "attention"))
            type = "full_attention";
        if (strcmp(type, other) && strcmp(type, "full_attention"))
            return pt_fail(reader->e, PT_FAILED, "%s: \"%s\"[%d] is %s, which is not supported; supported are "
                           "\"full_attention\" and \"%s\"", where, key, i, config_value_text(value, text), other);
        if (reader->a->mixer_type) {
            config->mixer[i] = (unsigned char)(strcmp(type, other) ? MIXER_ATTENTION : reader->a->mixer);
            continue;
        }
        if (sliding && !window)
            return pt_fail(reader->e, PT_FAILED, "%s: \"layer_types\"[%d] is \"sliding_attention\", but there is no window: %s", where, i,
                           why_no_window(reader->a));
        if ((reader->a->window == WINDOW_NONE || reader->a->window == WINDOW_ALL) && sliding != (config->window[i] > 0))
            return pt_fail(
                reader->e, PT_FAILED,
                "%s: \"layer_types\"[%d] is \"%s\", but %s applies its \"sliding_window\" to every layer",
                where, i, type, reader->a->model_type);
        config->window[i] = sliding ? window : 0;
    }
    return 0;
}

/* Windows by the architecture's rule, without layer_types; `of_unrotated`: the window of layers without rope. */
static int set_windows(config_reader *reader, int64_t window, int64_t of_unrotated)
{
    const architecture *arch = reader->a;
    int64_t first = 0, period = arch->window_period;
    int status = 0;
    if (arch->window == WINDOW_LAYERS || arch->window == WINDOW_FROM) {
        first = arch->window == WINDOW_FROM ? arch->window_period : 28;
        status = json_get_int(&reader->source, "max_window_layers", JSON_OPTIONAL, 0, INT32_MAX, &first, reader->e);
    }
    if (!status && arch->window_period_key && !config_key_present(&reader->source, "layer_types"))
        status = json_get_int(&reader->source, arch->window_period_key, JSON_OPTIONAL, 1, INT32_MAX, &period, reader->e);
    for (int i = 0; i < reader->c->layers; i++) {
        const bool full = arch->window == WINDOW_PERIOD && (i + 1) % period == 0;
        reader->c->window[i] = arch->window == WINDOW_UNROTATED ? (reader->c->layer_rope[i] < 0 ? of_unrotated : 0)
                               : i < first || full              ? 0
                                                                : window;
    }
    return status;
}

/* no_rope_layers: for each layer 1 if it has rope, contrary to its name. */
static int read_unrotated(config_reader *reader)
{
    json_t *list = NULL;
    int64_t period = 4;
    int status = json_get_array(&reader->source, "no_rope_layers", JSON_OPTIONAL, &list, reader->e);
    if (!status)
        status = json_get_int(&reader->source, "no_rope_layer_interval", JSON_OPTIONAL, 1, INT32_MAX, &period, reader->e);
    if (!status && list && json_array_size(list) != (size_t)reader->c->layers)
        status = pt_fail(reader->e, PT_FAILED, "%s: \"no_rope_layers\" has %zu entries, but \"%s\" is %lld", reader->source.where,
                         json_array_size(list), reader->a->layers.name, (long long)reader->c->layers);
    for (int i = 0; i < reader->c->layers && !status; i++) {
        char text[64];
        const json_t *value = json_array_get(list, (size_t)i);
        if (list && !json_is_integer(value) && !json_is_boolean(value))
            status = pt_fail(reader->e, PT_FAILED, "%s: \"no_rope_layers\"[%d] is %s, but it must be 1 (the layer has rope) or 0",
                             reader->source.where, i, config_value_text(value, text));
        const bool rotated = list ? json_is_true(value) || json_integer_value(value) != 0 : (i + 1) % period != 0;
        reader->c->layer_rope[i] = rotated ? 0 : -1;
    }
    return status;
}

int config_read_windows(config_reader *reader)
{
    const architecture *arch = reader->a;
    int64_t window = 0;
    bool used = true;
    int status = 0;
    for (int i = 0; i < reader->c->layers; i++)
        reader->c->layer_rope[i] = arch->rope == ROPE_RULE_NONE ? -1 : 0;
    if (arch->rope == ROPE_RULE_SKIPPED)
        status = read_unrotated(reader);
    if (!status && arch->window != WINDOW_NONE)
        status = read_window_size(reader, &window);
    if (!status && arch->window == WINDOW_UNROTATED) {
        used = false;
        status = json_get_bool(&reader->source, "use_sliding_window", JSON_OPTIONAL, &used, reader->e);
    }
    if (!status)
        status = set_windows(reader, window, used ? window : 0);
    if (!status)
        status = read_layer_types(reader, window);
    for (int i = 0; i < reader->c->layers && arch->rope == ROPE_RULE_TYPES; i++)
        reader->c->layer_rope[i] = reader->c->window[i] > 0;
    for (int i = 0; i < reader->c->layers && arch->rope == ROPE_RULE_WINDOWED && window; i++)
        reader->c->layer_rope[i] = reader->c->window[i] > 0 ? 0 : -1;
    return status;
}

/* ---- experts ---- */

static int read_dense_list(config_reader *reader)
{
    json_t *list = NULL;
    int status = json_get_array(&reader->source, "mlp_only_layers", JSON_OPTIONAL, &list, reader->e);
    for (size_t i = 0; i < json_array_size(list) && !status; i++) {
        const json_t *value = json_array_get(list, i);
        const json_int_t layer = json_integer_value(value);
        char text[64];
        if (!json_is_integer(value) || layer < 0 || layer >= reader->c->layers)
            status = pt_fail(reader->e, PT_FAILED, "%s: \"mlp_only_layers\"[%zu] is %s, but layers are numbered 0 to %lld",
                             reader->source.where, i, config_value_text(value, text), (long long)reader->c->layers - 1);
        else
            reader->c->sparse[layer] = false;
    }
    return status;
}

/* ERNIE's range of layers; an end of -1 is the last layer. */
static int read_range(config_reader *reader)
{
    model_config *config = reader->c;
    int64_t first = 1, last = -1, step = 1;
    int status = json_get_int(&reader->source, "moe_layer_start_index", JSON_OPTIONAL, 0, MODEL_MAX_LAYERS, &first, reader->e);
    if (!status)
        status = json_get_int(&reader->source, "moe_layer_end_index", JSON_OPTIONAL, -1, MODEL_MAX_LAYERS, &last, reader->e);
    if (!status)
        status = json_get_int(&reader->source, "moe_layer_interval", JSON_OPTIONAL, 1, MODEL_MAX_LAYERS, &step, reader->e);
    for (int i = 0; i < config->layers; i++)
        config->sparse[i] = (i + 1) % step == 0 && i >= first && (last < 0 || i <= last);
    return status;
}

/* mlp_layer_types: "dense" or "sparse" for each layer. */
static int read_mlp_types(config_reader *reader)
{
    model_config *config = reader->c;
    json_t *types = NULL;
    int status = json_get_array(&reader->source, "mlp_layer_types", JSON_OPTIONAL, &types, reader->e);
    if (!status && types && json_array_size(types) != (size_t)config->layers)
        status = pt_fail(reader->e, PT_FAILED, "%s: \"mlp_layer_types\" has %zu entries, but \"%s\" is %lld", reader->source.where,
                         json_array_size(types), reader->a->layers.name, (long long)config->layers);
    for (int i = 0; i < config->layers && !status; i++) {
        char text[64];
        const json_t *value = json_array_get(types, (size_t)i);
        const char *type = json_is_string(value) ? json_string_value(value) : "";
        config->sparse[i] = types ? !strcmp(type, "sparse") : i >= reader->a->first_sparse;
        if (types && !config->sparse[i] && strcmp(type, "dense"))
            status = pt_fail(reader->e, PT_FAILED, "%s: \"mlp_layer_types\"[%d] is %s, but it must be \"dense\" or \"sparse\"",
                             reader->source.where, i, config_value_text(value, text));
    }
    return status;
}

static int read_sparse_layers(config_reader *reader)
{
    model_config *config = reader->c;
    int64_t step = 1, first = reader->a->first_sparse;
    int status = 0;
    if (reader->a->sparse == SPARSE_BRANCHES)
        return 0;
    if (reader->a->sparse == SPARSE_RANGE)
        return read_range(reader);
    if (reader->a->sparse == SPARSE_TYPES)
        return read_mlp_types(reader);
    if (reader->a->sparse == SPARSE_STEP)
        status = json_get_int(&reader->source, "decoder_sparse_step", JSON_OPTIONAL, 1, MODEL_MAX_LAYERS, &step, reader->e);
    const char *first_key = reader->a->first_sparse_key ? reader->a->first_sparse_key : "first_k_dense_replace";
    if (reader->a->sparse == SPARSE_FROM)
        status = json_get_int(&reader->source, first_key, JSON_OPTIONAL, 0, INT32_MAX, &first, reader->e);
    for (int i = 0; i < config->layers; i++)
        config->sparse[i] = (i + 1) % step == 0 && i >= first;
    return status || reader->a->sparse != SPARSE_STEP ? status : read_dense_list(reader);
}

static int read_groups(config_reader *reader)
{
    model_config *config = reader->c;
    config->router_groups = config->router_groups_used = 1;
    if (!reader->a->router_groups)
        return 0;
    config->router_groups = reader->a->router_groups;
    config->router_groups_used = reader->a->router_groups_used;
    int status = json_get_int(&reader->source, "n_group", JSON_OPTIONAL, 1, EXPERTS_MOST, &config->router_groups, reader->e);
    if (!status)
        status = json_get_int(&reader->source, "topk_group", JSON_OPTIONAL, 1, EXPERTS_MOST, &config->router_groups_used, reader->e);
    const int64_t each = config->experts / config->router_groups;
    if (status || config->router_groups == 1)
        return status;
    if (config->experts % config->router_groups || each < 2 || config->router_groups_used > config->router_groups ||
        config->router_groups_used * each < config->experts_used)
        return pt_fail(reader->e, PT_FAILED,
                       "%s: \"n_group\" %lld and \"topk_group\" %lld do not fit %lld experts of which a token has %lld: groups have equal "
                       "sizes of at least 2, and those that are used hold the token's experts",
                       reader->source.where, (long long)config->router_groups, (long long)config->router_groups_used,
                       (long long)config->experts, (long long)config->experts_used);
    return 0;
}

static int read_router(config_reader *reader)
{
    const architecture *arch = reader->a;
    model_config *config = reader->c;
    config->router = arch->router;
    config->router_correction = arch->router_correction;
    config->router_norm = arch->router_norm.value;
    config->router_bias = arch->router_bias;
    config->router_loss = arch->router_loss;
    config->expert_bias = arch->expert_bias;
    config->experts_beside = arch->experts_beside;
    config->router_scale = 1;
    config->router_eps = (float)arch->router_eps;
    int status = read_groups(reader);
    if (!status && arch->router_norm.name)
        status = json_get_bool(&reader->source, arch->router_norm.name, JSON_OPTIONAL, &config->router_norm, reader->e);
    if (!status)
        status = config_read_number(reader, &arch->router_least, 0, 0, &config->router_least);
    if (!status)
        status = config_read_number(reader, &arch->expert_alpha, 1e-6, arch->expert_alpha.value, &config->expert_alpha);
    if (!status)
        status = config_read_number(reader, &arch->expert_limit, 1e-6, arch->expert_limit.value, &config->expert_limit);
    return status ? status : config_read_number(reader, &arch->router_scale, 1e-6, 1, &config->router_scale);
}

/* The width of the shared expert, which may be given as that of some experts. */
static int read_shared(config_reader *reader)
{
    const architecture *arch = reader->a;
    const config_key *key = arch->shared_experts.name ? &arch->shared_experts : &arch->shared_ffn;
    model_config *config = reader->c;
    config->shared_gate = arch->shared_gate;
    if (!key->name)
        return 0;
    config->shared_ffn = key->value;
    int status = json_get_int(&reader->source, key->name, JSON_OPTIONAL, 0, 64 * MAX_WIDTH, &config->shared_ffn, reader->e);
    if (!status && config->shared_ffn < 0)
        return pt_fail(reader->e, PT_FAILED, "%s: the key \"%s\" is missing: add it (0: there are none)", reader->source.where, key->name);
    if (!status && (arch->shared_gate || arch->sparse == SPARSE_BRANCHES) && !config->shared_ffn)
        return pt_fail(reader->e, PT_FAILED, "%s: \"%s\" is 0, but %s models have a shared expert", reader->source.where, key->name,
                       arch->model_type);
    config->shared_ffn *= arch->shared_experts.name ? config->expert_ffn : 1;
    return status;
}

static int read_counts(config_reader *reader)
{
    const architecture *arch = reader->a;
    model_config *config = reader->c;
    config->expert_ffn = config->ffn;
    int status = config_read_size(reader, &arch->experts, EXPERTS_MOST, &config->experts);
    if (!status)
        status = config_read_size(reader, &arch->experts_used, SLOTS_MOST, &config->experts_used);
    if (!status && arch->expert_ffn.name)
        status = config_read_size(reader, &arch->expert_ffn, 64 * MAX_WIDTH, &config->expert_ffn);
    if (!status && arch->expert_latent.name)
        status = config_read_size(reader, &arch->expert_latent, MAX_WIDTH, &config->expert_latent);
    if (!status && (config->experts < 0 || config->experts_used < 0 || config->expert_ffn < 0))
        return pt_fail(reader->e, PT_FAILED, "%s: the key \"%s\" is missing: add it", reader->source.where,
                       config->experts < 0        ? arch->experts.name
                       : config->experts_used < 0 ? arch->experts_used.name
                                                  : arch->expert_ffn.name);
    if (!status && config->experts_used > config->experts)
        status = pt_fail(reader->e, PT_FAILED, "%s: \"%s\" is %lld, but there are only %lld experts (\"%s\")", reader->source.where,
                         arch->experts_used.name, (long long)config->experts_used, (long long)config->experts, arch->experts.name);
    return status;
}

static int read_whether_experts(config_reader *reader, bool *any)
{
    const json_t *n = json_object_get(reader->source.object, reader->a->experts.name);
    *any = reader->a->sparse != SPARSE_NONE && !(reader->a->experts_optional && json_is_integer(n) && json_integer_value(n) == 0);
    if (reader->a->sparse == SPARSE_BRANCHES)
        *any = memchr(reader->c->sparse, true, (size_t)reader->c->layers) != NULL;
    if (!reader->a->experts_key)
        return 0;
    *any = false;
    return json_get_bool(&reader->source, reader->a->experts_key, JSON_OPTIONAL, any, reader->e);
}

int config_read_experts(config_reader *reader)
{
    bool any = false;
    int status = read_whether_experts(reader, &any);
    if (status || !any)
        return status;
    int (*const steps[])(config_reader *) = {read_counts, read_router, read_shared, read_sparse_layers};
    for (size_t i = 0; i < sizeof steps / sizeof steps[0] && !status; i++)
        status = steps[i](reader);
    reader->c->experts_fused = reader->fused;
    return status;
}
