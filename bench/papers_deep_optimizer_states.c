/* papers_deep_optimizer_states.c - arXiv 2410.21316: phases of an iteration, update rates and the stride, on four H100. */
#include "papers.h"

#include "search/stride.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* The authors' own logs: seconds an iteration. */
typedef struct dos_case {
    const char *label;
    int layers, hidden;
    double zero3_s, dos_s;
} dos_case;

static const dos_case dos_cases[] = {
    {"7B", 32, 4096, 3.1, 1.6}, {"8.3B", 72, 3072, 4.7, 2.4}, {"10B", 50, 4096, 4.5, 2.2}, {"13B", 40, 5120, 5.7, 2.3},
    {"20B", 44, 6144, 7.3, 2.9}};
enum { DOS_CASES = sizeof dos_cases / sizeof *dos_cases, DOS_RANKS = 4, SUBGROUP = 100000000 };

/* A list of tasks on queues, each waiting for at most two others. */
enum { LIST_MAX = 1 << 12 };
typedef struct list {
    task tasks[LIST_MAX];
    buffer buffers[LIST_MAX];
    operand operands[2 * LIST_MAX];
    chunk_t chunks[LIST_MAX];
    piece pieces[LIST_MAX]; /* a row of a parameter of one column each */
    int piece_of_chunk[LIST_MAX];
    param param;
    model model;
    packing packing;
    schedule s;
} list;

static int list_task(list *l, queue_kind q, double amount, int a, int b)
{
    int i = l->s.tasks_n++;
    bool update = q == QUEUE_COMPUTE || q == QUEUE_HOST;
    if (i >= LIST_MAX)
        exit(1);
    l->tasks[i] = (task){.kind = update ? TASK_UPDATE : TASK_COPY, .queue = q, .chunk = i, .share = 1, .operand0 = 2 * i};
    l->chunks[i] = (chunk_t){.piece0 = i, .pieces_n = 1, .trained = true};
    l->pieces[i].rows = l->pieces[i].own_rows = (int64_t)amount;
    l->piece_of_chunk[i] = i;
    l->buffers[i] = (buffer){.kind = OBJECT_STATES, .bytes = (uint64_t)amount};
    l->operands[2 * i].buffer = l->operands[2 * i + 1].buffer = i;
    for (int k = 0; k < QUEUES; k++)
        l->tasks[i].wait[k] = -1;
    if (a >= 0)
        l->tasks[i].wait[l->tasks[a].queue] = a;
    if (b >= 0)
        l->tasks[i].wait[l->tasks[b].queue] = b;
    return i;
}

/* Time of one rank's updates, every k-th subgroup of 100M parameters on the device (0: none): master and moments come, are
 * updated, and go back, one subgroup in flight behind another; the 16-bit weights of the others follow their update. A share of the
 * subgroups, the last ones, has its states on the device. */
static double update_ns(const costs *all, double parameters, int k, double share)
{
    list *l = calloc(1, sizeof *l);
    costs c = *all;
    simulation run;
    pt_error e = {0};
    int groups = (int)ceil(parameters / SUBGROUP), back[2] = {-1, -1};
    const int stay = (int)(share * groups);
    if (!l)
        exit(1);
    l->s = (schedule){.tasks = l->tasks, .operands = l->operands, .buffers = l->buffers};
    l->param = (param){.cols = 1, .trainable = true, .kind = param_kind_of(PARAM_UP)};
    l->model.params = &l->param;
    l->packing = (packing){.chunks = l->chunks, .pieces = l->pieces, .piece_of_chunk = l->piece_of_chunk, .type = PT_BF16,
                           .optimizer = optimizers[0], .ranks = 1};
    for (int i = 0; i < groups; i++) {
        double n = i < groups - 1 ? SUBGROUP : parameters - (double)(groups - 1) * SUBGROUP;
        if (i >= groups - stay) {
            list_task(l, QUEUE_COMPUTE, n, -1, -1);
        } else if (k && i % k == k - 1) {
            int in = list_task(l, QUEUE_TO_DEVICE, 12 * n, back[0], -1);
            int updated = list_task(l, QUEUE_COMPUTE, n, in, -1);
            back[0] = back[1];
            back[1] = list_task(l, QUEUE_FROM_DEVICE, 12 * n, updated, -1);
        } else {
            list_task(l, QUEUE_TO_DEVICE, 2 * n, list_task(l, QUEUE_HOST, n, -1, -1), -1);
        }
    }
    must(simulate(&(schedule_input){.model = &l->model, .packing = &l->packing}, &l->s, &c, false, &run, &e), &e);
    free(l);
    return run.total_ns;
}

