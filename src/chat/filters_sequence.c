/* filters_sequence.c - filters over sequences. */
#include "chat/filters.h"
#include "text/utf8.h"

#include <string.h>

static value filter_length(run *r, value in, const bound *b) { return value_int((int64_t)value_length(&r->arena, in)); }

static value filter_list(run *r, value in, const bound *b)
{
    value out = value_sequence(&r->arena, VALUE_LIST);
    const value_list *items = value_items(&r->arena, in);
    run_step(r, items->n / 4);
    for (size_t i = 0; i < items->n; i++)
        list_push(&r->arena, out.list, items->items[i]);
    return out;
}

static value filter_first(run *r, value in, const bound *b)
{
    if (in.kind == VALUE_ITERATOR)
        return in.list->at < in.list->n ? in.list->items[in.list->at++] : value_undefined(TEXT("the first item of nothing"));
    if (in.kind == VALUE_STRING && in.text.n) {
        unsigned n;
        utf8_read(in.text.s, &n);
        return value_text((text){in.text.s, n});
    }
    const value_list *items = value_items(&r->arena, in);
    return items->n ? items->items[0] : value_undefined(TEXT("the first item of nothing"));
}

static value filter_last(run *r, value in, const bound *b)
{
    if (in.kind == VALUE_ITERATOR || in.kind == VALUE_UNDEFINED)
        arena_fail(&r->arena, "last needs a sequence, not %s", value_type_name(in));
    const value_list *items = value_items(&r->arena, in);
    return items->n ? items->items[items->n - 1] : value_undefined(TEXT("the last item of nothing"));
}

static value filter_reverse(run *r, value in, const bound *b)
{
    if (in.kind == VALUE_ITERATOR)
        in = filter_list(r, in, b);
    if (in.kind == VALUE_UNDEFINED)
        arena_fail(&r->arena, "reverse of an undefined value");
    const value_list *items = value_items(&r->arena, in);
    writer w = {.a = &r->arena};
    value out = value_sequence(&r->arena, VALUE_ITERATOR);
    run_step(r, items->n);
    for (size_t i = items->n; i-- > 0;)
        if (in.kind == VALUE_STRING)
            write_text(&w, items->items[i].text);
        else
            list_push(&r->arena, out.list, items->items[i]);
    return in.kind == VALUE_STRING ? written(&w) : out;
}

static value filter_join(run *r, value in, const bound *b)
{
    const value_list *items = value_items(&r->arena, in);
    const text by = b->given[0] ? value_str(&r->arena, b->v[0]) : (text){"", 0};
    writer w = {.a = &r->arena};
    for (size_t i = 0; i < items->n; i++) {
        run_step(r, 1);
        value item = items->items[i];
        if (b->given[1] && b->v[1].kind != VALUE_NONE)
            item = get_path(r, item, b->v[1]);
        if (i)
            write_text(&w, by);
        write_text(&w, value_str(&r->arena, item));
    }
    return written(&w);
}

/* ---- ordered ---- */

static value folded(run *r, value v)
{
    return v.kind == VALUE_STRING ? text_lower(&r->arena, v.text) : v;
}

static value key_of(run *r, value item, const bound *b, size_t attribute, bool sensitive)
{
    if (b->given[attribute] && b->v[attribute].kind != VALUE_NONE)
        item = get_path(r, item, b->v[attribute]);
    return sensitive ? item : folded(r, item);
}

/* The key of several attributes, "a,b", is a tuple. */
static value sort_key(run *r, value item, value attribute, bool sensitive)
{
    if (attribute.kind != VALUE_STRING || !memchr(attribute.text.s, ',', attribute.text.n)) {
        if (attribute.kind != VALUE_NONE)
            item = get_path(r, item, attribute);
        return sensitive ? item : folded(r, item);
    }
    value key = value_sequence(&r->arena, VALUE_LIST);
    text left = attribute.text;
    for (;;) {
        const char *comma = left.n ? memchr(left.s, ',', left.n) : NULL;
        value part = get_path(r, item, value_text((text){left.s, comma ? (size_t)(comma - left.s) : left.n}));
        list_push(&r->arena, key.list, sensitive ? part : folded(r, part));
        if (!comma)
            return key;
        left = (text){comma + 1, left.n - (size_t)(comma - left.s) - 1};
    }
}

/* Sorts the indices [from, to) by their keys; `spare` has the same length. */
static void merge_sort(run *r, size_t *index, size_t *spare, const value *keys, size_t from, size_t to, bool reverse)
{
    if (to - from < 2)
        return;
    const size_t middle = from + (to - from) / 2;
    merge_sort(r, index, spare, keys, from, middle, reverse);
    merge_sort(r, index, spare, keys, middle, to, reverse);
    size_t a = from, b = middle;
    for (size_t i = from; i < to; i++) {
        bool right = a == middle;
        run_step(r, 1);
        if (a < middle && b < to) {
            const int order = value_compare(&r->arena, keys[index[b]], keys[index[a]]);
            right = reverse ? order == 1 : order == -1;
        }
        spare[i] = right ? index[b++] : index[a++];
    }
    memcpy(index + from, spare + from, (to - from) * sizeof *index);
}

