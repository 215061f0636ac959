/* rope_scaling.c - `rope_scaling` TYPE:FACTOR: extends the positions of a model by writing into its config.json what Transformers,
 * llama.cpp and vLLM read there. */
#include "base/json.h"
#include "model/model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROPE_LENGTHENS = 1, ROPE_NAMES_ORIGINAL = 2, ROPE_HAS_BANDS = 4 };

static const struct scaling_type { const char *name; unsigned what; } scaling_types[] = {
    {"yarn", ROPE_LENGTHENS | ROPE_NAMES_ORIGINAL}, {"linear", ROPE_LENGTHENS}, {"dynamic", 0},
    {"llama3", ROPE_LENGTHENS | ROPE_NAMES_ORIGINAL | ROPE_HAS_BANDS}};

static int read_asked(const char *asked, const struct scaling_type **type, double *factor, pt_error *e)
{
    static const char mend[] = "give TYPE:FACTOR, such as yarn:4, of the types yarn, linear, dynamic, llama3";
    const char *colon = strchr(asked, ':');
    const size_t n = colon ? (size_t)(colon - asked) : strlen(asked);
    char *end = NULL;
    *type = NULL;
    for (size_t i = 0; i < sizeof scaling_types / sizeof *scaling_types; i++)
        if (strlen(scaling_types[i].name) == n && !strncmp(scaling_types[i].name, asked, n))
            *type = &scaling_types[i];
    if (!*type && n == 8 && !strncmp(asked, "longrope", n))
        return pt_fail(e, PT_USAGE, "`rope_scaling` longrope needs a list of factors for short and for long sequences, which belong to one "
                       "model: write them into its config.json, or %s", mend);
    if (!*type)
        return pt_fail(e, PT_USAGE, "`rope_scaling` is \"%.60s\": %s", asked, mend);
    *factor = colon ? strtod(colon + 1, &end) : NAN;
    if (!colon || end == colon + 1 || *end || !(*factor > 1 && *factor <= 1e4))
        return pt_fail(e, PT_USAGE, "`rope_scaling` is \"%.60s\", but its factor must be a number above 1 and at most 10000: %s", asked,
                       mend);
    return 0;
}

/* The object that has the rope: that of the file, or a new one. */
static int rope_object(json_t *config, const char *where, json_t **out, pt_error *e)
{
    static const char *const keys[] = {"rope_parameters", "rope_scaling"};
    *out = NULL;
    for (int i = 0; i < 2; i++) {
        json_t *rope = json_object_get(config, keys[i]);
        const json_t *type = json_object_get(rope, "rope_type") ? json_object_get(rope, "rope_type") : json_object_get(rope, "type");
        if (!json_is_object(rope))
            continue;
        if (json_object_get(rope, "full_attention") || json_object_get(rope, "sliding_attention"))
            return pt_fail(e, PT_FAILED, "%s: \"%s\" has a rope for each type of layer, which `rope_scaling` does not change: write it "
                           "there", where, keys[i]);
        if (json_is_string(type) && strcmp(json_string_value(type), "default"))
            return pt_fail(e, PT_FAILED, "%s: \"%s\" has the type \"%.40s\" already, and `rope_scaling` does not come on top: leave the "
                           "option out, or change the file", where, keys[i], json_string_value(type));
        *out = rope;
    }
    if (!*out) {
        *out = json_object();
        json_object_set_new(config, "rope_scaling", *out);
    }
    return 0;
}

int model_scale_rope(json_t *config, const char *where, const char *asked, pt_error *e)
{
    static const char positions[] = "max_position_embeddings";
    const struct scaling_type *type;
    json_t *rope;
    double factor = 1;
    const json_int_t before = json_integer_value(json_object_get(config, positions));
    int failed = read_asked(asked, &type, &factor, e);
    if (!failed && before < 1)
        failed = pt_fail(e, PT_FAILED, "%s: has no \"%s\" that `rope_scaling` could extend", where, positions);
    if (!failed)
        failed = rope_object(config, where, &rope, e);
    if (failed)
        return failed;
    json_object_del(rope, "type");
    json_object_set_new(rope, "rope_type", json_string(type->name));
    json_object_set_new(rope, "factor", json_real(factor));
    if (type->what & ROPE_NAMES_ORIGINAL)
        json_object_set_new(rope, "original_max_position_embeddings", json_integer(before));
    if (type->what & ROPE_HAS_BANDS) {
        json_object_set_new(rope, "low_freq_factor", json_real(1));
        json_object_set_new(rope, "high_freq_factor", json_real(4));
    }
    if (type->what & ROPE_LENGTHENS)
        json_object_set_new(config, positions, json_integer((json_int_t)floor((double)before * factor)));
    return 0;
}
