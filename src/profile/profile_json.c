/* profile_json.c - a profile as text.
 *
 *   {"blocks": {
 *      "made_for": {"processor": "AMD EPYC", "threads": 2, "model_type": "gpt2", "parameters": 124439808, ...},
 *      "measured": {"at": "2026-11-21T10:05:00Z", "spread": 0.012, "check": [128, 12345678],       rows and ns of a forward
 *                   "within_bytes": 1073741824},                                               the device's budget then
 *      "layers": [[0, 12]],                                                                        kind, how many of it follow
 *      "kinds": [{"forward_ns": [...], "backward_ns": [...],                 at "input", "attention", "all" saved
 *                 "warm_backward_ns": [..], "first_sums_ns": .., "cold_sums_ns": .., "warm_forward_ns": ..}],
 *      "embed_ns": .., "head_ns": .., "head_eval_ns": .., "head_cold_sums_ns": .., "step_ns": ..,
 *      "embed_finish": [[elements, ns], ...],
 *      "whole_device": [[FLOPs, ns], ...], "whole_host": [...]},       of an optimizer that updates matrices whole
 *    "machine": {
 *      "made_for": {...},
 *      "measured": {"at": .., "spread": .., "check": [elements, ns], "check_read": [bytes, ns], "check_write": .., "check_to_device": ..,
 *                   "check_from_device": .., "check_update_host": [elements, ns]},                    0 of what is not there
 *      "update_threads": [[threads, elements, ns], ...],
 *      "task_ns": .., "finish": [...], "update_device": [...], "update_host": [...],
 *      "to_device": [[bytes, ns], ...], "from_device": [...], "read": [...], "write": [...],
 *      "waking": [[ns without arithmetic, ns that the next loses], ...],
 *      "slow": {"math": [1, 1, ...], ...},                     how many times longer beside each class, in the order of the keys;
 *      "slow_more": {..}, "slow_ns": {"math": [usual, other], ...},    more or (below 0) less of another length, and what both take
 *                                                              alone (other 0: any)
 *      "quota": {"period_ns": .., "processors": .., "busy": [..]}}}    processor time of a period; what each class keeps busy of it
 *
 * "spread": how sure, as the part that is least sure: half the distance of the quartiles of at least three runs, relative to their
 * median. A layer or a part of the head that takes too long to be run that often is as sure as fewer rows of it were, a curve as its
 * largest amount that was. "others": the share of the time for which other programs kept computation waiting, if it was more than a
 * twentieth; "spread" then is no less.
 *
 * Optional when it is read: "spread" of the machine, "others", the checks from "check_write" on, "update_threads", "within_bytes".
 */
#include "profile/profile_parts.h"

#include "io/files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- names ---- */

typedef struct curve_key { const char *key; size_t at; bool optional; } curve_key; /* optional: not there where it is empty */
typedef struct number_key { const char *key; size_t at; } number_key;

#define CURVE(name) {#name, offsetof(costs, name), false}
static const curve_key block_curves[] = {CURVE(embed_finish), {"whole_device", offsetof(costs, whole_device), true},
                                         {"whole_host", offsetof(costs, whole_host), true}};
static const curve_key machine_curves[] = {CURVE(finish), CURVE(update_device), CURVE(update_host), CURVE(to_device), CURVE(from_device),
                                           CURVE(read), CURVE(write), {"waking", offsetof(costs, wake_latency), false}};
static const number_key block_numbers[] = {{"embed_ns", offsetof(costs, embed_ns)}, {"head_ns", offsetof(costs, head_ns)},
                                           {"head_eval_ns", offsetof(costs, head_eval_ns)},
                                           {"head_cold_sums_ns", offsetof(costs, head_cold_accumulators_ns)},
                                           {"step_ns", offsetof(costs, step_ns)}};
static const number_key machine_numbers[] = {{"task_ns", offsetof(costs, task_ns)}};

