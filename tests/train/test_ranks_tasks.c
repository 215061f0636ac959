/* What ranks train beside all of a model's weights: adapters, with magnitudes or beside a base in few bits, what is not frozen, pairs. Any
 * number of ranks ends in the bits of one with the same lanes. */
#include "protrain.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <limits.h>

#include "sanitized.h"
#include "train/same_end.h"

#include "program.h"

enum { STEPS = 4 };

typedef struct task { const char *model, *data, *seq_len; } task; /* in the folder of fixtures */
typedef struct variant { const char *name; words more; const task *of; } variant;

static const char *path_in(const char *folder, const char *name)
{
    static char path[2][600];
    static int at;
    at = 1 - at;
    snprintf(path[at], sizeof path[at], "%s/%s", folder, name);
    return path[at];
}

/* Of a step: sequences, and lanes. */
typedef struct division { const char *batch, *lanes; } division;

/* Into scratch/NAME-RANKS. */
static void train(const variant *v, division d, const char *ranks, const char *out)
{
    char model[512], data[600];
    arguments a = {0};
    snprintf(model, sizeof model, "%s/%s", PT_FIXTURES, v->of->model);
    snprintf(data, sizeof data, "%s/%s", PT_FIXTURES, v->of->data);
    add_arguments(&a, WORDS("train", "--model", model, "--data", data, "--out", out, "--seq-len", v->of->seq_len, "--batch-size",
                            d.batch, "--lr", "2e-3", "--lr-schedule", "constant", "--quiet", "--threads", "1", "--lanes", d.lanes,
                            "--ranks", ranks, "--steps", "4", "--save-every", "4"));
    add_arguments(&a, v->more);
    const int status = program_wait(program_start(&a, "/dev/null", path_in(scratch, "err")));
    if (status)
        fail_msg("%s, %s ranks: exit status %d: %s", v->name, ranks, status, text_of(path_in(scratch, "err")));
}

/* Line 0, 1 ... of metrics.jsonl, or if there are fewer the last; its evaluation, where there is one, is of all ranks. */
static json_t *metrics_line(const char *out, int number)
{
    char *text, *line, *last = NULL;
    size_t n;
    pt_error e = {0};
    must(file_read_all(path_in(out, "metrics.jsonl"), 1 << 20, &text, &n, &e), &e);
    for (line = strtok(text, "\n"); line && number >= 0; line = strtok(NULL, "\n"), number--)
        last = line;
    json_t *object = json_loads(last, 0, NULL);
    assert_non_null(object);
    free(text);
    return object;
}

static void assert_same_evaluation(const char *a, const char *b, bool evaluated)
{
    static const char *const keys[] = {"loss", "eval_loss", "eval_reward_margin", "eval_reward_accuracy", "kl", "eval_kl",
                                       "expert_load_max", "experts_idle", "aux_loss"};
    json_t *x = metrics_line(a, INT_MAX), *y = metrics_line(b, INT_MAX);
    assert_true(!evaluated == !json_object_get(x, "eval_reward_margin"));
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (json_number_value(json_object_get(x, keys[i])) != json_number_value(json_object_get(y, keys[i])))
            fail_msg("%s and %s: another %s", a, b, keys[i]);
    json_decref(x);
    json_decref(y);
}

static void any_number_of_ranks_ends_in_the_same_bits(void **state)
{
    (void)state;
    static const task ids = {"bf16/llama", "bf16/llama/tokens.npy", "32"}, pairs = {"dpo", "dpo/pairs.jsonl", "160"},
                      labels = {"dpo", "dpo/labels.jsonl", "80"},
                      experts = {"models/qwen2_moe", "models/qwen2_moe/tokens.npy", "16"},
                      codes = {"prequantized/llama_nf4", "models/llama/tokens.npy", "16"};
    const variant all[] = {{"lora", WORDS("--lora", "4"), &ids},
                           {"dora_nf4", WORDS("--lora", "4", "--dora", "--base", "nf4"), &ids},
                           {"frozen_int8", WORDS("--freeze", "*mlp*", "--base", "int8", "--optimizer", "adamw8bit"), &ids},
                           {"dora_taken", WORDS("--lora", "4", "--dora"), &codes},
                           {"pairs", WORDS("--task", "dpo", "--eval-split", "0.3", "--eval-every", "2"), &pairs},
                           {"pairs_lora", WORDS("--task", "orpo", "--lora", "2"), &pairs},
                           {"simpo", WORDS("--task", "simpo", "--lora", "2"), &pairs},
                           {"experts_lora", WORDS("--lora", "3", "--lora-targets", "attention,experts"), &experts},
                           {"experts", WORDS("--freeze", "*embed*", "--router-aux-loss", "0.1"), &experts},
                           {"labels", WORDS("--task", "kto", "--eval-split", "0.3", "--eval-every", "2"), &labels}};
    const char *const ranks[] = {"1", "2", "4"};
    for (size_t i = 0; i < sizeof all / sizeof *all; i += SANITIZED ? 2 : 1) {
        char out[3][160];
        for (int k = 0; k < 3; k++) {
            snprintf(out[k], sizeof out[k], "%s/%s-%s", scratch, all[i].name, ranks[k]);
            train(&all[i], (division){"4", "4"}, ranks[k], out[k]);
        }
        for (int k = 1; k < 3; k++)
            assert_same_end(out[0], out[k], STEPS), assert_same_evaluation(out[0], out[k], strstr("pairs labels", all[i].name));
    }
}

/* The choice of experts is counted over all parts of a sequence, on one rank and on several. */
static void parts_of_a_sequence_choose_experts_as_the_whole(void **state)
{
    (void)state;
    static const task experts = {"models/qwen2_moe", "models/qwen2_moe/tokens.npy", "16"};
    const variant v = {"parts", WORDS("--seed", "1"), &experts};
    const char *const lanes[] = {"1", "4", "4"}, *const ranks[] = {"1", "1", "2"};
    double most[3], idle[3];
    for (int i = 0; i < 3; i++) {
        char out[160];
        snprintf(out, sizeof out, "%s/parts-%d", scratch, i);
        train(&v, (division){"1", lanes[i]}, ranks[i], out);
        json_t *first = metrics_line(out, 0);
        most[i] = json_number_value(json_object_get(first, "expert_load_max"));
        idle[i] = json_number_value(json_object_get(first, "experts_idle"));
        json_decref(first);
    }
    assert_true(most[0] >= 1);
    for (int i = 1; i < 3; i++)
        assert_true(most[i] == most[0] && idle[i] == idle[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(any_number_of_ranks_ends_in_the_same_bits),
                                       cmocka_unit_test(parts_of_a_sequence_choose_experts_as_the_whole)};
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
