/* What bad input gets: one clear sentence on stderr, the right exit status, and nothing under a final name. Everything goes through
 * the program, as a user meets it. */
#include "protrain.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "io/files.h"
#include "io/scratch.h"

#include "program.h"

#include <dirent.h>
#include <math.h>
#include <sys/stat.h>

/* ---- running ---- */

typedef const char *const *words;
#define WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})

static const char *fixture(const char *name)
{
    static char paths[4][512];
    static int next;
    char *p = paths[next++ % 4];
    snprintf(p, 512, "%s/models/%s", PT_FIXTURES, name);
    return p;
}

/* The last line of what the program said, and the only one of its kind; notes and the summary of the run may come before. */
static const char *last_sentence(const char *text, const char *name)
{
    const char *line = text;
    for (const char *end = strchr(text, '\n'); end && end[1]; end = strchr(line, '\n')) {
        if (strncmp(line, "protrain: ", 10) == 0)
            fail_msg("%s: more than a sentence: %s", name, text);
        line = end + 1;
    }
    return line;
}

/* No model, checkpoint or unfinished file. */
static void assert_nothing_left(const char *out, const char *name)
{
    struct dirent **entries;
    int n = scandir(out, &entries, NULL, alphasort);
    for (int i = 0; i < n; i++) {
        const char *file = entries[i]->d_name;
        if (strstr(file, ".tmp") || strstr(file, ".safetensors") || strcmp(file, "config.json") == 0 || strcmp(file, ".lock") == 0)
            fail_msg("%s: %s is left", name, file);
        free(entries[i]);
    }
    if (n >= 0)
        free(entries);
}

static void check_sentence(const char *name, int status, int expected, words said)
{
    const char *text = text_of(scratch_path("err"));
    const char *line = last_sentence(text, name);
    if (status != expected || strncmp(line, "protrain: ", 10) != 0)
        fail_msg("%s: exit status %d, not %d: %s", name, status, expected, text);
    for (; *said; said++)
        if (!strstr(line, *said))
            fail_msg("%s: \"%s\" is not in: %s", name, *said, line);
}

/* protrain train with these arguments is refused with `status` and a sentence that has these words. */
static void refused(const char *name, int status, words said, const char *const *args)
{
    arguments a = {0};
    pt_error e = {0};
    char out[128];
    snprintf(out, sizeof out, "%s/out", scratch);
    add_arguments(&a, WORDS("train", "--out", out, "--quiet", "--device-memory", "64MiB"));
    add_arguments(&a, args);
    check_sentence(name, program_wait(program_start(&a, "/dev/null", scratch_path("err"))), status, said);
    assert_nothing_left(out, name);
    assert_int_equal(tree_remove(out, &e), 0);
}

/* With the model `model` and the tokens of `tokens`. */
static void refused_model(const char *name, const char *model, const char *tokens, int status, words said)
{
    char data[600];
    snprintf(data, sizeof data, "%s/tokens.npy", tokens);
    refused(name, status, said, WORDS("--model", model, "--data", data, "--seq-len", "8", "--batch-size", "2", "--steps", "2"));
}

static void refused_data(const char *name, const char *model, const char *data, int status, words said)
{
    refused(name, status, said, WORDS("--model", model, "--data", data, "--seq-len", "8", "--batch-size", "2", "--steps", "2"));
}

static void refused_option(const char *option, const char *value, int status, words said)
{
    char data[600];
    snprintf(data, sizeof data, "%s/tokens.npy", fixture("llama"));
    refused(option, status, said, WORDS("--model", fixture("llama"), "--data", data, "--seq-len", "8", option, value));
}

/* ---- files ---- */

static const char *put_text(const char *name, const char *text)
{
    scratch_put(name, text, strlen(text));
    return scratch_path(name);
}

/* A copy of a fixture's folder, to be damaged. */
static const char *copy_model(const char *name)
{
    static char copy[128];
    pt_error e = {0};
    struct dirent **entries;
    snprintf(copy, sizeof copy, "%s/model", scratch);
    assert_int_equal(tree_remove(copy, &e) || dir_make(copy, &e), 0);
    int n = scandir(fixture(name), &entries, NULL, alphasort);
    assert_true(n > 2);
    for (int i = 0; i < n; i++) {
        char from[800], to[400];
        snprintf(from, sizeof from, "%s/%s", fixture(name), entries[i]->d_name);
        snprintf(to, sizeof to, "%s/%s", copy, entries[i]->d_name);
        if (entries[i]->d_name[0] != '.')
            assert_int_equal(file_copy_atomic(from, to, &e), 0);
        free(entries[i]);
    }
    free(entries);
    return copy;
}

