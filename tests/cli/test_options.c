/* Options as a user types them: names with a slip, help, how long to train, and what plan takes of train's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "infer/model_folder.h"

#include "cli/refusal.h"

#include "base/json.h"

/* ---- running ---- */

static int run(words args)
{
    arguments a = {0};
    add_arguments(&a, args);
    return program_wait(program_start(&a, scratch_path("out"), scratch_path("err")));
}

static void refused(const char *name, words said, words args) { check_sentence(name, run(args), 2, said); }

static bool is_said(const char *file, const char *words_of_it) { return strstr(text_of(scratch_path(file)), words_of_it) != NULL; }

/* `protrain train` of the fixture, into a folder that is not there. */
static arguments training(words more)
{
    static char data[600], out[200];
    arguments a = {0};
    snprintf(data, sizeof data, "%s/tokens.npy", fixture("llama"));
    snprintf(out, sizeof out, "%s/run", scratch);
    add_arguments(&a, WORDS("train", "--model", fixture("llama"), "--data", data, "--out", out, "--seq-len", "8", "--device-memory",
                            "64MiB"));
    add_arguments(&a, more);
    return a;
}

static void train_refused(const char *name, words said, words more)
{
    arguments a = training(more);
    check_sentence(name, program_wait(program_start(&a, "/dev/null", scratch_path("err"))), 2, said);
    assert_false(path_exists(scratch_path("run")));
}

/* ---- names ---- */

static void a_name_with_a_slip_gets_the_option_that_was_meant(void **state)
{
    (void)state;
    static const char *const slips[][2] = {{"--dytpe", "--dtype"},           {"--wieght-decay", "--weight-decay"},
                                           {"--max-grad", "--max-grad-norm"}, {"--batchsize", "--batch-size"},
                                           {"--step", "--steps"},             {"--ouput", "--out"},
                                           {"--learning-rate", "--lr"},       {"--learning_rate", "--lr"},
                                           {"--num-train-epochs", "--epochs"}};
    for (size_t i = 0; i < sizeof slips / sizeof *slips; i++) {
        char meant[64], with_value[64];
        snprintf(meant, sizeof meant, "did you mean %s?", slips[i][1]);
        snprintf(with_value, sizeof with_value, "%s=1", slips[i][0]);
        refused(slips[i][0], WORDS(slips[i][0], meant), WORDS("train", slips[i][0], "1"));
        refused(with_value, WORDS(slips[i][0], meant), WORDS("train", with_value));
    }
}

static void an_empty_folder_for_the_disk_is_refused(void **state)
{
    (void)state;
    refused("no folder", WORDS("--disk-path is empty"), WORDS("plan", "--model", fixture("llama"), "--disk-path", ""));
}

static void a_name_like_no_option_gets_none_but_help(void **state)
{
    (void)state;
    static const char *const names[] = {"--foo", "--", "--x", "--quantization", "--a-name-that-is-longer-than-any-option-there-is=7"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        refused(names[i], WORDS("unknown option --", "--help"), WORDS("train", names[i]));
        assert_false(is_said("err", "did you mean"));
    }
}

static void a_word_too_many_is_called_one(void **state)
{
    (void)state;
    refused("two folders", WORDS("unexpected argument", "\"b\""), WORDS("report", "a", "b"));
}

