/* What a run finds in its output folder: its own later checkpoints, another program's, what was left half-written, links, data. */
#include "protrain.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "train/run.h"
#include "train/same_end.h"

static const setting llama = {"llama_tied_bias", PT_PRECISION_BF16, 1, true, PT_OPTIMIZER_ADAMW};

/* ---- helpers ---- */

static const char *path_in(const run *r, const char *name)
{
    static char paths[4][400];
    static int next;
    char *p = paths[next++ % 4];
    snprintf(p, sizeof paths[0], "%s/%s", r->out, name);
    return p;
}

/* A file, with the folders above it, in the run's folder. */
static void put_file(const run *r, const char *folder, const char *name)
{
    char path[FILE_PATH_BYTES];
    pt_error e = {0};
    must(dir_make(path_in(r, folder), &e) || path_join(path, path_in(r, folder), name, &e), &e);
    must(file_write_atomic(path, "mine", 4, &e), &e);
}

static void note(void *arg, const char *sentence)
{
    size_t n = strlen(arg);
    snprintf((char *)arg + n, 2048 - n, "%s\n", sentence);
}

/* The names that begin with "checkpoint", in order, with spaces between them. */
static void assert_checkpoints(const run *r, const char *expected)
{
    char all[1024] = "";
    struct dirent **entries;
    int n = scandir(r->out, &entries, NULL, alphasort);
    for (int i = 0; i < n; i++) {
        size_t used = strlen(all);
        if (strncmp(entries[i]->d_name, "checkpoint", 10) == 0)
            snprintf(all + used, sizeof all - used, "%s%s", used ? " " : "", entries[i]->d_name);
        free(entries[i]);
    }
    free(entries);
    assert_string_equal(all, expected);
}

static void assert_steps_in_metrics(const run *r, int steps)
{
    json_t *lines[STEPS];
    int n = read_metrics(r, lines, STEPS);
    assert_int_equal(n, steps);
    for (int i = 0; i < n; i++)
        json_decref(lines[i]);
}

/* To step `until` from a checkpoint in the run's folder; NULL: from the newest. */
static void go_on(run *r, const char *checkpoint, int64_t until)
{
    pt_error e = {0};
    r->o.resume = true;
    r->o.resume_from = checkpoint ? path_in(r, checkpoint) : NULL;
    must(run_until(r, until, &e), &e);
}

static void refused(run *r, int code, const char *word)
{
    pt_error e = {0};
    uint64_t before = hash_of_folder(r->out);
    int failed = run_until(r, STEPS, &e);
    if (failed != code || !strstr(e.text, word) || !strstr(e.text, r->out))
        fail_msg("%d \"%s\"", failed, e.text);
    assert_true(hash_of_folder(r->out) == before);
}

/* ---- checkpoints ---- */

static void going_on_from_an_older_checkpoint_puts_the_later_ones_away(void **state)
{
    (void)state;
    run r;
    char said[2048] = "";
    pt_error e = {0};
    run_make(&r, &llama, "another-way");
    r.o.save_every = 2;
    r.o.notice = note;
    r.o.arg = said;
    must(run_until(&r, STEPS, &e), &e);
    uint64_t last = hash_of_folder(path_in(&r, "checkpoint-8"));
    go_on(&r, "checkpoint-4", 5);
    assert_checkpoints(&r, "checkpoint-2 checkpoint-4 checkpoint-5 checkpoint-6.old checkpoint-8.old");
    assert_non_null(strstr(said, "checkpoint-8 is of a later step of the run that is resumed, which this run computes "
                                "again: it is renamed to checkpoint-8.old"));
    assert_true(hash_of_folder(path_in(&r, "checkpoint-8.old")) == last);
    assert_steps_in_metrics(&r, 5);
    go_on(&r, NULL, STEPS);
    assert_int_equal(r.first_step, 5);
    assert_steps_in_metrics(&r, STEPS);
    go_on(&r, "checkpoint-4", 5); /* once more, where the names are taken */
    assert_checkpoints(&r, "checkpoint-2 checkpoint-4 checkpoint-5 checkpoint-5.old checkpoint-6.old checkpoint-6.old-2 "
                           "checkpoint-8.old checkpoint-8.old-2");
    assert_true(hash_of_folder(path_in(&r, "checkpoint-8.old")) == last);
    go_on(&r, NULL, 6);
    assert_int_equal(r.first_step, 5);
    assert_steps_in_metrics(&r, 6);
    go_on(&r, "checkpoint-8.old", STEPS); /* and back */
    assert_int_equal(r.first_step, 8);
    run_free(&r);
}

