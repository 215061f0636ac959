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
        const char *other = r->a->mixer_type ? r->a->mixer_type : "sliding_attention";
        bool sliding = !r->a->mixer_type && !strcmp(type, other);
        if (r->a->mixer_type_old && !strcmp(type, r->a->mixer_type_old))
            type = other;
        if (r->a->mixer_type_old && !strcmp(type, "attention"))
            type = "full_attention";
        if (strcmp(type, other) && strcmp(type, "full_attention"))
            return pt_fail(r->e, PT_FAILED, "%s: \"layer_types\"[%d] is %s, which is not supported; supported are "
                           "\"full_attention\" and \"%s\"", where, i, config_value_text(value, text), other);
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
    if (a->window == WINDOW_LAYERS) {
        first = 28;
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

int config_read_experts(config_reader *r)
{
    const architecture *a = r->a;
    model_config *c = r->c;
    int64_t step = 1;
    if (a->sparse == SPARSE_NONE)
        return 0;
    c->expert_ffn = c->ffn;
    int status = config_read_size(r, &a->experts, EXPERTS_MOST, &c->experts);
    if (!status)
        status = config_read_size(r, &a->experts_used, SLOTS_MOST, &c->experts_used);
    if (!status && a->expert_ffn.name)
        status = config_read_size(r, &a->expert_ffn, 64 * MAX_WIDTH, &c->expert_ffn);
    c->router_norm = a->router_norm.value;
    if (!status && a->router_norm.name)
        status = json_get_bool(&r->source, a->router_norm.name, JSON_OPTIONAL, &c->router_norm, r->e);
    if (!status && c->experts_used > c->experts)
        status = pt_fail(r->e, PT_FAILED, "%s: \"%s\" is %lld, but there are only %lld experts (\"%s\")", r->source.where,
                         a->experts_used.name, (long long)c->experts_used, (long long)c->experts, a->experts.name);
    if (!status && a->sparse == SPARSE_STEP)
        status = json_get_int(&r->source, "decoder_sparse_step", JSON_OPTIONAL, 1, MODEL_MAX_LAYERS, &step, r->e);
    for (int i = 0; i < c->layers; i++)
        c->sparse[i] = (i + 1) % step == 0;
    return status || a->sparse != SPARSE_STEP ? status : read_dense_list(r);
}
