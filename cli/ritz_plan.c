/* ritz_plan.c - plans a Deep Ritz run without running it: its memory, and the time of a step. */
#include "ritz.h"

#include "base/error.h"
#include "base/units.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const tiers[] = {"device", "host", "disk"};

int ritz_describe_plan(const pt_ritz_summary *m, char out[RITZ_PLAN_TEXT])
{
    char bytes[32];
    int n = 0;
    for (int t = 0; t < 3; t++)
        if (m->planned_bytes[t])
            n += snprintf(out + n, RITZ_PLAN_TEXT - (size_t)n, "%s%s of %s memory", n ? ", " : "", size_format(bytes, m->planned_bytes[t]),
                          tiers[t]);
    if (m->recomputed_groups)
        n += snprintf(out + n, RITZ_PLAN_TEXT - (size_t)n, "; %d of %d group%s of layers recomputed",
                      m->recomputed_groups, m->groups, plural((uint64_t)m->groups));
    for (int t = 1; t < 3; t++)
        if (m->chunks_on[t])
            n += snprintf(out + n, RITZ_PLAN_TEXT - (size_t)n, "; %d of %d chunk%s of weights on the %s", m->chunks_on[t],
                          m->chunks, plural((uint64_t)m->chunks), tiers[t]);
    if (m->swapped_groups)
        n += snprintf(out + n, RITZ_PLAN_TEXT - (size_t)n, "; %d of %d group%s of layers keep activations outside device memory",
                      m->swapped_groups, m->groups, plural((uint64_t)m->groups));
    if (m->written_bytes)
        n += snprintf(out + n, RITZ_PLAN_TEXT - (size_t)n, "; %s written to the disk a step", size_format(bytes, m->written_bytes));
    return n;
}

/* `plan`: the JSON that --plan reads. */
static void print_json(const pt_ritz_summary *m, const char *plan)
{
    printf("{\"fits\": true, \"predicted\": {\"step_s\": %.6g, \"peak_bytes\": {", m->predicted_step_s);
    for (int t = 0; t < 3; t++)
        printf("%s\"%s\": %llu", t ? ", " : "", tiers[t], (unsigned long long)m->planned_bytes[t]);
    printf("}, \"budget_bytes\": {");
    for (int t = 0; t < 3; t++)
        printf("%s\"%s\": %llu", t ? ", " : "", tiers[t], (unsigned long long)m->budget_bytes[t]);
    printf("}, \"again_s\": %.6g, \"written_bytes\": %llu},\n\"about\": {\"unit_points\": %lld, \"groups\": %d, \"recomputed_groups\": %d, "
           "\"swapped_groups\": %d, \"chunks\": {\"device\": %d, \"host\": %d, \"disk\": %d}},\n\"plan\": %s}\n",
           m->again_s, (unsigned long long)m->written_bytes, (long long)m->unit_points, m->groups, m->recomputed_groups, m->swapped_groups,
           m->chunks_on[0], m->chunks_on[1], m->chunks_on[2], plan);
}

static void print_text(const pt_ritz_summary *m)
{
    const int64_t points = m->n + m->n_boundary;
    char text[RITZ_PLAN_TEXT], a[32], b[32];
    ritz_describe_plan(m, text);
    printf("%s, %lld dimension%s; %lld parameter%s; %lld point%s a step\n", m->problem, (long long)m->dim, plural((uint64_t)m->dim),
           (long long)m->parameters, plural((uint64_t)m->parameters), (long long)points, plural((uint64_t)points));
    printf("memory  %s\n", text);
    if (points <= m->unit_points)
        printf("units   one, of all points\n");
    else
        printf("units   of %lld point%s, %lld at a time\n", (long long)m->unit_points, plural((uint64_t)m->unit_points),
               (long long)m->visit_units);
    printf("step    about %s", seconds_format(a, m->predicted_step_s));
    if (m->again_s > 0)
        printf(", %s of it recomputation", seconds_format(b, m->again_s));
    printf("\n");
}

/* The same for a run that does not fit. */
static void print_misfit(const pt_error *e, const pt_ritz_misfit *m)
{
    printf("{\"fits\": false, \"missing_bytes\": %llu, \"smallest_change\": \"%s\", \"why\": [\"", (unsigned long long)m->missing_bytes,
           m->change);
    for (const char *c = e->text; *c; c++)
        printf(*c == '"' || *c == '\\' ? "\\%c" : "%c", *c);
    printf("\"]}\n");
}

int ritz_plan(ritz_session *s, pt_error *e)
{
    pt_ritz *r;
    pt_ritz_summary m;
    pt_ritz_misfit misfit = {0};
    s->o.misfit = &misfit;
    s->o.plan_only = s->o.forecast = true;
    int failed = pt_ritz_open(&s->o, &r, e);
    if (failed == PT_DOES_NOT_FIT && s->json)
        print_misfit(e, &misfit);
    if (failed)
        return failed;
    pt_ritz_get_summary(r, &m);
    char *plan = s->json ? pt_ritz_plan_json(r) : NULL;
    if (plan)
        print_json(&m, plan);
    else if (s->json)
        failed = pt_fail(e, PT_FAILED, "out of memory");
    else
        print_text(&m);
    free(plan);
    pt_ritz_close(r);
    return failed;
}
