/* rope.c - rotary positions: what config.json says of them, and the table of angles.
 *
 * Transformers 4 writes `rope_theta` and `rope_scaling` {"rope_type" or "type", ...}, Transformers 5
 * one object `rope_parameters` {"rope_type", "rope_theta", ...}. Pair i of a head of D turns by
 * position * f(i):
 *
 *   default  f(i) = theta^(-2i/D)
 *   linear   f(i) = theta^(-2i/D) / factor
 *   llama3   with the wavelength w = 2 pi / f(i) and n original positions:
 *              w < n / high      f(i)            short waves stay
 *              w > n / low       f(i) / factor   long waves are stretched
 *              between           (1 - s) f(i) / factor + s f(i),  s = (n / w - low) / (high - low)
 */
#include "base/json.h"
#include "model/architectures.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct rope_type {
    const char *name;
    rope_kind kind;
} rope_types[] = {{"default", ROPE_PLAIN}, {"linear", ROPE_LINEAR}, {"llama3", ROPE_LLAMA3}};

static bool object_is_there(const json_source *s) { return s->object && json_object_size(s->object) > 0; }

static int find_type(const json_source *rope, rope_kind *kind, pt_error *e)
{
    const char *name = NULL, *older = NULL;
    int status = json_get_string(rope, "rope_type", JSON_OPTIONAL, &name, e);
    if (!status)
        status = json_get_string(rope, "type", JSON_OPTIONAL, &older, e);
    if (status)
        return status;
    if (name && older && strcmp(name, older))
        return pt_fail(
            e, PT_FAILED,
            "%s: \"rope_type\" is \"%.40s\" but \"type\" is \"%.40s\"; they mean the same, remove one",
            rope->where, name, older);
    name = name ? name : older ? older : "default";
    for (size_t i = 0; i < sizeof rope_types / sizeof rope_types[0]; i++)
        if (!strcmp(rope_types[i].name, name)) {
            *kind = rope_types[i].kind;
            return 0;
        }
    return pt_fail(
        e, PT_FAILED,
        "%s: \"rope_type\" is \"%.40s\", which is not supported; supported are default, linear, llama3",
        rope->where, name);
}

static bool key_is_used(rope_kind kind, const char *key)
{
    static const char *const always[] = {"rope_type", "type", "rope_theta", "partial_rotary_factor",
                                         "original_max_position_embeddings"};
    for (size_t i = 0; i < sizeof always / sizeof always[0]; i++)
        if (!strcmp(always[i], key))
            return true;
    if (!strcmp(key, "factor"))
        return kind != ROPE_PLAIN;
    return kind == ROPE_LLAMA3 && (!strcmp(key, "low_freq_factor") || !strcmp(key, "high_freq_factor"));
}

static int check_keys(const json_source *rope, rope_kind kind, pt_error *e)
{
    const char *key;
    json_t *value;
    json_object_foreach(rope->object, key, value)
    {
        if (!json_is_null(value) && !key_is_used(kind, key))
            return pt_fail(e, PT_FAILED, "%s: \"%.60s\" is %s with no meaning for rope type \"%s\" here; remove it",
                           rope->where, key, json_type_name(value), rope_types[kind].name);
    }
    double part = 1;
    int status = json_get_double(rope, "partial_rotary_factor", JSON_OPTIONAL, 0, 1, &part, e);
    if (!status && part != 1)
        status = pt_fail(e, PT_FAILED, "%s: \"partial_rotary_factor\" is %g, but only 1 is supported",
                         rope->where, part);
    return status;
}

/* The original number of positions may stand in the object or beside it. */
static int read_original_positions(const json_source *s, const json_source *rope, model_config *c,
                                   pt_error *e)
{
    static const char key[] = "original_max_position_embeddings";
    double outside = -1, inside = -1;
    int status = json_get_double(s, key, JSON_OPTIONAL, 1, 0x1p53, &outside, e);
    if (!status)
        status = json_get_double(rope, key, JSON_OPTIONAL, 1, 0x1p53, &inside, e);
    if (status)
        return status;
    if (outside > 0 && inside > 0 && outside != inside)
        return pt_fail(e, PT_FAILED, "%s: \"%s\" is %g here but %g outside; remove one", rope->where, key,
                       inside, outside);
    c->rope_original_positions = inside > 0 ? inside : outside > 0 ? outside : (double)c->max_positions;
    return 0;
}

