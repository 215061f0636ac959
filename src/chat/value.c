/* value.c - creates, compares and iterates values. */
#include "chat/value.h"
#include "text/utf8.h"

#include <math.h>
#include <string.h>

bool text_is(text t, const char *s)
{
    for (size_t i = 0; i < t.n; i++)
        if (!s[i] || s[i] != t.s[i])
            return false;
    return !s[t.n];
}

value value_undefined(text name) { return (value){.kind = VALUE_UNDEFINED, .text = name}; }
value value_none(void) { return (value){.kind = VALUE_NONE}; }
value value_bool(bool b) { return (value){.kind = VALUE_BOOL, .truth = b}; }
value value_int(int64_t i) { return (value){.kind = VALUE_INT, .integer = i}; }
value value_float(double d) { return (value){.kind = VALUE_FLOAT, .real = d}; }
value value_text(text t) { return (value){.kind = VALUE_STRING, .text = t}; }

value value_copy(arena *a, const char *s, size_t n)
{
    char *copy = arena_take(a, n);
    if (n)
        memcpy(copy, s, n);
    return value_text((text){copy, n});
}

value value_sequence(arena *a, value_kind kind)
{
    value v = {.kind = kind, .list = arena_take(a, sizeof *v.list)};
    *v.list = (value_list){0};
    return v;
}

void list_push(arena *a, value_list *list, value item)
{
    if (list->n == list->capacity) {
        size_t capacity = list->capacity ? 2 * list->capacity : 4;
        value *items = arena_take(a, capacity * sizeof *items);
        if (list->n)
            memcpy(items, list->items, list->n * sizeof *items);
        list->items = items;
        list->capacity = capacity;
    }
    list->items[list->n++] = item;
}

/* ---- dicts ---- */

static uint64_t mix(uint64_t h, const void *bytes, size_t n)
{
    const unsigned char *p = bytes;
    for (size_t i = 0; i < n; i++)
        h = (h ^ p[i]) * 0x100000001b3u;
    return h ^ h >> 29;
}

/* Equal values have equal hashes, also 1, 1.0 and true. */
static uint64_t hash(arena *a, value v)
{
    double real;
    uint64_t h = 0xcbf29ce484222325u;
    arena_step(a, 1 + (v.kind == VALUE_STRING ? v.text.n / STEP_COUNTS : 0));
    switch (v.kind) {
    case VALUE_UNDEFINED: return 1;
    case VALUE_NONE: return 2;
    case VALUE_STRING: return mix(h, v.text.s, v.text.n);
    case VALUE_BOOL:
    case VALUE_INT:
    case VALUE_FLOAT:
        real = value_real(v) + 0.0;
        return mix(h, &real, sizeof real);
    case VALUE_TUPLE:
        arena_enter(a);
        for (size_t i = 0; i < v.list->n; i++) {
            uint64_t item = hash(a, v.list->items[i]);
            h = mix(h, &item, sizeof item);
        }
        a->depth--;
        return h;
    case VALUE_LIST:
    case VALUE_DICT:
    case VALUE_VIEW: arena_fail(a, "a %s cannot be a key: it has no hash", value_type_name(v));
    default: return mix(h, &v.list, sizeof v.list);
    }
}

value value_dictionary(arena *a)
{
    value v = {.kind = VALUE_DICT, .dict = arena_take(a, sizeof *v.dict)};
    *v.dict = (value_dict){0};
    return v;
}

enum { FEW_PAIRS = 8 };

static size_t free_slot(arena *a, const value_dict *d, value key)
{
    size_t at = hash(a, key) & (d->n_slots - 1);
    for (; d->slots[at]; at = (at + 1) & (d->n_slots - 1))
        arena_step(a, 1);
    return at;
}

static void dict_index(arena *a, value_dict *d)
{
    d->n_slots = 4 * d->capacity;
    d->slots = arena_take(a, d->n_slots * sizeof *d->slots);
    memset(d->slots, 0, d->n_slots * sizeof *d->slots);
    for (size_t i = 0; i < d->n; i++)
        d->slots[free_slot(a, d, d->pairs[i].key)] = (uint32_t)i + 1;
}

static value_pair *dict_pair(arena *a, const value_dict *d, value key)
{
    uint64_t h = key.kind == VALUE_STRING && !d->slots ? 0 : hash(a, key);
    if (!d->slots) {
        for (size_t i = 0; i < d->n; i++)
            if (value_equal(a, d->pairs[i].key, key))
                return &d->pairs[i];
        return NULL;
    }
    for (size_t at = h & (d->n_slots - 1); d->slots[at]; at = (at + 1) & (d->n_slots - 1))
        if (value_equal(a, d->pairs[d->slots[at] - 1].key, key))
            return &d->pairs[d->slots[at] - 1];
    return NULL;
}

