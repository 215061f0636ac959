#include "text/section.h"

int section_flag(const json_t *section, const char *where, const char *key, bool absent, bool *out, pt_error *e)
{
    const json_t *value = json_object_get(section, key);
    bool given = value && !json_is_null(value);
    if (given && !json_is_boolean(value))
        return pt_fail(e, PT_FAILED, "%s: %s is neither true nor false; write one of them", where, key);
    *out = given ? json_is_true(value) : absent;
    return 0;
}
