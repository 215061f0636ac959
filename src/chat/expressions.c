/* expressions.c - evaluates expressions: names, attributes, calls. */
#include "chat/run.h"
#include "text/utf8.h"

#include <string.h>

/* ---- names ---- */

static value look_up(run *r, text name)
{
    for (const scope *s = r->scope; s; s = s->outer) {
        const variable *v = scope_find(r, s, name);
        if (v)
            return v->value;
    }
    const function *f = function_find(name);
    return f ? (value){.kind = VALUE_FUNCTION, .function = f} : value_undefined(name);
}

static _Noreturn void fail_undefined(run *r, value v)
{
    arena_fail(&r->arena, "%.*s is undefined", v.text.n > 200 ? 200 : (int)v.text.n, v.text.s);
}

/* ---- attributes and items ---- */

static value bound_method(run *r, value of, text name)
{
    value v = {.kind = VALUE_METHOD, .method = arena_take(&r->arena, sizeof *v.method)};
    *v.method = (method){of, name};
    return v;
}

static bool loop_attribute(const loop *l, text name, value *out)
{
    const int64_t at = (int64_t)l->at, n = (int64_t)l->items->n;
    if (text_is(name, "index"))
        *out = value_int(at + 1);
    else if (text_is(name, "index0"))
        *out = value_int(at);
    else if (text_is(name, "revindex"))
        *out = value_int(n - at);
    else if (text_is(name, "revindex0"))
        *out = value_int(n - at - 1);
    else if (text_is(name, "first"))
        *out = value_bool(at == 0);
    else if (text_is(name, "last"))
        *out = value_bool(at == n - 1);
    else if (text_is(name, "length"))
        *out = value_int(n);
    else if (text_is(name, "depth"))
        *out = value_int(1); /* only recursive loops are nested */
    else if (text_is(name, "depth0"))
        *out = value_int(0);
    else if (text_is(name, "previtem"))
        *out = at ? l->items->items[at - 1] : value_undefined(TEXT("there is no previous item"));
    else if (text_is(name, "nextitem"))
        *out = at + 1 < n ? l->items->items[at + 1] : value_undefined(TEXT("there is no next item"));
    else
        return false;
    return true;
}

/* As Python's getattr. */
static bool python_attribute(run *r, value of, text name, value *out)
{
    if (of.kind == VALUE_NAMESPACE) {
        const value *item = dict_get(&r->arena, of.dict, value_text(name));
        if (item)
            *out = *item;
        return item != NULL;
    }
    if (of.kind == VALUE_LOOP) {
        if (loop_attribute(of.loop, name, out))
            return true;
        if (!text_is(name, "cycle") && !text_is(name, "changed"))
            return false;
        *out = bound_method(r, of, name);
        return true;
    }
    if (of.kind == VALUE_MACRO && text_is(name, "name")) {
        *out = value_text(of.macro->node->name);
        return true;
    }
    if (method_changes(of, name)) {
        *out = value_undefined(name);
        return true;
    }
    if (!method_exists(of, name))
        return false;
    *out = bound_method(r, of, name);
    return true;
}

static bool sequence_item(run *r, value of, value key, value *out)
{
    int64_t at;
    if (!value_as_int(key, &at))
        return false;
    const int64_t n = (int64_t)value_length(&r->arena, of);
    if (at < 0)
        at += n;
    if (at < 0 || at >= n)
        return false;
    if (of.kind == VALUE_STRING) {
        const size_t start = text_offset(&r->arena, of.text, (size_t)at);
        unsigned length;
        utf8_read(of.text.s + start, &length);
        *out = value_text((text){of.text.s + start, length});
    } else
        *out = of.list->items[at];
    return true;
}

/* As Python's of[key]; false: there is no such item. */
static bool python_item(run *r, value of, value key, value *out)
{
    const value *item = NULL;
    switch (of.kind) {
    case VALUE_DICT:
        if (key.kind == VALUE_LIST || key.kind == VALUE_DICT)
            return false;
        item = dict_get(&r->arena, of.dict, key);
        if (item)
            *out = *item;
        return item != NULL;
    case VALUE_STRING:
    case VALUE_LIST:
    case VALUE_TUPLE:
    case VALUE_RANGE: return sequence_item(r, of, key, out);
    default: return false;
    }
}

