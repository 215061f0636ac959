/* The disk that a run writes to: what it will need is known before, and a disk that fills up loses nothing. */
#include "protrain.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "sanitized.h"
#include "train/apart.h"
#include "train/fixture.h"
#include "train/checkpoint.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

static void note(void *arg, const char *sentence)
{
    size_t n = strlen(arg);
    snprintf((char *)arg + n, 1024 - n, "%s\n", sentence);
}

static uint64_t bytes_in(const char *folder, bool below)
{
    struct dirent **entries;
    struct stat st;
    char path[700];
    uint64_t sum = 0;
    int n = scandir(folder, &entries, NULL, alphasort);
    for (int i = 0; i < n; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, entries[i]->d_name);
        if (entries[i]->d_name[0] != '.' && stat(path, &st) == 0)
            sum += !S_ISDIR(st.st_mode) ? (uint64_t)st.st_size : below ? bytes_in(path, below) : 0;
        free(entries[i]);
    }
    free(entries);
    return sum;
}

/* Foreseen: not less than what is written, and not much more. */
static void what_a_run_will_write_is_known_before(void **state)
{
    (void)state;
    static const struct { const char *kind, *name; pt_save_type type; } cases[] = {
        {"bf16", "gpt2", PT_SAVE_F32}, {"bf16", "gpt2", PT_SAVE_BF16}, {"models", "llama_bf16", PT_SAVE_AS_STORED},
        {"models", "mistral3", PT_SAVE_BF16}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fixture f;
        pt_error e = {0};
        pt_train_options o;
        pt_trainer *t;
        pt_step s;
        char out[128], path[160];
        snprintf(out, sizeof out, "%s/known-%zu", scratch, i);
        fixture_open(&f, cases[i].kind, cases[i].name);
        fixture_options(&f, (const char *const[]){f.tokens}, out, &o);
        o.steps = 4;
        o.save_every = 1;
        o.keep = i ? 2 : 0;
        o.save_type = cases[i].type;
        must(pt_trainer_open(&o, &t, &e), &e);
        room_need r = checkpoint_room(t);
        assert_int_equal(r.checkpoints, i ? 3 : 4); /* a third one for a moment */
        while (pt_trainer_step(t, &s, &e) > 0)
            ;
        snprintf(path, sizeof path, "%s/checkpoint-4", out);
        uint64_t checkpoint = bytes_in(path, true), before = bytes_in(out, false);
        must(pt_trainer_finish(t, &e), &e);
        uint64_t model = bytes_in(out, false) - before;
        if (r.checkpoint_bytes < checkpoint || r.checkpoint_bytes > checkpoint + (128 << 10))
            fail_msg("%s: a checkpoint takes %llu bytes and %llu were foreseen", cases[i].name, (unsigned long long)checkpoint,
                     (unsigned long long)r.checkpoint_bytes);
        if (r.model_bytes < model || r.model_bytes > model + (64 << 10))
            fail_msg("%s: the model takes %llu bytes and %llu were foreseen", cases[i].name, (unsigned long long)model,
                     (unsigned long long)r.model_bytes);
        assert_int_equal(checkpoint_room(t).checkpoints, 0);
        pt_trainer_close(t);
        fixture_close(&f);
    }
}

/* Nothing but complete checkpoints under final names, nothing temporary left. */
static int folder_is_clean(const char *folder)
{
    struct dirent **entries;
    int n = scandir(folder, &entries, NULL, alphasort), dirty = 0;
    for (int i = 0; i < n; i++) {
        char path[600];
        snprintf(path, sizeof path, "%s/%s/trainer/trainer.json", folder, entries[i]->d_name);
        bool is_checkpoint = strncmp(entries[i]->d_name, "checkpoint-", 11) == 0;
        if (strstr(entries[i]->d_name, ".tmp") || (is_checkpoint && !path_exists(path)))
            dirty++;
        free(entries[i]);
    }
    free(entries);
    return !dirty;
}