static void another_programs_checkpoint_is_refused_and_left_alone(void **state)
{
    (void)state;
    run r, other;
    pt_error e = {0};
    run_make(&other, &llama, "ours");
    must(run_until(&other, 2, &e), &e);
    run_make(&r, &llama, "theirs");
    put_file(&r, "checkpoint-500", "model.safetensors");
    put_file(&r, "checkpoint-600.tmp-99999", "model.safetensors"); /* which may still be written */
    for (int i = 0; i < 3; i++) {
        r.o.resume = i > 0;
        r.o.resume_from = i > 1 ? path_in(&other, "checkpoint-2") : NULL;
        refused(&r, PT_FAILED, "checkpoint-500");
    }
    run_free(&r);
    run_free(&other);
}

static void a_checkpoint_that_is_a_link_goes_on(void **state)
{
    (void)state;
    run straight, r;
    pt_error e = {0};
    run_make(&straight, &llama, "not-linked");
    must(run_until(&straight, STEPS, &e), &e);
    for (int named = 0; named < 2; named++) {
        char name[32], elsewhere[160];
        snprintf(name, sizeof name, "linked-%d", named);
        snprintf(elsewhere, sizeof elsewhere, "%s/elsewhere-%d/on-another-disk", scratch, named);
        must(dir_make(elsewhere, &e), &e);
        run_make(&r, &llama, name);
        must(run_until(&r, 3, &e), &e);
        assert_int_equal(rename(path_in(&r, "checkpoint-3"), elsewhere) || symlink(elsewhere, path_in(&r, "checkpoint-3")), 0);
        uint64_t before = hash_of_folder(elsewhere);
        r.o.keep = 1;
        go_on(&r, named ? "checkpoint-3" : NULL, STEPS);
        assert_int_equal(r.first_step, 3);
        assert_same_checkpoint(straight.out, r.out, STEPS);
        assert_checkpoints(&r, "checkpoint-8");
        assert_true(hash_of_folder(elsewhere) == before); /* only the link was the run's to remove */
        run_free(&r);
    }
    run_free(&straight);
}

/* From wherever it leads there. */
static void a_link_to_a_checkpoint_of_the_run_goes_on(void **state)
{
    (void)state;
    run r;
    char link[160];
    pt_error e = {0};
    run_make(&r, &llama, "linked-to");
    must(run_until(&r, 3, &e), &e);
    snprintf(link, sizeof link, "%s/newest", scratch);
    assert_int_equal(symlink(path_in(&r, "checkpoint-3"), link), 0);
    r.o.resume = true;
    r.o.resume_from = link;
    must(run_until(&r, STEPS, &e), &e);
    assert_int_equal(r.first_step, 3);
    assert_checkpoints(&r, "checkpoint-3 checkpoint-8");
    run_free(&r);
}

/* ---- other files ---- */

static void what_a_killed_run_left_half_written_goes_at_once(void **state)
{
    (void)state;
    static const char *const left[] = {"checkpoint-200.tmp-99999", "model.tmp-99999"};
    run r;
    pt_error e = {0};
    run_make(&r, &llama, "left");
    for (int resume = 0; resume < 2; resume++) {
        pt_trainer *t;
        for (int i = 0; i < 2; i++)
            put_file(&r, left[i], "half");
        r.o.resume = resume;
        must(pt_trainer_open(&r.o, &t, &e), &e);
        for (int i = 0; i < 2; i++)
            assert_false(path_exists(path_in(&r, left[i])));
        must(pt_trainer_save(t, &e), &e);
        assert_true(!mkdir(path_in(&r, "disk"), 0755) || path_exists(path_in(&r, "disk"))); /* where its scratch file was */
        pt_trainer_close(t);
        assert_false(path_exists(path_in(&r, "disk")));
    }
    run_free(&r);
}

