/* The ways to cut a step into micro-batches and visits that a search tries: all of them, or both ends of them and some in between. */
#include "search/space.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { UNITS = 5000, UNIT_SEQS = 3, MOST_WAYS = 4096 };

static const char json[] =
    "{\"model_type\": \"gpt2\", \"n_embd\": 8, \"n_layer\": 1, \"n_head\": 1, \"n_positions\": 8, \"vocab_size\": 11}";

typedef struct fixture {
    model *model;
    step_shape shape;
    costs costs;
    search_input in;
} fixture;

static int open_fixture(void **state)
{
    pt_error e = {0};
    fixture *f = calloc(1, sizeof *f);
    if (!f || model_from_json("config.json", json, strlen(json), NULL, NULL, &f->model, &e))
        return -1;
    step_shape_init(&f->shape, f->model, PT_F32, UNIT_SEQS, 1);
    f->shape.unit_seqs = f->shape.unit_rows = UNIT_SEQS;
    costs_init(&f->costs);
    f->in = (search_input){.model = f->model, .shape = &f->shape, .costs = &f->costs, .budget = {1 << 30}, .training = true};
    *state = f;
    return 0;
}

static int close_fixture(void **state)
{
    fixture *f = *state;
    model_close(f->model);
    free(f);
    return 0;
}

/* The space of a step of so many units, of which only the splits stay. */
static void open_splits(fixture *f, int64_t units, int64_t micro_batch, space *s)
{
    pt_error e = {0};
    f->shape.units_n = units;
    f->shape.batch = units * UNIT_SEQS;
    f->in.micro_batch = micro_batch;
    if (space_open(s, &f->in, &e))
        fail_msg("%lld units: %s", (long long)units, e.text);
    space_close(s);
}

/* All of them, by trying every number, from the largest micro-batch and visit to the smallest; how many. */
static int list_ways(const fixture *f, split out[MOST_WAYS])
{
    int n = 0;
    for (int64_t units = f->shape.units_n; units > 0; units--) {
        if (f->shape.units_n % units || (f->in.micro_batch && f->in.micro_batch != units * UNIT_SEQS))
            continue;
        for (int64_t micros = f->shape.units_n / units, visit = micros; visit > 0; visit--)
            if (micros % visit == 0 && (visit == 1 || f->in.training)) {
                assert_true(n < MOST_WAYS);
                out[n++] = (split){units * UNIT_SEQS, (int)visit};
            }
    }
    return n;
}

static bool same(const split *a, const split *b) { return a->micro_batch == b->micro_batch && a->visit == b->visit; }

static bool contains(const space *s, int64_t micro_batch, int visit)
{
    for (int i = 0; i < s->splits_n; i++)
        if (same(&s->splits[i], &(split){micro_batch, visit}))
            return true;
    return false;
}

/* Some of the ways, in their order. */
static void check_order(const space *s, const split *ways, int n)
{
    int at = 0;
    for (int i = 0; i < s->splits_n; i++, at++) {
        while (at < n && !same(&s->splits[i], &ways[at]))
            at++;
        if (at >= n)
            fail_msg("split %d, micro-batches of %lld and visits of %d, is none or stands in the wrong place", i,
                     (long long)s->splits[i].micro_batch, s->splits[i].visit);
    }
}

/* Each size that is there is visited all at once and one by one. */
static void check_ends(const fixture *f, const space *s)
{
    const int64_t largest = f->in.micro_batch ? f->in.micro_batch : f->shape.batch;
    const int64_t smallest = f->in.micro_batch ? f->in.micro_batch : UNIT_SEQS;
    assert_int_equal(s->splits[0].micro_batch, largest);
    assert_true(same(&s->splits[s->splits_n - 1], &(split){smallest, 1})); /* what a candidate begins with */
    for (int i = 0; i < s->splits_n; i++) {
        const int64_t micro = s->splits[i].micro_batch;
        assert_true(contains(s, micro, 1));
        assert_true(!f->in.training || contains(s, micro, (int)(f->shape.batch / micro)));
    }
}

static void check_splits(fixture *f, int64_t units, int64_t micro_batch)
{
    static split ways[MOST_WAYS];
    static space s;
    candidate r;
    open_splits(f, units, micro_batch, &s);
    const int n = list_ways(f, ways);
    assert_in_range(s.splits_n, 1, SPACE_SPLITS);
    if (n <= SPACE_SPLITS && s.splits_n != n)
        fail_msg("%lld units, micro-batches of %lld: %d of %d ways", (long long)units, (long long)micro_batch, s.splits_n, n);
    check_order(&s, ways, n);
    check_ends(f, &s);
    s.chunkings_n = 1; /* of which nothing is left */
    candidate_init(&s, &r, 0);
    assert_true(r.micro_batch == (micro_batch ? micro_batch : UNIT_SEQS) && r.visit == 1);
}

/* The largest have hundreds of sizes. */
static const int64_t many[] = {5040, 10080, 45360, 50400, 55440, 65536, 65537, 83160, 98280};
enum { MANY = sizeof many / sizeof *many };

static void a_step_is_cut_in_all_ways_or_in_both_ends_of_them(void **state)
{
    fixture *f = *state;
    for (int64_t units = 1; units <= UNITS; units++)
        check_splits(f, units, 0);
    for (int i = 0; i < MANY; i++)
        check_splits(f, many[i], 0);
}

static void micro_batches_that_are_asked_for_are_visited_in_all_ways(void **state)
{
    fixture *f = *state;
    for (int64_t units = 1; units <= UNITS; units++)
        for (int64_t micro = units; micro > 0; micro = micro > 64 ? micro / 2 : micro - 1)
            if (units % micro == 0)
                check_splits(f, units, micro * UNIT_SEQS);
    for (int i = 0; i < MANY; i++)
        check_splits(f, many[i], UNIT_SEQS);
}

static void what_does_not_train_visits_one_by_one(void **state)
{
    fixture *f = *state;
    f->in.training = false;
    for (int64_t units = 1; units <= UNITS; units += units < 100 ? 1 : 20)
        check_splits(f, units, 0);
    for (int i = 0; i < MANY; i++)
        check_splits(f, many[i], 0);
    f->in.training = true;
}

static void micro_batches_that_do_not_divide_the_step_are_refused(void **state)
{
    fixture *f = *state;
    space s;
    pt_error e = {0};
    f->shape.units_n = 10;
    f->shape.batch = 10 * UNIT_SEQS;
    f->in.micro_batch = 4 * UNIT_SEQS;
    assert_int_equal(space_open(&s, &f->in, &e), PT_FAILED);
    assert_non_null(strstr(e.text, "no micro-batch of 12 sequences divides the batch of 30 in units of 3"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_is_cut_in_all_ways_or_in_both_ends_of_them),
        cmocka_unit_test(micro_batches_that_are_asked_for_are_visited_in_all_ways),
        cmocka_unit_test(what_does_not_train_visits_one_by_one),
        cmocka_unit_test(micro_batches_that_do_not_divide_the_step_are_refused),
    };
    return cmocka_run_group_tests(tests, open_fixture, close_fixture);
}
