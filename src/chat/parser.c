/* parser.c - tokens to a tree, with Jinja's grammar and precedences. */
#include "chat/syntax.h"

#include <string.h>

typedef struct parser {
    arena *a;
    const token *at;
    int loops; /* around what is parsed, within a macro */
    bool has_generation;
} parser;

static node *expression(parser *p);
static node *unary(parser *p, bool filters);
static node *disjunction(parser *p);
static void statements(parser *p, const char *const *ends, nodes *out);

static node *make(parser *p, node_kind kind)
{
    node *n = arena_take(p->a, sizeof *n);
    *n = (node){.kind = kind, .line = p->at->line};
    return n;
}

static void push(parser *p, nodes *list, node *n)
{
    if (list->n == list->capacity) {
        size_t capacity = list->capacity ? 2 * list->capacity : 4;
        node **v = arena_take(p->a, capacity * sizeof *v);
        if (list->n)
            memcpy(v, list->v, list->n * sizeof *v);
        list->v = v;
        list->capacity = capacity;
    }
    list->v[list->n++] = n;
}

static void next(parser *p)
{
    if (p->at->kind != TOKEN_END)
        p->at++;
    p->a->line = p->at->line;
}

static bool is_operator(const parser *p, const char *s) { return p->at->kind == TOKEN_OPERATOR && text_is(p->at->text, s); }
static bool is_name(const parser *p, const char *s) { return p->at->kind == TOKEN_NAME && text_is(p->at->text, s); }

static bool skip_operator(parser *p, const char *s)
{
    const bool there = is_operator(p, s);
    if (there)
        next(p);
    return there;
}

static bool skip_name(parser *p, const char *s)
{
    const bool there = is_name(p, s);
    if (there)
        next(p);
    return there;
}

static void expect_operator(parser *p, const char *s)
{
    if (!skip_operator(p, s))
        arena_fail(p->a, "%s was expected, not %.*s", s, (int)p->at->text.n, p->at->text.s);
}

static text expect_name(parser *p)
{
    if (p->at->kind != TOKEN_NAME)
        arena_fail(p->a, "a name was expected, not %.*s", (int)p->at->text.n, p->at->text.s);
    text name = p->at->text;
    next(p);
    return name;
}

/* ---- expressions ---- */

static bool ends_tuple(const parser *p)
{
    return p->at->kind == TOKEN_PRINT_END || p->at->kind == TOKEN_BLOCK_END || is_operator(p, ")") || is_operator(p, "=") ||
           is_name(p, "in") || is_name(p, "recursive");
}

/* "a, b": a tuple; "a" alone: itself. `item` reads one. */
static node *tuple(parser *p, node *(*item)(parser *p), bool in_parentheses)
{
    node *t = make(p, NODE_TUPLE);
    bool comma = false;
    while (!ends_tuple(p)) {
        push(p, &t->items, item(p));
        if (!(comma = skip_operator(p, ",")))
            break;
    }
    if (t->items.n == 1 && !comma)
        return t->items.v[0];
    if (!t->items.n && !in_parentheses)
        arena_fail(p->a, "an expression was expected, not %.*s", (int)p->at->text.n, p->at->text.s);
    return t;
}

static node *list_or_dict(parser *p, node_kind kind, const char *close)
{
    node *l = make(p, kind);
    next(p);
    while (!is_operator(p, close)) {
        if (l->items.n)
            expect_operator(p, ",");
        if (is_operator(p, close))
            break;
        push(p, &l->items, expression(p));
        if (kind == NODE_DICT) {
            expect_operator(p, ":");
            push(p, &l->items, expression(p));
        }
    }
    expect_operator(p, close);
    return l;
}

static bool constant_name(text name, value *out)
{
    if (text_is(name, "true") || text_is(name, "True"))
        *out = value_bool(true);
    else if (text_is(name, "false") || text_is(name, "False"))
        *out = value_bool(false);
    else if (text_is(name, "none") || text_is(name, "None"))
        *out = value_none();
    else
        return false;
    return true;
}

