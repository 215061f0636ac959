/* statements.c - runs statements; the entry points of the interpreter. */
#include "base/sum.h"
#include "chat/run.h"
#include "text/buffer.h"
#include "text/utf8.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct chat_template {
    arena arena;
    char name[256];
    uint64_t sum; /* hash of the source */
    tree tree;
};

/* ---- scopes ---- */

void scope_open(run *r)
{
    scope *s = arena_take(&r->arena, sizeof *s);
    *s = (scope){.outer = r->scope};
    r->scope = s;
}

variable *scope_find(run *r, const scope *s, text name)
{
    run_step(r, s->n / NAMES_PER_STEP);
    for (size_t i = 0; i < s->n; i++)
        if (text_equal(&r->arena, s->v[i].name, name))
            return &s->v[i];
    return NULL;
}

void scope_set(run *r, text name, value v)
{
    scope *s = r->scope;
    variable *known = scope_find(r, s, name);
    if (known) {
        known->value = v;
        return;
    }
    if (s->n == s->capacity) {
        size_t capacity = s->capacity ? 2 * s->capacity : 4;
        variable *grown = arena_take(&r->arena, capacity * sizeof *grown);
        if (s->n)
            memcpy(grown, s->v, s->n * sizeof *grown);
        s->v = grown;
        s->capacity = capacity;
    }
    s->v[s->n++] = (variable){name, v};
}

/* ---- statements ---- */

static void print(run *r, text t)
{
    if (t.n > RUN_MOST_OUTPUT - r->out->n)
        arena_fail(&r->arena, "the template writes more than %d MiB", RUN_MOST_OUTPUT >> 20);
    write_text(r->out, t);
}

static void assign(run *r, const node *target, value v)
{
    if (target->kind == NODE_NAME) {
        scope_set(r, target->name, v);
        return;
    }
    if (target->kind == NODE_ATTRIBUTE) {
        value of = evaluate(r, target->a);
        if (of.kind != VALUE_NAMESPACE)
            arena_fail(&r->arena, "only a namespace's attributes can be set, not a %s's", value_type_name(of));
        if (target->name.s[0] == '_')
            arena_fail(&r->arena, "a namespace's attribute cannot begin with _");
        dict_set(&r->arena, of.dict, value_text(target->name), v);
        return;
    }
    const value_list *items = value_items(&r->arena, v);
    if (items->n != target->items.n)
        arena_fail(&r->arena, "%zu values for %zu names", items->n, target->items.n);
    for (size_t i = 0; i < items->n; i++)
        assign(r, target->items.v[i], items->items[i]);
}

/* Renders a block to text, in its own scope. */
static value block_text(run *r, const nodes *list)
{
    writer w = {.a = &r->arena}, *out = r->out;
    scope *outer = r->scope;
    const bool at_top = r->at_top;
    r->out = &w;
    r->at_top = false;
    scope_open(r);
    run_nodes(r, list);
    r->scope = outer;
    r->at_top = at_top;
    r->out = out;
    return written(&w);
}

static value filtered_block(run *r, const node *n)
{
    value hole = r->hole;
    value whole = block_text(r, &n->items);
    r->hole = whole;
    whole = evaluate(r, n->b);
    r->hole = hole;
    return whole;
}

/* The items that the loop's filter accepts. */
static value_list *kept_items(run *r, const node *n, const value_list *items)
{
    value kept = value_sequence(&r->arena, VALUE_LIST);
    scope *outer = r->scope;
    for (size_t i = 0; i < items->n; i++) {
        run_step(r, 1);
        scope_open(r);
        assign(r, n->a, items->items[i]);
        if (value_true(evaluate(r, n->c)))
            list_push(&r->arena, kept.list, items->items[i]);
        r->scope = outer;
    }
    return kept.list;
}

static flow run_for(run *r, const node *n)
{
    value_list *items = value_items(&r->arena, evaluate(r, n->b));
    scope *outer = r->scope;
    if (n->c)
        items = kept_items(r, n, items);
    value self = {.kind = VALUE_LOOP, .loop = arena_take(&r->arena, sizeof *self.loop)};
    *self.loop = (loop){.items = items};
    for (size_t i = 0; i < items->n; i++) {
        run_step(r, 1);
        self.loop->at = i;
        scope_open(r);
        scope_set(r, TEXT("loop"), self);
        assign(r, n->a, items->items[i]);
        const flow f = run_nodes(r, &n->items);
        r->scope = outer;
        if (f == FLOW_BREAK)
            break;
    }
    flow f = FLOW_ON;
    if (!items->n) {
        scope_open(r);
        f = run_nodes(r, &n->others);
        r->scope = outer;
    }
    return f;
}

static flow run_with(run *r, const node *n)
{
    scope *outer = r->scope, *inner;
    value values[16];
    if (n->params.n > 16)
        arena_fail(&r->arena, "{%% with %%} takes at most 16 names");
    for (size_t i = 0; i < n->params.n; i++) /* they do not see each other */
        values[i] = evaluate(r, n->params.v[i]->b);
    scope_open(r);
    inner = r->scope;
    for (size_t i = 0; i < n->params.n; i++)
        assign(r, n->params.v[i]->a, values[i]);
    r->scope = inner;
    const flow f = run_nodes(r, &n->items);
    r->scope = outer;
    return f;
}

