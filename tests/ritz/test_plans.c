/* Plans of a run: the same bits under each, budgets that are kept, plans from files, and what `protrain plan --problem` says. */
#include "sanitized.h"

#include <sys/stat.h>
#include <sys/wait.h>

#include "ritz/runs.h"

/* ---- the same bits ---- */

static int random_tier(const ritz_planning *p)
{
    const int t = rand() % 4;
    return t == TIER_HOST && !p->space->host_tier ? TIER_DEVICE : t == TIER_DISK && !p->budget[TIER_DISK] ? TIER_DEVICE : t % 3;
}

static struct { int chunks[TIERS], saved[TIERS], again, visits; } seen;

static int random_plan(void *arg, const ritz_planning *p, plan *out, pt_error *e)
{
    int failed = ritz_plan_init(p->space, out, e);
    if (failed)
        return failed;
    for (int c = 0; c < out->chunks_n; c++) {
        out->chunks[c].placement = (tier)random_tier(p);
        out->chunks[c].update = rand() % 2 && p->space->host_tier && out->chunks[c].placement != TIER_DEVICE ? TIER_HOST : TIER_DEVICE;
        seen.chunks[out->chunks[c].placement]++;
    }
    for (int g = 0; g < out->blocks_n; g++) {
        out->blocks[g].level = rand() % 2 ? SAVE_ALL : SAVE_INPUT;
        out->blocks[g].place = (tier)random_tier(p);
        seen.saved[out->blocks[g].place]++;
        seen.again += out->blocks[g].level == SAVE_INPUT;
    }
    out->n_buffer = 2 + rand() % 3; /* a group lies in two chunks at most */
    out->n_update = 1 + rand() % 3;
    out->n_swap = 2 + rand() % 4;
    out->visit = 1 + rand() % 5;
    seen.visits += out->visit > 1;
    out->micro_batch = out->visit * p->space->unit_rows;
    return 0;
}

static void random_options(pt_ritz_options *o)
{
    o->threads = 1 + rand() % (rand() % 4 ? 4 : 12); /* also more than a unit has slices */
    o->host_memory = rand() % 2 ? 256 << 20 : PT_AUTO;
    o->disk_memory = 256 << 20;
}

static const run_planner at_random = {random_options, random_plan};

/* Steps and energies of every line. */
static void same_metrics(const char *x, const char *y)
{
    size_t n, m;
    char *a = read_file(x, "metrics.jsonl", &n), *b = read_file(y, "metrics.jsonl", &m);
    const char *p = a, *q = b;
    for (; *p && *q; p = strchr(p, '\n') + 1, q = strchr(q, '\n') + 1)
        assert_int_equal(strncmp(p, q, strcspn(p, "l") - 1), 0);
    assert_true(!*p && !*q);
    free(a), free(b);
}

static void positive(void *arg, int64_t n, int64_t dim, const double *x, double *out)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = 1 + x[i * dim] * x[i * dim];
}

static void quartic(void *arg, int64_t n, int64_t dim, const double *x, const double *u, double *value, double *slope)
{
    for (int64_t i = 0; i < n; i++) {
        value[i] = u[i] * u[i] * u[i] * u[i] / 4;
        slope[i] = u[i] * u[i] * u[i];
    }
}

/* What the built-in problems have not. */
static const pt_ritz_problem *random_problem(void)
{
    static const double lower[] = {0.5, 0.2}, upper[] = {1, 0.6};
    static const pt_ritz_boundary faces[] = {PT_RITZ_DIRICHLET, PT_RITZ_ROBIN, PT_RITZ_NEUMANN, PT_RITZ_HARD, PT_RITZ_ROBIN,
                                             PT_RITZ_NEUMANN, PT_RITZ_DIRICHLET, PT_RITZ_ROBIN};
    static const pt_ritz_problem all[] = {
        {.dim = 3, .boundary = PT_RITZ_HARD, .f = positive, .g = positive, .G = quartic, .concurrent = true},
        {.dim = 2, .boundary = PT_RITZ_HARD, .equation = PT_RITZ_EIGENVALUE, .V = positive, .a = positive, .concurrent = true},
        {.dim = 2, .holes = 1, .hole_lower = lower, .hole_upper = upper, .faces = faces, .penalty = 9, .f = positive, .r = positive,
         .g = positive, .concurrent = true},
        {.dim = 2, .holes = 1, .hole_lower = lower, .hole_upper = upper, .f = positive, .a = positive},
        {.dim = 2, .boundary = PT_RITZ_HARD, .holes = 1, .hole_lower = lower, .hole_upper = upper, .f = positive, .g = positive,
         .concurrent = true}};
    return &all[rand() % 5];
}

