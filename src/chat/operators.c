/* operators.c - arithmetic, comparisons, slices. */
#include "chat/run.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static const char *const spelt[] = {"+", "-", "*", "/", "//", "%", "**"};

static _Noreturn void fail_types(run *r, operation op, value x, value y)
{
    if (x.kind == VALUE_UNDEFINED || y.kind == VALUE_UNDEFINED) {
        const text name = x.kind == VALUE_UNDEFINED ? x.text : y.text;
        arena_fail(&r->arena, "%.*s is undefined", name.n > 200 ? 200 : (int)name.n, name.s);
    }
    arena_fail(&r->arena, "%s between a %s and a %s", spelt[op], value_type_name(x), value_type_name(y));
}

static _Noreturn void fail_zero(run *r)
{
    arena_fail(&r->arena, "a division by zero");
}

value escape_markup(run *r, value v)
{
    if (v.kind == VALUE_STRING && v.markup)
        return v;
    const text t = value_str(&r->arena, v);
    writer w = {.a = &r->arena};
    for (size_t i = 0; i < t.n; i++)
        switch (t.s[i]) {
        case '&': write_string(&w, "&amp;"); break;
        case '<': write_string(&w, "&lt;"); break;
        case '>': write_string(&w, "&gt;"); break;
        case '\'': write_string(&w, "&#39;"); break;
        case '"': write_string(&w, "&#34;"); break;
        default: write_bytes(&w, t.s + i, 1);
        }
    value out = written(&w);
    out.markup = true;
    return out;
}

value add_values(run *r, value x, value y)
{
    if (x.kind == VALUE_STRING && y.kind == VALUE_STRING) {
        const bool markup = x.markup || y.markup;
        run_step(r, 1);
        value sum = markup ? text_concat(&r->arena, escape_markup(r, x), escape_markup(r, y)) : text_concat(&r->arena, x, y);
        sum.markup = markup;
        return sum;
    }
    if (x.kind == y.kind && (x.kind == VALUE_LIST || x.kind == VALUE_TUPLE)) {
        value sum = value_sequence(&r->arena, x.kind);
        run_step(r, x.list->n + y.list->n);
        for (size_t i = 0; i < x.list->n; i++)
            list_push(&r->arena, sum.list, x.list->items[i]);
        for (size_t i = 0; i < y.list->n; i++)
            list_push(&r->arena, sum.list, y.list->items[i]);
        return sum;
    }
    return arithmetic(r, OP_ADD, x, y);
}

static value repeated(run *r, value x, int64_t times)
{
    const size_t n = x.kind == VALUE_STRING ? x.text.n : x.list->n;
    if (times < 0 || !n)
        times = 0;
    if ((uint64_t)times > RUN_MOST_MEMORY / (n + 1))
        arena_fail(&r->arena, "a value of %zu repeated %" PRId64 " times is too long", n, times);
    run_step(r, (size_t)times * (n + 1) / 16);
    writer w = {.a = &r->arena};
    value list = value_sequence(&r->arena, x.kind == VALUE_TUPLE ? VALUE_TUPLE : VALUE_LIST);
    for (int64_t k = 0; k < times; k++)
        if (x.kind == VALUE_STRING)
            write_text(&w, x.text);
        else
            for (size_t i = 0; i < n; i++)
                list_push(&r->arena, list.list, x.list->items[i]);
    return x.kind == VALUE_STRING ? written(&w) : list;
}

static int64_t floor_divided(int64_t x, int64_t y)
{
    const int64_t q = x / y;
    return q - (x % y != 0 && (x < 0) != (y < 0));
}

static int64_t power_of(run *r, int64_t x, int64_t y)
{
    int64_t out = 1;
    while (y) {
        if ((y & 1) && __builtin_mul_overflow(out, x, &out))
            arena_fail(&r->arena, "a power is beyond 64 bits");
        y >>= 1;
        if (y && __builtin_mul_overflow(x, x, &x))
            arena_fail(&r->arena, "a power is beyond 64 bits");
    }
    return out;
}

static value integers(run *r, operation op, int64_t x, int64_t y)
{
    int64_t out = 0;
    bool over = false;
    switch (op) {
    case OP_ADD: over = __builtin_add_overflow(x, y, &out); break;
    case OP_SUBTRACT: over = __builtin_sub_overflow(x, y, &out); break;
    case OP_MULTIPLY: over = __builtin_mul_overflow(x, y, &out); break;
    case OP_POWER:
        if (y < 0) {
            if (!x)
                fail_zero(r);
            return value_float(pow((double)x, (double)y));
        }
        return value_int(power_of(r, x, y));
    default:
        if (!y)
            fail_zero(r);
        if (op == OP_DIVIDE)
            return value_float((double)x / (double)y);
        if (y == -1 && x == INT64_MIN)
            over = true;
        else
            out = op == OP_MODULO ? x - floor_divided(x, y) * y : floor_divided(x, y);
    }
    if (over)
        arena_fail(&r->arena, "%" PRId64 " %s %" PRId64 " is beyond 64 bits", x, spelt[op], y);
    return value_int(out);
}

static double float_modulo(double x, double y)
{
    double m = fmod(x, y);
    if (m == 0)
        return copysign(0.0, y);
    return (y < 0) != (m < 0) ? m + y : m;
}

