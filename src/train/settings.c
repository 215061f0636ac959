/* settings.c - the settings on which the result of a run depends. Checkpoints record them, and a resumed run must have the same.
 *
 *   "model"     values of config.json that change the computation, with names that all architectures share
 *   "settings"  options, with their names without "--"
 *
 * They do not include budgets, plan, threads, device and the intervals of saving and evaluation, on which no result depends; the number of
 * steps, which may grow (checkpoint.c); and options only for a start from random weights.
 */
#include "train/settings.h"

#include "model/adapter.h"
#include "optimizer/optimizer.h"
#include "train/options.h"

#include <stdlib.h>
#include <math.h>
#include <string.h>

/* ---- the model ---- */

/* A list with one entry per layer, or the value that all entries have. */
static json_t *shortened(json_t *list)
{
    json_t *first = json_array_get(list, 0);
    for (size_t i = 1; i < json_array_size(list); i++)
        if (!json_equal(json_array_get(list, i), first))
            return list;
    json_incref(first);
    json_decref(list);
    return first;
}

static json_t *window_json(const model_config *config)
{
    json_t *list = json_array();
    for (int i = 0; i < config->layers; i++)
        json_array_append_new(list, json_integer((json_int_t)config->window[i]));
    return shortened(list);
}

static json_t *layer_scale_json(const model_config *config)
{
    json_t *list = json_array();
    for (int i = 0; i < config->layers; i++)
        json_array_append_new(list, json_real((double)config->layer_scale[i]));
    return shortened(list);
}

static json_t *mixer_json(const model_config *config)
{
    static const char *const names[] = {[MIXER_ATTENTION] = "attention", [MIXER_DELTA] = "delta rule", [MIXER_MAMBA] = "mamba-2",
                                        [MIXER_CONV] = "convolution", [MIXER_NONE] = "none"};
    json_t *list = json_array();
    for (int i = 0; i < config->layers; i++)
        json_array_append_new(list, json_string(names[config->mixer[i]]));
    return shortened(list);
}

static json_t *factors_json(const double *factors, int64_t n)
{
    json_t *list = json_array();
    for (int64_t i = 0; i < n; i++)
        json_array_append_new(list, json_real(factors[i]));
    return list;
}

static json_t *model_factors_json(const model_factors *f)
{
    const double all[] = {(double)f->qkv, (double)f->out, (double)f->mix_in, (double)f->mix_out, (double)f->gate, (double)f->down,
                          (double)f->mix[0], (double)f->mix[1], (double)f->mix[2], (double)f->mix[3], (double)f->mix[4]};
    return factors_json(all, sizeof all / sizeof *all);
}

/* Everything that a rope's table depends on, and nothing that its type does not use. */
static void add_rope(json_t *all, const rope_config *r, const model_config *config)
{
    static const char *const types[] = {[ROPE_PLAIN] = "default", [ROPE_LINEAR] = "linear", [ROPE_DYNAMIC] = "dynamic",
                                        [ROPE_LLAMA3] = "llama3", [ROPE_YARN] = "yarn",     [ROPE_LONG] = "longrope",
                                        [ROPE_PARTIAL] = "proportional"};
    json_object_set_new(all, "rope_theta", json_real(r->theta));
    json_object_set_new(all, "rope_type", json_string(types[r->kind]));
    if (r->rotated != config->head_dim)
        json_object_set_new(all, "rotated elements of a head", json_integer((json_int_t)r->rotated));
    if (r->kind == ROPE_PARTIAL)
        json_object_set_new(all, "pairs of a head that turn", json_integer((json_int_t)r->turning));
    if (r->kind != ROPE_PLAIN && r->kind != ROPE_LONG)
        json_object_set_new(all, "rope factor", json_real(r->factor));
    if (r->kind == ROPE_LLAMA3) {
        json_object_set_new(all, "low_freq_factor", json_real(r->low_freq_factor));
        json_object_set_new(all, "high_freq_factor", json_real(r->high_freq_factor));
    }
    if (r->kind >= ROPE_DYNAMIC || r->scaling_beta > 0)
        json_object_set_new(all, "original_max_position_embeddings", json_real(r->original_positions));
    if (r->kind >= ROPE_YARN)
        json_object_set_new(all, "attention_factor", json_real(r->attention_factor));
    if (r->kind == ROPE_YARN) {
        json_object_set_new(all, "beta_fast", json_real(r->beta_fast));
        json_object_set_new(all, "beta_slow", json_real(r->beta_slow));
        json_object_set_new(all, "truncate", json_boolean(r->truncate));
    }
    if (r->kind == ROPE_LONG) {
        json_object_set_new(all, "short_factor", factors_json(r->short_factor, r->rotated / 2));
        json_object_set_new(all, "long_factor", factors_json(r->long_factor, r->rotated / 2));
    }
    if (r->scaling_beta > 0)
        json_object_set_new(all, "scaling_beta", json_real(r->scaling_beta));
}

