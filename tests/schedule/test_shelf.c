/* Regions lie at the lowest address where they overlap none that came before, as all of them looked at one by one say. */
#include "random_plan.h"
#include "schedule/shelf.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

static bool overlap(const region *a, const region *b)
{
    return a->first <= b->last && b->first <= a->last && a->offset < b->offset + b->bytes && b->offset < a->offset + a->bytes;
}

/* Of the places at the base and behind each region that is there. */
static uint64_t lowest(const region *all, int n, region r, uint64_t base)
{
    uint64_t best = UINT64_MAX;
    for (int k = -1; k < n; k++) {
        bool is_free = true;
        r.offset = k < 0 ? base : all[k].offset + all[k].bytes;
        if (r.offset < base || r.offset >= best)
            continue;
        for (int i = 0; i < n && is_free; i++)
            is_free = !overlap(&all[i], &r);
        best = is_free ? r.offset : best;
    }
    return best;
}

/* The same few sizes again and again, as in a step of many micro-batches, and some that last. */
static void draw(random_source *r, int tasks, int n, region *all)
{
    const int sizes = random_from(r, 1, 5), most_life = random_from(r, 1, 60), lasting = random_from(r, 0, 40);
    for (int i = 0; i < n; i++) {
        const int life = random_below(r, 100) < lasting ? random_below(r, tasks) : random_below(r, most_life);
        all[i] = (region){.bytes = 4096 * (uint64_t)random_from(r, 1, sizes), .first = random_below(r, tasks)};
        all[i].last = all[i].first + life < tasks ? all[i].first + life : tasks - 1;
    }
}

static void addresses_are_those_of_a_plain_search(void **state)
{
    (void)state;
    enum { MOST = 1500 };
    random_source all = random_open();
    region *regions = malloc(MOST * sizeof *regions);
    assert_non_null(regions);
    int listed = 0, drawn = 0;
    for (uint64_t i = 0; drawn < 12 || ((!listed || listed == drawn) && drawn < 100); i++, drawn++) { /* until there are both kinds */
        random_source r = random_fork(&all, i);
        const int tasks = random_from(&r, 500, 3000), n = random_one_in(&r, 3) ? random_from(&r, 1, 300) : MOST;
        const uint64_t base = 4096 * (uint64_t)random_below(&r, 3);
        shelf k;
        pt_error e = {0};
        draw(&r, tasks, n, regions);
        assert_int_equal(shelf_open(&k, tasks, regions, n, n, &e), 0);
        listed += k.width > 0;
        for (int j = 0; j < n; j++) {
            regions[j].offset = shelf_find(&k, &regions[j], base);
            assert_int_equal(regions[j].offset, lowest(regions, j, regions[j], base));
            assert_int_equal(shelf_add(&k, &regions[j], &e), 0);
        }
        shelf_close(&k);
    }
    free(regions);
    assert_true(listed > 0 && listed < drawn);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(addresses_are_those_of_a_plain_search)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