/* Of errors and energies: what they are is for test_energy.c. */
static void evaluate_little(pt_ritz_options *o)
{
    o->eval_n = 40;
    o->energy_sets = 2;
}

static pt_ritz_options random_run(int turn)
{
    static const char *const names[] = {"poisson-cosine", "schroedinger-jump", "harmonic"};
    pt_ritz_options o = small(names[turn % 3], 2 + rand() % 4);
    evaluate_little(&o);
    if (turn % 4 == 3) {
        o.problem = NULL;
        o.own = random_problem();
        o.dim = 0;
    }
    o.n = 400 + rand() % 3000;
    o.steps = 6;
    o.penalty_ramp = rand() % 8;
    o.width = rand() % 4 ? 8 + rand() % 60 : 380 + rand() % 20; /* wide ones have several chunks */
    o.blocks = 1 + rand() % 3;
    o.dtype = (pt_ritz_dtype)(rand() % 2);
    o.points = (pt_ritz_points)(rand() % 4);
    o.randomize = o.points == PT_RITZ_LATTICE && rand() % 2 ? PT_RITZ_RANDOMIZE_TENT : PT_RITZ_RANDOMIZE_DEFAULT;
    o.plain = rand() % 3 == 0;
    o.redraw_every = rand() % 3;
    if (!o.own || (o.own->concurrent && o.own->equation != PT_RITZ_EIGENVALUE && !(o.own->holes && o.own->boundary == PT_RITZ_HARD)))
        o.loss = (pt_ritz_loss)(rand() % 2);
    o.seed = (uint64_t)rand();
    o.save_every = rand() % 4;
    if (o.width > 100) {
        o.n = 260 + rand() % 300; /* two or three units */
        o.blocks = 1 + rand() % 2;
        o.steps = 4;
    }
    return o;
}

static void every_plan_and_every_resumed_run_have_the_same_bits(void **state)
{
    const char *given = getenv("PT_SAME_BITS_PLANS");
    const int plans = given ? atoi(given) : SANITIZED ? 2 : 9;
    for (int turn = 0; turn < plans; turn++) {
        pt_ritz_options o = random_run(turn);
        o.out = folder_of("straight");
        run_with_stops(o, NULL, 0, NULL);
        const char *straight = o.out;
        o.out = folder_of("planned");
        const int64_t first = rand() % (o.steps / 2), stops[2] = {first, first + rand() % (o.steps / 2)};
        run_with_stops(o, stops, 2, &at_random);
        same_networks(straight, o.out);
        same_metrics(straight, o.out);
    }
    printf("%d plans: chunks on the device %d, host %d, disk %d; sets %d, %d, %d; %d groups again, %d plans with several units a visit\n",
           plans, seen.chunks[0], seen.chunks[1], seen.chunks[2], seen.saved[0], seen.saved[1], seen.saved[2], seen.again, seen.visits);
    assert_true(plans < 8 || (seen.again && seen.visits && seen.saved[TIER_DISK] && seen.chunks[TIER_DISK]));
}

/* ---- budgets ---- */

static pt_ritz_summary summary_of(pt_ritz_options o, bool run)
{
    pt_ritz_summary s;
    pt_ritz *r = open_run(&o);
    if (run)
        train(r, 1);
    pt_ritz_get_summary(r, &s);
    for (int t = 0; t < 3 && run; t++)
        assert_true(s.peak_bytes[t] == s.planned_bytes[t]);
    pt_ritz_close(r);
    return s;
}