static void data_that_lie_in_the_output_folder_are_refused(void **state)
{
    (void)state;
    run r;
    char tokens[600], link[160];
    pt_error e = {0};
    run_make(&r, &llama, "data-and-out");
    must(dir_make(r.out, &e), &e);
    must(file_copy_atomic(r.f.tokens, path_in(&r, "tokens.npy"), &e), &e);
    put_file(&r, "model.tmp-99999", "mine");
    snprintf(tokens, sizeof tokens, "%s", r.f.tokens);
    snprintf(link, sizeof link, "%s/link-to-data", scratch);
    assert_int_equal(symlink(r.out, link), 0);
    const char *const folders[] = {r.out, link}, *const files[] = {tokens};
    for (int i = 0; i < 8; i++) {
        const char *const *folder = &folders[i & 1];
        r.o.resume = i & 2;
        r.o.data = i & 4 ? files : folder;
        r.o.eval_data = folder;
        r.o.eval_data_n = i & 4 ? 1 : 0;
        uint64_t before = hash_of_folder(r.out);
        assert_int_equal(run_until(&r, STEPS, &e), PT_USAGE);
        if (!strstr(e.text, *folder) || !strstr(e.text, "`out`"))
            fail_msg("%s", e.text);
        assert_true(hash_of_folder(r.out) == before);
    }
    run_free(&r);
}

static json_t *exported_config(const run *r)
{
    char path[300];
    json_t *config;
    pt_error e = {0};
    snprintf(path, sizeof path, "%s/checkpoint-1/config.json", r->out);
    must(json_file_load(path, 0, &config, &e), &e);
    return config;
}

/* Transformers takes a model for what "model_type" says, and sizes for integers. */
static void the_exported_config_is_one_that_transformers_reads(void **state)
{
    (void)state;
    const setting s = {"gpt2", PT_PRECISION_FP32, 1, true, PT_OPTIMIZER_ADAMW};
    run r;
    pt_error e = {0};
    char folder[160];
    run_make(&r, &s, "exported");
    r.o.model = folder;
    snprintf(folder, sizeof folder, "%s/model-without-type", scratch);
    fixture_copy(&r.f, folder, "model_type", json_null());
    must(run_until(&r, 1, &e), &e);
    json_t *config = exported_config(&r);
    assert_string_equal(json_string_value(json_object_get(config, "model_type")), "gpt2");
    json_decref(config);

    char path[200], text[4096];
    snprintf(path, sizeof path, "%s/config.json", folder);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[n] = 0;
    f = fopen(path, "wb");
    assert_true(f && fprintf(f, "{\"model_max_length\": 1000000000000000019884624838656, %s", strchr(text, '{') + 1) > 0);
    fclose(f);
    snprintf(r.out, sizeof r.out, "%s/exported-long", scratch);
    must(run_until(&r, 1, &e), &e);
    config = exported_config(&r);
    assert_true(json_is_integer(json_object_get(config, "n_embd")) && json_is_integer(json_object_get(config, "vocab_size")));
    assert_true(json_real_value(json_object_get(config, "model_max_length")) == 1e30);
    json_decref(config);
    run_free(&r);
}

static void missing_lines_of_the_metrics_are_named(void **state)
{
    (void)state;
    run r;
    char said[2048] = "", *text, *end;
    size_t n;
    pt_error e = {0};
    run_make(&r, &llama, "missing-lines");
    must(run_until(&r, 6, &e), &e);
    must(file_read_all(path_in(&r, "metrics.jsonl"), 1u << 20, &text, &n, &e), &e);
    end = text;
    for (int i = 0; i < 3; i++)
        end = strchr(end, '\n') + 1;
    must(file_write_atomic(path_in(&r, "metrics.jsonl"), text, (size_t)(end - text), &e), &e);
    free(text);
    r.o.notice = note;
    r.o.arg = said;
    go_on(&r, NULL, 7);
    assert_non_null(strstr(said, "metrics.jsonl has no lines for steps 4 to 6\n"));
    must(file_write_atomic(path_in(&r, "metrics.jsonl"), "broken\n", 7, &e), &e);
    go_on(&r, NULL, 8);
    assert_non_null(strstr(said, "metrics.jsonl has no lines for steps 1 to 7\n"));
    run_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(going_on_from_an_older_checkpoint_puts_the_later_ones_away),
        cmocka_unit_test(another_programs_checkpoint_is_refused_and_left_alone),
        cmocka_unit_test(a_checkpoint_that_is_a_link_goes_on),
        cmocka_unit_test(a_link_to_a_checkpoint_of_the_run_goes_on),
        cmocka_unit_test(what_a_killed_run_left_half_written_goes_at_once),
        cmocka_unit_test(data_that_lie_in_the_output_folder_are_refused),
        cmocka_unit_test(the_exported_config_is_one_that_transformers_reads),
        cmocka_unit_test(missing_lines_of_the_metrics_are_named),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
