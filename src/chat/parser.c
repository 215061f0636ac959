/* parser.c - the steps of the parser along the tokens. parse_expression.c and parse_statements.c have Jinja's grammar. */
#include "chat/parser.h"

#include <string.h>

node *parser_make(parser *p, node_kind kind)
{
    node *n = arena_take(p->a, sizeof *n);
    *n = (node){.kind = kind, .line = p->at->line};
    return n;
}

void parser_push(parser *p, nodes *list, node *n)
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

void parser_next(parser *p)
{
    if (p->at->kind != TOKEN_END)
        p->at++;
    p->a->line = p->at->line;
}

bool parser_is_operator(const parser *p, const char *s) { return p->at->kind == TOKEN_OPERATOR && text_is(p->at->text, s); }
bool parser_is_name(const parser *p, const char *s) { return p->at->kind == TOKEN_NAME && text_is(p->at->text, s); }

bool parser_skip_operator(parser *p, const char *s)
{
    const bool there = parser_is_operator(p, s);
    if (there)
        parser_next(p);
    return there;
}

bool parser_skip_name(parser *p, const char *s)
{
    const bool there = parser_is_name(p, s);
    if (there)
        parser_next(p);
    return there;
}

void parser_expect_operator(parser *p, const char *s)
{
    if (!parser_skip_operator(p, s))
        arena_fail(p->a, "%s was expected, not %.*s", s, (int)p->at->text.n, p->at->text.s);
}

text parser_expect_name(parser *p)
{
    if (p->at->kind != TOKEN_NAME)
        arena_fail(p->a, "a name was expected, not %.*s", (int)p->at->text.n, p->at->text.s);
    text name = p->at->text;
    parser_next(p);
    return name;
}
