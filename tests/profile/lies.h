/* lies.h - files of profiles in which a check or a cost is not what was measured. */
#ifndef PT_TEST_LIES_H
#define PT_TEST_LIES_H

#include "base/json.h"
#include "profile/clocked.h"
#include "measure/measure_parts.h"

/* ---- checks ---- */

typedef struct check { const char *part, *key, *what; size_t at; } check;
static const check checks[] = {
    {"blocks", "check", "a layer's forward takes", offsetof(profile_result, layer)},
    {"machine", "check", "an update takes", offsetof(profile_result, update)},
    {"machine", "check_update_host", "an update on the host takes", offsetof(profile_result, update_host)},
    {"machine", "check_to_device", "a copy to the device takes", offsetof(profile_result, to_device)},
    {"machine", "check_from_device", "a copy from the device takes", offsetof(profile_result, from_device)},
    {"machine", "check_read", "a disk read takes", offsetof(profile_result, read)},
    {"machine", "check_write", "a disk write takes", offsetof(profile_result, write)},
};
enum { CHECKS = sizeof checks / sizeof *checks };

/* As if this had been measured on a machine so many times as fast. A file of the other part stays as it is. */
static inline void slow_down(const char *path, const check *c, double times)
{
    char *text, key[64];
    read_text(path, &text);
    snprintf(key, sizeof key, "\"%s\": {", c->part);
    char *at = strstr(text, key);
    if (at) {
        snprintf(key, sizeof key, "\"%s\": [", c->key);
        at = strstr(at, key);
        assert_non_null(at);
        at = strchr(at, ',') + 2;
        char *out = malloc(strlen(text) + 64);
        int n = sprintf(out, "%.*s%.7g%s", (int)(at - text), text, strtod(at, NULL) / times, strchr(at, ']'));
        put(path, out, (size_t)n);
        free(out);
    }
    free(text);
}

/* Adds what is said to a text. */
static inline void keep_notice(void *arg, const char *sentence) { strcat(arg, sentence); }

/* ---- costs that are far from their checks ---- */

/* All numbers of a list from the first on times `by`; of pairs the second. */
static inline void scale(json_t *list, size_t first, double by)
{
    for (size_t i = first; i < json_array_size(list); i++) {
        json_t *one = json_array_get(list, i);
        if (json_is_array(one))
            json_array_set_new(one, 1, json_real(json_number_value(json_array_get(one, 1)) * by));
        else
            json_array_set_new(list, i, json_real(json_number_value(one) * by));
    }
}

/* by < 0: an empty list instead; part "last": of the machine's curve the last point alone. */
typedef struct lie { const char *part, *key; double by; } lie;
static const lie lies[] = {
    {"blocks", "forward_ns", 1e5}, {"blocks", "backward_ns", 1e5}, {"blocks", "forward_ns", 1e-5}, {"blocks", "backward_ns", 0},
    {"blocks", "embed_finish", -1}, {"blocks", "head_ns", 0}, {"blocks", "embed_ns", 0}, {"machine", "task_ns", 0},
    {"machine", "finish", -1}, {"machine", "finish", 0}, {"machine", "update_device", 1e-5}, {"machine", "update_host", 1e5},
    {"machine", "to_device", -1}, {"machine", "from_device", 1e5}, {"machine", "read", -1}, {"machine", "read", 0},
    {"machine", "read", 1e-5}, {"machine", "write", 1e5}, {"machine", "finish", 1e5}, {"machine", "finish", 1e-5},
    {"last", "finish", 1e5}, {"last", "update_device", 1e5}, {"last", "update_host", 1e5},
    {"last", "to_device", 1e5}, {"last", "from_device", 1e5}, {"last", "read", 1e5}, {"last", "write", 1e5},
    {"machine", "slow", 1000}, {"blocks", "head_ns", 1e5}, {"blocks", "head_ns", 1e-5}, {"blocks", "head_eval_ns", 1e5},
    {"blocks", "head_eval_ns", 1e-5}, {"blocks", "embed_ns", 1e5},
};
enum { LIES = sizeof lies / sizeof *lies };

/* A file of the other part stays as it is. */
static inline void tell_lie(const char *path, const lie *l)
{
    pt_error e = {0};
    json_t *o, *holder;
    const bool last = !strcmp(l->part, "last");
    if (json_file_load(path, 0, &o, &e))
        fail_msg("%s", e.text);
    json_t *part = json_object_get(o, last ? "machine" : l->part), *kind = json_array_get(json_object_get(part, "kinds"), 0);
    holder = json_object_get(kind, l->key) ? kind : part;
    json_t *value = json_object_get(holder, l->key), *list;
    const char *key;
    assert_true(value || !holder);
    json_object_foreach(value, key, list)
        scale(list, 0, l->by);
    if (json_is_number(value))
        json_object_set_new(holder, l->key, json_real(json_number_value(value) * l->by));
    else if (l->by < 0)
        json_array_clear(value);
    else
        scale(value, last ? json_array_size(value) - 1 : 0, l->by);
    assert_int_equal(file_write_json(path, o, &e), 0);
    json_decref(o);
}

#endif
