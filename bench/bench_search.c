/* bench_search.c - how long the search takes, and what it finds beside the fixed policies.
 *
 *     bench_search [seconds [case]]              time for each search, default 0.5; one case, counted from 0
 *     bench_search seconds random [n [seed]]     n random models of 20 to 126 layers, each on a random machine
 *
 * Blocks are priced from operations and bytes of a machine like an RTX 3090 in a host with one NVMe disk, or like two
 * cores of a processor; only the search's own time is measured here. The last line says what was reached of what is wanted: exit status
 * 1 where a search took longer, or a policy is faster than what was found.
 */
#include "search/search.h"

#include "base/rng.h"
#include "base/units.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct rates { double flops, device_memory, host_memory, link, read, write, task_ns; } rates;

static const rates gpu = {60e12, 800e9, 60e9, 12e9, 3e9, 2e9, 10e3}, cpu = {0.9e12, 20e9, 20e9, 0, 2e9, 1.5e9, 10e3};

typedef struct search_case {
    const char *name;
    int hidden, layers, heads, kv_heads, ffn, vocab;
    int64_t batch, seq_len;
    const rates *rates;
    double device_gib, host_gib, disk_gib;
} search_case;

static const search_case cases[] = {
    {"124M, all resident", 768, 12, 12, 12, 2048, 50257, 8, 512, &cpu, 8, 0, 100},
    {"124M, 1.5 GiB", 768, 12, 12, 12, 2048, 50257, 8, 512, &cpu, 1.5, 0, 100},
    {"124M, 0.8 GiB", 768, 12, 12, 12, 2048, 50257, 8, 512, &cpu, 0.8, 0, 100},
    {"7B, 24 GiB + 128 GiB", 4096, 32, 32, 32, 11008, 32000, 16, 1024, &gpu, 24, 128, 0},
    {"7B, 12 GiB + 64 GiB + disk", 4096, 32, 32, 32, 11008, 32000, 16, 1024, &gpu, 12, 64, 1000},
    {"100 layers, 24 GiB + 200 GiB", 4096, 100, 32, 8, 11008, 32000, 16, 1024, &gpu, 24, 300, 0},
    {"100 layers, 64 sequences", 4096, 100, 32, 8, 11008, 32000, 64, 1024, &gpu, 24, 300, 1000},
    {"70B, 24 GiB + 256 GiB + disk", 8192, 80, 64, 8, 28672, 128256, 16, 2048, &gpu, 24, 256, 4000},
    {"70B, 80 GiB + 1.5 TiB", 8192, 80, 64, 8, 28672, 128256, 32, 2048, &gpu, 80, 1536, 4000},
};

static double processor_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static cost_curve line(double bytes_per_element, double bytes_per_s)
{
    cost_curve c = {0};
    if (bytes_per_s > 0)
        c = (cost_curve){2, {1, 1e12}, {1e4, 1e4 + 1e12 * bytes_per_element / bytes_per_s * 1e9}};
    return c;
}

static void price(const rates *r, const model *m, const step_shape *s, costs *c)
{
    const model_config *g = &m->config;
    double rows = (double)s->unit_rows, matmuls = 0;
    for (int i = 0; i < m->params_n; i++)
        matmuls += m->params[i].block == 1 ? (double)m->params[i].rows * (double)m->params[i].cols : 0;
    double forward = (2 * rows * matmuls + 2 * rows * (double)(s->seq_len * g->heads * g->head_dim)) / r->flops * 1e9;
    const double again[SAVE_LEVELS] = {1, 0.7, 0.05, 0};
    costs_init(c);
    for (int level = 0; level < SAVE_LEVELS; level++) {
        c->layer[0].forward_ns[level] = forward;
        c->layer[0].backward_ns[level] = forward * (2 + again[level]);
    }
    double head = 2 * rows * (double)(g->vocab * g->hidden) / r->flops * 1e9;
    c->embed_ns = rows * (double)g->hidden * 4 / r->device_memory * 1e9;
    c->head_ns = 3 * head;
    c->head_eval_ns = head;
    c->finish = c->embed_finish = line(6, r->device_memory);
    c->update_device = line(28, r->device_memory);
    c->update_host = line(28, r->host_memory);
    c->to_device = c->from_device = line(1, r->link);
    c->read = line(1, r->read);
    c->write = line(1, r->write);
    c->task_ns = r->task_ns;
}