value sorted_by(run *r, const value_list *items, const value *keys, bool reverse)
{
    value out = value_sequence(&r->arena, VALUE_LIST);
    size_t *index = arena_take(&r->arena, (2 * items->n + 1) * sizeof *index);
    for (size_t i = 0; i < items->n; i++)
        index[i] = i;
    merge_sort(r, index, index + items->n, keys, 0, items->n, reverse);
    for (size_t i = 0; i < items->n; i++)
        list_push(&r->arena, out.list, items->items[index[i]]);
    return out;
}

static value filter_sort(run *r, value in, const bound *b)
{
    const value_list *items = value_items(&r->arena, in);
    value *keys = arena_take(&r->arena, (items->n + 1) * sizeof *keys);
    for (size_t i = 0; i < items->n; i++)
        keys[i] = sort_key(r, items->items[i], b->given[2] ? b->v[2] : value_none(), bound_true(b, 1, false));
    return sorted_by(r, items, keys, bound_true(b, 0, false));
}

static value filter_dictsort(run *r, value in, const bound *b)
{
    const args none = {0};
    if (in.kind != VALUE_DICT)
        arena_fail(&r->arena, "dictsort needs a mapping, not a %s", value_type_name(in));
    const value_list *items = value_items(&r->arena, filter_apply(r, TEXT("items"), in, &none));
    const text by = bound_text(r, b, 1, "key");
    if (!text_is(by, "key") && !text_is(by, "value"))
        arena_fail(&r->arena, "dictsort: by must be key or value");
    value *keys = arena_take(&r->arena, (items->n + 1) * sizeof *keys);
    for (size_t i = 0; i < items->n; i++) {
        const value key = items->items[i].list->items[text_is(by, "value")];
        keys[i] = bound_true(b, 0, false) ? key : folded(r, key);
    }
    return sorted_by(r, items, keys, bound_true(b, 2, false));
}

static value extreme(run *r, value in, const bound *b, int wanted)
{
    const value_list *items = value_items(&r->arena, in);
    if (!items->n)
        return value_undefined(TEXT("the extreme of nothing"));
    size_t best = 0;
    value best_key = key_of(r, items->items[0], b, 1, bound_true(b, 0, false));
    for (size_t i = 1; i < items->n; i++) {
        run_step(r, 1);
        value key = key_of(r, items->items[i], b, 1, bound_true(b, 0, false));
        if (value_compare(&r->arena, key, best_key) == wanted) {
            best = i;
            best_key = key;
        }
    }
    return items->items[best];
}

static value filter_min(run *r, value in, const bound *b) { return extreme(r, in, b, -1); }
static value filter_max(run *r, value in, const bound *b) { return extreme(r, in, b, 1); }

static value filter_unique(run *r, value in, const bound *b)
{
    const value_list *items = value_items(&r->arena, in);
    value seen = value_dictionary(&r->arena), out = value_sequence(&r->arena, VALUE_ITERATOR);
    for (size_t i = 0; i < items->n; i++) {
        run_step(r, 1);
        value key = key_of(r, items->items[i], b, 1, bound_true(b, 0, false));
        if (dict_get(&r->arena, seen.dict, key))
            continue;
        dict_set(&r->arena, seen.dict, key, value_none());
        list_push(&r->arena, out.list, items->items[i]);
    }
    return out;
}

static value filter_sum(run *r, value in, const bound *b)
{
    const value_list *items = value_items(&r->arena, in);
    value sum = b->given[1] ? b->v[1] : value_int(0);
    if (sum.kind == VALUE_STRING)
        arena_fail(&r->arena, "sum does not take strings; use join");
    for (size_t i = 0; i < items->n; i++) {
        run_step(r, 1);
        const value item = b->given[0] && b->v[0].kind != VALUE_NONE ? get_path(r, items->items[i], b->v[0]) : items->items[i];
        sum = arithmetic(r, OP_ADD, sum, item);
    }
    return sum;
}

/* ---- in pieces ---- */

static value filter_batch(run *r, value in, const bound *b)
{
    const value_list *items = value_items(&r->arena, in);
    const int64_t n = bound_int(r, b, 0, 0);
    value out = value_sequence(&r->arena, VALUE_ITERATOR), row = {0};
    if (n < 1 || n > RUN_MOST_RANGE)
        arena_fail(&r->arena, "batch needs a count from 1 to %d", RUN_MOST_RANGE);
    for (size_t i = 0; i < items->n; i++) {
        if (i % (size_t)n == 0) {
            row = value_sequence(&r->arena, VALUE_LIST);
            list_push(&r->arena, out.list, row);
        }
        list_push(&r->arena, row.list, items->items[i]);
    }
    while (items->n && b->given[1] && b->v[1].kind != VALUE_NONE && row.list->n < (size_t)n)
        list_push(&r->arena, row.list, b->v[1]);
    return out;
}

