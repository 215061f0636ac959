/* config_rope.c - reads rotary positions from config.json. The formulas are in rope.c.
 *
 * Transformers 4 writes `rope_theta` and `rope_scaling` {"rope_type" or "type", ...}, Transformers 5 one object `rope_parameters`
 * {"rope_type", "rope_theta", ...}, or one such object per type of layer: {"full_attention": {...}, "sliding_attention": {...}}.
 */
#include "model/config_reader.h"

#include <math.h>
#include <string.h>

static const struct rope_type {
    const char *name;
    rope_kind kind;
} rope_types[] = {{"default", ROPE_PLAIN}, {"linear", ROPE_LINEAR}, {"dynamic", ROPE_DYNAMIC},
                  {"llama3", ROPE_LLAMA3}, {"yarn", ROPE_YARN},     {"longrope", ROPE_LONG}, {"proportional", ROPE_PARTIAL}};

/* A rope's object (NULL: none), and the values that it does not give. */
typedef struct rope_source {
    const json_source *rope;
    const char *theta_key; /* key outside the object; NULL: not read */
    double theta;
    int64_t dim;           /* of the heads that it turns */
} rope_source;

static bool object_is_there(const json_source *src) { return src->object && json_object_size(src->object) > 0; }

static const char *type_name(rope_kind kind)
{
    for (size_t i = 0; i < sizeof rope_types / sizeof rope_types[0]; i++)
        if (rope_types[i].kind == kind)
            return rope_types[i].name;
    return "default";
}

static int find_type(const config_reader *reader, const json_source *rope, rope_kind *kind)
{
    const char *name = NULL, *older = NULL;
    int status = json_get_string(rope, "rope_type", JSON_OPTIONAL, &name, reader->e);
    if (!status)
        status = json_get_string(rope, "type", JSON_OPTIONAL, &older, reader->e);
    if (status)
        return status;
    if (name && older && strcmp(name, older))
        return pt_fail(
            reader->e, PT_FAILED,
            "%s: \"rope_type\" is \"%.40s\" but \"type\" is \"%.40s\"; they mean the same, remove one",
            rope->where, name, older);
    name = name ? name : older ? older : "default";
    if (reader->a->rope_long_only && (!strcmp(name, "su") || !strcmp(name, "yarn"))) /* older names of longrope there */
        name = "longrope";
    for (size_t i = 0; i < sizeof rope_types / sizeof rope_types[0]; i++)
        if (!strcmp(rope_types[i].name, name) && (rope_types[i].kind != ROPE_PARTIAL || reader->a->rope_partial) &&
            (!reader->a->rope_long_only || rope_types[i].kind == ROPE_PLAIN || rope_types[i].kind == ROPE_LONG)) {
            *kind = rope_types[i].kind;
            return 0;
        }
    return pt_fail(reader->e, PT_FAILED, "%s: \"rope_type\" is \"%.40s\", which is not supported; supported are %s", rope->where, name,
                   reader->a->rope_long_only ? "default, longrope"
                   : reader->a->rope_partial ? "default, linear, dynamic, llama3, yarn, longrope, proportional"
                                        : "default, linear, dynamic, llama3, yarn, longrope");
}

static bool key_is_used(const config_reader *reader, rope_kind kind, const char *key)
{
    enum { ANY = 0xff, SCALED = 0xfe };
    static const struct { const char *name; unsigned kinds; } keys[] = {
        {"rope_type", ANY}, {"type", ANY}, {"rope_theta", ANY}, {"partial_rotary_factor", ANY}, {"original_max_position_embeddings", ANY},
        {"factor", SCALED}, {"low_freq_factor", 1u << ROPE_LLAMA3}, {"high_freq_factor", 1u << ROPE_LLAMA3},
        {"beta_fast", 1u << ROPE_YARN}, {"beta_slow", 1u << ROPE_YARN}, {"truncate", 1u << ROPE_YARN}, {"mscale", 1u << ROPE_YARN},
        {"mscale_all_dim", 1u << ROPE_YARN}, {"attention_factor", 1u << ROPE_YARN | 1u << ROPE_LONG},
        {"short_factor", 1u << ROPE_LONG}, {"long_factor", 1u << ROPE_LONG}};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (!strcmp(keys[i].name, key))
            return keys[i].kinds >> kind & 1;
    if (reader->a->rope_sections && (!strcmp(key, "mrope_section") || !strcmp(key, "mrope_interleaved")))
        return true; /* the positions of text are the same in all sections */
    return reader->a->rope == ROPE_RULE_QUERY && (!strcmp(key, "llama_4_scaling_beta") || !strcmp(key, "max_position_embeddings"));
}

