/* smaller.c - for a step that does not fit: the largest similar step that does. */
#include "search/search.h"

/* Drops the requested micro-batch if it does not divide the step. */
static int step_fits(const search_input *in, const step_shape *shape, pt_error *e)
{
    search_input changed = *in;
    changed.shape = shape;
    if (!search_can_cut(shape, in->micro_batch))
        changed.micro_batch = 0;
    return search_fits(&changed, NULL, e);
}

bool search_can_cut(const step_shape *shape, int64_t micro_batch)
{
    return !micro_batch || (micro_batch % shape_least_micro(shape) == 0 && shape->batch % micro_batch == 0);
}

/* Halves the number of sequences n times, equally in each lane; from one per lane on, halves their length. False: there is no such step. */
static bool halved(const search_input *in, int n, step_shape *out)
{
    const step_shape *shape = in->shape;
    const int64_t lanes = shape_lanes(shape);
    int64_t batch = shape->batch, seq_len = shape->seq_len;
    for (; n > 0; n--)
        if (batch > lanes)
            batch = batch / lanes / 2 * lanes;
        else if ((seq_len /= 2) < SEARCH_SHORTEST)
            return false;
    step_shape_like(out, shape, in->model, batch, seq_len);
    return true;
}

static int halved_fits(const search_input *in, int n, pt_error *e)
{
    step_shape shape;
    halved(in, n, &shape);
    return step_fits(in, &shape, e);
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