static json_t *layer_rope_json(const model_config *config)
{
    json_t *list = json_array();
    for (int i = 0; i < config->layers; i++)
        json_array_append_new(list, json_integer(config->layer_rope[i]));
    return shortened(list);
}

static void add_ropes(json_t *all, const model_config *config)
{
    add_rope(all, &config->rope[0], config);
    if (config->ropes_n > 1) {
        json_t *second = json_object();
        add_rope(second, &config->rope[1], config);
        json_object_set_new(all, "second rope", second);
    }
    if (config->rope_neighbours)
        json_object_set_new(all, "rope of neighbours", json_true());
    json_t *layers = layer_rope_json(config);
    if (!json_is_integer(layers) || json_integer_value(layers))
        json_object_set(all, "rope of each layer", layers);
    json_decref(layers);
}

/* Properties that few models have are recorded only for those. */
static void add_number(json_t *all, const char *name, double value, double usual)
{
    if (value != usual)
        json_object_set_new(all, name, json_real(value));
}

/* Of attention. */
static void add_heads(json_t *all, const model_config *config)
{
    add_number(all, "key heads of layers without a window", (double)config->full_kv_heads, 0);
    add_number(all, "head dimension of layers without a window", (double)config->full_head_dim, 0);
    add_number(all, "keys as values", config->keys_as_values, 0);
    add_number(all, "layers that read another's keys", (double)config->kv_shared, 0);
    add_number(all, "width of layers' inputs", (double)config->input_width, 0);
    add_number(all, "MLPs of such layers twice as wide", config->double_wide, 0);
    add_number(all, "latent of queries", (double)config->q_latent, 0);
    add_number(all, "latent of keys and values", (double)config->kv_latent, 0);
    add_number(all, "elements of shared keys", (double)config->shared_dim, 0);
    add_number(all, "elements of values", (double)config->value_dim, 0);
    add_number(all, "norm of values", config->value_norm, 0);
    add_number(all, "factor of a layer's output", config->scaled, 0);
    add_number(all, "gates of attention's output", config->output_gate, 0);
    add_number(all, "sinks", config->sinks, 0);
}

static void add_mixers(json_t *all, const model_config *config)
{
    json_object_set_new(all, "mixer of each layer", mixer_json(config));
    add_number(all, "tokens under a convolution", (double)config->taps, 0);
    add_number(all, "bias of convolutions", config->conv_bias, 0);
    add_number(all, "bias of mixers", config->mix_bias, 0);
    add_number(all, "least step of a scan", (double)config->step_least, 0);
    if (isfinite(config->step_most))
        add_number(all, "largest step of a scan", (double)config->step_most, 0);
    add_number(all, "key heads of a scan", (double)config->scan_key_heads, 0);
    add_number(all, "heads of a scan", (double)config->scan_heads, 0);
    add_number(all, "key dimension of a scan", (double)config->scan_key_dim, 0);
    add_number(all, "head dimension of a scan", (double)config->scan_dim, 0);
}

static json_t *sparse_json(const model_config *config)
{
    json_t *list = json_array();
    for (int i = 0; i < config->layers; i++)
        json_array_append_new(list, json_boolean(config->sparse[i]));
    return shortened(list);
}

static void add_experts(json_t *all, const model_config *config)
{
    json_object_set_new(all, "experts in each layer", sparse_json(config));
    add_number(all, "experts", (double)config->experts, 0);
    add_number(all, "experts of a token", (double)config->experts_used, 0);
    add_number(all, "width of an expert", (double)config->expert_ffn, 0);
    add_number(all, "latent of experts", (double)config->expert_latent, 0);
    add_number(all, "kind of router", config->router, 0);
    add_number(all, "norm of the experts' weights", config->router_norm, 0);
    add_number(all, "correction of the choice", config->router_correction, 0);
    add_number(all, "bias of the router", config->router_bias, 0);
    add_number(all, "groups of experts", (double)config->router_groups, 1);
    add_number(all, "groups of experts of a token", (double)config->router_groups_used, 1);
    add_number(all, "factor of the experts' weights", (double)config->router_scale, 1);
    add_number(all, "addend of the weights' sum", (double)config->router_eps, 0);
    add_number(all, "least sum of the weights", (double)config->router_least, 0);
    add_number(all, "width of the shared expert", (double)config->shared_ffn, 0);
    add_number(all, "gate of the shared expert", config->shared_gate, 0);
    add_number(all, "norms of the experts' own", config->experts_beside, 0);
    add_number(all, "bias of experts", config->expert_bias, 0);
    add_number(all, "alpha of experts", (double)config->expert_alpha, 0);
    add_number(all, "limit of experts", (double)config->expert_limit, 0);
}