/* Records the span in the output, unless the text goes to a block first. */
static void run_generation(run *r, const node *n)
{
    value whole = block_text(r, &n->items);
    const size_t first = r->out->n;
    print(r, whole.text);
    if (!r->at_top)
        return;
    if (r->spans.n == r->spans.capacity) {
        size_t capacity = r->spans.capacity ? 2 * r->spans.capacity : 8;
        chat_span *grown = arena_take(&r->arena, capacity * sizeof *grown);
        if (r->spans.n)
            memcpy(grown, r->spans.v, r->spans.n * sizeof *grown);
        r->spans.v = grown;
        r->spans.capacity = capacity;
    }
    r->spans.v[r->spans.n++] = (chat_span){first, r->out->n};
}

static flow run_node(run *r, const node *n)
{
    switch (n->kind) {
    case NODE_DATA: print(r, n->name); break;
    case NODE_PRINT: print(r, value_str(&r->arena, evaluate(r, n->a))); break;
    case NODE_IF: return run_nodes(r, value_true(evaluate(r, n->a)) ? &n->items : &n->others);
    case NODE_FOR: return run_for(r, n);
    case NODE_SET: assign(r, n->a, evaluate(r, n->b)); break;
    case NODE_SET_BLOCK: assign(r, n->a, filtered_block(r, n)); break;
    case NODE_FILTER_BLOCK: print(r, value_str(&r->arena, filtered_block(r, n))); break;
    case NODE_MACRO: scope_set(r, n->name, value_macro(r, n)); break;
    case NODE_WITH: return run_with(r, n);
    case NODE_GENERATION: run_generation(r, n); break;
    case NODE_BREAK: return FLOW_BREAK;
    case NODE_CONTINUE: return FLOW_CONTINUE;
    default: break;
    }
    return FLOW_ON;
}

flow run_nodes(run *r, const nodes *list)
{
    flow f = FLOW_ON;
    arena_enter(&r->arena);
    for (size_t i = 0; i < list->n && f == FLOW_ON; i++) {
        run_step(r, 1);
        r->arena.line = list->v[i]->line;
        f = run_node(r, list->v[i]);
    }
    r->arena.depth--;
    return f;
}

/* ---- entry points ---- */

enum { TREE_MOST_MEMORY = 64 << 20 };

static int parse_all(chat_template *t, text source)
{
    jmp_buf escape;
    t->arena.escape = &escape;
    if (setjmp(escape))
        return PT_FAILED;
    template_tree(&t->arena, source, &t->tree);
    return 0;
}

int chat_template_parse(const char *name, const char *source, size_t n, chat_template **out, pt_error *e)
{
    *out = NULL;
    if (utf8_valid_prefix(source, n) < n)
        return pt_fail(e, PT_FAILED, "%.400s: byte %zu is not UTF-8; save the template as UTF-8", name, utf8_valid_prefix(source, n));
    chat_template *t = calloc(1, sizeof *t);
    if (!t)
        return pt_fail(e, PT_FAILED, "%.400s: out of memory", name);
    snprintf(t->name, sizeof t->name, "%s", name);
    t->sum = sum_bytes(n, 0, source, n);
    t->arena = (arena){.limit = TREE_MOST_MEMORY, .name = t->name, .line = 1, .steps = ARENA_MOST_STEPS, .error = e};
    if (parse_all(t, (text){source, n})) {
        chat_template_free(t);
        return PT_FAILED;
    }
    *out = t;
    return 0;
}

void chat_template_free(chat_template *t)
{
    if (t)
        arena_free(&t->arena);
    free(t);
}

bool chat_template_marks_replies(const chat_template *t) { return t->tree.has_generation; }

uint64_t chat_template_sum(const chat_template *t) { return t->sum; }

static int take_rendering(const run *r, chat_rendering *out, pt_error *e)
{
    out->text.n = 0;
    out->steps = ARENA_MOST_STEPS - r->arena.steps;
    int failed = text_buffer_reserve(&out->text, r->out->n + 1, e);
    if (!failed)
        failed = text_buffer_append(&out->text, r->out->s, r->out->n, e);
    free(out->spans);
    out->n_spans = 0;
    out->spans = malloc((r->spans.n + 1) * sizeof *out->spans);
    if (!out->spans)
        return pt_fail(e, PT_FAILED, "out of memory");
    if (r->spans.n)
        memcpy(out->spans, r->spans.v, r->spans.n * sizeof *out->spans);
    out->n_spans = r->spans.n;
    return failed;
}

/* The function that errors return to. */
static int run_all(run *r, const chat_template *t, const json_t *variables)
{
    jmp_buf escape;
    const char *key;
    json_t *item;
    r->arena.escape = &escape;
    if (setjmp(escape))
        return PT_FAILED;
    scope_open(r);
    json_object_foreach((json_t *)variables, key, item)
        scope_set(r, (text){key, strlen(key)}, value_from_json(&r->arena, item));
    scope_open(r);
    run_nodes(r, &t->tree.body);
    return 0;
}

int chat_template_render(const chat_template *t, const json_t *variables, time_t now, chat_rendering *out, pt_error *e)
{
    run r = {.arena = {.limit = RUN_MOST_MEMORY, .name = t->name, .line = 1, .steps = ARENA_MOST_STEPS, .error = e},
             .at_top = true, .now = now};
    writer w = {.a = &r.arena};
    r.out = &w;
    int failed = run_all(&r, t, variables);
    if (!failed)
        failed = take_rendering(&r, out, e);
    arena_free(&r.arena);
    return failed;
}

void chat_rendering_free(chat_rendering *r)
{
    text_buffer_free(&r->text);
    free(r->spans);
    *r = (chat_rendering){0};
}