static node *primary(parser *p)
{
    node *n = make(p, NODE_CONSTANT);
    switch (p->at->kind) {
    case TOKEN_NAME:
        if (!constant_name(p->at->text, &n->constant)) {
            n->kind = NODE_NAME;
            n->name = p->at->text;
        }
        next(p);
        return n;
    case TOKEN_NUMBER:
        n->constant = p->at->number;
        next(p);
        return n;
    case TOKEN_STRING:
        n->constant = value_text((text){"", 0});
        for (; p->at->kind == TOKEN_STRING; next(p)) /* literals side by side are one */
            n->constant = text_concat(p->a, n->constant, value_text(p->at->text));
        return n;
    default: break;
    }
    if (is_operator(p, "["))
        return list_or_dict(p, NODE_LIST, "]");
    if (is_operator(p, "{"))
        return list_or_dict(p, NODE_DICT, "}");
    if (!skip_operator(p, "("))
        arena_fail(p->a, "an expression was expected, not %.*s", (int)p->at->text.n, p->at->text.s);
    n = tuple(p, expression, true);
    expect_operator(p, ")");
    return n;
}

static void arguments(parser *p, nodes *out)
{
    bool named = false;
    expect_operator(p, "(");
    while (!is_operator(p, ")")) {
        if (out->n)
            expect_operator(p, ",");
        if (is_operator(p, ")"))
            break;
        if (is_operator(p, "*") || is_operator(p, "**"))
            arena_fail(p->a, "arguments by * and ** are not supported");
        node *argument = make(p, NODE_ARGUMENT);
        if (p->at->kind == TOKEN_NAME && p->at[1].kind == TOKEN_OPERATOR && text_is(p->at[1].text, "=")) {
            argument->name = expect_name(p);
            next(p);
            named = true;
        } else if (named)
            arena_fail(p->a, "an argument by position stands behind one by name");
        argument->a = expression(p);
        push(p, out, argument);
    }
    expect_operator(p, ")");
}

static node *slice_or_item(parser *p)
{
    node *slice = make(p, NODE_SLICE), **parts[] = {&slice->b, &slice->c, &slice->d};
    size_t part = 0;
    bool is_slice = false;
    while (!is_operator(p, "]") && !is_operator(p, ",")) {
        if (skip_operator(p, ":")) {
            is_slice = true;
            if (++part > 2)
                arena_fail(p->a, "a slice has at most three parts");
        } else if (*parts[part])
            arena_fail(p->a, "] was expected, not %.*s", (int)p->at->text.n, p->at->text.s);
        else
            *parts[part] = expression(p);
    }
    if (!is_slice && !slice->b)
        slice->b = make(p, NODE_TUPLE); /* as Python has x[()] */
    return is_slice ? slice : slice->b;
}

static node *subscript(parser *p, node *of)
{
    node *n = make(p, NODE_ITEM);
    n->a = of;
    if (skip_operator(p, ".")) {
        if (p->at->kind == TOKEN_NUMBER) {
            n->b = make(p, NODE_CONSTANT);
            n->b->constant = p->at->number;
            next(p);
            return n;
        }
        n->kind = NODE_ATTRIBUTE;
        n->name = expect_name(p);
        return n;
    }
    expect_operator(p, "[");
    node *index = slice_or_item(p);
    if (is_operator(p, ","))
        arena_fail(p->a, "several indices in one pair of brackets are not supported");
    expect_operator(p, "]");
    if (index->kind == NODE_SLICE && !index->a) {
        index->a = of;
        return index;
    }
    n->b = index;
    return n;
}

static node *postfix(parser *p, node *n)
{
    for (;;)
        if (is_operator(p, ".") || is_operator(p, "["))
            n = subscript(p, n);
        else if (is_operator(p, "(")) {
            node *call = make(p, NODE_CALL);
            call->a = n;
            arguments(p, &call->items);
            n = call;
        } else
            return n;
}

static node *filter(parser *p, node *of)
{
    node *f = make(p, NODE_FILTER);
    f->a = of;
    f->name = expect_name(p);
    if (is_operator(p, "("))
        arguments(p, &f->items);
    return f;
}

static bool begins_argument(const parser *p)
{
    if (p->at->kind == TOKEN_NAME)
        return !is_name(p, "else") && !is_name(p, "or") && !is_name(p, "and");
    return p->at->kind == TOKEN_STRING || p->at->kind == TOKEN_NUMBER || is_operator(p, "[") || is_operator(p, "{");
}

