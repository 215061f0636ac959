#include "train/events.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "infer/model_folder.h"
#include "program.h"

static char folder[200], path[300], model_path[200];

static int set_up(void **state)
{
    if (scratch_make(state))
        return 1;
    snprintf(model_path, sizeof model_path, "%s", make_model_folder("model", 32, 2, 64, 5));
    return 0;
}

static void new_folder(const char *name)
{
    pt_error e = {0};
    snprintf(folder, sizeof folder, "%s/%s", scratch, name);
    snprintf(path, sizeof path, "%s/" EVENTS_NAME, folder);
    assert_int_equal(dir_make(folder, &e), 0);
}

static uint32_t unmasked(const char *at)
{
    uint32_t m;
    memcpy(&m, at, 4);
    m -= 0xa282ead8;
    return m << 15 | m >> 17;
}

/* Checks every frame, and gives the bytes of record i; NULL: there are fewer. */
static const char *record(int i, uint64_t *length)
{
    static char *bytes;
    size_t n;
    pt_error e = {0};
    free(bytes);
    assert_int_equal(file_read_all(path, 1 << 24, &bytes, &n, &e), 0);
    const char *found = NULL, *p = bytes;
    while (p < bytes + n) {
        uint64_t own;
        memcpy(&own, p, 8);
        assert_int_equal(unmasked(p + 8), crc32c(p, 8));
        assert_true(own + 16 <= (uint64_t)(bytes + n - p));
        assert_int_equal(unmasked(p + 12 + own), crc32c(p + 12, own));
        if (!i--) {
            found = p + 12;
            *length = own;
        }
        p += own + 16;
    }
    return found;
}

/* An Event here begins with nine bytes of its time, and then has its step, of one byte. */
static int step_at(int i)
{
    uint64_t n;
    const char *r = record(i, &n);
    if (!r)
        return -1;
    assert_true(r[0] == 0x09 && r[9] == 0x10 && r[10] >= 0);
    return r[10];
}

/* The float behind a tag in record i; NAN: there is no such tag. */
static float value_at(int i, const char *tag)
{
    uint64_t n;
    float x = 0.0f / 0.0f;
    const char *r = record(i, &n), *at = memmem(r, n, tag, strlen(tag));
    if (!at || at[-1] != (char)strlen(tag) || at[strlen(tag)] != 0x15)
        return x;
    memcpy(&x, at + strlen(tag) + 1, 4);
    return x;
}

static void write_steps(int first, int last)
{
    events v;
    pt_error e = {0};
    assert_int_equal(events_open(&v, folder, first - 1, true, &e), 0);
    for (int i = first; i <= last; i++) {
        const pt_step s = {.step = i, .loss = 4.0 / i, .grad_norm = 1, .lr = 0.5, .tokens = 8 * i, .learned_tokens = 3 * i,
                           .tokens_per_s = 100, .evaluated = i == 2, .eval_loss = 7};
        const pt_memory memory[2] = {{"device", 0, 0, 3 << 20}, {"disk", 0, 0, 5 << 20}};
        if (events_write(&v, &s, memory, 2, &e))
            fail_msg("%s", e.text);
    }
    assert_int_equal(events_sync(&v, &e), 0);
    events_close(&v);
}

static void checksums_are_castagnolis(void **state)
{
    (void)state;
    assert_int_equal(crc32c("123456789", 9), 0xe3069283);
    assert_int_equal(crc32c("", 0), 0);
    assert_int_equal(crc32c((char[32]){0}, 32), 0x8a9136aa);
}