/* On the small disk: exit status 0 if saving failed as it should, 2 if the disk was large enough, 6 where the run was refused. */
static int train_on_small_disk(const char *folder)
{
    fixture f;
    pt_error e = {0};
    pt_train_options o;
    pt_trainer *t;
    pt_step s;
    char out[256], checkpoint[300], noted[1024] = "";
    int more = 1;
    fixture_open(&f, "bf16", "gpt2");
    snprintf(out, sizeof out, "%s/run", folder);
    fixture_options(&f, (const char *const[]){f.tokens}, out, &o);
    o.disk_memory = 0;
    o.steps = 4;
    o.save_every = 2;
    o.notice = note;
    o.arg = noted;
    int failed = pt_trainer_open(&o, &t, &e);
    if (failed == PT_DOES_NOT_FIT && strstr(e.text, "checkpoint"))
        return 6;
    if (failed)
        return fprintf(stderr, "%s\n", e.text), 3;
    while (more > 0)
        more = pt_trainer_step(t, &s, &e);
    pt_trainer_close(t);
    if (more == 0)
        return 2;
    if (!strstr(noted, "`keep`")) /* it was foreseen */
        return fprintf(stderr, "no notice\n"), 7;
    snprintf(checkpoint, sizeof checkpoint, "%s/checkpoint-2/trainer/trainer.json", out);
    if (s.step != 4 || !strstr(e.text, "checkpoint-4") || !strstr(e.text, "make room") || !strstr(e.text, "checkpoint-2 is complete") ||
        !folder_is_clean(out) || !path_exists(checkpoint))
        return fprintf(stderr, "step %d: %s\n", (int)s.step, e.text), 4;
    o.resume = true;
    if (mount("small", folder, "tmpfs", MS_REMOUNT, "size=8m")) /* room is made */
        return perror(folder), 8;
    if (pt_trainer_open(&o, &t, &e))
        return fprintf(stderr, "%s\n", e.text), 5;
    while ((more = pt_trainer_step(t, &s, &e)) > 0)
        ;
    pt_trainer_close(t);
    snprintf(checkpoint, sizeof checkpoint, "%s/checkpoint-4/trainer/trainer.json", out);
    if (more || !path_exists(checkpoint))
        return fprintf(stderr, "%s\n", e.text), 9;
    fixture_close(&f);
    return 0;
}

static void a_full_disk_loses_nothing(void **state)
{
    (void)state;
    int full = 0, refused = 0;
    for (size_t kib = 700; kib <= 3100; kib += SANITIZED ? 400 : 200) {
        int status = on_small_disk(kib << 10, train_on_small_disk);
        if (status < 0) {
            printf("skipped: no file system can be mounted here\n");
            skip();
        }
        if (status != 0 && status != 2 && status != 6)
            fail_msg("a disk of %zu KiB: status %d", kib, status);
        full += status == 0;
        refused += status == 6;
    }
    assert_true(full >= (SANITIZED ? 2 : 3) && refused >= (SANITIZED ? 1 : 2));
}

/* 0 where the run goes on although its first checkpoint cannot be removed. */
static int keep_what_is_in_use(const char *folder)
{
    fixture f;
    pt_error e = {0};
    pt_train_options o;
    pt_trainer *t;
    pt_step s;
    char out[256], used[300], noted[1024] = "";
    fixture_open(&f, "bf16", "gpt2");
    snprintf(out, sizeof out, "%s/run", folder);
    snprintf(used, sizeof used, "%s/checkpoint-1/in-use", out);
    fixture_options(&f, (const char *const[]){f.tokens}, out, &o);
    o.disk_memory = 0;
    o.save_every = o.keep = 1;
    o.steps = 2;
    o.notice = note;
    o.arg = noted;
    if (pt_trainer_open(&o, &t, &e) || pt_trainer_step(t, &s, &e) != 1)
        return fprintf(stderr, "%s\n", e.text), 1;
    if (dir_make(used, &e) || mount("none", used, "tmpfs", 0, NULL))
        return perror(used), 2;
    if (pt_trainer_step(t, &s, &e) != 1)
        return fprintf(stderr, "%s\n", e.text), 3;
    pt_trainer_close(t);
    snprintf(used, sizeof used, "%s/checkpoint-2/trainer/trainer.json", out);
    fixture_close(&f);
    return path_exists(used) && strstr(noted, "an older checkpoint could not be removed") ? 0 : 4;
}