typedef struct blob { char *bytes; size_t n; } blob;

static blob read_blob(const char *name)
{
    blob b;
    pt_error e = {0};
    assert_int_equal(file_read_all(scratch_path(name), 1u << 30, &b.bytes, &b.n, &e), 0);
    return b;
}

/* Replaces a word in the first `n` bytes of a file by another of the same length. */
static void swap_word(const char *name, const char *was, const char *now)
{
    blob b = read_blob(name);
    char *at = memmem(b.bytes, b.n, was, strlen(was));
    assert_true(at && strlen(was) == strlen(now));
    memcpy(at, now, strlen(now));
    scratch_put(name, b.bytes, b.n);
    free(b.bytes);
}

/* Replaces a word in a text file by any other. */
static void edit_text(const char *name, const char *was, const char *now)
{
    blob b = read_blob(name);
    char *at = strstr(b.bytes, was), *all = malloc(b.n + strlen(now) + 1);
    assert_true(at && all);
    sprintf(all, "%.*s%s%s", (int)(at - b.bytes), b.bytes, now, at + strlen(was));
    put_text(name, all);
    free(all);
    free(b.bytes);
}

/* {"a": [[[[ ... 100,000 deep */
static char *deep_json(void)
{
    enum { DEEP = 100000 };
    char *text = malloc(DEEP + 16);
    assert_non_null(text);
    strcpy(text, "{\"a\": ");
    memset(text + 6, '[', DEEP);
    text[6 + DEEP] = 0;
    return text;
}

/* A tokenizer of letters without ids for raw bytes. */
static const char letters[] =
    "{\"version\": \"1.0\", \"truncation\": null, \"padding\": null, \"added_tokens\": [], \"normalizer\": null, "
    "\"pre_tokenizer\": null, \"post_processor\": null, \"decoder\": null, \"model\": {\"type\": \"BPE\", \"dropout\": null, "
    "\"unk_token\": null, \"continuing_subword_prefix\": null, \"end_of_word_suffix\": null, \"fuse_unk\": false, "
    "\"byte_fallback\": false, \"vocab\": {\"_\": 0, \"<s>\": 1, \"</s>\": 2, \"a\": 3, \"b\": 4, \" \": 5, \"\\n\": 6}, "
    "\"merges\": []}}";

/* ---- weights ---- */

static void cut_file(const char *name, size_t n)
{
    blob b = read_blob(name);
    assert_true(b.n > n);
    scratch_put(name, b.bytes, n);
    free(b.bytes);
}

static void refused_weights(const char *name, words said)
{
    refused_model(name, scratch_path("model"), fixture("llama"), 1, said);
}

static void broken_weights_are_refused_by_file_and_tensor(void **state)
{
    (void)state;
    static const size_t cuts[] = {0, 5, 8, 500, 30000};
    static const char *const swaps[][3] = {{"\"shape\":[24,24]", "\"shape\":[24,25]", "shape"},
                                           {"\"shape\":[24,24]", "\"shape\":[NaN]  ", "model.safetensors"},
                                           {"\"dtype\":\"F32\"", "\"dtype\":\"I64\"", "I64"},
                                           {"\"dtype\":\"F32\"", "\"dtype\":\"F99\"", "F99"},
                                           {"model.norm.weight", "model.nobody.walk", "model.n"},
                                           {"\"data_offsets\":[0,", "\"data_offsets\":[9,", "model.safetensors"},
                                           {"\"data_offsets\":[0,", "\"data_offsets\":[-,", "model.safetensors"}};
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        copy_model("llama");
        cut_file("model/model.safetensors", cuts[i]);
        refused_weights("cut", WORDS("model.safetensors"));
    }
    for (size_t i = 0; i < sizeof swaps / sizeof *swaps; i++) {
        copy_model("llama");
        swap_word("model/model.safetensors", swaps[i][0], swaps[i][1]);
        refused_weights(swaps[i][1], WORDS("model.safetensors", swaps[i][2]));
    }
    copy_model("llama");
    swap_word("model/model.safetensors", "{\"", "\xff\xff");
    refused_weights("no JSON", WORDS("model.safetensors"));
    copy_model("llama");
    blob b = read_blob("model/model.safetensors");
    memset(b.bytes, 0xff, 8); /* a header of 2^64 - 1 bytes */
    scratch_put("model/model.safetensors", b.bytes, b.n);
    free(b.bytes);
    refused_weights("long header", WORDS("model.safetensors"));
}

