/* methods.c - methods of strings, dicts, lists and tuples. */
#include "chat/run.h"
#include "text/unicode.h"
#include "text/utf8.h"

#include <string.h>

#include <utf8proc.h>

typedef value (*method_body)(run *r, value self, const bound *b);

static value empty_list(run *r) { return value_sequence(&r->arena, VALUE_LIST); }

/* ---- strings ---- */

static value stripped(run *r, value self, const bound *b, bool left, bool right)
{
    const text characters = bound_text(r, b, 0, NULL);
    value v = value_text(text_strip(&r->arena, self.text, characters.s ? &characters : NULL, left, right));
    v.markup = self.markup;
    return v;
}

static value str_strip(run *r, value self, const bound *b) { return stripped(r, self, b, true, true); }
static value str_lstrip(run *r, value self, const bound *b) { return stripped(r, self, b, true, false); }
static value str_rstrip(run *r, value self, const bound *b) { return stripped(r, self, b, false, true); }
static value str_upper(run *r, value self, const bound *b) { return text_upper(&r->arena, self.text); }
static value str_lower(run *r, value self, const bound *b) { return text_lower(&r->arena, self.text); }
static value str_capitalize(run *r, value self, const bound *b) { return text_capitalize(&r->arena, self.text); }

static bool is_cased(uint32_t c)
{
    const utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)c);
    return category == UTF8PROC_CATEGORY_LU || category == UTF8PROC_CATEGORY_LL || category == UTF8PROC_CATEGORY_LT;
}

static value str_title(run *r, value self, const bound *b)
{
    writer w = {.a = &r->arena};
    bool within = false;
    for (size_t i = 0; i < self.text.n;) {
        unsigned n;
        const uint32_t c = utf8_read(self.text.s + i, &n);
        const text one = {self.text.s + i, n};
        write_text(&w, within ? text_lower(&r->arena, one).text : text_capitalize(&r->arena, one).text);
        within = is_cased(c);
        i += n;
    }
    return written(&w);
}

static value str_swapcase(run *r, value self, const bound *b)
{
    writer w = {.a = &r->arena};
    for (size_t i = 0; i < self.text.n;) {
        unsigned n;
        const uint32_t c = utf8_read(self.text.s + i, &n);
        const text one = {self.text.s + i, n};
        const bool upper = utf8proc_category((utf8proc_int32_t)c) == UTF8PROC_CATEGORY_LU;
        write_text(&w, upper ? text_lower(&r->arena, one).text : text_upper(&r->arena, one).text);
        i += n;
    }
    return written(&w);
}

static void push_text(run *r, value list, const char *s, size_t n)
{
    list_push(&r->arena, list.list, value_text((text){s, n}));
}

/* Splits at runs of white space; the rest after `most` pieces keeps its white space. */
static value split_space(run *r, text t, int64_t most)
{
    value out = empty_list(r);
    run_step(r, t.n / STEP_SEARCHES);
    t = text_strip(&r->arena, t, NULL, true, false);
    while (t.n) {
        size_t end = 0;
        unsigned n;
        if (most >= 0 && (int64_t)out.list->n == most) {
            push_text(r, out, t.s, t.n);
            break;
        }
        while (end < t.n && !is_space(utf8_read(t.s + end, &n)))
            end += n;
        push_text(r, out, t.s, end);
        t = text_strip(&r->arena, (text){t.s + end, t.n - end}, NULL, true, false);
    }
    return out;
}

static text separator(run *r, const bound *b)
{
    const text by = bound_text(r, b, 0, NULL);
    if (by.s && !by.n)
        arena_fail(&r->arena, "an empty separator");
    return by;
}