/* Keys of checks of the machine. Amount 0: the check was not made. */
typedef struct check_key { const char *key; size_t at; json_need need; int64_t least, most; } check_key;
static const check_key machine_checks[] = {
    {"check", offsetof(profile_result, update), JSON_REQUIRED, 1, RATES_LARGEST},
    {"check_read", offsetof(profile_result, read), JSON_REQUIRED, 0, LINKS_MOST},
    {"check_write", offsetof(profile_result, write), JSON_OPTIONAL, 0, LINKS_MOST},
    {"check_to_device", offsetof(profile_result, to_device), JSON_OPTIONAL, 0, LINKS_MOST},
    {"check_from_device", offsetof(profile_result, from_device), JSON_OPTIONAL, 0, LINKS_MOST},
    {"check_update_host", offsetof(profile_result, update_host), JSON_OPTIONAL, 0, RATES_LARGEST},
};

#define COUNT(list) ((int)(sizeof(list) / sizeof *(list)))

static cost_curve *curve_at(const costs *costs, const curve_key *k) { return (cost_curve *)((char *)costs + k->at); }
static profile_check *check_at(const profile_result *result, const check_key *k) { return (profile_check *)((char *)result + k->at); }
static double *number_at(const costs *costs, const number_key *k) { return (double *)((char *)costs + k->at); }

/* ---- writing ---- */

static void write_list(FILE *f, const char *key, const double *values, int n)
{
    fprintf(f, "\"%s\": [", key);
    for (int i = 0; i < n; i++)
        fprintf(f, "%s%.7g", i ? ", " : "", values[i]);
    fputs("]", f);
}

static void write_curve(FILE *f, const costs *costs, const curve_key *k)
{
    const cost_curve *v = curve_at(costs, k);
    if (k->optional && !v->n)
        return;
    fprintf(f, ",\n    \"%s\": [", k->key);
    for (int i = 0; i < v->n; i++)
        fprintf(f, "%s[%.0f, %.7g]", i ? ", " : "", v->amount[i], v->ns[i]);
    fputs("]", f);
}

static void write_check(FILE *f, const char *key, const profile_check *c)
{
    fprintf(f, ", \"%s\": [%lld, %.7g]", key, (long long)c->amount, c->ns);
}

static void write_sureness(FILE *f, double spread, double others)
{
    fprintf(f, ", \"spread\": %.4g", spread);
    if (others > PROFILE_DISTURBED)
        fprintf(f, ", \"others\": %.3g", others);
}

static void write_blocks(FILE *f, const profile_request *req, const profile_result *result)
{
    const costs *costs = &result->costs;
    int64_t layers = req->model->config.layers;
    write_sureness(f, costs->spread, result->others[PROFILE_BLOCKS]);
    write_check(f, "check", &result->layer);
    fprintf(f, ", \"within_bytes\": %lld", (long long)result->within_bytes);
    fputs("},\n    \"layers\": [", f);
    for (int64_t i = 0, n; i < layers; i += n) {
        for (n = 1; i + n < layers && costs->kind_of_layer[i + n] == costs->kind_of_layer[i];)
            n++;
        fprintf(f, "%s[%d, %lld]", i ? ", " : "", costs->kind_of_layer[i], (long long)n);
    }
    fputs("],\n    \"kinds\": [", f);
    for (int k = 0; k < costs->kinds_n; k++) {
        fputs(k ? ",\n      {" : "\n      {", f);
        write_list(f, "forward_ns", costs->layer[k].forward_ns, SAVE_LEVELS);
        fputs(",\n       ", f);
        write_list(f, "backward_ns", costs->layer[k].backward_ns, SAVE_LEVELS);
        fputs(",\n       ", f);
        write_list(f, "warm_backward_ns", costs->layer[k].warm_backward_ns, SAVE_LEVELS);
        fprintf(f, ",\n       \"first_sums_ns\": %.7g, \"cold_sums_ns\": %.7g, \"warm_forward_ns\": %.7g}",
                costs->layer[k].first_accumulators_ns,
                costs->layer[k].cold_accumulators_ns, costs->layer[k].warm_forward_ns);
    }
    fputs("]", f);
    for (int i = 0; i < COUNT(block_numbers); i++)
        fprintf(f, ",\n    \"%s\": %.7g", block_numbers[i].key, *number_at(costs, &block_numbers[i]));
    for (int i = 0; i < COUNT(block_curves); i++)
        write_curve(f, costs, &block_curves[i]);
}