/* What is reached in all cases, beside what is wanted. */
static struct { int cases, late, long_ones, beaten; double worst_good_s, worst_s; } all;
#define GOOD_S 0.05 /* until within 5% of the end */
#define DONE_S 0.5

/* Every policy, whether the search had time for it or not. */
static int count_beaten(const search_input *in, const search_result *r)
{
    int beaten = 0;
    for (policy p = 0; p < POLICIES; p++) {
        candidate c;
        pt_error e = {0};
        if (policy_plan(in, p, &c, &e) <= 0)
            continue;
        if (c.step_ns * 1.005 < r->best.step_ns) {
            printf("    %s is faster: %.1f ms\n", policy_names[p], c.step_ns * 1e-6);
            beaten++;
        }
        candidate_free(&c);
    }
    return beaten;
}

static void judge(const search_input *in, const search_result *r)
{
    all.cases++;
    all.late += r->first_good_s > GOOD_S;
    all.long_ones += r->seconds > DONE_S;
    all.worst_good_s = r->first_good_s > all.worst_good_s ? r->first_good_s : all.worst_good_s;
    all.worst_s = r->seconds > all.worst_s ? r->seconds : all.worst_s;
    all.beaten += count_beaten(in, r);
}

static int verdict(void)
{
    printf("%d cases: within 5%% of the end after at most %.0f ms (%d after more than %.0f), done after at most %.0f ms (%d after more than "
           "%.0f); %d times a policy is faster\n", all.cases, all.worst_good_s * 1e3, all.late, GOOD_S * 1e3, all.worst_s * 1e3,
           all.long_ones, DONE_S * 1e3, all.beaten);
    return all.late || all.long_ones || all.beaten;
}

static int describe(const search_case *x, const search_result *r, double cpu_s)
{
    const plan *p = &r->best.plan;
    int homes[TIERS] = {0}, places[TIERS] = {0}, levels[SAVE_LEVELS] = {0};
    for (int i = 0; i < p->chunks_n; i++)
        homes[p->chunks[i].home]++;
    for (int i = 0; i < p->blocks_n; i++) {
        places[p->blocks[i].place]++;
        levels[p->blocks[i].level]++;
    }
    char bytes[TIERS][32];
    for (int t = 0; t < TIERS; t++)
        size_format(bytes[t], r->best.bytes[t]);
    printf("%-30s %5.0f ms (processor %5.0f), within 5%% after %4.0f, tried %4d | step %8.1f ms  %s %s %s\n", x->name, r->seconds * 1e3,
           cpu_s * 1e3, r->first_good_s * 1e3, r->tried, r->best.step_ns * 1e-6, bytes[0], bytes[1], bytes[2]);
    printf("    chunks of %lld MiB: %d + %d + %d, buffers %d, update %d (%d), swap %d, micro %lld x %d, levels %d %d %d %d, places %d %d %d\n",
           (long long)p->chunk_bytes >> 20, homes[0], homes[1], homes[2], p->n_buffer, p->n_update, (int)p->update, p->n_swap,
           (long long)p->micro_batch, p->visit, levels[0], levels[1], levels[2], levels[3], places[0], places[1], places[2]);
    for (int i = 0; i < r->others_n; i++)
        printf("    %-90s %8.1f ms\n", r->others[i].name, r->others[i].step_ns * 1e-6);
    return 0;
}

