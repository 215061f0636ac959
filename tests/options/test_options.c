/* Options by name: what is set is what is read, the defaults are those of the structs, and wrong values are refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "options/table.h"
#include "protrain_ritz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const commands[] = {"train", "plan", "profile", "eval", "generate", "merge", "export", "ritz"};
enum { COMMANDS = sizeof commands / sizeof *commands };

static pt_options *opened(const char *command)
{
    pt_options *o;
    pt_error e = {0};
    if (pt_options_open(command, &o, &e))
        fail_msg("%s", e.text);
    return o;
}

/* A value of the option that is not its default. */
static const char *another(const pt_option *o)
{
    static char number[32];
    switch (o->kind) {
    case PT_OPTION_FLAG:
    case PT_OPTION_NOT: return "true";
    case PT_OPTION_EITHER:
    case PT_OPTION_CHOICE: return strrchr(o->values, '|') + 1;
    case PT_OPTION_SIZE: return "1536MiB";
    case PT_OPTION_REAL: snprintf(number, sizeof number, "%.15g", o->high > 1e3 ? o->low + 0.0123 : o->high / 2); return number;
    case PT_OPTION_INT:
    case PT_OPTION_INT32:
    case PT_OPTION_SEED: snprintf(number, sizeof number, "%.0f", o->low + 3 < o->high ? o->low + 3 : o->high); return number;
    default: return "some text";
    }
}

static void what_is_set_is_what_is_read(void **state)
{
    (void)state;
    const pt_option *x;
    for (int c = 0; c < COMMANDS; c++) {
        pt_options *o = opened(commands[c]);
        for (int i = 0; (x = pt_options_list(o, i)); i++) {
            pt_error e = {0};
            char value[64];
            snprintf(value, sizeof value, "%s", another(x));
            assert_false(pt_options_given(o, x->name));
            if (pt_options_set(o, x->name, value, &e))
                fail_msg("%s %s: %s", commands[c], x->name, e.text);
            assert_true(pt_options_given(o, x->name));
            const char *read = pt_options_get(o, x->name, 0);
            if (!read || strcmp(read, value))
                fail_msg("%s %s: %s was set, and %s is read", commands[c], x->name, value, read ? read : "nothing");
            assert_null(pt_options_get(o, x->name, 1));
            assert_int_equal(pt_options_set(o, x->name, NULL, &e), 0);
            assert_false(pt_options_given(o, x->name));
        }
        pt_options_close(o);
    }
}

/* A default that help names is one that the option takes. */
static void a_default_is_a_value(void **state)
{
    (void)state;
    const pt_option *x;
    for (int c = 0; c < COMMANDS; c++) {
        pt_options *o = opened(commands[c]);
        for (int i = 0; (x = pt_options_list(o, i)); i++) {
            pt_error e = {0};
            if (x->initial && pt_options_set(o, x->name, x->initial, &e))
                fail_msg("%s %s: %s", commands[c], x->name, e.text);
            assert_true(x->name && x->field && x->help && !strstr(x->help, "default: default"));
        }
        pt_options_close(o);
    }
}

static void defaults_are_those_of_the_struct(void **state)
{
    (void)state;
    pt_train_options o;
    pt_train_defaults(&o);
    assert_true(o.batch_size == 8 && o.epochs == 1 && o.shuffle && o.lr_schedule == PT_LR_LINEAR && o.beta == 0.1);
    assert_true(o.beta1 == 0.9 && o.beta2 == 0.999 && o.eps == 1e-8 && o.max_grad_norm == 1 && o.lr == 0 && o.steps == 0);
    assert_true(o.device_memory == PT_AUTO && o.host_memory == PT_AUTO && o.disk_memory == PT_AUTO && !strcmp(o.device, "auto"));
    pt_generate_options g;
    pt_generate_defaults(&g);
    assert_true(g.temperature == PT_OF_MODEL && g.top_p == PT_OF_MODEL && g.top_k == PT_OF_MODEL && g.device_memory == PT_AUTO);
    _Alignas(pt_train_options) char larger[sizeof o + 8];
    pt_error e = {0};
    pt_trainer *t;
    pt_defaults("train", larger, sizeof larger); /* by a header of another version */
    assert_int_equal(pt_trainer_open((const pt_train_options *)(void *)larger, &t, &e), PT_USAGE);
    assert_non_null(strstr(e.text, "build the program with the header of this library"));
    memset(&o, 0, sizeof o);
    assert_int_equal(pt_trainer_open(&o, &t, &e), PT_USAGE);
    assert_non_null(strstr(e.text, "the options have no size"));
    pt_ritz_options r;
    pt_ritz_defaults(&r);
    assert_true(r.points == PT_RITZ_SOBOL && r.n == 4096 && r.width == 64 && r.blocks == 4 && r.lr == 1e-3 && r.eps == 1e-8 && r.keep == 2);
}

