/* files.h - files that tests give to the program. Include after cmocka.h. */
#ifndef PT_TEST_CLI_FILES_H
#define PT_TEST_CLI_FILES_H

#include "io/scratch.h"
#include "program.h"

/* The path of a model fixture; the last four stay valid. */
static inline const char *fixture(const char *name)
{
    static char paths[4][512];
    static int next;
    char *p = paths[next++ % 4];
    snprintf(p, 512, "%s/models/%s", PT_FIXTURES, name);
    return p;
}

static inline const char *put_text(const char *name, const char *text)
{
    scratch_put(name, text, strlen(text));
    return scratch_path(name);
}

#endif
