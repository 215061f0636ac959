#include "predict_record.h"

#include "profile/profile_parts.h"

#include <stdlib.h>
#include <string.h>

enum { WORDS = 5 };

json_t *record_read(FILE *f)
{
    char *text = NULL;
    size_t room = 0;
    json_t *line = NULL;
    while (!line && getline(&text, &room, f) > 0)
        line = json_loads(text, 0, NULL);
    free(text);
    return line;
}

static json_t *object_of(char *text)
{
    json_t *object = text ? json_loads(text, 0, NULL) : NULL;
    free(text);
    return object;
}

json_t *record_group(const setting *g, char *const *v)
{
    return json_pack("{s:[s,s,s,s,s], s:o}", "setting", v[0], v[1], v[2], v[3], v[4], "profile",
                     object_of(profile_to_json(&g->request, &g->profile)));
}

json_t *record_plan(const setting *g, const priced_plan *c) { return object_of(plan_to_json(&c->plan, g->model, &g->shape)); }

/* The costs of another machine are read as if they were this one's: they are only numbers here. */
static int read_profile(setting *g, const json_t *recorded, pt_error *e)
{
    json_t *profile = json_deep_copy(recorded);
    for (int part = 0; part < PROFILE_PARTS; part++)
        json_object_set_new(json_object_get(profile, profile_part_names[part]), "made_for",
                            profile_made_for((profile_part)part, &g->request));
    char *text = json_dumps(profile, 0);
    json_decref(profile);
    if (!text)
        return pt_fail(e, PT_FAILED, "no memory");
    int failed = profile_from_json("the recorded profile", text, strlen(text), &g->request, &g->profile, e);
    free(text);
    return failed;
}

static int begin_group(setting *g, const json_t *line, pt_error *e)
{
    const json_t *words = json_object_get(line, "setting");
    char *v[WORDS];
    int failed = json_array_size(words) == WORDS ? 0 : pt_fail(e, PT_FAILED, "\"setting\" needs %d words", WORDS);
    for (size_t i = 0; i < WORDS && !failed; i++)
        v[i] = (char *)json_string_value(json_array_get(words, i));
    if (!failed)
        failed = setting_open(g, v, ".", e);
    return failed ? failed : read_profile(g, json_object_get(line, "profile"), e);
}

static int predict_plan(const setting *g, const json_t *plan, double *seconds, pt_error *e)
{
    priced_plan c = {0};
    double busy[QUEUES];
    char *text = json_dumps(plan, 0);
    int failed = text ? plan_from_json("the recorded plan", text, strlen(text), &c.plan, e) : pt_fail(e, PT_FAILED, "no memory");
    free(text);
    if (!failed)
        failed = pack(g->model, &g->shape, c.plan.chunk_bytes, &c.packing, e);
    if (!failed)
        failed = plan_predict(g, &c, seconds, busy, e);
    priced_plan_free(&c);
    return failed;
}

int record_predict(setting *g, const json_t *line, double *seconds, pt_error *e)
{
    const json_t *plan = json_object_get(line, "plan");
    if (json_object_get(line, "profile"))
        return begin_group(g, line, e);
    if (!plan || !g->model || !json_object_get(line, "measured_s"))
        return 0;
    int failed = predict_plan(g, plan, seconds, e);
    return failed ? failed : 1;
}
