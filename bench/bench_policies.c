/* bench_policies.c - the search's plan beside the fixed policies, all run by the same executor: predicted and measured.
 *
 *     bench_policies FILE CONFIG BATCH SEQ_LEN UNIT_SEQS HOST_MEMORY DEVICE_MEMORY ROUNDS [DISK_FOLDER]
 *
 * Under the given budgets the search and every policy that fits make a plan with the profile measured now. In each round every
 * plan runs STEPS steady steps, in another order each time; the median counts. The search's plan is there twice, first and last, which
 * says what noise is. Prints a table, appends it to FILE (Markdown).
 * UNIT_SEQS and HOST_MEMORY as in bench_predict; DEVICE_MEMORY and HOST_MEMORY together at most two fifths of what is free, for memory
 * is kept from plan to plan.
 */
#include "plan_run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { STEPS = 2, PROFILES = 5, ROUNDS_MAX = 16, PLANS_MAX = POLICIES + 2 };

typedef struct runner {
    priced_plan own;
    const priced_plan *plan; /* its own, or another's */
    const char *name;
    double predicted, seconds[STEPS * ROUNDS_MAX];
} runner;

static int make_plans(setting *g, runner *all, int *n, pt_error *e)
{
    search_result r;
    double busy[QUEUES];
    int failed = search_plan(&g->search, &r, e);
    if (failed)
        return failed;
    all[(*n)++].own = r.best;
    r.best = (priced_plan){0};
    search_result_free(&r);
    for (policy p = 0; p < POLICIES && !failed; p++) {
        int fits = policy_plan(&g->search, p, &all[*n].own, e);
        failed = fits < 0 ? fits : 0;
        *n += fits > 0;
    }
    all[(*n)++].plan = &all[0].own;
    for (int i = 0; i < *n && !failed; i++) {
        all[i].name = all[i].plan ? "search, again" : all[i].own.name;
        all[i].plan = all[i].plan ? all[i].plan : &all[i].own;
        failed = plan_predict(g, all[i].plan, &all[i].predicted, busy, e);
    }
    return failed;
}

static int run_all(const setting *g, runner *all, int n, int rounds, pt_error *e)
{
    int failed = 0;
    for (int round = 0; round < rounds && !failed; round++)
        for (int k = 0; k < n && !failed; k++) {
            runner *r = &all[round % 2 ? n - 1 - k : k];
            double busy[QUEUES] = {0};
            step_run steps[STEPS] = {{0}};
            failed = plan_execute(g, r->plan, STEPS, steps, busy, e);
            for (int i = 0; i < STEPS; i++)
                r->seconds[round * STEPS + i] = steps[i].seconds;
            printf("round %d, %-14s %8.3f s predicted, %8.3f s\n", round, r->name, r->predicted, r->seconds[round * STEPS]);
            fflush(stdout);
        }
    return failed;
}

static void write_table(FILE *f, const setting *g, const runner *all, int n, int rounds)
{
    char device[32], host[32];
    double first = quantile(all[0].seconds, rounds * STEPS, 0.5);
    fprintf(f, "\n%s; device %s, host %s:\n\n", g->name, size_format(device, g->search.budget[TIER_DEVICE]),
            size_format(host, g->search.budget[TIER_HOST]));
    fprintf(f, "| plan | predicted s | measured s | least to most | beside the search |\n|---|---|---|---|---|\n");
    for (int i = 0; i < n; i++) {
        const double *v = all[i].seconds;
        double median = quantile(v, rounds * STEPS, 0.5);
        fprintf(f, "| %s | %.3f | %.3f | %.3f to %.3f | %.2f |\n", all[i].name, all[i].predicted, median, quantile(v, rounds * STEPS, 0),
                quantile(v, rounds * STEPS, 1), median / first);
    }
}

int main(int argc, char **argv)
{
    static setting g;
    static runner all[PLANS_MAX];
    pt_error e = {0};
    int n = 0, rounds = argc > 8 ? atoi(argv[8]) : 0;
    if (argc < 9 || argc > 10 || rounds < 1 || rounds > ROUNDS_MAX) {
        fprintf(stderr, "usage: %s FILE CONFIG BATCH SEQ_LEN UNIT_SEQS HOST_MEMORY DEVICE_MEMORY ROUNDS [DISK_FOLDER]\n", argv[0]);
        return 2;
    }
    int failed = setting_open(&g, argv + 2, argc > 9 ? argv[9] : ".", &e);
    if (!failed)
        failed = size_parse(argv[7], &g.search.budget[TIER_DEVICE], &e);
    if (!failed)
        failed = setting_profile(&g, PROFILES, &e);
    if (!failed)
        failed = make_plans(&g, all, &n, &e);
    if (!failed)
        failed = run_all(&g, all, n, rounds, &e);
    FILE *f = failed ? NULL : fopen(argv[1], "ae");
    if (!failed && !f)
        failed = pt_fail_errno(&e, PT_FAILED, "%s", argv[1]);
    if (failed) {
        fprintf(stderr, "%s\n", e.text);
        return 1;
    }
    write_table(stdout, &g, all, n, rounds);
    write_table(f, &g, all, n, rounds);
    return fclose(f) != 0;
}
