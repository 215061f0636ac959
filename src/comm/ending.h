/* ending.h - why the ranks of a run end, once one of them cannot go on: the first reason stays. Any thread, and any process that shares the
 * memory, may say it or ask. */
#ifndef PT_ENDING_H
#define PT_ENDING_H

#include "base/error.h"

#include <stdatomic.h>
#include <stdbool.h>

typedef struct ending {
    atomic_int state;  /* 1: the reason is being written, 2: it is there */
    atomic_bool heard; /* rank 0 knows it, and says it */
    double at_s;       /* clock_s() */
    int code;
    char text[440];
} ending;

/* rank -1: the text says who. Whether it is the first. */
bool ending_say(ending *end, int rank, int code, const char *why);
/* Whether there is one. */
bool ending_ask(const ending *end, pt_error *why);

#endif
