/* A GPU that is lost in the middle of a run, by the stand-in (cuda/runtime.c): the run ends with a sentence that says so, what it had saved
 * stands, and going on from there ends with the bits of a run that nothing happened to. And a run that goes on with another table of matmul
 * algorithms (device/cuda/matmul_table.h), which it says. */
#include "protrain.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "cuda/lose.h"
#include "random_plan.h"
#include "sanitized.h"
#include "test_device.h"
#include "train/run.h"
#include "train/same_end.h"

enum { TURNS = SANITIZED ? 1 : 4 };

static const setting llama = {"llama_tied_bias", PT_PRECISION_BF16, 1, true, PT_OPTIMIZER_ADAMW};

/* After some steps, so many calls later; the number of steps that were finished. */
static int64_t run_and_lose(run *r, int64_t steps, int64_t calls, pt_error *e)
{
    pt_trainer *t;
    pt_step s = {0};
    must(pt_trainer_open(&r->o, &t, e), e);
    lose_fn *lose = find_lose();
    int more = 1;
    while (s.step < STEPS && more > 0) {
        if (s.step == steps)
            lose(calls);
        more = pt_trainer_step(t, &s, e);
    }
    pt_trainer_close(t);
    lose(-1);
    assert_true(more < 0);
    return s.step;
}

static void a_run_that_loses_its_gpu_goes_on_with_the_same_bits(void **state)
{
    (void)state;
    run whole, broken;
    pt_error e = {0};
    char name[32];
    random_source r = random_open();
    if (!test_device_is_standin())
        skip();
    run_make(&whole, &llama, "whole");
    must(run_until(&whole, STEPS, &e), &e);
    for (int turn = 0; turn < TURNS; turn++) {
        snprintf(name, sizeof name, "broken-%d", turn);
        run_make(&broken, &llama, name);
        broken.o.save_every = 1;
        const int64_t done = run_and_lose(&broken, random_from(&r, 1, STEPS - 2), random_from(&r, 0, 100), &e);
        assert_int_equal(e.code, PT_FAILED);
        assert_non_null(strstr(e.text, "the GPU was lost"));
        assert_non_null(strstr(e.text, "`resume`"));
        assert_true(has_checkpoint(&broken, (int)done) && !has_checkpoint(&broken, (int)done + 1));
        broken.o.resume = true;
        must(run_until(&broken, STEPS, &e), &e);
        assert_int_equal(broken.first_step, done);
        assert_same_checkpoint(whole.out, broken.out, STEPS);
        run_free(&broken);
    }
    run_free(&whole);
}

static void keep_notice(void *arg, const char *sentence)
{
    if (strstr(sentence, "the checkpoint was computed with"))
        snprintf(arg, 512, "%s", sentence);
}

static void another_table_of_matmuls_is_told_of(void **state)
{
    (void)state;
    static const char table[] = "gpu sm_90, 2 multiprocessors, cuBLASLt 0\n"
                                "NT bf16 bf16 none many 0 9973 40 16 16 16 1 1000000010 1000000010 26f5 2000 28 3 5eed\n";
    char path[200], said[512] = "";
    pt_error e = {0};
    run r;
    if (!test_device_is_standin())
        skip();
    run_make(&r, &llama, "table");
    r.o.save_every = 1;
    r.o.notice = keep_notice;
    r.o.arg = said;
    must(run_until(&r, 1, &e), &e);
    r.o.resume = true;
    must(run_until(&r, 2, &e), &e);
    assert_string_equal(said, "");
    snprintf(path, sizeof path, "%s/table.txt", scratch);
    must(file_write_atomic(path, table, sizeof table - 1, &e), &e);
    setenv("PROTRAIN_MATMUL_TABLE", path, 1);
    must(run_until(&r, 3, &e), &e);
    unsetenv("PROTRAIN_MATMUL_TABLE");
    const char *before = strstr(said, "matmul table "), *now = before ? strstr(before + 1, "matmul table ") : NULL;
    assert_non_null(now);
    assert_memory_not_equal(before, now, sizeof "matmul table 12345678" - 1);
    run_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_run_that_loses_its_gpu_goes_on_with_the_same_bits),
                                       cmocka_unit_test(another_table_of_matmuls_is_told_of)};
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
