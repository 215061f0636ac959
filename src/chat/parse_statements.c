/* parse_statements.c - parses text and tags. */
#include "chat/parser.h"

static void statements(parser *p, const char *const *ends, nodes *out);

static void end_block(parser *p)
{
    if (p->at->kind != TOKEN_BLOCK_END)
        arena_fail(p->a, "%%} was expected, not %.*s", (int)p->at->text.n, p->at->text.s);
    parser_next(p);
}

/* Parses everything up to the tag that begins with one of `ends`; afterwards p->at is at that word. */
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
    parser_next(p);
}

static node *if_block(parser *p)
{
    static const char *const ends[] = {"elif", "else", "endif", NULL};
    node *n = parser_make(p, NODE_IF);
    n->a = parse_tuple(p, parse_disjunction, false);
    body(p, ends, &n->items);
    if (parser_skip_name(p, "elif")) {
        arena_enter(p->a);
        parser_push(p, &n->others, if_block(p)); /* also reads the end */
        p->a->depth--;
    } else if (parser_skip_name(p, "else"))
        body_to(p, "endif", &n->others);
    else
        parser_next(p);
    return n;
}

static node *target_item(parser *p)
{
    node *n = parser_make(p, NODE_NAME);
    if (parser_skip_operator(p, "(")) {
        n = parse_tuple(p, target_item, true);
        parser_expect_operator(p, ")");
        return n;
    }
    value constant;
    n->name = parser_expect_name(p);
    p->special_set |= parse_special(n->name);
    if (parse_constant(n->name, &constant))
        arena_fail(p->a, "%.*s is a constant and cannot be set", (int)n->name.n, n->name.s);
    return n;
}

static node *for_block(parser *p)
{
    static const char *const ends[] = {"else", "endfor", NULL};
    node *n = parser_make(p, NODE_FOR);
    n->a = parse_tuple(p, target_item, false);
    if (!parser_skip_name(p, "in"))
        arena_fail(p->a, "\"in\" was expected, not %.*s", (int)p->at->text.n, p->at->text.s);
    n->b = parse_tuple(p, parse_disjunction, false);
    if (parser_skip_name(p, "if"))
        n->c = parse_expression(p);
    if (parser_is_name(p, "recursive"))
        arena_fail(p->a, "recursive loops are not supported");
    p->loops++;
    body(p, ends, &n->items);
    p->loops--;
    if (parser_skip_name(p, "else"))
        body_to(p, "endfor", &n->others);
    else
        parser_next(p);
    return n;
}

static node *filters_of_hole(parser *p)
{
    node *n = parser_make(p, NODE_HOLE);
    while (parser_skip_operator(p, "|"))
        n = parse_filter(p, n);
    return n;
}

static node *set_block(parser *p)
{
    node *n = parser_make(p, NODE_SET);
    if (p->at->kind == TOKEN_NAME && p->at[1].kind == TOKEN_OPERATOR && text_is(p->at[1].text, ".")) {
        n->a = parser_make(p, NODE_ATTRIBUTE); /* an attribute of a namespace */
        n->a->a = target_item(p);
        parser_next(p);
        n->a->name = parser_expect_name(p);
    } else
        n->a = parse_tuple(p, target_item, false);
    if (parser_skip_operator(p, "=")) {
        n->b = parse_tuple(p, parse_expression, false);
        return n;
    }
    n->kind = NODE_SET_BLOCK;
    n->b = filters_of_hole(p);
    body_to(p, "endset", &n->items);
    return n;
}

/* Parses the parameters in parentheses, and returns the special names among them. */
static unsigned parameters(parser *p, nodes *out)
{
    unsigned special = 0;
    parser_expect_operator(p, "(");
    while (!parser_is_operator(p, ")")) {
        if (out->n)
            parser_expect_operator(p, ",");
        node *parameter = parser_make(p, NODE_ARGUMENT);
        parameter->name = target_item(p)->name;
        special |= parse_special(parameter->name);
        if (parser_skip_operator(p, "="))
            parameter->a = parse_expression(p);
        else if (out->n && out->v[out->n - 1]->a)
            arena_fail(p->a, "a parameter without a default stands behind one that has one");
        parser_push(p, out, parameter);
    }
    parser_expect_operator(p, ")");
    return special;
}