static void missing_shards_are_named(void **state)
{
    (void)state;
    copy_model("llama_linear_rope");
    assert_int_equal(remove(scratch_path("model/model-00002-of-00003.safetensors")), 0);
    refused_weights("missing shard", WORDS("model-00002-of-00003.safetensors"));
    copy_model("llama_linear_rope");
    edit_text("model/model.safetensors.index.json", "model-00002-of-00003", "../model-00002-of-00003");
    refused_weights("shard elsewhere", WORDS("model.safetensors.index.json"));
}

/* ---- model ---- */

static void broken_configurations_are_refused_by_key_and_value(void **state)
{
    (void)state;
    static const char *const edits[][3] = {{"\"llama\"", "\"mamba\"", "mamba"},
                                           {"\"silu\"", "\"swish2\"", "swish2"},
                                           {"\"hidden_size\": 24", "\"hidden_size\": 1e400", "config.json"},
                                           {"\"hidden_size\": 24", "\"hidden_size\": -24", "hidden_size"},
                                           {"\"hidden_size\": 24", "\"hidden_size\": NaN", "config.json"},
                                           {"\"hidden_size\": 24", "\"hidden_size\": 99999999999", "hidden_size"},
                                           {"\"hidden_size\": 24", "\"hidden_size\": \"many\"", "hidden_size"},
                                           {"\"num_hidden_layers\": 2", "\"num_hidden_layers\": 3", "model.layers.2"},
                                           {"\"vocab_size\": 61", "\"vocab_size\": 62", "62"}};
    for (size_t i = 0; i < sizeof edits / sizeof *edits; i++) {
        copy_model("llama");
        edit_text("model/config.json", edits[i][0], edits[i][1]);
        refused_weights(edits[i][1], WORDS(edits[i][2]));
    }
    copy_model("llama");
    char *deep = deep_json();
    put_text("model/config.json", deep);
    refused_weights("deep config.json", WORDS("config.json", "2048"));
    put_text("model/config.json", "");
    refused_weights("empty config.json", WORDS("config.json"));
    assert_int_equal(remove(scratch_path("model/config.json")), 0);
    refused_weights("no config.json", WORDS("config.json"));
    copy_model("llama");
    put_text("model/tokenizer.json", deep);
    refused_weights("deep tokenizer.json", WORDS("tokenizer.json"));
    free(deep);
    refused_model("no folder", scratch_path("nowhere"), fixture("llama"), 1, WORDS("nowhere", "--model"));
}

/* ---- data ---- */

static const char *put_npy(const char *name, const char *type, const void *ids, size_t bytes, size_t n)
{
    char header[256];
    int used = snprintf(header, sizeof header, "{'descr': '%s', 'fortran_order': False, 'shape': (%zu,), }", type, n);
    memset(header + used, ' ', 118 - (size_t)used);
    header[117] = '\n';
    char *all = malloc(128 + bytes);
    assert_non_null(all);
    memcpy(all, "\x93NUMPY\x01\0\x76\0", 10);
    memcpy(all + 10, header, 118);
    memcpy(all + 128, ids, bytes);
    scratch_put(name, all, 128 + bytes);
    free(all);
    return scratch_path(name);
}

