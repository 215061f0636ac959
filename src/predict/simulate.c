#include "predict/simulate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *const phase_names[PHASES] = {"forward", "backward", "update"};

int task_phase(const task *t)
{
    switch (t->kind) {
    case TASK_EMBED: case TASK_LAYER: case TASK_HEAD_EVAL: return PHASE_FORWARD;
    case TASK_HEAD: case TASK_LAYER_BACKWARD: case TASK_FINISH: case TASK_EMBED_FINISH: case TASK_ROWS_FINISH:
    case TASK_EMBED_BACKWARD: return PHASE_BACKWARD;
    case TASK_UPDATE: return PHASE_UPDATE;
    case TASK_LOOK_UP: return t->queue == QUEUE_HOST ? PHASE_FORWARD : -1; /* else a read */
    default: return -1;
    }
}

/* `work`: the time of the task alone; between two events it proceeds at 1 / slowdown. */
typedef struct task_facts {
    double work, length_share; /* costs_length_share */
    int next;                /* the next task of its queue, or -1 */
    signed char class, phase;
} task_facts;

typedef struct lane {       /* one queue */
    int task;               /* running, or next to run; -1: none left */
    int done;               /* last finished task, -1 */
    int stuck;              /* the queue whose wait is checked; the waits for those before it are over */
    bool running;
    double left, slowdown, idle_since;
} lane;

typedef struct machine_state {
    const schedule *s;
    const task_facts *facts;
    simulation *out;
    lane lanes[QUEUES];
    const costs *costs;
    double math_end; /* end of the last arithmetic; a step begins without wake-up latency */
    double now;
    double of_period, used, wanted; /* time of this period so far, processor time used in it; processors that the running tasks keep busy */
    double all_used;                /* processor time since the first period began */
    double own[1 << COST_CLASSES];  /* the machine's own processors that a set of classes keeps busy */
    /* of a class beside others; for another length; of reads and writes without the other way */
    double slowdown[COST_CLASSES][1 << COST_CLASSES], more[COST_CLASSES][1 << COST_CLASSES];
} machine_state;

enum { DISK = 1u << COST_READ | 1u << COST_WRITE };

/* The part of a disk way's contention that is left beside the other way. Reads and writes slow computation down by what they move, and
 * together each moves less: in measured steps, layers took 1.3 to 1.6 times as long beside one of them and as long beside both; adding the
 * effects up would give 1.9 (bench/results). */
static double share_of(const costs *costs, int way, int other) { return 1 / costs->slow[way][other]; }

/* Contention adds up over the members of a set, because they share processors and memory: beside one that doubles the time, half of the
 * speed is left, beside two a third. Multiplying would give up to twice the measured times of steps with three tiers on two processors
 * (bench/results). */
static void fill_slowdown(machine_state *x, const costs *costs)
{
    const double read = share_of(costs, COST_READ, COST_WRITE), write = share_of(costs, COST_WRITE, COST_READ);
    for (int a = 0; a < COST_CLASSES; a++) {
        const double both = (costs->slow[a][COST_READ] - 1) * read + (costs->slow[a][COST_WRITE] - 1) * write;
        const double more = costs->slow_more[a][COST_READ] * read + costs->slow_more[a][COST_WRITE] * write;
        x->slowdown[a][0] = 1;
        x->more[a][0] = 0;
        for (unsigned set = 1; set < 1u << COST_CLASSES; set++) {
            const bool disk = 1u << a & DISK, whole = (set & DISK) == DISK && !disk;
            const int one = __builtin_ctz(set);
            const unsigned rest = set & ~(whole ? (unsigned)DISK : 1u << one);
            const bool apart = disk && 1u << one & DISK; /* other_way */
            x->slowdown[a][set] = x->slowdown[a][rest] + (whole ? both : apart ? 0 : costs->slow[a][one] - 1);
            x->more[a][set] = x->more[a][rest] + (whole ? more : apart ? 0 : costs->slow_more[a][one]);
        }
    }
}

static void fill_own(machine_state *x)
{
    for (unsigned set = 0; set < 1u << COST_CLASSES; set++) {
        double threads = 0;
        for (int class = 0; class < COST_CLASSES; class++)
            threads += (set & ~(unsigned)DISK) >> class & 1 ? x->costs->quota.busy[class] : 0;
        x->own[set] = fmin(threads, x->costs->quota.processors);
    }
}