static void a_checkpoint_that_cannot_be_removed_does_not_end_the_run(void **state)
{
    (void)state;
    int status = on_small_disk(64 << 20, keep_what_is_in_use);
    if (status < 0) {
        printf("skipped: no file system can be mounted here\n");
        skip();
    }
    assert_int_equal(status, 0);
}

/* Takes a run to its end where there is little room, and a second one that ends a step after its last checkpoint. */
static int end_with_little_room(const char *folder)
{
    fixture f;
    pt_error e = {0};
    pt_train_options o;
    char out[256], noted[1024];
    fixture_open(&f, "bf16", "gpt2");
    for (int after = 0; after < 2; after++) {
        snprintf(out, sizeof out, "%s/run-%d", folder, after);
        fixture_options(&f, (const char *const[]){f.tokens}, out, &o);
        o.disk_memory = 0;
        o.steps = 4 + after;
        o.save_every = 2;
        o.keep = 1;
        o.notice = note;
        o.arg = noted;
        noted[0] = 0;
        if (train_to(&o, o.steps, &e))
            return fprintf(stderr, "%s\n", e.text), 1;
        if (!strstr(noted, "of the last step") != !after || !strstr(noted, "continues from checkpoint-4") != !after)
            return fprintf(stderr, "after %d: %s\n", after, noted), 2;
    }
    fixture_close(&f);
    return 0;
}

static void the_end_says_from_which_checkpoint_a_longer_run_continues(void **state)
{
    (void)state;
    int status = on_small_disk(16 << 20, end_with_little_room);
    if (status < 0) {
        printf("skipped: no file system can be mounted here\n");
        skip();
    }
    assert_int_equal(status, 0);
}

/* A line that finds no room leaves no part of it, and the next ones are written again. */
static void a_line_of_metrics_without_room_leaves_nothing(void **state)
{
    (void)state;
    fixture f;
    pt_error e = {0};
    pt_train_options o;
    pt_trainer *t;
    pt_step s;
    struct stat st;
    struct rlimit all, little;
    char out[128], path[160], *text;
    size_t n, lines = 0;
    snprintf(out, sizeof out, "%s/metrics", scratch);
    snprintf(path, sizeof path, "%s/metrics.jsonl", out);
    fixture_open(&f, "models", "gpt2");
    fixture_options(&f, (const char *const[]){f.tokens}, out, &o);
    o.steps = 3;
    must(pt_trainer_open(&o, &t, &e), &e);
    assert_int_equal(pt_trainer_step(t, &s, &e), 1);
    assert_int_equal(stat(path, &st), 0);
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &all);
    little = (struct rlimit){(rlim_t)st.st_size + 5, all.rlim_max};
    setrlimit(RLIMIT_FSIZE, &little);
    int failed = pt_trainer_step(t, &s, &e);
    setrlimit(RLIMIT_FSIZE, &all);
    assert_true(failed < 0);
    assert_non_null(strstr(e.text, "metrics.jsonl"));
    assert_int_equal(pt_trainer_step(t, &s, &e), 1);
    pt_trainer_close(t);
    must(file_read_all(path, 1u << 20, &text, &n, &e), &e);
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"), lines++) {
        json_t *object = json_loads(line, 0, NULL);
        assert_int_equal(json_integer_value(json_object_get(object, "step")), lines ? 3 : 1);
        json_decref(object);
    }
    assert_int_equal(lines, 2);
    free(text);
    fixture_close(&f);
}

