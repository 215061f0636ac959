#include "base/error.h"

#include <stdarg.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>

int pt_fail(pt_error *e, int code, const char *fmt, ...)
{
    if (!e)
        return code;
    va_list ap;
    va_start(ap, fmt);
    e->code = code;
    vsnprintf(e->text, sizeof e->text, fmt, ap);
    va_end(ap);
    return code;
}

int pt_fail_errno(pt_error *e, int code, const char *fmt, ...)
{
    int saved = errno;
    if (!e)
        return code;
    va_list ap;
    va_start(ap, fmt);
    e->code = code;
    vsnprintf(e->text, sizeof e->text, fmt, ap);
    va_end(ap);
    size_t used = strlen(e->text);
    snprintf(e->text + used, sizeof e->text - used, ": %s", strerror(saved));
    return code;
}

int pt_error_prefix(pt_error *e, const char *fmt, ...)
{
    if (!e)
        return PT_FAILED;
    char old[sizeof e->text];
    memcpy(old, e->text, sizeof old);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(e->text, sizeof e->text, fmt, ap);
    va_end(ap);
    size_t used = strlen(e->text);
    snprintf(e->text + used, sizeof e->text - used, ": %.*s", (int)(sizeof old - 1), old);
    if (!e->code)
        e->code = PT_FAILED;
    return e->code;
}
