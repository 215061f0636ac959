/* A run whose states on the disk have two slots goes on from its last committed step, without checkpoints: after it was killed, lost what
 * was not durable, or its newest record or states were damaged; with other plans, optimizers, or ranks. It ends in the same bits as one
 * that was left alone, and leaves nothing behind.
 *
 * PT_KILLS=n kills n times, PT_LOSSES=n loses power n times, instead of the default. */
#include "protrain.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "sanitized.h"
#include "task/task.h"
#include "train/experts_model.h"
#include "train/same_end.h"

#include "train/plan_file.h"

#include "program.h"
#include "run/slots_parts.h"

#include "faults/fault.h"

#include <sys/file.h>

enum { STEPS = 12, DEFAULT_KILLS = THREADS_SANITIZED ? 2 : 6, DEFAULT_LOSSES = 6 };

static random_source the_random;
static char model_path[512], tokens[600], plan_path[128];
static const optimizer *the_optimizer = &optimizer_adamw;
static bool frozen, clips = true, by_ranges; /* of experts */
static const char *const frozen_patterns[] = {"model.embed_tokens.weight", "model.layers.0.*"};

static const char *err_path(void) { return scratch_path("err"); }

/* A random plan with states on the disk. */
static void make_plan(bool all, bool host_tier)
{
    pt_error e = {0};
    model *m;
    must(model_open(model_path, NULL, NULL, &m, &e), &e);
    if (frozen)
        must(model_freeze(m, &(model_freezing){.freeze = frozen_patterns, .freeze_n = 2}, &e), &e);
    step_shape shape;
    packing k;
    step_shape_init(&shape, m, PT_BF16, 4, 32);
    if (on_gpu())
        step_shape_for_gpu(&shape, m);
    shape.optimizer = the_optimizer;
    for (bool good = false; !good;) {
        plan p;
        uint64_t on_disk, elsewhere;
        must(random_packing(&the_random, m, &shape, &k, &e), &e);
        must(random_plan(&the_random, m, &shape, &k, clips, host_tier, &p, &e), &e);
        for (int i = 0; i < p.chunks_n && all; i++)
            p.chunks[i].placement = TIER_DISK;
        const schedule_input in = {.model = m, .shape = &shape, .packing = &k, .plan = &p, .training = true, .host_tier = host_tier};
        slots_count(&in, &on_disk, &elsewhere);
        good = on_disk && (p.ranges || !by_ranges) && plan_can_be_built(m, &shape, &k, &p, host_tier);
        char *json = plan_to_json(&p, m, &shape);
        must(file_write_atomic(plan_path, json, strlen(json), &e), &e);
        free(json);
        plan_free(&p);
        packing_free(&k);
    }
    model_close(m);
}

static void choose_model(const char *name)
{
    snprintf(model_path, sizeof model_path, "%s/%s", fixtures_root(), name);
    snprintf(tokens, sizeof tokens, "%s/tokens.npy", model_path);
}

static int open_all(void **state)
{
    the_random = random_open();
    if (scratch_make(state))
        return 1;
    choose_model("bf16/llama");
    snprintf(plan_path, sizeof plan_path, "%s/plan.json", scratch);
    return put_experts_model(scratch_path("experts"), NULL);
}

/* ---- runs ---- */

/* `from`: the checkpoint to continue from. ranks: that many; then there is no plan. */
typedef struct circumstances {
    const char *slots, *disk_memory, *disk_path, *steps, *model, *save_every, *from, *ranks, *lanes;
    bool resume, host_tier;
} circumstances;

