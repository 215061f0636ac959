/* cut.c - where parameters are cut into pieces. */
#include "plan/cut.h"

#include "model/storage.h"

enum { RANGES_MOST = 8 /* more would make schedules longer, and memory hardly smaller */ };

static int64_t common_multiple(int64_t a, int64_t b)
{
    int64_t n = a;
    while (n % b)
        n += a;
    return n;
}

/* Trained values are cut where their partial sums of squares and blocks of states end, and never where a rule counts by parts or reads more
 * than one matrix at once. */
static int64_t trained_step(const packing *packing, const param *a, int64_t rows_each)
{
    const update_rule *r = optimizer_rule(packing->optimizer, a);
    for (int k = 0; k < rule_slabs(r); k++)
        if (r->slabs[k].of_part)
            return 0;
    return r->whole && !r->by_matrix ? 0 : common_multiple(rows_each, cut_rows(a)) / rows_each;
}

int64_t cut_rows(const param *a)
{
    int64_t rows = SUMSQ_ROWS;
    while (rows * a->cols % CUT_VALUES)
        rows *= 2;
    return rows;
}

/* Experts of a piece of so many elements at most: equal ranges, as far as they can be equal. */
static int64_t experts_of_piece(const packing *packing, const param *a, int64_t experts, int64_t limit)
{
    const int64_t all = piece_elements(packing, a, 0, a->rows), rows_each = a->rows / experts;
    const int64_t step = a->trainable ? trained_step(packing, a, rows_each) : storage_experts_step(a, experts);
    int64_t ranges = (all + limit - 1) / limit;
    ranges = ranges > RANGES_MOST ? RANGES_MOST : ranges;
    if (step < 1 || ranges < 2)
        return experts;
    return ((experts + ranges - 1) / ranges + step - 1) / step * step;
}

int64_t cut_piece_rows(const packing *packing, const model *m, const step_shape *shape, const param *a, int64_t limit)
{
    if (a->kind->use == USE_VOCABULARY)
        return shape->slice_rows;
    if (a->role != PARAM_EXPERTS_UP && a->role != PARAM_EXPERTS_DOWN)
        return a->rows;
    const int64_t experts = param_experts(&m->config, a), each = experts_of_piece(packing, a, experts, limit);
    return each < experts ? each * (a->rows / experts) : a->rows;
}