static value str_split(run *r, value self, const bound *b)
{
    const text by = separator(r, b);
    const int64_t most = bound_int(r, b, 1, -1);
    text t = self.text;
    if (!by.s)
        return split_space(r, t, most);
    value out = empty_list(r);
    for (const char *found; (most < 0 || (int64_t)out.list->n < most) && (found = text_find(&r->arena, t, by));) {
        push_text(r, out, t.s, (size_t)(found - t.s));
        t = (text){found + by.n, t.n - (size_t)(found - t.s) - by.n};
    }
    push_text(r, out, t.s, t.n);
    return out;
}

static void reverse(value_list *list)
{
    for (size_t i = 0; i < list->n / 2; i++) {
        const value v = list->items[i];
        list->items[i] = list->items[list->n - 1 - i];
        list->items[list->n - 1 - i] = v;
    }
}

static value rsplit_space(run *r, text t, int64_t most)
{
    value out = empty_list(r);
    run_step(r, t.n / STEP_SEARCHES);
    t = text_strip(&r->arena, t, NULL, false, true);
    while (t.n) {
        size_t start = t.n;
        if (most >= 0 && (int64_t)out.list->n == most) {
            push_text(r, out, t.s, t.n);
            break;
        }
        while (start) {
            unsigned n;
            if (is_space(unicode_last(t.s, start, &n)))
                break;
            start -= n;
        }
        push_text(r, out, t.s + start, t.n - start);
        t = text_strip(&r->arena, (text){t.s, start}, NULL, false, true);
    }
    reverse(out.list);
    return out;
}

static value str_rsplit(run *r, value self, const bound *b)
{
    const text by = separator(r, b);
    const int64_t most = bound_int(r, b, 1, -1);
    text t = self.text;
    if (!by.s)
        return rsplit_space(r, t, most);
    value out = empty_list(r);
    for (const char *found; (most < 0 || (int64_t)out.list->n < most) && (found = text_find_last(&r->arena, t, by));) {
        push_text(r, out, found + by.n, t.n - (size_t)(found - t.s) - by.n);
        t.n = (size_t)(found - t.s);
    }
    push_text(r, out, t.s, t.n);
    reverse(out.list);
    return out;
}

static value str_splitlines(run *r, value self, const bound *b) { return text_lines(r, self.text, bound_true(b, 0, false)); }

static bool affix(run *r, text t, text what, bool end)
{
    return t.n >= what.n && text_equal(&r->arena, (text){end ? t.s + t.n - what.n : t.s, what.n}, what);
}

static value has_affix(run *r, value self, const bound *b, bool end)
{
    if (b->v[0].kind != VALUE_TUPLE)
        return value_bool(affix(r, self.text, bound_text(r, b, 0, ""), end));
    for (size_t i = 0; i < b->v[0].list->n; i++) {
        const value one = b->v[0].list->items[i];
        run_step(r, 1);
        if (one.kind == VALUE_STRING && affix(r, self.text, one.text, end))
            return value_bool(true);
    }
    return value_bool(false);
}

static value str_startswith(run *r, value self, const bound *b)
{
    if (b->v[0].kind != VALUE_STRING && b->v[0].kind != VALUE_TUPLE)
        arena_fail(&r->arena, "startswith needs a string, not a %s", value_type_name(b->v[0]));
    return has_affix(r, self, b, false);
}

static value str_endswith(run *r, value self, const bound *b)
{
    if (b->v[0].kind != VALUE_STRING && b->v[0].kind != VALUE_TUPLE)
        arena_fail(&r->arena, "endswith needs a string, not a %s", value_type_name(b->v[0]));
    return has_affix(r, self, b, true);
}

static text needed_text(run *r, const bound *b, size_t i)
{
    if (b->v[i].kind != VALUE_STRING)
        arena_fail(&r->arena, "a string was expected, not a %s", value_type_name(b->v[i]));
    return b->v[i].text;
}

static value str_replace(run *r, value self, const bound *b)
{
    return text_replace(r, self.text, needed_text(r, b, 0), needed_text(r, b, 1), bound_int(r, b, 2, -1));
}