json_t *model_json(const model_config *config)
{
    static const char *const activations[] = {[ACT_GELU_TANH] = "gelu_tanh", [ACT_GELU_ERF] = "gelu", [ACT_SILU] = "silu",
                                              [ACT_RELU] = "relu", [ACT_RELU2] = "relu2"};
    json_t *all = json_pack(
        "{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:f, s:s, s:b, s:b, s:b, s:b, s:b, s:b, s:f, s:o, s:o, s:I}", "model_type",
        config->model_type, "vocab_size", (json_int_t)config->vocab, "hidden_size", (json_int_t)config->hidden, "num_hidden_layers",
        (json_int_t)config->layers, "num_attention_heads", (json_int_t)config->heads, "num_key_value_heads", (json_int_t)config->kv_heads,
        "head_dim", (json_int_t)config->head_dim, "intermediate_size", (json_int_t)config->ffn, "norm",
        config->norm == NORM_RMS ? "rms" : "layer", "norm eps", (double)config->norm_eps, "activation", activations[config->activation],
        "gated", (int)config->gated, "bias of q, k and v", (int)config->qkv_bias, "bias of attention's output", (int)config->out_bias,
        "mlp_bias", (int)config->mlp_bias, "norm of q and k", config->qk_norm != QK_NORM_NONE, "tie_word_embeddings", (int)config->tied,
        "attention scale", (double)config->attention_scale, "attention scale by layer", layer_scale_json(config), "sliding_window",
        window_json(config), "pad_token_id", (json_int_t)config->padding);
    if (config->position == POSITION_ROTARY)
        add_ropes(all, config);
    else
        json_object_set_new(all, "positions", json_integer((json_int_t)config->max_positions));
    add_number(all, "norm before a branch", config->pre_norm, 1);
    add_number(all, "norm after a branch", config->post_norm, 0);
    add_number(all, "parallel branches", config->parallel, 0);
    add_number(all, "one norm for both branches", config->one_norm, 0);
    add_number(all, "norm offset", (double)config->norm_offset, 0);
    add_number(all, "embedding scale", (double)config->embedding_scale, 1);
    add_number(all, "residual scale", (double)config->residual_scale, 1);
    add_number(all, "logit scale", (double)config->logit_scale, 1);
    add_number(all, "attention softcap", (double)config->attention_softcap, 0);
    add_number(all, "labels", (double)config->labels, 0);
    add_number(all, "logit softcap", (double)config->logit_softcap, 0);
    add_heads(all, config);
    if (config->taps)
        add_mixers(all, config);
    if (config->attends_beside) {
        json_object_set_new(all, "factors", model_factors_json(&config->factor));
        add_number(all, "norm after a scan", config->mix_norm, 0);
        add_number(all, "norm before the gate", config->mix_norm_first, 0);
    }
    if (config->experts)
        add_experts(all, config);
    return all;
}

/* ---- options ---- */

/* An adapter's own config, as the options that would make it. */
static void add_adapter(json_t *all, const json_t *config)
{
    static const char *const keys[][2] = {{"lora", "r"}, {"lora-alpha", "lora_alpha"}, {"lora-targets", "target_modules"},
                                          {"rslora", "use_rslora"},
                                          {"dora", "use_dora"}, {"rank_pattern", "rank_pattern"}, {"alpha_pattern", "alpha_pattern"}};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        json_t *value = json_object_get(config, keys[i][1]);
        if (value && !(json_is_object(value) && !json_object_size(value)))
            json_object_set(all, keys[i][0], value);
    }
    json_t *whole = json_object_get(config, "modules_to_save");
    if (json_array_size(whole))
        json_object_set(all, "train-also", whole);
    const json_t *dropout = json_object_get(config, "lora_dropout");
    if (json_number_value(dropout) > 0) /* versions without it have no entry */
        json_object_set(all, "lora-dropout", (json_t *)dropout);
}