static void records_are_framed(void **state)
{
    (void)state;
    uint64_t n;
    new_folder("framed");
    write_steps(1, 3);
    const char *version = record(0, &n);
    assert_non_null(memmem(version, n, "\x1a\x0d" "brain.Event:2", 15));
    assert_true(step_at(1) == 1 && step_at(2) == 2 && step_at(3) == 3 && step_at(4) == -1);
    assert_true(value_at(1, "train/loss") == 4 && value_at(3, "train/loss") == 4.0f / 3 && value_at(2, "train/learning_rate") == 0.5f);
    assert_true(value_at(2, "memory/disk_peak_bytes") == 5 << 20 && value_at(2, "eval/loss") == 7);
    assert_true(value_at(3, "train/tokens") == 24 && value_at(3, "train/learned_tokens") == 9);
    assert_true(value_at(3, "eval/loss") != value_at(3, "eval/loss"));
}

static void a_file_is_cut_back(void **state)
{
    (void)state;
    pt_error e = {0};
    struct stat before, after;
    events v;
    new_folder("cut");
    write_steps(1, 5);
    write_steps(3, 4); /* from step 2 on */
    assert_true(step_at(1) == 1 && step_at(2) == 2 && step_at(3) == 3 && step_at(4) == 4 && step_at(5) == -1);
    assert_int_equal(stat(path, &before), 0);
    FILE *f = fopen(path, "ab"); /* a torn record */
    fputs("\x50", f);
    fclose(f);
    assert_int_equal(events_open(&v, folder, 9, false, &e), 0); /* cut though nothing is written */
    assert_int_equal(events_write(&v, &(pt_step){.step = 10}, NULL, 0, &e), 0);
    events_close(&v);
    assert_true(!stat(path, &after) && after.st_size == before.st_size);
    f = fopen(path, "r+b"); /* a damaged one */
    fseek(f, before.st_size - 20, SEEK_SET);
    fputc(1, f);
    fclose(f);
    write_steps(10, 10);
    assert_true(step_at(3) == 3 && step_at(4) == 10 && step_at(5) == -1);
    f = fopen(path, "wb"); /* no events at all */
    fputs("something else that somebody wrote there", f);
    fclose(f);
    write_steps(1, 1);
    assert_true(step_at(1) == 1 && step_at(2) == -1);
}

static int train(words more)
{
    char data[200];
    arguments a = {0};
    static const char text[] = "Some text to be learned, and a little more of it, so that there are windows.";
    scratch_put("data.txt", text, sizeof text - 1);
    snprintf(data, sizeof data, "%s/data.txt", scratch);
    add_arguments(&a, WORDS("train", "--model", model_path, "--data", data, "--eval-data", data, "--seq-len", "4",
                            "--batch-size", "1", "--device-memory", "64MiB", "--quiet", "--out", folder, "--save-every",
                            "2", "--keep", "0", "--eval-every", "3"));
    add_arguments(&a, more);
    return program_wait(program_start(&a, scratch_path("out"), scratch_path("err")));
}

static void a_run_that_is_resumed_has_each_step_once(void **state)
{
    (void)state;
    char from[300];
    new_folder("run");
    snprintf(from, sizeof from, "%s/checkpoint-2", folder);
    if (train(WORDS("--steps", "5", "--tensorboard")))
        fail_msg("%s", text_of(scratch_path("err")));
    assert_true(step_at(5) == 5 && step_at(6) == -1);
    if (train(WORDS("--steps", "6", "--tensorboard", "--resume", from)))
        fail_msg("%s", text_of(scratch_path("err")));
    for (int i = 1; i <= 6; i++)
        assert_int_equal(step_at(i), i);
    assert_int_equal(step_at(7), -1);
    assert_true(value_at(3, "eval/loss") > 0 && value_at(6, "eval/loss") > 0 && value_at(4, "eval/loss") != value_at(4, "eval/loss"));
    assert_true(value_at(4, "memory/device_peak_bytes") > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(checksums_are_castagnolis),
        cmocka_unit_test(records_are_framed),
        cmocka_unit_test(a_file_is_cut_back),
        cmocka_unit_test(a_run_that_is_resumed_has_each_step_once),
    };
    return cmocka_run_group_tests(tests, set_up, scratch_remove);
}
