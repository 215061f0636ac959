#include "text/section.h"

#include "text/utf8.h"

#include <string.h>

int section_flag(const json_t *section, const char *where, const char *key, bool absent, bool *out, pt_error *e)
{
    const json_t *value = json_object_get(section, key);
    bool given = value && !json_is_null(value);
    if (given && !json_is_boolean(value))
        return pt_fail(e, PT_FAILED, "%s: %s is neither true nor false; write one of them", where, key);
    *out = given ? json_is_true(value) : absent;
    return 0;
}

int section_mark(const json_t *section, const char *where, char mark[4], size_t *n, pt_error *e)
{
    const json_t *value = json_object_get(section, "replacement");
    unsigned length = 0;
    if (json_is_string(value) && json_string_length(value) > 0)
        utf8_read(json_string_value(value), &length);
    if (length == 0 || length != json_string_length(value))
        return pt_fail(e, PT_FAILED, "%s: Metaspace: replacement is not one character; write it", where);
    memcpy(mark, json_string_value(value), length);
    *n = length;
    return 0;
}

int section_too_long(const char *where, pt_error *e)
{
    return pt_fail(e, PT_FAILED, "%s: more than %d steps; join them", where, SECTION_STEPS_MOST);
}