static value found_at(run *r, value self, const bound *b, bool last, bool must)
{
    const text what = needed_text(r, b, 0);
    const char *found = (last ? text_find_last : text_find)(&r->arena, self.text, what);
    if (!found && must)
        arena_fail(&r->arena, "a substring is not there");
    return value_int(found ? (int64_t)text_length(&r->arena, (text){self.text.s, (size_t)(found - self.text.s)}) : -1);
}

static value str_find(run *r, value self, const bound *b) { return found_at(r, self, b, false, false); }
static value str_rfind(run *r, value self, const bound *b) { return found_at(r, self, b, true, false); }
static value str_index(run *r, value self, const bound *b) { return found_at(r, self, b, false, true); }
static value str_rindex(run *r, value self, const bound *b) { return found_at(r, self, b, true, true); }

static value str_count(run *r, value self, const bound *b)
{
    const text what = needed_text(r, b, 0);
    text t = self.text;
    int64_t n = 0;
    if (!what.n)
        return value_int((int64_t)text_length(&r->arena, t) + 1);
    for (const char *found; (found = text_find(&r->arena, t, what)); n++)
        t = (text){found + what.n, t.n - (size_t)(found - t.s) - what.n};
    return value_int(n);
}

static value str_join(run *r, value self, const bound *b)
{
    const value_list *items = value_items(&r->arena, b->v[0]);
    writer w = {.a = &r->arena};
    for (size_t i = 0; i < items->n; i++) {
        if (items->items[i].kind != VALUE_STRING)
            arena_fail(&r->arena, "join needs strings, not a %s", value_type_name(items->items[i]));
        if (i)
            write_text(&w, self.text);
        write_text(&w, items->items[i].text);
    }
    run_step(r, 1 + w.n / 64);
    return written(&w);
}

static value str_removeprefix(run *r, value self, const bound *b)
{
    const text what = needed_text(r, b, 0);
    const bool there = affix(r, self.text, what, false);
    return value_text(there ? (text){self.text.s + what.n, self.text.n - what.n} : self.text);
}

static value str_removesuffix(run *r, value self, const bound *b)
{
    const text what = needed_text(r, b, 0);
    return value_text((text){self.text.s, self.text.n - (affix(r, self.text, what, true) ? what.n : 0)});
}

static value partition(run *r, value self, const bound *b, bool last)
{
    const text what = needed_text(r, b, 0), t = self.text;
    value out = value_sequence(&r->arena, VALUE_TUPLE);
    if (!what.n)
        arena_fail(&r->arena, "an empty separator");
    const char *found = (last ? text_find_last : text_find)(&r->arena, t, what);
    const size_t at = found ? (size_t)(found - t.s) : last ? 0 : t.n, length = found ? what.n : 0;
    push_text(r, out, t.s, at);
    push_text(r, out, t.s + at, length);
    push_text(r, out, t.s + at + length, t.n - at - length);
    return out;
}

static value str_partition(run *r, value self, const bound *b) { return partition(r, self, b, false); }
static value str_rpartition(run *r, value self, const bound *b) { return partition(r, self, b, true); }

static value justified(run *r, value self, const bound *b, int where)
{
    const text fill = bound_text(r, b, 1, " ");
    if (text_length(&r->arena, fill) != 1)
        arena_fail(&r->arena, "the fill must be one character");
    return text_center(r, self.text, bound_int(r, b, 0, 0), fill, where);
}

static value str_ljust(run *r, value self, const bound *b) { return justified(r, self, b, -1); }
static value str_rjust(run *r, value self, const bound *b) { return justified(r, self, b, 1); }
static value str_center(run *r, value self, const bound *b) { return justified(r, self, b, 0); }

