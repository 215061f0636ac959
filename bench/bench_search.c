/* bench_search.c - how long the search takes, and what it finds beside the fixed policies.
 *
 *     bench_search [effort [case]]              of each search (search.h), default 1; one case, counted from 0
 *     bench_search effort random [n [seed]]     n random models of 20 to 126 layers, each on a random machine
 *     bench_search effort few [n [seed]]        n of 2 to 12 layers: a line each, its step in ms and how many schedules were tried
 *
 * Blocks are priced from operations and bytes of a machine like an RTX 3090 in a host with one NVMe disk, or like two
 * cores of a processor; only the search's own time is measured here. The last line says what was reached of what is wanted: exit status
 * 1 where a search took longer, or a policy is faster than what was found.
 */
#include "search_case.h"

#include "base/units.h"

#include <stdlib.h>
#include <time.h>

static const rates cpu = {0.9e12, 20e9, 20e9, 0, 2e9, 1.5e9, 10e3};

static const search_case cases[] = {
    {"124M, all resident", 768, 12, 12, 12, 2048, 50257, 8, 512, &cpu, 8, 0, 100},
    {"124M, 1.5 GiB", 768, 12, 12, 12, 2048, 50257, 8, 512, &cpu, 1.5, 0, 100},
    {"124M, 0.8 GiB", 768, 12, 12, 12, 2048, 50257, 8, 512, &cpu, 0.8, 0, 100},
    {"7B, 24 GiB + 128 GiB", 4096, 32, 32, 32, 11008, 32000, 16, 1024, &rates_gpu, 24, 128, 0},
    {"7B, 12 GiB + 64 GiB + disk", 4096, 32, 32, 32, 11008, 32000, 16, 1024, &rates_gpu, 12, 64, 1000},
    {"100 layers, 24 GiB + 200 GiB", 4096, 100, 32, 8, 11008, 32000, 16, 1024, &rates_gpu, 24, 300, 0},
    {"100 layers, 64 sequences", 4096, 100, 32, 8, 11008, 32000, 64, 1024, &rates_gpu, 24, 300, 1000},
    {"70B, 24 GiB + 256 GiB + disk", 8192, 80, 64, 8, 28672, 128256, 16, 2048, &rates_gpu, 24, 256, 4000},
    {"70B, 80 GiB + 1.5 TiB", 8192, 80, 64, 8, 28672, 128256, 32, 2048, &rates_gpu, 80, 1536, 4000},
};

static double processor_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
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
        priced_plan c;
        pt_error e = {0};
        if (policy_plan(in, p, &c, &e) <= 0)
            continue;
        if (c.step_ns * 1.005 < r->best.step_ns) {
            printf("    %s is faster: %.1f ms\n", policy_names[p], c.step_ns * 1e-6);
            beaten++;
        }
        priced_plan_free(&c);
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
    printf("%d cases: within 5%% of the end after at most %.0f ms (%d after more than %.0f), done after at most %.0f ms (%d after more "
           "than "
           "%.0f); %d times a policy is faster\n", all.cases, all.worst_good_s * 1e3, all.late, GOOD_S * 1e3, all.worst_s * 1e3,
           all.long_ones, DONE_S * 1e3, all.beaten);
    return all.late || all.long_ones || all.beaten;
}

static int describe(const search_case *x, const search_result *r, double cpu_s)
{
    const plan *p = &r->best.plan;
    int placements[TIERS] = {0}, places[TIERS] = {0}, levels[SAVE_LEVELS] = {0};
    for (int i = 0; i < p->chunks_n; i++)
        placements[p->chunks[i].placement]++;
    for (int i = 0; i < p->blocks_n; i++) {
        places[p->blocks[i].place]++;
        levels[p->blocks[i].level]++;
    }
    char bytes[TIERS][32];
    for (int t = 0; t < TIERS; t++)
        size_format(bytes[t], r->best.bytes[t]);
    printf("%-30s %5.0f ms (processor %5.0f), within 5%% after %4.0f, tried %4d | step %8.1f ms  %s %s %s\n", x->name, r->seconds * 1e3,
           cpu_s * 1e3, r->first_good_s * 1e3, r->tried, r->best.step_ns * 1e-6, bytes[0], bytes[1], bytes[2]);
    printf("    chunks of %lld MiB: %d + %d + %d, buffers %d, update %d (%d), swap %d, micro %lld x %d, levels %d %d %d, places %d %d %d\n",
           (long long)p->chunk_bytes >> 20, placements[0], placements[1], placements[2], p->n_buffer, p->n_update, (int)p->update,
           p->n_swap,
           (long long)p->micro_batch, p->visit, levels[0], levels[1], levels[2], places[0], places[1], places[2]);
    for (int i = 0; i < r->others_n; i++)
        printf("    %-90s %8.1f ms\n", r->others[i].name, r->others[i].step_ns * 1e-6);
    return 0;
}

static int run(const search_case *x, double effort)
{
    pt_error e = {0};
    search_problem p;
    search_result r;
    if (search_problem_open(x, &p, &e)) {
        fprintf(stderr, "%s\n", e.text);
        return 1;
    }
    p.in.effort = effort;
    double begun = processor_s();
    if (search_plan(&p.in, &r, &e)) {
        printf("%-30s %s\n", x->name, e.text);
    } else {
        describe(x, &r, processor_s() - begun);
        judge(&p.in, &r);
        search_result_free(&r);
    }
    search_problem_close(&p);
    return 0;
}

static int run_random(double effort, int n, uint64_t seed)
{
    int failed = 0;
    case_source source = {seed, 0};
    for (int i = 0; i < n && !failed; i++) {
        const search_case x = case_random(&source);
        failed = run(&x, effort);
    }
    return verdict() || failed;
}

/* 1: an error. Where nothing fits, "-". */
static int print_few(const search_case *x, double effort, int i)
{
    pt_error e = {0};
    search_problem p;
    search_result r;
    int failed = search_problem_open(x, &p, &e);
    if (failed) {
        fprintf(stderr, "%s\n", e.text);
        return 1;
    }
    p.in.effort = effort;
    failed = search_plan(&p.in, &r, &e);
    if (failed)
        printf("%d - %d\n", i, r.tried);
    else
        printf("%d %.6f %d\n", i, r.best.step_ns * 1e-6, r.tried);
    fflush(stdout);
    if (!failed)
        search_result_free(&r);
    search_problem_close(&p);
    return failed && failed != PT_DOES_NOT_FIT;
}

static int run_few(double effort, int n, uint64_t seed)
{
    int failed = 0;
    case_source source = {seed, 0};
    for (int i = 0; i < n && !failed; i++) {
        const search_case x = case_few(&source);
        failed = print_few(&x, effort, i);
    }
    return failed;
}

int main(int argc, char **argv)
{
    double effort = argc > 1 ? atof(argv[1]) : 0;
    if (argc > 2 && !strcmp(argv[2], "random"))
        return run_random(effort, argc > 3 ? atoi(argv[3]) : 20, argc > 4 ? strtoull(argv[4], NULL, 10) : 1);
    if (argc > 2 && !strcmp(argv[2], "few"))
        return run_few(effort, argc > 3 ? atoi(argv[3]) : 40, argc > 4 ? strtoull(argv[4], NULL, 10) : 1);
    int failed = 0, one = argc > 2 ? atoi(argv[2]) : -1;
    for (int i = 0; i < (int)(sizeof cases / sizeof *cases); i++)
        if (one < 0 || one == i)
            failed |= run(&cases[i], effort);
    return verdict() || failed;
}
