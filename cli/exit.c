#include "exit.h"

#include "fields.h"

#include <stdio.h>

int exit_status(const pt_error *e) { return e->code == PT_USAGE ? 2 : e->code == PT_DOES_NOT_FIT ? 3 : 1; }

int exit_with(const pt_error *e)
{
    fputs("protrain: ", stderr);
    print_sentence(stderr, e->text);
    fputc('\n', stderr);
    return exit_status(e);
}
