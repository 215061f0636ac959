/* trace.c - trace.json: the tasks of the last step as Chrome's trace format has them (Perfetto opens it). A row a
 * queue; what a task is about stands in its arguments. */
#include "train/trainer.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static json_t *event(const task *t, const task_time *when, int64_t origin)
{
    json_t *args = json_object();
    if (t->block >= 0)
        json_object_set_new(args, "block", json_integer(t->block));
    if (t->micro >= 0)
        json_object_set_new(args, "micro_batch", json_integer(t->micro));
    if (t->chunk >= 0)
        json_object_set_new(args, "chunk", json_integer(t->chunk));
    return json_pack("{s:s, s:s, s:i, s:i, s:f, s:f, s:o}", "name", task_names[t->kind], "ph", "X", "pid", 1, "tid", (int)t->queue, "ts",
                     (double)(when->start_ns - origin) * 1e-3, "dur", (double)(when->end_ns - when->start_ns) * 1e-3, "args", args);
}

int trace_write(const trainer *t, schedule_kind kind, pt_error *e)
{
    const schedule *s = executor_schedule(t->x, kind);
    const task_time *times = executor_trace(t->x);
    char path[FILE_PATH_BYTES];
    json_t *events = json_array();
    int64_t origin = INT64_MAX;
    for (int i = 0; i < s->tasks_n; i++)
        origin = times[i].start_ns < origin ? times[i].start_ns : origin;
    for (int q = 0; q < QUEUES; q++)
        json_array_append_new(events, json_pack("{s:s, s:s, s:i, s:i, s:{s:s}}", "name", "thread_name", "ph", "M", "pid", 1, "tid", q,
                                                "args", "name", queue_names[q]));
    for (int i = 0; i < s->tasks_n; i++)
        json_array_append_new(events, event(&s->tasks[i], &times[i], origin));
    json_t *all = json_pack("{s:o, s:s}", "traceEvents", events, "displayTimeUnit", "ms");
    int failed = all ? path_join(path, t->out, "trace.json", e) : pt_fail(e, PT_FAILED, "out of memory");
    if (!failed)
        failed = file_write_json(path, all, e);
    json_decref(all);
    return failed;
}
