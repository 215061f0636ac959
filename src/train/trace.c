/* trace.c - trace.json: the tasks of the last step as Chrome's trace format has them (Perfetto opens it), twice: as they
 * were predicted and as they ran. A row a queue; what a task is about stands in its arguments. */
#include "train/trainer.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum { PREDICTED = 1, MEASURED = 2 };

static json_t *name_event(const char *what, int process, int queue, const char *name)
{
    return json_pack("{s:s, s:s, s:i, s:i, s:{s:s}}", "name", what, "ph", "M", "pid", process, "tid", queue, "args", "name", name);
}

static json_t *task_event(const task *t, int process, double start_ns, double end_ns)
{
    json_t *args = json_object();
    if (t->block >= 0)
        json_object_set_new(args, "block", json_integer(t->block));
    if (t->micro >= 0)
        json_object_set_new(args, "micro_batch", json_integer(t->micro));
    if (t->chunk >= 0)
        json_object_set_new(args, "chunk", json_integer(t->chunk));
    return json_pack("{s:s, s:s, s:i, s:i, s:f, s:f, s:o}", "name", task_names[t->kind], "ph", "X", "pid", process, "tid", (int)t->queue,
                     "ts", start_ns * 1e-3, "dur", (end_ns - start_ns) * 1e-3, "args", args);
}

static void add_names(json_t *events, int process, const char *name)
{
    json_array_append_new(events, name_event("process_name", process, 0, name));
    for (int q = 0; q < QUEUES; q++)
        json_array_append_new(events, name_event("thread_name", process, q, queue_names[q]));
}

static int add_predicted(const trainer *t, const schedule *s, json_t *events, pt_error *e)
{
    const schedule_input in = trainer_schedules(t);
    simulation sim;
    int failed = simulate(&in, s, &t->planning.profile.costs, true, &sim, e);
    if (failed)
        return failed;
    add_names(events, PREDICTED, "predicted");
    for (int i = 0; i < s->tasks_n; i++)
        json_array_append_new(events, task_event(&s->tasks[i], PREDICTED, sim.start_ns[i], sim.end_ns[i]));
    simulation_free(&sim);
    return 0;
}

static void add_measured(const trainer *t, const schedule *s, json_t *events)
{
    const task_time *times = executor_times(t->x);
    int64_t origin = INT64_MAX;
    for (int i = 0; i < s->tasks_n; i++)
        origin = times[i].start_ns < origin ? times[i].start_ns : origin;
    add_names(events, MEASURED, "measured");
    for (int i = 0; i < s->tasks_n; i++)
        json_array_append_new(events, task_event(&s->tasks[i], MEASURED, (double)(times[i].start_ns - origin),
                                                 (double)(times[i].end_ns - origin)));
}

int trace_write(const trainer *t, schedule_kind kind, pt_error *e)
{
    const schedule *s = executor_schedule(t->x, kind);
    char path[FILE_PATH_BYTES];
    json_t *events = json_array();
    int failed = add_predicted(t, s, events, e);
    add_measured(t, s, events);
    json_t *all = json_pack("{s:o, s:s}", "traceEvents", events, "displayTimeUnit", "ms");
    if (!failed)
        failed = all ? path_join(path, t->out, "trace.json", e) : pt_fail(e, PT_FAILED, "out of memory");
    if (!failed)
        failed = file_write_json(path, all, e);
    json_decref(all);
    return failed;
}