static value filter_slice(run *r, value in, const bound *b)
{
    const value_list *items = value_items(&r->arena, in);
    const int64_t slices = bound_int(r, b, 0, 0);
    value out = value_sequence(&r->arena, VALUE_ITERATOR);
    if (slices < 1 || slices > RUN_MOST_RANGE)
        arena_fail(&r->arena, "slice needs a count from 1 to %d", RUN_MOST_RANGE);
    const size_t each = items->n / (size_t)slices, longer = items->n % (size_t)slices;
    size_t at = 0;
    for (size_t k = 0; k < (size_t)slices; k++) {
        value row = value_sequence(&r->arena, VALUE_LIST);
        for (size_t end = at + each + (k < longer); at < end; at++)
            list_push(&r->arena, row.list, items->items[at]);
        if (b->given[1] && b->v[1].kind != VALUE_NONE && k >= longer)
            list_push(&r->arena, row.list, b->v[1]);
        list_push(&r->arena, out.list, row);
    }
    return out;
}

/* ---- map, select, reject ---- */

static args rest_of(const args *x, size_t n)
{
    return n ? (args){x->v + n, x->n - n, x->names, x->n_named} : *x;
}

static text name_argument(run *r, const args *x, size_t i, const char *what)
{
    if (x->v[i].kind != VALUE_STRING)
        arena_fail(&r->arena, "%s needs a name, not a %s", what, value_type_name(x->v[i]));
    return x->v[i].text;
}

static value filter_map(run *r, value in, const args *x)
{
    const value_list *items = value_items(&r->arena, in);
    value out = value_sequence(&r->arena, VALUE_ITERATOR);
    bound b = {0};
    if (!x->n) {
        args_bind(r, "map", x, "attribute! default", &b); /* given by name only */
        for (size_t i = 0; i < items->n; i++) {
            run_step(r, 1);
            value v = get_path(r, items->items[i], b.v[0]);
            list_push(&r->arena, out.list, v.kind == VALUE_UNDEFINED && b.given[1] ? b.v[1] : v);
        }
        return out;
    }
    const text name = name_argument(r, x, 0, "map");
    const args rest = rest_of(x, 1);
    for (size_t i = 0; i < items->n; i++) {
        run_step(r, 1);
        list_push(&r->arena, out.list, filter_apply(r, name, items->items[i], &rest));
    }
    return out;
}

static value selected(run *r, value in, const args *x, bool by_attribute, bool keep)
{
    const value_list *items = value_items(&r->arena, in);
    value out = value_sequence(&r->arena, VALUE_ITERATOR);
    if (by_attribute && !x->n)
        arena_fail(&r->arena, "selectattr and rejectattr need an attribute");
    const bool tested = x->n > (size_t)by_attribute;
    const text name = tested ? name_argument(r, x, by_attribute, "a test") : (text){0};
    const args rest = rest_of(x, by_attribute + (size_t)tested);
    for (size_t i = 0; i < items->n; i++) {
        run_step(r, 1);
        value v = by_attribute ? get_path(r, items->items[i], x->v[0]) : items->items[i];
        if ((tested ? test_apply(r, name, v, &rest) : value_true(v)) == keep)
            list_push(&r->arena, out.list, items->items[i]);
    }
    return out;
}

static value filter_select(run *r, value in, const args *x) { return selected(r, in, x, false, true); }
static value filter_reject(run *r, value in, const args *x) { return selected(r, in, x, false, false); }
static value filter_selectattr(run *r, value in, const args *x) { return selected(r, in, x, true, true); }
static value filter_rejectattr(run *r, value in, const args *x) { return selected(r, in, x, true, false); }

const filter_row sequence_filters[] = {
    {"length", filter_length, NULL, ""}, {"count", filter_length, NULL, ""}, {"list", filter_list, NULL, ""},
    {"first", filter_first, NULL, ""}, {"last", filter_last, NULL, ""}, {"reverse", filter_reverse, NULL, ""},
    {"join", filter_join, NULL, "d attribute"}, {"sort", filter_sort, NULL, "reverse case_sensitive attribute"},
    {"dictsort", filter_dictsort, NULL, "case_sensitive by reverse"}, {"min", filter_min, NULL, "case_sensitive attribute"},
    {"max", filter_max, NULL, "case_sensitive attribute"}, {"unique", filter_unique, NULL, "case_sensitive attribute"},
    {"sum", filter_sum, NULL, "attribute start"}, {"batch", filter_batch, NULL, "linecount! fill_with"},
    {"slice", filter_slice, NULL, "slices! fill_with"}, {"map", NULL, filter_map, NULL}, {"select", NULL, filter_select, NULL},
    {"reject", NULL, filter_reject, NULL}, {"selectattr", NULL, filter_selectattr, NULL}, {"rejectattr", NULL, filter_rejectattr, NULL},
    {NULL, NULL, NULL, NULL}};
