/* bench_predict.c - predicted beside measured step times over random plans.
 *
 *     bench_predict run FILE CONFIG BATCH SEQ_LEN UNIT_SEQS HOST_MEMORY PLANS [DISK_FOLDER [ROUNDSxSTEPS]]
 *     bench_predict show FILE
 *     bench_predict again FILE
 *
 * `run` makes PLANS plans of a model (a config.json) that differ in everything a plan decides, runs them, and appends a JSON line a
 * plan to FILE: what the simulator said, and what the executor took. HOST_MEMORY 0: two tiers, device and disk; else three.
 * UNIT_SEQS 0: the usual unit; else units of so many sequences, which makes more micro-batches of little work. Plans that FILE has
 * already are not run again, so that a collection may be ended and begun as often as one likes. Plan number i is the same in
 * every run, as far as it is not made from the profile.
 *
 * A virtual machine's speed changes by a tenth or two within seconds and stays so for a while, so that a minute's profile says
 * little of the next minute's steps. Plans are therefore taken in groups, and a group has rounds: in each, every plan of the group
 * runs a few steps, in another order, and the machine is profiled before the first plan and again every few plans. The median of
 * all profiles predicts, the median of all rounds' steps is what was measured: both are of the same quarter of an hour. A group's
 * first plan is in it twice: how far both are apart is the noise. Six rounds of two steps suit a machine whose neighbours come and
 * go; 1x4 on a machine that seemed quiet made errors of 13% (results), for three profiles meet a slow moment together. Plans whose
 * steps are more than 8% apart, be they as predicted or not, have met a change of the machine: they run two rounds more.
 *
 * Whatever else the machine has to do can take turns with a collection: `flock FILE COMMAND` waits for the end of a plan's visit
 * or of a profile, and the next begins some seconds after COMMAND has ended. Better not: a group that builds of several minutes took
 * turns with was off by 4 to 25%.
 *
 * A disk may change its pace once more of it has been written: one wrote 4.7 GB/s until 1.5 GiB of its blocks had been, and 7.6 from
 * then on, whichever blocks they were. So 2 GiB are written and kept for as long as a collection goes on: profiles and plans meet
 * the same disk, however much of it they need.
 *
 * `show` prints, for each case in FILE, the median and 95th percentile of the error and of the noise: as predicted, and with the times
 * that each kind of work took in the step itself, which leaves the simulation's own error. And the rank correlation of predicted
 * and measured.
 *
 * `again` computes the predictions of FILE anew, by the simulation of this build and from the costs that FILE holds for each group: of each
 * plan its number, the seconds that were measured, that were predicted then, and that are predicted now (bench/ablate_predict).
 */
#include "plan_run.h"
#include "predict_record.h"

#include "base/json.h"
#include "base/rng.h"
#include "io/disk.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

enum { GROUP = 10, PROFILE_EVERY = 4 /* plans of a round */,
       ROUNDS = PROFILES_MOST * PROFILE_EVERY / (GROUP + 2), STEPS = 32 /* of a plan, at most */ };
enum { MORE_ROUNDS = 2 };
static const double SETTLED = 1.08; /* the longest of a plan's steps over the shortest */
enum { WAYS = 2 }; /* to predict a step: from the profiles, from the step's own times */

static int refuse(const pt_error *e)
{
    fprintf(stderr, "%s\n", e->text);
    return 1;
}

/* ---- plans ---- */

typedef struct source { uint64_t index, n; } source;

static uint32_t bits(source *s)
{
    uint32_t w[4];
    rng_words(1, RNG_TEST, (uint32_t)s->index, s->n++, w);
    return w[0];
}

static int below(source *s, int n) { return (int)(bits(s) % (uint32_t)n); }
static bool one_in(source *s, int n) { return below(s, n) == 0; }

static int divisor(source *s, int n)
{
    int d = 1 + below(s, n);
    while (n % d)
        d--;
    return d;
}

