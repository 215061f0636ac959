/* parse_expression.c - parses expressions, from the lowest precedence to the highest: a if b else c, or, and, not, comparisons, sums, ~,
 * terms, powers, signs, filters and tests, primary expressions. */
#include "chat/parser.h"

static node *unary(parser *p, bool filters);

static bool ends_tuple(const parser *p)
{
    return p->at->kind == TOKEN_PRINT_END || p->at->kind == TOKEN_BLOCK_END || parser_is_operator(p, ")") || parser_is_operator(p, "=") ||
           parser_is_name(p, "in") || parser_is_name(p, "recursive");
}

/* "a, b" is a tuple; "a" alone is itself. `item` parses one. */
node *parse_tuple(parser *p, node *(*item)(parser *p), bool in_parentheses)
{
    node *t = parser_make(p, NODE_TUPLE);
    bool comma = false;
    while (!ends_tuple(p)) {
        parser_push(p, &t->items, item(p));
        if (!(comma = parser_skip_operator(p, ",")))
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
    node *l = parser_make(p, kind);
    parser_next(p);
    while (!parser_is_operator(p, close)) {
        if (l->items.n)
            parser_expect_operator(p, ",");
        if (parser_is_operator(p, close))
            break;
        parser_push(p, &l->items, parse_expression(p));
        if (kind == NODE_DICT) {
            parser_expect_operator(p, ":");
            parser_push(p, &l->items, parse_expression(p));
        }
    }
    parser_expect_operator(p, close);
    return l;
}

bool parse_constant(text name, value *out)
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

unsigned parse_special(text name)
{
    return text_is(name, "caller") ? MACRO_CALLER : text_is(name, "varargs") ? MACRO_VARARGS : text_is(name, "kwargs") ? MACRO_KWARGS : 0;
}

static node *primary(parser *p)
{
    node *n = parser_make(p, NODE_CONSTANT);
    switch (p->at->kind) {
    case TOKEN_NAME:
        if (!parse_constant(p->at->text, &n->constant)) {
            n->kind = NODE_NAME;
            n->name = p->at->text;
            p->special |= parse_special(n->name) & ~p->special_set;
        }
        parser_next(p);
        return n;
    case TOKEN_NUMBER:
        n->constant = p->at->number;
        parser_next(p);
        return n;
    case TOKEN_STRING:
        n->constant = value_text((text){"", 0});
        for (; p->at->kind == TOKEN_STRING; parser_next(p)) /* adjacent literals are one */
            n->constant = text_concat(p->a, n->constant, value_text(p->at->text));
        return n;
    default: break;
    }
    if (parser_is_operator(p, "["))
        return list_or_dict(p, NODE_LIST, "]");
    if (parser_is_operator(p, "{"))
        return list_or_dict(p, NODE_DICT, "}");
    if (!parser_skip_operator(p, "("))
        arena_fail(p->a, "an expression was expected, not %.*s", (int)p->at->text.n, p->at->text.s);
    n = parse_tuple(p, parse_expression, true);
    parser_expect_operator(p, ")");
    return n;
}

/* As in Jinja: positions, names and one * (in any order, but positions first), one **. */
static void arguments(parser *p, nodes *out)
{
    bool named = false, spread = false, spread_named = false;
    parser_expect_operator(p, "(");
    while (!parser_is_operator(p, ")")) {
        if (out->n)
            parser_expect_operator(p, ",");
        if (parser_is_operator(p, ")"))
            break;
        node *argument = parser_make(p, NODE_ARGUMENT);
        if (spread_named)
            arena_fail(p->a, "an argument stands behind **");
        if (parser_skip_operator(p, "**")) {
            argument->kind = NODE_SPREAD_NAMED;
            spread_named = true;
        } else if (!spread && parser_skip_operator(p, "*")) {
            argument->kind = NODE_SPREAD;
            spread = true;
        } else if (p->at->kind == TOKEN_NAME && p->at[1].kind == TOKEN_OPERATOR && text_is(p->at[1].text, "=")) {
            argument->name = parser_expect_name(p);
            parser_next(p);
            named = true;
        } else if (named || spread)
            arena_fail(p->a, "an argument by position stands behind one by name or *");
        argument->a = parse_expression(p);
        parser_push(p, out, argument);
    }
    parser_expect_operator(p, ")");
}

static node *slice_or_item(parser *p)
{
    node *slice = parser_make(p, NODE_SLICE), **parts[] = {&slice->b, &slice->c, &slice->d};
    size_t part = 0;
    bool is_slice = false;
    while (!parser_is_operator(p, "]") && !parser_is_operator(p, ",")) {
        if (parser_skip_operator(p, ":")) {
            is_slice = true;
            if (++part > 2)
                arena_fail(p->a, "a slice has at most three parts");
        } else if (*parts[part])
            arena_fail(p->a, "] was expected, not %.*s", (int)p->at->text.n, p->at->text.s);
        else
            *parts[part] = parse_expression(p);
    }
    if (!is_slice && !slice->b)
        slice->b = parser_make(p, NODE_TUPLE); /* as x[()] in Python */
    return is_slice ? slice : slice->b;
}

static node *subscript(parser *p, node *of)
{
    node *n = parser_make(p, NODE_ITEM);
    n->a = of;
    if (parser_skip_operator(p, ".")) {
        if (p->at->kind == TOKEN_NUMBER) {
            n->b = parser_make(p, NODE_CONSTANT);
            n->b->constant = p->at->number;
            parser_next(p);
            return n;
        }
        n->kind = NODE_ATTRIBUTE;
        n->name = parser_expect_name(p);
        return n;
    }
    parser_expect_operator(p, "[");
    node *index = slice_or_item(p);
    if (parser_is_operator(p, ","))
        arena_fail(p->a, "several indices in one pair of brackets are not supported");
    parser_expect_operator(p, "]");
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
        if (parser_is_operator(p, ".") || parser_is_operator(p, "["))
            n = subscript(p, n);
        else if (parser_is_operator(p, "(")) {
            node *call = parser_make(p, NODE_CALL);
            call->a = n;
            arguments(p, &call->items);
            n = call;
        } else
            return n;
}

node *parse_filter(parser *p, node *of)
{
    node *f = parser_make(p, NODE_FILTER);
    f->a = of;
    f->name = parser_expect_name(p);
    if (parser_is_operator(p, "("))
        arguments(p, &f->items);
    return f;
}

static bool begins_argument(const parser *p)
{
    if (p->at->kind == TOKEN_NAME)
        return !parser_is_name(p, "else") && !parser_is_name(p, "or") && !parser_is_name(p, "and");
    return p->at->kind == TOKEN_STRING || p->at->kind == TOKEN_NUMBER || parser_is_operator(p, "[") || parser_is_operator(p, "{");
}

static node *test(parser *p, node *of)
{
    const bool negated = parser_skip_name(p, "not");
    node *t = parser_make(p, NODE_TEST);
    t->a = of;
    t->name = parser_expect_name(p);
    if (parser_is_operator(p, "("))
        arguments(p, &t->items);
    else if (begins_argument(p)) {
        if (parser_is_name(p, "is"))
            arena_fail(p->a, "tests cannot be chained by \"is\"");
        node *argument = parser_make(p, NODE_ARGUMENT);
        argument->a = postfix(p, primary(p));
        parser_push(p, &t->items, argument);
    }
    if (!negated)
        return t;
    node *n = parser_make(p, NODE_NOT);
    n->a = t;
    return n;
}

static node *filters_and_tests(parser *p, node *n)
{
    for (;;)
        if (parser_skip_operator(p, "|"))
            n = parse_filter(p, n);
        else if (parser_skip_name(p, "is"))
            n = test(p, n);
        else if (parser_is_operator(p, "("))
            n = postfix(p, n);
        else
            return n;
}

static node *unary(parser *p, bool filters)
{
    node *n;
    arena_enter(p->a);
    if (parser_is_operator(p, "-") || parser_is_operator(p, "+")) {
        n = parser_make(p, parser_is_operator(p, "-") ? NODE_NEGATIVE : NODE_POSITIVE);
        parser_next(p);
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
        if (parser_is_operator(p, table->spelt))
            return table;
    return NULL;
}

/* Operands joined by the table's operators, left-associative. */
static node *arithmetic(parser *p, const binary *table, node *(*operand)(parser *p))
{
    node *left = operand(p);
    for (const binary *b; (b = operation_here(p, table));) {
        node *n = parser_make(p, NODE_ARITHMETIC);
        parser_next(p);
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
    if (!parser_is_operator(p, "~"))
        return first;
    node *n = parser_make(p, NODE_CONCAT);
    parser_push(p, &n->items, first);
    while (parser_skip_operator(p, "~"))
        parser_push(p, &n->items, product(p));
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
    else if (parser_is_name(p, "in"))
        *op = OP_IN;
    else if (parser_is_name(p, "not") && p->at[1].kind == TOKEN_NAME && text_is(p->at[1].text, "in")) {
        *op = OP_NOT_IN;
        parser_next(p);
    } else
        return false;
    parser_next(p);
    return true;
}

static node *comparison(parser *p)
{
    node *first = sum(p), *all = NULL;
    operation op;
    for (int line = p->at->line; comparison_here(p, &op);) {
        if (!all) {
            all = parser_make(p, NODE_COMPARE);
            all->line = line;
            all->a = first;
        }
        node *operand = parser_make(p, NODE_OPERAND);
        operand->op = op;
        operand->a = sum(p);
        parser_push(p, &all->items, operand);
    }
    return all ? all : first;
}

static node *negation(parser *p)
{
    if (!parser_is_name(p, "not"))
        return comparison(p);
    node *n = parser_make(p, NODE_NOT);
    parser_next(p);
    arena_enter(p->a);
    n->a = negation(p);
    p->a->depth--;
    return n;
}

/* Operands joined by a word, left-associative. */
static node *joined(parser *p, const char *word, node_kind kind, node *(*operand)(parser *p))
{
    node *left = operand(p);
    while (parser_is_name(p, word)) {
        node *n = parser_make(p, kind);
        parser_next(p);
        n->a = left;
        n->b = operand(p);
        left = n;
    }
    return left;
}

static node *conjunction(parser *p) { return joined(p, "and", NODE_AND, negation); }
node *parse_disjunction(parser *p) { return joined(p, "or", NODE_OR, conjunction); }

node *parse_expression(parser *p)
{
    arena_enter(p->a);
    node *n = parse_disjunction(p);
    while (parser_is_name(p, "if")) {
        node *choice = parser_make(p, NODE_IF_ELSE);
        parser_next(p);
        choice->b = n;
        choice->a = parse_disjunction(p);
        if (parser_skip_name(p, "else"))
            choice->c = parse_expression(p);
        n = choice;
    }
    p->a->depth--;
    return n;
}
