#include "base/json.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>

#include "infer/model_folder.h"
#include "train/plan_ways.h"

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

static pt_train_options options_for(uint64_t memory)
{
    pt_train_options o;
    pt_train_defaults(&o);
    o.model = folder;
    o.device = "cpu";
    o.threads = 1;
    o.seq_len = 16;
    o.batch_size = 1;
    o.device_memory = memory;
    o.disk_memory = 0;
    return o;
}

/* The plan as JSON; *text: as text. */
static json_t *plan_with(const pt_train_options *o, char **text)
{
    pt_plan *p = NULL;
    pt_error e = {0};
    const int status = pt_plan_open(o, &p, &e);
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

static json_t *plan_of(uint64_t memory, pt_optimizer optimizer, const char *const *freeze, char **text)
{
    pt_train_options o = options_for(memory);
    o.optimizer = optimizer;
    o.freeze = freeze;
    o.freeze_n = freeze ? 1 : 0;
    return plan_with(&o, text);
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
    part = plan_of(256 << 20, PT_OPTIMIZER_ADAMW, frozen, &text);
    free(text);
    for (int i = 0; i < 2; i++) { /* the ways are the same, whatever is trained, but for what is measured anew */
        const double a = (double)peak(part, names[i], true), b = (double)peak(plan, names[i], true);
        assert_true(fabs(a / b - 1) < 0.1);
    }
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

/* The ways that are named, in order; the one with a '*' is what was asked for. */
/* Where the line has no room for the words, a line below says what the star means. */
static void what_was_asked_for_is_marked(void **state)
{
    (void)state;
    plan_way ways[2] = {{.name = "all parameters", .fits = true, .asked = true, .step_s = 1, .tokens_per_s = 10, .bytes = {1 << 20}},
                        {.name = "LoRA 16", .options = "`lora_rank` 16", .fits = true, .step_s = 0.5, .tokens_per_s = 20,
                         .bytes = {1 << 19}}};
    char *text = plan_ways_text(ways, 2);
    assert_true(strstr(text, "(asked for)") && !strchr(text, '*'));
    assert_non_null(strstr(text, "\nfaster   `lora_rank` 16: 2 times as many tokens/s (the result changes)\n"));
    free(text);
    ways[0].bytes[TIER_HOST] = ways[0].bytes[TIER_DISK] = 1 << 20;
    strcpy(ways[0].name, "everything that there is in it");
    text = plan_ways_text(ways, 2);
    if (!strstr(text, " *\n") || !strstr(text, "\n         * asked for\n"))
        fail_msg("%s", text);
    free(text);
}

static void check_names(const json_t *plan, const char *const *names)
{
    const json_t *ways = json_object_get(plan, "ways"), *w;
    size_t i;
    json_array_foreach(ways, i, w) {
        const bool asked = names[i] && names[i][0] == '*';
        assert_non_null(names[i]);
        assert_string_equal(json_string_value(json_object_get(w, "name")), names[i] + asked);
        assert_int_equal(json_is_true(json_object_get(w, "asked")), asked);
    }
    assert_null(names[i]);
}

static void the_ways_vary_what_was_asked_for(void **state)
{
    (void)state;
    static const char *const frozen[] = {"transformer.wte.weight"};
    static const char *const plain[] = {"*all parameters", "8-bit states", "LoRA 16", "LoRA 16 on nf4", NULL},
                            *const part[] = {"all parameters", "8-bit states", "*chosen tensors", "LoRA 16", "LoRA 16 on nf4", NULL},
                            *const own[] = {"all parameters", "8-bit states", "*DoRA 8", "DoRA 8 on nf4", NULL},
                            *const others[] = {"all parameters", "8-bit states"},
                            *const few[] = {"all parameters", "8-bit states", "DoRA 8", "*DoRA 8 on int8", "DoRA 8 on nf4", NULL};
    char *text;
    json_t *all = plan_of(256 << 20, PT_OPTIMIZER_ADAMW, NULL, &text), *other;
    check_names(all, plain);
    assert_non_null(strstr(text, "(asked for)\n"));
    free(text);
    other = plan_of(256 << 20, PT_OPTIMIZER_ADAMW, frozen, &text);
    check_names(other, part);
    json_decref(other);
    free(text);
    pt_train_options o = options_for(256 << 20);
    o.lora_rank = 8;
    o.lora_alpha = 4;
    o.lora_targets = "attention";
    o.dora = true;
    o.optimizer = PT_OPTIMIZER_ADAMW8BIT;
    other = plan_with(&o, &text);
    check_names(other, own);
    for (int i = 0; i < 2; i++) { /* nothing of the adapter is left in them; what is fastest is measured anew in each plan */
        const double now = (double)peak(other, others[i], true), before = (double)peak(all, others[i], true);
        assert_true(fabs(now / before - 1) < 0.1);
    }
    assert_non_null(strstr(text, "\ntrains   LoRA of rank 8 with magnitudes (DoRA) on attention, "));
    json_decref(other);
    free(text);
    o.base = PT_BASE_INT8;
    other = plan_with(&o, &text);
    check_names(other, few);
    assert_non_null(strstr(text, "; base in int8\n"));
    json_decref(other);
    free(text);
    json_decref(all);
}

/* A way that takes as much memory as one above it and is no faster is not offered; what was asked for is shown all the same. */
static void a_way_that_saves_nothing_is_not_offered(void **state)
{
    (void)state;
    plan_way ways[4] = {{.name = "first", .fits = true, .step_s = 1, .tokens_per_s = 500, .bytes = {1000}},
                        {.name = "larger", .fits = true, .step_s = 2, .tokens_per_s = 250, .bytes = {900, 200}},
                        {.name = "smaller", .fits = true, .step_s = 2, .tokens_per_s = 250, .bytes = {800, 100}},
                        {.name = "none", .fits = false, .bytes = {2000}, .beyond = {true}}};
    for (int asked = 0; asked < 2; asked++) {
        ways[1].asked = asked;
        char *text = plan_ways_text(ways, 4);
        assert_true(strncmp(text, "ways     first", 14) == 0 && strstr(text, "\n         smaller"));
        assert_int_equal(strstr(text, "larger") != NULL, asked);
        assert_null(strstr(text, "none"));
        free(text);
    }
}

/* Machine after machine, as a table and as an array; with a price the table has a column of it. */
static void machines_are_rows_of_one_table(void **state)
{
    (void)state;
    static const char *const costly = "{\"name\": \"costly\", \"kind\": \"cpu\", \"price_per_hour\": 2, \"device\": {\"memory_bytes\": "
                                      "1073741824, \"memory_bandwidth\": 1e9, \"bf16_flops\": 1e9, \"fp32_flops\": 1e9}}";
    char *text, list[700];
    pt_error e = {0};
    pt_train_options o = options_for(PT_AUTO);
    scratch_put("costly.json", costly, strlen(costly));
    o.machine_file = list;
    o.steps = 3600;
    for (int priced = 0; priced < 2; priced++) {
        snprintf(list, sizeof list, "laptop16%s%s", priced ? "," : "", priced ? scratch_path("costly.json") : "");
        assert_int_equal(pt_plan_machines(&o, false, &text, &e), 0);
        assert_int_equal(strstr(text, "price*") != NULL, priced);
        assert_true(strstr(text, "\nlaptop16 ") && strstr(text, "all parameters*"));
        free(text);
        assert_int_equal(pt_plan_machines(&o, true, &text, &e), 0);
        json_t *all = json_loads(text, 0, NULL);
        assert_int_equal(json_array_size(all), 1 + priced);
        json_decref(all);
        free(text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_asked_for_is_marked),
        cmocka_unit_test(each_way_is_what_a_plan_of_its_own_says),
        cmocka_unit_test(a_way_that_fits_is_shown_where_the_plan_does_not),
        cmocka_unit_test(the_ways_vary_what_was_asked_for),
        cmocka_unit_test(a_way_that_saves_nothing_is_not_offered),
        cmocka_unit_test(machines_are_rows_of_one_table),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