static node *test(parser *p, node *of)
{
    const bool negated = skip_name(p, "not");
    node *t = make(p, NODE_TEST);
    t->a = of;
    t->name = expect_name(p);
    if (is_operator(p, "("))
        arguments(p, &t->items);
    else if (begins_argument(p)) {
        if (is_name(p, "is"))
            arena_fail(p->a, "tests cannot be chained by \"is\"");
        node *argument = make(p, NODE_ARGUMENT);
        argument->a = postfix(p, primary(p));
        push(p, &t->items, argument);
    }
    if (!negated)
        return t;
    node *n = make(p, NODE_NOT);
    n->a = t;
    return n;
}

static node *filters_and_tests(parser *p, node *n)
{
    for (;;)
        if (skip_operator(p, "|"))
            n = filter(p, n);
        else if (skip_name(p, "is"))
            n = test(p, n);
        else if (is_operator(p, "("))
            n = postfix(p, n);
        else
            return n;
}

static node *unary(parser *p, bool filters)
{
    node *n;
    arena_enter(p->a);
    if (is_operator(p, "-") || is_operator(p, "+")) {
        n = make(p, is_operator(p, "-") ? NODE_NEGATIVE : NODE_POSITIVE);
        next(p);
        n->a = unary(p, false);
    } else
        n = primary(p);
    n = postfix(p, n);
    if (filters)
        n = filters_and_tests(p, n);
    p->a->depth--;
    return n;
}

typedef struct binary {
    const char *spelt;
    operation op;
} binary;

static const binary *operation_here(const parser *p, const binary *table)
{
    for (; table->spelt; table++)
        if (is_operator(p, table->spelt))
            return table;
    return NULL;
}

/* Operands with one of the table's operators between them, from the left. */
static node *arithmetic(parser *p, const binary *table, node *(*operand)(parser *p))
{
    node *left = operand(p);
    for (const binary *b; (b = operation_here(p, table));) {
        node *n = make(p, NODE_ARITHMETIC);
        next(p);
        n->op = b->op;
        n->a = left;
        n->b = operand(p);
        left = n;
    }
    return left;
}

static node *unary_with_filters(parser *p) { return unary(p, true); }

static node *power(parser *p)
{
    static const binary table[] = {{"**", OP_POWER}, {NULL, 0}};
    return arithmetic(p, table, unary_with_filters);
}

static node *product(parser *p)
{
    static const binary table[] = {{"*", OP_MULTIPLY}, {"/", OP_DIVIDE}, {"//", OP_FLOOR_DIVIDE}, {"%", OP_MODULO}, {NULL, 0}};
    return arithmetic(p, table, power);
}

static node *concatenation(parser *p)
{
    node *first = product(p);
    if (!is_operator(p, "~"))
        return first;
    node *n = make(p, NODE_CONCAT);
    push(p, &n->items, first);
    while (skip_operator(p, "~"))
        push(p, &n->items, product(p));
    return n;
}

static node *sum(parser *p)
{
    static const binary table[] = {{"+", OP_ADD}, {"-", OP_SUBTRACT}, {NULL, 0}};
    return arithmetic(p, table, concatenation);
}

static bool comparison_here(parser *p, operation *op)
{
    static const binary table[] = {{"==", OP_EQUAL}, {"!=", OP_NOT_EQUAL}, {"<=", OP_LESS_EQUAL}, {"<", OP_LESS},
                                   {">=", OP_GREATER_EQUAL}, {">", OP_GREATER}, {NULL, 0}};
    const binary *b = operation_here(p, table);
    if (b)
        *op = b->op;
    else if (is_name(p, "in"))
        *op = OP_IN;
    else if (is_name(p, "not") && p->at[1].kind == TOKEN_NAME && text_is(p->at[1].text, "in")) {
        *op = OP_NOT_IN;
        next(p);
    } else
        return false;
    next(p);
    return true;
}

static node *comparison(parser *p)
{
    node *first = sum(p), *all = NULL;
    operation op;
    for (int line = p->at->line; comparison_here(p, &op);) {
        if (!all) {
            all = make(p, NODE_COMPARE);
            all->line = line;
            all->a = first;
        }
        node *operand = make(p, NODE_OPERAND);
        operand->op = op;
        operand->a = sum(p);
        push(p, &all->items, operand);
    }
    return all ? all : first;
}

static node *negation(parser *p)
{
    if (!is_name(p, "not"))
        return comparison(p);
    node *n = make(p, NODE_NOT);
    next(p);
    arena_enter(p->a);
    n->a = negation(p);
    p->a->depth--;
    return n;
}

