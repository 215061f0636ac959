/* bench_papers.c - the tables of two papers, predicted from machine files alone.
 *
 *     bench_papers
 *
 * ProTrain (arXiv 2406.08334): the largest models that can be trained, the speed of a 175B model, and how much faster its plans
 * are than fixed policies.
 * Deep Optimizer States (arXiv 2410.21316): phases of an iteration, update rates and the stride, on four H100.
 *
 * Costs come from costs_analytic, times from simulate: forward and backward are schedules of ours under the paper's policy, the
 * update phases, in which nothing but chunks moves, are lists of tasks built here as the paper describes them. No number is
 * fitted to a table. What a paper does not say, and is assumed here, is printed.
 */
#include "base/units.h"
#include "profile/machine_file.h"
#include "schedule/simulate.h"
#include "search/search.h"
#include "search/stride.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void must(int failed, const pt_error *e)
{
    if (!failed)
        return;
    fprintf(stderr, "%s\n", e->text);
    exit(1);
}

static machine_spec machine_named(const char *name, int ranks)
{
    char path[MACHINE_PATH_BYTES];
    machine_spec x;
    pt_error e = {0};
    must(machine_file_find(name, path, &e), &e);
    must(machine_file_read(path, &x, &e), &e);
    x.ranks = ranks;
    return x;
}

static model *gpt_model(int layers, int hidden)
{
    char json[512];
    model *m;
    pt_error e = {0};
    snprintf(json, sizeof json, "{\"model_type\": \"gpt2\", \"vocab_size\": 50257, \"n_positions\": 2048, \"n_embd\": %d, \"n_head\": %d, "
             "\"n_layer\": %d, \"bos_token_id\": 0, \"eos_token_id\": 0}", hidden, hidden / 128, layers);
    must(model_from_json("gpt", json, strlen(json), NULL, NULL, &m, &e), &e);
    return m;
}

/* A model and a step with every chunk on the host, streamed through as many buffers as a block needs and one more, and everything
 * recomputed. All micro-batches visit a layer together, so that the gradients of one layer at a time are summed. */
typedef struct streamed {
    model *model;
    step_shape shape;
    packing packing;
    plan plan;
    schedule_input in;
} streamed;

static int chunks_at_once(const model *m, const packing *k)
{
    int most = 0;
    unsigned char *needed = calloc((size_t)k->chunks_n + 1, 1);
    for (int block = 0, n = 0; needed && block < m->blocks_n; block++, n = 0) {
        block_chunks(m, k, block, needed);
        for (int i = 0; i < k->chunks_n; i++)
            n += needed[i];
        most = n > most ? n : most;
    }
    free(needed);
    return most;
}

static void streamed_open(streamed *s, int layers, int hidden, int64_t batch, int64_t seq_len)
{
    pt_error e = {0};
    memset(s, 0, sizeof *s);
    s->model = gpt_model(layers, hidden);
    step_shape_init(&s->shape, s->model, PT_BF16, batch, seq_len);
    must(pack(s->model, &s->shape, INT64_C(2) * 13 * hidden * hidden, &s->packing, &e), &e); /* a layer has 12 h^2 weights */
    must(plan_alloc(&s->plan, s->packing.chunks_n, layers, &e), &e);
    s->plan.chunk_bytes = s->packing.chunk_bytes;
    s->plan.n_buffer = chunks_at_once(s->model, &s->packing) + 1;
    s->plan.n_update = 2;
    s->plan.n_swap = 2;
    s->plan.micro_batch = s->shape.unit_seqs;
    s->plan.visit = (int)(batch / s->plan.micro_batch);
    s->plan.update = UPDATE_END;
    for (int i = 0; i < s->plan.chunks_n; i++)
        s->plan.chunks[i] = (plan_chunk){TIER_HOST, TIER_HOST};
    s->in = (schedule_input){s->model, &s->shape, &s->packing, &s->plan, true, true};
}

static void streamed_close(streamed *s)
{
    plan_free(&s->plan);
    packing_free(&s->packing);
    model_close(s->model);
}

