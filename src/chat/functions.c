/* functions.c - the global functions. */
#include "chat/run.h"

#include <string.h>

static value call_namespace(run *r, const args *x)
{
    value v = value_dictionary(&r->arena);
    if (x->n > 1 || (x->n == 1 && x->v[0].kind != VALUE_DICT))
        arena_fail(&r->arena, "namespace takes names with values, or one dict");
    for (size_t i = 0; x->n && i < x->v[0].dict->n; i++)
        dict_set(&r->arena, v.dict, x->v[0].dict->pairs[i].key, x->v[0].dict->pairs[i].value);
    for (size_t i = 0; i < x->n_named; i++)
        dict_set(&r->arena, v.dict, value_text(x->names[i]), x->v[x->n + i]);
    for (size_t i = 0; i < v.dict->n; i++)
        if (v.dict->pairs[i].key.kind == VALUE_STRING && v.dict->pairs[i].key.text.n && v.dict->pairs[i].key.text.s[0] == '_')
            arena_fail(&r->arena, "a namespace's attribute cannot begin with _");
    v.kind = VALUE_NAMESPACE;
    return v;
}

static void add_pairs(run *r, value_dict *d, value from)
{
    if (from.kind == VALUE_DICT) {
        for (size_t i = 0; i < from.dict->n; i++)
            dict_set(&r->arena, d, from.dict->pairs[i].key, from.dict->pairs[i].value);
        return;
    }
    const value_list *items = value_items(&r->arena, from);
    for (size_t i = 0; i < items->n; i++) {
        const value_list *pair = value_items(&r->arena, items->items[i]);
        if (pair->n != 2)
            arena_fail(&r->arena, "dict needs pairs, not %zu values", pair->n);
        dict_set(&r->arena, d, pair->items[0], pair->items[1]);
    }
}

static value call_dict(run *r, const args *x)
{
    value v = value_dictionary(&r->arena);
    if (x->n > 1)
        arena_fail(&r->arena, "dict takes one value by position");
    if (x->n)
        add_pairs(r, v.dict, x->v[0]);
    for (size_t i = 0; i < x->n_named; i++)
        dict_set(&r->arena, v.dict, value_text(x->names[i]), x->v[x->n + i]);
    return v;
}

static value call_range(run *r, const args *x)
{
    int64_t bounds[3] = {0, 0, 1};
    if (!x->n || x->n > 3 || x->n_named)
        arena_fail(&r->arena, "range takes one to three integers");
    for (size_t i = 0; i < x->n; i++)
        if (!value_as_int(x->v[i], &bounds[x->n == 1 ? 1 : i]))
            arena_fail(&r->arena, "range takes integers, not a %s", value_type_name(x->v[i]));
    if (!bounds[2])
        arena_fail(&r->arena, "range's step is zero");
    const __int128 distance = bounds[2] > 0 ? (__int128)bounds[1] - bounds[0] : (__int128)bounds[0] - bounds[1];
    const __int128 step = bounds[2] > 0 ? bounds[2] : -(__int128)bounds[2], n = distance <= 0 ? 0 : (distance + step - 1) / step;
    if (n > RUN_MOST_RANGE)
        arena_fail(&r->arena, "range has more than %d values", RUN_MOST_RANGE);
    run_step(r, (size_t)n / 8);
    value v = value_sequence(&r->arena, VALUE_RANGE);
    memcpy(v.list->range, bounds, sizeof bounds);
    for (int64_t i = 0; i < (int64_t)n; i++)
        list_push(&r->arena, v.list, value_int(bounds[0] + i * bounds[2]));
    return v;
}

static value call_raise(run *r, const args *x)
{
    bound b;
    args_bind(r, "raise_exception", x, "message!", &b);
    const text t = value_str(&r->arena, b.v[0]);
    arena_fail(&r->arena, "the template refuses: %.*s", t.n > 600 ? 600 : (int)t.n, t.s);
}

static value call_strftime(run *r, const args *x)
{
    char format[256], out[1024];
    struct tm now;
    bound b;
    args_bind(r, "strftime_now", x, "format!", &b);
    const text t = bound_text(r, &b, 0, "");
    if (t.n >= sizeof format)
        arena_fail(&r->arena, "strftime_now's format is too long");
    run_step(r, t.n);
    memcpy(format, t.s, t.n);
    format[t.n] = 0;
    localtime_r(&r->now, &now);
    return value_copy(&r->arena, out, t.n ? strftime(out, sizeof out, format, &now) : 0);
}

static const function functions[] = {
    {"namespace", call_namespace}, {"dict", call_dict}, {"range", call_range}, {"raise_exception", call_raise},
    {"strftime_now", call_strftime},
};

const function *function_find(text name)
{
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        if (text_is(name, functions[i].name))
            return &functions[i];
    return NULL;
}
