/* arguments.c - the arguments of calls, filters and tests, and what binds them to parameters. */
#include "chat/run.h"

#include <string.h>

static const value *named_argument(run *r, const args *x, text name)
{
    run_step(r, x->n_named / NAMES_PER_STEP);
    for (size_t i = 0; i < x->n_named; i++)
        if (text_equal(&r->arena, x->names[i], name))
            return &x->v[x->n + i];
    return NULL;
}

/* What an argument adds: itself, the items after *, or the pairs after **, as alternating names and values. */
static value argument_values(run *r, const node *n)
{
    value given = evaluate(r, n->a), all = value_sequence(&r->arena, VALUE_LIST);
    if (n->kind == NODE_ARGUMENT)
        list_push(&r->arena, all.list, given);
    else if (n->kind == NODE_SPREAD)
        all.list = value_items(&r->arena, given);
    else if (given.kind != VALUE_DICT)
        arena_fail(&r->arena, "** needs a mapping, not a %s", value_type_name(given));
    else
        for (size_t i = 0; i < given.dict->n; i++) {
            if (given.dict->pairs[i].key.kind != VALUE_STRING)
                arena_fail(&r->arena, "the names of ** must be strings, not a %s", value_type_name(given.dict->pairs[i].key));
            list_push(&r->arena, all.list, given.dict->pairs[i].key);
            list_push(&r->arena, all.list, given.dict->pairs[i].value);
        }
    return all;
}

static void add_named(run *r, args *x, value *v, text *names, text name, value given)
{
    if (named_argument(r, x, name))
        arena_fail(&r->arena, "a call has the argument %.*s twice", name.n > 200 ? 200 : (int)name.n, name.s);
    v[x->n + x->n_named] = given;
    names[x->n_named++] = name;
}

/* The arguments of a call with * or **. */
static args spread_arguments(run *r, const nodes *items)
{
    value parts = value_sequence(&r->arena, VALUE_LIST);
    size_t n = 0;
    for (size_t i = 0; i < items->n; i++) {
        list_push(&r->arena, parts.list, argument_values(r, items->v[i]));
        n += parts.list->items[i].list->n;
    }
    value *v = arena_take(&r->arena, n * sizeof *v);
    text *names = arena_take(&r->arena, n * sizeof *names);
    args x = {.v = v, .names = names};
    for (size_t i = 0; i < items->n; i++) {
        const value_list *part = parts.list->items[i].list;
        for (size_t k = 0; k < part->n && items->v[i]->kind != NODE_SPREAD_NAMED && !items->v[i]->name.n; k++)
            v[x.n++] = part->items[k];
    }
    for (size_t i = 0; i < items->n; i++) {
        const value_list *part = parts.list->items[i].list;
        if (items->v[i]->name.n)
            add_named(r, &x, v, names, items->v[i]->name, part->items[0]);
        for (size_t k = 0; k < part->n && items->v[i]->kind == NODE_SPREAD_NAMED; k += 2)
            add_named(r, &x, v, names, part->items[k].text, part->items[k + 1]);
    }
    return x;
}

args arguments_of(run *r, const nodes *items)
{
    args x = {0};
    if (!items->n)
        return x;
    for (size_t i = 0; i < items->n; i++)
        if (items->v[i]->kind != NODE_ARGUMENT)
            return spread_arguments(r, items);
    value *v = arena_take(&r->arena, items->n * sizeof *v);
    text *names = arena_take(&r->arena, items->n * sizeof *names);
    for (size_t i = 0; i < items->n; i++) {
        const node *argument = items->v[i];
        v[i] = evaluate(r, argument->a);
        if (argument->name.n)
            names[x.n_named++] = argument->name;
        else
            x.n++;
    }
    x.v = v;
    x.names = names;
    return x;
}