/* n values of each class. */
static void write_classes(FILE *f, const char *key, const double *values, int n)
{
    fprintf(f, ",\n    \"%s\": {", key);
    for (int a = 0; a < COST_CLASSES; a++) {
        fputs(a ? ",\n      " : "\n      ", f);
        write_list(f, cost_class_names[a], values + a * n, n);
    }
    fputs("}", f);
}

static void write_machine(FILE *f, const profile_result *result)
{
    const costs *costs = &result->costs;
    write_sureness(f, costs->curves_spread, result->others[PROFILE_MACHINE]);
    for (int i = 0; i < COUNT(machine_checks); i++)
        write_check(f, machine_checks[i].key, check_at(result, &machine_checks[i]));
    fputs("}", f);
    for (int i = 0; i < COUNT(machine_numbers); i++)
        fprintf(f, ",\n    \"%s\": %.7g", machine_numbers[i].key, *number_at(costs, &machine_numbers[i]));
    for (int i = 0; i < COUNT(machine_curves); i++)
        write_curve(f, costs, &machine_curves[i]);
    fputs(",\n    \"update_threads\": [", f);
    for (int i = 0; i < result->threads_n; i++)
        fprintf(f, "%s[%d, %lld, %.7g]", i ? ", " : "", result->threads[i].threads, (long long)result->threads[i].amount,
                result->threads[i].ns);
    fputs("]", f);
    write_classes(f, "slow", costs->slow[0], COST_CLASSES);
    write_classes(f, "slow_more", costs->slow_more[0], COST_CLASSES);
    write_classes(f, "slow_ns", costs->slow_ns[0], 2);
    fprintf(f, ",\n    \"quota\": {\"period_ns\": %.7g, \"processors\": %.7g, ", costs->quota.period_ns, costs->quota.processors);
    write_list(f, "busy", costs->quota.busy, COST_CLASSES);
    fputs("}", f);
}

static int write_part(FILE *f, profile_part part, const profile_request *req, const profile_result *result)
{
    char at[32];
    time_t when = (time_t)result->measured_at;
    struct tm utc;
    json_t *made_for = profile_made_for(part, req);
    char *text = made_for ? json_dumps(made_for, 0) : NULL;
    json_decref(made_for);
    if (!text || !gmtime_r(&when, &utc)) {
        free(text);
        return -1;
    }
    strftime(at, sizeof at, "%Y-%m-%dT%H:%M:%SZ", &utc);
    fprintf(f, "  \"%s\": {\n    \"made_for\": %s,\n    \"measured\": {\"at\": \"%s\"", profile_part_names[part], text, at);
    free(text);
    if (part == PROFILE_BLOCKS)
        write_blocks(f, req, result);
    else
        write_machine(f, result);
    fputs("\n  }", f);
    return 0;
}

char *profile_parts_to_json(unsigned parts, const profile_request *req, const profile_result *result)
{
    char *text = NULL;
    size_t n;
    FILE *f = open_memstream(&text, &n);
    bool failed = !f, first = true;
    if (f)
        fputs("{\n", f);
    for (int part = 0; part < PROFILE_PARTS && !failed; part++) {
        if (!(parts & 1u << part))
            continue;
        fputs(first ? "" : ",\n", f);
        failed = write_part(f, (profile_part)part, req, result);
        first = false;
    }
    if (f)
        fputs("\n}\n", f);
    if (f && (ferror(f) || fclose(f)))
        failed = true;
    if (failed) {
        free(text);
        return NULL;
    }
    return text;
}

/* ---- reading ---- */

