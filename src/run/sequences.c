#include "run/sequences.h"

#include <stdlib.h>
#include <string.h>

static dataset_row row_at(const executor_batch *b, int64_t at, bool weighted)
{
    return (dataset_row){b->ids + at, b->targets + at, b->first + at, weighted ? b->weights + at : NULL};
}

/* Loads a sequence aside, and takes this rank's rows of it. */
static int load_shared(executor *exec, sequence_loader *load, void *arg, uint64_t sequence, dataset_counts *counts, pt_error *e)
{
    const step_shape *shape = executor_input_of(exec)->shape;
    const executor_batch to = executor_input(exec);
    const int64_t length = shape_length(shape), rows = shape->batch * shape->seq_len, first = shape_position(shape, 0);
    int32_t *room = calloc((size_t)length * 4, sizeof *room);
    if (!room)
        return pt_fail(e, PT_FAILED, "out of memory for a sequence of %lld tokens", (long long)length);
    const executor_batch from = {room, room + length, room + 2 * length, NULL, (float *)room + 3 * length};
    const dataset_row row = row_at(&from, 0, shape->weighted);
    dataset_counts others = {0};
    const int failed = load(arg, sequence, &row, first ? &others : counts, e);
    const size_t bytes = (size_t)rows * sizeof *room;
    memcpy(to.ids, from.ids + first, bytes);
    memcpy(to.targets, from.targets + first, bytes);
    memcpy(to.first, from.first + first, bytes);
    if (shape->weighted)
        memcpy(to.weights, from.weights + first, bytes);
    free(room);
    return failed;
}

int sequences_load(executor *exec, sequence_loader *load, void *arg, dataset_counts *counts, pt_error *e)
{
    const step_shape *shape = executor_input_of(exec)->shape;
    const executor_batch to = executor_input(exec);
    const int64_t n = shape->batch / shape_together(shape), first = shape->rank * n / shape_sharers(shape);
    int failed = 0;
    if (shape_sharers(shape) > 1)
        failed = load_shared(exec, load, arg, (uint64_t)first, counts, e);
    for (int64_t i = 0; i < n && !failed && shape_sharers(shape) == 1; i++) {
        const dataset_row row = row_at(&to, i * shape_length(shape), shape->weighted);
        failed = load(arg, (uint64_t)(first + i), &row, counts, e);
    }
    if (!failed && shape->documents)
        executor_place(exec);
    return failed;
}