static double percent(double predicted, double published) { return 100 * (predicted / published - 1); }

/* ---- ProTrain: the largest model ---- */

typedef struct size_case { const char *label, *machine; int ranks; double theirs, deepspeed; } size_case;

/* Does it fit? What is left of the devices takes chunks from the host; 5% of each memory is left alone. */
static bool size_fits(const machine_spec *x, int layers, int hidden, update_time update, double *parameters)
{
    streamed s;
    uint64_t bytes[TIERS];
    pt_error e = {0};
    streamed_open(&s, layers, hidden, 8, 1024);
    s.plan.update = update;
    must(schedule_plan_bytes(&s.in, 1u << SCHEDULE_STEP | (update == UPDATE_BACKWARD ? 0 : 1u << SCHEDULE_DRAIN), bytes, &e), &e);
    double device = 0.95 * (double)x->memory_bytes[TIER_DEVICE], host = 0.95 * (double)x->memory_bytes[TIER_HOST];
    double spare = x->ranks * (device - (double)bytes[TIER_DEVICE]);
    *parameters = (double)s.model->parameters;
    streamed_close(&s);
    return spare >= 0 && (double)bytes[TIER_HOST] <= host + spare;
}

static double largest(const machine_spec *x, int hidden, update_time update)
{
    double best = 0, parameters;
    int low = 1, high = MODEL_MAX_LAYERS;
    while (low <= high) {
        int middle = (low + high) / 2;
        if (size_fits(x, middle, hidden, update, &parameters)) {
            best = parameters;
            low = middle + 1;
        } else {
            high = middle - 1;
        }
    }
    return best;
}

static void protrain_sizes(void)
{
    static const size_case cases[] = {{"1x RTX 3090, 384 GB", "rtx3090", 1, 34, 15}, {"1x A100 80 GB, 1 TB", "a100-80", 1, 75, 34},
                                      {"4x A100 80 GB, 1 TB", "a100-80", 4, 87, 37}};
    printf("## ProTrain: largest model that can be trained (billion parameters)\n\n"
           "| machine | DeepSpeed | ProTrain | host bytes a parameter that theirs leaves | ours, updates in backward | ours, exact clipping |\n"
           "|---|---|---|---|---|---|\n");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const size_case *c = &cases[i];
        machine_spec x = machine_named(c->machine, c->ranks);
        double bytes = (double)x.memory_bytes[TIER_HOST] + c->ranks * (double)x.memory_bytes[TIER_DEVICE];
        double plain = largest(&x, 8192, UPDATE_BACKWARD) / 1e9, clipped = largest(&x, 8192, UPDATE_END) / 1e9;
        printf("| %s | %.0f | %.0f | %.1f (with the device's: %.1f) | %.0f (%+.0f%%) | %.0f (%+.0f%%) |\n", c->label, c->deepspeed, c->theirs,
               (double)x.memory_bytes[TIER_HOST] / c->theirs / 1e9, bytes / c->theirs / 1e9, plain, percent(plain, c->theirs), clipped,
               percent(clipped, c->theirs));
    }
    printf("\nGPT shapes of width 8192, batch 8 x 1024 (not published: theirs), chunks of a layer, everything recomputed; 5%% of every memory "
           "is left alone.\nOurs keeps 12 bytes a parameter, 14 while gradients wait for their norm. Theirs are not published; what the "
           "memories leave for each\nparameter is in the fourth column.\n\n");
}

/* ---- ProTrain: 175B on 16 A100 ---- */

