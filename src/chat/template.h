/* template.h - chat templates: a conversation to the text that a model was trained on.
 *
 * A chat template is a program in Jinja that comes with a model, from whoever made it. This is an interpreter of what such templates use,
 * equal byte for byte to Jinja as Transformers sets it up: trim_blocks and lstrip_blocks, the immutable sandbox, loop controls,
 * {% generation %}, its own tojson, raise_exception and strftime_now, Python's rules for values and for how they are printed.
 *
 * lexer.c cuts the source into tokens, parser.c makes a tree of them (syntax.h), and statements.c and expressions.c walk it with
 * values (value.h). Names resolve at run time through a chain of scopes; a macro keeps the chain of where it was defined.
 *
 * Templates are not trusted. They reach no file, no clock but strftime_now's, and no memory but their own: all that a rendering makes
 * lies in one arena (memory.h) with a limit, and steps, output and nesting have limits too. An error unwinds to the entry by longjmp,
 * which is safe because nothing but the arena is held; outside it is a code and a sentence with the template's name and line.
 *
 * What differs from Jinja: integers have 64 bits; iterators (of map, select ...) are computed at once; {% call %}, {% block %},
 * {% include %}, {% import %}, {% extends %} and recursive loops are refused by name; of upper() only the sharp s becomes longer. */
#ifndef PT_CHAT_TEMPLATE_H
#define PT_CHAT_TEMPLATE_H

#include "text/tokenizer.h"

#include <jansson.h>
#include <time.h>

typedef struct chat_template chat_template;

/* `name` is for messages. PT_FAILED: no template, with the line. Immutable once parsed; threads may share it. */
int chat_template_parse(const char *name, const char *text, size_t n, chat_template **out, pt_error *e);
void chat_template_free(chat_template *t);
bool chat_template_marks_replies(const chat_template *t); /* has {% generation %} */
uint64_t chat_template_sum(const chat_template *t);          /* changes when its source does */

typedef struct chat_span { /* bytes [first, end) of a rendering */
    size_t first, end;
} chat_span;

typedef struct chat_rendering { /* zero-initialise; each rendering begins anew */
    text_buffer text;
    chat_span *spans; /* what stood in {% generation %}, in order */
    size_t n_spans;
} chat_rendering;

/* `variables` is an object: messages, tools, bos_token ... `now` is what strftime_now prints. PT_FAILED: the template raised, or does
 * something that its values cannot, or goes over a limit. */
int chat_template_render(const chat_template *t, const json_t *variables, time_t now, chat_rendering *out, pt_error *e);
void chat_rendering_free(chat_rendering *r);

#endif