static int check_keys(const config_reader *reader, const json_source *rope, rope_kind kind)
{
    const char *key;
    json_t *value;
    json_object_foreach(rope->object, key, value)
    {
        if (!json_is_null(value) && !key_is_used(reader, kind, key))
            return pt_fail(reader->e, PT_FAILED, "%s: \"%.60s\" is %s with no meaning for rope type \"%s\" here; remove it",
                           rope->where, key, json_type_name(value), type_name(kind));
    }
    return 0;
}

/* A number in the rope's object, or outside it under the same or another name; both may be given if they agree. */
static int read_beside(const config_reader *reader, const json_source *rope, const char *key, const char *outside_key, double min,
                       double max, double *out)
{
    double outside = NAN, inside = NAN;
    int status = outside_key ? json_get_double(&reader->source, outside_key, JSON_OPTIONAL, min, max, &outside, reader->e) : 0;
    if (!status && rope && rope->object)
        status = json_get_double(rope, key, JSON_OPTIONAL, min, max, &inside, reader->e);
    if (!status && !isnan(outside) && !isnan(inside) && outside != inside)
        return pt_fail(reader->e, PT_FAILED, "%s: \"%s\" is %g here but %g outside; remove one", rope->where, key, inside, outside);
    if (!status && !(isnan(outside) && isnan(inside)))
        *out = isnan(inside) ? outside : inside;
    return status;
}

static int read_rotated(const config_reader *reader, const rope_source *from, rope_config *out)
{
    const json_source *rope = from->rope;
    double part = reader->a->rope_part_key ? reader->a->rope_part : 1;
    int64_t size = 0;
    int status = !reader->a->rope_size_key
                     ? 0
                     : json_get_int(&reader->source, reader->a->rope_size_key, JSON_OPTIONAL, 1, from->dim, &size, reader->e);
    if (size)
        part = (double)size / (double)from->dim;
    if (!status)
        status = read_beside(reader, rope, "partial_rotary_factor", reader->a->rope_part_key, 0, 1, &part);
    if (!status && object_is_there(rope))
        status = find_type(reader, rope, &out->kind);
    if (!status && out->kind == ROPE_PARTIAL) { /* all pairs are in the table, the last ones with an angle of 0 */
        out->turning = (int64_t)(part * (double)from->dim) / 2;
        part = 1;
    }
    if (!status && part != 1 && !reader->a->rope_part_key)
        status = pt_fail(reader->e, PT_FAILED, "%s: \"partial_rotary_factor\" is %g, but only 1 is supported", rope->where, part);
    out->rotated = (int64_t)((double)from->dim * part);
    if (!status && (out->rotated < 2 || out->rotated % 2))
        status = pt_fail(reader->e, PT_FAILED,
                         "%s: rotary positions rotate %lld of the %lld elements of a head (\"%s\" / \"%s\", or \"head_dim\"%s%s%s), but "
                         "the number must be even and at least 2", reader->source.where, (long long)out->rotated, (long long)from->dim,
                         reader->a->hidden.name, reader->a->heads.name, reader->a->rope_part_key ? ", times \"" : "",
                         reader->a->rope_part_key ? reader->a->rope_part_key : "", reader->a->rope_part_key ? "\"" : "");
    return status;
}

/* The original number of positions may be in the object or outside it. */
static int read_original_positions(const config_reader *reader, const json_source *rope, rope_config *out)
{
    static const char key[] = "original_max_position_embeddings";
    out->original_positions = (double)(reader->a->rope_long_only ? reader->a->positions.value : reader->c->max_positions);
    return read_beside(reader, rope, key, key, 1, 0x1p53, &out->original_positions);
}

static int read_llama3(const config_reader *reader, const json_source *rope, rope_config *out)
{
    int status = json_get_double(rope, "low_freq_factor", JSON_REQUIRED, 1e-3, 1e6, &out->low_freq_factor, reader->e);
    if (!status)
        status = json_get_double(rope, "high_freq_factor", JSON_REQUIRED, 1e-3, 1e6, &out->high_freq_factor, reader->e);
    if (!status && out->high_freq_factor <= out->low_freq_factor)
        status = pt_fail(reader->e, PT_FAILED,
                         "%s: \"high_freq_factor\" is %g, but it must be greater than \"low_freq_factor\" %g",
                         rope->where, out->high_freq_factor, out->low_freq_factor);
    return status;
}

static double yarn_scale(double factor, double by) { return factor <= 1 ? 1 : 0.1 * by * log(factor) + 1; }

