/* fields.h - the library's messages name fields of its options in backquotes, `seq_len`; here they become the flags that set them,
 * --seq-len. */
#ifndef CLI_FIELDS_H
#define CLI_FIELDS_H

#include <stdio.h>

/* Prints `text` with flags in the place of fields. */
void print_as_flags(FILE *out, const char *text);

#endif
