/* Chats packed into windows train as each would alone: a step over all of them has the same loss and the same gradient, packed or one a
 * window, each token counted the same or each example. */
#include "protrain.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "random_plan.h"
#include "train/fixture.h"
#include "train/heard.h"

#include "chat/byte_model.h"

enum { LEN = 60, CHATS = 23 };

static random_source the_random;
static char folder[200], data[200];

/* A model with random weights and vocabulary 256, whose tokenizer has an id for each byte. */
static void make_model(void)
{
    snprintf(folder, sizeof folder, "%s/model", scratch);
    assert_int_equal(mkdir(folder, 0777), 0);
    put_byte_model(folder, 128, true);
    put(folder, "config.json", "{\"model_type\": \"qwen2\", \"vocab_size\": 256, \"hidden_size\": 32, \"num_attention_heads\": 4, "
        "\"num_key_value_heads\": 2, \"num_hidden_layers\": 2, \"intermediate_size\": 48, \"max_position_embeddings\": 64}");
}

static void letters(char *out, int n)
{
    for (int i = 0; i < n; i++)
        out[i] = (char)('a' + random_below(&the_random, 26));
    out[n] = 0;
}

/* One chat a line, of one or two replies. */
static void make_chats(void)
{
    char all[CHATS * 300], q[3][32], a[2][32];
    size_t n = 0;
    for (int i = 0; i < CHATS; i++) {
        for (int k = 0; k < 3; k++)
            letters(q[k], random_below(&the_random, 4));
        letters(a[0], random_below(&the_random, 9));
        letters(a[1], random_below(&the_random, 5));
        n += (size_t)snprintf(all + n, sizeof all - n,
                              "{\"messages\": [{\"role\": \"u\", \"content\": \"%s\"}, {\"role\": \"assistant\", \"content\": \"%s\"}",
                              q[0], a[0]);
        if (i % 3 == 2)
            n += (size_t)snprintf(all + n, sizeof all - n,
                                  ", {\"role\": \"u\", \"content\": \"%s\"}, {\"role\": \"assistant\", \"content\": \"%s\"}", q[1], a[1]);
        n += (size_t)snprintf(all + n, sizeof all - n, "]}\n");
    }
    snprintf(data, sizeof data, "%s/chats.jsonl", scratch);
    put(scratch, "chats.jsonl", all);
}

/* Of a run on `data`, a window a step. */
static pt_train_options options_for(const char *out)
{
    static const char *const paths[] = {data};
    pt_train_options o;
    pt_train_defaults(&o);
    o.model = folder;
    o.data = paths;
    o.data_n = 1;
    o.out = out;
    o.seq_len = LEN;
    o.batch_size = 1;
    o.device = "cpu";
    o.device_memory = 256u << 20;
    return o;
}

typedef struct outcome { pt_step step; int64_t windows; } outcome;

/* One step over all windows there are. */
static outcome one_step(bool alone, pt_loss_per per, const char *name)
{
    pt_trainer *t;
    pt_summary m;
    pt_error e = {0};
    outcome out;
    char path[200], whole[300];
    snprintf(path, sizeof path, "%s/%s-%d-%d", scratch, name, alone, per);
    pt_train_options o = options_for(path);
    o.precision = PT_PRECISION_FP32;
    o.no_packing = alone;
    o.loss_per = per;
    must(pt_trainer_open(&o, &t, &e), &e);
    pt_trainer_summary(t, &m);
    out.windows = m.windows;
    pt_trainer_close(t);
    snprintf(whole, sizeof whole, "%s-all", path);
    o.out = whole;
    o.batch_size = m.windows;
    must(pt_trainer_open(&o, &t, &e), &e);
    assert_int_equal(pt_trainer_step(t, &out.step, &e), 1);
    pt_trainer_close(t);
    return out;
}