/* The last of two values would hide the first. */
static void a_value_given_twice_is_refused(void **state)
{
    (void)state;
    refused("two adapters", WORDS("--adapter is given twice", "as a and as b"),
            WORDS("export", "--model", "m", "--adapter", "a", "--adapter=b", "--to", "gguf", "--out", "o"));
    refused("two machines", WORDS("--machine is given twice", "laptop16", "rtx4090"),
            WORDS("plan", "--model", fixture("llama"), "--machine", "laptop16", "--machine=rtx4090"));
    refused("one without effect", WORDS("--lr is given twice"), WORDS("plan", "--lr", "1", "--lr=1"));
    refused("train", WORDS("--seed is given twice"), WORDS("train", "--seed", "1", "--seed=2"));
    refused("eval", WORDS("--seq-len is given twice"), WORDS("eval", "--seq-len", "8", "--seq-len=8"));
    refused("generate", WORDS("--top-k is given twice"), WORDS("generate", "--top-k", "1", "--top-k=1"));
    refused("profile", WORDS("--out is given twice"), WORDS("profile", "--out", "1", "--out=1"));
    refused("export", WORDS("--to is given twice"), WORDS("export", "--to", "gguf", "--to=gguf"));
    refused("tokenize", WORDS("--model is given twice"), WORDS("tokenize", "--model", "a", "--model=b"));
    refused("report", WORDS("--out is given twice"), WORDS("report", "--out", "a", "--out=b"));
    refused("ritz", WORDS("--n is given twice"), WORDS("ritz", "--n", "8", "--n=16"));
    refused("a list is none", WORDS("no-such"), WORDS("train", "--data", "a", "--data", "b", "--freeze", "x", "--freeze", "y",
                                                    "--train-only", "x", "--train-only", "y", "--eval-data", "a", "--eval-data", "b",
                                                    "--sample", "a", "--sample", "b", "--no-such"));
}

/* Text to generate from may be anything. */
static void help_as_the_value_of_an_option_is_no_help(void **state)
{
    (void)state;
    char model[128];
    snprintf(model, sizeof model, "%s", make_model_folder("model", 32, 2, 64, 5));
    static const char *const prompts[] = {"-h", "--help"};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(run(WORDS("generate", "--model", model, "--prompt", prompts[i], "--echo", "--max-new-tokens", "1", "--quiet")), 0);
        assert_true(strncmp(text_of(scratch_path("out")), prompts[i], strlen(prompts[i])) == 0);
        assert_int_equal(run(WORDS("generate", prompts[i])), 0);
        assert_true(strncmp(text_of(scratch_path("out")), "usage: protrain generate", 24) == 0);
        assert_int_equal(run(WORDS("generate", "--model", model, prompts[i], "--prompt")), 0);
        assert_true(is_said("out", "--temperature"));
    }
}

/* ---- without effect ---- */

static void an_option_without_effect_is_told(void **state)
{
    (void)state;
    static const char *const idle[][4] = {
        {"--beta", "0.3", "--beta has no effect without --task dpo"},
        {"--gamma", "0.3", "--gamma has no effect without --task simpo"},
        {"--dpo-loss", "ipo", "--dpo-loss has no effect without --task dpo"},
        {"--long", "drop", "--long has no effect on these data"},
        {"--keep", "3", "--keep has no effect without --save-every"},
    };
    for (size_t i = 0; i < sizeof idle / sizeof *idle; i++) {
        arguments a = training(WORDS("--steps", "1", "--batch-size", "1", "--quiet", idle[i][0], idle[i][1]));
        assert_int_equal(program_wait(program_start(&a, "/dev/null", scratch_path("err"))), 0);
        if (!is_said("err", idle[i][2]))
            fail_msg("%s", text_of(scratch_path("err")));
        pt_error e = {0};
        assert_int_equal(tree_remove(scratch_path("run"), &e), 0);
    }
    arguments a = training(WORDS("--steps", "1", "--batch-size", "1", "--quiet"));
    assert_int_equal(program_wait(program_start(&a, "/dev/null", scratch_path("err"))), 0);
    assert_false(is_said("err", "has no effect"));
    assert_true(is_said("err", "\ntrains   all of "));
    pt_error e = {0};
    assert_int_equal(tree_remove(scratch_path("run"), &e), 0);
}

/* ---- checkpoints ---- */

static void the_start_says_how_many_checkpoints_are_kept(void **state)
{
    (void)state;
    static const char *const said[][2] = {{"default", "\nsaves    a checkpoint every step, and keeps the newest 2 (--keep 0 keeps all)\n"},
                                          {"0", "\nsaves    a checkpoint every step, and keeps all\n"}};
    for (size_t i = 0; i < sizeof said / sizeof *said; i++) {
        arguments a = training(WORDS("--steps", "1", "--batch-size", "1", "--quiet", "--save-every", "1"));
        if (i)
            add_arguments(&a, WORDS("--keep", said[i][0]));
        assert_int_equal(program_wait(program_start(&a, "/dev/null", scratch_path("err"))), 0);
        if (!is_said("err", said[i][1]))
            fail_msg("%s", text_of(scratch_path("err")));
        pt_error e = {0};
        assert_int_equal(tree_remove(scratch_path("run"), &e), 0);
    }
}