static int refuse_unknown(const json_source *src, const char *const *known, int n, const curve_key *curves, int curves_n,
                          const number_key *numbers, int numbers_n, pt_error *e)
{
    const char *key;
    json_t *value;
    json_object_foreach(src->object, key, value) {
        bool found = false;
        for (int i = 0; i < n; i++)
            found |= !strcmp(key, known[i]);
        for (int i = 0; i < curves_n; i++)
            found |= !strcmp(key, curves[i].key);
        for (int i = 0; i < numbers_n; i++)
            found |= !strcmp(key, numbers[i].key);
        if (!found)
            return pt_fail(e, PT_FAILED, "%s: the key \"%.60s\" is unknown; remove it or correct its spelling", src->where, key);
    }
    return 0;
}

static int bad_list(const json_source *src, const char *key, const char *wanted, pt_error *e)
{
    return pt_fail(e, PT_FAILED, "%s: \"%s\" must be a list of %s; measure again", src->where, key, wanted);
}

static int read_numbers(const json_source *src, const char *key, double *out, int n, pt_error *e)
{
    json_t *list;
    int failed = json_get_array(src, key, JSON_REQUIRED, &list, e);
    if (failed)
        return failed;
    if (json_array_size(list) != (size_t)n)
        return pt_fail(e, PT_FAILED, "%s: \"%s\" has %zu entries and %d are needed; measure again", src->where, key,
                       json_array_size(list), n);
    for (int i = 0; i < n; i++) {
        if (!json_is_number(json_array_get(list, (size_t)i)))
            return bad_list(src, key, "numbers", e);
        out[i] = json_number_value(json_array_get(list, (size_t)i));
    }
    return 0;
}

static bool read_pair(const json_t *pair, double *a, double *b)
{
    const json_t *x = json_array_get(pair, 0), *y = json_array_get(pair, 1);
    *a = json_number_value(x);
    *b = json_number_value(y);
    return json_array_size(pair) == 2 && json_is_number(x) && json_is_number(y);
}

static int read_curve(const json_source *src, const char *key, cost_curve *out, pt_error *e)
{
    json_t *list, *pair;
    size_t i;
    int failed = json_get_array(src, key, JSON_REQUIRED, &list, e);
    if (failed)
        return failed;
    if (json_array_size(list) > COST_POINTS)
        return pt_fail(e, PT_FAILED, "%s: \"%s\" has %zu points; 0 to %d are possible, measure again", src->where, key,
                       json_array_size(list), COST_POINTS);
    out->n = (int)json_array_size(list);
    json_array_foreach(list, i, pair)
        if (!read_pair(pair, &out->amount[i], &out->ns[i]))
            return bad_list(src, key, "[amount, ns]", e);
    return 0;
}

static int read_curves(const json_source *src, const curve_key *keys, int n, const number_key *numbers, int numbers_n, costs *costs,
                       pt_error *e)
{
    int failed = 0;
    for (int i = 0; i < n && !failed; i++) {
        curve_at(costs, &keys[i])->n = 0;
        if (!keys[i].optional || json_object_get(src->object, keys[i].key))
            failed = read_curve(src, keys[i].key, curve_at(costs, &keys[i]), e);
    }
    for (int i = 0; i < numbers_n && !failed; i++)
        failed = json_get_double(src, numbers[i].key, JSON_REQUIRED, 0, 1e18, number_at(costs, &numbers[i]), e);
    return failed;
}

static int read_check(const json_source *src, const char *key, int64_t least, int64_t most, profile_check *out, pt_error *e)
{
    double v[2];
    int failed = read_numbers(src, key, v, 2, e);
    if (failed)
        return failed;
    if (!(v[0] >= (double)least && v[0] <= (double)most) || !(v[1] >= 0 && v[1] <= 1e18))
        return pt_fail(e, PT_FAILED, "%s: \"%s\" is [%g, %g]; an amount from %lld to %lld and its time are needed, measure again",
                       src->where, key,
                       v[0], v[1], (long long)least, (long long)most);
    *out = (profile_check){(int64_t)v[0], v[1]};
    return 0;
}