static void scale(cost_curve *c, double times)
{
    for (int i = 0; i < c->n; i++)
        c->ns[i] *= times;
}

/* Where their bytes are not ours: the host's AdamW reads fp32 gradients, and writes 16-bit weights beside fp32 masters, 30 bytes
 * a parameter instead of 26. */
static costs dos_costs(const costs *c)
{
    costs theirs = *c;
    scale(&theirs.update_host, 30.0 / 26);
    return theirs;
}

typedef struct dos_phases { double forward, backward, update0, update2; } dos_phases;

/* ---- what their systems lose, as properties ---- */

/* Published of 20B alone; the other sizes are predicted with it. */
typedef struct system_losses {
    double updates_s;          /* parameters that the hosts' AdamW updates a second, of all four */
    double forward_s, backward_s; /* measured with k = 2: gathers and launches that nothing hides are in them */
    double flush_s;            /* of ZeRO-3's backward: pageable copies, and gradients converted on the host */
    double rest_s;             /* of an iteration with k = 2, in none of its phases */
} system_losses;
static const system_losses losses_20b = {8.6e9, 0.28, 0.85, 4.44 - 0.97, 2.90 - (0.28 + 0.85 + 1.30)};

/* Forward and backward of ZeRO-3 with a shard of the weights on each device, gathered a layer ahead; gradients go to the host as
 * they come, but for those of the share that stays on the device. Seconds. */
static dos_phases predict_phases(const streamed *s, const costs *theirs, double share)
{
    costs resident = *theirs;
    schedule step;
    simulation run;
    pt_error e = {0};
    dos_phases p = {0};
    const double parameters = (double)s->model->parameters / DOS_RANKS;
    resident.to_device = (cost_curve){0};           /* shards of the weights are on the devices */
    scale(&resident.from_device, 2 * (1 - share));  /* gradients become fp32 on the device, and travel so */
    must(schedule_build(&s->in, SCHEDULE_STEP, &step, &e), &e);
    must(simulate(&s->in, &step, &resident, true, &run, &e), &e);
    for (int i = 0; i < step.tasks_n; i++)
        if (step.tasks[i].kind == TASK_LAYER || step.tasks[i].kind == TASK_EMBED)
            p.forward = run.end_ns[i] * 1e-9;
    p.backward = run.total_ns * 1e-9 - p.forward;
    p.update0 = update_ns(theirs, parameters, 0, share) * 1e-9;
    p.update2 = update_ns(theirs, parameters, 2, share) * 1e-9;
    simulation_free(&run);
    schedule_free(&step);
    return p;
}

/* Of one model: phases with nothing and with half of the subgroups on the devices, our plan, and the stride that the performance model
 * takes. */
typedef struct dos_prediction { dos_phases none, half; double ours; int stride; } dos_prediction;

static dos_prediction dos_predict(const dos_case *d)
{
    machine_spec x = machine_named("h100", DOS_RANKS);
    streamed s;
    costs c;
    pt_error e = {0};
    dos_prediction p = {0};
    streamed_open(&s, d->layers, d->hidden, 1, 2048, DOS_RANKS);
    must(costs_analytic(&x, s.model, &s.shape, &c, &e), &e);
    const costs theirs = dos_costs(&c);
    p.none = predict_phases(&s, &theirs, 0);
    p.half = predict_phases(&s, &theirs, 0.5);
    const stride_rates r = stride_rates_of(&theirs, (double)SUBGROUP);
    p.stride = stride_choose(&r);
    const search_input in = search_for(&x, &s, &c);
    p.ours = search_s(&in);
    streamed_close(&s);
    return p;
}

static void dos_row(const char *what, double theirs, double ours)
{
    printf("| %s | %.2f | %.2f | %+.0f%% |\n", what, theirs, ours, percent(ours, theirs));
}

