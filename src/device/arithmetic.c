#include "device/arithmetic.h"

#include <string.h>

static const char *known_as(const char *arithmetic)
{
    return strcmp(arithmetic, "cpu arm64 neon, matmul own") != 0 ? arithmetic : "cpu x86-64-v3, matmul own";
}

bool arithmetic_same(const char *a, const char *b) { return !strcmp(known_as(a), known_as(b)); }