static arguments arguments_of(const char *out, const circumstances *c)
{
    arguments a = {0};
    static char steps[8];
    snprintf(steps, sizeof steps, "%d", STEPS);
    add_arguments(&a, (const char *const[]){"train", "--model", c->model ? c->model : model_path, "--data", tokens, "--out", out,
                                            "--seq-len", "32", "--batch-size", "4", "--lr", "1e-3", "--lr-schedule", "constant",
                                            "--weight-decay", "0.1", "--steps", c->steps ? c->steps : steps, "--device", run_device(),
                                            "--device-memory", "64MiB", "--disk-memory",
                                            c->disk_memory ? c->disk_memory : "64MiB", "--machine",
                                            on_gpu() ? PT_FIXTURES "/../../machines/rtx3090.json"
                                                     : PT_FIXTURES "/../../machines/laptop16.json",
                                            "--optimizer", the_optimizer->name, "--max-grad-norm", clips ? "1" : "0", "--quiet", NULL});
    if (c->ranks)
        add_arguments(&a, (const char *const[]){"--ranks", c->ranks, NULL});
    else
        add_arguments(&a, (const char *const[]){"--plan", plan_path, NULL});
    if (c->slots)
        add_arguments(&a, (const char *const[]){"--disk-slots", c->slots, NULL});
    if (the_optimizer == &optimizer_apollo || the_optimizer == &optimizer_galore)
        add_arguments(&a, (const char *const[]){"--optimizer-args", "rank=3,update_proj_gap=5", NULL});
    if (the_optimizer == &optimizer_apollo8bit || the_optimizer == &optimizer_galore8bit) /* of a smaller rank they would have no codes */
        add_arguments(&a, (const char *const[]){"--optimizer-args", "update_proj_gap=5", NULL});
    if (frozen)
        add_arguments(&a, (const char *const[]){"--freeze", frozen_patterns[0], "--freeze", frozen_patterns[1], NULL});
    if (c->host_tier)
        add_arguments(&a, (const char *const[]){"--host-memory", "64MiB", NULL});
    if (c->lanes)
        add_arguments(&a, (const char *const[]){"--lanes", c->lanes, NULL});
    if (c->disk_path)
        add_arguments(&a, (const char *const[]){"--disk-path", c->disk_path, NULL});
    if (c->save_every)
        add_arguments(&a, (const char *const[]){"--save-every", c->save_every, "--keep", "0", NULL});
    if (c->from)
        add_arguments(&a, (const char *const[]){"--resume", c->from, NULL});
    else if (c->resume)
        add_argument(&a, "--resume");
    return a;
}

static int start(const char *out, const circumstances *c)
{
    const arguments a = arguments_of(out, c);
    return program_wait(program_start(&a, "/dev/null", err_path()));
}

static void must_end(const char *out, const circumstances *c)
{
    if (start(out, c))
        fail_msg("%s: %s", out, text_of(err_path()));
}

/* The run that the others must end like; its states have one slot. */
static const char *straight_run(void)
{
    static char out[128];
    pt_error e = {0};
    snprintf(out, sizeof out, "%s/straight", scratch);
    must(tree_remove(out, &e), &e);
    make_plan(true, false);
    must_end(out, &(circumstances){.slots = "1"});
    return out;
}

/* What depends on the run alone: everything up to the times. */
static void assert_same_metrics(const char *a, const char *b)
{
    char x[FILE_PATH_BYTES], y[FILE_PATH_BYTES];
    FILE *f[2];
    snprintf(x, sizeof x, "%s/metrics.jsonl", a);
    snprintf(y, sizeof y, "%s/metrics.jsonl", b);
    f[0] = fopen(x, "r");
    f[1] = fopen(y, "r");
    assert_true(f[0] && f[1]);
    for (int step = 1; step <= STEPS; step++) {
        char line[2][4096];
        for (int i = 0; i < 2; i++) {
            assert_non_null(fgets(line[i], sizeof line[i], f[i]));
            char *end = strstr(line[i], ",\"step_s\"");
            assert_non_null(end);
            *end = 0;
        }
        assert_string_equal(line[0], line[1]);
    }
    fclose(f[0]);
    fclose(f[1]);
}

/* The same bits, and neither states nor records are left. */
static void assert_good_end(const char *straight, const char *out)
{
    char path[300];
    assert_same_end(straight, out, STEPS);
    assert_same_metrics(straight, out);
    snprintf(path, sizeof path, "%s/disk", out);
    assert_false(path_exists(path));
    snprintf(path, sizeof path, "%s/committed", out);
    assert_false(path_exists(path));
}

static int wanted(const char *name, int otherwise) { return getenv(name) ? atoi(getenv(name)) : otherwise; }

/* ---- killed ---- */

static double own_seconds(const char *out, const circumstances *c)
{
    pt_error e = {0};
    const double begin = seconds_now();
    must_end(out, c);
    const double seconds = seconds_now() - begin;
    must(tree_remove(out, &e), &e);
    return seconds;
}

