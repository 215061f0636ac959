/* experts.h - the rows of experts (device.h), as a kernel finds them. */
#ifndef PT_CUDA_EXPERTS_H
#define PT_CUDA_EXPERTS_H

#include "device/cuda/mma.h"

DEVICE int64_t expert_begin(const expert_range &r, int64_t expert) { return expert ? r.ends[expert - 1] : 0; }
DEVICE int64_t range_begin(const expert_range &r) { return expert_begin(r, r.first); }
DEVICE int64_t range_end(const expert_range &r) { return expert_begin(r, r.first + r.experts); }

/* Where row `row` of the range that begins at row `begin` lies. */
DEVICE int64_t place_of_row(row_place place, const int32_t *order, int k, int64_t begin, int64_t row)
{
    return place == AT_TOKEN ? order[row] / k : place == AT_ROW ? row : row - begin;
}

/* The number of rows is known on the GPU only, so a block takes every `blocks`-th piece of work, until none is left. */
enum { BLOCKS_EACH = 8 /* per multiprocessor */ };
static inline int blocks_over_work(int each, int *blocks)
{
    shared_limits limits;
    const int error = shared_limits_get(&limits);
    *blocks = error ? 0 : limits.multiprocessors * each;
    return error;
}

#endif
