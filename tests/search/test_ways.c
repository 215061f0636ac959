/* What is advised where nothing fits: planning again with it succeeds, with a granule less it does not, and no tier gets more than there
 * is. PT_WAYS_CASES=n asks of n random machines and models, default 40; PT_VERBOSE=1 prints each. */
#include "search/random_problem.h"

#include "base/units.h"
#include "optimizer/optimizer.h"

static const char *const kinds[] = {"memory", "disk", "RAM", "GPU"};

/* ---- problems ---- */

/* What the cases were. */
enum { OPTIMIZERS = PT_OPTIMIZER_GALORE + 1 };
typedef struct drawn { int frozen, adapted, few_bits, by[OPTIMIZERS]; } drawn;

static void count_drawn(const problem *p, drawn *d)
{
    const bool adapted = p->model->adapters != NULL;
    d->adapted += adapted;
    d->frozen += !adapted && !model_trains_all(p->model);
    d->few_bits += model_storage(p->model) != STORAGE_PLAIN;
    for (int i = 0; i < OPTIMIZERS; i++)
        d->by[i] += shape_optimizer(&p->shape) == optimizers[i];
}

/* A machine that has between nothing and a little more than enough of each tier, of which less may have been asked for. */
static void misfit_open(random_source *r, problem *p, search_room *room)
{
    pt_error e = {0};
    do {
        problem_open_with(r, random_from(r, 1, 6), true, p);
        p->shape.optimizer = random_optimizer(r);
        if (p->model->adapters && p->shape.optimizer->of_matrices)
            p->shape.optimizer = NULL;
        const uint64_t all = states_bytes(p);
        p->in.budget[TIER_DISK] = 0;
        p->in.threads_bytes = random_one_in(r, 2) ? 0 : 5 << 20;
        *room = (search_room){.gpu = p->in.host_tier && random_one_in(r, 2)};
        for (tier t = TIER_DEVICE; t <= TIER_HOST; t++) {
            p->in.budget[t] = (uint64_t)((double)p->in.budget[t] * random_ns(r, 0.1, 1));
            room->has[t] = p->in.budget[t] + (random_one_in(r, 2) ? 0 : (uint64_t)((double)all * random_ns(r, 0, 1.5)));
        }
        if (!room->gpu) /* what is left of the RAM can go to either */
            room->has[TIER_HOST] = p->in.budget[TIER_HOST] + room->has[TIER_DEVICE] - p->in.budget[TIER_DEVICE];
        room->has[TIER_HOST] = p->in.host_tier ? room->has[TIER_HOST] : 0;
        room->has[TIER_DISK] = random_one_in(r, 3) ? 0 : (uint64_t)((double)all * random_ns(r, 0, 4));
        if (search_fits(&p->in, NULL, &e)) {
            assert_int_equal(e.code, 0);
            model_close(p->model);
            p->model = NULL;
        }
    } while (!p->model);
}

static bool fits(const search_input *in, const uint64_t budget[TIERS])
{
    pt_error e = {0};
    search_input with = *in;
    memcpy(with.budget, budget, sizeof with.budget);
    int found = search_fits(&with, NULL, &e);
    if (found < 0)
        fail_msg("%s", e.text);
    return found;
}

/* ---- what is advised ---- */

/* What the options say is what the budgets are: sizes are written without loss. */
static void check_options(const search_input *in, const uint64_t budget[TIERS])
{
    char options[160], name[24], size[24], *word = options;
    pt_error e = {0};
    int n = 0;
    search_write_options(in, budget, options, sizeof options);
    for (tier t = 0; t < TIERS; t++) {
        if (budget[t] <= in->budget[t])
            continue;
        uint64_t bytes;
        assert_int_equal(sscanf(word, " `%23[a-z]_memory` %23s%n", name, size, &n), 2);
        assert_string_equal(name, tier_names[t]);
        assert_int_equal(size_parse(size, &bytes, &e), 0);
        assert_true(bytes - (t == TIER_DEVICE ? in->threads_bytes : 0) == budget[t]);
        word += n;
    }
    assert_true(n && !*word);
}

static void check_way(const search_input *in, const search_room *room, search_way_kind kind, const uint64_t budget[TIERS])
{
    const bool buys = kind == WAY_RAM || kind == WAY_GPU;
    check_options(in, budget);
    if (!room->gpu && !buys)
        assert_true(budget[TIER_DEVICE] + budget[TIER_HOST] <= room->has[TIER_DEVICE] + in->budget[TIER_HOST]);
    if (!fits(in, budget))
        fail_msg("a way by %s does not fit", kinds[kind]);
    for (tier t = 0; t < TIERS; t++) {
        uint64_t less[TIERS];
        const uint64_t option = budget[t] + (t == TIER_DEVICE ? in->threads_bytes : 0), granule = size_granule(option);
        if (budget[t] == in->budget[t])
            continue;
        const bool is_ram = t == TIER_HOST || (t == TIER_DEVICE && (!room->gpu || kind == WAY_GPU));
        if (budget[t] > room->has[t] && !(buys && is_ram))
            fail_msg("%llu of %llu bytes of the %s are advised", (unsigned long long)budget[t], (unsigned long long)room->has[t],
                     tier_names[t]);
        memcpy(less, budget, sizeof less);
        less[t] -= granule;
        if (budget[t] >= granule && less[t] > in->budget[t] && fits(in, less))
            fail_msg("by %s: %llu bytes less of the %s suffice", kinds[kind], (unsigned long long)granule, tier_names[t]);
    }
}

static void what_is_advised_suffices_and_a_granule_less_does_not(void **state)
{
    (void)state;
    const char *asked = getenv("PT_WAYS_CASES");
    const int cases = asked ? atoi(asked) : 40;
    random_source all = random_open();
    int seen[4] = {0};
    drawn of = {0};
    for (int i = 0; i < cases; i++) {
        random_source r = random_fork(&all, (uint64_t)i);
        pt_error e = {0};
        problem p;
        search_room room;
        search_ways w;
        misfit_open(&r, &p, &room);
        count_drawn(&p, &of);
        if (search_find_ways(&p.in, &room, false, &w, &e))
            fail_msg("%s", e.text);
        assert_true(w.n > 0); /* with more memory everything fits */
        for (int k = 0; k < w.n; k++) {
            char options[160];
            search_write_options(&p.in, w.way[k].budget, options, sizeof options);
            if (getenv("PT_VERBOSE"))
                printf("%d: by %s: %s\n", i, kinds[w.way[k].kind], options);
            check_way(&p.in, &room, w.way[k].kind, w.way[k].budget);
            seen[w.way[k].kind]++;
        }
        model_close(p.model);
    }
    printf("ways by memory %d, disk %d, RAM %d, a larger GPU %d\n", seen[0], seen[1], seen[2], seen[3]);
    int by = 0;
    for (int i = 0; i < OPTIMIZERS; i++)
        by += of.by[i] > 0;
    printf("frozen %d, adapters %d, few bits %d; %d optimizers\n", of.frozen, of.adapted, of.few_bits, by);
    for (int kind = 0; kind < 4 && cases >= 40; kind++)
        assert_true(seen[kind] > 0);
    assert_true(cases < 40 || (of.frozen && of.adapted && of.few_bits && by > OPTIMIZERS / 2));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(what_is_advised_suffices_and_a_granule_less_does_not)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
