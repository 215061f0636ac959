/* ending.h - the reason why the ranks of a run end, once one of them has failed. The first reason is kept. Any thread may set it or ask for
 * it, and so may any process that shares the memory. */
#ifndef PT_ENDING_H
#define PT_ENDING_H

#include "base/error.h"

#include <stdatomic.h>
#include <stdbool.h>

typedef struct ending {
    atomic_int state;  /* 1: the reason is being written; 2: it is complete */
    atomic_bool heard; /* rank 0 knows the reason, and prints it */
    double at_s;       /* clock_s() */
    int code;
    char text[440];
} ending;

/* Returns whether this is the first reason. rank -1: the text names the rank. */
bool ending_say(ending *end, int rank, int code, const char *why);
/* Returns whether there is a reason. */
bool ending_ask(const ending *end, pt_error *why);

#endif
