#include "base/path_share.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

size_t path_share(const char *text, double *share)
{
    const char *colon = strrchr(text, ':');
    char *end;
    *share = 1;
    if (!colon || colon == text || strspn(colon + 1, "0123456789.") != strlen(colon + 1) || !access(text, F_OK))
        return strlen(text);
    const double value = strtod(colon + 1, &end);
    if (end == colon + 1 || *end || !(value > 0 && value <= 1))
        return strlen(text);
    *share = value;
    return (size_t)(colon - text);
}
