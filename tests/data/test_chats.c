/* Records of each format to windows: what is learned, what is refused, and the cache of it. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "data/dataset.h"

#include "chat/byte_model.h"
#include "scratch.h"

enum { LEN = 120, VOCAB = 300, EOS = 257, BOS = 256 };

static tokenizer *the_tokenizer;
static int built; /* how often the tokens were made */

static void on_progress(void *arg, uint64_t done, uint64_t total)
{
    (void)arg, (void)done, (void)total;
    built = 1;
}

static int open_file(const char *name, const char *content, dataset_options o, dataset **d, pt_error *e)
{
    const char *paths[] = {scratch_text(name, content)};
    o.paths = paths;
    o.paths_n = 1;
    o.tokenizer = the_tokenizer;
    o.model_dir = scratch_dir;
    o.cache_dir = scratch_path("cache");
    o.tokenizer_fingerprint = "bytes";
    o.vocab = VOCAB;
    o.progress = on_progress;
    o.seq_len = o.seq_len ? o.seq_len : LEN;
    built = 0;
    return dataset_open(&o, d, e);
}

static dataset *open_good(const char *name, const char *content, dataset_options o)
{
    dataset *d;
    pt_error e = {0};
    if (open_file(name, content, o, &d, &e))
        fail_msg("%s", e.text);
    return d;
}

/* What window 0 learns: texts of targets that follow each other, each with '$' behind it. */
static void learns(const char *name, const char *content, dataset_options o, const char *want)
{
    static const char *const names[] = {"<s>", "</s>", "<|im_start|>", "<|im_end|>", "<|end|>"};
    dataset *d = open_good(name, content, o);
    int32_t ids[LEN], targets[LEN], first[LEN];
    char got[2048];
    size_t n = 0;
    dataset_counts counts = {0};
    assert_int_equal(dataset_sample(d, 0, 1, &(dataset_row){ids, targets, first, NULL}, &counts, NULL), 0);
    for (int t = 0; t < LEN; t++) {
        if (targets[t] >= 256)
            n += (size_t)sprintf(got + n, "%s", names[targets[t] - 256]);
        else if (targets[t] >= 0)
            got[n++] = (char)targets[t];
        if (targets[t] >= 0 && (t + 1 == LEN || targets[t + 1] < 0))
            got[n++] = '$';
    }
    got[n] = 0;
    assert_string_equal(got, want);
    dataset_close(d);
}

static void refused(const char *name, const char *content, dataset_options o, const char *because)
{
    dataset *d;
    pt_error e = {0};
    assert_true(open_file(name, content, o, &d, &e) < 0);
    if (!strstr(e.text, because) || !strstr(e.text, name))
        fail_msg("the message should name %s and say \"%s\": %s", name, because, e.text);
}

#define USER(q) "{\"role\": \"user\", \"content\": \"" q "\"}"
#define REPLY(a) "{\"role\": \"assistant\", \"content\": \"" a "\"}"

static const dataset_options usual = {.seed = 3};

static void the_replies_of_every_format_are_learned(void **state)
{
    (void)state;
    const char *two = "{\"messages\": [" USER("q") ", " REPLY("one") ", " USER("r") ", " REPLY("two") "]}\n";
    learns("messages.jsonl", two, usual, "one<|im_end|>$two<|im_end|>$");
    learns("last.jsonl", two, (dataset_options){.train_on = PT_TRAIN_ON_LAST}, "two<|im_end|>$");
    learns("completion.jsonl", two, (dataset_options){.train_on = PT_TRAIN_ON_COMPLETION}, "two<|im_end|>$");
    learns("sharegpt.json",
           "[{\"system\": \"s\", \"conversations\": [{\"from\": \"human\", \"value\": \"q\"}, {\"from\": \"gpt\", \"value\": \"one\"}]}]",
           usual, "one<|im_end|>$");
    learns("alpaca.json", "[{\"instruction\": \"i\", \"input\": \"x\", \"output\": \"o\", \"history\": [[\"a\", \"b\"]]}]", usual,
           "b<|im_end|>$o<|im_end|>$");
    learns("pair.jsonl", "{\"prompt\": \"ab\", \"completion\": \"cd\"}", usual, "cd</s>$");
    learns("turns.jsonl", "{\"prompt\": [" USER("q") "], \"completion\": [" REPLY("a") "]}", usual, "a<|im_end|>\n$");
    learns("parts.jsonl",
           "{\"messages\": [" USER("q") ", {\"role\": \"assistant\", \"content\": [{\"type\": \"text\", \"text\": \"a\"}, {\"type\": "
           "\"text\", \"value\": \"b\"}]}]}", usual, "ab<|im_end|>$");
    learns("all.jsonl", "{\"prompt\": \"ab\", \"completion\": \"cd\"}", (dataset_options){.train_on = PT_TRAIN_ON_ALL}, "abcd</s>$");
    learns("pair.csv", "prompt,completion\r\n\"a,\"\"b\",c\r\n", usual, "c</s>$");
    learns("chat.csv", "messages\n\"[{\"\"role\"\": \"\"user\"\", \"\"content\"\": \"\"q\"\"}, {\"\"role\"\": \"\"assistant\"\", "
                       "\"\"content\"\": \"\"a\"\"}]\"\n",
           usual, "a<|im_end|>$");
    learns("texts.jsonl", "{\"text\": \"ab\"}", (dataset_options){.alone = true}, "ab</s>$");
}

