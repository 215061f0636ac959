#include "base/json.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "infer/model_folder.h"

static const char *folder;

static int set_up(void **state)
{
    if (scratch_make(state))
        return 1;
    folder = strdup(make_model_folder("model", 256, 3, 64, 5));
    return 0;
}

static int tear_down(void **state)
{
    free((char *)folder);
    return scratch_remove(state);
}

/* The plan as JSON; *text: as text. */
static json_t *plan_of(uint64_t memory, pt_optimizer optimizer, const char *const *freeze, char **text)
{
    pt_train_options o;
    pt_plan *p = NULL;
    pt_error e = {0};
    pt_train_defaults(&o);
    o.model = folder;
    o.device = "cpu";
    o.threads = 1;
    o.seq_len = 16;
    o.batch_size = 1;
    o.optimizer = optimizer;
    o.freeze = freeze;
    o.freeze_n = freeze ? 1 : 0;
    o.device_memory = memory;
    o.disk_memory = 0;
    const int status = pt_plan_open(&o, &p, &e);
    if (status && status != PT_DOES_NOT_FIT)
        fail_msg("%s", e.text);
    *text = pt_plan_text(p);
    char *json = pt_plan_json(p);
    json_t *object = json_loads(json, 0, NULL);
    assert_non_null(object);
    free(json);
    pt_plan_close(p);
    return object;
}

static uint64_t peak(const json_t *plan, const char *way, bool fits)
{
    const json_t *ways = json_object_get(plan, "ways"), *w;
    size_t i;
    json_array_foreach(ways, i, w)
        if (!strcmp(json_string_value(json_object_get(w, "name")), way)) {
            assert_int_equal(json_is_true(json_object_get(w, "fits")), fits);
            assert_int_equal(json_is_real(json_object_get(w, "step_s")), fits);
            return (uint64_t)json_integer_value(json_object_get(json_object_get(w, "peak_bytes"), "device"));
        }
    fail_msg("there is no way \"%s\"", way);
    return 0;
}

static void each_way_is_what_a_plan_of_its_own_says(void **state)
{
    (void)state;
    static const char *const frozen[] = {"transformer.wte.weight"}, *const names[] = {"all parameters", "8-bit states"};
    char *text;
    for (int own = 0; own < 2; own++) {
        json_t *plan = plan_of(256 << 20, own ? PT_OPTIMIZER_ADAMW8BIT : PT_OPTIMIZER_ADAMW, NULL, &text);
        const json_t *predicted = json_object_get(plan, "predicted");
        assert_int_equal(peak(plan, names[own], true), json_integer_value(json_object_get(json_object_get(predicted, "peak_bytes"),
            "device")));
        assert_true(peak(plan, names[1], true) < peak(plan, names[0], true));
        assert_non_null(strstr(text, "\nways     all parameters"));
        free(text);
        json_decref(plan);
    }
    json_t *plan = plan_of(256 << 20, PT_OPTIMIZER_ADAMW, NULL, &text), *part;
    free(text);
    part = plan_of(256 << 20, PT_OPTIMIZER_ADAMW, frozen, &text); /* the ways are the same, whatever is trained */
    free(text);
    for (int i = 0; i < 2; i++)
        assert_int_equal(peak(part, names[i], true), peak(plan, names[i], true));
    json_decref(part);
    json_decref(plan);
}

/* Of what does not fit, the ways are told all the same: with what one of them needs, it alone fits. */
static void a_way_that_fits_is_shown_where_the_plan_does_not(void **state)
{
    (void)state;
    char *text;
    json_t *none = plan_of(1 << 20, PT_OPTIMIZER_ADAMW, NULL, &text);
    free(text);
    const uint64_t all = peak(none, "all parameters", false), bits = peak(none, "8-bit states", false);
    assert_true(bits > 0 && bits < all);
    json_decref(none);
    json_t *one = plan_of(bits, PT_OPTIMIZER_ADAMW, NULL, &text);
    assert_true(json_is_false(json_object_get(one, "fits")));
    peak(one, "all parameters", false);
    assert_true(peak(one, "8-bit states", true) <= bits);
    assert_non_null(strstr(text, "all parameters  does not fit; would with device"));
    free(text);
    json_decref(one);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_way_is_what_a_plan_of_its_own_says),
        cmocka_unit_test(a_way_that_fits_is_shown_where_the_plan_does_not),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