void dict_set(arena *a, value_dict *d, value key, value item)
{
    value_pair *pair = dict_pair(a, d, key);
    if (pair) {
        pair->value = item;
        return;
    }
    if (d->n == d->capacity) {
        size_t capacity = d->capacity ? 2 * d->capacity : FEW_PAIRS;
        value_pair *pairs = arena_take(a, capacity * sizeof *pairs);
        if (d->n)
            memcpy(pairs, d->pairs, d->n * sizeof *pairs);
        d->pairs = pairs;
        d->capacity = capacity;
        if (capacity > FEW_PAIRS)
            dict_index(a, d);
    }
    d->pairs[d->n++] = (value_pair){key, item};
    if (d->slots)
        d->slots[free_slot(a, d, key)] = (uint32_t)d->n;
}

const value *dict_get(arena *a, const value_dict *d, value key)
{
    value_pair *pair = dict_pair(a, d, key);
    return pair ? &pair->value : NULL;
}

value value_from_json(arena *a, const json_t *json)
{
    value v;
    switch (json_typeof(json)) {
    case JSON_NULL: return value_none();
    case JSON_TRUE: return value_bool(true);
    case JSON_FALSE: return value_bool(false);
    case JSON_INTEGER: return value_int(json_integer_value(json));
    case JSON_REAL: return value_float(json_real_value(json));
    case JSON_STRING: return value_copy(a, json_string_value(json), json_string_length(json));
    case JSON_ARRAY:
        v = value_sequence(a, VALUE_LIST);
        arena_enter(a);
        for (size_t i = 0; i < json_array_size(json); i++)
            list_push(a, v.list, value_from_json(a, json_array_get(json, i)));
        break;
    default:
        v = value_dictionary(a);
        arena_enter(a);
        for (void *at = json_object_iter((json_t *)json); at; at = json_object_iter_next((json_t *)json, at)) {
            const char *key = json_object_iter_key(at);
            dict_set(a, v.dict, value_copy(a, key, strlen(key)), value_from_json(a, json_object_iter_value(at)));
        }
    }
    a->depth--;
    return v;
}

/* ---- kinds ---- */

bool value_is_sequence(value v) { return v.kind >= VALUE_LIST && v.kind <= VALUE_ITERATOR; }
bool value_is_number(value v) { return v.kind >= VALUE_BOOL && v.kind <= VALUE_FLOAT; }

double value_real(value v)
{
    return v.kind == VALUE_FLOAT ? v.real : v.kind == VALUE_INT ? (double)v.integer : v.truth;
}

bool value_as_int(value v, int64_t *out)
{
    if (v.kind != VALUE_INT && v.kind != VALUE_BOOL)
        return false;
    *out = v.kind == VALUE_INT ? v.integer : v.truth;
    return true;
}

bool value_true(value v)
{
    switch (v.kind) {
    case VALUE_UNDEFINED:
    case VALUE_NONE: return false;
    case VALUE_BOOL: return v.truth;
    case VALUE_INT: return v.integer != 0;
    case VALUE_FLOAT: return v.real != 0;
    case VALUE_STRING: return v.text.n > 0;
    case VALUE_DICT: return v.dict->n > 0;
    case VALUE_LIST:
    case VALUE_TUPLE:
    case VALUE_RANGE:
    case VALUE_VIEW: return v.list->n > 0;
    default: return true;
    }
}

const char *value_type_name(value v)
{
    static const char *const names[] = {
        [VALUE_UNDEFINED] = "Undefined", [VALUE_NONE] = "NoneType", [VALUE_BOOL] = "bool", [VALUE_INT] = "int",
        [VALUE_FLOAT] = "float", [VALUE_STRING] = "str", [VALUE_LIST] = "list", [VALUE_TUPLE] = "tuple", [VALUE_RANGE] = "range",
        [VALUE_VIEW] = "dict view", [VALUE_ITERATOR] = "iterator", [VALUE_DICT] = "dict", [VALUE_NAMESPACE] = "namespace",
        [VALUE_LOOP] = "loop", [VALUE_MACRO] = "macro", [VALUE_FUNCTION] = "function", [VALUE_METHOD] = "method"};
    return names[v.kind];
}

/* ---- comparing ---- */

static bool lists_equal(arena *a, const value_list *x, const value_list *y)
{
    bool equal = x->n == y->n;
    arena_enter(a);
    for (size_t i = 0; equal && i < x->n; i++)
        equal = value_equal(a, x->items[i], y->items[i]);
    a->depth--;
    return equal;
}

static bool dicts_equal(arena *a, const value_dict *x, const value_dict *y)
{
    bool equal = x->n == y->n;
    arena_enter(a);
    for (size_t i = 0; equal && i < x->n; i++) {
        const value *other = dict_get(a, y, x->pairs[i].key);
        equal = other && value_equal(a, x->pairs[i].value, *other);
    }
    a->depth--;
    return equal;
}

