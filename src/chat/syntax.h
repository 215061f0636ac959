/* syntax.h - the tokens and the syntax tree of a template. */
#ifndef PT_CHAT_SYNTAX_H
#define PT_CHAT_SYNTAX_H

#include "chat/value.h"

typedef enum token_kind {
    TOKEN_DATA,        /* text between tags */
    TOKEN_BLOCK_BEGIN, /* {% */
    TOKEN_BLOCK_END,
    TOKEN_PRINT_BEGIN, /* {{ */
    TOKEN_PRINT_END,
    TOKEN_NAME,
    TOKEN_STRING, /* unescaped */
    TOKEN_NUMBER,
    TOKEN_OPERATOR,
    TOKEN_END
} token_kind;

typedef struct token {
    token_kind kind;
    int line;
    text text;
    value number;
} token;

/* The tokens of a source, ended by TOKEN_END, in the arena. */
const token *template_tokens(arena *a, text source);

typedef enum node_kind {
    /* statements */
    NODE_DATA,      /* name: the text */
    NODE_PRINT,     /* a */
    NODE_IF,        /* a: test; items; others: else */
    NODE_FOR,       /* a: target, b: iterable, c: filter or NULL; items; others: else */
    NODE_SET,       /* a: target, b */
    NODE_SET_BLOCK, /* a: target, b: filters around NODE_HOLE; items */
    NODE_FILTER_BLOCK, /* b, items */
    NODE_MACRO,     /* name; params: NODE_ARGUMENT with a default in a; items; special. As an expression: the body of {% call %} */
    NODE_WITH,      /* params: NODE_SET; items */
    NODE_GENERATION,
    NODE_BREAK,
    NODE_CONTINUE,
    /* expressions */
    NODE_CONSTANT, /* constant */
    NODE_NAME,     /* name */
    NODE_LIST,     /* items */
    NODE_TUPLE,
    NODE_DICT,     /* items: key, value, key ... */
    NODE_ATTRIBUTE, /* a.name */
    NODE_ITEM,     /* a[b] */
    NODE_SLICE,    /* a[b:c:d], each NULL where absent */
    NODE_CALL,     /* a(items: NODE_ARGUMENT, NODE_SPREAD, NODE_SPREAD_NAMED) */
    NODE_FILTER,   /* a | name(items) */
    NODE_TEST,     /* a is name(items) */
    NODE_ARGUMENT, /* name (empty: by position), a */
    NODE_SPREAD,   /* *a */
    NODE_SPREAD_NAMED, /* **a */
    NODE_NEGATIVE, /* -a */
    NODE_POSITIVE,
    NODE_NOT,
    NODE_AND, /* a, b */
    NODE_OR,
    NODE_ARITHMETIC, /* a op b */
    NODE_CONCAT,     /* items */
    NODE_COMPARE,    /* a, then items: NODE_OPERAND */
    NODE_OPERAND,    /* op, a */
    NODE_IF_ELSE,    /* a: test, b, c or NULL */
    NODE_HOLE        /* the block's text, as the input of its filters */
} node_kind;

typedef enum operation {
    OP_ADD, OP_SUBTRACT, OP_MULTIPLY, OP_DIVIDE, OP_FLOOR_DIVIDE, OP_MODULO, OP_POWER,
    OP_EQUAL, OP_NOT_EQUAL, OP_LESS, OP_LESS_EQUAL, OP_GREATER, OP_GREATER_EQUAL, OP_IN, OP_NOT_IN
} operation;

/* Names in a macro's body that are not parameters, but are set at a call: the body of {% call %}, and what no parameter takes. */
enum { MACRO_CALLER = 1, MACRO_VARARGS = 2, MACRO_KWARGS = 4 };

typedef struct node node;
typedef struct nodes {
    node **v;
    size_t n, capacity;
} nodes;

struct node {
    node_kind kind;
    operation op;
    int line;
    unsigned special; /* MACRO_... */
    text name;
    value constant;
    node *a, *b, *c, *d;
    nodes items, others, params;
};

typedef struct tree {
    nodes body;
    bool has_generation;
} tree;

void template_tree(arena *a, text source, tree *out);

#endif
