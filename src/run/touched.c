#include "run/touched.h"

#include "comm/comm.h"

#include <stdlib.h>
#include <string.h>

enum { WORD = 64 };

int touched_open(touched_rows *t, const model *m, const step_shape *shape, pt_error *e)
{
    *t = (touched_rows){.vocab = m->config.vocab, .words = (m->config.vocab + WORD - 1) / WORD};
    const bool trained = m->params[m->blocks[0].param_of_role[PARAM_TOKENS]].trainable || inputs_are_trained(m);
    if (shape_ranks(shape) < 2 || shape->gpu || !trained)
        return 0;
    t->bits = calloc((size_t)shape_ranks(shape) * (size_t)t->words, sizeof *t->bits);
    return t->bits ? 0 : pt_fail(e, PT_FAILED, "out of memory");
}

void touched_close(touched_rows *t)
{
    free(t->bits);
    t->bits = NULL;
}

int touched_share(touched_rows *t, comm *c, const int32_t *ids, int64_t n, pt_error *e)
{
    uint64_t *own = t->bits + c->rank * t->words;
    memset(own, 0, (size_t)t->words * sizeof *own);
    for (int64_t i = 0; i < n; i++)
        own[ids[i] / WORD] |= 1ull << ids[i] % WORD;
    return comm_all_gather(c, own, (size_t)t->words * sizeof *own, t->bits, e);
}

static bool is_touched(const uint64_t *bits, int64_t row) { return bits[row / WORD] >> row % WORD & 1; }

bool touched_has(const touched_rows *t, int rank, int64_t row) { return is_touched(t->bits + rank * t->words, row); }

bool touched_next(const touched_rows *t, int rank, int64_t row, int64_t end, int64_t *first, int64_t *rows)
{
    const uint64_t *bits = t->bits + rank * t->words;
    while (row < end && !is_touched(bits, row))
        row += bits[row / WORD] ? 1 : WORD - row % WORD;
    *first = row;
    while (row < end && is_touched(bits, row))
        row++;
    *rows = row - *first;
    return *rows > 0;
}
