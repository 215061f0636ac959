/* template.h - chat templates: they render a conversation as the text that a model was trained on.
 *
 * A chat template is a Jinja program that comes with a model. This interpreter supports what such templates use. Its output equals that of
 * Jinja, as Transformers configures it, byte for byte: trim_blocks and lstrip_blocks, the immutable sandbox, loop controls,
 * {% generation %}, its own tojson, raise_exception and strftime_now, and Python's rules for values and their text.
 *
 * lexer.c splits the source into tokens, parser.c builds a tree (syntax.h), and statements.c and expressions.c walk the tree with values
 * (value.h). Names are resolved at run time in a chain of scopes; a macro keeps the chain of its definition.
 *
 * Templates are not trusted. They cannot reach files, memory of the program, or clocks other than strftime_now's. A rendering allocates
 * from one arena (memory.h); memory, steps, output and nesting are limited. A step is at most about 60 ns of work, also on long strings and
 * lists, so that a rendering takes at most a second or two. An error returns to the entry point by longjmp, which is safe
 * because only the arena is held; callers get a code, and a sentence with the template's name and line.
 *
 * Differences from Jinja: integers have 64 bits; iterators (of map, select ...) are computed at once; {% block %},
 * {% include %}, {% import %}, {% extends %} and recursive loops are refused by name; upper() lengthens no letter but the sharp s. */
#ifndef PT_CHAT_TEMPLATE_H
#define PT_CHAT_TEMPLATE_H

#include "text/tokenizer.h"

#include <jansson.h>
#include <time.h>

typedef struct chat_template chat_template;

/* `name` is for errors. PT_FAILED: not a valid template; the message has the line. A parsed template is immutable; threads may share it. */
int chat_template_parse(const char *name, const char *text, size_t n, chat_template **out, pt_error *e);
void chat_template_free(chat_template *t);
bool chat_template_marks_replies(const chat_template *t); /* has {% generation %} */
uint64_t chat_template_sum(const chat_template *t);          /* hash of its source */

typedef struct chat_span { /* bytes [first, end) of a rendering */
    size_t first, end;
} chat_span;

typedef struct chat_rendering { /* zero-initialize; each rendering overwrites it */
    text_buffer text; /* after a rendering its bytes are not NULL, even if it is empty */
    chat_span *spans; /* contents of {% generation %}, in order */
    size_t n_spans;
    uint64_t steps; /* taken of ARENA_MOST_STEPS */
} chat_rendering;

/* `variables` is an object: messages, tools, bos_token ... `now`: the time for strftime_now. PT_FAILED: the template raised an exception,
 * used an operation that its values do not have, or exceeded a limit. */
int chat_template_render(const chat_template *t, const json_t *variables, time_t now, chat_rendering *out, pt_error *e);
void chat_rendering_free(chat_rendering *r);

#endif
