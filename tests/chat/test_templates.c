/* Renderings against those of Transformers: every feature, and templates in the style of each family over random conversations.
 * With a path as its argument it compares those of that file instead. */
#include "chat/cases.h"

static const char *path = PT_FIXTURES "/chat/cases.json";

static chat_template *parsed(const char *name, const json_t *source, pt_error *e)
{
    chat_template *t = NULL;
    chat_template_parse(name, json_string_value(source), json_string_length(source), &t, e);
    return t;
}

static void features_are_equal(void **state)
{
    json_t *root = cases_load(path), *one;
    size_t i, wrong = 0;
    json_array_foreach(json_object_get(root, "features"), i, one) {
        char name[32];
        pt_error e = {0};
        const json_t *want = json_array_get(one, 1), *source = json_array_get(one, 0);
        snprintf(name, sizeof name, "feature %zu", i);
        chat_template *t = parsed(name, source, &e);
        const bool right = t ? case_holds(name, t, json_object_get(root, "variables"), want) : json_is_null(want);
        if (!right)
            print_error("  of   %s\n  %s\n", json_string_value(source), t ? "" : e.text);
        wrong += !right;
        chat_template_free(t);
    }
    print_message("%zu features\n", i);
    json_decref(root);
    assert_int_equal(wrong, 0);
}

static void families_are_equal(void **state)
{
    json_t *root = cases_load(path), *cases = json_object_get(root, "cases"), *source, *one;
    json_t *conversations = json_object_get(root, "conversations");
    const char *name;
    size_t wrong = 0, n = 0, raised = 0, i;
    json_object_foreach(json_object_get(root, "templates"), name, source) {
        pt_error e = {0};
        chat_template *t = parsed(name, source, &e);
        if (!t)
            fail_msg("%s", e.text);
        json_array_foreach(json_object_get(cases, name), i, one) {
            json_t *variables = case_variables(root, json_array_get(conversations, i / 2), i % 2);
            wrong += !case_holds(name, t, variables, one);
            raised += json_is_null(one);
            n++;
            json_decref(variables);
        }
        chat_template_free(t);
    }
    print_message("%zu renderings, of which %zu are refused\n", n, raised);
    json_decref(root);
    assert_int_equal(wrong, 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(features_are_equal), cmocka_unit_test(families_are_equal)};
    if (argc > 1)
        path = argv[1];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