/* Kills a run until it has come to its end; each start may have another plan. */
static int kill_until_it_ends(const char *out, double seconds, int most)
{
    for (int kills = 0;; kills++) {
        const bool host_tier = random_one_in(&the_random, 3);
        if (random_one_in(&the_random, 2))
            make_plan(random_one_in(&the_random, 2), host_tier);
        else
            make_plan(true, false);
        const circumstances c = {.resume = true, .slots = "2", .host_tier = host_tier,
                                 .save_every = random_one_in(&the_random, 3) ? "3" : NULL};
        const arguments a = arguments_of(out, &c);
        const double share = (double)random_below(&the_random, 10000) / 10000;
        const int status = program_kill_after(program_start(&a, "/dev/null", err_path()), kills < most ? share * seconds : 60);
        if (!status)
            return kills;
        if (status != 256 + SIGKILL)
            fail_msg("%s: exit status %d: %s", out, status, text_of(err_path()));
    }
}

static void kill_and_compare(int most)
{
    char out[128];
    pt_error e = {0};
    snprintf(out, sizeof out, "%s/killed", scratch);
    const char *straight = straight_run();
    const double seconds = own_seconds(out, &(circumstances){.slots = "2"});
    int kills = 0, runs = 0;
    for (; kills < most; runs++) {
        kills += kill_until_it_ends(out, seconds, most - kills);
        assert_good_end(straight, out);
        must(tree_remove(out, &e), &e);
    }
    printf("%s, %s%s, %s: %d runs killed %d times: the same bits\n", strrchr(model_path, '/') + 1, the_optimizer->name,
           frozen ? ", some frozen" : "", clips ? "clipping" : "no clipping", runs, kills);
}

static void a_killed_run_continues_from_its_last_committed_step(void **state)
{
    (void)state;
    int n = 0;
    while (optimizers[n])
        n++;
    const int first = random_below(&the_random, n), kinds = THREADS_SANITIZED ? 1 : 5;
    for (int i = 0; i < kinds; i++) {
        choose_model(i < 4 ? "bf16/llama" : "models/gemma4_shared"); /* whose table of inputs is looked up in the slots */
        the_optimizer = i ? optimizers[(first + i) % n] : &optimizer_adamw;
        frozen = i % 2;
        clips = i != 2;
        by_ranges = i == 3;
        if (by_ranges) {
            snprintf(model_path, sizeof model_path, "%s/experts", scratch);
            the_optimizer = random_one_in(&the_random, 2) ? &optimizer_adamw : &optimizer_adamw8bit;
        }
        kill_and_compare((wanted("PT_KILLS", DEFAULT_KILLS) + kinds - 1) / kinds);
    }
    choose_model("bf16/llama");
    the_optimizer = &optimizer_adamw;
    frozen = false;
    clips = true;
}

/* ---- damaged files ---- */

static void path_of_states(const char *out, char path[FILE_PATH_BYTES])
{
    char folder[300];
    struct dirent **entries;
    snprintf(folder, sizeof folder, "%s/disk", out);
    const int n = scandir(folder, &entries, NULL, alphasort);
    path[0] = 0;
    for (int i = 0; i < n; i++) {
        if (strstr(entries[i]->d_name, "states-"))
            snprintf(path, FILE_PATH_BYTES, "%s/%s", folder, entries[i]->d_name);
        free(entries[i]);
    }
    free(entries);
    assert_true(path[0]);
}

/* Kills a run of many steps after some of them. */
static void leave_slots(const char *out, const circumstances *as)
{
    char path[400];
    circumstances c = *as;
    c.steps = "100000";
    snprintf(path, sizeof path, "%s/metrics.jsonl", out);
    const arguments a = arguments_of(out, &c);
    const pid_t child = program_start(&a, "/dev/null", err_path());
    struct stat st;
    for (int i = 0; i < 6000 && (stat(path, &st) || st.st_size < 4096); i++)
        sleep_seconds(0.01);
    kill(child, SIGKILL);
    assert_int_equal(program_wait(child), 256 + SIGKILL);
}

static void leave_commits(const char *out, const circumstances *as)
{
    circumstances c = *as;
    c.slots = "2";
    leave_slots(out, &c);
}

static int64_t step_of(const char *path)
{
    slots_view *v;
    pt_error e = {0};
    must(slots_view_open(path, &v, &e), &e);
    const int64_t step = v ? slots_view_step(v) : -1;
    slots_view_close(v);
    return step;
}

static void flip(const char *path, uint64_t at)
{
    const int fd = open(path, O_RDWR);
    unsigned char byte;
    assert_int_equal(pread(fd, &byte, 1, (off_t)at), 1);
    byte ^= (unsigned char)(1 << random_below(&the_random, 8));
    assert_int_equal(pwrite(fd, &byte, 1, (off_t)at), 1);
    close(fd);
}