static double step_of(const dos_phases *p, double update) { return p->forward + p->backward + update; }

static void dos_iterations(dos_prediction *all)
{
    printf("## Deep Optimizer States: an iteration on 4x H100 (s)\n\n"
           "| | k = 2, published | predicted | error | ZeRO-3 offload, published | predicted with its gradients flushed asynchronously | "
           "error | "
           "our plan |\n|---|---|---|---|---|---|---|---|\n");
    for (int i = 0; i < DOS_CASES; i++) {
        const dos_case *d = &dos_cases[i];
        all[i] = dos_predict(d);
        const dos_phases *p = &all[i].none;
        double k2 = step_of(p, p->update2), k0 = step_of(p, p->update0);
        printf("| %s | %.2f | %.2f | %+.0f%% | %.2f | %.2f | %+.0f%% | %.2f |\n", d->label, d->dos_s, k2, percent(k2, d->dos_s), d->zero3_s,
               k0, percent(k0, d->zero3_s), all[i].ours);
    }
    const dos_phases *half = &all[DOS_CASES - 1].half;
    double k2 = step_of(half, half->update2), k0 = step_of(half, half->update0);
    printf("| 20B, half of the subgroups on the devices | 2.20 | %.2f | %+.0f%% | 4.30 | %.2f | %+.0f%% | |\n",
           k2, percent(k2, 2.2), k0, percent(k0, 4.3));
    printf("\nZeRO-3's own backward flushes gradients through pageable memory and converts them on the host; how fast is not published, "
           "and a\n"
           "machine file does not have it. Our plan: every device has its shard of the states, and of weights as it says; updates in "
           "backward.\n\n");
}

/* Of one of their models on the machine file's H100s; model_close it. */
static model *dos_model(int layers, int hidden, costs *c)
{
    machine_spec x = machine_named("h100", DOS_RANKS);
    model *m = gpt_model(layers, hidden);
    step_shape shape;
    pt_error e = {0};
    step_shape_init(&shape, m, PT_BF16, 1, 2048);
    step_shape_for_gpu(&shape, m);
    must(costs_analytic(&x, m, &shape, c, &e), &e);
    return m;
}

/* Updates at the rate of 20B's hosts, its flush by parameters, and what its passes take beyond their prediction by layers. */
static void dos_with_losses(const dos_case *d, const dos_prediction *own, const dos_prediction *of_20b)
{
    const system_losses *l = &losses_20b;
    costs c;
    model *m = dos_model(d->layers, d->hidden, &c), *large = gpt_model(dos_cases[DOS_CASES - 1].layers, dos_cases[DOS_CASES - 1].hidden);
    const double n = (double)m->parameters, layers = (double)d->layers / dos_cases[DOS_CASES - 1].layers;
    scale(&c.update_host, n / l->updates_s / (update_ns(&c, n / DOS_RANKS, 0, 0) * 1e-9));
    const double lost = l->forward_s + l->backward_s - of_20b->none.forward - of_20b->none.backward + l->rest_s;
    const double passes = own->none.forward + own->none.backward + lost * layers;
    const double k2 = passes + update_ns(&c, n / DOS_RANKS, 2, 0) * 1e-9;
    const double k0 = passes + update_ns(&c, n / DOS_RANKS, 0, 0) * 1e-9 + l->flush_s * n / (double)large->parameters;
    printf("| %s | %.2f | %.2f | %+.0f%% | %.2f | %.2f | %+.0f%% |\n", d->label, d->dos_s, k2, percent(k2, d->dos_s), d->zero3_s, k0,
           percent(k0, d->zero3_s));
    model_close(m);
    model_close(large);
}

static void dos_losses(const dos_prediction *all)
{
    printf("## Deep Optimizer States: the same iterations with what those systems lose (s)\n\n"
           "| | k = 2, published | predicted | error | ZeRO-3 offload, published | predicted | error |\n|---|---|---|---|---|---|---|\n");
    for (int i = 0; i < DOS_CASES; i++)
        dos_with_losses(&dos_cases[i], &all[i], &all[DOS_CASES - 1]);
    printf("\nThree losses are taken from the published phases of 20B, and from nothing else: the rate of its hosts' AdamW (8.6e9 "
           "parameters a second);\n"
           "ZeRO-3's flush of gradients through pageable memory (3.47 s, by parameters); and what forward, backward and the time "
           "outside of all phases\n"
           "take beyond the prediction (%.2f s, by layers: gathers and launches that nothing hides). The row of 20B is thus no "
           "prediction.\n\n",
           losses_20b.forward_s + losses_20b.backward_s + losses_20b.rest_s - all[DOS_CASES - 1].none.forward -
               all[DOS_CASES - 1].none.backward);
}

