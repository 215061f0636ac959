#include "run/listed_rows.h"

#include "comm/comm.h"

#include <stdlib.h>
#include <string.h>

int listed_rows_open(listed_rows *g, const model *m, const step_shape *shape, pt_error *e)
{
    const size_t most = (size_t)listed_rows_most(m, shape), vocab = (size_t)m->config.vocab;
    *g = (listed_rows){.vocab = m->config.vocab};
    if (!inputs_are_trained(m))
        return 0;
    g->of_step.ids = malloc(most * sizeof(int32_t));
    g->before.ids = malloc(most * sizeof(int32_t));
    g->place = malloc(vocab * sizeof *g->place);
    g->found = calloc(vocab, 1);
    const size_t ranks = (size_t)shape_ranks(shape);
    g->ids = ranks > 1 ? malloc(ranks * (size_t)(shape->batch * shape->seq_len) * sizeof *g->ids) : NULL;
    return g->of_step.ids && g->before.ids && g->place && g->found && (g->ids || ranks < 2) ? 0 : pt_fail(e, PT_FAILED, "out of memory");
}

void listed_rows_close(listed_rows *g)
{
    free(g->of_step.ids);
    free(g->before.ids);
    free(g->place);
    free(g->found);
    free(g->ids);
    *g = (listed_rows){0};
}

int listed_rows_begin(listed_rows *g, comm *c, const int32_t *ids, int64_t n, int32_t *places, int32_t *numbers, pt_error *e)
{
    const row_list before = g->of_step;
    const int64_t all = g->ids ? n * c->ranks : n;
    if (!g->found)
        return 0;
    if (g->ids && comm_all_gather(c, ids, (size_t)n * sizeof *ids, g->ids, e))
        return PT_FAILED;
    g->of_step = (row_list){g->before.ids, 0};
    g->before = before;
    memset(g->found, 0, (size_t)g->vocab);
    for (int64_t i = 0; i < all; i++)
        g->found[g->ids ? g->ids[i] : ids[i]] = 1;
    for (int64_t row = 0; row < g->vocab; row++)
        if (g->found[row]) {
            g->place[row] = (int32_t)g->of_step.n;
            g->of_step.ids[g->of_step.n++] = (int32_t)row;
        }
    for (int64_t i = 0; i < n; i++)
        places[i] = g->place[ids[i]];
    memcpy(numbers, g->of_step.ids, (size_t)g->of_step.n * sizeof *numbers);
    return 0;
}

const row_list *listed_rows_of(const listed_rows *g, schedule_kind kind)
{
    return kind == SCHEDULE_STEP_UPDATE ? &g->before : &g->of_step;
}

int64_t listed_rows_slice(const row_list *l, int64_t first, int64_t most)
{
    int64_t end = l->n - first < most ? l->n : first + most;
    while (end < l->n && end > first && l->ids[end] / SUMSQ_ROWS == l->ids[end - 1] / SUMSQ_ROWS)
        end--;
    return end;
}

int64_t listed_rows_from(const row_list *l, int64_t row)
{
    int64_t low = 0, high = l->n;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (l->ids[middle] < row)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* A shard is a range of the table's rows. */
row_entries listed_rows_of_shard(const row_list *l, const packing *packing, const model *m, int chunk, int rank)
{
    int64_t begin = 0, end = 0;
    for (int i = 0; i < packing->chunks[chunk].pieces_n; i++) {
        const piece_share s = packing_share(packing, m, chunk_piece(packing, chunk, i), rank);
        if (!s.rows)
            continue;
        begin = end ? begin : s.row0;
        end = s.row0 + s.rows;
    }
    const int64_t first = listed_rows_from(l, begin);
    return (row_entries){first, end ? listed_rows_from(l, end) - first : 0};
}
