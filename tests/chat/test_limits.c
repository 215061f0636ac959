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
    refused("{{ '%.200f' | format(1.5) }}", "wider than");
    refused("{% set s = 'a' * 2000000 %}{{ s.strip('b' * 2000000 ~ 'a') }}", "does not finish");
    refused("{% set s = 'a' * 2000000 %}{{ s.rfind('b' ~ s[:1000000]) }}{{ x.y }}", "x is undefined"); /* linear */
}

static uint64_t steps_of(const char *expression, int repeats)
{
    static const char *const values = "{%% set s = 'a' * %d %%}{%% set t = 'a' * %d %%}{%% set u = 'é' * %d %%}{%% set l = [0] * %d %%}"
                                      "{%% set m = [0] * %d %%}{%% set d = dict(range(%d, 0, -1) | batch(2)) %%}{%% if %s %%}{%% endif %%}";
    char source[1024];
    pt_error e = {0};
    chat_template *t = NULL;
    chat_rendering out = {0};
    json_t *variables = json_object();
    snprintf(source, sizeof source, values, repeats, repeats, repeats, repeats, repeats, repeats / 64 * 2, expression);
    if (chat_template_parse("t", source, strlen(source), &t, &e) || chat_template_render(t, variables, 0, &out, &e))
        fail_msg("%s: %s", expression, e.text);
    const uint64_t steps = out.steps;
    chat_rendering_free(&out);
    chat_template_free(t);
    json_decref(variables);
    return steps;
}

/* Without results that are limited by memory, only steps end a loop over such expressions. */
static void work_on_long_values_takes_steps(void **state)
{
    static const char *const expressions[] = {
        "s|length", "u|length", "u|count", "u[-1]", "u[2:-2]", "s == t", "s != t", "s < t", "s >= t", "s is eq t", "s is sameas t",
        "t in [s]", "'b' in s", "('b' ~ t) in s", "('a' * 200 ~ 'b') in s", "s.find('ab')", "s.rfind('ab')", "s.rfind('b' ~ t[1:])",
        "s.count('aa')", "s.partition('b')", "s.rpartition('b')", "s.split('b')", "s.rsplit('b')", "s.split()", "s.rsplit()",
        "s.startswith(t)", "s.endswith(t)", "s.startswith((t, 'x'))", "s.removeprefix(t)", "s.removesuffix(t)", "s.replace('ab', '')",
        "s.strip('a')", "u.lstrip('é')", "s.rstrip('ba')", "s|trim('a')", "s.isdigit()", "s.isalpha()", "s.isalnum()", "s.isnumeric()",
        "s.isascii()", "s.isspace()", "s.islower()", "s.isupper()", "s is lower", "s is upper", "s.splitlines()", "s|wordcount",
        "s|truncate(20)", "{s: 1}[t]", "{s: 1}.get(t)", "{(s,): 1}.get((t,))", "{'x': s} == {'x': t}", "[s, t]|unique|list",
        "[s].index(t)", "[s].count(t)", "[s, t]|sort(case_sensitive=true)", "[s, t]|min(case_sensitive=true)",
        "[s, t]|max(case_sensitive=true)", "l == m", "l < m", "(l,) == (m,)", "1 in l", "l.count(1)", "l|sum", "l|min", "l|max",
        "l|select|first", "l|select('none')|list", "l|reject('number')|list", "l|map('abs')|first", "l|sort|first", "l|unique|first",
        "l|list", "dict(d) == d", "d|tojson(sort_keys=true)|length", "l|join|length"};
    for (size_t i = 0; i < sizeof expressions / sizeof *expressions; i++) {
        enum { SHORT = 1 << 12, LONG = 1 << 15 };
        const uint64_t few = steps_of(expressions[i], SHORT), many = steps_of(expressions[i], LONG);
        const uint64_t none = steps_of("s", LONG) - steps_of("s", SHORT);
        if (many < few + none + (LONG - SHORT) / 64)
            fail_msg("%s takes %llu steps and %llu", expressions[i], (unsigned long long)few, (unsigned long long)many);
    }
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
    const struct CMUnitTest tests[] = {cmocka_unit_test(runaway_templates_end),
                                       cmocka_unit_test(work_on_long_values_takes_steps), cmocka_unit_test(deep_sources_are_refused),
                                       cmocka_unit_test(places_are_named)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