static void broken_data_is_refused_by_file_and_place(void **state)
{
    (void)state;
    const char *model = fixture("llama");
    uint16_t ids[256];
    for (size_t i = 0; i < 256; i++)
        ids[i] = (uint16_t)(i % 61);
    ids[200] = 61;
    refused_data("beyond the vocabulary", model, put_npy("beyond.npy", "<u2", ids, sizeof ids, 256), 1,
                 WORDS("beyond.npy", "200", "61"));
    ids[200] = 0;
    refused_data("promised more", model, put_npy("short.npy", "<u2", ids, sizeof ids, 300), 1, WORDS("short.npy"));
    refused_data("floats", model, put_npy("float.npy", "<f4", ids, sizeof ids, 128), 1, WORDS("float.npy", "f4"));
    refused_data("no ids", model, put_npy("none.npy", "<u2", ids, 0, 0), 1, WORDS("none.npy"));
    refused_data("less than a window", model, put_npy("few.npy", "<u2", ids, 10, 5), 1, WORDS("8"));
    refused_data("less than a batch", model, put_npy("few.npy", "<u2", ids, 24, 12), 1, WORDS("windows", "--batch-size"));
    refused_data("no numpy", model, put_text("text.npy", "hello"), 1, WORDS("text.npy"));
    refused_data("no llm.c", model, put_text("text.bin", "hello"), 1, WORDS("text.bin"));
    refused_data("unknown kind", model, put_text("data.xyz", "hello"), 1, WORDS("data.xyz"));
    refused_data("absent", model, scratch_path("absent.txt"), 1, WORDS("absent.txt"));
    refused_data("text without tokenizer", model, put_text("some.txt", "hello"), 1, WORDS("tokenizer.json"));
}

static void broken_texts_are_refused_by_file_and_place(void **state)
{
    (void)state;
    copy_model("llama");
    put_text("model/tokenizer.json", letters);
    char model[128], *deep = deep_json();
    snprintf(model, sizeof model, "%s/model", scratch);
    refused_data("not UTF-8", model, put_text("bytes.txt", "aa bb \xff ab"), 1, WORDS("bytes.txt", "6", "UTF-8"));
    refused_data("empty", model, put_text("empty.txt", ""), 1, WORDS("empty.txt"));
    refused_data("no JSON", model, put_text("lines.jsonl", "{\"text\": \"ab\"}\nab\n"), 1, WORDS("lines.jsonl", "2"));
    refused_data("no text", model, put_text("lines.jsonl", "{\"text\": \"ab\"}\n{\"txt\": \"ab\"}\n"), 1, WORDS("lines.jsonl", "2", "text"));
    refused_data("text of another type", model, put_text("lines.jsonl", "{\"text\": 7}\n"), 1, WORDS("lines.jsonl", "text"));
    refused_data("deep line", model, put_text("deep.jsonl", deep), 1, WORDS("deep.jsonl"));
    refused_data("deep array", model, put_text("deep.json", deep), 1, WORDS("deep.json"));
    refused_data("no array", model, put_text("one.json", "{\"text\": \"a\"}"), 1, WORDS("one.json"));
    refused_data("short text", model, put_text("short.txt", "ab"), 1, WORDS("8"));
    free(deep);
}

static void what_is_no_regular_file_is_not_waited_for(void **state)
{
    (void)state;
    static const char *const files[] = {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char path[200];
        snprintf(path, sizeof path, "%s/%s", copy_model("llama"), files[i]);
        assert_true(!unlink(path) || i > 1);
        assert_int_equal(mkfifo(path, 0666), 0);
        refused_weights(files[i], WORDS(files[i], "regular file"));
    }
}

/* Training from random weights where there were others would be noticed late. */
static void weights_that_cannot_be_read_are_not_taken_for_none(void **state)
{
    (void)state;
    char path[200], other[64];
    snprintf(path, sizeof path, "%s/model.safetensors", copy_model("llama"));
    assert_int_equal(unlink(path), 0);
    assert_int_equal(symlink("../blobs/gone", path), 0);
    refused_weights("link to nothing", WORDS("model.safetensors"));
    assert_int_equal(unlink(path), 0);
    static const char *const lone[] = {"model-00001-of-00002.safetensors", "pytorch_model.bin"};
    for (int i = 0; i < 2; i++) {
        snprintf(other, sizeof other, "model/%s", lone[i]);
        put_text(other, "x");
        refused_weights(lone[i], WORDS(lone[i], "neither model.safetensors nor"));
        assert_int_equal(remove(scratch_path(other)), 0);
    }
}

/* ---- options ---- */