/* An end that is the padding token too is a target like any other, and padding none. */
static void windows_hold_whole_examples_that_begin_anew(void **state)
{
    (void)state;
    dataset *d = open_good("two.jsonl", "{\"prompt\": \"ab\", \"completion\": \"c\"}\n{\"prompt\": \"x\", \"completion\": \"yz\"}\n",
                           (dataset_options){.seq_len = 10});
    const int32_t want[] = {BOS, 'a', 'b', 'c', BOS, 'x', 'y', 'z', 0, 0}, targets[] = {-100, -100, 'c', EOS, -100, 'y', 'z', EOS, -100,
        -100};
    const int32_t starts[] = {0, 0, 0, 0, 4, 4, 4, 4, 8, 8};
    const float weigh[] = {0, 0, 0.5f, 0.5f, 0, 1 / 3.f, 1 / 3.f, 1 / 3.f, 0, 0};
    int32_t ids[10], out[10], first[10];
    float weights[10];
    dataset_counts counts = {0};
    assert_int_equal(dataset_windows(d), 1);
    assert_int_equal(dataset_sample(d, 0, 1, &(dataset_row){ids, out, first, weights}, &counts, NULL), 0);
    assert_memory_equal(ids, want, sizeof want);
    assert_memory_equal(out, targets, sizeof targets);
    assert_memory_equal(first, starts, sizeof starts);
    assert_memory_equal(weights, weigh, sizeof weigh);
    assert_true(counts.tokens == 8 && counts.learned == 5 && counts.examples == 2);
    assert_string_equal(dataset_summary(d), "format prompt: 2 of 2 records in 1 window, 80% full; 5 of 8 tokens (62%) are learned");
    dataset_close(d);
}

static void records_without_a_reply_are_counted_and_left_out(void **state)
{
    (void)state;
    dataset *d = open_good("some.jsonl", "{\"messages\": [" USER("q") "]}\n{\"messages\": [" USER("q") ", " REPLY("a") "]}\n", usual);
    assert_int_equal(dataset_windows(d), 1);
    assert_non_null(strstr(dataset_notice(d), "1 of 2 records have no token to learn"));
    assert_non_null(strstr(dataset_summary(d), "format messages: 1 of 2 records in 1 window, "));
    assert_non_null(strstr(dataset_summary(d), "full; 2 of "));
    dataset_close(d);
    refused("none.jsonl", "{\"messages\": [" USER("q") "]}\n", usual, "would be trained on");
}

