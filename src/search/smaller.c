/* smaller.c - for what does not fit: the largest step like it that does, and the disk with which it would. */
#include "search/search.h"

#include <string.h>

/* 1: it does, 0: it does not. `least`: what the most economical plan needs. */
static int fits(const search_input *in, uint64_t least[TIERS], pt_error *e)
{
    search_result r = {0};
    pt_error own = {0};
    search_input soon = *in;
    soon.seconds = 1e-3;
    int failed = search_plan(&soon, &r, &own);
    memcpy(least, r.least, sizeof r.least);
    search_result_free(&r);
    if (failed && failed != PT_DOES_NOT_FIT && e)
        *e = own;
    return !failed ? 1 : failed == PT_DOES_NOT_FIT ? 0 : failed;
}

int search_disk_that_fits(const search_input *in, uint64_t *bytes, pt_error *e)
{
    enum { TRIES = 3 };
    search_input with = *in;
    uint64_t least[TIERS];
    with.budget[TIER_DISK] = (uint64_t)1 << 60;
    int found = in->budget[TIER_DISK] ? 0 : fits(&with, least, e);
    if (found <= 0)
        return found;
    found = 0;
    for (int i = 0; i < TRIES && !found; i++) { /* other budgets are filled in other ways */
        *bytes = with.budget[TIER_DISK] = least[TIER_DISK];
        found = fits(&with, least, e);
    }
    return found;
}

/* A micro-batch that was asked for is given up where the step cannot be cut into such. */
static int step_fits(const search_input *in, const step_shape *s, pt_error *e)
{
    search_input changed = *in;
    uint64_t least[TIERS];
    changed.shape = s;
    if (!search_can_cut(s, in->micro_batch))
        changed.micro_batch = 0;
    return fits(&changed, least, e);
}

bool search_can_cut(const step_shape *s, int64_t micro_batch)
{
    return !micro_batch || (micro_batch % s->unit_seqs == 0 && s->batch % micro_batch == 0);
}

/* Half as many sequences, n times; of one, half as long. False: there is no such step. */
static bool halved(const search_input *in, int n, step_shape *out)
{
    const step_shape *s = in->shape;
    int64_t batch = s->batch, seq_len = s->seq_len;
    for (; n > 0; n--)
        if (batch > 1)
            batch /= 2;
        else if ((seq_len /= 2) < SEARCH_SHORTEST)
            return false;
    step_shape_like(out, s, in->model, batch, seq_len);
    return true;
}

static int halved_fits(const search_input *in, int n, pt_error *e)
{
    step_shape s;
    halved(in, n, &s);
    return step_fits(in, &s, e);
}

int search_smaller_step(const search_input *in, step_shape *out, pt_error *e)
{
    int no = 0, yes = 0;
    while (halved(in, yes + 1, out))
        yes++;
    int found = yes ? halved_fits(in, yes, e) : 0;
    if (found <= 0)
        return found;
    while (yes - no > 1) { /* `no` does not fit, `yes` does */
        int half = (no + yes) / 2;
        if ((found = halved_fits(in, half, e)) < 0)
            return found;
        *(found ? &yes : &no) = half;
    }
    halved(in, yes, out);
    return 1;
}
