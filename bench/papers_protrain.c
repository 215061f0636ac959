/* papers_protrain.c - arXiv 2406.08334: the largest models that can be trained, the speed of a 175B model, and how much faster its plans
 * are than fixed policies; what other systems can train. */
#include "papers.h"

#include <stdio.h>
#include <string.h>

/* Seconds of a step; 0: it does not fit. */
static double policy_s(const search_input *in, policy p)
{
    priced_plan c;
    pt_error e = {0};
    int made = policy_plan(in, p, &c, &e);
    if (made < 0)
        must(made, &e);
    if (!made)
        return 0;
    double seconds = c.step_ns * 1e-9;
    priced_plan_free(&c);
    return seconds;
}

/* ---- the largest model ---- */

enum { WIDTH = 8192, BATCH = 8, SEQ_LEN = 1024 };

/* Who has to find room for a model: one of the policies, or the search, or a count of bytes. */
typedef struct finder { int policy; bool clipping; } finder;
enum { BY_SEARCH = -1, BY_BYTES = -2 };

/* The bytes that a schedule needs at least, the chunks on the host of which what is left of the devices takes some. */
static bool bytes_fit(const search_input *in, streamed *s)
{
    uint64_t bytes[TIERS];
    pt_error e = {0};
    s->plan.update = in->clipping ? UPDATE_END : UPDATE_BACKWARD;
    must(schedule_plan_bytes(&s->in, search_kinds(in, s->plan.update), bytes, &e), &e);
    double spare = (double)in->budget[TIER_DEVICE] - (double)bytes[TIER_DEVICE];
    return spare >= 0 && (double)bytes[TIER_HOST] <= (double)in->budget[TIER_HOST] + spare;
}

/* In little time: whether anything fits is what the search begins with. */
static bool has_plan(search_input in)
{
    in.effort = 1e-3;
    return search_s(&in) > 0;
}

/* Whether so many layers find room; how many parameters they have. */
static bool layers_fit(const machine_spec *x, int ranks, int layers, finder f, double *parameters)
{
    streamed s;
    costs c;
    pt_error e = {0};
    streamed_open(&s, layers, WIDTH, BATCH, SEQ_LEN, ranks);
    must(costs_analytic(x, s.model, &s.shape, &c, &e), &e);
    search_input in = search_for(x, &s, &c);
    in.clipping = f.clipping;
    *parameters = (double)s.model->parameters;
    bool fits = f.policy == BY_BYTES ? bytes_fit(&in, &s) : f.policy == BY_SEARCH ? has_plan(in) :
                policy_s(&in, (policy)f.policy) > 0;
    streamed_close(&s);
    return fits;
}

/* Parameters, in billions, of the deepest model that finds room; 0: none does. */
static double largest(const machine_spec *x, int ranks, finder f)
{
    double best = 0, parameters;
    int low = 1, high = MODEL_MAX_LAYERS;
    while (low <= high) {
        int middle = (low + high) / 2;
        if (layers_fit(x, ranks, middle, f, &parameters)) {
            best = parameters / 1e9;
            low = middle + 1;
        } else {
            high = middle - 1;
        }
    }
    return best;
}

static void print_size(double parameters, double theirs)
{
    if (parameters > 0)
        printf(" %.1f (%+.0f%%) |", parameters, percent(parameters, theirs));
    else
        printf(" |");
}

/* ---- ProTrain: the largest model ---- */

typedef struct size_case { const char *label, *machine; int ranks; double theirs; } size_case;

static void size_row(const size_case *c, bool clipping)
{
    static const int policies[] = {POLICY_PROTRAIN, BY_SEARCH, BY_BYTES};
    machine_spec x = machine_named(c->machine, c->ranks);
    const double host = 1e-9 * c->ranks * (double)x.memory_bytes[TIER_HOST], device = 1e-9 * (double)x.memory_bytes[TIER_DEVICE];
    printf("| %s | %.0f | %.1f, %.1f | %s |", c->label, c->theirs, host / c->theirs, (host + c->ranks * device) / c->theirs,
           clipping ? "after it, clipped exactly" : "in backward");
    for (size_t i = 0; i < sizeof policies / sizeof *policies; i++)
        print_size(largest(&x, c->ranks, (finder){policies[i], clipping}), c->theirs);
    printf("\n");
}