static void fill_facts(task_facts *f, machine_state *x, const schedule_input *in, const costs *costs)
{
    const schedule *sched = x->s;
    int previous[QUEUES];
    for (int q = 0; q < QUEUES; q++)
        x->lanes[q] = (lane){.task = -1, .done = -1}, previous[q] = -1;
    for (int i = 0; i < sched->tasks_n; i++) {
        const task *t = &sched->tasks[i];
        const cost_class class = task_class(t);
        const double work = costs_task_ns(costs, in, sched, t);
        f[i] = (task_facts){work, costs_length_share(costs, class, work), -1, (signed char)class, (signed char)task_phase(t)};
        if (previous[t->queue] < 0)
            x->lanes[t->queue].task = i;
        else
            f[previous[t->queue]].next = i;
        previous[t->queue] = i;
    }
}

/* The wake-up latency of a task that begins now; at most its own time, because the processors reach their speed meanwhile. */
static double wake_latency_ns(const machine_state *x, const task_facts *f)
{
    const cost_curve *curve = &x->costs->wake_latency;
    if (!curve->n || f->class != COST_MATH)
        return 0;
    double ns = cost_at(curve, fmin(x->now - x->math_end, curve->amount[curve->n - 1]));
    return fmin(ns, f->work);
}

/* Begins the next task of every idle queue if its waits are over. */
static void begin_ready(machine_state *x)
{
    for (int q = 0; q < QUEUES; q++) {
        lane *l = &x->lanes[q];
        if (l->running || l->task < 0)
            continue;
        const task *t = &x->s->tasks[l->task];
        int blocker = l->stuck;
        while (l->stuck < QUEUES && x->lanes[l->stuck].done >= t->wait[l->stuck])
            l->stuck++;
        if (l->stuck < QUEUES)
            continue;
        x->out->wait_ns[q][blocker] += x->now - l->idle_since;
        l->left = x->facts[l->task].work + wake_latency_ns(x, &x->facts[l->task]);
        l->running = true;
        if (x->out->start_ns)
            x->out->start_ns[l->task] = x->now;
    }
}

/* Reads and writes are slowed down by computation and copies at the pace that the other way of the disk leaves them: writes took 2.3 times
 * as long beside reads, 1.5 beside updates and 3.5 beside both (bench/results). */
static double other_way(const machine_state *x, const task_facts *f, unsigned others)
{
    const int way = f->class == COST_READ ? COST_WRITE : COST_READ;
    if (!(1u << f->class & DISK) || !(others >> way & 1))
        return 1;
    return x->costs->slow[f->class][way] + f->length_share * x->costs->slow_more[f->class][way];
}

static double slowdown_beside(const machine_state *x, const task_facts *f, unsigned others)
{
    const double all = x->slowdown[f->class][others] + f->length_share * x->more[f->class][others];
    return fmax(all * other_way(x, f, others), 1); /* the digits of a file are rounded */
}

/* The time until the first running task ends, at the current speeds and if nothing stands still; negative: nothing runs. Each queue other
 * than compute has its own class, and compute runs one task, so no two running tasks have the same class. */
static double next_end(machine_state *x)
{
    unsigned running = 0;
    double soonest = -1;
    for (int q = 0; q < QUEUES; q++)
        running |= x->lanes[q].running ? 1u << x->facts[x->lanes[q].task].class : 0;
    x->wanted = x->own[running];
    for (int q = 0; q < QUEUES; q++) {
        lane *l = &x->lanes[q];
        if (!l->running)
            continue;
        const task_facts *f = &x->facts[l->task];
        const unsigned others = running & ~(1u << f->class);
        l->slowdown = slowdown_beside(x, f, others);
        x->wanted += 1u << f->class & DISK ? x->costs->quota.busy[f->class] / l->slowdown : 0;
        double ends = l->left * l->slowdown;
        soonest = soonest < 0 || ends < soonest ? ends : soonest;
    }
    return soonest;
}

static void end_task(machine_state *x, int q)
{
    lane *l = &x->lanes[q];
    const task_facts *f = &x->facts[l->task];
    if (x->out->end_ns)
        x->out->end_ns[l->task] = x->now;
    if (f->class == COST_MATH)
        x->math_end = x->now;
    l->done = l->task;
    l->task = f->next;
    l->running = false;
    l->stuck = 0;
    l->idle_since = x->now;
}