static int chunks_at_once(const model *m, const packing *k)
{
    int most = 0;
    unsigned char *needed = calloc((size_t)k->chunks_n, 1);
    for (int block = 0; needed && block < m->blocks_n; block++) {
        int n = 0;
        block_chunks(m, k, block, needed);
        for (int c = 0; c < k->chunks_n; c++)
            n += needed[c];
        most = n > most ? n : most;
    }
    free(needed);
    return most;
}

/* Some share of the chunks stays on the device; the others live on the host, on the disk, or on both. */
static void place_chunks(source *s, plan *p, bool host_tier)
{
    int resident = p->chunks_n * below(s, 5) / 4, on_host = host_tier ? below(s, 5) : 0, stride = 1 + below(s, 3);
    for (int c = 0; c < p->chunks_n; c++) {
        tier placement = c < resident ? TIER_DEVICE : (c * 4 / p->chunks_n < on_host) ? TIER_HOST : TIER_DISK;
        const bool on_host = placement != TIER_DEVICE && host_tier && c % stride == 0;
        p->chunks[c] = (plan_chunk){.placement = placement, .update = on_host ? TIER_HOST : TIER_DEVICE};
    }
}

static void place_blocks(source *s, plan *p, bool host_tier)
{
    save_level level = (save_level)below(s, SAVE_LEVELS);
    bool mixed = one_in(s, 2);
    int swap_every = one_in(s, 2) ? 2 + below(s, 4) : 0;
    for (int b = 0; b < p->blocks_n; b++) {
        bool swapped = swap_every && b % swap_every == 0;
        p->blocks[b].level = mixed ? (save_level)below(s, SAVE_LEVELS) : level;
        p->blocks[b].place = !swapped ? TIER_DEVICE : host_tier && one_in(s, 2) ? TIER_HOST : TIER_DISK;
    }
}

static int random_plan(source *s, const model *m, const step_shape *shape, bool host_tier, priced_plan *c, pt_error *e)
{
    int failed = pack(m, shape, (int64_t)4 << (20 + below(s, 5)), &c->packing, e);
    if (!failed)
        failed = plan_alloc(&c->plan, c->packing.chunks_n, (int)m->config.layers, e);
    if (failed)
        return failed;
    plan *p = &c->plan;
    int units = divisor(s, (int)shape->units_n), micros = (int)shape->units_n / units;
    p->chunk_bytes = c->packing.chunk_bytes;
    p->micro_batch = units * shape->unit_seqs;
    p->visit = divisor(s, micros);
    p->update = (update_time)below(s, 3);
    p->n_buffer = chunks_at_once(m, &c->packing) + below(s, 5);
    p->n_update = 1 + below(s, 4);
    p->n_swap = 2 + below(s, 4);
    place_chunks(s, p, host_tier);
    place_blocks(s, p, host_tier);
    snprintf(c->name, sizeof c->name, "random");
    return 0;
}

/* A third of the plans are those that the search or a policy makes for a random budget. */
static int made_plan(source *s, search_input in, priced_plan *c, pt_error *e)
{
    in.budget[TIER_DEVICE] = in.budget[TIER_DEVICE] / 64 * (uint64_t)(4 + below(s, 60));
    int which = below(s, POLICIES + 3);
    if (which < POLICIES)
        return policy_plan(&in, (policy)which, c, e) == 1 ? 0 : PT_DOES_NOT_FIT;
    search_result r;
    int failed = search_plan(&in, &r, e);
    if (failed)
        return failed;
    *c = r.best;
    r.best = (priced_plan){0};
    search_result_free(&r);
    return 0;
}

/* ---- one plan ---- */

/* A collection. */
typedef struct collection {
    const char *path;
    int lock; /* FILE, opened */
    int plans, rounds, steps /* of a round */;
    char **of; /* the words that the setting was opened with */
    setting g;
} collection;