static int read_machine_check(const json_source *src, const check_key *k, profile_check *out, pt_error *e)
{
    const json_t *value = json_object_get(src->object, k->key);
    *out = (profile_check){0};
    if (k->need == JSON_OPTIONAL && (!value || json_is_null(value)))
        return 0;
    return read_check(src, k->key, k->least, k->most, out, e);
}

static int read_layers(const json_source *src, const profile_request *req, costs *costs, pt_error *e)
{
    json_t *list, *pair, *kind;
    size_t i;
    double k, n;
    int64_t at = 0, layers = req->model->config.layers;
    int failed = json_get_array(src, "layers", JSON_REQUIRED, &list, e);
    if (failed)
        return failed;
    json_array_foreach(list, i, pair) {
        if (!read_pair(pair, &k, &n) || !(k >= 0 && k < COST_LAYER_KINDS) || !(n >= 1 && n <= (double)(layers - at)))
            return bad_list(src, "layers", "[kind, number of layers] that add up to the model's layers", e);
        memset(costs->kind_of_layer + at, (int)k, (size_t)n);
        at += (int64_t)n;
    }
    if (at != layers)
        return bad_list(src, "layers", "[kind, number of layers] that add up to the model's layers", e);
    failed = json_get_array(src, "kinds", JSON_REQUIRED, &list, e);
    if (!failed && json_array_size(list) > COST_LAYER_KINDS)
        failed = pt_fail(e, PT_FAILED, "%s: there are %zu kinds of layer; 1 to %d are possible, measure again", src->where,
                         json_array_size(list),
                         COST_LAYER_KINDS);
    costs->kinds_n = failed ? 0 : (int)json_array_size(list);
    for (i = 0; i < (size_t)costs->kinds_n && !failed; i++) {
        json_source one = {.object = kind = json_array_get(list, i)};
        snprintf(one.where, sizeof one.where, "%.440s: kinds[%zu]", src->where, i);
        if (!json_is_object(kind))
            return pt_fail(e, PT_FAILED, "%s is %s, but an object { ... } is needed", one.where, json_type_name(kind));
        failed = read_numbers(&one, "forward_ns", costs->layer[i].forward_ns, SAVE_LEVELS, e);
        if (!failed)
            failed = read_numbers(&one, "backward_ns", costs->layer[i].backward_ns, SAVE_LEVELS, e);
        if (!failed)
            failed = read_numbers(&one, "warm_backward_ns", costs->layer[i].warm_backward_ns, SAVE_LEVELS, e);
        if (!failed)
            failed = json_get_double(&one, "first_sums_ns", JSON_REQUIRED, 0, 1e18, &costs->layer[i].first_accumulators_ns, e);
        if (!failed)
            failed = json_get_double(&one, "cold_sums_ns", JSON_REQUIRED, 0, 1e18, &costs->layer[i].cold_accumulators_ns, e);
        if (!failed)
            failed = json_get_double(&one, "warm_forward_ns", JSON_REQUIRED, 0, 1e18, &costs->layer[i].warm_forward_ns, e);
    }
    return failed;
}

/* When: for people, and of a part by itself the profile's time. */
static int read_time(const json_source *src, int64_t *out, pt_error *e)
{
    const char *text;
    struct tm t = {0};
    int failed = json_get_string(src, "at", JSON_REQUIRED, &text, e);
    if (failed)
        return failed;
    const char *end = strptime(text, "%Y-%m-%dT%H:%M:%SZ", &t);
    if (!end || *end)
        return pt_fail(e, PT_FAILED, "%s: \"at\" is \"%.40s\"; it must be a time such as 2026-11-21T10:05:00Z", src->where, text);
    *out = (int64_t)timegm(&t);
    return 0;
}

