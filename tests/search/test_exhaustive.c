/* The search against all plans: on models so small that every plan of the space can be built and simulated, what is found takes at
 * most 1% longer than the best there is (of 240 models the worst was 0.08%).
 *
 * The plans of a candidate keep the first chunks on the device and the next on the host (space.h). So that this is no assumption,
 * the numbers of the best of them are also tried with every chunk at every placement of two tiers, updated at every place: what is
 * found is within 5% of those.
 *
 * PT_EXHAUSTIVE_CASES=n looks at n models, default 5 and 3; PT_VERBOSE=1 prints each. */
#include "search/show.h"

#include "sanitized.h"
#include "search/space.h"

enum { CHUNKS = SANITIZED ? 3 : 4 };

/* Two layers, few chunks, few micro-batches: some ten thousand plans. `more`: whatever a step depends on is drawn. */
static void small_problem(random_source *r, bool more, problem *p)
{
    for (bool small = false; !small;) {
        problem_open(r, random_from(r, 1, 2), p);
        p->in.effort = 1000; /* it comes to its end */
        small = p->in.training && p->shape.units_n <= 4;
        if (!small)
            model_close(p->model);
    }
    if (p->in.host_tier && random_one_in(r, 2))
        p->in.host_tier = false;
    if (p->in.host_tier)
        p->in.budget[TIER_DISK] = 0;
    else
        p->in.budget[TIER_HOST] = 0;
    if (more)
        problem_more(r, p);
}

typedef struct brute { space s; double best; priced fastest; long tried; } brute;

static void price_one(brute *b, const candidate *r)
{
    pt_error e = {0};
    plan p;
    priced one;
    candidate x = *r;
    candidate_normalise(&b->s, &x);
    if (candidate_hash(&b->s, &x) != candidate_hash(&b->s, r))
        return; /* equal to another one */
    if (candidate_plan(&b->s, r, &p, &e))
        fail_msg("%s", e.text);
    int fits = price_plan(b->s.in, &b->s.chunkings[r->chunking].packing, &p, b->s.budget, b->best, &one, &e);
    plan_free(&p);
    if (fits < 0)
        fail_msg("%s", e.text);
    b->tried++;
    if (fits) {
        b->best = one.step_ns;
        b->fastest = one;
        b->fastest.candidate = *r;
    }
}

/* All slots, strides and times of update for given placements and layers. */
static void all_numbers(brute *b, candidate r)
{
    int chunks = candidate_chunks(&b->s, &r), most_swap = r.visit + 3;
    for (r.n_buffer = b->s.chunkings[r.chunking].at_once; r.n_buffer <= chunks; r.n_buffer++)
        for (r.n_update = 1; r.n_update <= 3; r.n_update++)
            for (r.n_swap = 2; r.n_swap <= most_swap; r.n_swap++)
                for (r.stride = 0; r.stride <= 3; r.stride++)
                    for (update_time u = search_first_update(b->s.in); u <= UPDATE_END; u++) {
                        if (!search_may_update(b->s.in, u))
                            continue;
                        r.update = u;
                        price_one(b, &r);
                    }
}

static void all_placements(brute *b, candidate r)
{
    int chunks = candidate_chunks(&b->s, &r);
    for (r.persist = 0; r.persist <= chunks; r.persist++)
        for (r.on_host = 0; r.persist + r.on_host <= chunks; r.on_host++)
            if (b->s.budget[TIER_DISK] || r.persist + r.on_host == chunks)
                all_numbers(b, r);
}

static void all_blocks(brute *b, candidate r, int layer)
{
    if (layer == b->s.layers) {
        all_placements(b, r);
        return;
    }
    for (save_level level = 0; level < SAVE_LEVELS; level++)
        for (tier place = TIER_DEVICE; place <= TIER_DISK; place++)
            if (space_has(&b->s, place)) {
                candidate_blocks(&b->s, &r, layer, layer + 1, level, place);
                all_blocks(b, r, layer + 1);
            }
}

/* Every plan of few chunks; where memory suffices the disk is not looked at. */
static void all_plans(brute *b, const problem *p, bool disk)
{
    pt_error e = {0};
    memset(b, 0, sizeof *b);
    if (space_open(&b->s, &p->in, &e))
        fail_msg("%s", e.text);
    if (!disk)
        b->s.budget[TIER_DISK] = 0;
    for (int g = 0; g < b->s.chunkings_n; g++)
        for (int k = 0; k < b->s.splits_n && b->s.chunkings[g].packing.chunks_n <= CHUNKS; k++) {
            candidate start;
            candidate_init(&b->s, &start, g);
            start.micro_batch = b->s.splits[k].micro_batch;
            start.visit = b->s.splits[k].visit;
            all_blocks(b, start, 0);
        }
}