static value floats(run *r, operation op, double x, double y)
{
    if (y == 0 && (op == OP_DIVIDE || op == OP_FLOOR_DIVIDE || op == OP_MODULO))
        fail_zero(r);
    switch (op) {
    case OP_ADD: return value_float(x + y);
    case OP_SUBTRACT: return value_float(x - y);
    case OP_MULTIPLY: return value_float(x * y);
    case OP_DIVIDE: return value_float(x / y);
    case OP_FLOOR_DIVIDE: return value_float(floor((x - float_modulo(x, y)) / y + 0.5));
    case OP_MODULO: return value_float(float_modulo(x, y));
    default:
        if (x == 0 && y < 0)
            fail_zero(r);
        if (x < 0 && y != floor(y))
            arena_fail(&r->arena, "a power of a negative number is not real");
        return value_float(pow(x, y));
    }
}

value arithmetic(run *r, operation op, value x, value y)
{
    int64_t i, j;
    const bool x_int = value_as_int(x, &i), y_int = value_as_int(y, &j);
    if (x_int && y_int)
        return integers(r, op, i, j);
    if (value_is_number(x) && value_is_number(y))
        return floats(r, op, value_real(x), value_real(y));
    if (op == OP_MODULO && x.kind == VALUE_STRING)
        return text_format_percent(r, x.text, y);
    if (op == OP_MULTIPLY && y_int && (x.kind == VALUE_STRING || x.kind == VALUE_LIST || x.kind == VALUE_TUPLE))
        return repeated(r, x, j);
    if (op == OP_MULTIPLY && x_int && (y.kind == VALUE_STRING || y.kind == VALUE_LIST || y.kind == VALUE_TUPLE))
        return repeated(r, y, i);
    if (op == OP_ADD && x.kind == y.kind && (x.kind == VALUE_STRING || x.kind == VALUE_LIST || x.kind == VALUE_TUPLE))
        return add_values(r, x, y);
    fail_types(r, op, x, y);
}

static bool ordered(run *r, operation op, value x, value y)
{
    if (x.kind == VALUE_UNDEFINED || y.kind == VALUE_UNDEFINED)
        arena_fail(&r->arena, "an undefined value has no order");
    const int order = value_compare(&r->arena, x, y);
    switch (op) {
    case OP_LESS: return order == -1;
    case OP_LESS_EQUAL: return order <= 0;
    case OP_GREATER: return order == 1;
    default: return order == 0 || order == 1;
    }
}

bool compare(run *r, operation op, value x, value y)
{
    switch (op) {
    case OP_EQUAL: return value_equal(&r->arena, x, y);
    case OP_NOT_EQUAL: return !value_equal(&r->arena, x, y);
    case OP_IN: return value_contains(&r->arena, y, x);
    case OP_NOT_IN: return !value_contains(&r->arena, y, x);
    default: return ordered(r, op, x, y);
    }
}

/* ---- slices ---- */

static int64_t bound_or(run *r, value v, int64_t or_else)
{
    int64_t i = or_else;
    if (v.kind != VALUE_NONE && !value_as_int(v, &i))
        arena_fail(&r->arena, "a slice needs integers, not a %s", value_type_name(v));
    return i;
}

static int64_t clamped(int64_t i, int64_t n, int64_t low, int64_t high)
{
    if (i < 0)
        i = i < -n ? low : i + n;
    return i < low ? low : i > high ? high : i;
}

static value text_slice(run *r, text t, int64_t start, int64_t stop, int64_t step, int64_t n)
{
    if (step == 1) {
        if (start >= stop)
            return value_text((text){"", 0});
        const bool ascii = (size_t)n == t.n;
        const size_t first = ascii ? (size_t)start : text_offset(&r->arena, t, (size_t)start);
        const text rest = {t.s + first, t.n - first};
        return value_text((text){rest.s, ascii ? (size_t)(stop - start) : text_offset(&r->arena, rest, (size_t)(stop - start))});
    }
    const value_list *characters = value_items(&r->arena, value_text(t));
    writer w = {.a = &r->arena};
    for (int64_t i = start; step > 0 ? i < stop : i > stop; i += step)
        write_text(&w, characters->items[i].text);
    return written(&w);
}

value slice_of(run *r, value of, const value bounds[3])
{
    if (of.kind != VALUE_STRING && of.kind != VALUE_LIST && of.kind != VALUE_TUPLE && of.kind != VALUE_RANGE)
        arena_fail(&r->arena, "a %s has no slices", value_type_name(of));
    const int64_t n = (int64_t)value_length(&r->arena, of), step = bound_or(r, bounds[2], 1);
    if (!step)
        arena_fail(&r->arena, "a slice's step is zero");
    const int64_t low = step > 0 ? 0 : -1, high = step > 0 ? n : n - 1;
    const int64_t start = clamped(bound_or(r, bounds[0], step > 0 ? 0 : INT64_MAX), n, low, high);
    const int64_t stop = bounds[1].kind == VALUE_NONE ? (step > 0 ? n : -1) : clamped(bound_or(r, bounds[1], 0), n, low, high);
    const int64_t stride = step > n ? n + 1 : step < -n ? -n - 1 : step;
    run_step(r, 1);
    if (of.kind == VALUE_STRING) {
        value out = text_slice(r, of.text, start, stop, stride, n);
        out.markup = of.markup;
        return out;
    }
    value out = value_sequence(&r->arena, of.kind == VALUE_TUPLE ? VALUE_TUPLE : VALUE_LIST);
    for (int64_t i = start; stride > 0 ? i < stop : i > stop; i += stride)
        list_push(&r->arena, out.list, of.list->items[i]);
    run_step(r, out.list->n);
    return out;
}
