/* idle_options.h - notes options that have no effect in this run: probably another option was forgotten. */
#ifndef PT_DATA_IDLE_OPTIONS_H
#define PT_DATA_IDLE_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>

typedef struct idle_option {
    bool given, works;
    const char *option; /* a field's name */
    const char *why;    /* "without `task` dpo" */
} idle_option;

void idle_options_tell(const idle_option *rows, size_t n, void (*notice)(void *arg, const char *sentence), void *arg);

#endif
