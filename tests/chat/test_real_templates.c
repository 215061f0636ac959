/* Real templates, where they are, against the lengths and hashes of what Transformers makes of them.
 * Arguments: another folder of templates, and another file of cases. */
#include "chat/cases.h"

static const char *folder = PT_SHARED_DATA "/templates", *cases = PT_FIXTURES "/chat/cases.json";

static void real_templates_are_equal(void **state)
{
    json_t *root = cases_load(cases), *list, *one;
    const char *file;
    size_t wrong = 0, n = 0, i;
    json_object_foreach(json_object_get(root, "real"), file, list) {
        char path[4096];
        pt_error e = {0};
        chat_source source;
        snprintf(path, sizeof path, "%s/%s", folder, file);
        if (access(path, F_OK))
            continue;
        if (chat_source_open(&source, PT_FIXTURES, path, &e))
            fail_msg("%s", e.text);
        json_array_foreach(list, i, one) {
            json_t *variables = case_variables(root, json_array_get(json_object_get(root, "conversations"), i / 2), i % 2);
            wrong += !case_holds(path, source.plain, variables, one);
            n++;
            json_decref(variables);
        }
        chat_source_close(&source);
    }
    json_decref(root);
    if (!n) {
        print_message("skipped: %s is not there\n", folder);
        skip();
    }
    print_message("%zu renderings\n", n);
    assert_int_equal(wrong, 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(real_templates_are_equal)};
    if (argc > 1)
        folder = argv[1];
    if (argc > 2)
        cases = argv[2];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
