/* trace.json: both timelines hold the last step's tasks, with the updates behind it where the plan has them there, also where the run
 * was left before its last step. */
#include "train/trainer.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include "train/fixture.h"

#include "train/plan_file.h"

enum { SIDES = 2, STEPS = 3 };

typedef struct side { int tasks[TASK_KINDS]; double step_end_us, drain_start_us; } side;

static int kind_of(const char *name)
{
    int k = 0;
    while (k < TASK_KINDS && strcmp(name, task_names[k]) != 0)
        k++;
    assert_true(k < TASK_KINDS);
    return k;
}

/* The first step_tasks of each side are the step's, as they were written. */
static void read_sides(const char *out, int step_tasks, side sides[SIDES])
{
    char path[300];
    json_t *all, *event;
    size_t i;
    int seen[SIDES] = {0};
    pt_error e = {0};
    snprintf(path, sizeof path, "%s/trace.json", out);
    must(json_file_load(path, JSON_REJECT_DUPLICATES, &all, &e), &e);
    memset(sides, 0, SIDES * sizeof *sides);
    json_array_foreach(json_object_get(all, "traceEvents"), i, event) {
        if (strcmp(json_string_value(json_object_get(event, "ph")), "X") != 0)
            continue;
        int at = (int)json_integer_value(json_object_get(event, "pid")) - 1;
        assert_in_range(at, 0, SIDES - 1);
        side *s = &sides[at];
        double start = json_number_value(json_object_get(event, "ts")), length = json_number_value(json_object_get(event, "dur"));
        assert_true(start >= 0 && length >= 0);
        if (seen[at]++ < step_tasks)
            s->step_end_us = fmax(s->step_end_us, start + length);
        else
            s->drain_start_us = seen[at] == step_tasks + 1 ? start : fmin(s->drain_start_us, start);
        s->tasks[kind_of(json_string_value(json_object_get(event, "name")))]++;
    }
    json_decref(all);
}

static void count(const pt_trainer *t, schedule_kind kind, int tasks[TASK_KINDS])
{
    const schedule *s = executor_schedule(t->engine.x, kind);
    for (int i = 0; i < s->tasks_n; i++)
        tasks[s->tasks[i].kind]++;
}

static void check_trace(const pt_trainer *t, const char *out)
{
    side sides[SIDES];
    int tasks[TASK_KINDS] = {0}, second;
    schedule_kind first;
    steady_schedules(trainer_plan(t)->update, &first, &second);
    count(t, first, tasks);
    if (second >= 0)
        count(t, (schedule_kind)second, tasks);
    read_sides(out, executor_schedule(t->engine.x, first)->tasks_n, sides);
    for (int k = 0; k < SIDES; k++) {
        for (int i = 0; i < TASK_KINDS; i++)
            if (sides[k].tasks[i] != tasks[i])
                fail_msg("side %d has %d tasks \"%s\" of %d", k, sides[k].tasks[i], task_names[i], tasks[i]);
        if (second >= 0)
            assert_true(sides[k].drain_start_us >= sides[k].step_end_us * (1 - 1e-9));
    }
}

/* Left after STEPS steps; the plan's updates are where they are, 1 << which is returned. */
static unsigned run_under_any_plan(random_source *random, fixture *f, int i, bool ends)
{
    char out[128], plan_path[200];
    pt_train_options o;
    pt_trainer *t;
    pt_step s;
    pt_error e = {0};
    const plan_case c = {.type = PT_F32, .batch = (int64_t)fixture_setting(f, "batch_size"),
                         .seq_len = (int64_t)fixture_setting(f, "seq_len")};
    snprintf(out, sizeof out, "%s/run-%d-%d", scratch, i, ends);
    snprintf(plan_path, sizeof plan_path, "%s/plan.json", scratch);
    write_random_plan(random, f->model, &c, plan_path);
    fixture_options(f, (const char *const[]){f->tokens}, out, &o);
    o.max_grad_norm = 0;
    o.steps = ends ? STEPS : 2 * STEPS;
    o.plan_file = plan_path;
    o.trace = true;
    must(pt_trainer_open(&o, &t, &e), &e);
    for (int k = 0; k < STEPS; k++)
        assert_int_equal(pt_trainer_step(t, &s, &e), 1);
    must(ends ? pt_trainer_finish(t, &e) : pt_trainer_save(t, &e), &e);
    check_trace(t, out);
    unsigned update = 1u << trainer_plan(t)->update;
    pt_trainer_close(t);
    must(tree_remove(out, &e), &e);
    return update;
}

static void both_timelines_hold_the_tasks_of_a_steady_step(void **state)
{
    (void)state;
    random_source random = random_open();
    fixture f;
    const unsigned all = 1u << UPDATE_BACKWARD | 1u << UPDATE_NEXT_FORWARD | 1u << UPDATE_END;
    fixture_open(&f, "models", "llama");
    for (int ends = 0; ends < 2; ends++) {
        unsigned seen = 0;
        for (int i = 0; seen != all && i < 200; i++)
            seen |= run_under_any_plan(&random, &f, i, ends);
        assert_int_equal(seen, all);
    }
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(both_timelines_hold_the_tasks_of_a_steady_step)};
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
