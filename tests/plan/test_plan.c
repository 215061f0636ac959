#include "random_plan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- JSON ---- */

static bool same_chunks(const plan *a, const plan *b)
{
    int same = 0;
    while (same < a->chunks_n && plan_chunk_same(&a->chunks[same], &b->chunks[same]))
        same++;
    return same == a->chunks_n;
}

static bool same_plan(const plan *a, const plan *b)
{
    return a->chunk_bytes == b->chunk_bytes && a->n_buffer == b->n_buffer && a->n_update == b->n_update && a->n_swap == b->n_swap &&
           a->micro_batch == b->micro_batch && a->visit == b->visit && a->update == b->update && a->ranges == b->ranges &&
           a->chunks_n == b->chunks_n &&
           a->blocks_n == b->blocks_n && same_chunks(a, b) &&
           !memcmp(a->blocks, b->blocks, (size_t)a->blocks_n * sizeof *a->blocks);
}

static void a_written_plan_reads_back_the_same_and_is_valid(void **state)
{
    (void)state;
    random_source all = random_open();
    for (uint64_t i = 0; i < 300; i++) {
        random_source r = random_fork(&all, i);
        random_case c;
        plan back, copy;
        pt_error e = {0};
        if (random_case_open(&r, &c, &e) || (random_one_in(&r, 3) && random_share(&r, &c, &e)))
            fail_msg("%s", e.text);
        char *text = plan_to_json(&c.plan, c.model, &c.shape);
        assert_non_null(text);
        if (plan_from_json("plan.json", text, strlen(text), &back, &e))
            fail_msg("%s\n%s", e.text, text);
        assert_true(same_plan(&c.plan, &back));
        assert_string_equal(back.made_for.model_type, c.model->config.model_type);
        if (plan_validate(&back, c.model, &c.shape, &c.packing, false, &e))
            fail_msg("%s\n%s", e.text, text);
        assert_int_equal(plan_copy(&copy, &back, &e), 0);
        assert_true(same_plan(&copy, &back));
        assert_true(copy.chunks != back.chunks && copy.blocks != back.blocks);
        free(text);
        plan_free(&copy);
        plan_free(&back);
        random_case_close(&c);
    }
}

#define GOOD_NUMBERS "\"chunk_bytes\": 65536, \"n_buffer\": 2, \"n_update\": 1, \"n_swap\": 2, \"micro_batch\": 1, \"visit\": 1, "
#define GOOD_LISTS                                                                  \
    "\"chunks\": [{\"count\": 3, \"home\": \"disk\", \"update\": \"host\"}], "      \
    "\"blocks\": [{\"count\": 2, \"save\": \"attention\", \"place\": \"host\"}]"
#define GOOD_TARGET "{\"model_type\": \"gpt2\", \"parameters\": 1, \"layers\": 2, \"seq_len\": 8, \"batch\": 1, \"dtype\": \"fp32\"}"

static void equal_neighbours_are_written_once(void **state)
{
    (void)state;
    plan p;
    pt_error e = {0};
    const char *good = "{" GOOD_NUMBERS "\"update\": \"end\", " GOOD_LISTS "}";
    if (plan_from_json("plan.json", good, strlen(good), &p, &e))
        fail_msg("%s", e.text);
    assert_int_equal(p.chunks_n, 3);
    assert_int_equal(p.blocks_n, 2);
    assert_int_equal(p.chunks[2].placement, TIER_DISK);
    assert_int_equal(p.chunks[2].update, TIER_HOST);
    assert_int_equal(p.blocks[1].level, SAVE_ATTENTION);
    assert_int_equal(p.update, UPDATE_END);
    assert_int_equal(p.made_for.model_type[0], 0);
    random_source r = random_open();
    model *m;
    step_shape s;
    assert_int_equal(random_model(&r, 2, &m, &e), 0);
    random_shape(&r, m, &s);
    char *text = plan_to_json(&p, m, &s);
    assert_non_null(text);
    assert_non_null(strstr(text, "{\"count\": 3, \"home\": \"disk\", \"update\": \"host\"}\n  ]"));
    assert_non_null(strstr(text, "{\"count\": 2, \"save\": \"attention\", \"place\": \"host\"}\n  ]"));
    free(text);
    model_close(m);
    plan_free(&p);
}

