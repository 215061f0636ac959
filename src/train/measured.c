#include "train/measured.h"

#include "base/median.h"
#include "predict/forecast.h"

#include <string.h>

enum { FIRST_TIMED = 8, TIMED_EVERY = 16 };

bool measured_wants(const measured *m)
{
    int timed = 0;
    for (int k = 0; k < SCHEDULE_KINDS; k++)
        timed = m->work[k].runs > timed ? m->work[k].runs : timed;
    return m->steps > 0 && (timed < FIRST_TIMED || m->steps % TIMED_EVERY == 0);
}

void measured_run(measured *m, const schedule_input *in, const costs *costs, const executor *exec, schedule_kind kind)
{
    const task_time *times = executor_times(exec, kind);
    const schedule *sched = executor_schedule(exec, kind);
    if (!times || !m->steps)
        return;
    work_times_add(&m->work[kind], in, sched, costs, times);
    run_ring *r = &m->runs[kind];
    double *busy = r->busy_ns[r->n % MEASURED_RUNS], *phases = r->phase_ns[r->n % MEASURED_RUNS];
    memset(busy, 0, sizeof r->busy_ns[0]);
    memset(phases, 0, sizeof r->phase_ns[0]);
    r->n++;
    for (int i = 0; i < sched->tasks_n; i++) {
        double ns = (double)(times[i].end_ns - times[i].start_ns);
        int phase = task_phase(&sched->tasks[i]);
        busy[sched->tasks[i].queue] += ns;
        if (phase >= 0)
            phases[phase] += ns;
    }
}

void measured_step(measured *m, double step_s, bool steady)
{
    step_ring *r = steady ? &m->steady : &m->apart;
    if (m->steps++)
        r->s[r->n++ % MEASURED_STEPS] = step_s;
    else
        m->first_s = step_s;
}

void measured_again(measured *m)
{
    memset(m->work, 0, sizeof m->work);
    memset(m->runs, 0, sizeof m->runs);
}

static double median_of_newest(const step_ring *r, int n)
{
    double newest[MEASURED_STEPS];
    if (n > MEASURED_STEPS)
        n = MEASURED_STEPS;
    if (n > r->n)
        n = (int)r->n;
    for (int i = 0; i < n; i++)
        newest[i] = r->s[(r->n - 1 - i) % MEASURED_STEPS];
    return median(newest, n);
}

double measured_median_s(const measured *m, int n) { return median_of_newest(&m->steady, n); }

double measured_any_s(const measured *m, measured_kind *kind)
{
    *kind = m->steady.n ? MEASURED_STEADY : m->apart.n ? MEASURED_APART : m->steps ? MEASURED_FIRST : MEASURED_NOTHING;
    return *kind == MEASURED_FIRST ? m->first_s : median_of_newest(*kind == MEASURED_STEADY ? &m->steady : &m->apart, MEASURED_STEPS);
}

/* first: offset in the first run; each: distance from run to run. */
static double column_median(const run_ring *r, const double *first, int each)
{
    double x[MEASURED_RUNS];
    const int n = r->n < MEASURED_RUNS ? (int)r->n : MEASURED_RUNS;
    for (int i = 0; i < n; i++)
        x[i] = first[i * each];
    return median(x, n);
}

step_times measured_times(const measured *m, update_time update)
{
    schedule_kind first;
    int second;
    steady_schedules(update, &first, &second);
    step_times t = {.runs = m->work[first].runs};
    for (int kind = 0; kind < SCHEDULE_KINDS; kind++) {
        const run_ring *r = &m->runs[kind];
        if (kind != (int)first && kind != second && (kind != SCHEDULE_EVAL || !r->n)) /* evaluations are not measured, but a baseline */
            continue;
        for (int q = 0; q < QUEUES; q++)
            t.busy_ns[q] += column_median(r, r->busy_ns[0] + q, QUEUES);
        for (int p = 0; p < PHASES; p++)
            t.phase_ns[p] += column_median(r, r->phase_ns[0] + p, PHASES);
    }
    return t;
}
