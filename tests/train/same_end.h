/* same_end.h - two runs ended in the same bytes. Include after cmocka.h. */
#ifndef PT_TEST_SAME_END_H
#define PT_TEST_SAME_END_H

#include "train/fixture.h"

static inline void assert_same_file(const char *a_folder, const char *b_folder, const char *name)
{
    char a[FILE_PATH_BYTES], b[FILE_PATH_BYTES], *x, *y;
    size_t n, m;
    pt_error e = {0};
    must(path_join(a, a_folder, name, &e) || path_join(b, b_folder, name, &e), &e);
    must(file_read_all(a, 1u << 30, &x, &n, &e), &e);
    must(file_read_all(b, 1u << 30, &y, &m, &e), &e);
    if (n != m || memcmp(x, y, n) != 0)
        fail_msg("%s and %s differ", a, b);
    free(x);
    free(y);
}

/* The checkpoints of this step in two runs' folders. */
static inline void assert_same_checkpoint(const char *a, const char *b, int step)
{
    static const char *const names[] = {"trainer/exp_avg.safetensors", "trainer/exp_avg_sq.safetensors", "trainer/trainer.json"};
    /* of a model, of adapters; of bf16 runs; of some optimizers */
    static const char *const more[] = {"config.json", "model.safetensors", "adapter_config.json", "adapter_model.safetensors",
                                       "trainer/master.safetensors", "trainer/exp_avg_absmax.safetensors",
                                       "trainer/exp_avg_sq_absmax.safetensors", "trainer/momentum_buffer.safetensors"};
    char x[300], y[300], in_x[400], in_y[400];
    snprintf(x, sizeof x, "%s/checkpoint-%d", a, step);
    snprintf(y, sizeof y, "%s/checkpoint-%d", b, step);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        assert_same_file(x, y, names[i]);
    for (size_t i = 0; i < sizeof more / sizeof *more; i++) {
        snprintf(in_x, sizeof in_x, "%s/%s", x, more[i]);
        snprintf(in_y, sizeof in_y, "%s/%s", y, more[i]);
        if (path_exists(in_x) || path_exists(in_y))
            assert_same_file(x, y, more[i]);
    }
}

static inline void assert_same_end(const char *a, const char *b, int steps)
{
    char adapter[300];
    snprintf(adapter, sizeof adapter, "%s/adapter_config.json", a);
    const bool adapters = path_exists(adapter);
    assert_same_file(a, b, adapters ? "adapter_config.json" : "config.json");
    assert_same_file(a, b, adapters ? "adapter_model.safetensors" : "model.safetensors");
    assert_same_checkpoint(a, b, steps);
}

#endif
