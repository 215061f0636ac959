/* explain_json.c - the explanation as an object:
 *
 *   {"fits": true,
 *    "ranks" (devices; "tokens_per_s" is of all of them),
 *    "predicted": {"step_s", "tokens_per_s", "peak_bytes": {TIER: N}, "budget_bytes": {TIER: N},
 *                  "threads_bytes": RAM of many threads, not in these numbers and not in the device's budget},
 *    "plan": {...},                             what --plan reads
 *    "why": ["...", ...],                       the lines of the text
 *    "memory": {TIER: {PART: N, "free": of the budget}}, "queues": {QUEUE: {"busy_s", "alone_s",
 *    "waited_for_s": by compute, "waits_s": {QUEUE: S that this queue waited for it}}},
 *    "phases": {PHASE: S}, "limit_s": this plan's busiest queue alone, "bound_s": no plan is faster (null: none is known),
 *    "needed_s": the computation that every plan needs,
 *    "disk": {"read_bytes", "written_bytes", "less": [{"options", "bytes_per_token"} ...]},   less: ways to write less (wear.c)
 *    "helps": [{"change", "gain"}], "others": [{"name", "slower", "why"}],
 *    "total_s", "total_kwh", "total_price": of all steps, where they are known, and the machine's watts and price}
 *
 *   {"fits": false, "missing_bytes": N, "smaller_step": "`batch_size` 2" or "",
 *    "smallest_change": "`device_memory` 24.5GiB", with what the machine lacks of it in parentheses;
 *                       "`out` where 2GiB more are free" if only output files do not fit,
 *    "changes": [that one, and others that would make it fit],
 *    "predicted": {"step_s": null, "tokens_per_s": null, "peak_bytes": {TIER: budgets that would suffice}, "budget_bytes": {TIER: N}},
 *    "plan": null, "least_bytes", "budget_bytes": the same two, "why": ["..."]}
 */
#include "report/explain.h"

#include <stdlib.h>
#include <string.h>

static json_t *tiers_json(const uint64_t bytes[TIERS])
{
    json_t *o = json_object();
    for (int t = 0; t < TIERS; t++)
        json_object_set_new(o, tier_names[t], json_integer((json_int_t)bytes[t]));
    return o;
}

static json_t *memory_json(const explanation *x)
{
    const forecast *f = &x->forecast;
    json_t *all = json_object();
    for (int t = 0; t < TIERS; t++) {
        json_t *parts = json_object();
        const uint64_t budget = x->budget[t];
        for (int p = 0; p < MEMORY_PARTS; p++)
            json_object_set_new(parts, part_names[p], json_integer((json_int_t)f->part[t][p]));
        json_object_set_new(parts, "free", json_integer((json_int_t)(budget > f->bytes[t] ? budget - f->bytes[t] : 0)));
        if (f->bytes[t])
            json_object_set(all, tier_names[t], parts);
        json_decref(parts);
    }
    return all;
}

/* A queue's waits for the others. */
static json_t *waits_json(const double wait_ns[QUEUES])
{
    json_t *waits = json_object();
    for (int q = 0; q < QUEUES; q++)
        if (wait_ns[q] > 0)
            json_object_set_new(waits, queue_names[q], json_real(wait_ns[q] * 1e-9));
    return waits;
}

static json_t *queues_json(const forecast *f)
{
    json_t *all = json_object();
    for (int q = 0; q < QUEUES; q++)
        json_object_set_new(all, queue_names[q],
                            json_pack("{s:f, s:f, s:f, s:o}", "busy_s", f->busy_ns[q] * 1e-9, "alone_s", f->alone_ns[q] * 1e-9,
                                      "waited_for_s",
                                      f->wait_ns[QUEUE_COMPUTE][q] * 1e-9, "waits_s", waits_json(f->wait_ns[q])));
    return all;
}

/* The lines of the text; indented lines continue the previous one. */
static json_t *why_json(const explanation *x)
{
    json_t *all = json_array();
    char *text = explain_text(x, EXPLAIN_ALL), *rest = NULL;
    size_t room = text ? 2 * strlen(text) + 1 : 0; /* each line gets one or two more characters */
    char *sentence = text ? calloc(room, 1) : NULL;
    for (char *line = sentence ? strtok_r(text, "\n", &rest) : NULL; line; line = strtok_r(NULL, "\n", &rest)) {
        size_t used = strlen(sentence);
        if (line[0] == ' ') {
            snprintf(sentence + used, room - used, "%s%s", used && strchr(":,", sentence[used - 1]) ? " " : "; ",
                     line + strspn(line, " "));
            continue;
        }
        if (used)
            json_array_append_new(all, json_string(sentence));
        size_t word = strcspn(line, " ");
        snprintf(sentence, room, "%.*s: %s", (int)word, line, line + word + strspn(line + word, " "));
    }
    if (sentence && sentence[0])
        json_array_append_new(all, json_string(sentence));
    free(sentence);
    free(text);
    return all;
}