/* Options with the values that a run uses where they say "the default". */
static pt_train_options resolved(const job *j)
{
    pt_train_options o = j->o;
    o.seq_len = j->shape.seq_len;
    o.lanes = shape_lanes(&j->shape);
    o.base = o.base >= PT_BASE_NF4 ? o.base : PT_BASE_AS_COMPUTED;
    o.drop_last = o.drop_last || dataset_windows(j->data) % (uint64_t)j->shape.batch == 0; /* without such windows it has no effect */
    o.momentum = o.momentum > 0 ? o.momentum : (double)MUON_MOMENTUM;
    o.lora_dropout = j->model->adapters ? j->model->adapters->dropout : 0;
    return o;
}

/* The key of an option, whose value is that of its field. */
static const char *key_of(const pt_option *o) { return o->kind == PT_OPTION_NOT ? o->field : o->name; }

static json_t *value_of(const pt_option *o, const void *from)
{
    pt_option field = *o;
    field.kind = o->kind == PT_OPTION_NOT ? PT_OPTION_FLAG : o->kind;
    return option_json(&field, from);
}

static const option_row *row_of(const char *key)
{
    for (int i = 0; i < train_table.n; i++)
        if (!strcmp(key, key_of(&train_table.rows[i].is)))
            return &train_table.rows[i];
    return NULL;
}

json_t *settings_json(const job *j)
{
    const pt_train_options o = resolved(j);
    const option_needs needs = options_needs(&o, true, dataset_packed(j->data));
    json_t *all = json_pack("{s:s}", "data", dataset_fingerprint(j->data));
    for (int i = 0; i < train_table.n; i++) {
        const option_row *r = &train_table.rows[i];
        const bool always = r->need == NEED_TEXT || r->need == NEED_CONTENTS || r->need == NEED_DECAY; /* as in older versions */
        const bool counts = always || !needs.unmet[r->need];
        if (r->record == RECORD_RESULT && counts && (r->is.initial || !r->is.values || !option_is_default(&r->is, &o)))
            json_object_set_new(all, key_of(&r->is), value_of(&r->is, &o));
    }
    json_object_set_new(all, "save-dtype", json_string(dtype_name(j->save_type)));
    if (j->model->adapters)
        add_adapter(all, j->model->adapters->config);
    if (o.train_blocks && o.train_also)
        json_object_set_new(all, "train-also", json_string(o.train_also));
    return all;
}

static pt_save_type save_type_of(pt_dtype type) { return type == PT_F32 ? PT_SAVE_F32 : type == PT_BF16 ? PT_SAVE_BF16 : PT_SAVE_F16; }

static pt_train_options all_resolved(const job *j)
{
    pt_train_options o = resolved(j);
    o.drop_last = j->o.drop_last;
    o.steps = j->steps;
    o.save_type = save_type_of(j->save_type);
    return o;
}

/* Has the option an effect on this run? The number of steps replaces that of epochs. */
static bool is_used(const job *j, const option_needs *needs, const option_row *r)
{
    return !needs->unmet[r->need] && !(j->o.steps && !strcmp(r->is.name, "epochs"));
}

static bool is_text(const pt_option *o) { return o->kind == PT_OPTION_TEXT || o->kind == PT_OPTION_TEXTS; }

json_t *settings_all_json(const job *j)
{
    const pt_train_options o = all_resolved(j);
    const option_needs needs = options_needs(&o, dataset_chats(j->data), dataset_packed(j->data));
    json_t *all = json_object();
    for (int i = 0; i < train_table.n; i++) {
        const option_row *r = &train_table.rows[i];
        json_t *value = r->record == RECORD_NONE || !is_used(j, &needs, r) ? NULL : option_json(&r->is, &o);
        if (value && !(json_is_array(value) && !json_array_size(value)))
            json_object_set(all, r->is.name, value);
        json_decref(value);
    }
    if (j->model->adapters)
        add_adapter(all, j->model->adapters->config);
    return all;
}

