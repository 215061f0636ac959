/* How a step and the loss head are cut, on CPUs and on GPUs, and where a layer's tensors lie. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "device/device.h"
#include "model/shape.h"

static model *model_of(int64_t vocab, int64_t hidden)
{
    char json[400];
    model *m;
    pt_error e = {0};
    snprintf(json, sizeof json, "{\"model_type\": \"llama\", \"vocab_size\": %lld, \"hidden_size\": %lld, \"num_attention_heads\": %lld, "
             "\"num_hidden_layers\": 2, \"intermediate_size\": 48, \"max_position_embeddings\": 4096, \"hidden_act\": \"silu\", "
             "\"bos_token_id\": 0, \"eos_token_id\": 0}", (long long)vocab, (long long)hidden, (long long)(hidden < 128 ? 1 : hidden / 128));
    if (model_from_json("test", json, strlen(json), NULL, NULL, &m, &e))
        fail_msg("%s", e.text);
    return m;
}

static void units_and_parts_follow_from_the_model_and_the_kind_of_device(void **state)
{
    (void)state;
    static const struct { int64_t vocab, hidden, unit[2], rows[2], slice[2]; } want[] = {
        {50257, 768, {2048, 8192}, {512, 2048}, {5440, 21824}},
        {128256, 2048, {2048, 8192}, {256, 2048}, {2048, 8192}},
        {32000, 4096, {2048, 4096}, {512, 2048}, {1024, 4096}},
        {300, 32, {2048, 8192}, {512, 2048}, {320, 320}},
        {151936, 16384, {2048, 2048}, {256, 1024}, {256, 1024}},
    };
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        model *m = model_of(want[i].vocab, want[i].hidden);
        step_shape s[2], like;
        for (int gpu = 0; gpu < 2; gpu++) {
            step_shape_init(&s[gpu], m, PT_BF16, 8, 1024);
            if (gpu)
                step_shape_for_gpu(&s[gpu], m);
            assert_int_equal(s[gpu].unit_rows, want[i].unit[gpu]);
            assert_int_equal(s[gpu].units_n * s[gpu].unit_rows, 8 * 1024);
            assert_int_equal(s[gpu].head_rows, want[i].rows[gpu]);
            assert_int_equal(s[gpu].slice_rows, want[i].slice[gpu]);
            assert_int_equal(s[gpu].slice_rows % SUMSQ_ROWS, 0);
            step_shape_like(&like, &s[gpu], m, 2, 256);
            assert_true(like.gpu == gpu && like.slice_rows == s[gpu].slice_rows && like.head_rows <= like.unit_rows && like.batch == 2);
        }
        model_close(m);
    }
}

/* ---- where a layer's tensors lie ---- */

enum { REGIONS = LAYER_TENSORS + LAYER_TEMPS };
typedef struct region { uint64_t at, bytes; } region;
typedef struct regions { region of[REGIONS]; int n; } regions;

/* Bytes of each, by the shapes of shape.h. */
typedef struct sizes { uint64_t tensor[LAYER_TENSORS], temp[LAYER_TEMPS]; } sizes;

static sizes sizes_of(const model_config *c, const step_shape *s)
{
    const uint64_t rows = (uint64_t)s->unit_rows, e = dtype_bytes(s->type), q = (uint64_t)(c->heads * c->head_dim);
    const uint64_t kv = (uint64_t)(c->kv_heads * c->head_dim), hidden = rows * (uint64_t)c->hidden * e, act = rows * (uint64_t)c->ffn * e;
    const uint64_t heads = norm_backward_scratch_bytes(s->unit_rows, c->heads, c->head_dim);
    const uint64_t dots = attention_backward_scratch_bytes(s->unit_rows, c->heads);
    const uint64_t sums = norm_backward_scratch_bytes(s->unit_rows, 1, c->hidden), up = act * (c->gated ? 2 : 1);
    return (sizes){
        .tensor = {[LAYER_X] = hidden, [LAYER_N1] = hidden, [LAYER_QK] = c->qk_norm ? rows * (q + kv) * e : 0,
                   [LAYER_QKV] = rows * (q + 2 * kv) * e, [LAYER_ATT] = rows * q * e,
                   [LAYER_LSE] = rows * (uint64_t)c->heads * sizeof(float), [LAYER_XM] = hidden, [LAYER_N2] = hidden,
                   [LAYER_UP] = up, [LAYER_ACT] = act},
        .temp = {[TEMP_DACT] = act, [TEMP_DUP] = up, [TEMP_DN] = hidden, [TEMP_DATT] = rows * q * e, [TEMP_DQKV] = rows * (q + 2 * kv) * e,
                 [TEMP_SUMS] = attention_sums_bytes(s->unit_seqs, s->seq_len, c->kv_heads, c->head_dim),
                 [TEMP_SCRATCH] = c->qk_norm && heads > dots ? heads : dots, [TEMP_NORM1] = sums, [TEMP_NORM2] = sums}};
}

/* None overlaps another, and all end before `end`. */
static void apart(const regions *r, uint64_t end)
{
    for (int i = 0; i < r->n; i++) {
        assert_true(r->of[i].at + r->of[i].bytes <= end);
        for (int k = 0; k < i; k++)
            assert_true(r->of[i].at + r->of[i].bytes <= r->of[k].at || r->of[k].at + r->of[k].bytes <= r->of[i].at);
    }
}