static json_t *alternatives_json(const explanation *x, bool helps)
{
    json_t *all = json_array();
    for (int i = 0; helps && i < x->helps_n; i++)
        json_array_append_new(all, json_pack("{s:s, s:f}", "change", x->helps[i].what, "gain", x->helps[i].gain));
    for (int i = 0; !helps && i < x->rivals_n; i++)
        json_array_append_new(all, json_pack("{s:s, s:f, s:s}", "name", x->rivals[i].name, "slower", x->rivals[i].slower, "why",
                                             x->rivals[i].why));
    return all;
}

static json_t *less_json(const explanation *x)
{
    wear_way ways[WEAR_WAYS];
    double now;
    json_t *all = json_array();
    for (int i = 0, n = explain_wear(x, &now, ways); i < n; i++)
        json_array_append_new(all, json_pack("{s:s, s:f}", "options", ways[i].options, "bytes_per_token", ways[i].bytes_per_token));
    return all;
}

static json_t *plan_json(const explanation *x)
{
    char *text = plan_to_json(&x->in->best->plan, x->in->search->model, x->in->search->shape);
    json_t *value = text ? json_loads(text, 0, NULL) : NULL;
    free(text);
    return value;
}

/* Of the whole run, if its steps are known: its time; energy and price, if the machine file has watts and a price. */
static json_t *with_run(json_t *o, const explanation *x)
{
    const double seconds = x->forecast.step_ns * 1e-9 * (double)x->in->steps;
    if (o && x->in->steps)
        json_object_set_new(o, "total_s", json_real(seconds));
    if (o && x->in->steps && x->in->watts > 0)
        json_object_set_new(o, "total_kwh", json_real(seconds / 3.6e6 * x->in->watts));
    if (o && x->in->steps && x->in->price_per_hour > 0)
        json_object_set_new(o, "total_price", json_real(seconds / 3600 * x->in->price_per_hour));
    return o;
}

json_t *explain_json(const explanation *x)
{
    const forecast *f = &x->forecast;
    json_t *phases = json_object();
    for (int p = 0; p < PHASES; p++)
        json_object_set_new(phases, phase_names[p], json_real(f->phase_ns[p] * 1e-9));
    json_t *all = json_pack("{s:b, s:i, s:{s:f, s:f, s:o, s:o, s:I}, s:o, s:o, s:o, s:o, s:o, s:f, s:o, s:f, s:{s:I, s:I, s:o}, s:o, s:o}",
                     "fits", 1, "ranks", search_ranks(x->in->search), "predicted",
                     "step_s", f->step_ns * 1e-9, "tokens_per_s", x->tokens_per_s, "peak_bytes", tiers_json(f->bytes), "budget_bytes",
                     tiers_json(x->budget), "threads_bytes", (json_int_t)x->in->search->threads_bytes, "plan", plan_json(x),
                     "why", why_json(x), "memory", memory_json(x), "queues", queues_json(f), "phases", phases, "limit_s",
                     f->bound_ns * 1e-9, "bound_s", x->bound_ns > 0 ? json_real(x->bound_ns * 1e-9) : json_null(), "needed_s",
                     f->needed_ns * 1e-9, "disk", "read_bytes", (json_int_t)f->read_bytes,
                     "written_bytes", (json_int_t)f->written_bytes, "less", less_json(x), "helps", alternatives_json(x, true),
                     "others", alternatives_json(x, false));
    return with_run(all, x);
}

json_t *explain_misfit(const search_input *in, const uint64_t least[TIERS], uint64_t missing, json_t *changes, const char *smaller_step,
                       const char *message)
{
    const char *first = json_string_value(json_array_get(changes, 0));
    return json_pack("{s:b, s:I, s:s, s:o, s:s, s:{s:n, s:n, s:o, s:o}, s:n, s:o, s:o, s:[s]}", "fits", 0, "missing_bytes",
                     (json_int_t)missing, "smallest_change", first ? first : "", "changes", changes, "smaller_step", smaller_step,
                     "predicted", "step_s", "tokens_per_s", "peak_bytes", tiers_json(least), "budget_bytes", tiers_json(in->budget), "plan",
                     "least_bytes", tiers_json(least), "budget_bytes", tiers_json(in->budget), "why", message);
}
