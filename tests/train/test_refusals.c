/* What a run refuses, and what it leaves behind when it does. */
#include "protrain.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "train/fixture.h"

#include <sys/stat.h>

typedef struct run {
    fixture f;
    const char *data[1];
    char out[128];
    pt_train_options o;
} run;

static void run_make(run *r, const char *out)
{
    memset(r, 0, sizeof *r);
    fixture_open(&r->f, "models", "llama_bf16");
    r->data[0] = r->f.tokens;
    snprintf(r->out, sizeof r->out, "%s/%s", scratch, out);
    fixture_options(&r->f, r->data, r->out, &r->o);
    r->o.steps = 20;
}

static pt_trainer *run_open(run *r)
{
    pt_error e = {0};
    pt_trainer *t;
    must(pt_trainer_open(&r->o, &t, &e), &e);
    return t;
}

static void a_run_that_cannot_begin_leaves_no_folder(void **state)
{
    (void)state;
    run r;
    pt_trainer *t;
    pt_error e = {0};
    run_make(&r, "never");
    const pt_train_options good = r.o;
    r.o.model = "no/such/model";
    assert_int_equal(pt_trainer_open(&r.o, &t, &e), PT_FAILED);
    assert_false(path_exists(r.out));
    r.o = good;
    r.data[0] = "no/such/data.txt";
    assert_int_equal(pt_trainer_open(&r.o, &t, &e), PT_FAILED);
    assert_false(path_exists(r.out));
    must(dir_make(r.out, &e), &e); /* one that was there stays */
    assert_int_equal(pt_trainer_open(&r.o, &t, &e), PT_FAILED);
    assert_true(path_exists(r.out));
    fixture_close(&r.f);
}

static void a_given_plan_must_leave_room_for_saving(void **state)
{
    (void)state;
    run r;
    char path[160];
    pt_error e = {0};
    run_make(&r, "room");
    pt_trainer *t = run_open(&r);
    pt_summary s;
    pt_trainer_summary(t, &s);
    uint64_t need = s.memory[0].predicted_bytes;
    char *json = pt_trainer_plan_json(t);
    pt_trainer_close(t);
    snprintf(path, sizeof path, "%s.plan.json", r.out);
    must(file_write_atomic(path, json, strlen(json), &e), &e);
    free(json);
    r.o.plan_file = path;
    snprintf(r.out, sizeof r.out, "%s/room2", scratch);
    for (uint64_t budget = 1 << 20; budget < need; budget += need / 7) {
        r.o.device_memory = budget;
        assert_int_equal(pt_trainer_open(&r.o, &t, &e), PT_DOES_NOT_FIT);
    }
    r.o.device_memory = need;
    pt_trainer_close(run_open(&r));
    fixture_close(&r.f);
}

static void a_checkpoint_is_written_once_a_step(void **state)
{
    (void)state;
    run r;
    char path[160];
    struct stat first, second;
    pt_error e = {0};
    pt_step s;
    run_make(&r, "once");
    r.o.save_every = 1;
    pt_trainer *t = run_open(&r);
    assert_int_equal(pt_trainer_step(t, &s, &e), 1);
    snprintf(path, sizeof path, "%s/checkpoint-1", r.out);
    assert_int_equal(stat(path, &first), 0);
    must(pt_trainer_save(t, &e), &e);
    assert_int_equal(stat(path, &second), 0);
    assert_true(first.st_ino == second.st_ino && first.st_ctim.tv_nsec == second.st_ctim.tv_nsec);
    must(tree_remove(path, &e), &e);
    must(pt_trainer_save(t, &e), &e);
    assert_true(path_exists(path));
    pt_trainer_close(t);
    fixture_close(&r.f);
}

static void weights_that_a_bad_step_may_have_changed_are_not_saved(void **state)
{
    (void)state;
    run r;
    char path[160];
    pt_error e = {0};
    pt_step s = {0};
    run_make(&r, "broken");
    r.o.max_grad_norm = 0; /* updates during backward */
    r.o.lr = 1e3;
    r.o.steps = 200;
    r.o.beta2 = 0;
    pt_trainer *t = run_open(&r);
    int more = 1;
    while (more > 0)
        more = pt_trainer_step(t, &s, &e);
    assert_int_equal(more, PT_FAILED);
    assert_int_equal(pt_trainer_save(t, &e), PT_FAILED);
    assert_int_equal(pt_trainer_finish(t, &e), PT_FAILED);
    snprintf(path, sizeof path, "%s/model.safetensors", r.out);
    assert_false(path_exists(path));
    pt_trainer_close(t);
    fixture_close(&r.f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run_that_cannot_begin_leaves_no_folder),
        cmocka_unit_test(a_given_plan_must_leave_room_for_saving),
        cmocka_unit_test(a_checkpoint_is_written_once_a_step),
        cmocka_unit_test(weights_that_a_bad_step_may_have_changed_are_not_saved),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