static void protrain_speed(void)
{
    machine_spec x = machine_named("a100-80", 16);
    x.memory_bandwidth[TIER_HOST] *= 4; /* four nodes */
    streamed s;
    costs c;
    schedule step;
    simulation run;
    pt_error e = {0};
    streamed_open(&s, 96, 12288, 8, 1024);
    must(costs_analytic(&x, s.model, &s.shape, &c, &e), &e);
    s.plan.update = UPDATE_BACKWARD;
    must(schedule_build(&s.in, SCHEDULE_STEP, &step, &e), &e);
    must(simulate(&s.in, &step, &c, false, &run, &e), &e);
    double tokens = (double)(s.shape.batch * s.shape.seq_len) * x.ranks, rate = tokens / run.total_ns * 1e9;
    printf("## ProTrain: GPT 175B on 16x A100 80 GB\n\n"
           "| | tokens a second |\n|---|---|\n| ProTrain | 2218.7 |\n| predicted, everything streamed and recomputed, batch 8 a device | %.1f (%+.0f%%) |\n\n"
           "Busy: compute %.0f%%, to the device %.0f%%, from it %.0f%%, host %.0f%%. Not published: the batch, and the "
           "network\nbetween the nodes (predicted as four nodes with NVLink between all 16: too fast where the network counts).\n\n",
           rate, percent(rate, 2218.7), 100 * run.busy_ns[QUEUE_COMPUTE] / run.total_ns, 100 * run.busy_ns[QUEUE_TO_DEVICE] / run.total_ns,
           100 * run.busy_ns[QUEUE_FROM_DEVICE] / run.total_ns, 100 * run.busy_ns[QUEUE_HOST] / run.total_ns);
    schedule_free(&step);
    streamed_close(&s);
}

/* ---- ProTrain: against fixed policies, and our plan ---- */

/* A rank's view: its device, the whole machine's host, of which it moves a share (costs.ranks). */
static search_input search_for(const machine_spec *x, const streamed *s, const costs *c)
{
    search_input in = {.model = s->model, .shape = &s->shape, .costs = c, .training = true, .host_tier = true};
    in.budget[TIER_DEVICE] = x->memory_bytes[TIER_DEVICE] / 20 * 19;
    in.budget[TIER_HOST] = x->memory_bytes[TIER_HOST] / 20 * 19;
    return in;
}

static double policy_s(const search_input *in, policy p)
{
    candidate c;
    pt_error e = {0};
    int made = policy_plan(in, p, &c, &e);
    if (made < 0)
        must(made, &e);
    if (!made)
        return 0;
    double seconds = c.step_ns * 1e-9;
    candidate_free(&c);
    return seconds;
}

static void print_time(double s, double tokens)
{
    if (s > 0)
        printf(" %.2f (%.0f) |", s, tokens / s);
    else
        printf(" does not fit |");
}

/* least, most: how many times the throughput of other systems is published; 0: none is. */
typedef struct speed_case { const char *label, *machine; int ranks, layers, hidden; int64_t batch; double least, most; } speed_case;

static void print_ratio(const speed_case *k, double theirs, double ours)
{
    if (k->least < k->most)
        printf(" %.2f to %.2f |", k->least, k->most);
    else if (k->least > 0)
        printf(" %.2f |", k->least);
    else
        printf(" |");
    if (!(theirs > 0))
        printf(" does not fit | |");
    else if (k->least < k->most)
        printf(" %.2f | %+.0f%% to %+.0f%% |", theirs, percent(theirs, k->least), percent(theirs, k->most));
    else if (k->least > 0)
        printf(" %.2f | %+.0f%% |", theirs, percent(theirs, k->least));
    else
        printf(" %.2f | |", theirs);
    if (ours > 0)
        printf(" %.2f |\n", ours);
    else
        printf(" |\n");
}

static void speed_row(const speed_case *k)
{
    static const policy policies[] = {POLICY_ZERO_OFFLOAD, POLICY_FSDP, POLICY_PROTRAIN};
    machine_spec x = machine_named(k->machine, k->ranks);
    streamed s;
    costs c;
    search_result r;
    pt_error e = {0};
    double times[3], tokens = (double)(k->batch * 1024 * k->ranks);
    streamed_open(&s, k->layers, k->hidden, k->batch, 1024);
    must(costs_analytic(&x, s.model, &s.shape, &c, &e), &e);
    search_input in = search_for(&x, &s, &c);
    printf("| %s |", k->label);
    for (int i = 0; i < 3; i++)
        print_time(times[i] = policy_s(&in, policies[i]), tokens);
    int failed = search_plan(&in, &r, &e);
    print_time(failed ? 0 : r.best.step_ns * 1e-9, tokens);
    double slowest = times[0] > times[1] ? times[0] : times[1];
    print_ratio(k, times[2] > 0 ? slowest / times[2] : 0, failed ? 0 : slowest / (r.best.step_ns * 1e-9));
    if (!failed)
        search_result_free(&r);
    streamed_close(&s);
}

