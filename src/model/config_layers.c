/* config_layers.c - which layers have a sliding window, which have rope, and which have experts. */
#include "model/config_reader.h"

#include <string.h>

static bool window_may_be_off(const architecture *a)
{
    return a->window == WINDOW_LAYERS || a->window == WINDOW_SWITCHED || a->window == WINDOW_UNROTATED;
}

/* The value of `sliding_window`, before it is known for which layers. 0: no window. */
static int read_window_size(config_reader *r, int64_t *window)
{
    const json_t *value = json_object_get(r->source.object, "sliding_window");
    const char *key = "sliding_window";
    if (!value && r->a->window == WINDOW_ALL && config_key_present(&r->source, "sliding_window_size"))
        key = "sliding_window_size";
    *window = value && json_is_null(value) ? 0 : r->a->window_default;
    bool used = !window_may_be_off(r->a);
    int status = 0;
    if (!used)
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
    if (!used && (r->a->window == WINDOW_LAYERS || r->a->window == WINDOW_SWITCHED))
        *window = 0;
    return status;
}

static const char *why_no_window(const architecture *a)
{
    switch (a->window) {
    case WINDOW_NONE: return "this model_type has none";
    case WINDOW_LAYERS: case WINDOW_SWITCHED: return "set \"sliding_window\" (and \"use_sliding_window\" where the model_type has it)";
    default: return "set \"sliding_window\"";
    }
}

/* layer_types: "full_attention" or "sliding_attention" for each layer. */
static int read_layer_types(config_reader *r, int64_t window)
{
    json_t *types = NULL;
    model_config *c = r->c;
    const char *where = r->source.where;
    const bool other_name = r->a->layer_types_alias && config_key_present(&r->source, r->a->layer_types_alias);
    const char *key = other_name ? r->a->layer_types_alias : "layer_types";
    if (other_name && config_key_present(&r->source, "layer_types"))
        return pt_fail(r->e, PT_FAILED, "%s: \"layer_types\" and \"%s\" mean the same: remove one", where, key);
    int status = r->a->one_branch ? 0 : json_get_array(&r->source, key, JSON_OPTIONAL, &types, r->e);
    if (status || !types)
        return status;
    if (json_array_size(types) != (size_t)c->layers)
        return pt_fail(r->e, PT_FAILED, "%s: \"%s\" has %zu entries, but \"%s\" is %lld", where, key,
                       json_array_size(types), r->a->layers.name, (long long)c->layers);
    for (int i = 0; i < c->layers; i++) {
        char text[64];
        const json_t *value = json_array_get(types, (size_t)i);
        const char *type = json_is_string(value) ? json_string_value(value) : "";
        const char *other = r->a->mixer_type ? r->a->mixer_type : "sliding_attention";
        bool sliding = !r->a->mixer_type && !strcmp(type, other);
        if (r->a->mixer_type_old && !strcmp(type, r->a->mixer_type_old))
            type = other;
        if (r->a->mixer_type_old && !strcmp(type, "attention"))
            type = "full_attention";
        if (strcmp(type, other) && strcmp(type, "full_attention"))
            return pt_fail(r->e, PT_FAILED, "%s: \"%s\"[%d] is %s, which is not supported; supported are "
                           "\"full_attention\" and \"%s\"", where, key, i, config_value_text(value, text), other);
        if (r->a->mixer_type) {
            c->mixer[i] = (unsigned char)(strcmp(type, other) ? MIXER_ATTENTION : r->a->mixer);
            continue;
        }
        if (sliding && !window)
            return pt_fail(r->e, PT_FAILED, "%s: \"layer_types\"[%d] is \"sliding_attention\", but there is no window: %s", where, i,
                           why_no_window(r->a));
        if ((r->a->window == WINDOW_NONE || r->a->window == WINDOW_ALL) && sliding != (c->window[i] > 0))
            return pt_fail(
                r->e, PT_FAILED,
                "%s: \"layer_types\"[%d] is \"%s\", but %s applies its \"sliding_window\" to every layer",
                where, i, type, r->a->model_type);
        c->window[i] = sliding ? window : 0;
    }
    return 0;
}

