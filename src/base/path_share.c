#include "base/path_share.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The length of the path; `characters`: those of a number. */
static size_t split(const char *text, const char *characters, double *value)
{
    const char *colon = strrchr(text, ':');
    char *end;
    if (!colon || colon == text || strspn(colon + 1, characters) != strlen(colon + 1) || !access(text, F_OK))
        return strlen(text);
    *value = strtod(colon + 1, &end);
    return end == colon + 1 || *end || !isfinite(*value) ? strlen(text) : (size_t)(colon - text);
}

size_t path_weight(const char *text, double *weight)
{
    double value = 1;
    const size_t n = split(text, "0123456789.eE+-", &value);
    *weight = text[n] ? value : 1;
    return n;
}

size_t path_share(const char *text, double *share)
{
    double value = 1;
    const size_t n = split(text, "0123456789.", &value);
    *share = text[n] && value > 0 && value <= 1 ? value : 1;
    return text[n] && !(value > 0 && value <= 1) ? strlen(text) : n;
}