/* The time of work of `ns` if everything stalls once a period's quota is used up, until the period ends. */
static double with_quota(machine_state *x, double ns)
{
    const double period = x->costs->quota.period_ns, quota = x->costs->quota.processors * period;
    if (!(period > 0))
        return ns;
    const double each = x->wanted > 0 ? fmin(quota / x->wanted, period) : period;
    const double unused = quota - x->used > 1e-9 * quota ? quota - x->used : 0;
    const double here = fmin(period - x->of_period, x->wanted > 0 ? unused / x->wanted : unused > 0 ? period : 0);
    double passed = 0;
    x->all_used += ns * x->wanted;
    if (ns > here) { /* it continues in a later period */
        const double whole = floor((ns - here) / each);
        passed = period - x->of_period + whole * period;
        ns = fmax(ns - here - whole * each, 0);
        x->of_period = x->used = 0;
    }
    x->of_period += ns;
    x->used += ns * x->wanted;
    return passed + ns;
}

static void proceed(machine_state *x, double ns)
{
    const double passed = with_quota(x, ns);
    x->now += passed;
    for (int q = 0; q < QUEUES; q++) {
        lane *l = &x->lanes[q];
        if (!l->running)
            continue;
        const task_facts *f = &x->facts[l->task];
        x->out->busy_ns[q] += passed;
        if (f->phase >= 0)
            x->out->phase_ns[f->phase] += passed;
        if (l->left * l->slowdown <= ns)
            end_task(x, q);
        else
            l->left -= ns / l->slowdown;
    }
}

static int run(machine_state *x, pt_error *e)
{
    for (int left = 0;; left = 0) {
        begin_ready(x);
        double ns = next_end(x);
        if (ns >= 0) {
            proceed(x, ns);
            continue;
        }
        for (int q = 0; q < QUEUES; q++)
            left += x->lanes[q].task >= 0;
        return left ? pt_fail(e, PT_FAILED, "the schedule stands still: %d queues wait for each other; check it first", left) : 0;
    }
}

/* Steps follow each other, so the time that the last period of one leaves is not free for the next. A step takes at least as long as the
 * quota needs to give its processor time. */
static double behind_others(const machine_state *x)
{
    return x->costs->quota.period_ns > 0 ? fmax(x->now, x->all_used / x->costs->quota.processors) : x->now;
}

int simulate(const schedule_input *in, const schedule *sched, const costs *costs, bool times, simulation *out, pt_error *e)
{
    memset(out, 0, sizeof *out);
    size_t n = (size_t)sched->tasks_n + 1;
    task_facts *facts = malloc(n * sizeof *facts);
    if (times)
        out->start_ns = calloc(2 * n, sizeof *out->start_ns);
    if (!facts || (times && !out->start_ns)) {
        free(facts);
        simulation_free(out);
        return pt_fail(e, PT_FAILED, "out of memory while simulating a schedule of %d tasks", sched->tasks_n);
    }
    out->end_ns = times ? out->start_ns + n : NULL;
    machine_state x = {.s = sched, .facts = facts, .out = out, .costs = costs};
    fill_slowdown(&x, costs);
    fill_own(&x);
    fill_facts(facts, &x, in, costs);
    int failed = run(&x, e);
    out->total_ns = behind_others(&x) + costs->step_ns;
    free(facts);
    if (failed)
        simulation_free(out);
    return failed;
}

void simulation_free(simulation *s)
{
    free(s->start_ns);
    memset(s, 0, sizeof *s);
}

/* ---- a plan ---- */

static int add_kind(const schedule_input *in, const costs *costs, schedule_kind kind, double *ns, pt_error *e)
{
    schedule sched;
    simulation one;
    int failed = schedule_build(in, kind, &sched, e);
    if (failed)
        return failed;
    failed = simulate(in, &sched, costs, false, &one, e);
    schedule_free(&sched);
    *ns += one.total_ns;
    return failed;
}

int simulate_plan(const schedule_input *in, const costs *costs, double *step_ns, pt_error *e)
{
    update_time update = in->plan->update;
    int failed = 0;
    *step_ns = 0;
    if (!in->training || shape_has_baseline(in->shape))
        failed = add_kind(in, costs, SCHEDULE_EVAL, step_ns, e);
    if (!in->training || failed)
        return failed;
    if (*step_ns > 0)
        *step_ns -= costs->step_ns; /* the schedules are one step */
    failed = add_kind(in, costs, update == UPDATE_NEXT_FORWARD ? SCHEDULE_STEP_UPDATE : SCHEDULE_STEP, step_ns, e);
    if (!failed && update == UPDATE_END) {
        *step_ns -= costs->step_ns;
        failed = add_kind(in, costs, SCHEDULE_DRAIN, step_ns, e);
    }
    return failed;
}