static void packed_examples_train_as_if_alone(void **state)
{
    (void)state;
    for (int turn = 0; turn < 3; turn++) {
        char name[20];
        snprintf(name, sizeof name, "run%d", turn);
        make_chats();
        for (int per = PT_LOSS_PER_TOKEN; per <= PT_LOSS_PER_EXAMPLE; per++) {
            const outcome packed = one_step(false, (pt_loss_per)per, name), alone = one_step(true, (pt_loss_per)per, name);
            assert_int_equal(alone.windows, CHATS);
            assert_true(packed.windows < alone.windows && packed.windows > 1);
            assert_int_equal(packed.step.learned_tokens, alone.step.learned_tokens);
            assert_int_equal(packed.step.tokens, alone.step.tokens);
            assert_true(packed.step.learned_tokens < packed.step.tokens);
            if (!(fabs(packed.step.loss - alone.step.loss) <= 1e-6 * alone.step.loss) ||
                !(fabs(packed.step.grad_norm - alone.step.grad_norm) <= 1e-5 * alone.step.grad_norm))
                fail_msg("packed: loss %.9g, norm %.9g; alone: %.9g, %.9g", packed.step.loss, packed.step.grad_norm, alone.step.loss,
                         alone.step.grad_norm);
        }
    }
}

/* The mean over examples is the mean of what each gives as the only one. */
static void an_example_counts_as_much_as_any_other(void **state)
{
    (void)state;
    char all[1024];
    static const char *const chats[] = {"{\"messages\": [{\"role\": \"u\", \"content\": \"abc\"}, {\"role\": \"assistant\", \"content\": "
                                        "\"x\"}]}\n",
                                        "{\"messages\": [{\"role\": \"u\", \"content\": \"q\"}, {\"role\": \"assistant\", \"content\": "
                                        "\"a long reply\"}]}\n"};
    double loss[3], tokens[3];
    make_chats();
    snprintf(all, sizeof all, "%s%s", chats[0], chats[1]);
    for (int i = 0; i < 3; i++) {
        char name[20];
        snprintf(name, sizeof name, "mean%d", i);
        put(scratch, "chats.jsonl", i < 2 ? chats[i] : all);
        const outcome o = one_step(true, PT_LOSS_PER_EXAMPLE, name);
        loss[i] = o.step.loss;
        tokens[i] = (double)o.step.learned_tokens;
    }
    assert_true(tokens[0] == 2 && tokens[1] == 13 && tokens[2] == 15);
    assert_true(fabs(loss[2] - (loss[0] + loss[1]) / 2) < 1e-6);
    assert_true(fabs(loss[2] - (2 * loss[0] + 13 * loss[1]) / 15) > 1e-5);
}

/* ---- the end of a reply ---- */

/* One step over the chats; what the run said is in *said. */
static void train_a_step(const char *model, const char *out, int64_t rank, heard *said)
{
    pt_train_options o;
    pt_trainer *t;
    pt_step s;
    pt_error e = {0};
    const char *paths[] = {data};
    *said = (heard){0};
    pt_train_defaults(&o);
    o.model = model;
    o.data = paths;
    o.data_n = 1;
    o.out = out;
    o.steps = 1;
    o.seq_len = LEN;
    o.batch_size = 1;
    o.device = "cpu";
    o.device_memory = 256u << 20;
    o.lora_rank = rank;
    o.notice = hear;
    o.arg = said;
    must(pt_trainer_open(&o, &t, &e), &e);
    assert_int_equal(pt_trainer_step(t, &s, &e), 1);
    must(pt_trainer_finish(t, &e), &e);
    pt_trainer_close(t);
}

static void merge_to(const char *model, const char *adapter, const char *out)
{
    pt_merge_options o;
    pt_error e = {0};
    pt_merge_defaults(&o);
    o.model = model;
    o.adapter = (const char *const[]){adapter};
    o.adapter_n = 1;
    o.out = out;
    must(pt_merge(&o, &e), &e);
}

static void assert_generation(const char *of, const char *expected)
{
    char path[300], *text;
    size_t n;
    json_t *a, *b;
    pt_error e = {0};
    snprintf(path, sizeof path, "%s/generation_config.json", of);
    must(file_read_all(path, 1 << 20, &text, &n, &e), &e);
    must(json_text_load(path, text, n, 0, &a, &e), &e);
    must(json_text_load("expected", expected, strlen(expected), 0, &b, &e), &e);
    if (!json_equal(a, b))
        fail_msg("%s: %.*s instead of %s", path, (int)n, text, expected);
    json_decref(a);
    json_decref(b);
    free(text);
}