static void wrong_usage_leaves_with_2(void **state)
{
    (void)state;
    static const char *const options[][3] = {
        {"--stps", "3", "--steps"},         {"--steps", "-1", "--steps"},         {"--steps", "many", "--steps"},
        {"--steps", "1e99", "--steps"},     {"--lr", "nan", "--lr"},              {"--lr", "1e9", "--lr"}, {"--lr", "0", "--lr 0"},
        {"--lr", "-1", "--lr"},             {"--batch-size", "0", "--batch-size"}, {"--batch-size", "99999999999999999999", "--batch-size"},
        {"--batch-size", "99999999", "--batch-size"},
        {"--seq-len", "99999999999", "--seq-len"}, {"--epochs", "-2", "--epochs"}, {"--threads", "99999", "--threads"},
        {"--dtype", "fp8", "--dtype"},      {"--beta1", "1", "--beta1"},          {"--beta2", "2", "--beta2"},
        {"--device-memory", "12parsecs", "--device-memory"}, {"--device-memory", "-5MiB", "--device-memory"},
        {"--device", "abacus", "--device"}, {"--lr-schedule", "zigzag", "--lr-schedule"}, {"--micro-batch", "3", "--micro-batch"},
        {"--keep", "-1", "--keep"},         {"--max-grad-norm", "-1", "--max-grad-norm"}, {"--min-lr-ratio", "7", "--min-lr-ratio"}};
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        refused_option(options[i][0], options[i][1], 2, WORDS(options[i][2]));
    refused("no model", 2, WORDS("--model"), WORDS("--data", "x.txt"));
    refused("no data", 2, WORDS("--data"), WORDS("--model", fixture("llama")));
    refused("value missing", 2, WORDS("--steps"), WORDS("--model", fixture("llama"), "--steps"));
    refused("no option", 2, WORDS("stray"), WORDS("stray"));
}

static int run_program(words args)
{
    arguments a = {0};
    add_argument(&a, args[0]);
    add_arguments(&a, args + 1);
    return program_wait(program_start(&a, "/dev/null", scratch_path("err")));
}

static void unknown_commands_leave_with_2_and_help_with_0(void **state)
{
    (void)state;
    check_sentence("unknown command", run_program(WORDS("trane")), 2, WORDS("trane", "--help"));
    assert_int_equal(run_program(WORDS("--help")), 0);
    assert_int_equal(run_program(WORDS("--version")), 0);
    assert_int_equal(run_program(WORDS("train", "--help")), 0);
}

static void what_does_not_fit_leaves_with_3_and_says_how_much_is_missing(void **state)
{
    (void)state;
    refused_option("--device-memory", "1MiB", 3, WORDS("--device-memory", "MiB"));
    refused_option("--device-memory", "900TiB", 3, WORDS("--device-memory", "free"));
}

static void broken_plans_are_refused_by_key(void **state)
{
    (void)state;
    char *deep = deep_json();
    char path[128];
    snprintf(path, sizeof path, "%s", put_text("plan.json", deep));
    refused_option("--plan", path, 1, WORDS("plan.json"));
    free(deep);
    put_text("plan.json", "{}");
    refused_option("--plan", path, 1, WORDS("plan.json", "is missing"));
    put_text("plan.json", "{\"chunk_bytes\": NaN}");
    refused_option("--plan", path, 1, WORDS("plan.json"));
    refused_option("--plan", scratch_path("no-plan.json"), 1, WORDS("no-plan.json"));
}

/* ---- output ---- */

static void an_unusable_output_folder_is_refused(void **state)
{
    (void)state;
    char data[600], below[300];
    snprintf(data, sizeof data, "%s/tokens.npy", fixture("llama"));
    put_text("file", "mine");
    snprintf(below, sizeof below, "%s/below", scratch_path("file"));
    const char *outs[] = {scratch_path("file"), below, "/proc/self/nowhere"};
    for (size_t i = 0; i < 3; i++) {
        int status = run_program(WORDS("train", "--model", fixture("llama"), "--data", data, "--seq-len", "8", "--out", outs[i], "--quiet"));
        check_sentence("unusable --out", status, 1, WORDS(i < 2 ? "file" : "/proc/self/nowhere"));
    }
    assert_string_equal(text_of(scratch_path("file")), "mine");
}