static int read_blocks(const json_source *src, const profile_request *req, profile_result *result, pt_error *e)
{
    static const char *const keys[] = {"made_for", "measured", "layers", "kinds"};
    json_source measured;
    int failed = refuse_unknown(src, keys, COUNT(keys), block_curves, COUNT(block_curves), block_numbers, COUNT(block_numbers), e);
    if (!failed)
        failed = json_get_object(src, "measured", JSON_REQUIRED, &measured, e);
    if (!failed)
        failed = read_time(&measured, &result->measured_at, e);
    if (!failed)
        failed = json_get_double(&measured, "spread", JSON_REQUIRED, 0, 1e9, &result->costs.spread, e);
    result->others[PROFILE_BLOCKS] = 0;
    if (!failed)
        failed = json_get_double(&measured, "others", JSON_OPTIONAL, 0, 1, &result->others[PROFILE_BLOCKS], e);
    if (!failed)
        failed = read_check(&measured, "check", 1, req->shape->unit_rows, &result->layer, e);
    result->within_bytes = 0;
    if (!failed)
        failed = json_get_int(&measured, "within_bytes", JSON_OPTIONAL, 0, INT64_MAX, &result->within_bytes, e);
    if (!failed)
        failed = read_layers(src, req, &result->costs, e);
    return failed ? failed
                  : read_curves(src, block_curves, COUNT(block_curves), block_numbers, COUNT(block_numbers), &result->costs, e);
}

static int read_threads(const json_source *src, profile_result *result, pt_error *e)
{
    json_t *list = NULL, *one;
    size_t i;
    result->threads_n = 0;
    int failed = json_get_array(src, "update_threads", JSON_OPTIONAL, &list, e);
    if (failed)
        return failed;
    json_array_foreach(list, i, one) {
        double v[3];
        for (int k = 0; k < 3; k++)
            v[k] = json_number_value(json_array_get(one, (size_t)k));
        const double before = i ? result->threads[i - 1].threads : 0;
        if (i == PROFILE_THREADS || json_array_size(one) != 3 || !(v[0] > before && v[0] <= 1 << 20) ||
            !(v[1] >= 1 && v[1] <= RATES_LARGEST) ||
            !(v[2] > 0 && v[2] <= 1e18))
            return bad_list(src, "update_threads", "at most 8 [threads, elements, ns], more threads each time", e);
        result->threads[result->threads_n++] = (profile_threads){(int)v[0], (int64_t)v[1], v[2]};
    }
    return 0;
}

static int read_classes(const json_source *src, const char *key, double *out, int n, pt_error *e)
{
    json_source classes;
    int failed = json_get_object(src, key, JSON_REQUIRED, &classes, e);
    for (int a = 0; a < COST_CLASSES && !failed; a++)
        failed = read_numbers(&classes, cost_class_names[a], out + a * n, n, e);
    return failed;
}

static int read_quota(const json_source *src, cost_quota *out, pt_error *e)
{
    json_source q;
    int failed = json_get_object(src, "quota", JSON_REQUIRED, &q, e);
    if (!failed)
        failed = json_get_double(&q, "period_ns", JSON_REQUIRED, 0, 1e18, &out->period_ns, e);
    if (!failed)
        failed = json_get_double(&q, "processors", JSON_REQUIRED, 0, 1e18, &out->processors, e);
    return failed ? failed : read_numbers(&q, "busy", out->busy, COST_CLASSES, e);
}