/* Both records of a file; [0] is the newer one. */
static slots_header read_records(const char *path, uint64_t at[2])
{
    char block[DISK_ALIGN];
    slots_header h;
    struct stat st;
    record_head head[2];
    const int fd = open(path, O_RDONLY);
    assert_int_equal(fstat(fd, &st), 0);
    assert_int_equal(pread(fd, block, sizeof block, 0), sizeof block);
    assert_true(slots_header_parse(block, (uint64_t)st.st_size, &h));
    for (uint64_t i = 0; i < 2; i++)
        assert_int_equal(pread(fd, &head[i], sizeof head[i], (off_t)slots_record_at(h.record_bytes, i)), sizeof head[i]);
    close(fd);
    at[0] = head[1].sequence > head[0].sequence;
    at[1] = !at[0];
    for (int i = 0; i < 2; i++)
        at[i] = slots_record_at(h.record_bytes, at[i]);
    return h;
}

static void a_damaged_record_or_state_is_never_taken(void **state)
{
    (void)state;
    char out[128], path[FILE_PATH_BYTES];
    uint64_t at[2];
    pt_error e = {0};
    snprintf(out, sizeof out, "%s/damaged", scratch);
    make_plan(true, false);
    leave_commits(out, &(circumstances){0});
    path_of_states(out, path);
    const int64_t step = step_of(path);
    assert_true(step > 2);
    const slots_header h = read_records(path, at);
    const uint64_t used = sizeof(record_head) + h.regions_n * sizeof(record_region) + 200; /* and some of its text */
    flip(path, at[0] + (uint64_t)random_below(&the_random, (int)used));
    const int64_t before = step_of(path); /* the step that was killed may have written to its slots */
    assert_true(before == step - 1 || before == -1);
    flip(path, at[1] + (uint64_t)random_below(&the_random, (int)used));
    assert_int_equal(step_of(path), -1);
    must(tree_remove(out, &e), &e);
    leave_commits(out, &(circumstances){0}); /* both slots of all states: neither commit is whole */
    path_of_states(out, path);
    read_records(path, at);
    assert_true(step_of(path) > 2);
    const uint64_t begin = DISK_ALIGN + 2 * h.record_bytes, half = (h.file_bytes - begin) / 2;
    const uint64_t offset = (uint64_t)random_below(&the_random, (int)half) / DISK_ALIGN * DISK_ALIGN;
    for (uint64_t b = begin; b < h.file_bytes; b += DISK_ALIGN) /* every block of the file has states of one of the two */
        flip(path, b + offset % DISK_ALIGN);
    assert_int_equal(step_of(path), -1);
    must(tree_remove(out, &e), &e);
}

/* ---- lost writes ---- */

/* How many calls a run makes that write states with two slots or make them durable. */
static int count_calls(const char *out, const char *what)
{
    pt_error e = {0};
    fault_lose_power(1 << 30, 1, what); /* never */
    must_end(out, &(circumstances){.slots = "2"});
    fault_clear();
    must(tree_remove(out, &e), &e);
    assert_true(fault_count() >= STEPS - 1);
    return fault_count();
}

/* At most the step on the way and the one before are computed again. */
static void assert_little_is_lost(const char *out)
{
    char path[FILE_PATH_BYTES], line[4096];
    long long last = 0;
    snprintf(path, sizeof path, "%s/metrics.jsonl", out);
    FILE *f = fopen(path, "r");
    while (f && fgets(line, sizeof line, f))
        sscanf(line, "{\"step\":%lld", &last);
    if (f)
        fclose(f);
    if (last < 2)
        return;
    path_of_states(out, path);
    if (step_of(path) < last - 1)
        fail_msg("step %lld was done, and the last commit is of step %lld", last, (long long)step_of(path));
}

/* Returns how often it lost power. */
static int lose_until_it_ends(const char *out, const char *what, int calls, bool all_on_disk)
{
    for (int lost = 0;; lost++) {
        fault_lose_power(1 + random_below(&the_random, calls), (long)random_bits(&the_random), what);
        const int status = start(out, &(circumstances){.resume = true, .slots = "2"});
        fault_clear();
        if (!status)
            return lost;
        if (status != 256 + SIGKILL)
            fail_msg("exit status %d: %s", status, text_of(err_path()));
        if (all_on_disk)
            assert_little_is_lost(out);
    }
}

