/* fields.h - turns fields of options in the library's messages, `seq_len`, into the flags that set them, --seq-len. */
#ifndef CLI_FIELDS_H
#define CLI_FIELDS_H

#include <stdio.h>

/* Prints `text` with flags instead of fields. */
void print_as_flags(FILE *out, const char *text);
/* The same for one line, a note or an error. It may have names from files: control characters become \n or \x1b, so that they neither
 * break the line nor reach the terminal. */
void print_sentence(FILE *out, const char *text);

#endif
