#include "data/columns.h"

#include <stdio.h>
#include <string.h>

static int misfit(const char *pair, const char *what, pt_error *e)
{
    return pt_fail(e, PT_USAGE, "`columns`: \"%.80s\" %s: give NAME=KEY, as in prompt=query,completion=response", pair, what);
}

static int add_pair(column_names *c, char *pair, pt_error *e)
{
    char *equals = strchr(pair, '=');
    if (!equals || equals == pair || !equals[1])
        return misfit(pair, "is no name with a key", e);
    if (c->n == COLUMNS_MAX)
        return misfit(pair, "is one pair too many", e);
    *equals = 0;
    for (size_t i = 0; i < c->n; i++)
        if (!strcmp(c->of[i].name, pair) || !strcmp(c->of[i].key, equals + 1))
            return misfit(strcmp(c->of[i].name, pair) ? equals + 1 : pair, "is given twice", e);
    c->of[c->n].name = pair;
    c->of[c->n++].key = equals + 1;
    return 0;
}

int columns_parse(const char *text, column_names *out, pt_error *e)
{
    int rc = 0;
    out->n = 0;
    if (text && strlen(text) >= sizeof out->text)
        return misfit(text, "and so on is too long", e);
    snprintf(out->text, sizeof out->text, "%s", text ? text : "");
    for (char *pair = out->text, *next; *pair && rc == 0; pair = next) {
        const size_t n = strcspn(pair, ",");
        next = pair + n + (pair[n] != 0);
        pair[n] = 0;
        rc = add_pair(out, pair, e);
    }
    return rc;
}

void columns_rename(const column_names *c, json_t *record)
{
    json_t *values[COLUMNS_MAX];
    const size_t n = c && json_is_object(record) ? c->n : 0;
    for (size_t i = 0; i < n; i++)
        values[i] = json_incref(json_object_get(record, c->of[i].key));
    for (size_t i = 0; i < n; i++)
        json_object_del(record, c->of[i].key);
    for (size_t i = 0; i < n; i++)
        if (values[i])
            json_object_set_new(record, c->of[i].name, values[i]);
}