static void protrain_sizes(void)
{
    static const size_case cases[] = {{"1x RTX 3090, 384 GB", "rtx3090", 1, 34}, {"1x A100 80 GB, 1 TB", "a100-80", 1, 75},
                                      {"4x A100 80 GB, 1 TB", "a100-80", 4, 87}};
    printf("## ProTrain: largest model that can be trained (billion parameters)\n\n"
           "| machine | published | bytes a parameter that leaves: host, with the devices | updates | ProTrain's four numbers | our search "
           "| bytes alone |\n|---|---|---|---|---|---|---|\n");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int clipping = 0; clipping < 2; clipping++)
            size_row(&cases[i], clipping);
    printf("\nThe deepest GPT shape of width %d (%.1f billion a layer) that finds room, by bisection over its layers; batch %d x %d a "
           "device (not\npublished: theirs), 5%% of every memory left alone, nothing fitted. ProTrain's four numbers and our search: each "
           "finds a plan that fits\nwhen it is built and laid out. Bytes alone: no plan is looked for; in one schedule (chunks of a layer, "
           "all of them streamed, everything\nrecomputed) every device has what it needs, and the host the rest but for what the devices "
           "together still have room for. Other schedules\nmay need less. A parameter's weights and states take 12 bytes, 14 where "
           "gradients wait for their norm; what theirs take is not published,\nwhat the memories leave for each is in the third column. Of "
           "several devices each\nhas its shard of the states, and of weights as the plan says; with the four numbers all of a persistent "
           "chunk's. What DeepSpeed trains\nis in the next table.\n\n",
           WIDTH, 1e-9 * 12 * WIDTH * WIDTH, BATCH, SEQ_LEN);
}

/* ---- other systems: the largest model ---- */

typedef struct system_case {
    const char *label, *machine;
    int ranks;
    double theirs;
    bool device, host;       /* where its states may be */
    double states, buffered; /* bytes that each parameter is documented to take there, without and with buffers; 0: not documented */
    int policies[2];         /* of ours that are like it; -1: none */
} system_case;

static void system_row(const system_case *k)
{
    machine_spec x = machine_named(k->machine, k->ranks);
    const double device = k->device ? k->ranks * (double)x.memory_bytes[TIER_DEVICE] : 0;
    const double host = k->host ? k->ranks * (double)x.memory_bytes[TIER_HOST] : 0;
    const double bytes = 1e-9 * (device + host);
    printf("| %s | %.0f | %.1f |", k->label, k->theirs, bytes / k->theirs);
    print_size(0.95 * bytes / k->states, k->theirs);
    print_size(k->buffered > 0 ? 0.95 * bytes / k->buffered : 0, k->theirs);
    for (int i = 0; i < 2; i++)
        print_size(k->policies[i] >= 0 ? largest(&x, k->ranks, (finder){k->policies[i], true}) : 0, k->theirs);
    printf("\n");
}

static void other_sizes(void)
{
    static const system_case cases[] = {
        {"DeepSpeed, 1x RTX 3090", "rtx3090", 1, 15, false, true, 18, 27, {POLICY_ZERO_OFFLOAD, POLICY_FSDP}},
        {"DeepSpeed, 1x A100", "a100-80", 1, 34, false, true, 18, 27, {POLICY_ZERO_OFFLOAD, POLICY_FSDP}},
        {"DeepSpeed, 4x A100", "a100-80", 4, 37, false, true, 18, 27, {POLICY_ZERO_OFFLOAD, POLICY_FSDP}},
        {"Colossal-AI, 1x A100", "a100-80", 1, 53, true, true, 16, 0, {-1, -1}},
        {"FSDP, 1x A100", "a100-80", 1, 10, true, false, 16, 0, {POLICY_RECOMPUTE, POLICY_FSDP}}};
    printf("## ProTrain: largest model that other systems can train (billion parameters)\n\n"
           "| system, machine | published | bytes a parameter that leaves | by documented states alone | by documented states and buffers "
           "| "
           "its policy in our executor: weights on the device | all on the host |\n|---|---|---|---|---|---|---|\n");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        system_row(&cases[i]);
    printf("\nDeepSpeed documents (Memory Requirements, ZeRO-3 with optimizer and weights offloaded) 18 bytes of host memory a parameter, "
           "16 for "
           "weights,\ngradients and two moments in fp32 and 2 for fp16 weights, and a factor of 1.5 for buffers, "
           "to be careful. Of Colossal-AI and FSDP only "
           "the states of\nAdam in mixed precision are known, 16 bytes: Colossal-AI's in both memories, for it moves chunks between them, "
           "FSDP's on "
           "the device.\nNot published: Colossal-AI's buffers, whether FSDP offloaded anything and in which precision it kept its states; "
           "10 "
           "billion leave less\nthan 16 bytes on the device. 5%% of every memory is left alone. In our executor a parameter's weights and "
           "states take "
           "12 bytes and a gradient\nthat waits for its norm 2; ZeRO-Offload has all weights on the device besides (for FSDP: everything "
           "is there "
           "and recomputed). Other\nsystems' buffers, pinned memory rounded up to powers of two among them, are not in that.\n\n");
}

