/* Runs of the Deep Ritz method for tests: small ones, to their end or in parts, and what they leave in folders. */
#ifndef PT_TESTS_RITZ_RUNS_H
#define PT_TESTS_RITZ_RUNS_H

#include "io/files.h"
#include "ritz/solver.h"
#include "seed.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static char scratch[64];

static inline pt_ritz *open_run(const pt_ritz_options *o)
{
    pt_error e = {0};
    pt_ritz *r;
    if (pt_ritz_open(o, &r, &e))
        fail_msg("%s", e.text);
    return r;
}

static inline pt_ritz_options small(const char *problem, int64_t dim)
{
    pt_ritz_options o;
    pt_ritz_defaults(&o);
    o.problem = problem;
    o.dim = dim;
    o.width = 16;
    o.blocks = 2;
    o.n = 600;
    o.steps = 12;
    o.device = "cpu";
    o.threads = 1;
    o.eval_every = 0;
    o.eval_n = 500;
    return o;
}

static inline void train(pt_ritz *r, int64_t steps)
{
    pt_error e = {0};
    pt_ritz_step_info s;
    while (steps-- > 0)
        if (pt_ritz_step(r, &s, &e) != 1)
            fail_msg("%s", e.text);
}

static inline char *read_file(const char *folder, const char *name, size_t *n)
{
    char path[FILE_PATH_BYTES], *data;
    pt_error e = {0};
    assert_int_equal(path_join(path, folder, name, &e), 0);
    if (file_read_all(path, 1 << 28, &data, n, &e))
        fail_msg("%s", e.text);
    return data;
}

static inline void same_networks(const char *a, const char *b)
{
    size_t a_n, b_n;
    char *x = read_file(a, "network.safetensors", &a_n), *y = read_file(b, "network.safetensors", &b_n);
    assert_true(a_n == b_n);
    assert_memory_equal(x, y, a_n);
    free(x), free(y);
}

/* An empty name in the scratch folder; the last two stay. */
static inline const char *folder_of(const char *name)
{
    static char path[2][128];
    static int turn;
    pt_error e = {0};
    snprintf(path[turn = !turn], sizeof *path, "%s/%s", scratch, name);
    assert_int_equal(tree_remove(path[turn], &e), 0);
    return path[turn];
}

/* To the end, by as many runs as there are stops, each with options and a plan that the planner gives; NULL: with those of its own. */
typedef struct run_planner { void (*options)(pt_ritz_options *o); ritz_plan_fn plan; } run_planner;
static inline void run_with_stops(pt_ritz_options o, const int64_t *stops, int n, const run_planner *by)
{
    for (int i = 0; i <= n; i++) {
        pt_error e = {0};
        pt_ritz *r;
        o.resume = i > 0;
        if (by)
            by->options(&o);
        if (ritz_open(&o, by ? by->plan : NULL, NULL, &r, &e))
            fail_msg("%s", e.text);
        train(r, (i < n ? stops[i] : o.steps) - r->step);
        for (int t = 0; t < TIERS && o.steps > 0 && r->step > r->first_step; t++)
            if (ritz_peak_bytes(r, (tier)t) != r->forecast.bytes[t])
                fail_msg("tier %d: %llu bytes were planned, and it took %llu", t, (unsigned long long)r->forecast.bytes[t],
                         (unsigned long long)ritz_peak_bytes(r, (tier)t));
        if (i < n ? pt_ritz_save(r, &e) : pt_ritz_finish(r, &e))
            fail_msg("%s", e.text);
        pt_ritz_close(r);
    }
}

static inline void refused(pt_ritz_options o, int code, const char *words)
{
    pt_error e = {0};
    pt_ritz *r;
    pt_ritz_step_info s;
    int got = pt_ritz_open(&o, &r, &e);
    if (!got) {
        got = pt_ritz_step(r, &s, &e);
        pt_ritz_close(r);
    }
    if (got != code || !strstr(e.text, words))
        fail_msg("code %d, not %d; \"%s\" is not in \"%s\"", got, code, words, e.text);
}

static inline int setup(void **state)
{
    srand((unsigned)test_seed());
    snprintf(scratch, sizeof scratch, "/tmp/test-ritz-XXXXXX");
    return mkdtemp(scratch) ? 0 : -1;
}

static inline int teardown(void **state)
{
    pt_error e;
    return tree_remove(scratch, &e);
}

#endif