static void macro_body(parser *p, node *n, unsigned as_parameters, const char *end)
{
    const int loops = p->loops;
    const unsigned outer = p->special, outer_set = p->special_set;
    p->loops = 0;
    p->special = p->special_set = 0;
    body_to(p, end, &n->items);
    for (size_t i = 0; i < n->params.n; i++)
        if ((p->special & MACRO_CALLER) && text_is(n->params.v[i]->name, "caller") && !n->params.v[i]->a)
            arena_fail(p->a, "the parameter caller of a macro that calls it needs a default");
    n->special = p->special & ~as_parameters;
    p->special = outer | (p->special & ~outer_set);
    p->special_set |= outer_set;
    p->loops = loops;
}

static node *macro_block(parser *p)
{
    node *n = parser_make(p, NODE_MACRO);
    n->name = parser_expect_name(p);
    const unsigned as_parameters = parameters(p, &n->params);
    macro_body(p, n, as_parameters, "endmacro");
    return n;
}

/* {% call(x) m() %}...{% endcall %} prints m(caller=C), where C is a macro of the body. */
static node *call_block(parser *p)
{
    node *n = parser_make(p, NODE_PRINT), *caller = parser_make(p, NODE_MACRO), *argument = parser_make(p, NODE_ARGUMENT);
    const unsigned as_parameters = parser_is_operator(p, "(") ? parameters(p, &caller->params) : 0;
    n->a = parse_expression(p);
    if (n->a->kind != NODE_CALL)
        arena_fail(p->a, "{%% call %%} needs a call, such as name()");
    caller->name = argument->name = TEXT("caller");
    argument->a = caller;
    parser_push(p, &n->a->items, argument);
    macro_body(p, caller, as_parameters, "endcall");
    return n;
}

static node *filter_block(parser *p)
{
    node *n = parser_make(p, NODE_FILTER_BLOCK);
    n->b = parse_filter(p, parser_make(p, NODE_HOLE));
    while (parser_skip_operator(p, "|"))
        n->b = parse_filter(p, n->b);
    body_to(p, "endfilter", &n->items);
    return n;
}

static node *with_block(parser *p)
{
    node *n = parser_make(p, NODE_WITH);
    while (p->at->kind != TOKEN_BLOCK_END) {
        if (n->params.n)
            parser_expect_operator(p, ",");
        node *set = parser_make(p, NODE_SET);
        set->a = target_item(p);
        parser_expect_operator(p, "=");
        set->b = parse_expression(p);
        parser_push(p, &n->params, set);
    }
    body_to(p, "endwith", &n->items);
    return n;
}

static node *generation_block(parser *p)
{
    node *n = parser_make(p, NODE_GENERATION);
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
    return parser_make(p, kind);
}

/* Parses from after {% to after %}. */
static node *statement(parser *p)
{
    const text word = parser_expect_name(p);
    node *n;
    if (text_is(word, "if"))
        n = if_block(p);
    else if (text_is(word, "for"))
        n = for_block(p);
    else if (text_is(word, "set"))
        n = set_block(p);
    else if (text_is(word, "macro"))
        n = macro_block(p);
    else if (text_is(word, "call"))
        n = call_block(p);
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
        if (parser_is_name(p, *words))
            return true;
    return false;
}

static void statements(parser *p, const char *const *ends, nodes *out)
{
    while (p->at->kind != TOKEN_END) {
        node *n = parser_make(p, p->at->kind == TOKEN_DATA ? NODE_DATA : NODE_PRINT);
        if (p->at->kind == TOKEN_DATA) {
            n->name = p->at->text;
            parser_next(p);
        } else if (p->at->kind == TOKEN_PRINT_BEGIN) {
            parser_next(p);
            n->a = parse_tuple(p, parse_expression, false);
            if (p->at->kind != TOKEN_PRINT_END)
                arena_fail(p->a, "}} was expected, not %.*s", (int)p->at->text.n, p->at->text.s);
            parser_next(p);
        } else {
            parser_next(p);
            if (is_one_of(p, ends))
                return;
            n = statement(p);
            end_block(p);
        }
        parser_push(p, out, n);
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