/* Older files have a level between, which is the highest now. */
static void an_older_level_is_the_highest(void **state)
{
    (void)state;
    static const char *const levels[] = {"matmuls", "all"};
    for (int i = 0; i < 2; i++) {
        plan p;
        pt_error e = {0};
        char text[1024];
        snprintf(text, sizeof text,
                 "{" GOOD_NUMBERS "\"update\": \"end\", \"chunks\": [{\"count\": 1, \"home\": \"disk\", \"update\": \"host\"}], "
                 "\"blocks\": [{\"count\": 2, \"save\": \"%s\", \"place\": \"host\"}]}", levels[i]);
        if (plan_from_json("plan.json", text, strlen(text), &p, &e))
            fail_msg("%s", e.text);
        assert_int_equal(p.blocks[0].level, SAVE_ALL);
        assert_int_equal(p.blocks[1].level, SAVE_ALL);
        plan_free(&p);
    }
}

static void lies_are_refused_with_file_key_and_mend(void **state)
{
    (void)state;
    static const struct { const char *json, *says; } lies[] = {
        {"", "plan.json"},
        {"[]", "a list"},
        {"{}", "\"chunks\" is missing"},
        {"{" GOOD_NUMBERS "\"update\": \"end\", " GOOD_LISTS ", \"colour\": 1}", "\"colour\" is unknown"},
        {"{" GOOD_NUMBERS "\"update\": \"end\", " GOOD_LISTS ", \"visit\": 2}", "plan.json"}, /* twice */
        {"{" GOOD_NUMBERS "\"update\": \"never\", " GOOD_LISTS "}", "backward, next_forward, end"},
        {"{" GOOD_NUMBERS "\"update\": 3, " GOOD_LISTS "}", "\"update\" is an integer"},
        {"{" GOOD_NUMBERS "\"update\": null, " GOOD_LISTS "}", "\"update\" is null"},
        {"{\"chunk_bytes\": -1, " GOOD_LISTS "}", "\"chunk_bytes\" is -1"},
        {"{\"chunk_bytes\": 1e300, " GOOD_LISTS "}", "\"chunk_bytes\" is 1e+300"},
        {"{\"chunk_bytes\": 99999999999999999999, " GOOD_LISTS "}", "\"chunk_bytes\" is 1e+20"},
        {"{\"chunk_bytes\": NaN, " GOOD_LISTS "}", "plan.json:1"},
        {"{\"chunk_bytes\": 65536.5, " GOOD_LISTS "}", "\"chunk_bytes\""},
        {"{\"chunk_bytes\": \"1 MiB\", " GOOD_LISTS "}", "\"chunk_bytes\" is a string"},
        {"{\"chunk_bytes\": 65536, \"n_buffer\": -2, " GOOD_LISTS "}", "\"n_buffer\" is -2"},
        {"{\"chunk_bytes\": 65536, \"n_buffer\": 1000000000, " GOOD_LISTS "}", "\"n_buffer\" is 1000000000"},
        {"{\"chunks\": [], \"blocks\": []}", "\"chunks\" is empty"},
        {"{\"chunks\": {}, \"blocks\": []}", "\"chunks\" is an object"},
        {"{\"chunks\": [3], \"blocks\": []}", "chunks[0] is an integer"},
        {"{\"chunks\": [{\"count\": 0}], \"blocks\": []}", "chunks[0]: \"count\" is 0"},
        {"{\"chunks\": [{\"count\": 1000000}, {\"count\": 1000000}], \"blocks\": []}", "add up to more than"},
        {"{\"chunks\": [{\"count\": 1}], \"blocks\": [{\"count\": 100000}]}", "blocks[0]: \"count\" is 100000"},
        {"{" GOOD_NUMBERS "\"update\": \"end\", \"chunks\": [{\"count\": 1, \"home\": \"moon\", \"update\": \"host\"}], "
         "\"blocks\": [{\"count\": 1, \"save\": \"all\", \"place\": \"host\"}]}", "chunks[0]: \"home\" is \"moon\""},
        {"{" GOOD_NUMBERS "\"update\": \"end\", \"chunks\": [{\"count\": 1, \"home\": \"disk\", \"update\": \"disk\"}], "
         "\"blocks\": [{\"count\": 1, \"save\": \"all\", \"place\": \"host\"}]}", "\"update\" is \"disk\"; it must be one of device, host"},
        {"{" GOOD_NUMBERS "\"update\": \"end\", \"chunks\": [{\"count\": 1, \"home\": \"disk\", \"update\": \"host\"}], "
         "\"blocks\": [{\"count\": 1, \"save\": \"some\", \"place\": \"host\"}]}", "input, attention, all"},
        {"{" GOOD_NUMBERS "\"update\": \"end\", \"chunks\": [{\"count\": 1, \"home\": \"disk\", \"update\": \"host\", \"x\": 1}], "
         "\"blocks\": [{\"count\": 1, \"save\": \"all\", \"place\": \"host\"}]}", "chunks[0]: the key \"x\" is unknown"},
        {"{" GOOD_NUMBERS "\"update\": \"end\", " GOOD_LISTS ", \"made_for\": 7}", "\"made_for\" is an integer"},
        {"{" GOOD_NUMBERS "\"update\": \"end\", " GOOD_LISTS ", \"made_for\": {}}", "made_for: the key \"model_type\" is missing"},
        {"{" GOOD_NUMBERS "\"update\": \"end\", " GOOD_LISTS ", \"made_for\": {\"model_type\": "
         "\"a name that is far too long for any model type that there is\"}}", "made_for: \"model_type\""},
        {"{" GOOD_NUMBERS "\"update\": \"end\", " GOOD_LISTS ", \"made_for\": {\"model_type\": \"gpt2\", \"parameters\": 1, "
         "\"layers\": 2, \"kv_heads\": 0}}", "made_for: \"kv_heads\" is 0"},
        {"{\"fits\": false, \"missing_bytes\": 7}", "\"fits\" is false"},
        {"{\"fits\": true}", "\"plan\" is missing"},
        {"{\"fits\": true, \"plan\": 7}", "\"plan\" is an integer"},
        {"{\"fits\": true, \"plan\": {\"fits\": true}}", "plan: the key \"fits\" is unknown"},
        {"{\"plan\": {}}", "the key \"plan\" is unknown"},
    };
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        plan p;
        pt_error e = {0};
        if (!plan_from_json("plan.json", lies[i].json, strlen(lies[i].json), &p, &e))
            fail_msg("accepted: %s", lies[i].json);
        if (!strstr(e.text, lies[i].says) || !strstr(e.text, "plan.json"))
            fail_msg("%s\nis refused with: %s\nwithout: %s", lies[i].json, e.text, lies[i].says);
    }
}

