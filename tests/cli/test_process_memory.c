/* The memory of a whole process that trains: what its plan says and 96 MiB at most, with any number of threads, and with any points. */
#include "base/json.h"
#include "base/units.h"
#include "io/files.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <sys/resource.h>

#include "io/scratch.h"
#include "program.h"
#include "sanitized.h"

#define MIB ((json_int_t)1 << 20)

/* So wide that packed weights take a part of each thread's scratch space, whichever threads compute. */
static const char wide[] =
    "{\"model_type\": \"llama\", \"vocab_size\": 512, \"hidden_size\": 64, \"intermediate_size\": 8192, \"num_hidden_layers\": 1,"
    " \"num_attention_heads\": 4, \"num_key_value_heads\": 4, \"max_position_embeddings\": 128, \"rms_norm_eps\": 1e-05,"
    " \"hidden_act\": \"silu\", \"tie_word_embeddings\": false, \"bos_token_id\": 1, \"eos_token_id\": 2}";

enum { STEPS = 3, BATCH = 4, SEQ_LEN = 128, IDS = STEPS * BATCH * SEQ_LEN + 1 };

static void put_inputs(void)
{
    static uint16_t ids[64 + IDS];
    memcpy(ids, "\x93NUMPY\x01\0\x76\0", 10);
    snprintf((char *)ids + 10, 119, "%-117s\n", "{'descr': '<u2', 'fortran_order': False, 'shape': (1537,), }");
    for (int i = 0; i < IDS; i++)
        ids[64 + i] = (uint16_t)(i * 37 % 512);
    assert_int_equal(IDS, 1537);
    scratch_put("ids.npy", ids, sizeof ids);
    scratch_put("config.json", wide, sizeof wide - 1);
}

/* The most that the process ever had in RAM goes to *peak. */
static int run(const char *command, const char *threads, const char *budget, const char *const *more, json_int_t *peak)
{
    arguments a = {0};
    struct rusage use;
    int status;
    add_argument(&a, command);
    add_arguments(&a, WORDS("--model", scratch, "--quiet", "--device", "cpu", "--batch-size", "4", "--seq-len", "128", "--disk-memory",
                            "1GiB", "--disk-path", scratch, "--threads", threads, "--device-memory", budget));
    add_arguments(&a, more);
    pid_t child = program_start(&a, scratch_path("out"), scratch_path("err"));
    assert_true(wait4(child, &status, 0, &use) == child && WIFEXITED(status));
    *peak = (json_int_t)use.ru_maxrss * 1024;
    return WEXITSTATUS(status);
}

static json_t *read_json(const char *path)
{
    pt_error e = {0};
    json_t *o;
    if (json_file_load(path, 0, &o, &e))
        fail_msg("%s", e.text);
    return o;
}

/* The least budget that a plan fits. */
static uint64_t find_least(const char *threads, char least[32])
{
    pt_error e = {0};
    uint64_t bytes;
    json_int_t peak;
    if (run("plan", threads, "1B", WORDS("--json"), &peak) != 3)
        fail_msg("%s threads: %s", threads, text_of(scratch_path("err")));
    json_t *o = read_json(scratch_path("out"));
    assert_int_equal(sscanf(json_string_value(json_object_get(o, "smallest_change")), "--device-memory %30s", least), 1);
    assert_int_equal(size_parse(least, &bytes, &e), 0);
    assert_true(json_integer_value(json_object_get(o, "missing_bytes")) == (json_int_t)bytes - 1);
    json_decref(o);
    return bytes;
}

/* Trains within the budget, which has room for what is planned and for what many threads need. */
static void check_within(const char *threads, const char *budget, json_int_t budget_bytes)
{
    char out[200], path[240];
    json_int_t peak;
    snprintf(out, sizeof out, "%s/run-%s-%s", scratch, threads, budget);
    if (run("train", threads, budget, WORDS("--data", scratch_path("ids.npy"), "--steps", "3", "--init", "random", "--out", out), &peak))
        fail_msg("%s threads in %s: %s", threads, budget, text_of(scratch_path("err")));
    snprintf(path, sizeof path, "%s/summary.json", out);
    json_t *o = read_json(path), *device = json_object_get(json_object_get(o, "memory_bytes"), "device");
    assert_true(json_is_integer(json_object_get(o, "threads_bytes")));
    json_int_t of_threads = json_integer_value(json_object_get(o, "threads_bytes"));
    json_int_t planned = json_integer_value(json_object_get(device, "predicted")) + of_threads;
    assert_true((of_threads > 0) == (atoi(threads) > 8));
    assert_true(json_integer_value(json_object_get(device, "budget")) + of_threads == budget_bytes && planned <= budget_bytes);
    if (peak > planned + 96 * MIB)
        fail_msg("%s threads in %s: %lld bytes in RAM, and %lld are planned", threads, budget, (long long)peak, (long long)planned);
    json_decref(o);
}