static value str_zfill(run *r, value self, const bound *b)
{
    const int64_t width = bound_int(r, b, 0, 0);
    const bool sign = self.text.n && (self.text.s[0] == '-' || self.text.s[0] == '+');
    const text digits = {self.text.s + sign, self.text.n - sign};
    value padded = text_center(r, digits, width - sign, TEXT("0"), 1);
    return sign ? text_concat(&r->arena, value_copy(&r->arena, self.text.s, 1), padded) : padded;
}

static bool all_characters(run *r, text t, bool (*is)(uint32_t c))
{
    run_step(r, t.n / STEP_SEARCHES);
    for (size_t i = 0; i < t.n;) {
        unsigned n;
        if (!is(utf8_read(t.s + i, &n)))
            return false;
        i += n;
    }
    return t.n > 0;
}

static bool is_decimal(uint32_t c) { return utf8proc_category((utf8proc_int32_t)c) == UTF8PROC_CATEGORY_ND; }
static bool is_alnum(uint32_t c) { return unicode_is_letter(c) || unicode_is_number(c); }
static bool is_ascii(uint32_t c) { return c < 0x80; }
static value str_isdigit(run *r, value self, const bound *b) { return value_bool(all_characters(r, self.text, is_decimal)); }
static value str_isnumeric(run *r, value self, const bound *b) { return value_bool(all_characters(r, self.text, unicode_is_number)); }
static value str_isalpha(run *r, value self, const bound *b) { return value_bool(all_characters(r, self.text, unicode_is_letter)); }
static value str_isalnum(run *r, value self, const bound *b) { return value_bool(all_characters(r, self.text, is_alnum)); }
static value str_isspace(run *r, value self, const bound *b) { return value_bool(all_characters(r, self.text, is_space)); }
static value str_isascii(run *r, value self, const bound *b) { return value_bool(!self.text.n || all_characters(r, self.text, is_ascii)); }

static value str_islower(run *r, value self, const bound *b)
{
    const args none = {0};
    return value_bool(test_apply(r, TEXT("lower"), self, &none));
}

static value str_isupper(run *r, value self, const bound *b)
{
    const args none = {0};
    return value_bool(test_apply(r, TEXT("upper"), self, &none));
}

/* ---- dicts ---- */

static value view(run *r, value self, const char *label, bool keys, bool values)
{
    value v = value_sequence(&r->arena, VALUE_VIEW);
    v.list->label = label;
    run_step(r, 1 + self.dict->n / 4);
    for (size_t i = 0; i < self.dict->n; i++) {
        const value_pair *pair = &self.dict->pairs[i];
        if (keys && values) {
            value both = value_sequence(&r->arena, VALUE_TUPLE);
            list_push(&r->arena, both.list, pair->key);
            list_push(&r->arena, both.list, pair->value);
            list_push(&r->arena, v.list, both);
        } else
            list_push(&r->arena, v.list, keys ? pair->key : pair->value);
    }
    return v;
}

static value dict_items_view(run *r, value self, const bound *b) { return view(r, self, "dict_items", true, true); }
static value dict_keys_view(run *r, value self, const bound *b) { return view(r, self, "dict_keys", true, false); }
static value dict_values_view(run *r, value self, const bound *b) { return view(r, self, "dict_values", false, true); }
static value same(run *r, value self, const bound *b) { return self; } /* values are immutable */

static value dict_get_or(run *r, value self, const bound *b)
{
    const value *item = dict_get(&r->arena, self.dict, b->v[0]);
    return item ? *item : b->given[1] ? b->v[1] : value_none();
}

/* ---- lists and tuples ---- */

static value list_index(run *r, value self, const bound *b)
{
    for (size_t i = 0; i < self.list->n; i++)
        if (value_equal(&r->arena, self.list->items[i], b->v[0]))
            return value_int((int64_t)i);
    arena_fail(&r->arena, "a value is not in the list");
}

static value list_count(run *r, value self, const bound *b)
{
    int64_t n = 0;
    for (size_t i = 0; i < self.list->n; i++)
        n += value_equal(&r->arena, self.list->items[i], b->v[0]);
    return value_int(n);
}