/* Windows by the architecture's rule, without layer_types; `of_unrotated`: the window of layers without rope. */
static int set_windows(config_reader *r, int64_t window, int64_t of_unrotated)
{
    const architecture *a = r->a;
    int64_t first = 0, period = a->window_period;
    int status = 0;
    if (a->window == WINDOW_LAYERS || a->window == WINDOW_FROM) {
        first = a->window == WINDOW_FROM ? a->window_period : 28;
        status = json_get_int(&r->source, "max_window_layers", JSON_OPTIONAL, 0, INT32_MAX, &first, r->e);
    }
    if (!status && a->window_period_key && !config_key_present(&r->source, "layer_types"))
        status = json_get_int(&r->source, a->window_period_key, JSON_OPTIONAL, 1, INT32_MAX, &period, r->e);
    for (int i = 0; i < r->c->layers; i++) {
        const bool full = a->window == WINDOW_PERIOD && (i + 1) % period == 0;
        r->c->window[i] = a->window == WINDOW_UNROTATED ? (r->c->layer_rope[i] < 0 ? of_unrotated : 0) : i < first || full ? 0 : window;
    }
    return status;
}

/* no_rope_layers: for each layer 1 if it has rope, contrary to its name. */
static int read_unrotated(config_reader *r)
{
    json_t *list = NULL;
    int64_t period = 4;
    int status = json_get_array(&r->source, "no_rope_layers", JSON_OPTIONAL, &list, r->e);
    if (!status)
        status = json_get_int(&r->source, "no_rope_layer_interval", JSON_OPTIONAL, 1, INT32_MAX, &period, r->e);
    if (!status && list && json_array_size(list) != (size_t)r->c->layers)
        status = pt_fail(r->e, PT_FAILED, "%s: \"no_rope_layers\" has %zu entries, but \"%s\" is %lld", r->source.where,
                         json_array_size(list), r->a->layers.name, (long long)r->c->layers);
    for (int i = 0; i < r->c->layers && !status; i++) {
        char text[64];
        const json_t *value = json_array_get(list, (size_t)i);
        if (list && !json_is_integer(value) && !json_is_boolean(value))
            status = pt_fail(r->e, PT_FAILED, "%s: \"no_rope_layers\"[%d] is %s, but it must be 1 (the layer has rope) or 0",
                             r->source.where, i, config_value_text(value, text));
        const bool rotated = list ? json_is_true(value) || json_integer_value(value) != 0 : (i + 1) % period != 0;
        r->c->layer_rope[i] = rotated ? 0 : -1;
    }
    return status;
}

int config_read_windows(config_reader *r)
{
    const architecture *a = r->a;
    int64_t window = 0;
    bool used = true;
    int status = 0;
    for (int i = 0; i < r->c->layers; i++)
        r->c->layer_rope[i] = a->rope == ROPE_RULE_NONE ? -1 : 0;
    if (a->rope == ROPE_RULE_SKIPPED)
        status = read_unrotated(r);
    if (!status && a->window != WINDOW_NONE)
        status = read_window_size(r, &window);
    if (!status && a->window == WINDOW_UNROTATED) {
        used = false;
        status = json_get_bool(&r->source, "use_sliding_window", JSON_OPTIONAL, &used, r->e);
    }
    if (!status)
        status = set_windows(r, window, used ? window : 0);
    if (!status)
        status = read_layer_types(r, window);
    for (int i = 0; i < r->c->layers && a->rope == ROPE_RULE_TYPES; i++)
        r->c->layer_rope[i] = r->c->window[i] > 0;
    for (int i = 0; i < r->c->layers && a->rope == ROPE_RULE_WINDOWED && window; i++)
        r->c->layer_rope[i] = r->c->window[i] > 0 ? 0 : -1;
    return status;
}

/* ---- experts ---- */

static int read_dense_list(config_reader *r)
{
    json_t *list = NULL;
    int status = json_get_array(&r->source, "mlp_only_layers", JSON_OPTIONAL, &list, r->e);
    for (size_t i = 0; i < json_array_size(list) && !status; i++) {
        const json_t *value = json_array_get(list, i);
        const json_int_t layer = json_integer_value(value);
        char text[64];
        if (!json_is_integer(value) || layer < 0 || layer >= r->c->layers)
            status = pt_fail(r->e, PT_FAILED, "%s: \"mlp_only_layers\"[%zu] is %s, but layers are numbered 0 to %lld", r->source.where, i,
                             config_value_text(value, text), (long long)r->c->layers - 1);
        else
            r->c->sparse[layer] = false;
    }
    return status;
}