static void protrain_policies(void)
{
    static const speed_case cases[] = {
        {"GPT-2 10B, 1x RTX 3090, batch 8", "rtx3090", 1, 50, 4096, 8, 0, 0},
        {"GPT-2 10B, 4x RTX 3090, batch 8 each", "rtx3090", 4, 50, 4096, 8, 1.77, 2.71},
        {"GPT-2 15B, 4x RTX 3090, batch 8 each", "rtx3090", 4, 48, 5120, 8, 1.77, 2.71},
        {"GPT-2 20B, 4x RTX 3090, batch 8 each", "rtx3090", 4, 44, 6144, 8, 1.77, 2.71},
        {"GPT-2 10B, 4x A100, batch 16 each", "a100-80", 4, 50, 4096, 16, 1.85, 1.85},
        {"GPT-2 20B, 4x A100, batch 16 each", "a100-80", 4, 44, 6144, 16, 1.85, 1.85}};
    printf("## ProTrain: seconds a step (tokens a second)\n\n"
           "| | ZeRO-Offload | weights streamed, all recomputed | ProTrain's four numbers | our plan | ProTrain against others, published | "
           "ProTrain against the slower, predicted | error | ours against the slower |\n|---|---|---|---|---|---|---|---|---|\n");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        speed_row(&cases[i]);
    printf("\nPublished are ratios alone, over several models: 1.77 to 2.71 times other systems on 4x RTX 3090; on 4x A100 1.85 times DeepSpeed\n"
           "(in the table), 1.43 times Colossal-AI, 2.22 times FSDP. Not published: seconds, batches, and what those systems lose outside "
           "of their\npolicies; here all policies run in one executor, so only what the policy itself costs is seen. The error holds that "
           "as well as\nwhat the prediction is wrong by. On RTX 3090s ZeRO-Offload does not fit, so the other is the slower one. Sequences of "
           "1024, updates\nin backward.\n\n");
}

/* ---- Deep Optimizer States ---- */

/* The authors' own logs: seconds an iteration. */
typedef struct dos_case {
    const char *label;
    int layers, hidden;
    double zero3_s, dos_s;
} dos_case;

static const dos_case dos_cases[] = {
    {"7B", 32, 4096, 3.1, 1.6}, {"8.3B", 72, 3072, 4.7, 2.4}, {"10B", 50, 4096, 4.5, 2.2}, {"13B", 40, 5120, 5.7, 2.3}, {"20B", 44, 6144, 7.3, 2.9}};
enum { DOS_CASES = sizeof dos_cases / sizeof *dos_cases, DOS_RANKS = 4, SUBGROUP = 100000000 };

/* A list of tasks on queues, each waiting for at most two others. */
enum { LIST_MAX = 1 << 12 };
typedef struct list {
    task tasks[LIST_MAX];
    buffer buffers[LIST_MAX];
    operand operands[2 * LIST_MAX];
    chunk_t chunks[LIST_MAX];
    packing packing;
    schedule s;
} list;