/* What is planned is what is taken, and it is not more than may be: first more is computed again, then things lie elsewhere. */
static void budgets_are_kept(void **state)
{
    enum { MIB = 1 << 20 };
    pt_ritz_options o = small("poisson-cosine", 3);
    evaluate_little(&o);
    o.n = 300;
    o.width = 400;
    o.blocks = 6;
    o.disk_memory = 0;
    o.steps = 1;
    const pt_ritz_summary all = summary_of(o, true);
    assert_true(all.recomputed_groups == 0 && all.chunks_on[0] == all.chunks && all.chunks > 3);
    o.device_memory = all.planned_bytes[0] - 1;
    const pt_ritz_summary tight = summary_of(o, true);
    assert_true(tight.recomputed_groups > 1 && tight.planned_bytes[0] <= o.device_memory);
    o.device_memory = 10 * MIB;
    o.host_memory = 64 * MIB;
    const pt_ritz_summary host = summary_of(o, true);
    assert_true(host.chunks_on[1] > 0 && !host.chunks_on[2] && host.planned_bytes[0] <= o.device_memory);
    o.host_memory = PT_AUTO;
    o.disk_memory = 64 * MIB;
    o.disk_path = scratch;
    const pt_ritz_summary disk = summary_of(o, true);
    assert_true(disk.chunks_on[2] > 0 && disk.planned_bytes[0] <= o.device_memory && disk.planned_bytes[2] <= o.disk_memory);
    o.host_memory = 14 * MIB;
    const pt_ritz_summary both = summary_of(o, true);
    assert_true(both.chunks_on[2] > 0 && both.planned_bytes[0] <= o.device_memory && both.planned_bytes[1] <= o.host_memory);
}

/* The planner's own plans under random budgets, too. */
static void every_budget_has_the_same_bits(void **state)
{
    const char *given = getenv("PT_SAME_BITS_PLANS");
    int fits = 0;
    for (int turn = 0; turn < 4 + (given ? atoi(given) / 4 : 0); turn++) {
        pt_ritz_options o = random_run(turn);
        o.width = 380 + rand() % 20;
        o.blocks = 1 + rand() % 2;
        o.n = 260 + rand() % 300;
        o.steps = 2;
        o.out = folder_of("straight");
        run_with_stops(o, NULL, 0, NULL);
        const char *straight = o.out;
        o.out = folder_of("planned");
        o.device_memory = (uint64_t)(8 + rand() % 20) << 20;
        o.host_memory = rand() % 2 ? (uint64_t)(8 + rand() % 30) << 20 : PT_AUTO;
        o.micro_batch = rand() % 2 ? rand() % 2000 : 0;
        pt_error e = {0};
        pt_ritz *r;
        const int code = pt_ritz_open(&o, &r, &e);
        assert_true(!code || code == PT_DOES_NOT_FIT);
        if (code)
            continue;
        train(r, o.steps);
        assert_int_equal(pt_ritz_finish(r, &e), 0);
        pt_ritz_close(r);
        same_networks(straight, o.out);
        fits++;
    }
    assert_true(fits > 0);
}

/* A plan alone takes no memory and leaves nothing, and says what a run would. */
static void plans_say_what_a_run_does(void **state)
{
    pt_ritz_options o = small("schroedinger-cosine", 2);
    const pt_ritz_summary run = summary_of(o, true);
    o.plan_only = o.forecast = true;
    o.out = folder_of("nothing");
    const pt_ritz_summary said = summary_of(o, false);
    struct stat there;
    assert_true(said.predicted_step_s > 0 && said.planned_bytes[0] == run.planned_bytes[0] && !said.peak_bytes[0]);
    assert_int_equal(stat(o.out, &there), -1);
}

static void write_text(const char *path, const char *text)
{
    pt_error e = {0};
    assert_int_equal(file_write_atomic(path, text, strlen(text), &e), 0);
}

