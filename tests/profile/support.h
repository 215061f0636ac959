/* support.h - small models, and a device that counts the memory which is taken from it. Include after cmocka.h. */
#ifndef PT_TEST_PROFILE_H
#define PT_TEST_PROFILE_H

#include "io/files.h"
#include "measure/profile_get.h"

#include "io/scratch.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static const char *const test_configs[] = {
    "{\"model_type\": \"gpt2\", \"n_embd\": 48, \"n_layer\": 3, \"n_head\": 4, \"n_positions\": 64, \"vocab_size\": 211}",
    "{\"model_type\": \"llama\", \"vocab_size\": 300, \"hidden_size\": 32, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, "
    "\"num_hidden_layers\": 2, \"intermediate_size\": 48, \"max_position_embeddings\": 64, \"hidden_act\": \"silu\", "
    "\"bos_token_id\": 0, \"eos_token_id\": 0}",
    "{\"model_type\": \"qwen3\", \"vocab_size\": 300, \"hidden_size\": 32, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, "
    "\"head_dim\": 8, \"num_hidden_layers\": 4, \"intermediate_size\": 48, \"max_position_embeddings\": 64, \"hidden_act\": \"silu\", "
    "\"sliding_window\": 5, \"use_sliding_window\": true, \"layer_types\": [\"full_attention\", \"sliding_attention\", "
    "\"sliding_attention\", \"full_attention\"], \"bos_token_id\": 0, \"eos_token_id\": 0}"};
enum { TEST_CONFIGS = sizeof test_configs / sizeof *test_configs };

/* ---- a device that counts ---- */

static const device_table *real_table;
static device_table counting_table;
static atomic_ullong memory_held[2], memory_most[2]; /* by memory_kind */

static inline int counting_open(device *d, memory_kind kind, size_t bytes, void **base, pt_error *e)
{
    unsigned long long now = atomic_fetch_add(&memory_held[kind], bytes) + bytes;
    if (now > atomic_load(&memory_most[kind]))
        atomic_store(&memory_most[kind], now);
    return real_table->memory_open(d, kind, bytes, base, e);
}

static inline void counting_close(device *d, memory_kind kind, void *base, size_t bytes)
{
    atomic_fetch_sub(&memory_held[kind], bytes);
    real_table->memory_close(d, kind, base, bytes);
}

/* ---- requests ---- */

typedef struct setup {
    device *device;
    model *model;
    step_shape shape;
    profile_request r;
    char disk[256]; /* a folder that is not there yet */
} setup;

static inline void setup_open(setup *s, const char *config, pt_dtype type, int64_t batch, int64_t seq_len)
{
    pt_error e = {0};
    device_options o = {.threads = 2};
    *s = (setup){.model = NULL};
    assert_int_equal(scratch_make(NULL), 0);
    snprintf(s->disk, sizeof s->disk, "%s/run/disk", scratch);
    assert_int_equal(setenv("XDG_CACHE_HOME", scratch, 1), 0);
    if (device_cpu_open(&o, &s->device, &e) || model_from_json("test", config, strlen(config), NULL, NULL, &s->model, &e))
        fail_msg("%s", e.text);
    real_table = s->device->table;
    counting_table = *real_table;
    counting_table.memory_open = counting_open;
    counting_table.memory_close = counting_close;
    counting_table.mark_waited = NULL; /* whoever else runs is not noticed */
    s->device->table = &counting_table;
    memory_most[0] = memory_most[1] = 0;
    step_shape_init(&s->shape, s->model, type, batch, seq_len);
    s->r = (profile_request){.device = s->device, .host = s->device, .model = s->model, .shape = &s->shape,
                             .budget = {64 << 20, 64 << 20, 64 << 20}, .host_tier = true, .transfers = true, .disk_path = s->disk};
}

static inline void setup_close(setup *s)
{
    assert_int_equal(memory_held[0], 0);
    assert_int_equal(memory_held[1], 0);
    s->device->table->close(s->device);
    model_close(s->model);
    scratch_remove(NULL);
}

static inline void profile_must(setup *s, profile_result *p)
{
    pt_error e = {0};
    if (profile_get(&s->r, p, &e))
        fail_msg("%s", e.text);
}

#endif
