/* What ranks train beside all of a model's weights: adapters, with magnitudes or beside a base in few bits, what is not frozen, pairs. Any
 * number of ranks ends in the bits of one with the same lanes. */
#include "protrain.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "sanitized.h"
#include "train/same_end.h"

#include "program.h"

enum { STEPS = 4 };

typedef struct variant { const char *name; words more; bool pairs; } variant;

static const char *path_in(const char *folder, const char *name)
{
    static char path[2][600];
    static int at;
    at = 1 - at;
    snprintf(path[at], sizeof path[at], "%s/%s", folder, name);
    return path[at];
}

/* Into scratch/NAME-RANKS. */
static void train(const variant *v, const char *ranks, const char *out)
{
    char model[512], data[600];
    arguments a = {0};
    snprintf(model, sizeof model, "%s/%s", PT_FIXTURES, v->pairs ? "dpo" : "bf16/llama");
    snprintf(data, sizeof data, "%s/%s", model, v->pairs ? "pairs.jsonl" : "tokens.npy");
    add_arguments(&a, WORDS("train", "--model", model, "--data", data, "--out", out, "--seq-len", v->pairs ? "160" : "32", "--batch-size",
                            "4", "--lr", "2e-3", "--lr-schedule", "constant", "--quiet", "--threads", "1", "--lanes", "4", "--ranks",
                            ranks, "--steps", "4", "--save-every", "4"));
    add_arguments(&a, v->more);
    const int status = program_wait(program_start(&a, "/dev/null", path_in(scratch, "err")));
    if (status)
        fail_msg("%s, %s ranks: exit status %d: %s", v->name, ranks, status, text_of(path_in(scratch, "err")));
}

static void any_number_of_ranks_ends_in_the_same_bits(void **state)
{
    (void)state;
    const variant all[] = {{"lora", WORDS("--lora", "4"), false},
                           {"dora_nf4", WORDS("--lora", "4", "--dora", "--base", "nf4"), false},
                           {"frozen_int8", WORDS("--freeze", "*mlp*", "--base", "int8", "--optimizer", "adamw8bit"), false},
                           {"pairs", WORDS("--task", "dpo"), true},
                           {"pairs_lora", WORDS("--task", "dpo", "--lora", "2"), true}};
    const char *const ranks[] = {"1", "2", "4"};
    for (size_t i = 0; i < sizeof all / sizeof *all; i += SANITIZED ? 2 : 1) {
        char out[3][160];
        for (int k = 0; k < 3; k++) {
            snprintf(out[k], sizeof out[k], "%s/%s-%s", scratch, all[i].name, ranks[k]);
            train(&all[i], ranks[k], out[k]);
        }
        for (int k = 1; k < 3; k++)
            assert_same_end(out[0], out[k], STEPS);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(any_number_of_ranks_ends_in_the_same_bits)};
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
