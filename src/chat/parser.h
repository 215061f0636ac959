/* parser.h - shared by the two halves of the parser: its position, and steps from there. Everything is in the arena, and errors leave by
 * arena_fail. */
#ifndef PT_CHAT_PARSER_H
#define PT_CHAT_PARSER_H

#include "chat/syntax.h"

typedef struct parser {
    arena *a;
    const token *at;
    int loops; /* loops around the position, within a macro */
    unsigned special, special_set; /* of the macro around the position: those named, and those that it sets itself */
    bool has_generation;
} parser;

node *parser_make(parser *p, node_kind kind); /* of the current line */
void parser_push(parser *p, nodes *list, node *n);
void parser_next(parser *p);
bool parser_is_operator(const parser *p, const char *s);
bool parser_is_name(const parser *p, const char *s);
bool parser_skip_operator(parser *p, const char *s); /* true if it was there */
bool parser_skip_name(parser *p, const char *s);
void parser_expect_operator(parser *p, const char *s);
text parser_expect_name(parser *p);

/* ---- parse_expression.c ---- */

node *parse_expression(parser *p);
node *parse_disjunction(parser *p); /* without "a if b else c" */
bool parse_constant(text name, value *out); /* true, false, none, also capitalized */
/* Items separated by commas; one alone is itself. */
node *parse_tuple(parser *p, node *(*item)(parser *p), bool in_parentheses);
node *parse_filter(parser *p, node *of); /* after "|" */
unsigned parse_special(text name);       /* MACRO_..., or 0 */

#endif