/* As small_problem, of one layer with a host and a disk, and so little on the host that both are of use now and then. */
static void three_tier_problem(random_source *r, problem *p)
{
    for (bool small = false; !small;) {
        problem_open(r, 1, p);
        p->in.effort = 1000;
        small = p->in.training && p->in.host_tier && p->in.budget[TIER_DISK] && p->shape.units_n <= 2;
        if (!small)
            model_close(p->model);
    }
    p->in.budget[TIER_HOST] = p->in.budget[TIER_HOST] / 8 * (uint64_t)random_from(r, 2, 7);
    problem_more(r, p);
}

/* The best plan's numbers with every placement and place of update for each chunk, in whatever order. */
static double any_placements(brute *b)
{
    static const plan_chunk with_host[] = {
        {TIER_DEVICE, TIER_DEVICE, false}, {TIER_HOST, TIER_HOST, false}, {TIER_HOST, TIER_DEVICE, false}};
    static const plan_chunk with_disk[] = {{TIER_DEVICE, TIER_DEVICE, false}, {TIER_DISK, TIER_DEVICE, false}};
    static const plan_chunk with_both[] = {
        {TIER_DEVICE, TIER_DEVICE, false}, {TIER_HOST, TIER_HOST, false}, {TIER_HOST, TIER_DEVICE, false},
        {TIER_DISK, TIER_HOST, false}, {TIER_DISK, TIER_DEVICE, false}};
    const bool host = b->s.in->host_tier, both = host && b->s.budget[TIER_DISK];
    const plan_chunk *choice = both ? with_both : host ? with_host : with_disk;
    const int choices = both ? 5 : host ? 3 : 2;
    const packing *k = &b->s.chunkings[b->fastest.candidate.chunking].packing;
    double best = b->best;
    pt_error e = {0};
    plan p;
    priced one;
    int all = 1;
    for (int i = 0; i < k->chunks_n; i++)
        all *= choices;
    if (candidate_plan(&b->s, &b->fastest.candidate, &p, &e))
        fail_msg("%s", e.text);
    for (int number = 0; number < all; number++) {
        for (int i = 0, left = number; i < k->chunks_n; i++, left /= choices)
            p.chunks[i] = choice[left % choices];
        int fits = price_plan(b->s.in, k, &p, b->s.budget, best, &one, &e);
        if (fits < 0)
            fail_msg("%s", e.text);
        if (fits && getenv("PT_VERBOSE") && one.step_ns * 1.01 < b->best)
            show("order", &p, one.bytes);
        best = fits ? one.step_ns : best;
    }
    plan_free(&p);
    return best;
}

static void show_both(const brute *b, const search_result *x)
{
    pt_error e = {0};
    plan best;
    if (candidate_plan(&b->s, &b->fastest.candidate, &best, &e))
        fail_msg("%s", e.text);
    print_message("    budget %llu %llu %llu\n", (unsigned long long)b->s.budget[0], (unsigned long long)b->s.budget[1],
                  (unsigned long long)b->s.budget[2]);
    show("best", &best, b->fastest.bytes);
    show("found", &x->best.plan, x->best.bytes);
    plan_free(&best);
}

/* How many times as long as the best there is what is found takes; 0: too few plans, or none of so few chunks fits. */
static double compare_problem(problem *p, uint64_t number, long *plans, double *out_of_order)
{
    static brute b;
    search_result x;
    pt_error e = {0};
    double ratio = 0;
    if (!search_plan(&p->in, &x, &e)) {
        all_plans(&b, p, x.best.bytes[TIER_DISK] > 0);
        if (b.tried >= 1000 && b.best > 0) {
            ratio = x.best.step_ns / b.best;
            *out_of_order = x.best.step_ns / any_placements(&b);
            *plans += b.tried;
            if (getenv("PT_VERBOSE") || ratio > 1.01 || *out_of_order > 1.01)
                print_message("case %llu: %ld plans, best %g, found %g after %d, %.2f s (%.4f; placements in any order %.4f)\n",
                              (unsigned long long)number, b.tried, b.best, x.best.step_ns, x.tried, x.seconds, ratio, *out_of_order);
            if (ratio > 1.01 || *out_of_order > 1.01)
                show_both(&b, &x);
        }
        space_close(&b.s);
    }
    search_result_free(&x);
    model_close(p->model);
    return ratio;
}