/* After another's turn a virtual machine's host takes its memory back for some seconds, at the cost of whatever computes then. */
static int turn_begin(const collection *c, pt_error *e)
{
    enum { SETTLE_S = 15 };
    if (!flock(c->lock, LOCK_EX | LOCK_NB))
        return 0;
    if (flock(c->lock, LOCK_EX))
        return pt_fail_errno(e, PT_FAILED, "%s: waiting for a turn", c->path);
    sleep(SETTLE_S);
    return 0;
}

static void turn_end(const collection *c)
{
    flock(c->lock, LOCK_UN);
    usleep(100000); /* who waits has to wake up first */
}

static int profile_alone(collection *c, pt_error *e)
{
    int failed = turn_begin(c, e);
    if (failed)
        return failed;
    failed = setting_profile(&c->g, 1, e);
    turn_end(c);
    return failed;
}

static json_t *numbers(const double *v, int n)
{
    json_t *list = json_array();
    for (int i = 0; i < n; i++)
        json_array_append_new(list, json_real(v[i]));
    return list;
}

static int append(const char *path, json_t *line, pt_error *e)
{
    FILE *f = fopen(path, "ae");
    if (!f)
        return pt_fail_errno(e, PT_FAILED, "%s", path);
    json_dumpf(line, f, JSON_COMPACT | JSON_REAL_PRECISION(6));
    fputs("\n", f);
    return fclose(f) ? pt_fail_errno(e, PT_FAILED, "%s", path) : 0;
}

/* A plan of a group. */
typedef struct member {
    int index;
    const priced_plan *plan;
    double predicted, busy[2][QUEUES], seconds[STEPS], own[STEPS];
    int n; /* steps */
} member;

static int run_member(const collection *c, member *x, pt_error *e)
{
    step_run steps[STEPS];
    int failed = turn_begin(c, e);
    if (failed)
        return failed;
    failed = plan_execute(&c->g, x->plan, c->steps, steps, x->busy[1], e);
    turn_end(c);
    for (int i = 0; i < c->steps && !failed; i++) {
        x->seconds[x->n] = steps[i].seconds;
        x->own[x->n++] = steps[i].with_own_times;
    }
    return failed;
}

static void print_member(const member *x)
{
    double own[STEPS];
    for (int i = 0; i < x->n; i++)
        own[i] = x->own[i] / x->seconds[i];
    double measured = quantile(x->seconds, x->n, 0.5);
    printf("%4d %-14s predicted %7.3f s  measured %7.3f s  %+6.1f%%  with its own times %+6.1f%%\n", x->index, x->plan->name, x->predicted,
           measured, 100 * (x->predicted / measured - 1), 100 * (quantile(own, x->n, 0.5) - 1));
    fflush(stdout);
}

/* run: "measured_s", or "again_s" for the plan that is there twice. */
static int note_member(const collection *to, const member *x, const char *run, pt_error *e)
{
    char date[32];
    time_t now = time(NULL);
    const setting *g = &to->g;
    const priced_plan *c = x->plan;
    strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", gmtime(&now));
    json_t *line = json_pack(
        "{s:s, s:i, s:s, s:f, s:o, s:o, s:o, s:o, s:[I,I,I], s:I, s:s, s:i, s:s, s:o}", "case", g->name, "index", x->index,
        "made_by", c->name, "predicted_s", x->predicted, run, numbers(x->seconds, x->n), "with_own_times_s", numbers(x->own, x->n),
        "busy_predicted_s", numbers(x->busy[0], QUEUES), "busy_measured_s", numbers(x->busy[1], QUEUES), "bytes", (json_int_t)c->bytes[0],
        (json_int_t)c->bytes[1], (json_int_t)c->bytes[2], "chunk_bytes", (json_int_t)c->plan.chunk_bytes, "arithmetic",
        g->device->info.arithmetic, "update", (int)c->plan.update, "date", date, "plan", record_plan(g, c));
    int failed = append(to->path, line, e);
    json_decref(line);
    return failed;
}

/* ---- a collection ---- */

