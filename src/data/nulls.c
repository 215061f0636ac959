/* nulls.c - finds null in the tools and tool calls of a record. */
#include "data/formats.h"

#include <string.h>

static bool has_null(const json_t *value)
{
    const char *key;
    json_t *inner;
    for (size_t i = 0; i < json_array_size(value); i++)
        if (has_null(json_array_get(value, i)))
            return true;
    json_object_foreach((json_t *)value, key, inner)
        if (json_is_null(inner) ? strcmp(key, "default") != 0 : has_null(inner))
            return true;
    return false;
}

bool format_has_null(const json_t *record)
{
    static const char *const lists[] = {"messages", "conversations", "prompt", "completion", "chosen", "rejected"};
    if (has_null(json_object_get(record, "tools")))
        return true;
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        const json_t *list = json_object_get(record, lists[i]);
        for (size_t m = 0; m < json_array_size(list); m++)
            if (has_null(json_object_get(json_array_get(list, m), "tool_calls")))
                return true;
    }
    return false;
}