static void a_list_grows_until_it_is_reset(void **state)
{
    (void)state;
    pt_options *o = opened("train");
    pt_error e = {0};
    char path[32];
    for (int i = 0; i < 1000; i++) {
        snprintf(path, sizeof path, "file-%d.txt", i);
        assert_int_equal(pt_options_set(o, "data", path, &e), 0);
    }
    const pt_train_options *t = pt_options_train(o);
    assert_int_equal(t->data_n, 1000);
    assert_string_equal(t->data[999], "file-999.txt");
    assert_string_equal(pt_options_get(o, "data", 7), "file-7.txt");
    assert_null(pt_options_get(o, "data", 1000));
    assert_int_equal(pt_options_set(o, "data", NULL, &e), 0);
    assert_int_equal(t->data_n, 0);
    pt_options_close(o);
}

static void refused(const char *name, const char *value, const char *said)
{
    pt_options *o = opened("train");
    pt_error e = {0};
    if (pt_options_set(o, name, value, &e) != PT_USAGE || !strstr(e.text, said))
        fail_msg("%s %s: \"%s\" is not in: %s", name, value, said, e.text);
    assert_false(pt_options_given(o, name));
    pt_options_close(o);
}

static void what_is_no_value_is_refused(void **state)
{
    (void)state;
    refused("lr", "fast", "`lr` fast: it must be a number above 0");
    refused("lr", "0", "above 0");
    refused("lr", "nan", "above 0");
    refused("min-lr-ratio", "1.5", "a number from 0 to 1");
    refused("seq-len", "0", "1 or more");
    refused("seq-len", "8x", "a whole number");
    refused("threads", "5000", "at most 4096");
    refused("lr-schedule", "step", "constant|linear|cosine");
    refused("lr-schedule", "const", "constant|linear|cosine");
    refused("no-shuffle", "yes", "true or false");
    refused("device-memory", "8", "write the unit");
    refused("no-such-option", "1", "no-such-option");
}

/* The ranges also hold for a struct that was filled by hand, where a default may be given. */
static void a_struct_is_checked_by_the_same_rows(void **state)
{
    (void)state;
    pt_train_options o;
    pt_error e = {0};
    pt_train_defaults(&o);
    assert_int_equal(options_check_values(&train_table, &o, &e), 0);
    o.beta2 = 1;
    assert_int_equal(options_check_values(&train_table, &o, &e), PT_USAGE);
    assert_non_null(strstr(e.text, "`beta2` is 1"));
    pt_train_defaults(&o);
    o.lr_schedule = 9;
    assert_int_equal(options_check_values(&train_table, &o, &e), PT_USAGE);
    assert_non_null(strstr(e.text, "`lr_schedule` is 9"));
    pt_train_defaults(&o);
    o.freeze_n = 1;
    assert_int_equal(options_check_values(&train_table, &o, &e), PT_USAGE);
    assert_non_null(strstr(e.text, "`freeze`"));
}

static void a_command_has_its_own_struct_and_plan_takes_what_train_takes(void **state)
{
    (void)state;
    pt_options *none, *plan = opened("plan"), *train = opened("train");
    pt_error e = {0};
    const pt_option *x;
    assert_int_equal(pt_options_open("no-command", &none, &e), PT_USAGE);
    assert_null(none);
    assert_null(pt_options_evaluate(plan));
    for (int i = 0; (x = pt_options_list(train, i)); i++)
        assert_string_equal(pt_options_list(plan, i)->name, x->name);
    assert_int_equal(pt_options_set(plan, "lr", "0.5", &e), 0); /* has no effect there */
    assert_true(pt_options_train(plan)->lr == 0);
    assert_string_equal(pt_options_get(plan, "lr", 0), "0.5");
    pt_options_close(plan);
    pt_options_close(train);
    pt_options_close(NULL);
    assert_null(pt_options_list(NULL, 0));
    assert_null(pt_options_get(NULL, "lr", 0));
    assert_int_equal(pt_options_set(NULL, "lr", "1", &e), PT_USAGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_set_is_what_is_read),
        cmocka_unit_test(a_default_is_a_value),
        cmocka_unit_test(defaults_are_those_of_the_struct),
        cmocka_unit_test(a_list_grows_until_it_is_reset),
        cmocka_unit_test(what_is_no_value_is_refused),
        cmocka_unit_test(a_struct_is_checked_by_the_same_rows),
        cmocka_unit_test(a_command_has_its_own_struct_and_plan_takes_what_train_takes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