static void bad_records_are_named(void **state)
{
    (void)state;
    refused("empty.jsonl", "{\"messages\": []}\n", usual, "line 1: the conversation is empty");
    refused("role.jsonl", "{\"messages\": [" USER("q") ", " REPLY("a") "]}\n{\"messages\": [{\"role\": \"gpt\", \"content\": \"\"}]}",
            usual,
            "line 2: message 1: unknown role \"gpt\": write \"assistant\"");
    refused("from.jsonl", "{\"conversations\": [{\"from\": \"me\", \"value\": \"\"}]}", usual, "unknown \"from\": \"me\"");
    refused("image.jsonl", "{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"image\"}]}]}", usual, "type \"image\"");
    refused("number.jsonl", "{\"messages\": [{\"role\": \"user\", \"content\": 3}]}", usual, "\"content\" is an integer");
    refused("spelling.jsonl", "{\"messages\": [" USER("q") ", {\"role\": \"Assistant \", \"content\": \"\"}]}", usual,
            "message 2: unknown role \"Assistant \": write \"assistant\"");
    refused("nothing.jsonl", "{\"messages\": [{\"role\": \"user\", \"content\": null}, " REPLY("a") "]}", usual,
            "message 1 (user) has no \"content\"");
    refused("calls.jsonl", "{\"messages\": [" USER("q") ", {\"role\": \"assistant\", \"tool_calls\": [\"f\"]}]}", usual,
            "message 2: one of its \"tool_calls\" is a string");
    refused("list.jsonl", "[{\"messages\": []}]", usual, "line 1: a list instead of an object");
    refused("wide.jsonl", "\xff\xfe{", usual, "this is UTF-16");
    refused("semicolons.csv", "prompt;completion\na;b\n", usual, "line 1, field 1: one name with semicolons");
    refused("mixed.jsonl", "{\"prompt\": \"a\", \"completion\": \"b\"}\n{\"messages\": [" USER("q") "]}", usual,
            "line 2: a record with \"messages\"");
    refused("keys.jsonl", "{\"question\": \"a\", \"answer\": \"b\"}", usual, "its keys: question, answer");
    refused("pair2.jsonl", "{\"prompt\": \"a\", \"completion\": [" REPLY("b") "]}", usual, "both must be strings");
    refused("output.json", "[{\"instruction\": \"a\", \"output\": 3}]", usual, "\"output\" is an integer");
    refused("names.csv", "a,a\n1,2\n", usual, "two columns have this name");
    refused("fields.csv", "prompt,completion\na,b,c\n", usual, "line 2: 3 fields");
    refused("quote.csv", "prompt,completion\na,\"b\n", usual, "line 2: the quote that begins a field is never closed");
    refused("utf8.csv", "prompt,completion\na,\xff\n", usual, "line 2, field 2: this is not UTF-8");
    refused("json.jsonl", "{\"prompt\": \"a\", \"completion\": \"b\"}\n{\"prompt\": oops}", usual, "line 2, column 15: not valid JSON");
    refused("format.jsonl", "{\"text\": \"a\"}", (dataset_options){.format = PT_DATA_MESSAGES}, "but `data_format` is messages");
    refused("long.jsonl", "{\"prompt\": \"a\", \"completion\": \"bcdefgh\"}", (dataset_options){.seq_len = 4, .longer = PT_LONG_ERROR},
            "line 1: an example has 10 tokens");
}

static void a_cache_is_used_again_for_the_same_rules_alone(void **state)
{
    (void)state;
    const char *chat = "{\"messages\": [" USER("q") ", " REPLY("a") ", " USER("r") ", " REPLY("b") "]}\n";
    char fingerprint[33];
    dataset *d = open_good("cached.jsonl", chat, usual);
    assert_true(built);
    strcpy(fingerprint, dataset_fingerprint(d));
    dataset_close(d);
    d = open_good("cached.jsonl", chat, usual); /* the file is written again, within the same second or not */
    assert_string_equal(dataset_fingerprint(d), fingerprint);
    dataset_close(d);
    const char *paths[] = {scratch_path("cached.jsonl")};
    dataset_options o = {.paths = paths, .paths_n = 1, .tokenizer = the_tokenizer, .model_dir = scratch_dir,
                         .cache_dir = scratch_path("cache"),
                         .tokenizer_fingerprint = "bytes", .vocab = VOCAB, .seq_len = LEN, .progress = on_progress, .seed = 3};
    for (int turn = 0; turn < 4; turn++) { /* as it was; another mask; another template; as it was */
        pt_error e = {0};
        o.train_on = turn == 1 ? PT_TRAIN_ON_LAST : PT_TRAIN_ON_AUTO;
        if (turn == 2)
            put(scratch_dir, "chat_template.jinja", BYTE_MODEL_TEMPLATE " ");
        built = 0;
        if (dataset_open(&o, &d, &e))
            fail_msg("%s", e.text);
        assert_int_equal(built, turn > 0 && turn < 3);
        dataset_close(d);
    }
    put(scratch_dir, "chat_template.jinja", BYTE_MODEL_TEMPLATE);
}

static int open_all(void **state)
{
    (void)state;
    pt_error e = {0};
    scratch_make();
    put_byte_model(scratch_dir, 256, true);
    return tokenizer_open(scratch_dir, &the_tokenizer, &e);
}

static int close_all(void **state)
{
    (void)state;
    tokenizer_close(the_tokenizer);
    scratch_remove();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_replies_of_every_format_are_learned), cmocka_unit_test(windows_hold_whole_examples_that_begin_anew),
        cmocka_unit_test(records_without_a_reply_are_counted_and_left_out), cmocka_unit_test(bad_records_are_named),
        cmocka_unit_test(a_cache_is_used_again_for_the_same_rules_alone)};
    return cmocka_run_group_tests(tests, open_all, close_all);
}
