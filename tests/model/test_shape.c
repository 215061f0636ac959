/* How a step and the loss head are cut, on CPUs and on GPUs. */
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
             "\"bos_token_id\": 0, \"eos_token_id\": 0}", (long long)vocab, (long long)hidden,
             (long long)(hidden < 128 ? 1 : hidden / 128));
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
            s[gpu].documents = s[gpu].weighted = true;
            step_shape_in_lanes(&s[gpu], m, 4);
            step_shape_like(&like, &s[gpu], m, 12, 256);
            assert_true(like.documents && like.weighted && like.lanes == 4 && 3 % like.unit_seqs == 0);
        }
        model_close(m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(units_and_parts_follow_from_the_model_and_the_kind_of_device)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