/* The disk is as it stays once so much of it has been written. */
static int precondition(const char *folder, disk_file **file, pt_error *e)
{
    const uint64_t all = 2ull << 30, part = 16 << 20;
    disk_channel *channel = NULL;
    char *memory = aligned_alloc(DISK_ALIGN, part);
    if (!memory)
        return pt_fail(e, PT_FAILED, "no memory");
    memset(memory, 1, part);
    int failed = disk_open(folder, all, NULL, file, e);
    if (!failed)
        failed = disk_channel_open(*file, &channel, e);
    for (uint64_t at = 0; at < all && !failed; at += part)
        failed = disk_write(channel, at, memory, part, e);
    disk_channel_close(channel);
    free(memory);
    return failed;
}

static bool is_done(const char *path, const char *name, int index)
{
    bool found = false;
    FILE *f = fopen(path, "re");
    for (json_t *line; f && !found && (line = record_read(f));) {
        const char *case_name = json_string_value(json_object_get(line, "case"));
        found = case_name && !strcmp(case_name, name) && json_integer_value(json_object_get(line, "index")) == index &&
                json_object_get(line, "measured_s");
        json_decref(line);
    }
    if (f)
        fclose(f);
    return found;
}

static int make_plan(setting *g, int index, priced_plan *c, pt_error *e)
{
    source s = {(uint64_t)index, 0};
    int failed = one_in(&s, 3) ? made_plan(&s, g->search, c, e) : random_plan(&s, g->model, &g->shape, g->search.host_tier, c, e);
    if (!failed)
        failed = search_price(&g->search, c, e) == 1 ? 0 : PT_DOES_NOT_FIT;
    if (failed)
        priced_plan_free(c);
    return failed;
}

typedef struct group { priced_plan plans[GROUP]; member members[GROUP + 1]; int n; } group;

/* The next plans that FILE lacks and that fit, from number *next on. */
static int make_group(collection *c, int *next, group *x, pt_error *e)
{
    int failed = 0;
    *x = (group){.n = 0};
    for (; *next < c->plans && x->n < GROUP && !failed; ++*next) {
        if (is_done(c->path, c->g.name, *next))
            continue;
        if (!c->g.profiles_n && (failed = profile_alone(c, e)))
            return failed;
        failed = make_plan(&c->g, *next, &x->plans[x->n], e);
        if (!failed) {
            x->members[x->n] = (member){.index = *next, .plan = &x->plans[x->n]};
            x->n++;
        }
        failed = failed == PT_DOES_NOT_FIT ? 0 : failed;
    }
    return failed;
}

static bool settled(const member *m) { return quantile(m->seconds, m->n, 1) <= SETTLED * quantile(m->seconds, m->n, 0); }

/* Of all members, or after the usual rounds of those that are not settled. */
static int run_round(collection *c, int round, member *all, int n, pt_error *e)
{
    int failed = 0, runs = 0;
    for (int i = 0; i < n && !failed; i++) {
        member *m = &all[round % 2 ? n - 1 - i : i];
        if (round >= c->rounds && (m->n + c->steps > STEPS || settled(m)))
            continue;
        if (runs++ % PROFILE_EVERY == 0 && round + i > 0) /* there is one when it begins */
            failed = profile_alone(c, e);
        if (!failed)
            failed = run_member(c, m, e);
    }
    if (!failed && runs)
        printf("round %d: %d plans\n", round + 1, runs);
    fflush(stdout);
    return failed;
}

static int run_rounds(collection *c, member *all, int n, pt_error *e)
{
    int failed = 0;
    for (int round = 0; round < c->rounds + MORE_ROUNDS && !failed; round++)
        failed = run_round(c, round, all, n, e);
    return failed;
}