static value missing(run *r, value of, text name)
{
    writer w = {.a = &r->arena};
    write_text(&w, name);
    write_string(&w, " of a ");
    write_string(&w, value_type_name(of));
    return value_undefined(written(&w).text);
}

value get_attribute(run *r, value of, text name)
{
    value out;
    if (of.kind == VALUE_UNDEFINED)
        fail_undefined(r, of);
    if (python_attribute(r, of, name, &out) || python_item(r, of, value_text(name), &out))
        return out;
    return missing(r, of, name);
}

value get_item(run *r, value of, value key)
{
    value out;
    if (of.kind == VALUE_UNDEFINED)
        fail_undefined(r, of);
    if (python_item(r, of, key, &out) || (key.kind == VALUE_STRING && python_attribute(r, of, key.text, &out)))
        return out;
    return missing(r, of, value_str(&r->arena, key));
}

value get_path(run *r, value of, value path)
{
    if (path.kind != VALUE_STRING)
        return get_item(r, of, path);
    text left = path.text;
    for (;;) {
        run_step(r, 1);
        const char *dot = left.n ? memchr(left.s, '.', left.n) : NULL;
        text part = {left.s, dot ? (size_t)(dot - left.s) : left.n};
        int64_t number = 0;
        bool digits = part.n > 0 && part.n < 10;
        for (size_t i = 0; i < part.n && digits; i++) {
            digits = part.s[i] >= '0' && part.s[i] <= '9';
            number = number * 10 + (part.s[i] - '0');
        }
        of = get_item(r, of, digits ? value_int(number) : value_text(part));
        if (!dot)
            return of;
        left = (text){dot + 1, left.n - part.n - 1};
    }
}

/* ---- calls ---- */

value value_macro(run *r, const node *n)
{
    value v = {.kind = VALUE_MACRO, .macro = arena_take(&r->arena, sizeof *v.macro)};
    *v.macro = (macro){n, r->scope};
    return v;
}

static value call_macro(run *r, const macro *m, const args *x)
{
    scope *caller = r->scope;
    writer w = {.a = &r->arena}, *out = r->out;
    const bool at_top = r->at_top;
    const int line = r->arena.line;
    run_step(r, 1);
    r->scope = m->scope;
    scope_open(r);
    args_bind_macro(r, m->node, x);
    r->out = &w;
    r->at_top = false;
    run_nodes(r, &m->node->items);
    r->at_top = at_top;
    r->out = out;
    r->scope = caller;
    r->arena.line = line;
    return written(&w);
}

static value call_loop(run *r, loop *l, text name, const args *x)
{
    if (text_is(name, "cycle")) {
        if (!x->n)
            arena_fail(&r->arena, "loop.cycle needs values");
        return x->v[l->at % x->n];
    }
    value now = value_sequence(&r->arena, VALUE_TUPLE);
    for (size_t i = 0; i < x->n; i++)
        list_push(&r->arena, now.list, x->v[i]);
    const bool changed = !l->has_changed || !value_equal(&r->arena, l->changed, now);
    l->changed = now;
    l->has_changed = true;
    return value_bool(changed);
}

value call_value(run *r, value callee, const args *x)
{
    switch (callee.kind) {
    case VALUE_FUNCTION: return callee.function->call(r, x);
    case VALUE_MACRO: return call_macro(r, callee.macro, x);
    case VALUE_METHOD:
        if (callee.method->object.kind == VALUE_LOOP)
            return call_loop(r, callee.method->object.loop, callee.method->name, x);
        return method_call(r, callee.method, x);
    case VALUE_UNDEFINED: fail_undefined(r, callee);
    default: arena_fail(&r->arena, "a %s cannot be called", value_type_name(callee));
    }
}

/* ---- all expressions ---- */

static value evaluate_items(run *r, const node *n, value_kind kind)
{
    value v = value_sequence(&r->arena, kind);
    for (size_t i = 0; i < n->items.n; i++)
        list_push(&r->arena, v.list, evaluate(r, n->items.v[i]));
    return v;
}

static value evaluate_dict(run *r, const node *n)
{
    value v = value_dictionary(&r->arena);
    for (size_t i = 0; i < n->items.n; i += 2) {
        value key = evaluate(r, n->items.v[i]);
        dict_set(&r->arena, v.dict, key, evaluate(r, n->items.v[i + 1]));
    }
    return v;
}

