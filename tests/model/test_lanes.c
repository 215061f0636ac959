/* The tree of lanes: each unit is in it once, neighbours are added to neighbours, few accumulators are needed; and ranks that own
 * whole subtrees get, from the sums of each, the tree of one that owns all. */
#include "model/lanes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { LANES = 64, TEXT = 16 * LANES };

/* The tree in words: "((0+1)+2)", of leaves that are texts themselves. */
static void tree_text(int lanes, char (*leaf)[TEXT], char out[TEXT])
{
    static char plane[16][TEXT], sum[3 * TEXT];
    for (int i = 0; i < lanes; i++) {
        const lane_place p = lane_place_of(lanes, i);
        assert_true(p.plane < lane_planes(lanes) && p.merges <= p.plane);
        strcpy(plane[p.plane], leaf[i]);
        for (int k = p.plane; k > p.plane - p.merges; k--) {
            snprintf(sum, sizeof sum, "(%s+%s)", plane[k - 1], plane[k]);
            assert_true(strlen(sum) < TEXT);
            strcpy(plane[k - 1], sum);
        }
    }
    strcpy(out, plane[0]);
}

static void number_leaves(int first, int n, char (*leaf)[TEXT])
{
    for (int i = 0; i < n; i++)
        snprintf(leaf[i], TEXT, "%d", first + i);
}

static void every_lane_is_in_the_tree_once_and_in_order(void **unused)
{
    (void)unused;
    static char leaf[LANES][TEXT], tree[TEXT];
    for (int lanes = 1; lanes <= LANES; lanes++) {
        number_leaves(0, lanes, leaf);
        tree_text(lanes, leaf, tree);
        int next = 0;
        for (char *at = tree; *at;)
            if (*at >= '0' && *at <= '9')
                assert_int_equal(strtol(at, &at, 10), next++);
            else
                at++;
        assert_int_equal(next, lanes);
        assert_true(lane_planes(lanes) <= 1 + 31 - __builtin_clz((unsigned)lanes) + (lanes & (lanes - 1) ? 1 : 0));
    }
    number_leaves(0, 6, leaf);
    tree_text(6, leaf, tree);
    assert_string_equal(tree, "(((0+1)+(2+3))+(4+5))");
}

static void ranks_with_whole_subtrees_make_the_tree_of_one(void **unused)
{
    (void)unused;
    static char leaf[LANES][TEXT], of_rank[LANES][TEXT], one[TEXT], all[TEXT];
    int cases = 0;
    for (int lanes = 1; lanes <= LANES; lanes++)
        for (int each = 1; each <= lanes; each *= 2) {
            if (lanes % each)
                continue;
            for (int r = 0; r < lanes / each; r++) {
                number_leaves(r * each, each, leaf);
                tree_text(each, leaf, of_rank[r]);
            }
            tree_text(lanes / each, of_rank, all);
            number_leaves(0, lanes, leaf);
            tree_text(lanes, leaf, one);
            assert_string_equal(one, all);
            cases++;
        }
    assert_true(cases > LANES);
}

static void units_of_a_lane_follow_each_other(void **unused)
{
    (void)unused;
    for (int lanes = 1; lanes <= 12; lanes++)
        for (int each = 1; each <= 3; each++) {
            const step_shape s = {.units_n = lanes * each, .lanes = lanes};
            int merges = 0;
            for (int64_t unit = 0; unit < s.units_n; unit++) {
                const lane_place p = lane_place_of_unit(&s, unit), lane = lane_place_of(lanes, (int)(unit / each));
                assert_int_equal(p.plane, lane.plane);
                assert_true(p.first == (unit % each == 0));
                assert_int_equal(p.merges, unit % each == each - 1 ? lane.merges : 0);
                merges += p.merges;
            }
            assert_int_equal(merges, lanes - 1);
        }
}

static void losses_are_added_as_gradients_are(void **unused)
{
    (void)unused;
    const float v[] = {0x1p30f, 1, -0x1p30f, 1, 0x1p-20f, 3, 5, 7};
    double one = 0;
    for (int i = 0; i < 8; i++)
        one += (double)v[i];
    assert_true(lane_sum(1, v, NULL, 8) == one);
    const double half[] = {(double)v[0] + (double)v[1] + (double)v[2] + (double)v[3],
                           (double)v[4] + (double)v[5] + (double)v[6] + (double)v[7]};
    assert_true(lane_sum(2, v, NULL, 8) == half[0] + half[1]);
    const double third[] = {1e300, -1e300, 1};
    assert_true(lane_tree(3, third) == 1);
}

static void lanes_that_divide_neither_steps_nor_sequences_are_refused(void **unused)
{
    (void)unused;
    pt_error e;
    assert_int_equal(lanes_check(3, "lanes", 8, 16, &e), PT_USAGE);
    assert_non_null(strstr(e.text, "`lanes` 3"));
    assert_non_null(strstr(e.text, "give `lanes` 2, or `batch_size` 6 or 9"));
    assert_int_equal(lanes_check(9, "ranks", 8, 16, &e), PT_USAGE);
    assert_non_null(strstr(e.text, "give `ranks` 8, or `batch_size` 9"));
    assert_int_equal(lanes_check(6, "lanes", 2, 16, &e), PT_USAGE); /* three parts */
    assert_int_equal(lanes_check(8, "lanes", 1, 20, &e), PT_USAGE); /* 20 tokens in eight parts */
    for (int lanes = 0; lanes <= 64; lanes += lanes < 2 ? 1 : lanes)
        assert_int_equal(lanes_check(lanes, "lanes", 8, 16, &e), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_lane_is_in_the_tree_once_and_in_order), cmocka_unit_test(ranks_with_whole_subtrees_make_the_tree_of_one),
        cmocka_unit_test(units_of_a_lane_follow_each_other), cmocka_unit_test(losses_are_added_as_gradients_are),
        cmocka_unit_test(lanes_that_divide_neither_steps_nor_sequences_are_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