static int run_group(collection *c, group *x, pt_error *e)
{
    x->members[x->n] = (member){.index = x->members[0].index, .plan = x->members[0].plan};
    int failed = run_rounds(c, x->members, x->n + 1, e);
    json_t *group = failed ? NULL : record_group(&c->g, c->of);
    if (!failed)
        failed = append(c->path, group, e);
    json_decref(group);
    for (int i = 0; i <= x->n && !failed; i++) {
        member *m = &x->members[i];
        failed = plan_predict(&c->g, m->plan, &m->predicted, m->busy[0], e);
        if (!failed) {
            print_member(m);
            failed = note_member(c, m, i < x->n ? "measured_s" : "again_s", e);
        }
    }
    return failed;
}

static int collect(collection *c, pt_error *e)
{
    static group x;
    disk_file *written = NULL;
    int failed = precondition(c->g.folder, &written, e);
    for (int next = 0; next < c->plans && !failed;) {
        c->g.profiles_n = 0;
        failed = make_group(c, &next, &x, e);
        if (!failed && x.n)
            failed = run_group(c, &x, e);
        for (int i = 0; i < x.n; i++)
            priced_plan_free(&x.plans[i]);
    }
    disk_close(written);
    return failed;
}

/* ---- results ---- */

enum { PLANS_MAX = 1024 };
typedef struct results {
    char name[sizeof((setting *)0)->name];
    int n, again_n, index[PLANS_MAX];
    double predicted[PLANS_MAX], measured[PLANS_MAX];
    double ratio[WAYS][PLANS_MAX], error[WAYS][PLANS_MAX], noise[WAYS][PLANS_MAX]; /* ratio: measured over predicted */
} results;

/* What the steps took over what is said of them, in each of the ways. */
static void read_ratios(const json_t *line, const char *run, double ratio[WAYS])
{
    const json_t *seconds = json_object_get(line, run);
    const json_t *said[WAYS] = {NULL, json_object_get(line, "with_own_times_s")};
    const size_t steps = json_array_size(seconds), n = steps < STEPS ? steps : STEPS;
    for (int k = 0; k < WAYS; k++) {
        double v[STEPS];
        for (size_t i = 0; i < n; i++)
            v[i] = json_number_value(json_array_get(seconds, i)) /
                   json_number_value(said[k] ? json_array_get(said[k], i) : json_object_get(line, "predicted_s"));
        ratio[k] = quantile(v, (int)n, 0.5);
    }
}

static void add_noise(results *r, int index, const json_t *line)
{
    double again[WAYS];
    read_ratios(line, "again_s", again);
    for (int i = 0; i < r->n && r->again_n < PLANS_MAX; i++)
        if (r->index[i] == index) {
            for (int k = 0; k < WAYS; k++)
                r->noise[k][r->again_n] = fabs(again[k] / r->ratio[k][i] - 1);
            r->again_n++;
            return;
        }
}

static void add_line(results *r, const json_t *line)
{
    int index = (int)json_integer_value(json_object_get(line, "index")), n = r->n;
    double ratio[WAYS];
    if (json_object_get(line, "again_s")) {
        add_noise(r, index, line);
    } else if (n < PLANS_MAX) {
        read_ratios(line, "measured_s", ratio);
        r->index[n] = index;
        r->predicted[n] = json_number_value(json_object_get(line, "predicted_s"));
        r->measured[n] = r->predicted[n] * ratio[0];
        for (int k = 0; k < WAYS; k++) {
            r->ratio[k][n] = ratio[k];
            r->error[k][n] = fabs(1 / ratio[k] - 1);
        }
        r->n++;
    }
}

static double rank_of(const double *v, int n, int i)
{
    double rank = 0;
    for (int k = 0; k < n; k++)
        rank += v[k] < v[i] ? 1 : v[k] == v[i] && k != i ? 0.5 : 0;
    return rank;
}

/* Spearman's. */
static double rank_correlation(const results *r)
{
    double mean = (r->n - 1) / 2.0, ab = 0, aa = 0, bb = 0;
    for (int i = 0; i < r->n; i++) {
        double a = rank_of(r->predicted, r->n, i) - mean, b = rank_of(r->measured, r->n, i) - mean;
        ab += a * b;
        aa += a * a;
        bb += b * b;
    }
    return aa > 0 && bb > 0 ? ab / sqrt(aa * bb) : 0;
}

