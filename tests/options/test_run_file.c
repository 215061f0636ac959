/* A run as a file: YAML and JSON give the same options, what is wrong is named with its line, and what is written is read again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "options/run_file.h"

#include "io/scratch.h"

static pt_options *opened(void)
{
    pt_options *o;
    pt_error e = {0};
    if (pt_options_open("train", &o, &e))
        fail_msg("%s", e.text);
    return o;
}

static pt_options *read_text(const char *text)
{
    pt_options *o = opened();
    pt_error e = {0};
    if (run_file_read(o, "run.yaml", text, strlen(text), &e))
        fail_msg("%s", e.text);
    return o;
}

static void yaml_and_json_give_the_same_options(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "# a run\nmodel: /models/my model # here\ndata: [a.jsonl, \"b c.txt\"]\nlr: 1e-4\nseq-len: 256\nno-shuffle: true\n"
        "lr-schedule: cosine\ndevice-memory: 8GiB\n",
        "model: '/models/my model'\ndata:\n  - a.jsonl\n  - b c.txt\nlr: 0.0001\nseq-len: 256\nno-shuffle: true\nlr-schedule: cosine\n"
        "device-memory: 8589934592\n",
        "{\"model\": \"/models/my model\", \"data\": [\"a.jsonl\", \"b c.txt\"],\n \"lr\": 1e-4, \"seq-len\": 256, \"no-shuffle\": true,\n"
        " \"lr-schedule\": \"cosine\", \"device-memory\": \"8GiB\"}\n"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        pt_options *o = read_text(texts[i]);
        const pt_train_options *t = pt_options_train(o);
        assert_string_equal(t->model, "/models/my model");
        assert_int_equal(t->data_n, 2);
        assert_string_equal(t->data[1], "b c.txt");
        assert_true(t->lr == 1e-4 && t->seq_len == 256 && !t->shuffle && t->lr_schedule == PT_LR_COSINE);
        assert_true(t->device_memory == UINT64_C(8) << 30);
        pt_options_close(o);
    }
}

static void what_was_set_before_stays(void **state)
{
    (void)state;
    static const char text[] = "lr: 1e-4\ndata: [a.txt, b.txt]\nseed: 7\n";
    pt_options *o = opened();
    pt_error e = {0};
    assert_int_equal(pt_options_set(o, "lr", "2e-4", &e) || pt_options_set(o, "data", "c.txt", &e), 0);
    assert_int_equal(run_file_read(o, "run.yaml", text, strlen(text), &e), 0);
    const pt_train_options *t = pt_options_train(o);
    assert_true(t->lr == 2e-4 && t->data_n == 1 && t->seed == 7);
    pt_options_close(o);
}

static void what_is_wrong_is_named_with_its_line(void **state)
{
    (void)state;
    static const struct { const char *text, *said; } each[] = {
        {"lr: 1\nseed: 1\nlr: 2\n", "line 3: lr is given twice"},
        {"lr: fast\n", "line 1: `lr` fast: it must be a number above 0"},
        {"model: m\nlearning-rate: 1\n", "line 2: there is no option \"learning-rate\""},
        {"seq-length: 1\n", "did you mean seq-len?"},
        {"seq-len: [1, 2]\n", "line 1: seq-len takes one value"},
        {"data:\n  a: b\n", "line 2: data has a value that is no text"},
        {"data: [[a]]\n", "data has a value that is no text"},
        {"lr:\n", "line 1: lr has no value"},
        {"no-shuffle: maybe\n", "true or false"},
        {"a: &x 1\n", "there is no option"},
        {"lr: *x\n", "lr has a value that is no text"},
        {"lr: 1\n---\nlr: 2\n", "second document"},
        {"- lr\n", "no options"},
        {"", "no options"},
        {"# nothing\n", "no options"},
        {"lr: \"1\n", "run.yaml: line"},
        {"lr: 1\n\tseed: 2\n", "run.yaml: line"},
        {"\"lr\\0\": 1\n", "there is no option"},
        {"model: \"a\\0b\"\n", "no text"},
    };
    for (size_t i = 0; i < sizeof each / sizeof *each; i++) {
        pt_options *o = opened();
        pt_error e = {0};
        if (!run_file_read(o, "run.yaml", each[i].text, strlen(each[i].text), &e) || !strstr(e.text, each[i].said) ||
            strncmp(e.text, "run.yaml: ", 10))
            fail_msg("%s\"%s\" is not in: %s", each[i].text, each[i].said, e.text);
        pt_options_close(o);
    }
}

/* Every option with a value of its own. */
static void what_is_written_is_read_again(void **state)
{
    (void)state;
    pt_options *a = opened(), *b = opened();
    const pt_option *x;
    pt_error e = {0};
    char number[32];
    for (int i = 0; (x = pt_options_list(a, i)); i++) {
        snprintf(number, sizeof number, "%.15g", x->high > 1e3 ? x->low + 3 : x->high / 2);
        const char *value = x->kind == PT_OPTION_FLAG || x->kind == PT_OPTION_NOT        ? "true"
                            : x->kind == PT_OPTION_CHOICE || x->kind == PT_OPTION_EITHER ? strrchr(x->values, '|') + 1
                            : x->kind == PT_OPTION_SIZE                                  ? "3GiB"
                            : x->high > 0                                                ? number
                                                                                         : "a: \"b\"\n'c' # d \xc3\xa4";
        if (pt_options_set(a, x->name, value, &e) || (x->kind == PT_OPTION_TEXTS && pt_options_set(a, x->name, "- second", &e)))
            fail_msg("%s: %s", x->name, e.text);
    }
    if (run_file_write(&train_table, pt_options_train(a), scratch_path("run.yaml"), &e) ||
        pt_options_read(b, scratch_path("run.yaml"), &e))
        fail_msg("%s", e.text);
    for (int i = 0; (x = pt_options_list(a, i)); i++) {
        if (!strcmp(x->name, "out") || !strcmp(x->name, "resume")) {
            assert_false(pt_options_given(b, x->name));
            continue;
        }
        for (int k = 0; k < 3; k++) {
            const char *was = pt_options_get(a, x->name, k), *is = pt_options_get(b, x->name, k);
            if (!was != !is || (was && strcmp(was, is)))
                fail_msg("%s: %s was written, and %s is read", x->name, was ? was : "nothing", is ? is : "nothing");
        }
    }
    pt_options_close(a);
    pt_options_close(b);
}

static void a_file_that_is_not_there_is_named(void **state)
{
    (void)state;
    pt_options *o = opened();
    pt_error e = {0};
    assert_int_equal(pt_options_read(o, scratch_path("nowhere.yaml"), &e), PT_FAILED);
    assert_non_null(strstr(e.text, "nowhere.yaml"));
    assert_int_equal(pt_options_read(NULL, "x", &e), PT_USAGE);
    assert_int_equal(pt_options_read(o, NULL, &e), PT_USAGE);
    pt_options_close(o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(yaml_and_json_give_the_same_options), cmocka_unit_test(what_was_set_before_stays),
        cmocka_unit_test(what_is_wrong_is_named_with_its_line), cmocka_unit_test(what_is_written_is_read_again),
        cmocka_unit_test(a_file_that_is_not_there_is_named),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