static int read_yarn(const config_reader *reader, const json_source *rope, rope_config *out)
{
    double fast = 0, slow = 0, mscale = 0, all_dim = 0;
    const struct { const char *name; double *out; } numbers[] = {
        {"beta_fast", &fast}, {"beta_slow", &slow}, {"mscale", &mscale}, {"mscale_all_dim", &all_dim}};
    int status = 0;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers && !status; i++)
        status = json_get_double(rope, numbers[i].name, JSON_OPTIONAL, 0, 1e6, numbers[i].out, reader->e);
    out->beta_fast = fast > 0 ? fast : 32; /* 0 counts as absent */
    out->beta_slow = slow > 0 ? slow : 1;
    out->truncate = true;
    if (!status)
        status = json_get_bool(rope, "truncate", JSON_OPTIONAL, &out->truncate, reader->e);
    if (reader->a->kv_latent.name && all_dim > 0) /* scores have the factor of queries and that of keys */
        reader->c->attention_scale *= (float)(yarn_scale(out->factor, all_dim) * yarn_scale(out->factor, all_dim));
    out->attention_factor = mscale > 0 && all_dim > 0 ? yarn_scale(out->factor, mscale) / yarn_scale(out->factor, all_dim)
                                                       : yarn_scale(out->factor, 1);
    if (!status)
        status = json_get_double(rope, "attention_factor", JSON_OPTIONAL, 1e-6, 1e6, &out->attention_factor, reader->e);
    return status;
}

static int read_factors(const config_reader *reader, const json_source *rope, const char *key, int64_t n, double *out)
{
    json_t *list = NULL;
    int status = json_get_array(rope, key, JSON_REQUIRED, &list, reader->e);
    if (!status && json_array_size(list) != (size_t)n)
        status = pt_fail(reader->e, PT_FAILED, "%s: \"%s\" has %zu numbers, but heads have %lld pairs that are rotated", rope->where, key,
                         json_array_size(list), (long long)n);
    for (int64_t i = 0; i < n && !status; i++) {
        char text[64];
        const json_t *value = json_array_get(list, (size_t)i);
        out[i] = json_number_value(value);
        if (!json_is_number(value) || !(out[i] >= 1e-6 && out[i] <= 1e9))
            status = pt_fail(reader->e, PT_FAILED, "%s: \"%s\"[%lld] is %s, but it must be a number from 1e-6 to 1e9", rope->where, key,
                             (long long)i, config_value_text(value, text));
    }
    return status;
}

static int read_long(const config_reader *reader, const json_source *rope, rope_config *out)
{
    out->factor = (double)reader->c->max_positions / out->original_positions;
    int status = json_get_double(rope, "factor", JSON_OPTIONAL, 1e-3, 1e6, &out->factor, reader->e);
    out->attention_factor = out->factor <= 1 ? 1 : sqrt(1 + log(out->factor) / log(out->original_positions));
    if (!status)
        status = json_get_double(rope, "attention_factor", JSON_OPTIONAL, 1e-6, 1e6, &out->attention_factor, reader->e);
    if (!status)
        status = read_factors(reader, rope, "short_factor", out->rotated / 2, out->short_factor);
    if (!status)
        status = read_factors(reader, rope, "long_factor", out->rotated / 2, out->long_factor);
    return status;
}

static int read_kind(const config_reader *reader, const json_source *rope, rope_config *out)
{
    int status = check_keys(reader, rope, out->kind);
    const json_need needed = out->kind == ROPE_PARTIAL ? JSON_OPTIONAL : JSON_REQUIRED;
    if (!status && out->kind != ROPE_PLAIN && out->kind != ROPE_LONG)
        status = json_get_double(rope, "factor", needed, 1e-3, 1e6, &out->factor, reader->e);
    if (!status && out->kind == ROPE_DYNAMIC)
        out->original_positions = (double)reader->c->max_positions;
    else if (!status && out->kind >= ROPE_LLAMA3 && out->kind != ROPE_PARTIAL)
        status = read_original_positions(reader, rope, out);
    if (!status && out->kind == ROPE_DYNAMIC && out->rotated < 4)
        status = pt_fail(reader->e, PT_FAILED, "%s: rope type \"dynamic\" needs heads of at least 4 elements", rope->where);
    if (!status && out->kind == ROPE_LLAMA3)
        status = read_llama3(reader, rope, out);
    if (!status && out->kind == ROPE_YARN)
        status = read_yarn(reader, rope, out);
    return status || out->kind != ROPE_LONG ? status : read_long(reader, rope, out);
}

static int read_rope(const config_reader *reader, const rope_source *from, rope_config *out)
{
    *out = (rope_config){.theta = from->theta, .factor = 1, .low_freq_factor = 1, .high_freq_factor = 1, .attention_factor = 1,
                         .original_positions = (double)reader->c->max_positions};
    int status = read_beside(reader, from->rope, "rope_theta", from->theta_key, 1, 1e15, &out->theta);
    if (!status)
        status = read_rotated(reader, from, out);
    return status || !object_is_there(from->rope) ? status : read_kind(reader, from->rope, out);
}