static void with(regions *r, uint64_t at, uint64_t bytes)
{
    if (bytes)
        r->of[r->n++] = (region){at, bytes};
}

/* What is not saved of the tensors from `first` to `last`, of those that stay. */
static regions staying(const layer_layout *l, const sizes *z, layer_tensor first, layer_tensor last)
{
    regions r = {.n = 0};
    for (int t = first; t <= (int)last; t++)
        if (!l->saved[t] && t != LAYER_N1 && t != LAYER_N2 && t != LAYER_ACT)
            with(&r, l->tensor[t], z->tensor[t]);
    return r;
}

typedef enum moment { FORWARD_N1, FORWARD_N2, FORWARD_ACT, OF_ACTIVATION, OF_NORM2, OF_ATTENTION, OF_NORM1, MOMENTS } moment;

/* What a layer needs of its workspace at once. */
static regions needed_at(moment when, const layer_layout *l, const sizes *z)
{
    static const struct { layer_tensor last, passing; layer_temp temps[4]; int n; } needs[MOMENTS] = {
        [FORWARD_N1] = {LAYER_QKV, LAYER_N1, {0}, 0}, [FORWARD_N2] = {LAYER_UP, LAYER_N2, {0}, 0},
        [FORWARD_ACT] = {LAYER_UP, LAYER_ACT, {0}, 0}, [OF_ACTIVATION] = {LAYER_UP, LAYER_X, {TEMP_DACT, TEMP_DUP}, 2},
        [OF_NORM2] = {LAYER_XM, LAYER_X, {TEMP_DUP, TEMP_DN, TEMP_NORM2}, 3},
        [OF_ATTENTION] = {LAYER_LSE, LAYER_X, {TEMP_DATT, TEMP_DQKV, TEMP_SUMS, TEMP_SCRATCH}, 4},
        [OF_NORM1] = {LAYER_X, LAYER_X, {TEMP_DQKV, TEMP_DN, TEMP_NORM1}, 3}};
    regions r = staying(l, z, LAYER_X, needs[when].last);
    if (needs[when].passing != LAYER_X)
        with(&r, l->tensor[needs[when].passing], z->tensor[needs[when].passing]);
    for (int i = 0; i < needs[when].n; i++)
        with(&r, l->temp[needs[when].temps[i]], z->temp[needs[when].temps[i]]);
    return r;
}

static void check_layout(const model *m, pt_dtype type, int64_t batch, int64_t seq_len, save_level level)
{
    step_shape s;
    layer_layout l;
    step_shape_init(&s, m, type, batch, seq_len);
    layer_layout_init(&l, m, &s, level);
    const sizes z = sizes_of(&m->config, &s);
    regions saved = {.n = 0};
    for (int t = 0; t < LAYER_TENSORS; t++)
        if (l.saved[t])
            with(&saved, l.tensor[t], z.tensor[t]);
    apart(&saved, l.saved_bytes);
    for (moment when = FORWARD_N1; when < MOMENTS; when++) {
        const regions r = needed_at(when, &l, &z);
        apart(&r, when <= FORWARD_ACT ? l.forward_workspace : l.backward_workspace);
    }
}

/* Few rows and wide heads or none to speak of, short MLPs and long ones, sequences so long that attention has sums: a layer's gradients
 * are only compared for some. */
static void what_a_layer_needs_at_once_does_not_overlap(void **state)
{
    (void)state;
    static const struct { int hidden, heads, kv_heads, head_dim, ffn; } widths[] = {
        {64, 4, 2, 16, 128}, {64, 1, 1, 8, 8}, {16, 2, 1, 64, 24}, {8, 1, 1, 8, 13}, {256, 4, 4, 64, 16}, {40, 5, 5, 8, 400}};
    static const struct { int64_t batch, seq_len; } steps[] = {{1, 1}, {1, 2}, {1, 3}, {3, 5}, {8, 64}, {1, 3000}, {1, 9000}};
    for (size_t w = 0; w < 2 * sizeof widths / sizeof *widths; w++) {
        char json[640];
        pt_error e = {0};
        model *m;
        const int i = (int)(w / 2);
        snprintf(json, sizeof json, "{\"model_type\": \"%s\", \"vocab_size\": 300, \"hidden_size\": %d, \"num_attention_heads\": %d, "
                 "\"num_key_value_heads\": %d, \"head_dim\": %d, \"num_hidden_layers\": 1, \"intermediate_size\": %d, "
                 "\"max_position_embeddings\": 16384, \"hidden_act\": \"silu\", \"bos_token_id\": 0, \"eos_token_id\": 0}",
                 w & 1 ? "qwen3" : "llama", widths[i].hidden, widths[i].heads, widths[i].kv_heads, widths[i].head_dim, widths[i].ffn);
        if (model_from_json("test", json, strlen(json), NULL, NULL, &m, &e))
            fail_msg("%s", e.text);
        for (size_t k = 0; k < sizeof steps / sizeof *steps; k++)
            for (int level = 0; level < SAVE_LEVELS; level++) {
                check_layout(m, PT_BF16, steps[k].batch, steps[k].seq_len, (save_level)level);
                check_layout(m, PT_F32, steps[k].batch, steps[k].seq_len, (save_level)level);
            }
        model_close(m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(units_and_parts_follow_from_the_model_and_the_kind_of_device),
                                       cmocka_unit_test(what_a_layer_needs_at_once_does_not_overlap)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
