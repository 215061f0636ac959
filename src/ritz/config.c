#include "ritz/config.h"

#include "io/files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const activations[] = {"tanh", "tanh3", "relu3", "softplus", "sin", "silu"};
static const char *const kinds[] = {"residual", "plain"}, *const dtypes[] = {"fp32", "fp64"}, *const types[] = {"deep_ritz"};
enum { ACTIVATIONS = sizeof activations / sizeof *activations };

/* ---- writing ---- */

json_t *ritz_network_json(const ritz_network *n)
{
    return json_pack("{s:s,s:I,s:I,s:i,s:s,s:b,s:s,s:s}", "model_type", types[0], "dim", (json_int_t)n->dim, "width", (json_int_t)n->width,
                     "blocks", n->blocks, "kind", kinds[n->plain], "input_layer", !n->direct, "activation", activations[n->activation],
                     "dtype", dtypes[n->type == PT_F64]);
}

static json_t *numbers(const double *x, int64_t n)
{
    json_t *a = json_array();
    for (int64_t i = 0; i < n; i++)
        json_array_append_new(a, json_real(x[i]));
    return a;
}

int ritz_config_write(const char *folder, const ritz_network *n, const problem *problem, pt_error *e)
{
    char path[FILE_PATH_BYTES];
    int failed = path_join(path, folder, "config.json", e);
    if (failed)
        return failed;
    json_t *config = ritz_network_json(n);
    json_object_set_new(config, "problem", json_string(problem->name));
    json_object_set_new(config, "lower", numbers(problem->is.lower, n->dim));
    json_object_set_new(config, "upper", numbers(problem->is.upper, n->dim));
    json_t *definition = problem_definition(problem);
    if (definition)
        json_object_set_new(config, "definition", definition);
    failed = file_write_json(path, config, e);
    json_decref(config);
    return failed;
}

/* ---- reading ---- */

static int read_word(const json_source *src, const char *key, const char *const *words, int n, int *out, pt_error *e)
{
    const char *word;
    int failed = json_get_string(src, key, JSON_REQUIRED, &word, e);
    for (*out = 0; !failed && *out < n && strcmp(word, words[*out]); ++*out)
        ;
    return !failed && *out == n ? pt_fail(e, PT_FAILED, "%s: %s is \"%.40s\", which is unknown", src->where, key, word) : failed;
}

/* Of a problem that was a file. */
static int read_definition(const json_source *src, int64_t dim, problem *problem, pt_error *e)
{
    const char *name = "";
    json_source definition;
    int failed = json_get_object(src, "definition", JSON_REQUIRED, &definition, e);
    if (!failed)
        failed = json_get_string(src, "problem", JSON_OPTIONAL, &name, e);
    if (!failed)
        failed = problem_object_open(&definition, problem, e);
    snprintf(problem->name, sizeof problem->name, "%.250s", name);
    if (!failed && problem->is.dim != dim)
        failed = pt_fail(e, PT_FAILED, "%s: the definition has %lld dimensions, but the network has %lld", src->where,
                         (long long)problem->is.dim, (long long)dim);
    return failed;
}

static int read_box(const json_source *src, int64_t dim, problem *problem, pt_error *e)
{
    const char *name = "";
    double *lower = NULL, *upper = NULL;
    int failed = json_get_string(src, "problem", JSON_OPTIONAL, &name, e);
    if (!failed)
        failed = problem_read_side(src, "lower", &lower, dim, e);
    if (!failed)
        failed = problem_read_side(src, "upper", &upper, dim, e);
    if (!failed)
        failed = problem_open_box(name, dim, lower, upper, problem, e);
    free(lower);
    free(upper);
    return failed;
}

