/* recommended.c - generation_config.json, read as Transformers and vLLM do: `do_sample` false is greedy, and a file that says how to sample
 * leaves nothing else to sampling, so that a temperature it does not name is 1, and a cut that it does not name is none. */
#include "infer/recommended.h"

#include "base/json.h"
#include "io/files.h"

#include <stdio.h>
#include <string.h>

static const double USUAL_TEMPERATURE = 0.8, USUAL_TOP_P = 0.95, COLDEST = 1e-3;

typedef struct recommendation {
    bool does_sample, speaks; /* speaks: about sampling */
    double temperature, top_p, penalty;
    int64_t top_k;
} recommendation;

static bool has(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return value && !json_is_null(value);
}

/* Reads what `o` leaves to the model. */
static int read_keys(const json_source *src, const pt_generate_options *o, recommendation *r, pt_error *e)
{
    r->speaks = has(src->object, "do_sample") || has(src->object, "temperature") || has(src->object, "top_k") || has(src->object, "top_p");
    if (r->speaks)
        r->temperature = r->top_p = 1;
    int failed = json_get_bool(src, "do_sample", JSON_OPTIONAL, &r->does_sample, e);
    if (!failed && o->temperature == PT_OF_MODEL)
        failed = json_get_double(src, "temperature", JSON_OPTIONAL, 0, 1e3, &r->temperature, e);
    if (!failed && o->top_k == PT_OF_MODEL)
        failed = json_get_int(src, "top_k", JSON_OPTIONAL, -1, INT64_MAX, &r->top_k, e);
    if (!failed && o->top_p == PT_OF_MODEL)
        failed = json_get_double(src, "top_p", JSON_OPTIONAL, 0, 1, &r->top_p, e);
    if (!failed && o->repetition_penalty == PT_OF_MODEL)
        failed = json_get_double(src, "repetition_penalty", JSON_OPTIONAL, 1e-3, 1e3, &r->penalty, e);
    if (!r->does_sample || r->temperature < COLDEST)
        r->temperature = 0;
    if (r->top_k < 0)
        r->top_k = 0;
    return failed;
}

static int read_file(const pt_generate_options *o, char path[FILE_PATH_BYTES], recommendation *r, pt_error *e)
{
    json_source file;
    int failed = path_join(path, o->model, "generation_config.json", e);
    if (failed || !path_exists(path))
        return failed;
    failed = json_source_open(&file, path, e);
    if (failed)
        return failed;
    failed = read_keys(&file, o, r, e);
    json_source_close(&file);
    return failed;
}

/* One sentence about the values of the file that `o` leaves to the model and that have an effect. */
static void tell(const pt_generate_options *o, const recommendation *r, const char *path)
{
    char sentence[700];
    const double temperature = o->temperature == PT_OF_MODEL ? r->temperature : o->temperature;
    const size_t before = (size_t)snprintf(sentence, sizeof sentence, "%.400s:", path);
    size_t n = before;
    if (r->speaks && o->temperature == PT_OF_MODEL)
        n += (size_t)snprintf(sentence + n, sizeof sentence - n, " `temperature` %g", r->temperature);
    if (o->top_k == PT_OF_MODEL && r->top_k && temperature > 0)
        n += (size_t)snprintf(sentence + n, sizeof sentence - n, " `top_k` %lld", (long long)r->top_k);
    if (r->speaks && o->top_p == PT_OF_MODEL && temperature > 0)
        n += (size_t)snprintf(sentence + n, sizeof sentence - n, " `top_p` %g", r->top_p);
    if (o->repetition_penalty == PT_OF_MODEL && r->penalty != 1)
        n += (size_t)snprintf(sentence + n, sizeof sentence - n, " `repetition_penalty` %g", r->penalty);
    if (n > before && o->notice)
        o->notice(o->arg, sentence);
}

int recommended_apply(pt_generate_options *o, pt_error *e)
{
    char path[FILE_PATH_BYTES];
    recommendation r = {.does_sample = true, .temperature = USUAL_TEMPERATURE, .top_p = USUAL_TOP_P, .penalty = 1};
    const int failed = read_file(o, path, &r, e);
    if (failed)
        return failed;
    tell(o, &r, path);
    o->temperature = o->temperature == PT_OF_MODEL ? r.temperature : o->temperature;
    o->top_k = o->top_k == PT_OF_MODEL ? r.top_k : o->top_k;
    o->top_p = o->top_p == PT_OF_MODEL ? r.top_p : o->top_p;
    o->repetition_penalty = o->repetition_penalty == PT_OF_MODEL ? r.penalty : o->repetition_penalty;
    return 0;
}
