/* support.h - what the tests of model/ share. Configurations are written with ' for ". */
#ifndef TEST_MODEL_SUPPORT_H
#define TEST_MODEL_SUPPORT_H

#include "model/model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

typedef struct notices {
    int n;
    char text[1024];
} notices;

static inline void notice_take(void *arg, const char *text)
{
    notices *taken = arg;
    taken->n++;
    snprintf(taken->text, sizeof taken->text, "%s", text);
}

static inline int config_try(const char *json, notices *taken, model **m, pt_error *e)
{
    char text[8192];
    size_t n = strlen(json);
    assert_true(n < sizeof text);
    for (size_t i = 0; i <= n; i++)
        text[i] = json[i] == '\'' ? '"' : json[i];
    return model_from_json("config.json", text, n, taken ? notice_take : NULL, taken, m, e);
}

static inline model *config_open(const char *json)
{
    model *m;
    pt_error e = {0};
    if (config_try(json, NULL, &m, &e))
        fail_msg("%s\n%s", json, e.text);
    return m;
}

static inline model *folder_open(const char *folder)
{
    model *m;
    pt_error e = {0};
    if (model_open(folder, NULL, NULL, &m, &e))
        fail_msg("%s", e.text);
    return m;
}

/* Folders of tests/fixtures/models. */
static const char *const fixtures[] = {
    "gpt2",        "gpt2_erf_untied", "gpt2_original_names",
    "gpt2_odd",    "llama",           "llama_tied_bias",
    "llama3_rope", "llama3_rope_v5",  "llama_linear_rope",
    "llama_bf16",  "llama_odd",       "llama_masked_labels",
    "mistral",     "qwen2",           "qwen2_window",
    "qwen3",       "qwen3_window",    "llama_padding",
    "gemma",       "gemma2",          "gemma3",
    "gpt_neox",    "gpt_neox_sequential", "granite",
    "granite_bias", "ministral3",     "ministral3_mscale",
    "olmo2",       "olmo3",           "olmo3_yarn",
    "opt",         "opt_bare",        "phi3",
    "phi3_longrope", "phi3_longrope_short", "smollm3",
    "smollm3_window", "gemma3_multimodal", "mistral3",
    "mistral3_ministral3", "qwen3_moe", "mixtral",
    "qwen2_moe",   "granitemoe",      "granitemoeshared",
    "glm4_moe",    "dots1",           "ernie4_5_moe",
    "minimax_m2",  "gpt_oss",         "deepseek_v3",
    "deepseek_direct", "deepseek_v2", "glm4_moe_lite",
};
enum { FIXTURES = sizeof fixtures / sizeof fixtures[0] };

static inline const char *fixture_path(const char *name)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/models/%s", PT_FIXTURES, name);
    return path;
}

#endif