static int64_t full_dim(const config_reader *reader) { return reader->c->full_head_dim ? reader->c->full_head_dim : reader->c->head_dim; }

/* One rope for layers without a window, one for layers with. rope_scaling applies only to the first. */
static int read_by_type(config_reader *reader, const json_source *scaling, const json_source *parameters)
{
    const architecture *arch = reader->a;
    json_source full = {0}, local = {0};
    int status = 0;
    if (object_is_there(parameters)) {
        status = json_get_object(parameters, "full_attention", JSON_OPTIONAL, &full, reader->e);
        if (!status)
            status = json_get_object(parameters, "sliding_attention", JSON_OPTIONAL, &local, reader->e);
        if (!status && !full.object && !local.object)
            status = pt_fail(reader->e, PT_FAILED,
                             "%s: needs \"full_attention\" and \"sliding_attention\" in this model_type, each with its own "
                             "\"rope_type\" and \"rope_theta\"", parameters->where);
    }
    if (!status && object_is_there(scaling) && full.object)
        status = pt_fail(reader->e, PT_FAILED, "%s: \"rope_scaling\" and \"rope_parameters\" are both given and mean the same: remove one",
                         reader->source.where);
    const char *local_key = config_key_present(&reader->source, "rope_local_base_freq") ? "rope_local_base_freq" : NULL;
    const rope_source of_full = {object_is_there(scaling) ? scaling : &full, "rope_theta", arch->rope_theta, full_dim(reader)};
    const rope_source of_local = {&local, local_key, arch->rope_local_theta, reader->c->head_dim};
    reader->c->ropes_n = 2;
    if (!status)
        status = read_rope(reader, &of_full, &reader->c->rope[0]);
    if (!status && arch->rope_partial && !object_is_there(of_full.rope)) { /* the default of the configuration class */
        reader->c->rope[0].kind = ROPE_PARTIAL;
        reader->c->rope[0].turning = full_dim(reader) / 8;
    }
    return status ? status : read_rope(reader, &of_local, &reader->c->rope[1]);
}

/* Queries are multiplied by 1 + beta ln(1 + floor(position / original positions)). */
static int read_query_scaling(config_reader *reader, const json_source *rope)
{
    model_config *config = reader->c;
    double beta = object_is_there(rope) ? 0 : 0.1;
    if (!object_is_there(rope)) { /* the default of the configuration class */
        config->rope[0] = (rope_config){.kind = ROPE_YARN,
                                        .rotated = config->head_dim,
                                        .theta = 1e6,
                                        .factor = 16,
                                        .original_positions = 16384,
                                        .beta_fast = 32,
                                        .beta_slow = 1,
                                        .truncate = true,
                                        .attention_factor = 1};
    } else {
        int status = json_get_double(rope, "llama_4_scaling_beta", JSON_REQUIRED, 0, 1e3, &beta, reader->e);
        if (!status)
            status = read_original_positions(reader, rope, &config->rope[0]);
        if (status)
            return status;
    }
    if (beta > 0) {
        config->rope[1] = config->rope[0];
        config->rope[1].scaling_beta = beta;
        config->query_rope = 1;
        config->ropes_n = 2;
    }
    return 0;
}

int config_read_ropes(config_reader *reader)
{
    json_source scaling = {0}, parameters = {0};
    const architecture *arch = reader->a;
    reader->c->query_rope = -1;
    if (arch->rope == ROPE_RULE_NONE)
        return 0;
    int status = json_get_object(&reader->source, "rope_scaling", JSON_OPTIONAL, &scaling, reader->e);
    if (!status)
        status = json_get_object(&reader->source, "rope_parameters", JSON_OPTIONAL, &parameters, reader->e);
    if (status)
        return status;
    if (arch->rope == ROPE_RULE_TYPES)
        return read_by_type(reader, &scaling, &parameters);
    if (object_is_there(&scaling) && object_is_there(&parameters) && !json_equal(scaling.object, parameters.object))
        return pt_fail(reader->e, PT_FAILED,
                       "%s: \"rope_scaling\" and \"rope_parameters\" differ, but they mean the same: remove one",
                       reader->source.where);
    if (arch->rope_required && !object_is_there(&scaling) && !object_is_there(&parameters))
        return pt_fail(reader->e, PT_FAILED, "%s: the key \"rope_scaling\" is missing: %s models need it", reader->source.where,
                       arch->model_type);
    const rope_source one = {object_is_there(&scaling) ? &scaling : &parameters, arch->rope_theta_key, arch->rope_theta,
                             arch->kv_latent.name ? reader->c->shared_dim : reader->c->head_dim};
    reader->c->ropes_n = 1;
    status = read_rope(reader, &one, &reader->c->rope[0]);
    return status || arch->rope != ROPE_RULE_QUERY ? status : read_query_scaling(reader, one.rope);
}
