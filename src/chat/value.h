/* value.h - the values of a template, with Python's rules. Values are immutable, except namespaces. */
#ifndef PT_CHAT_VALUE_H
#define PT_CHAT_VALUE_H

#include "chat/memory.h"

#include <jansson.h>
#include <stdbool.h>

typedef enum value_kind {
    VALUE_UNDEFINED, /* text: the name that was undefined */
    VALUE_NONE,
    VALUE_BOOL,
    VALUE_INT,
    VALUE_FLOAT,
    VALUE_STRING,
    VALUE_LIST,
    VALUE_TUPLE,
    VALUE_RANGE,
    VALUE_VIEW,      /* a dict's keys, values or items */
    VALUE_ITERATOR,  /* yields its items once */
    VALUE_DICT,
    VALUE_NAMESPACE,
    VALUE_LOOP,
    VALUE_MACRO,
    VALUE_FUNCTION,  /* a global: range, dict ... */
    VALUE_METHOD     /* of a string, list or dict */
} value_kind;

typedef struct text { /* UTF-8 */
    const char *s;
    size_t n;
} text;

typedef struct value {
    value_kind kind;
    bool markup; /* of a string: already escaped (filters safe and escape) */
    union {
        bool truth;
        int64_t integer;
        double real;
        text text;
        struct value_list *list; /* LIST, TUPLE, RANGE, VIEW, ITERATOR */
        struct value_dict *dict; /* DICT, NAMESPACE */
        struct loop *loop;
        struct macro *macro;
        struct method *method;
        const struct function *function;
    };
} value;

typedef struct value_list {
    value *items;
    size_t n, capacity;
    size_t at;         /* of an iterator: number of items yielded */
    int64_t range[3];  /* start, stop, step as written in the template */
    const char *label; /* of a view or an iterator: Python's repr */
} value_list;

typedef struct value_pair {
    value key, value;
} value_pair;

typedef struct value_dict { /* in the order of insertion */
    value_pair *pairs;
    size_t n, capacity;
    uint32_t *slots; /* index + 1 by hash; NULL while there are few pairs */
    size_t n_slots;
} value_dict;

typedef struct method {
    value object;
    text name;
} method;

#define TEXT(literal) ((text){literal, sizeof(literal) - 1})
bool text_is(text t, const char *s);

value value_undefined(text name);
value value_none(void);
value value_bool(bool b);
value value_int(int64_t i);
value value_float(double d);
value value_text(text t);
value value_copy(arena *a, const char *s, size_t n); /* a string */
value value_sequence(arena *a, value_kind kind);     /* an empty LIST, TUPLE, VIEW, ITERATOR or RANGE */
void list_push(arena *a, value_list *list, value item);
value value_dictionary(arena *a);
void dict_set(arena *a, value_dict *d, value key, value item);
const value *dict_get(arena *a, const value_dict *d, value key); /* NULL: not found. Fails if the key has no hash. */
value value_from_json(arena *a, const json_t *json);

bool value_true(value v);
bool value_is_sequence(value v); /* one of the kinds with `list` */
bool value_is_number(value v);   /* int, float or bool */
double value_real(value v);      /* of a number */
bool value_as_int(value v, int64_t *out); /* ints and bools */
bool value_equal(arena *a, value x, value y);
int value_compare(arena *a, value x, value y); /* fails if Python does not order them */
bool value_contains(arena *a, value container, value item);
const char *value_type_name(value v); /* Python's */

/* The items as a sequence: characters of a string, keys of a dict; an iterator is used up. Fails for values that Python does not
 * iterate. */
value_list *value_items(arena *a, value v);
size_t value_length(arena *a, value v); /* fails if there is none */

/* Python's str(), repr() and json.dumps. */
typedef struct json_style {
    bool ascii, sorted;
    bool indented;
    text indent;               /* of one level */
    text item_separator, key_separator;
} json_style;
text value_str(arena *a, value v);
value value_repr(arena *a, value v);
value value_json(arena *a, value v, const json_style *style);

/* A string that grows in the arena. */
typedef struct writer {
    arena *a;
    char *s;
    size_t n, capacity;
} writer;
void write_bytes(writer *w, const char *s, size_t n);
void write_text(writer *w, text t);
void write_string(writer *w, const char *s);
value written(const writer *w);

/* ---- characters.c ---- */

bool text_equal(arena *a, text x, text y);
size_t text_length(arena *a, text t);                        /* in characters */
size_t text_offset(arena *a, text t, size_t character);      /* in bytes */
const char *text_find(arena *a, text t, text what);          /* NULL: it is not there */
const char *text_find_last(arena *a, text t, text what);
bool is_space(uint32_t c);                                   /* str.isspace */
text text_strip(arena *a, text t, const text *characters, bool left, bool right); /* NULL: white space */
value text_concat(arena *a, value x, value y);

#endif