/* ---- ProTrain: 175B on 16 A100 ---- */

static void print_rate(const char *what, double published, double rate)
{
    printf("| %s |", what);
    if (published > 0)
        printf(" %.1f |", published);
    else
        printf(" |");
    if (!(rate > 0))
        printf(" does not fit | |\n");
    else if (published > 0)
        printf(" %.1f | %+.0f%% |\n", rate, percent(rate, published));
    else
        printf(" %.1f | |\n", rate);
}

/* All chunks on the host, fetched for all micro-batches together. */
static double streamed_s(streamed *s, const costs *c, simulation *run)
{
    schedule step;
    pt_error e = {0};
    s->plan.update = UPDATE_BACKWARD;
    must(schedule_build(&s->in, SCHEDULE_STEP, &step, &e), &e);
    must(simulate(&s->in, &step, c, false, run, &e), &e);
    schedule_free(&step);
    return run->total_ns * 1e-9;
}

static double rate_of(double tokens, double seconds) { return seconds > 0 ? tokens / seconds : 0; }

static void protrain_speed(void)
{
    const double protrain = 2218.7, deepspeed = protrain / 2.58, colossal = protrain / 2.09;
    enum { RANKS = 16, NODES = 4 };
    machine_spec x = machine_named("a100-80", RANKS / NODES);
    x.devices = RANKS / NODES;
    streamed s;
    costs c;
    simulation run;
    pt_error e = {0};
    streamed_open(&s, 96, 12288, 8, 1024, RANKS);
    must(costs_analytic(&x, s.model, &s.shape, &c, &e), &e);
    const search_input in = search_for(&x, &s, &c);
    const double tokens = (double)(s.shape.batch * s.shape.seq_len) * RANKS;
    const double numbers = policy_s(&in, POLICY_PROTRAIN), offload = policy_s(&in, POLICY_FSDP);
    printf("## ProTrain: GPT 175B on 16x A100 80 GB (tokens per second)\n\n| | published | predicted, batch 8 a device | error "
           "|\n|---|---|---|---|\n");
    print_rate("ProTrain: its four numbers", protrain, rate_of(tokens, numbers));
    const double all_streamed = rate_of(tokens, streamed_s(&s, &c, &run));
    print_rate("ProTrain: everything streamed and recomputed, a layer's chunks once a step", protrain, all_streamed);
    print_rate("DeepSpeed (2.58 times less): ZeRO-3 offload in our executor", deepspeed, rate_of(tokens, offload));
    printf("| Colossal-AI (2.09 times less): its policy is not in our executor | %.1f | | |\n", colossal);
    print_rate("our plan", 0, rate_of(tokens, search_s(&in)));
    printf("\nBusy where everything is streamed: compute %.0f%%, to the device %.0f%%, from it %.0f%%, host %.0f%%. Not published: the "
           "batch, and the "
           "network\nbetween the nodes (predicted as four nodes with an adapter of 200 Gb/s for each device).\n\n",
           100 * run.busy_ns[QUEUE_COMPUTE] / run.total_ns, 100 * run.busy_ns[QUEUE_TO_DEVICE] / run.total_ns,
           100 * run.busy_ns[QUEUE_FROM_DEVICE] / run.total_ns, 100 * run.busy_ns[QUEUE_HOST] / run.total_ns);
    streamed_close(&s);
}

/* ---- ProTrain: against fixed policies, and our plan ---- */

static void print_time(double s, double tokens)
{
    if (s > 0)
        printf(" %.2f (%.0f) |", s, tokens / s);
    else
        printf(" does not fit |");
}

/* least, most: how many times the throughput of other systems is published; 0: none is. */
typedef struct speed_case {
    const char *label, *machine;
    int ranks, layers, hidden;
    int64_t batch;
    double least, most;
    bool all_memory; /* nothing is left alone */
} speed_case;

