/* run.h - the state of a rendering, and the parts of the interpreter. */
#ifndef PT_CHAT_RUN_H
#define PT_CHAT_RUN_H

#include "chat/syntax.h"
#include "chat/template.h"

typedef struct variable {
    text name;
    value value;
} variable;

typedef struct scope {
    struct scope *outer;
    variable *v;
    size_t n, capacity;
} scope;

typedef struct macro {
    const node *node;
    scope *scope; /* scope of its definition */
} macro;

typedef struct loop { /* the variable `loop` */
    value_list *items;
    size_t at;
    value changed; /* last arguments of loop.changed */
    bool has_changed;
} loop;

typedef struct span_list {
    chat_span *v;
    size_t n, capacity;
} span_list;

typedef struct run {
    arena arena;
    scope *scope;
    writer *out;      /* destination of text: the output, or a block's own */
    value hole;       /* NODE_HOLE */
    bool at_top;      /* `out` is the output */
    span_list spans;
    time_t now;
} run;

enum { NAMES_PER_STEP = 16 }; /* comparisons of short names */
enum { RUN_MOST_MEMORY = 256 << 20, RUN_MOST_OUTPUT = 16 << 20, RUN_MOST_RANGE = 100000 };

typedef enum flow { FLOW_ON, FLOW_BREAK, FLOW_CONTINUE } flow;

static inline void run_step(run *r, size_t n) { arena_step(&r->arena, n); }

/* ---- statements.c ---- */
flow run_nodes(run *r, const nodes *list);
void scope_open(run *r);
void scope_set(run *r, text name, value v);
variable *scope_find(run *r, const scope *s, text name); /* NULL: it is not in this scope */

/* ---- arguments.c ---- */

/* Arguments of a call, filter or test. */
typedef struct args {
    const value *v;
    size_t n;
    const text *names; /* names of the n_named after the first n */
    size_t n_named;
} args;

enum { MOST_PARAMETERS = 6 };
typedef struct bound { /* arguments, bound to parameters */
    value v[MOST_PARAMETERS];
    bool given[MOST_PARAMETERS];
} bound;

args arguments_of(run *r, const nodes *items);
/* `parameters`: names separated by blanks; "!" at the end of a name: required. */
void args_bind(run *r, const char *what, const args *x, const char *parameters, bound *out);
/* In the macro's own scope: a default sees the parameters before it. */
void args_bind_macro(run *r, const node *macro, const args *x);
int64_t bound_int(run *r, const bound *b, size_t i, int64_t or_else);
bool bound_true(const bound *b, size_t i, bool or_else);
text bound_text(run *r, const bound *b, size_t i, const char *or_else);

/* ---- expressions.c ---- */
value evaluate(run *r, const node *n);
value value_macro(run *r, const node *n); /* in the current scope */

value get_item(run *r, value of, value key);       /* of[key] */
value get_attribute(run *r, value of, text name);  /* of.name */
value get_path(run *r, value of, value path);      /* "a.b.0" or a number, as in map(attribute=...) */
value call_value(run *r, value callee, const args *x);
value add_values(run *r, value x, value y);
value escape_markup(run *r, value v);              /* escapes HTML; markup is unchanged */

/* ---- operators.c ---- */
value arithmetic(run *r, operation op, value x, value y);
bool compare(run *r, operation op, value x, value y);
value slice_of(run *r, value of, const value bounds[3]);

/* ---- the others ---- */
value filter_apply(run *r, text name, value in, const args *x);
bool filter_exists(text name);
bool test_apply(run *r, text name, value in, const args *x);
bool test_exists(text name);
bool method_exists(value of, text name);
bool method_changes(value of, text name); /* names of the object, forbidden by the sandbox */
value method_call(run *r, const method *m, const args *x);

typedef struct function {
    const char *name;
    value (*call)(run *r, const args *x);
} function;
const function *function_find(text name);

/* Whole strings. */
value text_upper(arena *a, text t);
value text_lower(arena *a, text t);
value text_capitalize(arena *a, text t);
value text_center(run *r, text t, int64_t width, text fill, int where); /* where: -1 left, 0 centered, 1 right */
value text_replace(run *r, text t, text old, text with, int64_t most);
value text_lines(run *r, text t, bool keep); /* splitlines */
value text_format_percent(run *r, text format, value args);

/* Sorts by a key of each item, stably. */
value sorted_by(run *r, const value_list *items, const value *keys, bool reverse);

#endif
