/* grouped.h - the rows of experts (device.h), as an op finds them when it runs. */
#ifndef PT_CPU_GROUPED_H
#define PT_CPU_GROUPED_H

#include "device/device.h"

static inline int64_t expert_begin(const expert_range *r, int64_t expert) { return expert ? r->ends[expert - 1] : 0; }
static inline int64_t range_begin(const expert_range *r) { return expert_begin(r, r->first); }
static inline int64_t range_rows(const expert_range *r) { return expert_begin(r, r->first + r->experts) - range_begin(r); }

/* Where row `row` of the range that begins at row `begin` lies. */
static inline int64_t place_of_row(row_place place, const int32_t *order, int64_t k, int64_t begin, int64_t row)
{
    return place == AT_TOKEN ? order[row] / k : place == AT_ROW ? row : row - begin;
}

#endif