static void dos_phases_of_20b(const dos_prediction *x)
{
    const dos_phases *p = &x->none;
    printf("## Deep Optimizer States: phases at 20B (s)\n\n| | published | predicted | error |\n|---|---|---|---|\n");
    dos_row("forward", 0.21, p->forward);
    dos_row("forward, measured with k = 2", 0.28, p->forward);
    dos_row("backward, gradients flushed asynchronously", 0.97, p->backward);
    dos_row("backward, measured with k = 2", 0.85, p->backward);
    dos_row("update on the host", 2.29, p->update0);
    dos_row("update, every second subgroup on the device", 1.30, p->update2);
    dos_row("all on the host against k = 2, times: update", 1.75, p->update0 / p->update2);
    dos_row("all on the host against k = 2, times: iteration", 1.43, step_of(p, p->update0) / step_of(p, p->update2));
    printf("\nThe stride that the performance model takes with these rates: %d (published: 2 is best in all sweeps). ZeRO-3's backward\n"
           "with its own flush: 4.44 s (published), an iteration 2.0 times as long as with asynchronous flushes: not predicted, for how "
           "fast it is is\n"
           "not published. With k = 2 its phases (0.28, 0.85 and 1.30) make 2.43 of the published 2.90 s an iteration; what the rest is, "
           "is not\n"
           "published.\n\n", x->stride);
}

/* A row a stride; k = 0: none on the device. */
typedef struct rate_case { int k; double theirs; } rate_case;

static void dos_rate_rows(const char *label, int layers, int hidden, const rate_case *cases, int n)
{
    costs c;
    model *m = dos_model(layers, hidden, &c);
    const costs theirs = dos_costs(&c);
    for (int i = 0; i < n; i++) {
        char row[64];
        if (cases[i].k)
            snprintf(row, sizeof row, "%s, k = %d", label, cases[i].k);
        else
            snprintf(row, sizeof row, "%s, all on the host", label);
        double parameters = (double)m->parameters;
        dos_row(row, cases[i].theirs, parameters / update_ns(&theirs, parameters / DOS_RANKS, cases[i].k, 0));
    }
    model_close(m);
}

static void dos_rates(void)
{
    static const rate_case small[] = {{0, 7.9}, {2, 14.2}};
    static const rate_case sweep[] = {{0, 8.6}, {2, 15.3}, {3, 14.9}, {4, 14.2}, {6, 13.3}, {8, 13.0}, {10, 12.7}};
    static const rate_case again[] = {{0, 8.8}, {2, 15.4}};
    printf("## Deep Optimizer States: updates by stride, 1e9 parameters a second\n\n| | published | predicted | error "
           "|\n|---|---|---|---|\n");
    dos_rate_rows("7B", 32, 4096, small, 2);
    dos_rate_rows("20B", 44, 6144, sweep, 7);
    dos_rate_rows("20B, another run", 44, 6144, again, 2);
    const machine_spec x = machine_named("h100", DOS_RANKS);
    printf("\nAssumed: one sequence of 2048 tokens a device (not published), the blocks' inputs saved and the rest recomputed, GPT "
           "shapes;\n"
           "the host's optimizer limited by its memory alone, %.0f GB/s x %.2f for the four of them. What their host's AdamW really "
           "reaches\n"
           "(8.6 is 258 GB/s at 30 bytes a parameter) is not in a machine file.\n\n",
           1e-9 * DOS_RANKS * x.memory_bandwidth[TIER_HOST], x.memory_efficiency[TIER_HOST]);
}

void print_deep_optimizer_states(void)
{
    dos_prediction all[DOS_CASES];
    dos_iterations(all);
    dos_losses(all);
    dos_phases_of_20b(&all[DOS_CASES - 1]);
    dos_rates();
}
