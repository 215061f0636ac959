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

static void what_is_marked_is_equal(void **state)
{
    json_t *root = cases_load(path), *one;
    size_t i, n = 0;
    pt_error e = {0};
    chat_template *t = parsed("marked", json_object_get(json_object_get(root, "templates"), "chatml_marked"), &e);
    assert_true(chat_template_marks_replies(t));
    json_array_foreach(json_object_get(root, "marked"), i, one) {
        json_t *variables = case_variables(root, json_array_get(json_object_get(root, "conversations"), i), false);
        chat_rendering got = {0};
        assert_int_equal(chat_template_render(t, variables, CASES_NOW, &got, &e) != 0, json_is_null(one));
        assert_int_equal(2 * got.n_spans, json_array_size(one));
        for (size_t k = 0; k < got.n_spans; k++, n++) {
            assert_int_equal(got.spans[k].first, json_integer_value(json_array_get(one, 2 * k)));
            assert_int_equal(got.spans[k].end, json_integer_value(json_array_get(one, 2 * k + 1)));
        }
        chat_rendering_free(&got);
        json_decref(variables);
    }
    print_message("%zu marks\n", n);
    assert_true(n > 0);
    chat_template_free(t);
    json_decref(root);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(features_are_equal), cmocka_unit_test(families_are_equal),
                                       cmocka_unit_test(what_is_marked_is_equal)};
    if (argc > 1)
        path = argv[1];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