static int read_machine(const json_source *src, profile_result *result, pt_error *e)
{
    static const char *const keys[] = {"made_for", "measured", "update_threads", "slow", "slow_more", "slow_ns", "quota"};
    json_source measured;
    int failed = refuse_unknown(src, keys, COUNT(keys), machine_curves, COUNT(machine_curves), machine_numbers, COUNT(machine_numbers), e);
    if (!failed)
        failed = json_get_object(src, "measured", JSON_REQUIRED, &measured, e);
    result->costs.curves_spread = 0;
    if (!failed)
        failed = json_get_double(&measured, "spread", JSON_OPTIONAL, 0, 1e9, &result->costs.curves_spread, e);
    result->others[PROFILE_MACHINE] = 0;
    if (!failed)
        failed = json_get_double(&measured, "others", JSON_OPTIONAL, 0, 1, &result->others[PROFILE_MACHINE], e);
    for (int i = 0; i < COUNT(machine_checks) && !failed; i++)
        failed = read_machine_check(&measured, &machine_checks[i], check_at(result, &machine_checks[i]), e);
    if (!failed)
        failed = read_threads(src, result, e);
    if (!failed)
        failed = read_classes(src, "slow", result->costs.slow[0], COST_CLASSES, e);
    if (!failed)
        failed = read_classes(src, "slow_more", result->costs.slow_more[0], COST_CLASSES, e);
    if (!failed)
        failed = read_classes(src, "slow_ns", result->costs.slow_ns[0], 2, e);
    if (!failed)
        failed = read_quota(src, &result->costs.quota, e);
    return failed ? failed
                  : read_curves(src, machine_curves, COUNT(machine_curves), machine_numbers, COUNT(machine_numbers), &result->costs, e);
}

static int read_part(const json_source *all, profile_part part, const profile_request *req, profile_result *result, pt_error *e)
{
    json_source src, made_for;
    int failed = json_get_object(all, profile_part_names[part], JSON_REQUIRED, &src, e);
    if (!failed)
        failed = json_get_object(&src, "made_for", JSON_REQUIRED, &made_for, e);
    if (failed)
        return failed;
    json_t *want = profile_made_for(part, req);
    if (!want)
        return pt_fail(e, PT_FAILED, "out of memory");
    failed = profile_is_for(made_for.where, made_for.object, want, e);
    json_decref(want);
    if (failed)
        return failed;
    return part == PROFILE_BLOCKS ? read_blocks(&src, req, result, e) : read_machine(&src, result, e);
}

int profile_parts_from_json(unsigned parts, const char *name, const char *json, size_t n, const profile_request *req,
                            profile_result *out, pt_error *e)
{
    json_t *value;
    int failed = json_text_load(name, json, n, JSON_REJECT_DUPLICATES, &value, e);
    if (failed)
        return failed;
    json_source all = {.object = value};
    snprintf(all.where, sizeof all.where, "%.400s", name);
    if (!json_is_object(value))
        failed = pt_fail(e, PT_FAILED, "%s: holds %s, but a profile { ... } is needed", all.where, json_type_name(value));
    profile_result result = *out;
    for (int part = 0; part < PROFILE_PARTS && !failed; part++)
        if (parts & 1u << part)
            failed = read_part(&all, (profile_part)part, req, &result, e);
    json_decref(value);
    if (!failed)
        failed = costs_validate(&result.costs, req->model, all.where, e);
    if (!failed)
        *out = result;
    return failed;
}

/* ---- whole profiles ---- */

enum { ALL_PARTS = 1u << PROFILE_BLOCKS | 1u << PROFILE_MACHINE };

char *profile_to_json(const profile_request *req, const profile_result *result) { return profile_parts_to_json(ALL_PARTS, req, result); }

int profile_from_json(const char *name, const char *json, size_t n, const profile_request *req, profile_result *out, pt_error *e)
{
    *out = (profile_result){.cached = true};
    costs_init(&out->costs);
    return profile_parts_from_json(ALL_PARTS, name, json, n, req, out, e);
}

int profile_read(const char *path, const profile_request *req, profile_result *out, pt_error *e)
{
    char *text;
    size_t n;
    int failed = file_read_all(path, 16u << 20, &text, &n, e);
    if (failed)
        return failed;
    failed = profile_from_json(path, text, n, req, out, e);
    free(text);
    return failed;
}

int profile_write(const char *path, const profile_request *req, const profile_result *result, pt_error *e)
{
    char *text = profile_to_json(req, result);
    int failed = text ? file_write_atomic(path, text, strlen(text), e) : pt_fail(e, PT_FAILED, "out of memory");
    free(text);
    return failed;
}
