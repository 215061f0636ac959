/* trace.c - trace.json: the tasks of the last step in Chrome's trace format (for Perfetto), twice: as predicted before the first step, and
 * as they ran. One row per queue; the arguments of a task say what it is about. Updates after a step are a separate schedule, after the
 * step's. */
#include "train/summary.h"

#include "train/options.h"

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

/* Starts at *end_ns, which advances to the end of its last task. */
static int add_predicted(const trainer *trainer, const schedule *sched, json_t *events, double *end_ns, pt_error *e)
{
    const schedule_input in = trainer_schedules(trainer);
    const double from = *end_ns;
    simulation sim;
    int failed = simulate(&in, sched, &trainer->predicted.first_costs, true, &sim, e);
    if (failed)
        return failed;
    for (int i = 0; i < sched->tasks_n; i++)
        json_array_append_new(events, task_event(&sched->tasks[i], PREDICTED, from + sim.start_ns[i], from + sim.end_ns[i]));
    *end_ns += sim.total_ns - trainer->predicted.first_costs.step_ns;
    simulation_free(&sim);
    return 0;
}

static int64_t start_of(const schedule *sched, const task_time *times)
{
    int64_t first = INT64_MAX;
    for (int i = 0; i < sched->tasks_n; i++)
        first = times[i].start_ns < first ? times[i].start_ns : first;
    return first;
}

static void add_measured(const schedule *sched, const task_time *times, int64_t origin, json_t *events)
{
    for (int i = 0; i < sched->tasks_n; i++)
        json_array_append_new(events, task_event(&sched->tasks[i], MEASURED, (double)(times[i].start_ns - origin),
                                                 (double)(times[i].end_ns - origin)));
}

/* Both timelines of the step's schedules, one after another. */
static int add_step(const trainer *trainer, json_t *events, pt_error *e)
{
    const schedule_kind kinds[] = {trainer->engine.last, SCHEDULE_DRAIN};
    const int64_t origin =
        start_of(executor_schedule(trainer->engine.x, trainer->engine.last), executor_times(trainer->engine.x, trainer->engine.last));
    double end_ns = 0;
    int failed = 0;
    for (int k = 0; k < (trainer_plan(trainer)->update == UPDATE_END ? 2 : 1) && !failed; k++) {
        const schedule *sched = executor_schedule(trainer->engine.x, kinds[k]);
        failed = add_predicted(trainer, sched, events, &end_ns, e);
        add_measured(sched, executor_times(trainer->engine.x, kinds[k]), origin, events);
    }
    return failed;
}

int trace_write(const trainer *trainer, pt_error *e)
{
    char path[FILE_PATH_BYTES];
    if (!trainer->engine.x || !trainer->engine.last_whole || !executor_times(trainer->engine.x, trainer->engine.last)) {
        options_notice(&trainer->job.o, "`trace`: no step ran, so there is no trace.json");
        return 0;
    }
    json_t *events = json_array();
    add_names(events, PREDICTED, "predicted");
    add_names(events, MEASURED, "measured");
    int failed = add_step(trainer, events, e);
    json_t *all = json_pack("{s:o, s:s}", "traceEvents", events, "displayTimeUnit", "ms");
    if (!failed)
        failed = all ? path_join(path, trainer->out.path, "trace.json", e) : pt_fail(e, PT_FAILED, "out of memory");
    if (!failed)
        failed = file_write_json(path, all, e);
    json_decref(all);
    return failed;
}
