/* The rows of a table that tokens touch: all of them, each in one run, and no others. */
#include "run/touched.h"

#include "comm/comm.h"
#include "random_plan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { RANKS = 3, CASES = 300 };

/* The other ranks have told of theirs already. */
static int keep(comm *c, const comm_move *moves, int n, pt_error *e)
{
    for (int i = 0; i < n; i++)
        assert_int_equal(moves[i].send_bytes, moves[i].receive_bytes);
    return 0;
}

static void every_touched_row_is_in_one_run(void **state)
{
    (void)state;
    static const comm_table table = {.exchange = keep};
    random_source r = random_open();
    for (int k = 0; k < CASES; k++) {
        comm c = {&table, random_below(&r, RANKS), RANKS, 0};
        touched_rows t = {.vocab = random_from(&r, 1, 400)};
        t.words = (t.vocab + 63) / 64;
        t.bits = calloc((size_t)(RANKS * t.words), sizeof *t.bits);
        unsigned char *used = calloc((size_t)t.vocab, 1), *seen = calloc((size_t)t.vocab, 1);
        int32_t ids[300];
        pt_error e = {0};
        for (int step = 0; step < 2; step++) { /* rows of the step before are forgotten */
            const int n = random_from(&r, 1, 300);
            const int64_t row0 = random_below(&r, (int)t.vocab), end = random_from(&r, (int)row0, (int)t.vocab);
            memset(used, 0, (size_t)t.vocab);
            memset(seen, 0, (size_t)t.vocab);
            for (int i = 0; i < n; i++)
                used[ids[i] = random_one_in(&r, 3) && i ? (ids[i - 1] + 1) % (int)t.vocab : random_below(&r, (int)t.vocab)] = 1;
            assert_int_equal(touched_share(&t, &c, ids, n, &e), 0);
            int64_t first, rows, before = -1;
            for (int64_t at = row0; touched_next(&t, c.rank, at, end, &first, &rows); at = first + rows) {
                assert_true(first > before && rows > 0 && first >= row0 && first + rows <= end);
                before = first + rows;
                memset(seen + first, 1, (size_t)rows);
            }
            for (int64_t i = 0; i < t.vocab; i++)
                assert_int_equal(seen[i], used[i] && i >= row0 && i < end);
        }
        free(used);
        free(seen);
        touched_close(&t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_touched_row_is_in_one_run)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
