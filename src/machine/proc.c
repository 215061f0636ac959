#include "machine/proc.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool proc_text(const char *path, const char *key, char *out, size_t n)
{
    FILE *f = fopen(path, "re");
    char line[512];
    bool found = false;
    while (f && !found && fgets(line, sizeof line, f)) {
        const size_t skip = key ? strlen(key) : 0;
        if (key && (strncmp(line, key, skip) != 0 || !line[skip] || !strchr(": \t", line[skip])))
            continue;
        snprintf(out, n, "%s", line + skip + (key ? strspn(line + skip, ": \t") : 0));
        out[strcspn(out, "\n")] = 0;
        found = true;
    }
    if (f)
        fclose(f);
    return found;
}

uint64_t proc_number(const char *path, const char *key, uint64_t absent)
{
    char text[512], *end;
    if (!proc_text(path, key, text, sizeof text))
        return absent;
    errno = 0;
    unsigned long long number = strtoull(text, &end, 10);
    return end == text || errno ? absent : number;
}
