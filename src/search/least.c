/* least.c - the most economical plan there is, and what to say when even that is too large. */
#include "search/space.h"

#include "base/units.h"

#include <string.h>

/* As little on the device as can be, one step of every size of chunk, save place and time of update. */
static void economical(const space *s, recipe *r, int chunking, tier place, update_time update)
{
    recipe_init(s, r, chunking);
    recipe_blocks(s, r, 0, s->layers, SAVE_INPUT, place);
    r->n_update = 1;
    r->n_swap = 2;
    r->update = update;
    r->visit = (int)(s->in->shape->batch / r->micro_batch);
    if (!s->in->training)
        r->visit = 1;
}

static double overshoot(const space *s, const uint64_t bytes[TIERS])
{
    double over = 0;
    for (int t = 0; t < TIERS; t++)
        over += bytes[t] > s->budget[t] ? (double)(bytes[t] - s->budget[t]) : 0;
    return over;
}

/* What the recipe needs in all, whatever the budgets are. */
static int measure(space *s, const recipe *r, priced *out, pt_error *e)
{
    const uint64_t any[TIERS] = {UINT64_MAX, UINT64_MAX, UINT64_MAX};
    plan p;
    int fits = recipe_plan(s, r, &p, e);
    if (!fits) {
        fits = price_plan(s->in, &s->chunkings[r->chunking].packing, &p, any, 0, out, e);
        plan_free(&p);
        s->tried++;
    }
    out->recipe = *r;
    return fits;
}

typedef struct entry { recipe recipe; double over, device; } entry;

static bool is_less(const entry *a, const entry *b) { return a->over != b->over ? a->over < b->over : a->device < b->device; }

enum { ENTRIES = 10 };

static void insert(entry *list, int *n, const entry *x)
{
    if (*n == ENTRIES && !is_less(x, &list[ENTRIES - 1]))
        return;
    int at = *n < ENTRIES ? (*n)++ : ENTRIES - 1;
    while (at > 0 && is_less(x, &list[at - 1])) {
        list[at] = list[at - 1];
        at--;
    }
    list[at] = *x;
}

static int collect(const space *s, entry *list)
{
    const update_time waiting[] = {UPDATE_NEXT_FORWARD, UPDATE_END}, free_times[] = {UPDATE_BACKWARD, UPDATE_END};
    int n = 0;
    for (int g = 0; g < s->chunkings_n; g++)
        for (tier place = TIER_DEVICE; place <= TIER_DISK; place++)
            for (int u = 0; u < (s->in->training ? 2 : 1); u++) {
                entry x;
                estimate about;
                if (!space_has(s, place) || (place != TIER_DEVICE && !s->in->training))
                    continue;
                economical(s, &x.recipe, g, place, s->in->clipping ? waiting[u] : free_times[u]);
                recipe_fill(s, &x.recipe, s->budget, &about);
                x.over = overshoot(s, about.bytes);
                x.device = (double)about.bytes[TIER_DEVICE];
                insert(list, &n, &x);
            }
    return n;
}

int least_price(space *s, priced *out, pt_error *e)
{
    entry list[ENTRIES];
    int n = collect(s, list);
    double least = -1;
    for (int i = 0; i < n; i++) {
        priced one;
        int fits = recipe_price_filled(s, &list[i].recipe, 0, &one, e);
        if (fits < 0)
            return fits;
        if (fits) {
            *out = one;
            return 1;
        }
        fits = measure(s, &list[i].recipe, &one, e);
        if (fits < 0)
            return fits;
        if (fits && (least < 0 || overshoot(s, one.bytes) < least)) {
            least = overshoot(s, one.bytes);
            *out = one;
        }
    }
    return 0;
}

int least_refuse(space *s, const priced *least, pt_error *e)
{
    for (int t = 0; t < TIERS; t++)
        if (least->bytes[t] > s->budget[t]) {
            char need[32], have[32], missing[32];
            return pt_fail(e, PT_DOES_NOT_FIT,
                           "it does not fit: the most economical plan needs %s of %s memory and the budget is %s, %s less; "
                           "give --%s-memory %llu, or lower --batch-size or --seq-len",
                           size_format(need, least->bytes[t]), tier_names[t], size_format(have, s->budget[t]),
                           size_format(missing, least->bytes[t] - s->budget[t]), tier_names[t], (unsigned long long)least->bytes[t]);
        }
    return pt_fail(e, PT_DOES_NOT_FIT, "it does not fit: the tiers together are too small; raise --device-memory or --disk-memory");
}
