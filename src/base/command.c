#include "base/command.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* As a shell reads it: in quotes if it has other than plain letters. Control characters become spaces. */
static void put_word(FILE *f, const char *word)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=:,./@%";
    const bool quotes = !word[0] || word[strspn(word, plain)];
    fputs(quotes ? "'" : "", f);
    for (; *word; word++)
        if (*word == '\'')
            fputs("'\\''", f);
        else
            fputc((unsigned char)*word < ' ' || *word == 127 ? ' ' : *word, f);
    fputs(quotes ? "'" : "", f);
}

char *command_text(void)
{
    char *read = NULL, *text = NULL;
    size_t room = 0, n;
    bool first = true;
    FILE *in = fopen("/proc/self/cmdline", "re"), *out = in ? open_memstream(&text, &n) : NULL;
    while (out && getdelim(&read, &room, 0, in) > 0) {
        fputs(first ? "" : " ", out);
        put_word(out, read);
        first = false;
    }
    if (in)
        fclose(in);
    if (out)
        fclose(out);
    free(read);
    return text;
}

const char *command_time(char out[COMMAND_TIME])
{
    const time_t now = time(NULL);
    struct tm utc;
    strftime(out, COMMAND_TIME, "%Y-%m-%d %H:%M:%S UTC", gmtime_r(&now, &utc));
    return out;
}
