/* heard.h - collects notices. */
#ifndef PT_TEST_HEARD_H
#define PT_TEST_HEARD_H

#include <stdio.h>
#include <string.h>

typedef struct heard { char text[4096]; } heard;

static inline void hear(void *arg, const char *sentence)
{
    heard *h = arg;
    snprintf(h->text + strlen(h->text), sizeof h->text - strlen(h->text), "%s\n", sentence);
}

#endif
