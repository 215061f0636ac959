#include "report/timeline.h"

#include "base/json.h"
#include "io/files.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TRACE_MAX_BYTES = 1 << 28 };
#define MAX_US 1e13       /* several months */
#define SHORTEST_US 1e-3  /* keeps the width of a column above 0 */

const char *const timeline_kind_names[TIMELINE_KINDS] = {"forward", "backward", "update", "copies, reads and writes"};

static timeline_kind kind_of(task_kind k)
{
    switch (k) {
    case TASK_EMBED: case TASK_LAYER: case TASK_HEAD: case TASK_HEAD_EVAL: return TIMELINE_FORWARD;
    case TASK_LAYER_BACKWARD: case TASK_FINISH: case TASK_EMBED_FINISH: case TASK_ROWS_FINISH:
    case TASK_EMBED_BACKWARD: return TIMELINE_BACKWARD;
    case TASK_UPDATE: return TIMELINE_UPDATE;
    default: return TIMELINE_MOVE;
    }
}

typedef struct event { int side, queue; timeline_kind kind; double start, length; } event; /* microseconds */

/* 1: an event of this program; 0: another one; negative: an error. */
static int read_event(const json_source *src, event *out, pt_error *e)
{
    const char *phase = "", *name = "";
    int64_t side = 0, queue = -1;
    int k = 0, failed = json_get_string(src, "ph", JSON_OPTIONAL, &phase, e);
    if (failed || strcmp(phase, "X"))
        return failed;
    failed = json_get_string(src, "name", JSON_REQUIRED, &name, e);
    if (!failed)
        failed = json_get_int(src, "pid", JSON_REQUIRED, 1, TIMELINE_SIDES, &side, e);
    if (!failed)
        failed = json_get_int(src, "tid", JSON_REQUIRED, 0, QUEUES - 1, &queue, e);
    if (!failed)
        failed = json_get_double(src, "ts", JSON_REQUIRED, 0, MAX_US, &out->start, e);
    if (!failed)
        failed = json_get_double(src, "dur", JSON_REQUIRED, 0, MAX_US, &out->length, e);
    while (!failed && k < TASK_KINDS && strcmp(name, task_names[k]))
        k++;
    out->side = (int)side - 1;
    out->queue = (int)queue;
    out->kind = kind_of((task_kind)k);
    return failed ? failed : k < TASK_KINDS;
}

static void add_event(timeline *t, const event *x)
{
    double column = t->seconds * 1e6 / TIMELINE_COLUMNS, end = x->start + x->length;
    float *row = t->busy[x->side][x->queue][x->kind];
    for (int i = (int)(x->start / column); i < TIMELINE_COLUMNS && i * column < end; i++)
        row[i] += (float)((fmin(end, (i + 1) * column) - fmax(x->start, i * column)) / column);
}

/* Two passes: with `t` NULL, finds the end of the last event; then fills `t`. */
static int visit(const json_source *src, const json_t *events, timeline *t, double *end_us, pt_error *e)
{
    const json_t *value;
    size_t i;
    json_array_foreach(events, i, value) {
        json_source one = {.object = (json_t *)value};
        event x;
        snprintf(one.where, sizeof one.where, "%.440s: traceEvents[%zu]", src->where, i);
        if (!json_is_object(value))
            return pt_fail(e, PT_FAILED, "%s is %s, but an event { ... } is needed; train again with `trace`", one.where,
                           json_type_name(value));
        int ours = read_event(&one, &x, e);
        if (ours < 0)
            return ours;
        if (ours && t)
            add_event(t, &x);
        else if (ours)
            *end_us = fmax(*end_us, x.start + x.length);
    }
    return 0;
}

static int read_trace(const json_source *src, timeline **out, pt_error *e)
{
    json_t *events;
    double end_us = 0;
    int failed = json_get_array(src, "traceEvents", JSON_REQUIRED, &events, e);
    if (!failed)
        failed = visit(src, events, NULL, &end_us, e);
    if (!failed && !(end_us > SHORTEST_US))
        failed = pt_fail(e, PT_FAILED, "%s: no task of a step is in it; train again with `trace`", src->where);
    timeline *t = failed ? NULL : calloc(1, sizeof *t);
    if (!failed && !t)
        failed = pt_fail(e, PT_FAILED, "out of memory");
    if (failed)
        return failed;
    t->seconds = end_us * 1e-6;
    *out = t;
    return visit(src, events, t, &end_us, e); /* no errors: the first pass had none */
}

int timeline_from_json(const char *name, const char *json, size_t n, timeline **out, pt_error *e)
{
    json_source src;
    *out = NULL;
    int failed = json_source_text(&src, name, json, n, "a trace", e);
    if (failed)
        return failed;
    failed = read_trace(&src, out, e);
    json_source_close(&src);
    return failed;
}

int timeline_read(const char *path, timeline **out, pt_error *e)
{
    char *text;
    size_t n;
    *out = NULL;
    int failed = file_read_all(path, TRACE_MAX_BYTES, &text, &n, e);
    if (failed)
        return failed;
    failed = timeline_from_json(path, text, n, out, e);
    free(text);
    return failed;
}

void timeline_free(timeline *t) { free(t); }