/* Where other programs look for it: in the model, in an adapter, and in what merges the two. */
static void the_end_of_a_reply_ends_a_text_elsewhere(void **state)
{
    (void)state;
    static const char given[] = "{\"eos_token_id\": 129, \"temperature\": 0.7}";
    static const char both[] = "{\"eos_token_id\": [129, 131], \"temperature\": 0.7}";
    char model[200], again[200], adapter[200], merged[200], path[300];
    heard said;
    make_chats();
    snprintf(model, sizeof model, "%s/ends-model", scratch);
    snprintf(again, sizeof again, "%s/ends-again", scratch);
    snprintf(adapter, sizeof adapter, "%s/ends-adapter", scratch);
    snprintf(merged, sizeof merged, "%s/ends-merged", scratch);
    train_a_step(folder, model, 0, &said); /* no file of the folder names an end */
    assert_generation(model, "{\"eos_token_id\": [131]}");
    assert_non_null(strstr(said.text, "<|im_end|>"));
    put(model, "generation_config.json", both);
    train_a_step(model, again, 0, &said);
    assert_generation(again, both);
    assert_null(strstr(said.text, "eos_token_id"));
    put(model, "generation_config.json", given);
    train_a_step(model, adapter, 4, &said);
    assert_generation(adapter, both);
    merge_to(model, adapter, merged);
    assert_generation(merged, both);
    must(tree_remove(merged, &(pt_error){0}), &(pt_error){0});
    snprintf(path, sizeof path, "%s/generation_config.json", adapter); /* as others write adapters: the template tells */
    assert_int_equal(unlink(path), 0);
    merge_to(model, adapter, merged);
    assert_generation(merged, both);
}

static int open_all(void **state)
{
    the_random = random_open();
    int failed = scratch_make(state);
    if (!failed)
        make_model();
    return failed;
}

/* The learned text of a preview, and how many examples it has. */
static int learned_of(const char *preview, char *out)
{
    bool learned = false;
    int examples = 0;
    for (; *preview; preview++) {
        assert_true((unsigned char)*preview >= ' ' || strchr("\n\x0e\x0f\x1e", *preview));
        examples += *preview == PT_EXAMPLE_ENDS;
        if (*preview == PT_LEARNED_BEGINS || *preview == PT_LEARNED_ENDS) {
            assert_int_equal(learned, *preview == PT_LEARNED_ENDS);
            learned = !learned;
        } else if (learned) {
            *out++ = *preview;
        }
    }
    *out = 0;
    assert_false(learned);
    return examples;
}

/* Examples come in the order of the run, from any window, whole; what a terminal would obey has become dots. */
static void a_preview_shows_what_is_learned(void **state)
{
    (void)state;
    char path[200], learned[4000];
    pt_trainer *t;
    pt_error e = {0};
    put(scratch, "chats.jsonl",
        "{\"messages\": [{\"role\": \"u\", \"content\": \"ask\"}, {\"role\": \"assistant\", \"content\": \"red\\u001b[31m\"}, "
        "{\"role\": \"u\", \"content\": \"more\"}, {\"role\": \"assistant\", \"content\": \"blue\"}]}\n"
        "{\"messages\": [{\"role\": \"u\", \"content\": \"and\"}, {\"role\": \"assistant\", \"content\": \"green\"}]}\n"
        "{\"messages\": [{\"role\": \"u\", \"content\": \"no\"}, {\"role\": \"assistant\", \"content\": \"grey\"}]}\n");
    pt_train_options o = options_for(path);
    o.shuffle = false;
    for (o.preview = PT_PREVIEW_DEFAULT; o.preview < 4; o.preview++) {
        snprintf(path, sizeof path, "%s/preview%d", scratch, (int)o.preview);
        must(pt_trainer_open(&o, &t, &e), &e);
        const char *preview = pt_trainer_preview(t);
        assert_int_equal(preview ? learned_of(preview, learned) : 0, o.preview == PT_PREVIEW_DEFAULT ? 1 : o.preview);
        if (o.preview == 1)
            assert_true(strstr(learned, "red.[31m") && strstr(learned, "blue") && strstr(preview, "more") && !strstr(learned, "more"));
        if (o.preview == 3)
            assert_true(strstr(learned, "green") && strstr(learned, "grey"));
        pt_trainer_close(t);
    }
    assert_null(pt_trainer_preview(NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(packed_examples_train_as_if_alone),
                                       cmocka_unit_test(a_preview_shows_what_is_learned),
                                       cmocka_unit_test(an_example_counts_as_much_as_any_other),
                                       cmocka_unit_test(the_end_of_a_reply_ends_a_text_elsewhere)};
    return cmocka_run_group_tests(tests, open_all, scratch_remove);
}