/* Operands with a word between them, from the left. */
static node *joined(parser *p, const char *word, node_kind kind, node *(*operand)(parser *p))
{
    node *left = operand(p);
    while (is_name(p, word)) {
        node *n = make(p, kind);
        next(p);
        n->a = left;
        n->b = operand(p);
        left = n;
    }
    return left;
}

static node *conjunction(parser *p) { return joined(p, "and", NODE_AND, negation); }
static node *disjunction(parser *p) { return joined(p, "or", NODE_OR, conjunction); }

static node *expression(parser *p)
{
    arena_enter(p->a);
    node *n = disjunction(p);
    while (is_name(p, "if")) {
        node *choice = make(p, NODE_IF_ELSE);
        next(p);
        choice->b = n;
        choice->a = disjunction(p);
        if (skip_name(p, "else"))
            choice->c = expression(p);
        n = choice;
    }
    p->a->depth--;
    return n;
}

/* ---- statements ---- */

static void end_block(parser *p)
{
    if (p->at->kind != TOKEN_BLOCK_END)
        arena_fail(p->a, "%%} was expected, not %.*s", (int)p->at->text.n, p->at->text.s);
    next(p);
}

/* What stands between this tag's end and the tag that begins with one of `ends`; then p->at is at that word. */
static void body(parser *p, const char *const *ends, nodes *out)
{
    end_block(p);
    arena_enter(p->a);
    statements(p, ends, out);
    p->a->depth--;
}

static void body_to(parser *p, const char *end, nodes *out)
{
    const char *const ends[] = {end, NULL};
    body(p, ends, out);
    next(p);
}

static node *if_block(parser *p)
{
    static const char *const ends[] = {"elif", "else", "endif", NULL};
    node *n = make(p, NODE_IF);
    n->a = tuple(p, disjunction, false);
    body(p, ends, &n->items);
    if (skip_name(p, "elif")) {
        arena_enter(p->a);
        push(p, &n->others, if_block(p)); /* which reads the end too */
        p->a->depth--;
    } else if (skip_name(p, "else"))
        body_to(p, "endif", &n->others);
    else
        next(p);
    return n;
}

static node *target_item(parser *p)
{
    node *n = make(p, NODE_NAME);
    if (skip_operator(p, "(")) {
        n = tuple(p, target_item, true);
        expect_operator(p, ")");
        return n;
    }
    value constant;
    n->name = expect_name(p);
    if (constant_name(n->name, &constant))
        arena_fail(p->a, "%.*s is a constant and cannot be set", (int)n->name.n, n->name.s);
    return n;
}

static node *for_block(parser *p)
{
    static const char *const ends[] = {"else", "endfor", NULL};
    node *n = make(p, NODE_FOR);
    n->a = tuple(p, target_item, false);
    if (!skip_name(p, "in"))
        arena_fail(p->a, "\"in\" was expected, not %.*s", (int)p->at->text.n, p->at->text.s);
    n->b = tuple(p, disjunction, false);
    if (skip_name(p, "if"))
        n->c = expression(p);
    if (is_name(p, "recursive"))
        arena_fail(p->a, "recursive loops are not supported");
    p->loops++;
    body(p, ends, &n->items);
    p->loops--;
    if (skip_name(p, "else"))
        body_to(p, "endfor", &n->others);
    else
        next(p);
    return n;
}

static node *filters_of_hole(parser *p)
{
    node *n = make(p, NODE_HOLE);
    while (skip_operator(p, "|"))
        n = filter(p, n);
    return n;
}

static node *set_block(parser *p)
{
    node *n = make(p, NODE_SET);
    if (p->at->kind == TOKEN_NAME && p->at[1].kind == TOKEN_OPERATOR && text_is(p->at[1].text, ".")) {
        n->a = make(p, NODE_ATTRIBUTE); /* of a namespace */
        n->a->a = target_item(p);
        next(p);
        n->a->name = expect_name(p);
    } else
        n->a = tuple(p, target_item, false);
    if (skip_operator(p, "=")) {
        n->b = tuple(p, expression, false);
        return n;
    }
    n->kind = NODE_SET_BLOCK;
    n->b = filters_of_hole(p);
    body_to(p, "endset", &n->items);
    return n;
}