/* ERNIE's range of layers; an end of -1 is the last layer. */
static int read_range(config_reader *r)
{
    model_config *c = r->c;
    int64_t first = 1, last = -1, step = 1;
    int status = json_get_int(&r->source, "moe_layer_start_index", JSON_OPTIONAL, 0, MODEL_MAX_LAYERS, &first, r->e);
    if (!status)
        status = json_get_int(&r->source, "moe_layer_end_index", JSON_OPTIONAL, -1, MODEL_MAX_LAYERS, &last, r->e);
    if (!status)
        status = json_get_int(&r->source, "moe_layer_interval", JSON_OPTIONAL, 1, MODEL_MAX_LAYERS, &step, r->e);
    for (int i = 0; i < c->layers; i++)
        c->sparse[i] = (i + 1) % step == 0 && i >= first && (last < 0 || i <= last);
    return status;
}

/* mlp_layer_types: "dense" or "sparse" for each layer. */
static int read_mlp_types(config_reader *r)
{
    model_config *c = r->c;
    json_t *types = NULL;
    int status = json_get_array(&r->source, "mlp_layer_types", JSON_OPTIONAL, &types, r->e);
    if (!status && types && json_array_size(types) != (size_t)c->layers)
        status = pt_fail(r->e, PT_FAILED, "%s: \"mlp_layer_types\" has %zu entries, but \"%s\" is %lld", r->source.where,
                         json_array_size(types), r->a->layers.name, (long long)c->layers);
    for (int i = 0; i < c->layers && !status; i++) {
        char text[64];
        const json_t *value = json_array_get(types, (size_t)i);
        const char *type = json_is_string(value) ? json_string_value(value) : "";
        c->sparse[i] = types ? !strcmp(type, "sparse") : i >= r->a->first_sparse;
        if (types && !c->sparse[i] && strcmp(type, "dense"))
            status = pt_fail(r->e, PT_FAILED, "%s: \"mlp_layer_types\"[%d] is %s, but it must be \"dense\" or \"sparse\"", r->source.where,
                             i, config_value_text(value, text));
    }
    return status;
}

static int read_sparse_layers(config_reader *r)
{
    model_config *c = r->c;
    int64_t step = 1, first = r->a->first_sparse;
    int status = 0;
    if (r->a->sparse == SPARSE_BRANCHES)
        return 0;
    if (r->a->sparse == SPARSE_RANGE)
        return read_range(r);
    if (r->a->sparse == SPARSE_TYPES)
        return read_mlp_types(r);
    if (r->a->sparse == SPARSE_STEP)
        status = json_get_int(&r->source, "decoder_sparse_step", JSON_OPTIONAL, 1, MODEL_MAX_LAYERS, &step, r->e);
    const char *first_key = r->a->first_sparse_key ? r->a->first_sparse_key : "first_k_dense_replace";
    if (r->a->sparse == SPARSE_FROM)
        status = json_get_int(&r->source, first_key, JSON_OPTIONAL, 0, INT32_MAX, &first, r->e);
    for (int i = 0; i < c->layers; i++)
        c->sparse[i] = (i + 1) % step == 0 && i >= first;
    return status || r->a->sparse != SPARSE_STEP ? status : read_dense_list(r);
}

static int read_groups(config_reader *r)
{
    model_config *c = r->c;
    c->router_groups = c->router_groups_used = 1;
    if (!r->a->router_groups)
        return 0;
    c->router_groups = r->a->router_groups;
    c->router_groups_used = r->a->router_groups_used;
    int status = json_get_int(&r->source, "n_group", JSON_OPTIONAL, 1, EXPERTS_MOST, &c->router_groups, r->e);
    if (!status)
        status = json_get_int(&r->source, "topk_group", JSON_OPTIONAL, 1, EXPERTS_MOST, &c->router_groups_used, r->e);
    const int64_t each = c->experts / c->router_groups;
    if (status || c->router_groups == 1)
        return status;
    if (c->experts % c->router_groups || each < 2 || c->router_groups_used > c->router_groups ||
        c->router_groups_used * each < c->experts_used)
        return pt_fail(r->e, PT_FAILED,
                       "%s: \"n_group\" %lld and \"topk_group\" %lld do not fit %lld experts of which a token has %lld: groups have equal "
                       "sizes of at least 2, and those that are used hold the token's experts",
                       r->source.where, (long long)c->router_groups, (long long)c->router_groups_used, (long long)c->experts,
                       (long long)c->experts_used);
    return 0;
}

