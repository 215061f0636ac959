#include "model/adapter_targets.h"

#include "model/adapter.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <stdio.h>
#include <string.h>

/* ---- expressions ---- */

/* Python's re and PCRE2 agree on what such expressions use. `before` and `after` surround the key. */
static int search(const char *where, const char *before, const char *key, const char *after, const char *name, bool *out, pt_error *e)
{
    enum { MATCH_LIMIT = 100000 };
    char expression[2048];
    int code_of;
    PCRE2_SIZE at;
    if ((size_t)snprintf(expression, sizeof expression, "%s%s%s", before, key, after) >= sizeof expression)
        return pt_fail(e, PT_FAILED, "%s: the pattern \"%.60s...\" is too long", where, key);
    pcre2_code *code = pcre2_compile((PCRE2_SPTR)expression, PCRE2_ZERO_TERMINATED, 0, &code_of, &at, NULL);
    pcre2_match_data *data = code ? pcre2_match_data_create(1, NULL) : NULL;
    pcre2_match_context *context = data ? pcre2_match_context_create(NULL) : NULL;
    int found = PCRE2_ERROR_NOMEMORY;
    if (context) {
        pcre2_set_match_limit(context, MATCH_LIMIT);
        found = pcre2_match(code, (PCRE2_SPTR)name, strlen(name), 0, 0, data, context);
    }
    pcre2_match_context_free(context);
    pcre2_match_data_free(data);
    pcre2_code_free(code);
    *out = found >= 0;
    return found >= 0 || found == PCRE2_ERROR_NOMATCH ? 0 : pt_fail(e, PT_FAILED,
                                                                    "%s: the pattern \"%.100s\" is not a valid regular expression: "
                                                                    "correct it", where, key);
}

int adapter_pattern_matches(const char *where, const char *key, const char *module, bool *out, pt_error *e)
{
    return search(where, "^(.*\\.)?(", key, ")$", module, out, e);
}

/* ---- types ---- */

static bool is_list_of(const json_t *value, bool (*is)(const json_t *))
{
    const json_t *entry;
    size_t i;
    bool all = json_is_array(value);
    if (all)
        json_array_foreach(value, i, entry)
            all = all && is(entry);
    return all;
}

static bool is_text(const json_t *value) { return json_is_string(value) && strlen(json_string_value(value)) == json_string_length(value); }
static bool is_layer(const json_t *value) { return json_is_integer(value) && json_integer_value(value) >= 0; }

static int check_type(const json_source *src, const char *key, bool (*is)(const json_t *), const char *one, const char *many, pt_error *e)
{
    const json_t *value = json_object_get(src->object, key);
    if (!value || json_is_null(value) || is(value) || is_list_of(value, is))
        return 0;
    return pt_fail(e, PT_FAILED, "%s: \"%s\" is %s, but %s or a list of %s is needed: correct it, or take another copy of the file",
                   src->where, key, json_is_array(value) ? "a list of something else" : json_type_name(value), one, many);
}

static const json_t *given(const json_source *src, const char *key) /* NULL: nothing, or an empty list or string */
{
    const json_t *value = json_object_get(src->object, key);
    const bool empty = json_is_null(value) || (json_is_array(value) && !json_array_size(value)) ||
                       (json_is_string(value) && !json_string_length(value));
    return empty ? NULL : value;
}

int adapter_targets_check(const json_source *src, pt_error *e)
{
    static const char *const names[] = {"target_modules", "exclude_modules", "layers_pattern"};
    int failed = check_type(src, "layers_to_transform", is_layer, "a layer's number", "them", e);
    for (size_t i = 0; i < sizeof names / sizeof *names && !failed; i++)
        failed = check_type(src, names[i], is_text, "a string", "strings", e);
    if (failed)
        return failed;
    const bool picks = given(src, "layers_to_transform") != NULL;
    if (picks && json_is_string(given(src, "target_modules")))
        return pt_fail(e, PT_FAILED,
                       "%s: \"layers_to_transform\" has no meaning with a \"target_modules\" that is a regular expression (PEFT refuses "
                       "it): put the layers into the expression",
                       src->where);
    if (!picks && given(src, "layers_pattern"))
        return pt_fail(e, PT_FAILED, "%s: \"layers_pattern\" has no meaning without \"layers_to_transform\" (PEFT refuses it): remove it",
                       src->where);
    return 0;
}

/* ---- a module ---- */