/* ---- how long ---- */

static void a_length_that_is_none_or_given_twice_is_refused(void **state)
{
    (void)state;
    train_refused("no step", WORDS("--steps 0"), WORDS("--steps", "0"));
    train_refused("two lengths", WORDS("--steps", "--epochs"), WORDS("--steps", "3", "--epochs", "2"));
    train_refused("the default, given", WORDS("--steps", "--epochs"), WORDS("--epochs", "1", "--steps", "3"));
    train_refused("no number", WORDS("--steps -1", "1 or more"), WORDS("--steps", "-1"));
    train_refused("too many threads", WORDS("--threads 3000000000", "at most 4096"), WORDS("--threads", "3000000000"));
    train_refused("beyond 64 bits", WORDS("--steps 99999999999999999999", "at most 1000000000000000"),
                  WORDS("--steps", "99999999999999999999"));
    train_refused("no epoch", WORDS("--epochs"), WORDS("--epochs", "0"));
    train_refused("nothing to evaluate on", WORDS("--eval-every is 2", "--eval-data"), WORDS("--steps", "2", "--eval-every", "2"));
}

/* 0.57 * 100 is less than 57 for a computer. */
static void a_part_of_an_epoch_is_rounded_to_what_was_meant(void **state)
{
    (void)state;
    enum { WINDOWS = 100, IDS = 8 * WINDOWS + 1 };
    uint16_t ids[64 + IDS];
    char data[200];
    memcpy(ids, "\x93NUMPY\x01\0\x76\0", 10);
    snprintf((char *)ids + 10, 119, "%-117s\n", "{'descr': '<u2', 'fortran_order': False, 'shape': (801,), }");
    for (int i = 0; i < IDS; i++)
        ids[64 + i] = (uint16_t)(i * 37 % 61);
    scratch_put("ids.npy", ids, sizeof ids);
    snprintf(data, sizeof data, "%s/ids.npy", scratch);
    assert_true(0.57 * WINDOWS < 57);
    if (run(WORDS("train", "--model", fixture("llama"), "--data", data, "--seq-len", "8", "--batch-size", "1", "--epochs", "0.57", "--out",
                  scratch_path("part"), "--device-memory", "64MiB", "--quiet")))
        fail_msg("%s", text_of(scratch_path("err")));
    if (!is_said("err", "steps 1 to 57 of "))
        fail_msg("%s", text_of(scratch_path("err")));
}

/* ---- a run as a file ---- */

static const char *text_in(const char *folder, const char *name)
{
    char path[300];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return text_of(path);
}

static bool same_files(const char *a, const char *b, const char *name)
{
    char path[2][300];
    pt_error e = {0};
    char *bytes[2];
    size_t n[2];
    snprintf(path[0], sizeof path[0], "%s/%s", a, name);
    snprintf(path[1], sizeof path[1], "%s/%s", b, name);
    for (int i = 0; i < 2; i++)
        if (file_read_all(path[i], 1 << 30, &bytes[i], &n[i], &e))
            fail_msg("%s", e.text);
    const bool same = n[0] == n[1] && !memcmp(bytes[0], bytes[1], n[0]);
    free(bytes[0]);
    free(bytes[1]);
    return same;
}

static void done(words more)
{
    arguments a = {0};
    add_arguments(&a, more);
    if (program_wait(program_start(&a, scratch_path("out"), scratch_path("err"))))
        fail_msg("%s", text_of(scratch_path("err")));
}

