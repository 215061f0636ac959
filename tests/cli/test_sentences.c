/* What is said of one thing, of sizes without a unit, and of a device that a machine file does not have. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cli/refusal.h"

#include <regex.h>

/* A model of one layer without weights. */
static const char config[] =
    "{\"model_type\": \"llama\", \"vocab_size\": 61, \"hidden_size\": 24, \"intermediate_size\": 40, \"num_hidden_layers\": 1,"
    " \"num_attention_heads\": 4, \"max_position_embeddings\": 64, \"rms_norm_eps\": 1e-05, \"hidden_act\": \"silu\","
    " \"bos_token_id\": 1, \"eos_token_id\": 2}";

/* ---- one of something ---- */

/* "1 threads", and no "1 is" or "1 this". */
static void has_no_wrong_plural(const char *name, const char *text)
{
    regex_t wrong;
    regmatch_t at;
    assert_int_equal(regcomp(&wrong, "(^|[^0-9.,A-Za-z-])1 [a-z]+s([^a-z]|$)", REG_EXTENDED | REG_NEWLINE), 0);
    static const char *const right[] = {"is ", "has ", "does ", "was ", "us", "ms"}; /* "of layer 1 is", "1 ms" */
    for (const char *from = text; !regexec(&wrong, from, 1, &at, 0); from += at.rm_eo) {
        const char *word = strchr(from + at.rm_so, '1') + 2;
        bool plural = true;
        for (size_t i = 0; i < sizeof right / sizeof *right; i++)
            plural = plural && strncmp(word, right[i], strlen(right[i]));
        if (plural)
            fail_msg("%s says \"%.*s\": %s", name, (int)(at.rm_eo - at.rm_so), from + at.rm_so, text);
    }
    regfree(&wrong);
}

static void say_of_one(words command)
{
    arguments a = {0};
    add_argument(&a, command[0]);
    add_arguments(&a, command + 1);
    const int status = program_wait(program_start(&a, scratch_path("out"), scratch_path("err")));
    if (status)
        fail_msg("%s: exit status %d: %s", command[0], status, text_of(scratch_path("err")));
    has_no_wrong_plural(command[0], text_of(scratch_path("out")));
    has_no_wrong_plural(command[0], text_of(scratch_path("err")));
}

static void one_thing_is_no_plural(void **state)
{
    (void)state;
    static uint16_t ids[16] = {3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18};
    char model[128], data[128], out[128], page[160];
    assert_int_equal(mkdir(scratch_path("one"), 0777), 0);
    put_text("one/config.json", config);
    snprintf(model, sizeof model, "%s/one", scratch);
    snprintf(data, sizeof data, "%s", put_text("data.npy", ""));
    snprintf(out, sizeof out, "%s/run", scratch);
    static const char header[] = "\x93NUMPY\x01\x00\x76\x00{'descr': '<u2', 'fortran_order': False, 'shape': (16,), }";
    char npy[128 + sizeof ids];
    memset(npy, ' ', 128);
    memcpy(npy, header, sizeof header - 1);
    npy[127] = '\n';
    memcpy(npy + 128, ids, sizeof ids);
    scratch_put("data.npy", npy, sizeof npy);
    say_of_one(WORDS("plan", "--model", model, "--threads", "1", "--batch-size", "1", "--seq-len", "1"));
    say_of_one(WORDS("plan", "--model", model, "--machine", "rtx4090", "--batch-size", "1", "--seq-len", "8"));
    say_of_one(WORDS("train", "--model", model, "--data", data, "--out", out, "--threads", "1", "--batch-size", "1", "--seq-len", "8",
                     "--steps", "1", "--save-every", "1"));
    say_of_one(WORDS("train", "--model", model, "--data", data, "--out", out, "--threads", "1", "--batch-size", "1", "--seq-len", "8",
                     "--steps", "1", "--resume"));
    say_of_one(WORDS("report", out));
    snprintf(page, sizeof page, "%s/report.html", out);
    has_no_wrong_plural("the page", text_of(page));
    say_of_one(WORDS("ritz", "--dim", "1", "--n", "1", "--steps", "1", "--blocks", "1", "--device", "cpu", "--threads", "1"));
    say_of_one(WORDS("plan", "--problem", "poisson-cosine", "--dim", "1", "--n", "1", "--device", "cpu", "--threads", "1"));
}

/* ---- sizes ---- */

static void a_size_without_its_unit_is_refused(void **state)
{
    (void)state;
    static const struct { const char *option, *size, *meant; } each[] = {
        {"--device-memory", "2", "2GiB"}, {"--host-memory", "8192", "8192MiB"}, {"--disk-memory", "100", "100GiB"},
        {"--device-memory", "1.", "1GiB"}};
    for (size_t i = 0; i < sizeof each / sizeof *each; i++) {
        const int status = run_program(WORDS("plan", "--model", fixture("llama"), "--machine", "laptop16", each[i].option, each[i].size));
        check_sentence(each[i].option, status, 2, WORDS(each[i].option, "byte", "such as", each[i].meant));
    }
    assert_int_equal(run_program(WORDS("plan", "--model", fixture("llama"), "--machine", "laptop16", "--quiet", "--seq-len", "8",
                                       "--device-memory", "67108864", "--disk-memory", "0")), 0);
}

/* ---- devices ---- */