static void a_run_that_loses_power_continues_from_its_last_committed_step(void **state)
{
    (void)state;
    if (!SHIM_WORKS)
        skip();
    char out[128];
    pt_error e = {0};
    snprintf(out, sizeof out, "%s/lost", scratch);
    const int losses = wanted("PT_LOSSES", DEFAULT_LOSSES);
    int lost = 0, runs = 0;
    for (; lost < losses || runs < 3; runs++) {
        const char *what = runs % 2 ? "sync" : "any", *straight;
        clips = random_one_in(&the_random, 2);
        straight = straight_run();
        if (runs % 3 == 2)
            make_plan(false, false);
        lost += lose_until_it_ends(out, what, count_calls(out, what), runs % 3 != 2);
        assert_good_end(straight, out);
        must(tree_remove(out, &e), &e);
    }
    clips = true;
    printf("%d runs lost power %d times: the same bits\n", runs, lost);
}

/* ---- circumstances ---- */

static void one_slot_leaves_no_commit_and_continues_from_one(void **state)
{
    (void)state;
    char out[128], path[300];
    pt_error e = {0};
    const char *straight = straight_run();
    snprintf(out, sizeof out, "%s/one", scratch);
    must_end(out, &(circumstances){.slots = "1", .steps = "3"});
    snprintf(path, sizeof path, "%s/disk", out);
    assert_false(path_exists(path));
    must(tree_remove(out, &e), &e);
    kill_until_it_ends(out, 0.3, 2);
    assert_good_end(straight, out);
    must(tree_remove(out, &e), &e);
}

static void a_later_commit_is_dropped_with_an_older_checkpoint(void **state)
{
    (void)state;
    char out[128], from[200], path[300];
    pt_error e = {0};
    const char *straight = straight_run();
    snprintf(out, sizeof out, "%s/older", scratch);
    snprintf(from, sizeof from, "%s/checkpoint-2", out);
    leave_commits(out, &(circumstances){.save_every = "2"});
    for (int i = 0; i < 2; i++) { /* from there to step 3, and then to the end */
        const circumstances c = {.slots = "1", .from = i ? NULL : from, .resume = true, .steps = i ? NULL : "3"};
        must_end(out, &c);
        snprintf(path, sizeof path, "%s/committed", out);
        assert_false(path_exists(path));
    }
    assert_good_end(straight, out);
    must(tree_remove(out, &e), &e);
}

static void several_ranks_continue_from_a_commit_of_one(void **state)
{
    (void)state;
    char straight[128], out[128];
    pt_error e = {0};
    if (on_gpu())
        skip();
    snprintf(straight, sizeof straight, "%s/one-rank", scratch);
    snprintf(out, sizeof out, "%s/ranks", scratch);
    for (int i = 0; i < 2; i++) {
        frozen = i;
        make_plan(true, false);
        must_end(straight, &(circumstances){.slots = "1", .lanes = "2", .steps = "400"});
        const arguments a = arguments_of(out, &(circumstances){.slots = "2", .lanes = "2", .steps = "400"});
        char path[200];
        struct stat st;
        snprintf(path, sizeof path, "%s/metrics.jsonl", out);
        const pid_t child = program_start(&a, "/dev/null", err_path());
        for (int wait = 0; wait < 6000 && (stat(path, &st) || st.st_size < 4096); wait++)
            sleep_seconds(0.01);
        kill(child, SIGKILL);
        assert_int_equal(program_wait(child), 256 + SIGKILL);
        must_end(out, &(circumstances){.lanes = "2", .ranks = "2", .resume = true, .steps = "400"});
        if (!strstr(text_of(err_path()), "continuing from"))
            fail_msg("%s", text_of(err_path()));
        assert_same_end(straight, out, 400);
        must(tree_remove(straight, &e), &e);
        must(tree_remove(out, &e), &e);
    }
    frozen = false;
}

static void copy_file(const char *from, const char *to)
{
    pt_error e = {0};
    must(file_copy_atomic(from, to, &e), &e);
}

