/* A run is not resumed with another model: what changes the description of the model in its config.json changes what is recorded of it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "sanitized.h"
#include "train/fixture.h"
#include "train/settings.h"

/* What may differ without changing the result of a run that goes on. */
static model_config what_counts(const model_config *c)
{
    model_config x;
    memcpy(&x, c, sizeof x); /* with its padding */
    x.multimodal = x.dropout = x.experts_fused = false;
    x.initializer_range = 0;
    x.stored_type = 0;
    x.bos = x.eos = 0;
    x.max_positions = c->position == POSITION_LEARNED ? c->max_positions : 0;
    for (int i = 0; i < c->ropes_n; i++)
        if (c->rope[i].kind < ROPE_DYNAMIC && c->rope[i].scaling_beta == 0) /* not a part of such angles */
            x.rope[i].original_positions = 0;
    return x;
}

static model *model_of(const json_t *config)
{
    model *m = NULL;
    pt_error e = {0};
    char *text = json_dumps(config, 0);
    if (model_from_json("changed", text, strlen(text), NULL, NULL, &m, &e))
        m = NULL;
    free(text);
    return m;
}

static json_t *changed(const json_t *value, int way)
{
    if (json_is_boolean(value))
        return way ? NULL : json_boolean(!json_is_true(value));
    if (json_is_integer(value))
        return json_integer(way == 0 ? json_integer_value(value) + 1 : way == 1 ? json_integer_value(value) - 1
                                                                                : 2 * json_integer_value(value));
    return json_is_real(value) && !way ? json_real(json_real_value(value) * 1.25 + 0.125) : NULL;
}

static int changes; /* that were compared */

static void compare(const char *name, const char *key, const model *a, const json_t *config)
{
    model *b = model_of(config);
    if (!b) /* refused */
        return;
    const model_config x = what_counts(&a->config), y = what_counts(&b->config);
    json_t *before = model_json(&a->config), *after = model_json(&b->config);
    if (memcmp(&x, &y, sizeof x)) {
        changes++;
        if (json_equal(before, after))
            fail_msg("%s: another \"%s\" is another model, but what is recorded is the same", name, key);
    }
    json_decref(before);
    json_decref(after);
    model_close(b);
}

static void change_each(const char *name, const model *m, json_t *config, json_t *object)
{
    const char *key;
    json_t *value;
    void *next;
    json_object_foreach_safe(object, next, key, value)
    {
        json_t *kept = json_incref(value), *other;
        if (json_is_object(value))
            change_each(name, m, config, value);
        for (int way = 0; way < 3 && (other = changed(kept, way)); way++) {
            json_object_set_new(object, key, other);
            compare(name, key, m, config);
        }
        json_object_set_new(object, key, kept);
    }
}

static void check_fixture(const char *name)
{
    char path[FILE_PATH_BYTES];
    json_t *config;
    pt_error e = {0};
    snprintf(path, sizeof path, "%s/models/%s/config.json", fixtures_root(), name);
    must(json_file_load(path, 0, &config, &e), &e);
    model *m = model_of(config);
    assert_non_null(m);
    change_each(name, m, config, config);
    model_close(m);
    json_decref(config);
}

static void another_model_is_recorded_as_another(void **state)
{
    (void)state;
    NO_OTHER_THREADS();
    const int fixtures = each_model_fixture(check_fixture);
    printf("%d changes of %d models\n", changes, fixtures);
    assert_true(fixtures >= 60 && changes >= 10 * fixtures);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(another_model_is_recorded_as_another)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
