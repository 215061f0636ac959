/* cases.h - renderings by Transformers, of tests/fixtures/make_templates.py, and comparing with them. */
#ifndef TEST_CHAT_CASES_H
#define TEST_CHAT_CASES_H

#include "base/json.h"
#include "chat/source.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { CASES_NOW = 1750000000 }; /* of strftime_now, in UTC */

static inline json_t *cases_load(const char *path)
{
    json_t *root;
    pt_error e = {0};
    setenv("TZ", "UTC", 1);
    tzset();
    if (json_file_load(path, 0, &root, &e))
        fail_msg("%s", e.text);
    return root;
}

static inline uint64_t fnv(const char *s, size_t n)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < n; i++)
        h = (h ^ (unsigned char)s[i]) * 0x100000001b3u;
    return h;
}

/* `want` is the text, null where Transformers raises, or [bytes, FNV-1a in hex]. False: it is not so, and a line says what. */
static inline bool case_holds(const char *name, const chat_template *t, const json_t *variables, const json_t *want)
{
    chat_rendering got = {0};
    pt_error e = {0};
    char hex[17] = "";
    const int failed = chat_template_render(t, variables, CASES_NOW, &got, &e);
    snprintf(hex, sizeof hex, "%016llx", (unsigned long long)fnv(got.text.bytes, got.text.n));
    bool holds = json_is_null(want) ? failed == PT_FAILED && !strncmp(e.text, name, strlen(name)) : !failed && got.text.bytes;
    if (holds && json_is_string(want))
        holds = got.text.n == json_string_length(want) && (!got.text.n || !memcmp(got.text.bytes, json_string_value(want), got.text.n));
    if (holds && json_is_array(want))
        holds = (json_int_t)got.text.n == json_integer_value(json_array_get(want, 0)) &&
                !strcmp(hex, json_string_value(json_array_get(want, 1)));
    if (!holds) {
        char *expected = json_dumps(want, JSON_ENCODE_ANY);
        print_error("%s:\n  got  %.*s%s\n  want %s\n", name, (int)got.text.n, got.text.n ? got.text.bytes : "", failed ? e.text : "",
                    expected);
        free(expected);
    }
    chat_rendering_free(&got);
    return holds;
}

/* What a template gets for a conversation of the fixtures. */
static inline json_t *case_variables(const json_t *root, const json_t *conversation, bool prompt)
{
    json_t *variables;
    pt_error e = {0};
    if (chat_variables(conversation, "case", &variables, &e))
        fail_msg("%s", e.text);
    json_object_update(variables, json_object_get(root, "special_tokens"));
    json_object_set_new(variables, "add_generation_prompt", json_boolean(prompt));
    return variables;
}

#endif