static int list_task(list *l, queue_kind q, double amount, int a, int b)
{
    int i = l->s.tasks_n++;
    bool update = q == QUEUE_COMPUTE || q == QUEUE_HOST;
    if (i >= LIST_MAX)
        exit(1);
    l->tasks[i] = (task){.kind = update ? TASK_UPDATE : TASK_COPY, .queue = q, .chunk = i, .operand0 = 2 * i};
    l->chunks[i].elements = (int64_t)amount;
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
 * updated, and go back, one subgroup in flight behind another; the 16-bit weights of the others follow their update. */
static double update_ns(const costs *all, double parameters, int k)
{
    list *l = calloc(1, sizeof *l);
    costs c = *all;
    simulation run;
    pt_error e = {0};
    int groups = (int)ceil(parameters / SUBGROUP), back[2] = {-1, -1};
    if (!l)
        exit(1);
    c.ranks = 1; /* amounts here are one rank's */
    l->s = (schedule){.tasks = l->tasks, .operands = l->operands, .buffers = l->buffers};
    l->packing = (packing){.chunks = l->chunks};
    for (int i = 0; i < groups; i++) {
        double n = i < groups - 1 ? SUBGROUP : parameters - (double)(groups - 1) * SUBGROUP;
        if (k && i % k == k - 1) {
            int in = list_task(l, QUEUE_TO_DEVICE, 12 * n, back[0], -1);
            int updated = list_task(l, QUEUE_COMPUTE, n, in, -1);
            back[0] = back[1];
            back[1] = list_task(l, QUEUE_FROM_DEVICE, 12 * n, updated, -1);
        } else {
            list_task(l, QUEUE_TO_DEVICE, 2 * n, list_task(l, QUEUE_HOST, n, -1, -1), -1);
        }
    }
    must(simulate(&(schedule_input){.packing = &l->packing}, &l->s, &c, false, &run, &e), &e);
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

typedef struct dos_phases { double forward, backward, update0, update2, ours; int stride; } dos_phases;

/* Forward and backward of ZeRO-3 with a shard of the weights on each device, gathered a layer ahead; gradients go to the host as
 * they come. */
static dos_phases dos_predict(const dos_case *d)
{
    machine_spec x = machine_named("h100", DOS_RANKS);
    streamed s;
    costs c;
    schedule step;
    simulation run;
    pt_error e = {0};
    dos_phases p = {0};
    streamed_open(&s, d->layers, d->hidden, 1, 2048);
    must(costs_analytic(&x, s.model, &s.shape, &c, &e), &e);
    costs theirs = dos_costs(&c);
    costs resident = theirs;
    resident.to_device = (cost_curve){0}; /* shards of the weights are on the devices */
    scale(&resident.from_device, 2);      /* gradients become fp32 on the device, and travel so */
    must(schedule_build(&s.in, SCHEDULE_STEP, &step, &e), &e);
    must(simulate(&s.in, &step, &resident, true, &run, &e), &e);
    for (int i = 0; i < step.tasks_n; i++)
        if (step.tasks[i].kind == TASK_LAYER || step.tasks[i].kind == TASK_EMBED)
            p.forward = run.end_ns[i] * 1e-9;
    p.backward = run.total_ns * 1e-9 - p.forward;
    double share = (double)s.model->parameters / DOS_RANKS;
    p.update0 = update_ns(&theirs, share, 0) * 1e-9;
    p.update2 = update_ns(&theirs, share, 2) * 1e-9;
    stride_rates r = stride_rates_of(&theirs, (double)SUBGROUP * DOS_RANKS);
    p.stride = stride_choose(&r);
    search_input in = search_for(&x, &s, &c);
    search_result found;
    if (!search_plan(&in, &found, &e)) {
        p.ours = found.best.step_ns * 1e-9;
        search_result_free(&found);
    }
    simulation_free(&run);
    schedule_free(&step);
    streamed_close(&s);
    return p;
}

static void dos_row(const char *what, double theirs, double ours)
{
    printf("| %s | %.2f | %.2f | %+.0f%% |\n", what, theirs, ours, percent(ours, theirs));
}

static void dos_iterations(dos_phases *all)
{
    printf("## Deep Optimizer States: an iteration on 4x H100 (s)\n\n"
           "| | k = 2, published | predicted | error | ZeRO-3 offload, published | predicted with its gradients flushed asynchronously | error | "
           "our plan |\n|---|---|---|---|---|---|---|---|\n");
    for (int i = 0; i < DOS_CASES; i++) {
        const dos_case *d = &dos_cases[i];
        dos_phases p = all[i] = dos_predict(d);
        double k2 = p.forward + p.backward + p.update2;
        double k0 = p.forward + p.backward + p.update0;
        printf("| %s | %.2f | %.2f | %+.0f%% | %.2f | %.2f | %+.0f%% | %.2f |\n", d->label, d->dos_s, k2, percent(k2, d->dos_s), d->zero3_s,
               k0, percent(k0, d->zero3_s), p.ours);
    }
    printf("\nZeRO-3's own backward flushes gradients through pageable memory and converts them on the host; how fast is not published, and a\n"
           "machine file does not have it. Our plan: every device holds persistent chunks whole, others by its share; updates in backward.\n\n");
}

static void dos_phases_of_20b(dos_phases p)
{
    printf("## Deep Optimizer States: phases at 20B (s)\n\n| | published | predicted | error |\n|---|---|---|---|\n");
    dos_row("forward", 0.21, p.forward);
    dos_row("backward, gradients flushed asynchronously", 0.97, p.backward);
    dos_row("update on the host", 2.29, p.update0);
    dos_row("update, every second subgroup on the device", 1.30, p.update2);
    printf("\nThe stride that the performance model takes with these rates: %d (published: 2 is best in all sweeps). ZeRO-3's backward\n"
           "with its own flush: 4.44 s (published). With k = 2 its phases (0.28, 0.85 and 1.30) make 2.43 of the published 2.90 s an iteration;\n"
           "what the rest is, is not published.\n\n", p.stride);
}

/* A row a stride; k = 0: none on the device. */
typedef struct rate_case { int k; double theirs; } rate_case;

static void dos_rate_rows(const char *label, int layers, int hidden, const rate_case *cases, int n)
{
    machine_spec x = machine_named("h100", DOS_RANKS);
    model *m = gpt_model(layers, hidden);
    step_shape shape;
    costs c;
    pt_error e = {0};
    step_shape_init(&shape, m, PT_BF16, 1, 2048);
    must(costs_analytic(&x, m, &shape, &c, &e), &e);
    const costs theirs = dos_costs(&c);
    for (int i = 0; i < n; i++) {
        char row[64];
        if (cases[i].k)
            snprintf(row, sizeof row, "%s, k = %d", label, cases[i].k);
        else
            snprintf(row, sizeof row, "%s, all on the host", label);
        double parameters = (double)m->parameters;
        dos_row(row, cases[i].theirs, parameters / update_ns(&theirs, parameters / DOS_RANKS, cases[i].k));
    }
    model_close(m);
}

static void dos_rates(void)
{
    static const rate_case small[] = {{0, 7.9}, {2, 14.2}};
    static const rate_case sweep[] = {{0, 8.6}, {2, 15.3}, {3, 14.9}, {4, 14.2}, {6, 13.3}, {8, 13.0}, {10, 12.7}};
    printf("## Deep Optimizer States: updates by stride, 1e9 parameters a second\n\n| | published | predicted | error |\n|---|---|---|---|\n");
    dos_rate_rows("7B", 32, 4096, small, 2);
    dos_rate_rows("20B", 44, 6144, sweep, 7);
    printf("\nAssumed: one sequence of 2048 tokens a device (not published), the blocks' inputs saved and the rest recomputed, GPT shapes;\n"
           "the host's optimizer limited by its memory alone, 614 GB/s x 0.8 for the four of them. What their host's AdamW really reaches\n"
           "(8.6 is 258 GB/s at 30 bytes a parameter) is not in a machine file.\n\n");
}

int main(void)
{
    protrain_sizes();
    protrain_speed();
    protrain_policies();
    dos_phases all[DOS_CASES];
    dos_iterations(all);
    dos_phases_of_20b(all[DOS_CASES - 1]);
    dos_rates();
    return 0;
}
