/* Templates that loop, recurse, grow or raise end with a sentence that names the template and the line. */
#include "chat/cases.h"

static void refused(const char *source, const char *words)
{
    pt_error e = {0};
    chat_template *t = NULL;
    chat_rendering out = {0};
    json_t *variables = json_object();
    int failed = chat_template_parse("bad.jinja", source, strlen(source), &t, &e);
    if (!failed)
        failed = chat_template_render(t, variables, 0, &out, &e);
    assert_int_equal(failed, PT_FAILED);
    if (strncmp(e.text, "bad.jinja", 9) || !strstr(e.text, words))
        fail_msg("%s\n  instead of \"%s\", of %s", e.text, words, source);
    chat_rendering_free(&out);
    chat_template_free(t);
    json_decref(variables);
}

static char *repeated(const char *unit, size_t n, const char *middle, const char *end)
{
    const size_t length = strlen(unit);
    char *s = malloc(n * (length + strlen(end)) + strlen(middle) + 1), *at = s;
    for (size_t i = 0; i < n; i++, at += length)
        memcpy(at, unit, length);
    at = stpcpy(at, middle);
    for (size_t i = 0; i < n; i++)
        at = stpcpy(at, end);
    return s;
}

static void runaway_templates_end(void **state)
{
    refused("\n{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", "line 2: the template needs more "
                                        "than 256 MiB");
    refused("{% macro m() %}{{ m() }}{% endmacro %}\n{{ m() }}", "deeper");
    refused("{% set ns = namespace(s='abcdefgh') %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s %}{% endfor %}", "MiB");
    refused("{{ 'a' * 999999999999 }}", "too long");
    refused("{{ 'a' * 20000000 }}", "more than 16 MiB");
    refused("{{ ''.ljust(99999999999) }}", "too large");
    refused("{% for i in range(10 ** 9) %}{% endfor %}", "range");
    refused("{% set ns = namespace(x=[1], y=[1]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% set ns.y = [ns.y, ns.y] %}"
            "{% endfor %}\n{{ ns.x == ns.y }}", "line 2: the template does not finish");
    refused("{% set a = namespace(x=1) %}{% set a.x = a %}{{ a }}", "deeper");
    refused("{{ 9223372036854775807 + 1 }}", "64 bits");
    refused("{{ 2 ** 999 }}", "64 bits");
}

static void deep_sources_are_refused(void **state)
{
    static const char *const units[][3] = {{"(", "{{ 1", ")"}, {"[", "", "]"}, {"not ", "1", ""}, {"-", "1", ""}, {"1 if 1 else ", "1",
        ""}};
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        char *inner = repeated(units[i][0], 20000, i ? units[i][1] : "1", units[i][2]), *source = malloc(strlen(inner) + 8);
        sprintf(source, "{{ %s }}", inner);
        refused(source, "deeper");
        free(inner);
        free(source);
    }
    char *blocks = repeated("{% if 1 %}", 20000, "", "{% endif %}");
    refused(blocks, "deeper");
    free(blocks);
    char *branches = repeated("{% elif 1 %}", 20000, "", ""), *source = malloc(strlen(branches) + 32);
    sprintf(source, "{%% if 0 %%}%s{%% endif %%}", branches);
    refused(source, "deeper");
    free(branches);
    free(source);
}

static void places_are_named(void **state)
{
    refused("a\nb\n{{ 1 +\n }}", "line 4");
    refused("a\n{% for x in [1] %}\n{{ x.y.z }}\n{% endfor %}", "line 3: y of a int is undefined");
    refused("\n\n{{ raise_exception('only users') }}", "line 3: the template refuses: only users");
    refused("{% include 'x' %}", "include");
    refused("a\xff", "byte 1 is not UTF-8");
    refused("{{ x | nothing }}", "nothing");
    refused("{{ open('/etc/passwd') }}", "open is undefined");
    refused("{{ ''.__class__.__mro__ }}", "undefined");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(runaway_templates_end), cmocka_unit_test(deep_sources_are_refused),
                                       cmocka_unit_test(places_are_named)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