static int train_read_only(const char *folder)
{
    char data[600];
    if (mount(NULL, folder, NULL, MS_REMOUNT | MS_RDONLY, NULL))
        return 77;
    snprintf(data, sizeof data, "%s/tokens.npy", fixture("llama"));
    int status = run_program(WORDS("train", "--model", fixture("llama"), "--data", data, "--seq-len", "8", "--out", folder, "--quiet",
                                   "--device-memory", "64MiB"));
    const char *text = text_of(scratch_path("err"));
    return status == 1 && strstr(text, "protrain: ") && strstr(text, folder) && !strchr(text, '\n')[1] ? 0 : 1;
}

static void a_read_only_output_folder_is_refused(void **state)
{
    (void)state;
    int status = on_small_disk(1 << 20, train_read_only);
    if (status < 0) {
        printf("skipped: no file system can be mounted here\n");
        skip();
    }
    if (status)
        fail_msg("%s", text_of(scratch_path("err")));
}

static int train_until_full(const char *folder)
{
    char data[600], out[300];
    snprintf(data, sizeof data, "%s/bf16/gpt2/tokens.npy", PT_FIXTURES);
    snprintf(out, sizeof out, "%s/bf16/gpt2", PT_FIXTURES);
    char model[600];
    snprintf(model, sizeof model, "%s", out);
    snprintf(out, sizeof out, "%s/run", folder);
    int status = run_program(WORDS("train", "--model", model, "--data", data, "--seq-len", "16", "--out", out, "--quiet", "--steps", "6",
                                   "--save-every", "2", "--device-memory", "64MiB"));
    const char *said = strstr(text_of(scratch_path("err")), "protrain: ");
    char checkpoint[400];
    snprintf(checkpoint, sizeof checkpoint, "%s/checkpoint-2/trainer/trainer.json", out);
    bool good = status == 1 && said && strstr(said, "checkpoint-4") && strstr(said, "make room") && !strchr(said, '\n')[1];
    snprintf(data, sizeof data, "%s/checkpoint-4", out);
    return good && path_exists(checkpoint) && !path_exists(data) ? 0 : 1;
}

static void a_disk_that_fills_up_is_named_and_the_last_checkpoint_stands(void **state)
{
    (void)state;
    int status = on_small_disk(2300 << 10, train_until_full);
    if (status < 0) {
        printf("skipped: no file system can be mounted here\n");
        skip();
    }
    if (status)
        fail_msg("%s", text_of(scratch_path("err")));
}

/* Of the small disk, before any plan is made. */
static int ask_for_more_disk(const char *folder)
{
    char data[600], out[200];
    snprintf(data, sizeof data, "%s/tokens.npy", fixture("llama"));
    snprintf(out, sizeof out, "%s/more-disk", scratch);
    words commands[] = {WORDS("plan"), WORDS("train", "--data", data, "--out", out)};
    for (size_t i = 0; i < 2; i++) {
        arguments a = {0};
        add_arguments(&a, commands[i]);
        add_arguments(&a, WORDS("--model", fixture("llama"), "--seq-len", "8", "--quiet", "--device-memory", "64MiB", "--disk-path", folder,
                                "--disk-memory", "1025KiB"));
        int status = program_wait(program_start(&a, "/dev/null", scratch_path("err")));
        const char *said = strstr(text_of(scratch_path("err")), "protrain: ");
        if (status != 3 || !said || !strstr(said, "--disk-memory is 1.00 MiB, and only 1.00 MiB are free in /mnt") ||
            !strstr(said, "--disk-path"))
            return 1;
    }
    return 0;
}

static void more_disk_than_is_free_does_not_fit(void **state)
{
    (void)state;
    int status = on_small_disk(1 << 20, ask_for_more_disk);
    if (status < 0) {
        printf("skipped: no file system can be mounted here\n");
        skip();
    }
    if (status)
        fail_msg("%s", text_of(scratch_path("err")));
}

