/* What bad input gets: one clear sentence on stderr, the right exit status, and nothing under a final name. Everything goes through
 * the program, as a user meets it. */
#include "protrain.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cli/refusal.h"

/* ---- running ---- */

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
    refused_data("no text", model, put_text("lines.jsonl", "{\"text\": \"ab\"}\n{\"txt\": \"ab\"}\n"), 1,
                 WORDS("lines.jsonl", "2", "text"));
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
        {"--device", "abacus", "--device"}, {"--lr-schedule", "zigzag", "--lr-schedule"},
        {"--micro-batch", "3", "does not divide --batch-size 8"},
        {"--micro-batch", "16", "more than --batch-size 8"},
        {"--seq-len", "0", "1 or more"},    {"--lora", "0", "1 or more"},
        {"--lora-alpha", "0", "from 1e-06"},   {"--momentum", "0", "above 0"},
        {"--keep", "-1", "--keep"},         {"--max-grad-norm", "-1", "--max-grad-norm"}, {"--min-lr-ratio", "7", "--min-lr-ratio"}};
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        refused_option(options[i][0], options[i][1], 2, WORDS(options[i][2]));
    refused("no model", 2, WORDS("--model"), WORDS("--data", "x.txt"));
    refused("no data", 2, WORDS("--data"), WORDS("--model", fixture("llama")));
    refused("value missing", 2, WORDS("--steps"), WORDS("--model", fixture("llama"), "--steps"));
    refused("no option", 2, WORDS("stray"), WORDS("stray"));
}

static void a_folder_with_an_adapter_alone_is_named_as_that(void **state)
{
    (void)state;
    char folder[256];
    pt_error e = {0};
    snprintf(folder, sizeof folder, "%s/adapter", scratch);
    assert_int_equal(dir_make(folder, &e), 0);
    put_text("adapter/adapter_config.json", "{}");
    check_sentence("a model", run_program(WORDS("plan", "--model", folder)), 1, WORDS("holds an adapter and no model", "--adapter"));
    check_sentence("an adapter", run_program(WORDS("eval", "--model", fixture("llama"), "--adapter", fixture("llama"), "--data", "x")), 1,
                   WORDS("llama/adapter_config.json does not exist", "--adapter"));
}

static void unknown_commands_leave_with_2_and_help_with_0(void **state)
{
    (void)state;
    check_sentence("unknown command", run_program(WORDS("trian")), 2, WORDS("trian", "did you mean train?"));
    check_sentence("unknown command", run_program(WORDS("zzz")), 2, WORDS("zzz", "--help"));
    check_sentence("no value", run_program(WORDS("train", "--steps", "--out", "x")), 2, WORDS("--steps needs a value"));
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
        cmocka_unit_test(a_folder_with_an_adapter_alone_is_named_as_that),
        cmocka_unit_test(unknown_commands_leave_with_2_and_help_with_0),
        cmocka_unit_test(what_does_not_fit_leaves_with_3_and_says_how_much_is_missing),
        cmocka_unit_test(broken_plans_are_refused_by_key),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