void settings_describe(const job *j, char *out, size_t n)
{
    const pt_train_options o = all_resolved(j);
    const option_needs needs = options_needs(&o, dataset_chats(j->data), dataset_packed(j->data));
    size_t used = 0;
    out[0] = 0;
    for (int i = 0; i < train_table.n && used < n; i++) {
        const option_row *r = &train_table.rows[i];
        char text[OPTION_TEXT];
        const char *value = option_text(&r->is, &o, 0, text);
        const bool set = r->record == RECORD_INPUT && !is_text(&r->is) && !option_is_default(&r->is, &o); /* such as --lora */
        const bool counts = (set || r->record >= RECORD_LENGTH) && is_used(j, &needs, r);
        if (counts && value && (r->is.values || !strcmp(value, "true")))
            used += (size_t)snprintf(out + used, n - used, "%s%s%s%s", used ? ", " : "", r->is.name, r->is.values ? " " : "",
                                     r->is.values ? value : "");
    }
}

/* ---- comparing ---- */

static void describe(const json_t *value, char *out, size_t n)
{
    char *text = value ? json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(10)) : NULL;
    snprintf(out, n, "%s", text ? text : "nothing");
    free(text);
}

static bool same_value(const json_t *a, const json_t *b)
{
    if (json_is_real(a) || json_is_real(b))
        return json_is_number(a) && json_is_number(b) && json_number_value(a) == json_number_value(b);
    if (!json_is_array(a) || !json_is_array(b) || json_array_size(a) != json_array_size(b))
        return json_equal(a, b);
    size_t same = 0;
    for (size_t i = 0; i < json_array_size(a); i++)
        same += same_value(json_array_get(a, i), json_array_get(b, i));
    return same == json_array_size(a);
}

/* A list of names, which --train-also gives as a text with commas beside --train-blocks. A new reference. */
static json_t *names_of(const json_t *value)
{
    if (!json_is_string(value))
        return json_incref((json_t *)value);
    json_t *list = json_array();
    for (const char *at = json_string_value(value); *at; at += strcspn(at, ",") + (at[strcspn(at, ",")] == ','))
        json_array_append_new(list, json_stringn(at, strcspn(at, ",")));
    return list;
}

static bool are_among(const json_t *names, const json_t *others)
{
    size_t found = 0;
    for (size_t i = 0; i < json_array_size(names); i++) {
        size_t k = 0;
        while (k < json_array_size(others) && !json_equal(json_array_get(names, i), json_array_get(others, k)))
            k++;
        found += k < json_array_size(others);
    }
    return found == json_array_size(names);
}

/* Of one key. The order of names has no effect. */
static bool same_setting(const char *key, const json_t *a, const json_t *b)
{
    const bool names = !strcmp(key, "train-also") || (!strcmp(key, "lora-targets") && json_is_array(a) && json_is_array(b));
    if (!names || !a || !b)
        return same_value(a, b);
    json_t *one = names_of(a), *other = names_of(b);
    const bool same = are_among(one, other) && are_among(other, one);
    json_decref(one);
    json_decref(other);
    return same;
}

/* The first key in which `now` differs from `before`, or that only one of them has; NULL: none. */
static const char *find_difference(json_t *now, json_t *before)
{
    static const char *const first[] = {"task", "lora", "plain-contents"}; /* others follow from these */
    const char *key;
    json_t *value;
    for (size_t i = 0; i < sizeof first / sizeof *first; i++)
        if ((json_object_get(now, first[i]) || json_object_get(before, first[i])) &&
            !same_setting(first[i], json_object_get(now, first[i]), json_object_get(before, first[i])))
            return first[i];
    json_object_foreach(now, key, value)
        if (!same_setting(key, value, json_object_get(before, key)))
            return key;
    json_object_foreach(before, key, value)
        if (!json_object_get(now, key))
            return key;
    return NULL;
}

/* The name of an option in messages: its field. */
static const char *field_of(const char *key)
{
    const option_row *r = row_of(key);
    return !r ? key : r->is.kind == PT_OPTION_NOT ? "no_shuffle" : r->is.field;
}

static int compare(json_t *now, json_t *before, const char *path, bool options, pt_error *e)
{
    const char *key = find_difference(now, before);
    if (!key)
        return 0;
    char a[160], b[160];
    describe(json_object_get(before, key), a, sizeof a);
    describe(json_object_get(now, key), b, sizeof b);
    if (options && strcmp(key, "data") == 0)
        return pt_fail(e, PT_FAILED,
                       "%.400s was written with other `data` or another tokenizer (fingerprint %s, now %s): the result "
                       "depends on them, so give the same",
                       path, a, b);
    if (!options)
        return pt_fail(e, PT_FAILED,
                       "%.400s was written with a model whose %.100s is %s; in the config.json of `model` it is %s: the result "
                       "depends on it, so give the same model",
                       path, key, a, b);
    const json_t *value = json_object_get(now, key);
    const bool negated = strcmp(key, "shuffle") == 0, given = json_is_true(json_object_get(before, key)) != negated;
    const char *field = field_of(key);
    if (json_is_boolean(value))
        return pt_fail(e, PT_FAILED, "%.400s was written %s `%s` and this run is %s it: the result depends on it, so give the same", path,
                       given ? "with" : "without", field, given ? "without" : "with");
    if (!json_object_get(before, key))
        return pt_fail(e, PT_FAILED, "%.400s was written without `%s` and this run has %s: the result depends on it, so leave it out", path,
                       field, b);
    if (!value)
        return pt_fail(e, PT_FAILED, "%.400s was written with `%s` %s and this run has none: the result depends on it, so give the same",
                       path, field, a);
    return pt_fail(e, PT_FAILED, "%.400s was written with `%s` %s and this run has %s: the result depends on it, so give the same", path,
                   field, a, b);
}