static void a_process_takes_what_is_planned_and_little_more_with_any_number_of_threads(void **state)
{
    (void)state;
    static const char *const threads[] = {"2", "32"};
    NOT_SANITIZED(); /* their shadow memory is more */
    put_inputs();
    for (size_t i = 0; i < sizeof threads / sizeof *threads; i++) {
        char least[32];
        const uint64_t bytes = find_least(threads[i], least);
        check_within(threads[i], least, (json_int_t)bytes);
        check_within(threads[i], "1GiB", 1024 * MIB);
    }
}

static bool says_share_of_little(const char *line)
{
    return strstr(line, "us") && strchr(line, '%') && strchr(line, '%') < strchrnul(line, '\n') && strstr(line, "us") < strchr(line, '%');
}

/* The peak is the program's own, whatever started it; of microseconds no shares are told. */
static void the_end_of_a_run_tells_of_the_program_alone(void **state)
{
    (void)state;
    enum { LARGE = 400 };
    json_int_t peak;
    char out[200];
    NOT_SANITIZED();
    put_inputs();
    char *large = malloc((size_t)LARGE * MIB);
    assert_non_null(large);
    memset(large, 1, (size_t)LARGE * MIB);
    snprintf(out, sizeof out, "%s/small", scratch);
    const int status = run("train", "1", "128MiB", WORDS("--data", scratch_path("ids.npy"), "--steps", "3", "--init", "random",
                                                         "--seq-len", "8",
                                                          "--warmup-steps", "3", "--out", out), &peak);
    assert_true(large[LARGE] == 1 && peak >= LARGE * MIB);
    free(large);
    const char *said = text_of(scratch_path("err"));
    if (status)
        fail_msg("%s", said);
    json_t *o = read_json(strcat(out, "/summary.json"));
    const json_int_t own = json_integer_value(json_object_get(o, "process_peak_bytes"));
    json_decref(o);
    if (own < MIB || own > 300 * MIB)
        fail_msg("%lld bytes at the peak, and %lld of what started it", (long long)own, (long long)peak);
    assert_non_null(strstr(said, "at its peak"));
    assert_null(strstr(said, "leaves out")); /* 192 windows, 4 a step */
    assert_non_null(strstr(said, "the warm-up takes 3 steps and the run has 3"));
    int times = 0;
    for (const char *line = strstr(said, "step        predicted"); line && *line; line = *strchrnul(line, '\n') ? strchrnul(line,
        '\n') + 1 : NULL) {
        times += strstr(line, "predicted") != NULL;
        if (strncmp(line, "the machine was busy", 20) && says_share_of_little(line)) /* which tells the processors' share */
            fail_msg("%.120s", line);
    }
    assert_true(times > 3);
}

/* Sobol points in many dimensions have large tables: two sets of 3.3 KiB a dimension. */
static void the_tables_of_points_are_planned(void **state)
{
    (void)state;
    char path[240];
    struct rusage use;
    int status;
    arguments a = {0};
    NOT_SANITIZED();
    add_argument(&a, "ritz");
    add_arguments(&a, WORDS("--dim", "21201", "--n", "256", "--eval-n", "256", "--width", "256", "--blocks", "1", "--steps", "1"));
    add_arguments(&a, WORDS("--device", "cpu", "--threads", "2", "--quiet", "--out", scratch_path("points")));
    pid_t child = program_start(&a, scratch_path("out"), scratch_path("err"));
    assert_true(wait4(child, &status, 0, &use) == child && WIFEXITED(status));
    if (WEXITSTATUS(status))
        fail_msg("%s", text_of(scratch_path("err")));
    snprintf(path, sizeof path, "%s/points/metrics.jsonl", scratch);
    json_t *o = read_json(path);
    const json_int_t planned = json_integer_value(json_object_get(o, "device_predicted_bytes"));
    const json_int_t peak = (json_int_t)use.ru_maxrss * 1024;
    json_decref(o);
    if (!planned || peak > planned + 96 * MIB)
        fail_msg("%lld bytes in RAM, and %lld are planned", (long long)peak, (long long)planned);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_tables_of_points_are_planned),
        cmocka_unit_test(a_process_takes_what_is_planned_and_little_more_with_any_number_of_threads),
        cmocka_unit_test(the_end_of_a_run_tells_of_the_program_alone),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