int ritz_config_parse(const json_source *src, pt_ritz_options *o, problem *problem, pt_error *e)
{
    bool input = true;
    int kind = 0, activation = 0, dtype = 0, type = 0;
    int64_t blocks = 0, dim = 0;
    int failed = read_word(src, "model_type", types, 1, &type, e);
    if (!failed)
        failed = json_get_int(src, "dim", JSON_REQUIRED, 1, RITZ_WIDTH_MOST, &dim, e);
    if (!failed)
        failed = json_get_int(src, "width", JSON_REQUIRED, 1, RITZ_WIDTH_MOST, &o->width, e);
    if (!failed)
        failed = json_get_int(src, "blocks", JSON_REQUIRED, 1, RITZ_BLOCKS_MOST, &blocks, e);
    if (!failed)
        failed = json_get_bool(src, "input_layer", JSON_OPTIONAL, &input, e);
    if (!failed)
        failed = read_word(src, "kind", kinds, 2, &kind, e);
    if (!failed)
        failed = read_word(src, "activation", activations, ACTIVATIONS, &activation, e);
    if (!failed)
        failed = read_word(src, "dtype", dtypes, 2, &dtype, e);
    if (!failed)
        failed = json_object_get(src->object, "definition") ? read_definition(src, dim, problem, e) : read_box(src, dim, problem, e);
    o->blocks = (int)blocks;
    o->plain = kind;
    o->no_input_layer = !input;
    o->activation = (pt_ritz_activation)activation;
    o->dtype = (pt_ritz_dtype)dtype;
    return failed;
}

int ritz_config_read(const char *folder, pt_ritz_options *o, problem *problem, pt_error *e)
{
    char path[FILE_PATH_BYTES];
    json_source src;
    int failed = path_join(path, folder, "config.json", e);
    if (!failed && !path_exists(path))
        failed = pt_fail(e, PT_FAILED, "%.400s %s: give the folder of a trained network, which was the `out` of a run", folder,
                         path_exists(folder) ? "has no config.json" : "does not exist");
    if (!failed)
        failed = json_source_file(&src, path, "a trained Deep Ritz network", e);
    if (failed)
        return failed;
    failed = ritz_config_parse(&src, o, problem, e);
    json_source_close(&src);
    return failed;
}

/* ---- a checkpoint's state ---- */

static int differs(const char *where, const char *key, const json_t *before, const json_t *now, pt_error *e)
{
    char *was = json_dumps(before, JSON_ENCODE_ANY), *is = json_dumps(now, JSON_ENCODE_ANY);
    pt_fail(e, PT_FAILED, "%s: %s was %.80s and is now %.80s: resume with the value that the run began with, or start a new run", where,
            key, was ? was : "not there", is ? is : "?");
    free(was);
    free(is);
    return PT_FAILED;
}

/* An option that the checkpoint does not know yet was 0. */
static bool is_older(const json_t *was, const char *key, const json_t *now)
{
    return !json_object_get(was, key) && json_is_integer(now) && !json_integer_value(now);
}

int ritz_state_parse(const json_source *src, json_t *task, ritz_state *out, pt_error *e)
{
    json_source was = {0};
    json_t *now;
    const char *key, *computed_by = "";
    *out = (ritz_state){0};
    int failed = json_get_int(src, "step", JSON_REQUIRED, 0, INT64_MAX / 2, &out->step, e);
    if (!failed)
        failed = json_get_int(src, "steps", JSON_OPTIONAL, 1, INT64_MAX / 2, &out->steps, e);
    if (!failed)
        failed = json_get_int(src, "polished", JSON_OPTIONAL, 0, INT64_MAX / 2, &out->polished, e);
    if (!failed)
        failed = json_get_string(src, "arithmetic", JSON_REQUIRED, &computed_by, e);
    if (!failed)
        failed = json_get_object(src, "task", JSON_REQUIRED, &was, e);
    if (failed)
        return failed;
    snprintf(out->arithmetic, sizeof out->arithmetic, "%s", computed_by);
    json_object_foreach(task, key, now)
        if (!json_equal(now, json_object_get(was.object, key)) && !is_older(was.object, key, now))
            return differs(was.where, key, json_object_get(was.object, key), now, e);
    return 0;
}