static const speed_case speed_cases[] = {
    {"GPT-2 10B, 1x RTX 3090, batch 8", "rtx3090", 1, 50, 4096, 8, 0, 0, false},
    {"GPT-2 10B, 4x RTX 3090, batch 8 each", "rtx3090", 4, 50, 4096, 8, 1.77, 2.71, false},
    {"GPT-2 15B, 4x RTX 3090, batch 8 each", "rtx3090", 4, 48, 5120, 8, 1.77, 2.71, false},
    {"GPT-2 20B, 4x RTX 3090, batch 8 each", "rtx3090", 4, 44, 6144, 8, 1.77, 2.71, false},
    {"GPT-2 10B, 4x A100, batch 16 each", "a100-80", 4, 50, 4096, 16, 1.85, 1.85, false},
    {"GPT-2 20B, 4x A100, batch 16 each", "a100-80", 4, 44, 6144, 16, 1.85, 1.85, false},
    {"GPT 34B, 1x RTX 3090, batch 8, all memory", "rtx3090", 1, 54, 7168, BATCH, 0, 0, true},
    {"GPT 75B, 1x A100, batch 8", "a100-80", 1, 93, WIDTH, BATCH, 0, 0, false}};
enum { SPEED_CASES = sizeof speed_cases / sizeof *speed_cases };

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

/* To be closed with streamed_close. */
static search_input speed_open(const speed_case *k, machine_spec *x, streamed *s, costs *c)
{
    pt_error e = {0};
    *x = machine_named(k->machine, k->ranks);
    streamed_open(s, k->layers, k->hidden, k->batch, SEQ_LEN, k->ranks);
    must(costs_analytic(x, s->model, &s->shape, c, &e), &e);
    search_input in = search_for(x, s, c);
    for (tier t = TIER_DEVICE; t <= TIER_HOST && k->all_memory; t++)
        in.budget[t] = x->memory_bytes[t];
    return in;
}

static void speed_row(const speed_case *k)
{
    static const policy policies[] = {POLICY_ZERO_OFFLOAD, POLICY_FSDP, POLICY_PROTRAIN};
    machine_spec x;
    streamed s;
    costs c;
    double times[3];
    const double tokens = (double)(k->batch * SEQ_LEN * k->ranks);
    const search_input in = speed_open(k, &x, &s, &c);
    printf("| %s |", k->label);
    for (int i = 0; i < 3; i++)
        print_time(times[i] = policy_s(&in, policies[i]), tokens);
    const double ours = search_s(&in), slowest = times[0] > times[1] ? times[0] : times[1];
    print_time(ours, tokens);
    print_ratio(k, times[2] > 0 ? slowest / times[2] : 0, ours > 0 ? slowest / ours : 0);
    streamed_close(&s);
}

static void protrain_policies(void)
{
    printf("## ProTrain: seconds a step (tokens per second)\n\n"
           "| | ZeRO-Offload | weights streamed, all recomputed | ProTrain's four numbers | our plan | ProTrain against others, published "
           "| "
           "ProTrain against the slower, predicted | error | ours against the slower |\n|---|---|---|---|---|---|---|---|---|\n");
    for (int i = 0; i < SPEED_CASES; i++)
        speed_row(&speed_cases[i]);
    printf("\nPublished are ratios alone, over several models: 1.77 to 2.71 times other systems on 4x RTX 3090; on 4x A100 1.85 times "
           "DeepSpeed\n"
           "(in the table), 1.43 times Colossal-AI, 2.22 times FSDP (below). Not published: seconds, batches, and what those systems lose "
           "outside "
           "of their\npolicies; here all policies run in one executor, so only what the policy itself costs is seen. The error holds that "
           "as well as\nwhat the prediction is wrong by. On RTX 3090s ZeRO-Offload does not fit, so the other is the slower one. "
           "Sequences of "
           "1024, updates\nin backward. Of 34 and 75 billion only that they train is published; 34 (33.7, as LLaMA-34B) do not fit "
           "where 5%% is\nleft alone.\n\n");
}

/* ---- ProTrain: what it chooses, and what that is worth ---- */