/* The run's own checkpoints may have taken what was free when it began. */
static void a_resumed_run_takes_the_disk_that_is_left(void **state)
{
    (void)state;
    char data[600], out[300];
    snprintf(data, sizeof data, "%s/tokens.npy", fixture("llama"));
    snprintf(out, sizeof out, "%s/resumed", scratch);
    for (int i = 0; i < 2; i++) {
        arguments a = {0};
        add_arguments(&a, WORDS("train", "--model", fixture("llama"), "--data", data, "--seq-len", "8", "--out", out, "--steps", "2",
                                "--save-every", "1", "--quiet", "--device-memory", "64MiB"));
        if (i)
            add_arguments(&a, WORDS("--resume", "--disk-memory", "900TiB"));
        int status = program_wait(program_start(&a, "/dev/null", scratch_path("err")));
        if (status && i && disk_is_memory(scratch)) /* there it has to fit with the rest */
            skip();
        if (status || (i && !strstr(text_of(scratch_path("err")), "--disk-memory is 900.00 TiB and ")))
            fail_msg("%s", text_of(scratch_path("err")));
    }
}

/* What the run was for is written by then. */
static void an_account_that_cannot_be_written_is_told_and_no_more(void **state)
{
    (void)state;
    char data[600], out[300], path[600];
    snprintf(data, sizeof data, "%s/tokens.npy", fixture("llama"));
    snprintf(out, sizeof out, "%s/account", scratch);
    snprintf(path, sizeof path, "%s/summary.json", out);
    assert_int_equal(mkdir(out, 0700) || mkdir(path, 0700), 0);
    int status = run_program(WORDS("train", "--model", fixture("llama"), "--data", data, "--seq-len", "8", "--out", out, "--steps", "2",
                                   "--quiet", "--device-memory", "64MiB"));
    if (status || !strstr(text_of(scratch_path("err")), "summary.json"))
        fail_msg("%d: %s", status, text_of(scratch_path("err")));
    snprintf(path, sizeof path, "%s/model.safetensors", out);
    assert_true(path_exists(path));
}

static void a_profile_that_was_given_is_not_removed(void **state)
{
    (void)state;
    char out[300], path[400];
    snprintf(out, sizeof out, "%s/given", scratch);
    snprintf(path, sizeof path, "%s/profile.json", out);
    assert_int_equal(mkdir(out, 0700), 0);
    put_text("given/profile.json", "{}");
    int status = run_program(WORDS("train", "--model", fixture("llama"), "--data", "/nothing/here.npy", "--seq-len", "8", "--out", out,
                                   "--quiet", "--profile", path));
    check_sentence("a profile in --out", status, 1, WORDS("/nothing/here.npy"));
    assert_true(path_exists(path));
}

static int plan_on(const char *folder, const char *memory, const char *disk)
{
    arguments a = {0};
    add_arguments(&a, WORDS("plan", "--model", fixture("llama"), "--seq-len", "8", "--quiet", "--device-memory", memory));
    add_arguments(&a, WORDS("--disk-path", folder));
    if (disk)
        add_arguments(&a, WORDS("--disk-memory", disk));
    return program_wait(program_start(&a, "/dev/null", scratch_path("err")));
}

/* With one byte less than what does without a disk. */
static int plan_with_a_disk_in_ram(const char *folder)
{
    char memory[32];
    plan_on(folder, "1MiB", "0");
    const char *give = strstr(text_of(scratch_path("err")), "--device-memory ");
    if (!give)
        return 1;
    snprintf(memory, sizeof memory, "%lld", atoll(give + strlen("--device-memory ")) - 1);
    if (plan_on(folder, memory, NULL) != 3 || !strstr(text_of(scratch_path("err")), "note: /mnt lies in RAM"))
        return 2;
    return plan_on(folder, memory, "16MiB") ? 3 : 0;
}

static void a_disk_in_ram_is_used_where_it_is_asked_for(void **state)
{
    (void)state;
    int status = on_small_disk(32 << 20, plan_with_a_disk_in_ram);
    if (status < 0) {
        printf("skipped: no file system can be mounted here\n");
        skip();
    }
    if (status)
        fail_msg("%d: %s", status, text_of(scratch_path("err")));
}