static int read_scaling(const json_source *s, const json_source *rope, model_config *c, pt_error *e)
{
    int status = find_type(rope, &c->rope, e);
    if (!status)
        status = check_keys(rope, c->rope, e);
    if (!status && c->rope != ROPE_PLAIN)
        status = json_get_double(rope, "factor", JSON_REQUIRED, 1e-3, 1e6, &c->rope_factor, e);
    if (status || c->rope != ROPE_LLAMA3)
        return status;
    status = json_get_double(rope, "low_freq_factor", JSON_REQUIRED, 1e-3, 1e6, &c->rope_low_freq_factor, e);
    if (!status)
        status = json_get_double(rope, "high_freq_factor", JSON_REQUIRED, 1e-3, 1e6,
                                 &c->rope_high_freq_factor, e);
    if (!status)
        status = read_original_positions(s, rope, c, e);
    if (!status && c->rope_high_freq_factor <= c->rope_low_freq_factor)
        status = pt_fail(e, PT_FAILED,
                         "%s: \"high_freq_factor\" is %g, but it must be greater than \"low_freq_factor\" %g",
                         rope->where, c->rope_high_freq_factor, c->rope_low_freq_factor);
    return status;
}

int rope_config_read(const json_source *s, model_config *c, pt_error *e)
{
    json_source scaling = {0}, parameters = {0};
    c->rope = ROPE_PLAIN;
    c->rope_theta = 10000;
    c->rope_factor = c->rope_low_freq_factor = c->rope_high_freq_factor = 1;
    c->rope_original_positions = (double)c->max_positions;
    int status = json_get_object(s, "rope_scaling", JSON_OPTIONAL, &scaling, e);
    if (!status)
        status = json_get_object(s, "rope_parameters", JSON_OPTIONAL, &parameters, e);
    if (status)
        return status;
    if (object_is_there(&scaling) && object_is_there(&parameters) &&
        !json_equal(scaling.object, parameters.object))
        return pt_fail(e, PT_FAILED,
                       "%s: \"rope_scaling\" and \"rope_parameters\" differ; they mean the same, remove one",
                       s->where);
    const json_source *rope = object_is_there(&scaling) ? &scaling : &parameters;
    double outside = -1, inside = -1;
    status = json_get_double(s, "rope_theta", JSON_OPTIONAL, 1, 1e15, &outside, e);
    if (!status && rope->object)
        status = json_get_double(rope, "rope_theta", JSON_OPTIONAL, 1, 1e15, &inside, e);
    if (!status && outside > 0 && inside > 0 && outside != inside)
        status = pt_fail(e, PT_FAILED, "%s: \"rope_theta\" is %g here but %g outside; remove one",
                         rope->where, inside, outside);
    if (status)
        return status;
    if (inside > 0 || outside > 0)
        c->rope_theta = inside > 0 ? inside : outside;
    return object_is_there(rope) ? read_scaling(s, rope, c, e) : 0;
}

static double frequency(const model_config *c, int64_t i)
{
    double f = 1 / pow(c->rope_theta, (double)(2 * i) / (double)c->head_dim);
    if (c->rope == ROPE_LINEAR)
        return f / c->rope_factor;
    if (c->rope != ROPE_LLAMA3)
        return f;
    double wavelength = 2 * M_PI / f, n = c->rope_original_positions;
    if (wavelength < n / c->rope_high_freq_factor)
        return f;
    if (wavelength > n / c->rope_low_freq_factor)
        return f / c->rope_factor;
    double smooth = (n / wavelength - c->rope_low_freq_factor) /
                    (c->rope_high_freq_factor - c->rope_low_freq_factor);
    return (1 - smooth) * f / c->rope_factor + smooth * f;
}

void model_rope_table(const model_config *c, int64_t first, int64_t n, float *table)
{
    int64_t pairs = c->head_dim / 2;
    for (int64_t i = 0; i < pairs; i++) {
        double f = frequency(c, i);
        for (int64_t p = 0; p < n; p++) {
            float *at = table + (p * pairs + i) * 2;
            at[0] = (float)cos((double)(first + p) * f);
            at[1] = (float)sin((double)(first + p) * f);
        }
    }
}

int model_rope_send(const model_config *c, int64_t n, rope_put put, void *arg, pt_error *e)
{
    const size_t row = (size_t)c->head_dim * sizeof(float);
    int64_t part = (1 << 20) / (int64_t)row + 1;
    part = part < n ? part : n;
    float *table = malloc((size_t)part * row);
    if (!table)
        return pt_fail(e, PT_FAILED, "out of memory: %zu bytes for the rotary table", (size_t)part * row);
    int failed = 0;
    for (int64_t first = 0; first < n && !failed; first += part) {
        const int64_t rows = n - first < part ? n - first : part;
        model_rope_table(c, first, rows, table);
        failed = put(arg, (size_t)first * row, table, (size_t)rows * row, e);
    }
    free(table);
    return failed;
}