/* A string is an expression for the whole name, a list has whole names or ends of them. */
static int names_module(const json_source *src, const char *key, const char *module, bool *out, pt_error *e)
{
    const json_t *value = given(src, key), *entry;
    size_t i;
    *out = false;
    if (json_is_string(value))
        return search(src->where, "^(?:", json_string_value(value), ")$", module, out, e);
    json_array_foreach(value, i, entry)
        *out = *out || adapter_name_ends(module, json_string_value(entry));
    return 0;
}

static bool lists_layer(const json_t *layers, int layer)
{
    const json_t *entry;
    size_t i;
    bool listed = json_is_integer(layers) && json_integer_value(layers) == layer;
    json_array_foreach(layers, i, entry)
        listed = listed || json_integer_value(entry) == layer;
    return listed;
}

/* Is the module's layer in a list of layers with one of these names ("layers", "h")? */
static int is_in_pattern(const json_source *src, const char *module, bool *out, pt_error *e)
{
    const json_t *value = given(src, "layers_pattern"), *entry;
    size_t i;
    static const char before[] = "^(?:|.*?\\.)(?:", after[] = ")\\.[0-9]+\\.";
    *out = !value;
    if (json_is_string(value))
        return search(src->where, before, json_string_value(value), after, module, out, e);
    json_array_foreach(value, i, entry) {
        int failed = *out ? 0 : search(src->where, before, json_string_value(entry), after, module, out, e);
        if (failed)
            return failed;
    }
    return 0;
}

int adapter_targets_find(const json_source *src, const char *module, int layer, adapter_target *out, pt_error *e)
{
    const json_t *targets = given(src, "target_modules"), *layers = given(src, "layers_to_transform");
    bool excluded = false, pattern = true;
    *out = (adapter_target){.known = targets != NULL, .key = "target_modules"};
    int failed = names_module(src, "exclude_modules", module, &excluded, e);
    if (json_is_string(targets) && !strcmp(json_string_value(targets), "all-linear"))
        out->adapted = true;
    else if (!failed)
        failed = names_module(src, "target_modules", module, &out->adapted, e);
    if (!failed && layers)
        failed = is_in_pattern(src, module, &pattern, e);
    if (excluded)
        out->key = "exclude_modules";
    else if (out->adapted && layers && !(pattern && lists_layer(layers, layer)))
        out->key = pattern ? "layers_to_transform" : "layers_pattern";
    else
        return failed;
    out->adapted = false;
    return failed;
}

/* ---- patterns ---- */

const char *const adapter_patterns[ADAPTER_PATTERNS] = {"rank_pattern", "alpha_pattern"};

/* Reads a number, which must be an integer in rank_pattern. */
static int read_number(const json_source *patterns, const char *which, const char *key, double *out, pt_error *e)
{
    int64_t rank = 0;
    if (strcmp(which, "rank_pattern"))
        return json_get_double(patterns, key, JSON_REQUIRED, 1e-6, 1e6, out, e);
    int failed = json_get_int(patterns, key, JSON_REQUIRED, 1, ADAPTER_MAX_RANK, &rank, e);
    *out = failed ? *out : (double)rank;
    return failed;
}

int adapter_patterns_check(const json_source *src, pt_error *e)
{
    const char *key;
    json_t *value;
    double number = 0;
    bool found;
    int failed = 0;
    for (int i = 0; i < ADAPTER_PATTERNS && !failed; i++) {
        json_source patterns = {0};
        failed = json_get_object(src, adapter_patterns[i], JSON_OPTIONAL, &patterns, e);
        json_object_foreach(failed ? NULL : patterns.object, key, value) {
            failed = read_number(&patterns, adapter_patterns[i], key, &number, e);
            if (!failed)
                failed = adapter_pattern_matches(patterns.where, key, "", &found, e);
            if (failed)
                return failed;
        }
    }
    return failed;
}

int adapter_pattern_read(const json_source *src, const char *which, const char *module, double *out, pt_error *e)
{
    json_source patterns = {0};
    const char *key;
    json_t *value;
    bool found = false;
    int failed = json_get_object(src, which, JSON_OPTIONAL, &patterns, e);
    if (failed || !patterns.object)
        return failed;
    json_object_foreach(patterns.object, key, value) {
        failed = adapter_pattern_matches(patterns.where, key, module, &found, e);
        if (failed)
            return failed;
        if (found)
            return read_number(&patterns, which, key, out, e);
    }
    return 0;
}