bool value_equal(arena *a, value x, value y)
{
    arena_step(a, 1);
    if (value_is_number(x) && value_is_number(y)) {
        int64_t i, j;
        return value_as_int(x, &i) && value_as_int(y, &j) ? i == j : value_real(x) == value_real(y);
    }
    if (x.kind != y.kind)
        return false;
    switch (x.kind) {
    case VALUE_UNDEFINED:
    case VALUE_NONE: return true;
    case VALUE_STRING: return text_equal(a, x.text, y.text);
    case VALUE_LIST:
    case VALUE_TUPLE:
    case VALUE_RANGE: return x.list == y.list || lists_equal(a, x.list, y.list);
    case VALUE_DICT: return x.dict == y.dict || dicts_equal(a, x.dict, y.dict);
    case VALUE_METHOD: return x.method == y.method;
    default: return x.list == y.list;
    }
}

int value_compare(arena *a, value x, value y)
{
    arena_step(a, 1);
    if (value_is_number(x) && value_is_number(y)) {
        int64_t i, j;
        if (value_as_int(x, &i) && value_as_int(y, &j))
            return (i > j) - (i < j);
        double p = value_real(x), q = value_real(y);
        return isnan(p) || isnan(q) ? 2 : (p > q) - (p < q); /* 2: neither */
    }
    if (x.kind == VALUE_STRING && y.kind == VALUE_STRING) { /* UTF-8 bytes have the order of the code points */
        size_t n = x.text.n < y.text.n ? x.text.n : y.text.n;
        arena_step(a, n / STEP_COMPARES);
        int order = n ? memcmp(x.text.s, y.text.s, n) : 0;
        return order ? (order > 0) - (order < 0) : (x.text.n > y.text.n) - (x.text.n < y.text.n);
    }
    if (x.kind == y.kind && (x.kind == VALUE_LIST || x.kind == VALUE_TUPLE)) {
        for (size_t i = 0; i < x.list->n && i < y.list->n; i++)
            if (!value_equal(a, x.list->items[i], y.list->items[i])) {
                arena_enter(a);
                int order = value_compare(a, x.list->items[i], y.list->items[i]);
                a->depth--;
                return order;
            }
        return (x.list->n > y.list->n) - (x.list->n < y.list->n);
    }
    arena_fail(a, "a %s and a %s have no order", value_type_name(x), value_type_name(y));
}

bool value_contains(arena *a, value container, value item)
{
    if (container.kind == VALUE_STRING) {
        if (item.kind != VALUE_STRING)
            arena_fail(a, "'in' a string needs a string on its left, not a %s", value_type_name(item));
        return text_find(a, container.text, item.text) != NULL;
    }
    if (container.kind == VALUE_DICT)
        return dict_get(a, container.dict, item) != NULL;
    if (container.kind == VALUE_ITERATOR) {
        value_list *list = container.list;
        while (list->at < list->n)
            if (value_equal(a, list->items[list->at++], item))
                return true;
        return false;
    }
    const value_list *items = value_items(a, container);
    for (size_t i = 0; i < items->n; i++)
        if (value_equal(a, items->items[i], item))
            return true;
    return false;
}

/* ---- iterating ---- */

value_list *value_items(arena *a, value v)
{
    value out;
    switch (v.kind) {
    case VALUE_LIST:
    case VALUE_TUPLE:
    case VALUE_RANGE:
    case VALUE_VIEW: return v.list;
    case VALUE_ITERATOR:
        out = value_sequence(a, VALUE_LIST);
        if (v.list->at < v.list->n)
            *out.list = (value_list){.items = v.list->items + v.list->at, .n = v.list->n - v.list->at};
        out.list->capacity = out.list->n;
        v.list->at = v.list->n;
        return out.list;
    case VALUE_UNDEFINED: return value_sequence(a, VALUE_LIST).list;
    case VALUE_DICT:
        out = value_sequence(a, VALUE_LIST);
        for (size_t i = 0; i < v.dict->n; i++)
            list_push(a, out.list, v.dict->pairs[i].key);
        return out.list;
    case VALUE_STRING:
        out = value_sequence(a, VALUE_LIST);
        for (size_t i = 0; i < v.text.n;) {
            unsigned n;
            utf8_read(v.text.s + i, &n);
            list_push(a, out.list, value_text((text){v.text.s + i, n}));
            i += n;
        }
        return out.list;
    default: arena_fail(a, "a %s cannot be iterated", value_type_name(v));
    }
}

size_t value_length(arena *a, value v)
{
    switch (v.kind) {
    case VALUE_UNDEFINED: return 0;
    case VALUE_STRING: return text_length(a, v.text);
    case VALUE_DICT: return v.dict->n;
    case VALUE_LIST:
    case VALUE_TUPLE:
    case VALUE_RANGE:
    case VALUE_VIEW: return v.list->n;
    default: arena_fail(a, "a %s has no length", value_type_name(v));
    }
}