void args_bind(run *r, const char *what, const args *x, const char *parameters, bound *out)
{
    size_t n = 0, used = 0;
    *out = (bound){0};
    for (const char *p = parameters; *p; n++) {
        size_t length = strcspn(p, " ");
        const bool needed = p[length - 1] == '!';
        const text name = {p, length - needed};
        const value *named = named_argument(r, x, name);
        if (n < x->n || named) {
            if (n < x->n && named)
                arena_fail(&r->arena, "%s got %.*s twice", what, (int)name.n, name.s);
            out->v[n] = n < x->n ? x->v[n] : *named;
            out->given[n] = true;
            used++;
        } else if (needed)
            arena_fail(&r->arena, "%s needs %.*s", what, (int)name.n, name.s);
        p += length + (p[length] == ' ');
    }
    if (used < x->n + x->n_named)
        arena_fail(&r->arena, "%s got an argument that it does not take; it takes: %s", what, *parameters ? parameters : "none");
}

int64_t bound_int(run *r, const bound *b, size_t i, int64_t or_else)
{
    int64_t out = or_else;
    if (b->given[i] && b->v[i].kind != VALUE_NONE && !value_as_int(b->v[i], &out))
        arena_fail(&r->arena, "an integer was expected, not a %s", value_type_name(b->v[i]));
    return out;
}

bool bound_true(const bound *b, size_t i, bool or_else)
{
    return b->given[i] ? value_true(b->v[i]) : or_else;
}

text bound_text(run *r, const bound *b, size_t i, const char *or_else)
{
    if (!b->given[i] || b->v[i].kind == VALUE_NONE)
        return (text){or_else, or_else ? strlen(or_else) : 0};
    if (b->v[i].kind != VALUE_STRING)
        arena_fail(&r->arena, "a string was expected, not a %s", value_type_name(b->v[i]));
    return b->v[i].text;
}

static void bind_special(run *r, const node *n, const args *x, const bool *taken)
{
    value positions = value_sequence(&r->arena, VALUE_TUPLE), names = value_dictionary(&r->arena);
    value caller = value_undefined(TEXT("caller"));
    for (size_t i = n->params.n; i < x->n; i++)
        list_push(&r->arena, positions.list, x->v[i]);
    for (size_t i = 0; i < x->n_named; i++)
        if (!taken[i] && (n->special & MACRO_CALLER) && text_is(x->names[i], "caller"))
            caller = x->v[x->n + i];
        else if (!taken[i])
            dict_set(&r->arena, names.dict, value_text(x->names[i]), x->v[x->n + i]);
    if (positions.list->n && !(n->special & MACRO_VARARGS))
        arena_fail(&r->arena, "macro %.*s takes %zu arguments, not %zu", (int)n->name.n, n->name.s, n->params.n, x->n);
    if (names.dict->n && !(n->special & MACRO_KWARGS)) {
        const text name = names.dict->pairs[0].key.text;
        arena_fail(&r->arena, "macro %.*s does not take the argument %.*s", (int)n->name.n, n->name.s, name.n > 200 ? 200 : (int)name.n,
                   name.s);
    }
    if (n->special & MACRO_CALLER)
        scope_set(r, TEXT("caller"), caller);
    if (n->special & MACRO_VARARGS)
        scope_set(r, TEXT("varargs"), positions);
    if (n->special & MACRO_KWARGS)
        scope_set(r, TEXT("kwargs"), names);
}

void args_bind_macro(run *r, const node *n, const args *x)
{
    bool *taken = arena_take(&r->arena, x->n_named);
    memset(taken, 0, x->n_named);
    for (size_t i = 0; i < n->params.n; i++) {
        const node *parameter = n->params.v[i];
        const value *given = i < x->n ? &x->v[i] : named_argument(r, x, parameter->name);
        if (i >= x->n && given)
            taken[(size_t)(given - x->v) - x->n] = true;
        value v = given ? *given : parameter->a ? evaluate(r, parameter->a) : value_undefined(parameter->name);
        scope_set(r, parameter->name, v);
    }
    bind_special(r, n, x, taken);
}
