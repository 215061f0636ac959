/* Chats packed into windows train as each would alone: a step over all of them has the same loss and the same gradient, packed or one a
 * window, each token counted the same or each example. */
#include "protrain.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "random_plan.h"
#include "train/fixture.h"

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

typedef struct outcome { pt_step step; int64_t windows; } outcome;

/* One step over all windows there are. */
static outcome one_step(bool alone, pt_loss_per per, const char *name)
{
    pt_train_options o;
    pt_trainer *t;
    pt_summary m;
    pt_error e = {0};
    outcome out;
    char path[200], whole[300];
    const char *paths[] = {data};
    snprintf(path, sizeof path, "%s/%s-%d-%d", scratch, name, alone, per);
    pt_train_defaults(&o);
    o.model = folder;
    o.data = paths;
    o.data_n = 1;
    o.out = path;
    o.seq_len = LEN;
    o.batch_size = 1;
    o.precision = PT_PRECISION_FP32;
    o.device = "cpu";
    o.device_memory = 256u << 20;
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

static int open_all(void **state)
{
    the_random = random_open();
    int failed = scratch_make(state);
    if (!failed)
        make_model();
    return failed;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(packed_examples_train_as_if_alone),
                                       cmocka_unit_test(an_example_counts_as_much_as_any_other)};
    return cmocka_run_group_tests(tests, open_all, scratch_remove);
}