/* Older versions did not have all options: theirs are at the defaults. */
static void add_defaults(json_t *before, json_t *now)
{
    const char *key;
    json_t *value;
    pt_train_options o;
    pt_train_defaults(&o);
    o.lanes = 1;
    o.drop_last = true;
    json_object_foreach(now, key, value) {
        const option_row *r = json_object_get(before, key) ? NULL : row_of(key);
        if (r && (r->is.initial || !r->is.values || !option_is_default(&r->is, &o)))
            json_object_set_new(before, key, value_of(&r->is, &o));
    }
}

int settings_compare(const job *j, const char *path, const json_source *file, pt_error *e)
{
    json_source model, settings;
    int failed = json_get_object(file, "model", JSON_REQUIRED, &model, e);
    if (!failed)
        failed = json_get_object(file, "settings", JSON_REQUIRED, &settings, e);
    if (failed)
        return failed;
    json_t *model_now = model_json(&j->model->config), *settings_now = settings_json(j);
    if (!model_now || !settings_now)
        failed = pt_fail(e, PT_FAILED, "out of memory");
    else
        add_defaults(settings.object, settings_now);
    if (!failed)
        failed = compare(model_now, model.object, path, false, e);
    if (!failed)
        failed = compare(settings_now, settings.object, path, true, e);
    json_decref(model_now);
    json_decref(settings_now);
    return failed;
}

/* ---- several ranks ---- */

/* Options that all ranks must share, in addition to those on which the result depends. */
static json_t *course_json(const job *j)
{
    json_t *all = json_pack("{s:I, s:s}", "steps", (json_int_t)j->steps, "eval-data", j->eval ? dataset_fingerprint(j->eval) : "none");
    for (int i = 0; i < train_table.n; i++)
        if (train_table.rows[i].record == RECORD_COURSE)
            json_object_set_new(all, train_table.rows[i].is.name, option_json(&train_table.rows[i].is, &j->o));
    return all;
}

char *settings_text(const job *j)
{
    json_t *all = json_pack("{s:o, s:o, s:o}", "model", model_json(&j->model->config), "settings", settings_json(j), "course",
                            course_json(j));
    char *text = all ? json_dumps(all, JSON_COMPACT | JSON_REAL_PRECISION(17)) : NULL;
    json_decref(all);
    return text;
}

static int agree(json_t *own, json_t *of_zero, bool options, pt_error *e)
{
    const char *key = find_difference(own, of_zero);
    if (!key)
        return 0;
    char a[160], b[160];
    describe(json_object_get(own, key), a, sizeof a);
    describe(json_object_get(of_zero, key), b, sizeof b);
    if (!strcmp(key, "data") || !strcmp(key, "eval-data"))
        return pt_fail(e, PT_FAILED, "its --%s is other than that of rank 0, or its tokenizer is: give all ranks the same files", key);
    return pt_fail(e, PT_FAILED, "its %s%.100s is %s, and that of rank 0 %s: start all ranks with the same options",
                   options ? "--" : "model's ", key, a,
                   b);
}

int settings_agree(const char *own, const char *of_zero, pt_error *e)
{
    static const char *const parts[] = {"model", "settings", "course"};
    json_t *a = json_loads(own, 0, NULL), *b = json_loads(of_zero, 0, NULL);
    int failed = a && b ? 0 : pt_fail(e, PT_FAILED, "what rank 0 says of its options cannot be read");
    for (int i = 0; i < 3 && !failed; i++)
        failed = agree(json_object_get(a, parts[i]), json_object_get(b, parts[i]), i > 0, e);
    json_decref(a);
    json_decref(b);
    return failed;
}