static void print_numbers(const priced_plan *c)
{
    int persist = 0, swap = 0, recomputed = 0;
    for (int i = 0; i < c->plan.chunks_n; i++)
        persist += c->plan.chunks[i].placement == TIER_DEVICE;
    for (int i = 0; i < c->plan.blocks_n; i++) {
        swap += c->plan.blocks[i].place != TIER_DEVICE;
        recomputed += c->plan.blocks[i].place == TIER_DEVICE && c->plan.blocks[i].level == SAVE_INPUT;
    }
    printf(" %d of %d | %d | %d | %d of %d |", persist, c->plan.chunks_n, c->plan.n_buffer, swap, recomputed, c->plan.blocks_n);
}

/* How many times as slow the plan is with every layer recomputed; 0: that does not fit. */
static double recomputed_ratio(const search_input *in, priced_plan *c)
{
    const double before = c->step_ns;
    pt_error e = {0};
    for (int i = 0; i < c->plan.blocks_n; i++)
        c->plan.blocks[i] = (plan_block){SAVE_INPUT, TIER_DEVICE};
    int fits = search_price(in, c, &e);
    if (fits < 0)
        must(fits, &e);
    return fits ? c->step_ns / before : 0;
}

static void print_recomputed(double ratio, bool is_published)
{
    const double published = 1.04;
    if (is_published)
        printf(" %.2f |", published);
    else
        printf(" |");
    if (!(ratio > 0))
        printf(" does not fit | |\n");
    else if (is_published)
        printf(" %.2f | %+.0f%% |\n", ratio, percent(ratio, published));
    else
        printf(" %.2f | |\n", ratio);
}

static void choice_row(const speed_case *k)
{
    machine_spec x;
    streamed s;
    costs c;
    priced_plan found;
    pt_error e = {0};
    const search_input in = speed_open(k, &x, &s, &c);
    int made = policy_plan(&in, POLICY_PROTRAIN, &found, &e);
    if (made < 0)
        must(made, &e);
    printf("| %s |", k->label);
    if (made) {
        print_numbers(&found);
        print_recomputed(recomputed_ratio(&in, &found), !strcmp(k->machine, "rtx3090") && k->ranks == 4);
        priced_plan_free(&found);
    } else {
        printf(" does not fit | | | | | | |\n");
    }
    streamed_close(&s);
}

static void protrain_choices(void)
{
    printf("## ProTrain: its four numbers, as chosen by prediction\n\n"
           "| | n_persist of chunks | n_buffer | n_swap | n_checkpoint of blocks | all recomputed: times as slow, published | predicted | "
           "error |\n"
           "|---|---|---|---|---|---|---|---|\n");
    for (int i = 0; i < SPEED_CASES; i++)
        choice_row(&speed_cases[i]);
    printf("\nPublished: on RTX 3090s most blocks are recomputed and none is swapped, and with all of them recomputed a step takes 1.04 "
           "times as long; on\n"
           "A100s activations are kept, with about 3 buffers. For which of the models is not published.\n\n");
}

typedef struct ratio_case { const char *label; int speed, theirs; double published; } ratio_case;

static void protrain_ratios(void)
{
    enum { A100_10B = 4, A100_20B = 5 };
    static const ratio_case cases[] = {{"FSDP, GPT-2 10B", A100_10B, POLICY_FSDP, 2.22}, {"FSDP, GPT-2 20B", A100_20B, POLICY_FSDP, 2.22},
                                       {"Colossal-AI", A100_10B, -1, 1.43}};
    printf("## ProTrain: times the throughput of other systems on 4x A100\n\n| | published | predicted | error |\n|---|---|---|---|\n");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const ratio_case *k = &cases[i];
        if (k->theirs < 0) {
            printf("| %s | %.2f | its policy is not in our executor | |\n", k->label, k->published);
            continue;
        }
        machine_spec x;
        streamed s;
        costs c;
        const search_input in = speed_open(&speed_cases[k->speed], &x, &s, &c);
        const double ratio = policy_s(&in, (policy)k->theirs) / policy_s(&in, POLICY_PROTRAIN);
        printf("| %s | %.2f | %.2f | %+.0f%% |\n", k->label, k->published, ratio, percent(ratio, k->published));
        streamed_close(&s);
    }
    printf("\nBatch 16 each, as in the table above; FSDP with its weights on the host, all recomputed. Whether theirs were is not "
           "published.\n\n");
}

void print_protrain(void)
{
    protrain_sizes();
    other_sizes();
    protrain_speed();
    protrain_policies();
    protrain_choices();
    protrain_ratios();
}