static void a_missing_file_is_refused_by_name(void **state)
{
    (void)state;
    plan p;
    pt_error e = {0};
    assert_int_equal(plan_read("no/such/plan.json", &p, &e), PT_FAILED);
    assert_non_null(strstr(e.text, "no/such/plan.json"));
}

static void a_file_is_read_as_text_is(void **state)
{
    (void)state;
    char path[] = "test_plan_XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    const char *text = "{" GOOD_NUMBERS "\"update\": \"end\", \"made_for\": " GOOD_TARGET ", " GOOD_LISTS "}";
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
    plan a, b;
    pt_error e = {0};
    int failed = plan_read(path, &a, &e);
    unlink(path);
    if (failed || plan_from_json("plan.json", text, strlen(text), &b, &e))
        fail_msg("%s", e.text);
    assert_true(same_plan(&a, &b));
    assert_string_equal(a.made_for.model_type, "gpt2");
    assert_int_equal(a.made_for.heads, 0); /* which this older text does not say */
    plan_free(&a);
    plan_free(&b);
}

/* ---- validation ---- */

static void a_plan_for_something_else_is_refused(void **state)
{
    (void)state;
    random_source all = random_open();
    for (uint64_t i = 0; i < 100; i++) {
        random_source r = random_fork(&all, i);
        random_case c;
        pt_error e = {0};
        plan p;
        if (random_case_open(&r, &c, &e))
            fail_msg("%s", e.text);
        char *text = plan_to_json(&c.plan, c.model, &c.shape);
        assert_int_equal(plan_from_json("plan.json", text, strlen(text), &p, &e), 0);
        free(text);
        static const char *const keys[] = {"type",     "parameters", "layers",     "seq_len", "batch",   "made for",
                                           "\"hidden", "\"heads",    "\"kv_heads", "\"ffn",   "\"vocab", "`optimizer`"};
        for (int what = 0; what < 12; what++) {
            plan_target right = p.made_for, *t = &p.made_for;
            switch (what) {
            case 0: t->model_type[0] ^= 1; break;
            case 1: t->parameters += random_from(&r, 1, 9); break;
            case 2: t->layers++; break;
            case 3: t->seq_len++; break;
            case 4: t->batch++; break;
            case 6: t->hidden++; break;
            case 7: t->heads++; break;
            case 8: t->kv_heads++; break;
            case 9: t->ffn++; break;
            case 10: t->vocab++; break;
            case 11: t->optimizer = t->optimizer == optimizers[0] ? optimizers[1] : optimizers[0]; break;
            default: t->type = t->type == PT_F32 ? PT_BF16 : PT_F32; break;
            }
            assert_int_equal(plan_validate(&p, c.model, &c.shape, &c.packing, false, &e), PT_FAILED);
            assert_non_null(strstr(e.text, keys[what]));
            p.made_for = right;
        }
        assert_int_equal(plan_validate(&p, c.model, &c.shape, &c.packing, false, &e), 0);
        plan_target *t = &p.made_for; /* an older file */
        t->hidden = t->heads = t->kv_heads = t->ffn = t->vocab = 0;
        assert_int_equal(plan_validate(&p, c.model, &c.shape, &c.packing, false, &e), 0);
        plan_free(&p);
        random_case_close(&c);
    }
}

/* Matmuls have other bits on a GPU than on its host: what multiplies them is updated in one place. */
static void a_gpu_updates_matrices_that_are_multiplied(void **state)
{
    (void)state;
    random_source all = random_open();
    int refused = 0, taken = 0;
    for (uint64_t i = 0; i < 200; i++) {
        random_source r = random_fork(&all, i);
        random_case c;
        pt_error e = {0};
        if (random_case_open(&r, &c, &e))
            fail_msg("%s", e.text);
        const int k = random_below(&r, c.plan.chunks_n);
        c.plan.chunks[k] = (plan_chunk){.placement = TIER_HOST, .update = TIER_HOST};
        c.plan.n_buffer = c.plan.n_update = 4;
        const bool other_bits = c.shape.gpu && c.packing.chunks[k].by_device;
        char named[64];
        assert_true(!other_bits || optimizer_is_by_device(shape_optimizer(&c.shape)));
        snprintf(named, sizeof named, "`optimizer` %s", shape_optimizer(&c.shape)->name);
        const int failed = plan_validate(&c.plan, c.model, &c.shape, &c.packing, c.clipping, &e);
        assert_int_equal(failed, other_bits ? PT_FAILED : 0);
        if (failed)
            assert_non_null(strstr(e.text, named));
        refused += failed != 0;
        taken += !failed;
        random_case_close(&c);
    }
    assert_true(refused > 0 && taken > 0);
}

static void impossible_plans_are_refused_by_key(void **state)
{
    (void)state;
    random_source all = random_open();
    static const char *const keys[] = {"chunk_bytes", "chunks", "blocks", "micro_batch", "micro_batch", "visit",  "visit",
                                       "clipping",    "update", "home",   "n_buffer",    "n_update",    "n_swap", "sharded", "ranges",
                                       "n_swap"};
    for (uint64_t i = 0; i < 100; i++)
        for (int what = 0; what < (int)(sizeof keys / sizeof *keys); what++) {
            random_source r = random_fork(&all, i);
            random_case c;
            pt_error e = {0};
            if (random_case_open(&r, &c, &e))
                fail_msg("%s", e.text);
            plan *p = &c.plan;
            p->update = UPDATE_END;
            switch (what) {
            case 0: p->chunk_bytes++; break;
            case 1: p->chunks_n--; break;
            case 2: p->blocks_n--; break;
            case 3: p->micro_batch = random_one_in(&r, 2) ? 0 : -c.shape.unit_seqs; break;
            case 4: p->micro_batch = c.shape.batch + c.shape.unit_seqs; break;
            case 5: p->visit = -random_below(&r, 2); break;
            case 6: p->visit = (int)c.shape.units_n + 1; break;
            case 7: p->update = UPDATE_BACKWARD; break;
            case 8: p->chunks[random_below(&r, p->chunks_n)] = (plan_chunk){.placement = TIER_DEVICE, .update = TIER_HOST}; break;
            case 9: p->chunks[random_below(&r, p->chunks_n)].placement = TIERS; break;
            case 10: p->chunks[0].placement = TIER_DISK; p->n_buffer = 0; break;
            case 11: p->chunks[0].placement = TIER_DISK; p->n_update = 0; break;
            case 12: p->blocks[0].place = TIER_DISK; p->n_swap = 0; break;
            case 13: p->chunks[random_below(&r, p->chunks_n)].sharded = true; break;
            case 14: p->ranges = true; break;
            default: p->n_swap = INT32_MAX; break;
            }
            const bool has_sense = what == 14 && packing_cuts_experts(&c.packing, c.model);
            if (!has_sense && (!plan_validate(p, c.model, &c.shape, &c.packing, true, &e) || !strstr(e.text, keys[what])))
                fail_msg("damage %d: '%s' does not name %s", what, e.text, keys[what]);
            random_case_close(&c);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_written_plan_reads_back_the_same_and_is_valid),
        cmocka_unit_test(equal_neighbours_are_written_once),
        cmocka_unit_test(an_older_level_is_the_highest),
        cmocka_unit_test(lies_are_refused_with_file_key_and_mend),
        cmocka_unit_test(a_missing_file_is_refused_by_name),
        cmocka_unit_test(a_file_is_read_as_text_is),
        cmocka_unit_test(a_plan_for_something_else_is_refused),
        cmocka_unit_test(a_gpu_updates_matrices_that_are_multiplied),
        cmocka_unit_test(impossible_plans_are_refused_by_key),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