/* Files of slots that states.json does not name: the run was killed before it wrote that, or the disk tier is elsewhere now. */
static void what_killed_runs_leave_is_removed_but_not_what_is_in_use(void **state)
{
    (void)state;
    char out[128], folder[200], elsewhere[200], committed[200], path[FILE_PATH_BYTES], used[FILE_PATH_BYTES + 8];
    pt_error e = {0};
    snprintf(out, sizeof out, "%s/left", scratch);
    snprintf(folder, sizeof folder, "%s/disk", out);
    snprintf(elsewhere, sizeof elsewhere, "%s/elsewhere", scratch);
    for (int i = 0; i < 2; i++) {
        make_plan(true, false);
        leave_commits(out, &(circumstances){0});
        path_of_states(out, path);
        snprintf(used, sizeof used, "%s-used", path);
        copy_file(path, used);
        snprintf(committed, sizeof committed, "%s/committed", out);
        must(tree_remove(committed, &e), &e);
        const int fd = open(used, O_RDONLY);
        assert_int_equal(flock(fd, LOCK_SH), 0);
        must_end(out, &(circumstances){.resume = true, .slots = i ? "2" : "1", .disk_path = i ? elsewhere : NULL});
        assert_false(path_exists(path));
        assert_true(path_exists(used));
        close(fd);
        must(tree_remove(out, &e), &e);
        must(tree_remove(elsewhere, &e), &e);
    }
    make_plan(true, false);
    leave_slots(out, &(circumstances){.slots = "1"});
    assert_true(path_exists(folder));
    must_end(out, &(circumstances){.resume = true, .slots = "1", .disk_path = elsewhere});
    assert_false(path_exists(folder));
    must(tree_remove(out, &e), &e);
    must(tree_remove(elsewhere, &e), &e);
}

static void frozen_weights_that_have_changed_are_refused(void **state)
{
    (void)state;
    char out[128], copy[128], from[600], to[300];
    static const char *const files[] = {"config.json", "model.safetensors"};
    pt_error e = {0};
    snprintf(out, sizeof out, "%s/changed", scratch);
    snprintf(copy, sizeof copy, "%s/model", scratch);
    must(dir_make(copy, &e), &e);
    for (int i = 0; i < 2; i++) {
        snprintf(from, sizeof from, "%s/%s", model_path, files[i]);
        snprintf(to, sizeof to, "%s/%s", copy, files[i]);
        must(file_copy_atomic(from, to, &e), &e);
    }
    frozen = true;
    make_plan(true, false);
    leave_commits(out, &(circumstances){.model = copy});
    struct stat st;
    assert_int_equal(stat(to, &st), 0);
    for (uint64_t at = (uint64_t)st.st_size / 4; at < (uint64_t)st.st_size; at += 997) /* frozen ones among them */
        flip(to, at);
    assert_int_equal(start(out, &(circumstances){.model = copy, .resume = true, .slots = "2", .steps = "100000"}), 1);
    if (!strstr(text_of(err_path()), "that are not trained have changed since step"))
        fail_msg("%s", text_of(err_path()));
    frozen = false;
    must(tree_remove(out, &e), &e);
}

static void room_for_two_slots_is_checked_before_the_first_step(void **state)
{
    (void)state;
    char out[128];
    pt_error e = {0};
    snprintf(out, sizeof out, "%s/room", scratch);
    make_plan(true, false);
    assert_int_equal(start(out, &(circumstances){.slots = "2", .disk_memory = "2500KiB"}), 3);
    if (!strstr(text_of(err_path()), "two slots of each state take") || !strstr(text_of(err_path()), "--disk-slots 1"))
        fail_msg("%s", text_of(err_path()));
    assert_false(path_exists(out));
    must_end(out, &(circumstances){.disk_memory = "2500KiB"});
    if (!strstr(text_of(err_path()), "steps are not committed"))
        fail_msg("%s", text_of(err_path()));
    must(tree_remove(out, &e), &e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_killed_run_continues_from_its_last_committed_step),
        cmocka_unit_test(a_run_that_loses_power_continues_from_its_last_committed_step),
        cmocka_unit_test(a_damaged_record_or_state_is_never_taken),
        cmocka_unit_test(one_slot_leaves_no_commit_and_continues_from_one),
        cmocka_unit_test(a_later_commit_is_dropped_with_an_older_checkpoint),
        cmocka_unit_test(several_ranks_continue_from_a_commit_of_one),
        cmocka_unit_test(what_killed_runs_leave_is_removed_but_not_what_is_in_use),
        cmocka_unit_test(frozen_weights_that_have_changed_are_refused),
        cmocka_unit_test(room_for_two_slots_is_checked_before_the_first_step),
    };
    return cmocka_run_group_tests(tests, open_all, scratch_remove);
}