static value evaluate_slice(run *r, const node *n)
{
    value of = evaluate(r, n->a), bounds[3];
    const node *parts[3] = {n->b, n->c, n->d};
    for (int i = 0; i < 3; i++)
        bounds[i] = parts[i] ? evaluate(r, parts[i]) : value_none();
    if (of.kind == VALUE_UNDEFINED)
        fail_undefined(r, of);
    return slice_of(r, of, bounds);
}

static value concatenated(run *r, const node *n)
{
    value parts = evaluate_items(r, n, VALUE_LIST), all = value_text((text){"", 0});
    for (size_t i = 0; i < parts.list->n; i++) {
        all = text_concat(&r->arena, all, value_text(value_str(&r->arena, parts.list->items[i])));
        all.markup = false;
    }
    return all;
}

static value compared(run *r, const node *n)
{
    value left = evaluate(r, n->a);
    for (size_t i = 0; i < n->items.n; i++) {
        value right = evaluate(r, n->items.v[i]->a);
        if (!compare(r, n->items.v[i]->op, left, right))
            return value_bool(false);
        left = right;
    }
    return value_bool(true);
}

static value signed_number(run *r, value v, bool negative)
{
    int64_t i;
    if (v.kind == VALUE_FLOAT)
        return value_float(negative ? -v.real : v.real);
    if (!value_as_int(v, &i) || (negative && i == INT64_MIN))
        arena_fail(&r->arena, "a %s has no sign", value_type_name(v));
    return value_int(negative ? -i : i);
}

static value evaluate_kind(run *r, const node *n)
{
    value v;
    args x;
    switch (n->kind) {
    case NODE_CONSTANT: return n->constant;
    case NODE_NAME: return look_up(r, n->name);
    case NODE_LIST: return evaluate_items(r, n, VALUE_LIST);
    case NODE_TUPLE: return evaluate_items(r, n, VALUE_TUPLE);
    case NODE_DICT: return evaluate_dict(r, n);
    case NODE_ATTRIBUTE: return get_attribute(r, evaluate(r, n->a), n->name);
    case NODE_ITEM:
        v = evaluate(r, n->a);
        return get_item(r, v, evaluate(r, n->b));
    case NODE_SLICE: return evaluate_slice(r, n);
    case NODE_CALL:
        v = evaluate(r, n->a);
        x = arguments_of(r, &n->items);
        return call_value(r, v, &x);
    case NODE_FILTER:
        v = evaluate(r, n->a);
        x = arguments_of(r, &n->items);
        return filter_apply(r, n->name, v, &x);
    case NODE_TEST:
        v = evaluate(r, n->a);
        x = arguments_of(r, &n->items);
        return value_bool(test_apply(r, n->name, v, &x));
    case NODE_NEGATIVE: return signed_number(r, evaluate(r, n->a), true);
    case NODE_POSITIVE: return signed_number(r, evaluate(r, n->a), false);
    case NODE_NOT: return value_bool(!value_true(evaluate(r, n->a)));
    case NODE_AND:
        v = evaluate(r, n->a);
        return value_true(v) ? evaluate(r, n->b) : v;
    case NODE_OR:
        v = evaluate(r, n->a);
        return value_true(v) ? v : evaluate(r, n->b);
    case NODE_ARITHMETIC:
        v = evaluate(r, n->a);
        return arithmetic(r, n->op, v, evaluate(r, n->b));
    case NODE_CONCAT: return concatenated(r, n);
    case NODE_COMPARE: return compared(r, n);
    case NODE_IF_ELSE:
        if (value_true(evaluate(r, n->a)))
            return evaluate(r, n->b);
        return n->c ? evaluate(r, n->c) : value_undefined(TEXT("the value of an if without else"));
    case NODE_HOLE: return r->hole;
    case NODE_MACRO: return value_macro(r, n);
    default: return value_none();
    }
}

value evaluate(run *r, const node *n)
{
    arena_enter(&r->arena);
    run_step(r, 1);
    r->arena.line = n->line;
    value v = evaluate_kind(r, n);
    r->arena.line = n->line;
    r->arena.depth--;
    return v;
}
