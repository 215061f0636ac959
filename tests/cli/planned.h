/* planned.h - running protrain plan from a test, and reading what it prints. Include after cmocka.h. */
#ifndef PT_TEST_PLANNED_H
#define PT_TEST_PLANNED_H

#include "base/json.h"
#include "base/units.h"
#include "io/files.h"

#include "cli/files.h"

/* Llama 3 70B's shape. */
static const char large[] =
    "{\"model_type\": \"llama\", \"vocab_size\": 128256, \"hidden_size\": 8192, \"intermediate_size\": 28672, \"num_hidden_layers\": 80,"
    " \"num_attention_heads\": 64, \"num_key_value_heads\": 8, \"max_position_embeddings\": 8192, \"rms_norm_eps\": 1e-05,"
    " \"rope_theta\": 500000.0, \"hidden_act\": \"silu\", \"tie_word_embeddings\": false, \"bos_token_id\": 1, \"eos_token_id\": 2}";

/* ---- running ---- */

static inline int run(const char *command, words options, words more)
{
    arguments a = {0};
    add_argument(&a, command);
    add_arguments(&a, options);
    add_arguments(&a, more);
    return program_wait(program_start(&a, scratch_path("out"), scratch_path("err")));
}

static inline int plan_with(words options, words more) { return run("plan", options, more); }

static inline words small(void)
{
    static const char *options[8];
    const char *all[] = {"--model", fixture("llama"), "--seq-len", "8", "--quiet", "--device-memory", "64MiB"};
    memcpy(options, all, sizeof all);
    return options;
}

/* The one object on stdout; json_decref it. */
static inline json_t *printed(void)
{
    pt_error e = {0};
    json_t *object;
    if (json_file_load(scratch_path("out"), JSON_REJECT_DUPLICATES, &object, &e))
        fail_msg("%s", e.text);
    assert_true(json_is_object(object));
    return object;
}

static inline double number(const json_t *o, const char *a, const char *b)
{
    const json_t *value = json_object_get(json_object_get(o, a), b);
    if (!json_is_number(value))
        fail_msg("%s.%s is not a number", a, b);
    return json_number_value(value);
}

static inline double tier_number(const json_t *o, const char *what, const char *tier)
{
    return json_number_value(json_object_get(json_object_get(json_object_get(o, "predicted"), what), tier));
}

/* The bytes of a size that is advised. */
static inline json_int_t size_of(const char *size)
{
    uint64_t bytes;
    pt_error e = {0};
    if (size_parse(size, &bytes, &e))
        fail_msg("%s", e.text);
    return (json_int_t)bytes;
}

/* The size behind "--disk-memory ", where that is said. */
static inline bool size_said(const char *said, const char *option, char out[32])
{
    const char *at = strstr(said, option);
    return at && sscanf(at + strlen(option), "%30[0-9A-Za-z.]", out) == 1;
}

/* The next smaller size that could have been advised. */
static inline void one_less(const char *size, char out[32])
{
    const uint64_t bytes = (uint64_t)size_of(size);
    snprintf(out, 32, "%llu", (unsigned long long)(bytes - size_granule(bytes)));
}

static inline void check_refusal(const char *name, int status, int expected, words said)
{
    const char *text = text_of(scratch_path("err")), *line = strstr(text, "protrain: ");
    if (status != expected || !line || strchr(line, '\n')[1])
        fail_msg("%s: exit status %d, not %d: %s", name, status, expected, text);
    for (; *said; said++)
        if (!strstr(line, *said))
            fail_msg("%s: \"%s\" is not in: %s", name, *said, line);
}

#endif
