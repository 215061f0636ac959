/* filters.h - the tables of filters. */
#ifndef PT_CHAT_FILTERS_H
#define PT_CHAT_FILTERS_H

#include "chat/run.h"

typedef struct filter_row {
    const char *name; /* NULL at the end of a table */
    value (*apply)(run *r, value in, const bound *b);
    value (*whole)(run *r, value in, const args *x); /* instead, for filters that pass their arguments on */
    const char *parameters;
} filter_row;

extern const filter_row sequence_filters[];

#endif