static void a_second_run_into_the_same_folder_is_refused(void **state)
{
    (void)state;
    char data[600], out[128], metrics[200];
    arguments a = {0};
    snprintf(data, sizeof data, "%s/tokens.npy", fixture("llama"));
    snprintf(out, sizeof out, "%s/shared", scratch);
    snprintf(metrics, sizeof metrics, "%s/metrics.jsonl", out);
    add_arguments(&a, WORDS("train", "--model", fixture("llama"), "--data", data, "--seq-len", "8", "--out", out, "--quiet", "--steps",
                            "1000000", "--device-memory", "64MiB"));
    pid_t first = program_start(&a, "/dev/null", scratch_path("err-first"));
    for (int i = 0; i < 6000 && !*text_of(metrics); i++)
        sleep_seconds(0.01);
    char pid[16];
    snprintf(pid, sizeof pid, "%d", (int)first);
    for (int resume = 0; resume < 2; resume++) {
        arguments b = a;
        if (resume)
            add_argument(&b, "--resume");
        check_sentence("second run", program_wait(program_start(&b, "/dev/null", scratch_path("err"))), 1, WORDS("shared", pid));
    }
    assert_int_equal(kill(first, SIGTERM), 0);
    assert_int_equal(program_wait(first), 143);
}

/* ---- numbers ---- */

static void weights_that_are_not_finite_stop_the_run_with_step_and_block(void **state)
{
    (void)state;
    char data[600], out[128];
    const float nan = NAN;
    copy_model("llama");
    blob b = read_blob("model/model.safetensors");
    memcpy(b.bytes + b.n - sizeof nan, &nan, sizeof nan);
    scratch_put("model/model.safetensors", b.bytes, b.n);
    free(b.bytes);
    snprintf(data, sizeof data, "%s/tokens.npy", fixture("llama"));
    snprintf(out, sizeof out, "%s/not-finite", scratch);
    int status = run_program(WORDS("train", "--model", scratch_path("model"), "--data", data, "--seq-len", "8", "--out", out, "--quiet",
                                   "--device-memory", "64MiB"));
    check_sentence("not finite", status, 1, WORDS("step 1", "block", "nan"));
    assert_true(path_exists(scratch_path("not-finite/checkpoint-0")));
    assert_false(path_exists(scratch_path("not-finite/model.safetensors")));
}

static void a_rate_that_explodes_stops_the_run_with_a_checkpoint_from_before(void **state)
{
    (void)state;
    char data[600], out[128];
    snprintf(data, sizeof data, "%s/tokens.npy", fixture("gpt2"));
    snprintf(out, sizeof out, "%s/explodes", scratch);
    int status = run_program(WORDS("train", "--model", fixture("gpt2"), "--data", data, "--seq-len", "8", "--out", out, "--quiet",
                                   "--device-memory", "64MiB", "--lr", "1000", "--weight-decay", "1000", "--steps", "200"));
    check_sentence("explodes", status, 1, WORDS("step ", "block", "checkpoint-", "--lr"));
    assert_false(path_exists(scratch_path("explodes/model.safetensors")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(broken_weights_are_refused_by_file_and_tensor),
        cmocka_unit_test(missing_shards_are_named),
        cmocka_unit_test(broken_configurations_are_refused_by_key_and_value),
        cmocka_unit_test(broken_data_is_refused_by_file_and_place),
        cmocka_unit_test(broken_texts_are_refused_by_file_and_place),
        cmocka_unit_test(what_is_no_regular_file_is_not_waited_for),
        cmocka_unit_test(weights_that_cannot_be_read_are_not_taken_for_none),
        cmocka_unit_test(wrong_usage_leaves_with_2),
        cmocka_unit_test(unknown_commands_leave_with_2_and_help_with_0),
        cmocka_unit_test(what_does_not_fit_leaves_with_3_and_says_how_much_is_missing),
        cmocka_unit_test(broken_plans_are_refused_by_key),
        cmocka_unit_test(an_unusable_output_folder_is_refused),
        cmocka_unit_test(a_read_only_output_folder_is_refused),
        cmocka_unit_test(a_disk_that_fills_up_is_named_and_the_last_checkpoint_stands),
        cmocka_unit_test(more_disk_than_is_free_does_not_fit),
        cmocka_unit_test(a_resumed_run_takes_the_disk_that_is_left),
        cmocka_unit_test(an_account_that_cannot_be_written_is_told_and_no_more),
        cmocka_unit_test(a_profile_that_was_given_is_not_removed),
        cmocka_unit_test(a_disk_in_ram_is_used_where_it_is_asked_for),
        cmocka_unit_test(a_second_run_into_the_same_folder_is_refused),
        cmocka_unit_test(weights_that_are_not_finite_stop_the_run_with_step_and_block),
        cmocka_unit_test(a_rate_that_explodes_stops_the_run_with_a_checkpoint_from_before),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
