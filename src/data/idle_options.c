#include "data/idle_options.h"

#include <stdio.h>

void idle_options_tell(const idle_option *rows, size_t n, void (*notice)(void *arg, const char *sentence), void *arg)
{
    char sentence[400];
    for (size_t i = 0; i < n && notice; i++) {
        if (!rows[i].given || rows[i].works)
            continue;
        snprintf(sentence, sizeof sentence, "`%s` has no effect %s", rows[i].option, rows[i].why);
        notice(arg, sentence);
    }
}
