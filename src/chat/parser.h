/* parser.h - what the two halves of the parser share: where it stands, and steps from there. All of it lies in the arena, which
 * arena_fail leaves. */
#ifndef PT_CHAT_PARSER_H
#define PT_CHAT_PARSER_H

#include "chat/syntax.h"

typedef struct parser {
    arena *a;
    const token *at;
    int loops; /* around what is parsed, within a macro */
    bool has_generation;
} parser;

node *parser_make(parser *p, node_kind kind); /* of the line where the parser stands */
void parser_push(parser *p, nodes *list, node *n);
void parser_next(parser *p);
bool parser_is_operator(const parser *p, const char *s);
bool parser_is_name(const parser *p, const char *s);
bool parser_skip_operator(parser *p, const char *s); /* whether it was there */
bool parser_skip_name(parser *p, const char *s);
void parser_expect_operator(parser *p, const char *s);
text parser_expect_name(parser *p);

/* ---- parse_expression.c ---- */

node *parse_expression(parser *p);
node *parse_disjunction(parser *p); /* an expression without "if" and "else" */
bool parse_constant(text name, value *out); /* true, false, none, in either spelling */
/* Items with commas between them: one alone is itself. */
node *parse_tuple(parser *p, node *(*item)(parser *p), bool in_parentheses);
node *parse_filter(parser *p, node *of); /* behind "|" */

#endif
