/* state_ranks.c - several ranks: which of them reads some entries, and what the others send it. */
#include "run/state_parts.h"

#include "comm/comm.h"

static int own_rank(const state *state) { return state->in->packing->rank; }

int state_pass(const state *state, int keeper, void *values, size_t bytes, pt_error *e)
{
    if (keeper == state->reader || (own_rank(state) != keeper && own_rank(state) != state->reader))
        return 0;
    const comm_move move = own_rank(state) == keeper ? comm_send(state->reader, values, bytes) : comm_receive(keeper, values, bytes);
    return comm_exchange(executor_comm(state->x), &move, 1, e);
}

bool state_reads(const state *state) { return own_rank(state) == state->reader; }

kept_entries state_kept_entries(const state *state, int kind, const piece *piece, int r)
{
    static const slab one = {.values = 1};
    const packing *packing = state->in->packing;
    const slab *slab = kind == STATE_MASTER ? &one : state_slab(state->in, kind, piece->param);
    const int64_t cols = state->in->model->params[piece->param].cols;
    const piece_share share = packing_share(packing, state->in->model, piece, r);
    if (slab->of_part)
        return (kept_entries){0, share.rows ? slab_of_param(slab, &state->in->model->params[piece->param]) : 0};
    return (kept_entries){share.row0 * cols / slab->values - piece->row0 * cols / slab->values, slab_entries(slab, share.rows * cols)};
}

int64_t state_first_entry(const state *state, int kind, const piece *piece)
{
    const slab *slab = kind == STATE_MASTER ? NULL : state_slab(state->in, kind, piece->param);
    return piece->row0 * state->in->model->params[piece->param].cols / (slab ? slab->values : 1);
}

void state_choose_reader(state *state, int kind, int index, int64_t from, int64_t n)
{
    const packing *packing = state->in->packing;
    int64_t kept[COMM_RANKS_MOST] = {0};
    state->reader = 0;
    for (int r = 0; r < packing->ranks && state->spread; r++) {
        for (int i = packing->piece_of_param[index]; i < packing->piece_of_param[index + 1]; i++) {
            const kept_entries own = state_kept_entries(state, kind, &packing->pieces[i], r);
            const int64_t begin = state_first_entry(state, kind, &packing->pieces[i]) + own.begin, end = begin + own.n;
            const int64_t common = (end < from + n ? end : from + n) - (begin > from ? begin : from);
            kept[r] += common > 0 ? common : 0;
        }
        state->reader = kept[r] > kept[state->reader] ? r : state->reader;
    }
}

int state_share(state *state, bool spread, pt_error *e)
{
    comm *c = executor_comm(state->x);
    uint64_t all[COMM_RANKS_MOST], own = state->spare_bytes;
    state->spread = spread && c;
    int failed = c ? comm_all_gather(c, &own, sizeof own, all, e) : 0;
    for (int r = 0; c && r < c->ranks && !failed; r++)
        state->spare_bytes = all[r] < state->spare_bytes ? (size_t)all[r] : state->spare_bytes;
    return failed;
}
