/* tests.c - the tests, "x is NAME", which select and selectattr use by name. */
#include "chat/run.h"

#include <string.h>

#include <utf8proc.h>

#include "text/utf8.h"

static bool is_case(run *r, value v, bool upper)
{
    const text t = value_str(&r->arena, v);
    bool cased = false;
    run_step(r, t.n / STEP_SEARCHES);
    for (size_t i = 0; i < t.n;) {
        unsigned n;
        const utf8proc_int32_t c = (utf8proc_int32_t)utf8_read(t.s + i, &n);
        const utf8proc_category_t category = utf8proc_category(c);
        if (category == UTF8PROC_CATEGORY_LT || category == (upper ? UTF8PROC_CATEGORY_LL : UTF8PROC_CATEGORY_LU))
            return false;
        cased |= category == (upper ? UTF8PROC_CATEGORY_LU : UTF8PROC_CATEGORY_LL);
        i += n;
    }
    return cased;
}

static int64_t modulo(run *r, value v, value by)
{
    value m = arithmetic(r, OP_MODULO, v, by);
    return value_is_number(m) ? value_real(m) == 0 ? 0 : value_real(m) == 1 ? 1 : 2 : 2;
}

static bool is_same(run *r, value x, value y)
{
    if (x.kind != y.kind)
        return false;
    switch (x.kind) {
    case VALUE_NONE: return true;
    case VALUE_UNDEFINED: return false;
    case VALUE_BOOL: return x.truth == y.truth;
    case VALUE_INT: return x.integer == y.integer;
    case VALUE_FLOAT: return x.real == y.real;
    case VALUE_STRING: return text_equal(&r->arena, x.text, y.text);
    default: return x.list == y.list;
    }
}

static bool is_defined(run *r, value v, const bound *b) { return v.kind != VALUE_UNDEFINED; }
static bool is_undefined(run *r, value v, const bound *b) { return v.kind == VALUE_UNDEFINED; }
static bool is_none(run *r, value v, const bound *b) { return v.kind == VALUE_NONE; }
static bool is_boolean(run *r, value v, const bound *b) { return v.kind == VALUE_BOOL; }
static bool is_true(run *r, value v, const bound *b) { return v.kind == VALUE_BOOL && v.truth; }
static bool is_false(run *r, value v, const bound *b) { return v.kind == VALUE_BOOL && !v.truth; }
static bool is_integer(run *r, value v, const bound *b) { return v.kind == VALUE_INT; }
static bool is_float(run *r, value v, const bound *b) { return v.kind == VALUE_FLOAT; }
static bool is_number(run *r, value v, const bound *b) { return value_is_number(v); }
static bool is_string(run *r, value v, const bound *b) { return v.kind == VALUE_STRING; }
static bool is_mapping(run *r, value v, const bound *b) { return v.kind == VALUE_DICT; }
static bool is_escaped(run *r, value v, const bound *b) { return v.kind == VALUE_STRING && v.markup; }
static bool is_lower(run *r, value v, const bound *b) { return is_case(r, v, false); }
static bool is_upper(run *r, value v, const bound *b) { return is_case(r, v, true); }
static bool is_odd(run *r, value v, const bound *b) { return modulo(r, v, value_int(2)) == 1; }
static bool is_even(run *r, value v, const bound *b) { return modulo(r, v, value_int(2)) == 0; }
static bool is_divisible(run *r, value v, const bound *b) { return modulo(r, v, b->v[0]) == 0; }
static bool is_sameas(run *r, value v, const bound *b) { return is_same(r, v, b->v[0]); }
static bool is_filter(run *r, value v, const bound *b) { return v.kind == VALUE_STRING && filter_exists(v.text); }
static bool is_test(run *r, value v, const bound *b) { return v.kind == VALUE_STRING && test_exists(v.text); }
static bool is_in(run *r, value v, const bound *b) { return compare(r, OP_IN, v, b->v[0]); }
static bool is_eq(run *r, value v, const bound *b) { return compare(r, OP_EQUAL, v, b->v[0]); }
static bool is_ne(run *r, value v, const bound *b) { return compare(r, OP_NOT_EQUAL, v, b->v[0]); }
static bool is_lt(run *r, value v, const bound *b) { return compare(r, OP_LESS, v, b->v[0]); }
static bool is_le(run *r, value v, const bound *b) { return compare(r, OP_LESS_EQUAL, v, b->v[0]); }
static bool is_gt(run *r, value v, const bound *b) { return compare(r, OP_GREATER, v, b->v[0]); }
static bool is_ge(run *r, value v, const bound *b) { return compare(r, OP_GREATER_EQUAL, v, b->v[0]); }

static bool is_sequence(run *r, value v, const bound *b)
{
    return v.kind == VALUE_STRING || v.kind == VALUE_LIST || v.kind == VALUE_TUPLE || v.kind == VALUE_RANGE || v.kind == VALUE_DICT ||
           v.kind == VALUE_UNDEFINED;
}

static bool is_iterable(run *r, value v, const bound *b)
{
    return value_is_sequence(v) || v.kind == VALUE_STRING || v.kind == VALUE_DICT || v.kind == VALUE_UNDEFINED || v.kind == VALUE_LOOP;
}

static bool is_callable(run *r, value v, const bound *b)
{
    return v.kind >= VALUE_MACRO || v.kind == VALUE_UNDEFINED;
}

static const struct {
    const char *name;
    bool (*holds)(run *r, value v, const bound *b);
    const char *parameters;
} tests[] = {
    {"defined", is_defined, ""}, {"undefined", is_undefined, ""}, {"none", is_none, ""}, {"boolean", is_boolean, ""},
    {"true", is_true, ""}, {"false", is_false, ""}, {"integer", is_integer, ""}, {"float", is_float, ""}, {"number", is_number, ""},
    {"string", is_string, ""}, {"mapping", is_mapping, ""}, {"sequence", is_sequence, ""}, {"iterable", is_iterable, ""},
    {"callable", is_callable, ""}, {"escaped", is_escaped, ""}, {"lower", is_lower, ""}, {"upper", is_upper, ""}, {"odd", is_odd, ""},
    {"even", is_even, ""}, {"filter", is_filter, ""}, {"test", is_test, ""}, {"divisibleby", is_divisible, "num!"},
    {"sameas", is_sameas, "other!"}, {"in", is_in, "seq!"}, {"eq", is_eq, "b!"}, {"equalto", is_eq, "b!"}, {"==", is_eq, "b!"},
    {"ne", is_ne, "b!"}, {"!=", is_ne, "b!"}, {"lt", is_lt, "b!"}, {"lessthan", is_lt, "b!"}, {"<", is_lt, "b!"}, {"le", is_le, "b!"},
    {"<=", is_le, "b!"}, {"gt", is_gt, "b!"}, {"greaterthan", is_gt, "b!"}, {">", is_gt, "b!"}, {"ge", is_ge, "b!"}, {">=", is_ge, "b!"},
};
enum { TESTS = sizeof tests / sizeof *tests };

static size_t find(text name)
{
    size_t i = 0;
    while (i < TESTS && !text_is(name, tests[i].name))
        i++;
    return i;
}

bool test_exists(text name) { return find(name) < TESTS; }

bool test_apply(run *r, text name, value in, const args *x)
{
    const size_t i = find(name);
    bound b;
    if (i == TESTS)
        arena_fail(&r->arena, "there is no test named %.*s", (int)name.n, name.s);
    run_step(r, 1);
    args_bind(r, tests[i].name, x, tests[i].parameters, &b);
    return tests[i].holds(r, in, &b);
}
