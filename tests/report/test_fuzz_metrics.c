#include "../../fuzz/fuzz_metrics.c"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "io/mutate.h"
#include "seed.h"

static void damaged_metrics_and_traces_are_refused_or_make_sense(void **state)
{
    (void)state;
    static const char metrics[] =
        "0{\"step\":1,\"loss\":4.5,\"grad_norm\":2,\"lr\":1e-4,\"tokens\":64,\"step_s\":0.5,\"predicted_step_s\":0.25,"
        "\"tokens_per_s\":128,\"device_peak_bytes\":1024,\"device_predicted_bytes\":2048,\"eval_loss\":null}\n"
        "{\"step\":2,\"loss\":4.25,\"eval_loss\":5}\n{\"step\":3,\"loss\":4}\n";
    static const char trace[] =
        "1{\"traceEvents\": [{\"name\": \"process_name\", \"ph\": \"M\", \"pid\": 1, \"tid\": 0, \"args\": {\"name\": \"predicted\"}},"
        "{\"name\": \"layer\", \"ph\": \"X\", \"pid\": 1, \"tid\": 0, \"ts\": 0.5, \"dur\": 12.25, \"args\": {\"block\": 1}},"
        "{\"name\": \"update\", \"ph\": \"X\", \"pid\": 2, \"tid\": 3, \"ts\": 3, \"dur\": 2e3, \"args\": {}}], \"displayTimeUnit\": "
        "\"ms\"}";
    static const char memory[] =
        "4{\"device\": {\"weights\": 1024, \"optimizer\": 4096, \"gradients\": 0, \"activations\": 77, \"workspace\": 5, \"room\": 1}}";
    static const char *const seeds[] = {metrics, trace, memory};
    static const size_t lengths[] = {sizeof metrics - 1, sizeof trace - 1, sizeof memory - 1};
    uint64_t seed = test_seed();
    mutate_run(seeds, lengths, 3, seed, 50000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(damaged_metrics_and_traces_are_refused_or_make_sense)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
