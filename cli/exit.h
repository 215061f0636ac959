/* exit.h - how a command that failed ends. */
#ifndef CLI_EXIT_H
#define CLI_EXIT_H

#include "protrain.h"

/* The exit status of an error: 1 failed, 2 wrong usage, 3 does not fit. */
int exit_status(const pt_error *e);
/* Prints "protrain: TEXT" on stderr, with flags instead of fields, and returns the exit status of the error. */
int exit_with(const pt_error *e);

#endif