/* Before the first step, not when the first checkpoint is due. */
static void a_limit_of_a_file_s_size_is_known_before(void **state)
{
    (void)state;
    fixture f;
    pt_error e = {0};
    pt_train_options o;
    pt_trainer *t;
    struct rlimit all, little;
    char out[128];
    snprintf(out, sizeof out, "%s/limited", scratch);
    fixture_open(&f, "models", "gpt2");
    fixture_options(&f, (const char *const[]){f.tokens}, out, &o);
    o.steps = 3;
    o.save_every = 1;
    o.disk_memory = 0;
    must(pt_trainer_open(&o, &t, &e), &e);
    const uint64_t weights = (uint64_t)t->job.model->parameters * 4;
    pt_trainer_close(t);
    snprintf(out, sizeof out, "%s/limited-too", scratch);
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &all);
    little = (struct rlimit){weights, all.rlim_max}; /* a file is a little larger */
    setrlimit(RLIMIT_FSIZE, &little);
    pt_error planned = {0};
    pt_plan *p;
    int failed = pt_trainer_open(&o, &t, &e), refused = pt_plan_open(&o, &p, &planned);
    setrlimit(RLIMIT_FSIZE, &all);
    assert_int_equal(failed, PT_DOES_NOT_FIT);
    assert_non_null(strstr(e.text, "ulimit -f"));
    assert_int_equal(refused, PT_DOES_NOT_FIT);
    assert_non_null(strstr(planned.text, "ulimit -f"));
    char *json = pt_plan_json(p);
    assert_non_null(strstr(json, "\"ulimit -f unlimited\""));
    free(json);
    pt_plan_close(p);
    fixture_close(&f);
}

/* 0 where the plan says what a run would. */
static int plan_on_small_disk(const char *folder)
{
    fixture f;
    pt_error e = {0};
    pt_train_options o;
    pt_plan *plan;
    char out[256];
    fixture_open(&f, "bf16", "gpt2");
    snprintf(out, sizeof out, "%s/run", folder);
    fixture_options(&f, (const char *const[]){f.tokens}, out, &o);
    o.disk_memory = 0;
    if (pt_plan_open(&o, &plan, &e) != PT_DOES_NOT_FIT || !strstr(e.text, "make room") || !strstr(e.text, "the trained model"))
        return fprintf(stderr, "%s\n", e.text), 1;
    char *text = pt_plan_json(plan);
    json_t *said = json_loads(text, 0, NULL);
    bool right = json_is_false(json_object_get(said, "fits")) && json_integer_value(json_object_get(said, "missing_bytes")) > 0 &&
                 strstr(json_string_value(json_object_get(said, "smallest_change")), "`out`");
    if (!right)
        fprintf(stderr, "%s\n", text);
    json_decref(said);
    free(text);
    pt_plan_close(plan);
    fixture_close(&f);
    return right ? 0 : 2;
}

static void a_plan_whose_results_have_no_room_does_not_fit(void **state)
{
    (void)state;
    int status = on_small_disk(100 << 10, plan_on_small_disk);
    if (status < 0) {
        printf("skipped: no file system can be mounted here\n");
        skip();
    }
    assert_int_equal(status, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_a_run_will_write_is_known_before),
        cmocka_unit_test(a_full_disk_loses_nothing),
        cmocka_unit_test(a_checkpoint_that_cannot_be_removed_does_not_end_the_run),
        cmocka_unit_test(the_end_says_from_which_checkpoint_a_longer_run_continues),
        cmocka_unit_test(a_line_of_metrics_without_room_leaves_nothing),
        cmocka_unit_test(a_limit_of_a_file_s_size_is_known_before),
        cmocka_unit_test(a_plan_whose_results_have_no_room_does_not_fit),
    };
    return RUN_APART(tests, scratch_make, scratch_remove);
}