static void a_run_is_a_file_that_repeats_and_continues_it(void **state)
{
    (void)state;
    char first[200], second[200], file[220], more[220];
    snprintf(first, sizeof first, "%s/first", scratch);
    snprintf(second, sizeof second, "%s/second", scratch);
    snprintf(file, sizeof file, "%s/run.yaml", first);
    arguments a = training(WORDS("--out", first, "--steps", "3", "--batch-size", "1", "--lr", "1e-3", "--lr-schedule", "constant",
                                 "--no-shuffle", "--quiet"));
    if (program_wait(program_start(&a, "/dev/null", scratch_path("err"))))
        fail_msg("%s", text_of(scratch_path("err")));
    assert_true(is_said("err", "lr 0.001") && is_said("err", "lr-schedule constant") && is_said("err", "warmup-steps 0"));
    assert_true(is_said("err", "is in ") && is_said("err", "protrain report"));
    const char *written = text_in(first, "run.yaml");
    assert_true(strstr(written, "\nlr: 0.001\n") && strstr(written, "\nno-shuffle: true\n") && strstr(written, " train "));
    assert_null(strstr(written, "\nout:"));

    done(WORDS("train", "--config", file, "--out", second));
    assert_true(same_files(first, second, "model.safetensors"));
    done(WORDS("train", "--config", file, "--out", scratch_path("third"), "--lr=1e-4"));
    assert_false(same_files(first, scratch_path("third"), "model.safetensors"));

    done(WORDS("train", "--resume", first, "--steps", "5"));
    assert_true(is_said("err", "continuing from ") && is_said("err", "steps 4 to 5 "));
    snprintf(more, sizeof more, "%s/fourth", scratch);
    done(WORDS("train", "--config", file, "--out", more, "--steps", "5"));
    assert_true(same_files(first, more, "model.safetensors"));
    check_sentence("another result", run(WORDS("train", "--resume", first, "--steps", "6", "--lr", "1")), 1, WORDS("--lr 0.001"));
    refused("no such run", WORDS("no-run", "no such folder"), WORDS("train", "--resume", scratch_path("no-run")));
}

static void a_file_that_is_wrong_is_named_with_its_line(void **state)
{
    (void)state;
    put_text("bad.yaml", "lr: 1e-4\nlearning-rate: 1\n");
    check_sentence("an unknown name", run(WORDS("train", "--config", scratch_path("bad.yaml"))), 1,
                   WORDS("bad.yaml", "line 2", "learning-rate"));
    put_text("bad.yaml", "seq-len: many\n");
    check_sentence("no number", run(WORDS("plan", "--config", scratch_path("bad.yaml"))), 2, WORDS("line 1", "--seq-len many"));
    check_sentence("no folder of a run", run(WORDS("train", "--resume", "--out", scratch_path("nothing"))), 2,
                   WORDS("run.yaml", "--model"));
}

static void all_options_are_in_the_commented_file(void **state)
{
    (void)state;
    assert_int_equal(run(WORDS("train", "--help-config")), 0);
    char file[1 << 16];
    snprintf(file, sizeof file, "%s", text_of(scratch_path("out")));
    assert_true(strstr(file, "\n#model: DIR\n") && strstr(file, "\n#data:\n#  - PATH\n") && strstr(file, "\n#lr-schedule: linear\n"));
    for (char *line = file; (line = strchr(line, '\n')); line++)
        assert_true(!line[1] || line[1] == '\n' || line[1] == '#');
}

/* ---- plan ---- */

/* What is printed; json_decref it. */
static json_t *planned(words more)
{
    arguments a = {0};
    pt_error e = {0};
    json_t *o;
    add_arguments(&a, WORDS("plan", "--model", fixture("llama"), "--machine", "laptop16", "--seq-len", "8", "--json"));
    add_arguments(&a, more);
    if (program_wait(program_start(&a, scratch_path("out"), scratch_path("err"))) || json_file_load(scratch_path("out"), 0, &o, &e))
        fail_msg("%s%s", text_of(scratch_path("err")), e.text);
    return o;
}