static void print_case(const results *r)
{
    static const char *const ways[WAYS] = {"as predicted", "with each step's own times"};
    printf("%s: %d plans, %.2f to %.2f s a step, rank correlation %.3f\n", r->name, r->n, quantile(r->measured, r->n, 0),
           quantile(r->measured, r->n, 1), rank_correlation(r));
    for (int k = 0; k < WAYS; k++)
        printf("    %-27s error median %5.1f%%, 95th percentile %5.1f%%; of a repeated plan %5.1f%%, %5.1f%%\n", ways[k],
               100 * quantile(r->error[k], r->n, 0.5), 100 * quantile(r->error[k], r->n, 0.95),
               100 * quantile(r->noise[k], r->again_n, 0.5),
               100 * quantile(r->noise[k], r->again_n, 0.95));
}

static int show(const char *path)
{
    enum { CASES = 32 };
    static results all[CASES];
    int n = 0;
    FILE *f = fopen(path, "re");
    if (!f) {
        perror(path);
        return 1;
    }
    for (json_t *line; (line = record_read(f)); json_decref(line)) {
        const char *name = json_string_value(json_object_get(line, "case"));
        int i = 0;
        while (name && i < n && strcmp(all[i].name, name))
            i++;
        if (name && i < CASES) {
            n = i == n ? n + 1 : n;
            snprintf(all[i].name, sizeof all[i].name, "%s", name);
            add_line(&all[i], line);
        }
    }
    fclose(f);
    for (int i = 0; i < n; i++) {
        print_case(&all[i]);
    }
    return 0;
}

static int again(const char *path)
{
    static setting g;
    static results one;
    pt_error e = {0};
    double now;
    int there = 0;
    FILE *f = fopen(path, "re");
    if (!f) {
        perror(path);
        return 1;
    }
    for (json_t *line; there >= 0 && (line = record_read(f)); json_decref(line)) {
        there = record_predict(&g, line, &now, &e);
        if (there <= 0)
            continue;
        one.n = 0;
        add_line(&one, line);
        printf("%d\t%.6f\t%.6f\t%.6f\n", one.index[0], one.measured[0], one.predicted[0], now);
    }
    fclose(f);
    return there < 0 ? refuse(&e) : 0;
}

static int usage(const char *name)
{
    fprintf(stderr,
            "usage: %s run FILE CONFIG BATCH SEQ_LEN UNIT_SEQS HOST_MEMORY PLANS [DISK_FOLDER [ROUNDSxSTEPS]]\n"
            "       %s show FILE\n"
            "       %s again FILE\n"
            "ROUNDSxSTEPS: 6x2 unless told, at most %d rounds and %d steps in all\n",
            name, name, name, ROUNDS, STEPS);
    return 2;
}

int main(int argc, char **argv)
{
    static collection c = {.rounds = 6, .steps = 2};
    pt_error e = {0};
    if (argc == 3 && !strcmp(argv[1], "show"))
        return show(argv[2]);
    if (argc == 3 && !strcmp(argv[1], "again"))
        return again(argv[2]);
    if (argc < 9 || argc > 11 || strcmp(argv[1], "run"))
        return usage(argv[0]);
    if (argc > 10 && (sscanf(argv[10], "%dx%d", &c.rounds, &c.steps) != 2 || c.rounds < 1 || c.rounds > ROUNDS ||
                      c.steps < 1 || c.steps > STEPS / c.rounds))
        return usage(argv[0]);
    c.path = argv[2];
    c.of = argv + 3;
    c.plans = atoi(argv[8]);
    c.lock = open(c.path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (c.lock < 0) {
        perror(c.path);
        return 1;
    }
    if (setting_open(&c.g, argv + 3, argc > 9 ? argv[9] : ".", &e) || collect(&c, &e))
        return refuse(&e);
    return show(c.path);
}
