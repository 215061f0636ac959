/* input.h - reads whole inputs, and checks that output was written. */
#ifndef CLI_INPUT_H
#define CLI_INPUT_H

#include "protrain.h"

/* All bytes of a file, or of standard input if `path` is "-"; more than `most` are PT_FAILED. free() *text. */
int input_read(const char *path, size_t most, char **text, size_t *bytes, pt_error *e);

/* PT_FAILED if standard output did not take everything (a full disk, a closed pipe). */
int output_finish(pt_error *e);

#endif