static double compare(random_source *r, bool more, uint64_t number, long *plans, double *out_of_order)
{
    problem p;
    small_problem(r, more, &p);
    return compare_problem(&p, number, plans, out_of_order);
}

static void what_is_found_is_within_one_percent_of_the_best_of_all_plans(void **state)
{
    (void)state;
    random_source all = random_open();
    const char *given = getenv("PT_EXHAUSTIVE_CASES");
    double worst = 1, worst_placements = 1;
    int cases = 0, exact = 0, wanted = given ? atoi(given) : SANITIZED ? 1 : 5;
    long plans = 0;
    for (uint64_t i = 0; cases < wanted; i++) {
        random_source r = random_fork(&all, i);
        double placements = 0, ratio = compare(&r, true, i, &plans, &placements);
        worst_placements = placements > worst_placements ? placements : worst_placements;
        worst = ratio > worst ? ratio : worst;
        cases += ratio > 0;
        exact += ratio > 0 && ratio < 1.0001;
    }
    print_message("%d cases, %ld plans; worst %.4f, exact %d; beside placements in any order %.4f\n", cases, plans, worst, exact,
                  worst_placements);
    assert_true(worst <= 1.01);
    assert_true(worst_placements <= 1.05); /* of 240 models the worst was 1.019 */
}

/* Beside all candidates, and all placements with the best one's numbers. That is not every plan: test_every_plan.c looks at those. */
static void candidates_with_a_host_and_a_disk_are_searched_within_one_percent(void **state)
{
    (void)state;
    random_source all = random_open();
    const char *given = getenv("PT_EXHAUSTIVE_CASES");
    double worst = 1, worst_placements = 1;
    int cases = 0, wanted = given ? atoi(given) : SANITIZED ? 1 : 3;
    long plans = 0;
    for (uint64_t i = 0; cases < wanted; i++) {
        random_source r = random_fork(&all, i);
        problem p;
        three_tier_problem(&r, &p);
        double placements = 0, ratio = compare_problem(&p, i, &plans, &placements);
        worst_placements = placements > worst_placements ? placements : worst_placements;
        worst = ratio > worst ? ratio : worst;
        cases += ratio > 0;
    }
    print_message("%d cases of three tiers, %ld plans; worst %.4f; beside placements in any order %.4f\n", cases, plans, worst,
                  worst_placements);
    assert_true(worst <= 1.01);
    assert_true(worst_placements <= 1.05);
}

/* Another than the last chunks leaves the device: no candidate says so. By the first chunks on the device alone a step takes 18% longer. */
static void placements_out_of_order_are_found(void **state)
{
    (void)state;
    NOT_SANITIZED();
    const random_source fixed = {1, 0};
    random_source r = random_fork(&fixed, 49);
    double placements = 0, ratio = compare(&r, false, 49, &(long){0}, &placements);
    assert_true(ratio > 0 && ratio < 0.9); /* beside the best of all candidates of so few chunks */
    assert_true(placements <= 1.01);
}

/* ---- of models that have too many plans for all to be tried ---- */

/* A plan in the digits that show() prints: placement and place of update of each chunk, level and place of each layer. */
typedef struct known {
    int64_t chunk_kib;
    int n_buffer, n_update, n_swap, visit;
    int64_t micro_batch;
    update_time update;
    const char *chunks, *layers;
} known;

/* Its time. A tier that it does not fit into gets as much as it needs. */
static double known_ns(problem *p, const known *k)
{
    static const uint64_t unlimited[TIERS] = {UINT64_MAX / 2, UINT64_MAX / 2, UINT64_MAX / 2};
    space s = {0};
    candidate r;
    plan x;
    priced one;
    pt_error e = {0};
    if (space_open(&s, &p->in, &e))
        fail_msg("%s", e.text);
    int chunking = 0;
    while (chunking < s.chunkings_n && s.chunkings[chunking].packing.chunk_bytes >> 10 != k->chunk_kib)
        chunking++;
    assert_true(chunking < s.chunkings_n);
    candidate_init(&s, &r, chunking);
    for (int i = 0; i < s.layers; i++)
        candidate_blocks(&s, &r, i, i + 1, (save_level)(k->layers[2 * i] - '0'), (tier)(k->layers[2 * i + 1] - '0'));
    r.n_buffer = k->n_buffer;
    r.n_update = k->n_update;
    r.n_swap = k->n_swap;
    r.micro_batch = k->micro_batch;
    r.visit = k->visit;
    r.update = k->update;
    assert_int_equal(candidate_plan(&s, &r, &x, &e), 0);
    assert_int_equal(strlen(k->chunks), 2 * x.chunks_n);
    for (int i = 0; i < x.chunks_n; i++)
        x.chunks[i] = (plan_chunk){.placement = (tier)(k->chunks[2 * i] - '0'), .update = (tier)(k->chunks[2 * i + 1] - '0')};
    assert_int_equal(price_plan(&p->in, &s.chunkings[chunking].packing, &x, unlimited, 0, &one, &e), 1);
    for (int t = 0; t < TIERS; t++)
        p->in.budget[t] = one.bytes[t] > p->in.budget[t] ? one.bytes[t] : p->in.budget[t];
    plan_free(&x);
    space_close(&s);
    return one.step_ns;
}