/* ---- by name ---- */

typedef struct method_row {
    const char *name;
    method_body body;
    const char *parameters;
} method_row;

static const method_row of_str[] = {
    {"strip", str_strip, "chars"}, {"lstrip", str_lstrip, "chars"}, {"rstrip", str_rstrip, "chars"}, {"split", str_split, "sep maxsplit"},
    {"rsplit", str_rsplit, "sep maxsplit"}, {"splitlines", str_splitlines, "keepends"}, {"startswith", str_startswith, "prefix!"},
    {"endswith", str_endswith, "suffix!"}, {"replace", str_replace, "old! new! count"}, {"upper", str_upper, ""}, {"lower", str_lower, ""},
    {"casefold", str_lower, ""}, {"title", str_title, ""}, {"capitalize", str_capitalize, ""}, {"swapcase", str_swapcase, ""},
    {"find", str_find, "sub!"}, {"rfind", str_rfind, "sub!"}, {"index", str_index, "sub!"}, {"rindex", str_rindex, "sub!"},
    {"count", str_count, "sub!"}, {"join", str_join, "iterable!"}, {"removeprefix", str_removeprefix, "prefix!"},
    {"removesuffix", str_removesuffix, "suffix!"}, {"partition", str_partition, "sep!"}, {"rpartition", str_rpartition, "sep!"},
    {"ljust", str_ljust, "width! fillchar"}, {"rjust", str_rjust, "width! fillchar"}, {"center", str_center, "width! fillchar"},
    {"zfill", str_zfill, "width!"}, {"isdigit", str_isdigit, ""}, {"isdecimal", str_isdigit, ""}, {"isnumeric", str_isnumeric, ""},
    {"isalpha", str_isalpha, ""}, {"isalnum", str_isalnum, ""}, {"isspace", str_isspace, ""}, {"isascii", str_isascii, ""},
    {"islower", str_islower, ""}, {"isupper", str_isupper, ""}, {NULL, NULL, NULL}};
static const method_row of_dict[] = {
    {"get", dict_get_or, "key! default"}, {"items", dict_items_view, ""}, {"keys", dict_keys_view, ""}, {"values", dict_values_view, ""},
    {"copy", same, ""}, {NULL, NULL, NULL}};
static const method_row of_list[] = {
    {"index", list_index, "value!"}, {"count", list_count, "value!"}, {"copy", same, ""}, {NULL, NULL, NULL}};
static const method_row of_tuple[] = {{"index", list_index, "value!"}, {"count", list_count, "value!"}, {NULL, NULL, NULL}};

static const method_row *row_of(value of, text name)
{
    const method_row *row = of.kind == VALUE_STRING ? of_str : of.kind == VALUE_DICT ? of_dict : of.kind == VALUE_LIST ? of_list :
                            of.kind == VALUE_TUPLE || of.kind == VALUE_RANGE ? of_tuple : NULL;
    while (row && row->name && !text_is(name, row->name))
        row++;
    return row && row->name ? row : NULL;
}

bool method_exists(value of, text name) { return row_of(of, name) != NULL; }

bool method_changes(value of, text name)
{
    static const char *const list[] = {"append", "extend", "insert", "pop", "remove", "reverse", "sort", "clear", NULL};
    static const char *const dict[] = {"update", "pop", "popitem", "setdefault", "clear", NULL};
    const char *const *names = of.kind == VALUE_LIST ? list : of.kind == VALUE_DICT ? dict : NULL;
    for (; names && *names; names++)
        if (text_is(name, *names))
            return true;
    return false;
}

value method_call(run *r, const method *m, const args *x)
{
    const method_row *row = row_of(m->object, m->name);
    bound b;
    run_step(r, 1);
    args_bind(r, row->name, x, row->parameters, &b);
    return row->body(r, m->object, &b);
}