static void plan_takes_what_else_train_takes_and_changes_nothing(void **state)
{
    (void)state;
    json_t *without = planned(WORDS("--micro-batch", "4"));
    const words others[] = {
        WORDS("--data", "/nothing/a.txt", "--data", "/nothing/b.txt", "--out", "/nothing/run", "--lr", "1e-3", "--no-shuffle",
              "--document-mask",
              "--resume"),
        WORDS("--resume", "/nothing/checkpoint-3", "--init", "random", "--eval-every", "10", "--epochs", "3", "--trace", "--save-every",
              "7"),
        WORDS("--lr-schedule", "cosine", "--warmup-steps", "5", "--min-lr-ratio", "0.1", "--weight-decay", "0.1", "--beta1", "0.8"),
        WORDS("--beta2=0.9", "--eps", "1e-6", "--seed", "7", "--keep", "2", "--save-dtype", "bf16")};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        arguments a = {0};
        add_arguments(&a, WORDS("--micro-batch", "4"));
        add_arguments(&a, others[i]);
        json_t *with = planned(a.v + 1);
        if (!json_equal(with, without))
            fail_msg("list %zu changes the plan: %s", i, text_of(scratch_path("out")));
        json_decref(with);
    }
    json_decref(without);
}

/* What train has is in plan's table too, so that one command line does for both. */
static void every_option_of_train_is_known_to_plan(void **state)
{
    (void)state;
    static char help[1 << 16];
    assert_int_equal(run(WORDS("train", "--help")), 0);
    snprintf(help, sizeof help, "%s", text_of(scratch_path("out")));
    int n = 0;
    for (const char *at = strstr(help, "\n  --"); at; at = strstr(at + 1, "\n  --")) {
        char name[64], value[80];
        assert_int_equal(sscanf(at, " %60s", name), 1);
        if (strcmp(name, "--help") == 0 || strcmp(name, "--help-config") == 0) /* they print, and train nothing */
            continue;
        snprintf(value, sizeof value, "%s=", name);
        run(WORDS("plan", value));
        if (is_said("err", "unknown option"))
            fail_msg("plan has no %s", name);
        n++;
    }
    assert_in_range(n, 50, 150);
}

static void what_no_command_has_plan_refuses_too(void **state)
{
    (void)state;
    refused("no option", WORDS("--no-such-thing"), WORDS("plan", "--model", fixture("llama"), "--no-such-thing", "1"));
    refused("a slip in one that is passed over", WORDS("--no-shufle", "did you mean --no-shuffle?"), WORDS("plan", "--no-shufle"));
    refused("a flag with a value", WORDS("--no-shuffle takes no value"), WORDS("plan", "--no-shuffle=yes"));
    refused("a value is missing", WORDS("--lr needs a value"), WORDS("plan", "--lr"));
    assert_int_equal(run(WORDS("plan", "--help")), 0);
    assert_false(is_said("out", "--warmup-steps"));
}

/* The default of --seq-len counts too. */
static void a_step_of_more_tokens_than_there_may_be_is_refused(void **state)
{
    (void)state;
    const words of = WORDS("plan", "--model", fixture("llama"), "--machine", "laptop16", "--batch-size", "16777216");
    refused("too many tokens", WORDS("--batch-size 16777216", "--seq-len 64", "2^28"), of);
    train_refused("too many tokens in train", WORDS("2^28"), WORDS("--batch-size", "16777216", "--seq-len", "17"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_name_with_a_slip_gets_the_option_that_was_meant),
        cmocka_unit_test(an_empty_folder_for_the_disk_is_refused),
        cmocka_unit_test(a_name_like_no_option_gets_none_but_help),
        cmocka_unit_test(a_word_too_many_is_called_one),
        cmocka_unit_test(a_value_given_twice_is_refused),
        cmocka_unit_test(help_as_the_value_of_an_option_is_no_help),
        cmocka_unit_test(an_option_without_effect_is_told),
        cmocka_unit_test(the_start_says_how_many_checkpoints_are_kept),
        cmocka_unit_test(a_length_that_is_none_or_given_twice_is_refused),
        cmocka_unit_test(a_part_of_an_epoch_is_rounded_to_what_was_meant),
        cmocka_unit_test(a_run_is_a_file_that_repeats_and_continues_it),
        cmocka_unit_test(a_file_that_is_wrong_is_named_with_its_line),
        cmocka_unit_test(all_options_are_in_the_commented_file),
        cmocka_unit_test(plan_takes_what_else_train_takes_and_changes_nothing),
        cmocka_unit_test(every_option_of_train_is_known_to_plan),
        cmocka_unit_test(what_no_command_has_plan_refuses_too),
        cmocka_unit_test(a_step_of_more_tokens_than_there_may_be_is_refused),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