static node *macro_block(parser *p)
{
    node *n = make(p, NODE_MACRO);
    const int loops = p->loops;
    n->name = expect_name(p);
    expect_operator(p, "(");
    while (!is_operator(p, ")")) {
        if (n->params.n)
            expect_operator(p, ",");
        node *parameter = make(p, NODE_ARGUMENT);
        parameter->name = target_item(p)->name;
        if (skip_operator(p, "="))
            parameter->a = expression(p);
        else if (n->params.n && n->params.v[n->params.n - 1]->a)
            arena_fail(p->a, "a parameter without a default stands behind one that has one");
        push(p, &n->params, parameter);
    }
    expect_operator(p, ")");
    p->loops = 0;
    body_to(p, "endmacro", &n->items);
    p->loops = loops;
    return n;
}

static node *filter_block(parser *p)
{
    node *n = make(p, NODE_FILTER_BLOCK);
    n->b = filter(p, make(p, NODE_HOLE));
    while (skip_operator(p, "|"))
        n->b = filter(p, n->b);
    body_to(p, "endfilter", &n->items);
    return n;
}

static node *with_block(parser *p)
{
    node *n = make(p, NODE_WITH);
    while (p->at->kind != TOKEN_BLOCK_END) {
        if (n->params.n)
            expect_operator(p, ",");
        node *set = make(p, NODE_SET);
        set->a = target_item(p);
        expect_operator(p, "=");
        set->b = expression(p);
        push(p, &n->params, set);
    }
    body_to(p, "endwith", &n->items);
    return n;
}

static node *generation_block(parser *p)
{
    node *n = make(p, NODE_GENERATION);
    const int loops = p->loops;
    p->has_generation = true;
    p->loops = 0;
    body_to(p, "endgeneration", &n->items);
    p->loops = loops;
    return n;
}

static node *loop_control(parser *p, node_kind kind, text word)
{
    if (!p->loops)
        arena_fail(p->a, "%.*s stands outside of a loop", (int)word.n, word.s);
    return make(p, kind);
}

/* From behind {% to behind %}. */
static node *statement(parser *p)
{
    const text word = expect_name(p);
    node *n;
    if (text_is(word, "if"))
        n = if_block(p);
    else if (text_is(word, "for"))
        n = for_block(p);
    else if (text_is(word, "set"))
        n = set_block(p);
    else if (text_is(word, "macro"))
        n = macro_block(p);
    else if (text_is(word, "filter"))
        n = filter_block(p);
    else if (text_is(word, "with"))
        n = with_block(p);
    else if (text_is(word, "generation"))
        n = generation_block(p);
    else if (text_is(word, "break"))
        n = loop_control(p, NODE_BREAK, word);
    else if (text_is(word, "continue"))
        n = loop_control(p, NODE_CONTINUE, word);
    else
        arena_fail(p->a, "the tag {%% %.*s %%} is unknown here", (int)word.n, word.s);
    return n;
}

static bool is_one_of(const parser *p, const char *const *words)
{
    for (; words && *words; words++)
        if (is_name(p, *words))
            return true;
    return false;
}

static void statements(parser *p, const char *const *ends, nodes *out)
{
    while (p->at->kind != TOKEN_END) {
        node *n = make(p, p->at->kind == TOKEN_DATA ? NODE_DATA : NODE_PRINT);
        if (p->at->kind == TOKEN_DATA) {
            n->name = p->at->text;
            next(p);
        } else if (p->at->kind == TOKEN_PRINT_BEGIN) {
            next(p);
            n->a = tuple(p, expression, false);
            if (p->at->kind != TOKEN_PRINT_END)
                arena_fail(p->a, "}} was expected, not %.*s", (int)p->at->text.n, p->at->text.s);
            next(p);
        } else {
            next(p);
            if (is_one_of(p, ends))
                return;
            n = statement(p);
            end_block(p);
        }
        push(p, out, n);
    }
    if (ends)
        arena_fail(p->a, "the template ends within a block: {%% %s %%} is missing", ends[0][0] == 'e' && ends[1] ? ends[1] : ends[0]);
}

void template_tree(arena *a, text source, tree *out)
{
    parser p = {.a = a, .at = template_tokens(a, source)};
    *out = (tree){0};
    a->line = 1;
    statements(&p, NULL, &out->body);
    out->has_generation = p.has_generation;
}
