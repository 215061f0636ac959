/* option.h - reads, writes and checks the field that an option stands for (pt_option). `into` and `from` are the struct that has it. */
#ifndef PT_OPTION_H
#define PT_OPTION_H

#include "base/error.h"

#include <jansson.h>

#define ABOVE_0 4.9406564584124654e-324 /* `low` of a number that must be above 0: the least that is */

/* The default. A list is emptied. */
void option_reset(const pt_option *o, void *into);
/* `text` must stay valid if the field is a text. A list gets a copy of its pointers that grows; option_reset frees it. */
int option_set(const pt_option *o, void *into, const char *text, pt_error *e);
/* The i-th value as option_set takes it, in `out` or elsewhere; NULL: there is none. */
enum { OPTION_TEXT = 64 };
const char *option_text(const pt_option *o, const void *from, int i, char out[OPTION_TEXT]);
bool option_is_default(const pt_option *o, const void *from);
/* A boolean, a number, a string or a list of strings; NULL: a text that is not there. */
json_t *option_json(const pt_option *o, const void *from);
/* PT_USAGE if the value is none that option_set could have given. */
int option_check(const pt_option *o, const void *from, pt_error *e);

#endif