static void assert_found(uint64_t seed, uint64_t number, const known *k)
{
    const random_source fixed = {seed, 0};
    random_source r = random_fork(&fixed, number);
    problem p;
    search_result x;
    pt_error e = {0};
    small_problem(&r, false, &p);
    const double ns = known_ns(&p, k);
    if (search_plan(&p.in, &x, &e))
        fail_msg("%s", e.text);
    if (x.best.step_ns > ns * 1.001)
        fail_msg("%g ns instead of %g", x.best.step_ns, ns);
    search_result_free(&x);
    model_close(p.model);
}

/* The best plan fills all of the device: nothing that estimates say fits leads to it, only what the most economical plan is made of
 * does. Without that a step takes 2% longer. */
static void a_plan_that_fills_memory_to_the_brim_is_found(void **state)
{
    (void)state;
    NOT_SANITIZED();
    const known k = {.chunk_kib = 1152, .n_buffer = 13, .n_update = 5, .n_swap = 4, .visit = 2, .micro_batch = 4,
                     .update = UPDATE_NEXT_FORWARD, .chunks = "00111111111111111111111111", .layers = "0101"};
    assert_found(63, 129, &k);
}

/* Fewer chunks stay on the device than are thought to fit, for the host updates the others meanwhile: to the best plan only a walk from
 * there leads. From as many as fit, and by what walks lead to alone, a step takes 2.7% longer. */
static void chunks_stay_away_for_what_the_host_updates(void **state)
{
    (void)state;
    NOT_SANITIZED();
    const known k = {.chunk_kib = 1024, .n_buffer = 14, .n_update = 4, .n_swap = 2, .visit = 1, .micro_batch = 1,
                     .update = UPDATE_NEXT_FORWARD, .chunks = "0000001111001100111111111111", .layers = "20"};
    assert_found(43, 7, &k);
}

/* There are too many chunks for every arrangement to be tried. Where none leaves its place to several a step takes 8% longer. */
static void one_chunk_leaves_its_place_to_several(void **state)
{
    (void)state;
    NOT_SANITIZED();
    const known k = {.chunk_kib = 1024, .n_buffer = 8, .n_update = 2, .n_swap = 2, .visit = 1, .micro_batch = 1,
                     .update = UPDATE_NEXT_FORWARD, .chunks = "202020002000000000000000000000002000202020", .layers = "0000"};
    assert_found(13, 435, &k);
}

/* Both layers' inputs leave the device, of three micro-batches a visit and with two slots more, while all of the layers' chunks but a tiny
 * one are on the disk: what no walk leads to. Without it a step takes 11% longer. */
static void inputs_leave_for_a_chunk_to_stay(void **state)
{
    (void)state;
    NOT_SANITIZED();
    const known k = {.chunk_kib = 288, .n_buffer = 5, .n_update = 4, .n_swap = 4, .visit = 3, .micro_batch = 1,
                     .update = UPDATE_END, .chunks = "000020202020202020202020", .layers = "0202"};
    assert_found(40, 131, &k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(placements_out_of_order_are_found),
                                       cmocka_unit_test(a_plan_that_fills_memory_to_the_brim_is_found),
                                       cmocka_unit_test(chunks_stay_away_for_what_the_host_updates),
                                       cmocka_unit_test(one_chunk_leaves_its_place_to_several),
                                       cmocka_unit_test(inputs_leave_for_a_chunk_to_stay),
                                       cmocka_unit_test(what_is_found_is_within_one_percent_of_the_best_of_all_plans),
                                       cmocka_unit_test(candidates_with_a_host_and_a_disk_are_searched_within_one_percent)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