static int run(const search_case *x, double seconds)
{
    char json[640];
    snprintf(json, sizeof json,
             "{\"model_type\": \"llama\", \"vocab_size\": %d, \"hidden_size\": %d, \"num_attention_heads\": %d, \"num_key_value_heads\": %d, "
             "\"num_hidden_layers\": %d, \"intermediate_size\": %d, \"max_position_embeddings\": 8192, \"bos_token_id\": 0, "
             "\"eos_token_id\": 0}", x->vocab, x->hidden, x->heads, x->kv_heads, x->layers, x->ffn);
    pt_error e = {0};
    model *m;
    step_shape shape;
    costs c;
    search_result r;
    if (model_from_json(x->name, json, strlen(json), NULL, NULL, &m, &e)) {
        fprintf(stderr, "%s\n", e.text);
        return 1;
    }
    step_shape_init(&shape, m, PT_BF16, x->batch, x->seq_len);
    price(x->rates, m, &shape, &c);
    search_input in = {.model = m, .shape = &shape, .costs = &c, .training = true, .clipping = true, .host_tier = x->host_gib > 0,
                       .seconds = seconds};
    const double gib[TIERS] = {x->device_gib, x->host_gib, x->disk_gib};
    for (int t = 0; t < TIERS; t++)
        in.budget[t] = (uint64_t)(gib[t] * 1073741824.0);
    double begun = processor_s();
    int failed = search_plan(&in, &r, &e);
    if (failed)
        printf("%-30s %s\n", x->name, e.text);
    else
        describe(x, &r, processor_s() - begun);
    if (!failed) {
        judge(&in, &r);
        search_result_free(&r);
    }
    model_close(m);
    return 0;
}

static int pick(uint64_t seed, int n, const int *from)
{
    static uint64_t drawn;
    uint32_t w[4];
    rng_words(seed, RNG_TEST, 0, drawn++, w);
    return from[w[0] % (uint32_t)n];
}

#define PICK(seed, ...) pick(seed, (int)(sizeof((int[]){__VA_ARGS__}) / sizeof(int)), (const int[]){__VA_ARGS__})

/* Weights and states take about 16 bytes a parameter; the host has room for 3/8 of that up to plenty. */
static search_case random_case(uint64_t seed)
{
    search_case x = {.name = "random model", .kv_heads = 8, .rates = &gpu};
    x.layers = PICK(seed, 20, 24, 32, 40, 48, 64, 80, 100, 126);
    x.heads = PICK(seed, 16, 32, 64);
    x.vocab = PICK(seed, 32000, 50257, 128256, 151936);
    x.batch = PICK(seed, 4, 8, 16, 32);
    x.seq_len = PICK(seed, 512, 1024, 2048, 4096);
    x.device_gib = PICK(seed, 12, 16, 24, 40, 80);
    x.hidden = x.heads * 128;
    x.ffn = x.hidden * 7 / 2 / 256 * 256;
    double layer = (double)x.hidden * x.hidden * 2.5 + 3.0 * x.hidden * x.ffn;
    double gib = 16 * (layer * x.layers + 2.0 * x.hidden * x.vocab) / 1073741824.0;
    x.host_gib = gib * PICK(seed, 3, 6, 8, 11, 20) / 8;
    x.disk_gib = 3 * gib;
    return x;
}

static int run_random(double seconds, int n, uint64_t seed)
{
    int failed = 0;
    for (int i = 0; i < n && !failed; i++) {
        const search_case x = random_case(seed);
        failed = run(&x, seconds);
    }
    return verdict() || failed;
}

int main(int argc, char **argv)
{
    double seconds = argc > 1 ? atof(argv[1]) : 0;
    if (argc > 2 && !strcmp(argv[2], "random"))
        return run_random(seconds, argc > 3 ? atoi(argv[3]) : 20, argc > 4 ? strtoull(argv[4], NULL, 10) : 1);
    int failed = 0, one = argc > 2 ? atoi(argv[2]) : -1;
    for (int i = 0; i < (int)(sizeof cases / sizeof *cases); i++)
        if (one < 0 || one == i)
            failed |= run(&cases[i], seconds);
    return verdict() || failed;
}