static void a_device_that_the_file_has_not_is_refused(void **state)
{
    (void)state;
    const words plan = WORDS("plan", "--model", fixture("llama"), "--seq-len", "8", "--quiet");
    static const struct { const char *machine, *device; int status; } each[] = {
        {"laptop16", "cuda", 2}, {"laptop16", "cuda:1", 2}, {"rtx4090", "cpu", 2}, {"laptop16", "cpu", 0}, {"rtx4090", "cuda", 0},
        {"rtx4090", "auto", 0}};
    for (size_t i = 0; i < sizeof each / sizeof *each; i++) {
        arguments a = {0};
        add_arguments(&a, plan);
        add_arguments(&a, WORDS("--machine", each[i].machine, "--device", each[i].device));
        const int status = program_wait(program_start(&a, "/dev/null", scratch_path("err")));
        if (each[i].status)
            check_sentence(each[i].machine, status, 2, WORDS("--device is", each[i].device, each[i].machine, "GPU", "leave --device out"));
        else
            assert_int_equal(status, 0);
    }
}

/* ---- what is not there ---- */

static void what_lacks_is_called_by_its_name(void **state)
{
    (void)state;
    char data[128];
    static const char *const empty[] = {"empty.json", "empty.npy", "empty.bin"};
    static const char *const of_hub[][9] = {
        {"train", "--model", "someone/some-0.5B", "--data", "x.txt", "--out", "nowhere", NULL},
        {"eval", "--model", "someone/some-0.5B", "--data", "x.txt", NULL},
        {"generate", "--model", "someone/some-0.5B", "--prompt", "x", NULL},
        {"plan", "--model", "someone/some-0.5B", NULL},
        {"tokenize", "--model", "someone/some-0.5B", NULL},
        {"export", "--model", "someone/some-0.5B", "--to", "gguf", "--out", "nowhere", NULL},
        {"merge", "--model", "someone/some-0.5B", "--adapter", "x", "--out", "nowhere", NULL}};
    for (size_t i = 0; i < sizeof empty / sizeof *empty; i++) {
        snprintf(data, sizeof data, "%s", put_text(empty[i], ""));
        check_sentence(empty[i], run_program(WORDS("train", "--model", fixture("llama"), "--data", data, "--out", scratch_path("none"),
                                                   "--seq-len", "8", "--steps", "1", "--quiet")), 1, WORDS(empty[i], "is empty"));
    }
    check_sentence("data", run_program(WORDS("train", "--model", fixture("llama"), "--data", "", "--out", scratch_path("none"), "--quiet")),
                   2, WORDS("the name of the data is empty"));
    check_sentence("model", run_program(WORDS("tokenize", "--model", scratch_path("nowhere"))), 1,
                   WORDS("nowhere: the model's folder cannot be opened"));
    for (size_t i = 0; i < sizeof of_hub / sizeof *of_hub; i++)
        check_sentence(of_hub[i][0], run_program(of_hub[i]), 1,
                       WORDS("someone/some-0.5B is not a folder: ", "hf download someone/some-0.5B"));
    check_sentence("one choice", run_program(WORDS("export", "--model", fixture("llama"), "--out", scratch_path("x"), "--to", "y")), 2,
                   WORDS("--to y: it must be gguf"));
    check_sentence("no space", run_program(WORDS("report", scratch_path("run"), "--out", "/dev/full")), 1,
                   WORDS("/dev/full: the disk is full: ", "were still to be written: make room"));
    assert_null(strstr(text_of(scratch_path("err")), "but only")); /* of the disk that /dev lies on */
}

static void what_files_say_does_not_reach_the_terminal(void **state)
{
    (void)state;
    char folder[160], odd[1000];
    snprintf(odd, sizeof odd, "{\"a\\nb\\u001b[2J_dropout\": 0.5, %s", config + 1);
    assert_int_equal(mkdir(scratch_path("odd"), 0777), 0);
    put_text("odd/config.json", odd);
    check_sentence("note", run_program(WORDS("train", "--model", scratch_path("odd"), "--data", "none.npy", "--out", scratch_path("none"))),
                   1, WORDS("none.npy"));
    assert_non_null(strstr(text_of(scratch_path("err")), "dropout (a\\nb\\x1b[2J_dropout 0.5) is not applied"));
    assert_null(strchr(text_of(scratch_path("err")), '\x1b'));
    snprintf(folder, sizeof folder, "%s/a\nb\x1b[2J", scratch);
    check_sentence("path", run_program(WORDS("report", folder)), 1, WORDS("a\\nb?[2J"));
}

static void a_merge_says_where_its_result_is(void **state)
{
    (void)state;
    char out[300], said[320];
    snprintf(out, sizeof out, "%s", scratch_path("merged"));
    snprintf(said, sizeof said, "merged into %s\n", out);
    say_of_one(WORDS("merge", "--model", fixture("llama"), "--adapter", PT_FIXTURES "/adapters/llama", "--out", out));
    assert_string_equal(text_of(scratch_path("out")), said);
    const char *err = text_of(scratch_path("err"));
    if (strstr(err, "merging")) /* what was begun is finished */
        assert_non_null(strstr(err, "merging 100%"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_thing_is_no_plural),
        cmocka_unit_test(a_merge_says_where_its_result_is),
        cmocka_unit_test(a_size_without_its_unit_is_refused),
        cmocka_unit_test(a_device_that_the_file_has_not_is_refused),
        cmocka_unit_test(what_files_say_does_not_reach_the_terminal),
        cmocka_unit_test(what_lacks_is_called_by_its_name), /* with the run of the first */
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
