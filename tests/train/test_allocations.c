/* A step allocates nothing but the text of a commit, which it frees: every allocation of the process is counted between the second step and
 * the last. */
#include "protrain.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "train/fixture.h"

#include "train/plan_file.h"

#include <malloc.h>
#include <stdatomic.h>

enum { STEPS = 6 };

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { COUNTED = 0 }; /* a sanitizer has an allocator of its own */
static _Atomic long calls, live;
#else
enum { COUNTED = 1 };
static _Atomic long calls, live;

#define EXPORTED __attribute__((visibility("default")))
void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);
void *__libc_memalign(size_t align, size_t n);
void __libc_free(void *p);

static void *counted(void *p)
{
    calls++;
    live += p ? (long)malloc_usable_size(p) : 0;
    return p;
}

EXPORTED void *malloc(size_t n) { return counted(__libc_malloc(n)); }
EXPORTED void *calloc(size_t n, size_t size) { return counted(__libc_calloc(n, size)); }
EXPORTED void *memalign(size_t align, size_t n) { return counted(__libc_memalign(align, n)); }
EXPORTED void *aligned_alloc(size_t align, size_t n) { return memalign(align, n); }
EXPORTED int posix_memalign(void **out, size_t align, size_t n) { return (*out = memalign(align, n)) ? 0 : 12; }
EXPORTED void *realloc(void *p, size_t n)
{
    live -= p ? (long)malloc_usable_size(p) : 0;
    return counted(__libc_realloc(p, n));
}
EXPORTED void free(void *p)
{
    live -= p ? (long)malloc_usable_size(p) : 0;
    __libc_free(p);
}
#endif

static void count_steps(pt_train_options *o, const char *what)
{
    pt_error e = {0};
    pt_trainer *t;
    pt_step s;
    must(pt_trainer_open(o, &t, &e), &e);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pt_trainer_step(t, &s, &e), 1);
    long calls_before = calls, live_before = live;
    for (int i = 2; i < STEPS; i++)
        assert_int_equal(pt_trainer_step(t, &s, &e), 1);
    long calls_after = calls, live_after = live;
    pt_trainer_close(t);
    must(tree_remove(o->out, &e), &e);
    assert_true(calls_before > 0);
    if (calls_after != calls_before && o->disk_slots == 1)
        fail_msg("%s: %ld allocations in %d steps", what, calls_after - calls_before, STEPS - 2);
    assert_int_equal(live_after - live_before, 0);
}

static void steps_allocate_nothing_under_any_plan(void **state)
{
    (void)state;
    if (!COUNTED || on_gpu()) /* a driver's cannot be told from ours */
        skip();
    static const char *const names[] = {"gpt2", "llama_tied_bias", "qwen3_window"};
    random_source random = random_open();
    for (int i = 0; i < 24; i++) {
        fixture f;
        pt_train_options o;
        char out[128], plan[140];
        fixture_open(&f, "models", names[i % 3]);
        snprintf(out, sizeof out, "%s/out", scratch);
        snprintf(plan, sizeof plan, "%s/plan.json", scratch);
        fixture_options(&f, (const char *const[]){f.tokens}, out, &o);
        plan_case c = {.type = i & 1 ? PT_BF16 : PT_F32, .batch = o.batch_size, .seq_len = o.seq_len, .clipping = i % 4 < 2,
                       .host_tier = random_one_in(&random, 2)};
        o.steps = STEPS;
        o.shuffle = true;
        o.precision = i & 1 ? PT_PRECISION_BF16 : PT_PRECISION_FP32;
        o.max_grad_norm = c.clipping;
        o.disk_slots = i % 3 != 0; /* 0: two, if states are on the disk */
        o.host_memory = c.host_tier ? 64 << 20 : PT_AUTO;
        if (i >= 4) {
            write_random_plan(&random, f.model, &c, plan);
            o.plan_file = plan;
        }
        count_steps(&o, o.plan_file ? "a random plan" : "all on the device");
        fixture_close(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(steps_allocate_nothing_under_any_plan)};
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