static int read_router(config_reader *r)
{
    const architecture *a = r->a;
    model_config *c = r->c;
    c->router = a->router;
    c->router_correction = a->router_correction;
    c->router_norm = a->router_norm.value;
    c->router_bias = a->router_bias;
    c->router_loss = a->router_loss;
    c->expert_bias = a->expert_bias;
    c->experts_beside = a->experts_beside;
    c->router_scale = 1;
    c->router_eps = (float)a->router_eps;
    int status = read_groups(r);
    if (!status && a->router_norm.name)
        status = json_get_bool(&r->source, a->router_norm.name, JSON_OPTIONAL, &c->router_norm, r->e);
    if (!status)
        status = config_read_number(r, &a->router_least, 0, 0, &c->router_least);
    if (!status)
        status = config_read_number(r, &a->expert_alpha, 1e-6, a->expert_alpha.value, &c->expert_alpha);
    if (!status)
        status = config_read_number(r, &a->expert_limit, 1e-6, a->expert_limit.value, &c->expert_limit);
    return status ? status : config_read_number(r, &a->router_scale, 1e-6, 1, &c->router_scale);
}

/* The width of the shared expert, which may be given as that of some experts. */
static int read_shared(config_reader *r)
{
    const architecture *a = r->a;
    const config_key *key = a->shared_experts.name ? &a->shared_experts : &a->shared_ffn;
    model_config *c = r->c;
    c->shared_gate = a->shared_gate;
    if (!key->name)
        return 0;
    c->shared_ffn = key->value;
    int status = json_get_int(&r->source, key->name, JSON_OPTIONAL, 0, 64 * MAX_WIDTH, &c->shared_ffn, r->e);
    if (!status && c->shared_ffn < 0)
        return pt_fail(r->e, PT_FAILED, "%s: the key \"%s\" is missing: add it (0: there are none)", r->source.where, key->name);
    if (!status && (a->shared_gate || a->sparse == SPARSE_BRANCHES) && !c->shared_ffn)
        return pt_fail(r->e, PT_FAILED, "%s: \"%s\" is 0, but %s models have a shared expert", r->source.where, key->name, a->model_type);
    c->shared_ffn *= a->shared_experts.name ? c->expert_ffn : 1;
    return status;
}

static int read_counts(config_reader *r)
{
    const architecture *a = r->a;
    model_config *c = r->c;
    c->expert_ffn = c->ffn;
    int status = config_read_size(r, &a->experts, EXPERTS_MOST, &c->experts);
    if (!status)
        status = config_read_size(r, &a->experts_used, SLOTS_MOST, &c->experts_used);
    if (!status && a->expert_ffn.name)
        status = config_read_size(r, &a->expert_ffn, 64 * MAX_WIDTH, &c->expert_ffn);
    if (!status && a->expert_latent.name)
        status = config_read_size(r, &a->expert_latent, MAX_WIDTH, &c->expert_latent);
    if (!status && (c->experts < 0 || c->experts_used < 0 || c->expert_ffn < 0))
        return pt_fail(r->e, PT_FAILED, "%s: the key \"%s\" is missing: add it", r->source.where,
                       c->experts < 0 ? a->experts.name : c->experts_used < 0 ? a->experts_used.name : a->expert_ffn.name);
    if (!status && c->experts_used > c->experts)
        status = pt_fail(r->e, PT_FAILED, "%s: \"%s\" is %lld, but there are only %lld experts (\"%s\")", r->source.where,
                         a->experts_used.name, (long long)c->experts_used, (long long)c->experts, a->experts.name);
    return status;
}

static int read_whether_experts(config_reader *r, bool *any)
{
    const json_t *n = json_object_get(r->source.object, r->a->experts.name);
    *any = r->a->sparse != SPARSE_NONE && !(r->a->experts_optional && json_is_integer(n) && json_integer_value(n) == 0);
    if (r->a->sparse == SPARSE_BRANCHES)
        *any = memchr(r->c->sparse, true, (size_t)r->c->layers) != NULL;
    if (!r->a->experts_key)
        return 0;
    *any = false;
    return json_get_bool(&r->source, r->a->experts_key, JSON_OPTIONAL, any, r->e);
}

int config_read_experts(config_reader *r)
{
    bool any = false;
    int status = read_whether_experts(r, &any);
    if (status || !any)
        return status;
    int (*const steps[])(config_reader *) = {read_counts, read_router, read_shared, read_sparse_layers};
    for (size_t i = 0; i < sizeof steps / sizeof steps[0] && !status; i++)
        status = steps[i](r);
    r->c->experts_fused = r->fused;
    return status;
}