/* The plan of `text` with one part of it replaced. */
static void a_plan_is_refused(pt_ritz_options o, const char *text, const char *from, const char *to, int code, const char *words)
{
    const char *at = strstr(text, from);
    char *changed = calloc(1, strlen(text) + strlen(to) + 1);
    assert_non_null(at);
    sprintf(changed, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    write_text(o.plan_file, changed);
    free(changed);
    refused(o, code, words);
}

/* What is planned under small budgets is run as it is where there is plenty, to the byte; of other runs nothing is taken. */
static void a_plan_comes_from_a_file(void **state)
{
    pt_error e = {0};
    pt_ritz *r;
    pt_ritz_options o = small("poisson-cosine", 3);
    char path[128];
    evaluate_little(&o);
    o.n = 300;
    o.width = 400;
    o.blocks = 6;
    o.steps = 2;
    o.device_memory = 10 << 20, o.host_memory = 64 << 20, o.disk_memory = 0;
    o.out = folder_of("planned");
    const char *planned = o.out;
    r = open_run(&o);
    char *text = pt_ritz_plan_json(r);
    train(r, o.steps);
    pt_ritz_summary is, taken;
    pt_ritz_get_summary(r, &is);
    assert_int_equal(pt_ritz_finish(r, &e), 0);
    pt_ritz_close(r);
    assert_true(is.chunks_on[1] > 0);

    o.device_memory = 1 << 30;
    snprintf(path, sizeof path, "%s/plan.json", scratch);
    write_text(path, text);
    o.plan_file = path;
    o.out = folder_of("from a file");
    r = open_run(&o);
    train(r, o.steps);
    pt_ritz_get_summary(r, &taken);
    for (int t = 0; t < 3; t++)
        assert_true(taken.planned_bytes[t] == is.planned_bytes[t] && taken.peak_bytes[t] == is.planned_bytes[t] &&
                    taken.chunks_on[t] == is.chunks_on[t]);
    assert_int_equal(pt_ritz_finish(r, &e), 0);
    pt_ritz_close(r);
    same_networks(planned, o.out);

    o.out = NULL;
    a_plan_is_refused(o, text, "deep_ritz", "llama", PT_FAILED, "not for a Deep Ritz network");
    a_plan_is_refused(o, text, "\"hidden\": 400", "\"hidden\": 401", PT_FAILED, "\"hidden\" 401, but here it is 400");
    a_plan_is_refused(o, text, "\"visit\": ", "\"visit\": 7", PT_FAILED, "\"visit\" is 7");
    a_plan_is_refused(o, text, "\"update\": \"end\"", "\"update\": \"backward\"", PT_FAILED, "must be \"end\"");
    a_plan_is_refused(o, text, "\"fp32\"", "\"fp64\"", PT_FAILED, "another `dtype` than fp32");
    a_plan_is_refused(o, text, "\"n_swap\": ", "\"n_swap\": 0, \"n_none\": ", PT_FAILED, "\"n_none\" is unknown");
    write_text(path, text);
    o.host_memory = PT_AUTO;
    refused(o, PT_FAILED, "give `host_memory`");
    o.host_memory = 1 << 20;
    refused(o, PT_DOES_NOT_FIT, "of host memory, but the budget is 1.00 MiB");
    o.micro_batch = 100;
    refused(o, PT_USAGE, "the `micro_batch` is the plan's");
    free(text);
}

/* ---- the program ---- */

/* What `protrain plan --problem` says with these options; returns its exit status. */
static int plan_of(const char *options, char out[4096])
{
    char command[512];
    snprintf(command, sizeof command, "%s plan --problem schroedinger-cosine --dim 2 --device cpu %s 2>/dev/null", PT_PROGRAM, options);
    FILE *f = popen(command, "r");
    assert_non_null(f);
    out[fread(out, 1, 4095, f)] = '\0';
    return WEXITSTATUS(pclose(f));
}

static void the_program_plans(void **state)
{
    char said[4096];
    assert_int_equal(plan_of("--n 512 --width 16", said), 0);
    assert_true(strstr(said, "512 points a step") && strstr(said, " of device memory") && strstr(said, "step    about "));
    assert_int_equal(plan_of("--n 512 --width 16 --json", said), 0);
    assert_true(strstr(said, "{\"fits\": true, \"predicted\": {\"step_s\": ") && strstr(said, "\"disk\": 0}}"));
    assert_non_null(strstr(said, "\"model_type\": \"deep_ritz\""));
    assert_int_equal(plan_of("--width 512 --device-memory 1MiB --disk-memory 0 --json", said), 3);
    assert_true(strstr(said, "{\"fits\": false, \"missing_bytes\": ") && strstr(said, "the budget is 1.00 MiB"));
    char options[160] = "--width 512 --disk-memory 0 --json ";
    const char *change = strstr(said, "--device-memory ");
    assert_non_null(change);
    snprintf(options + strlen(options), sizeof options - strlen(options), "%.*s", (int)strcspn(change, "\","), change);
    assert_int_equal(plan_of(options, said), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_plan_and_every_resumed_run_have_the_same_bits),
        cmocka_unit_test(budgets_are_kept),
        cmocka_unit_test(every_budget_has_the_same_bits),
        cmocka_unit_test(plans_say_what_a_run_does),
        cmocka_unit_test(a_plan_comes_from_a_file),
        cmocka_unit_test(the_program_plans),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
