/* state_ranks.c - several ranks: which of them reads some entries, and what the others send it. */
#include "run/state_parts.h"

#include "comm/comm.h"

static int own_rank(const state *s) { return s->in->packing->rank; }

int state_pass(const state *s, int keeper, void *values, size_t bytes, pt_error *e)
{
    if (keeper == s->reader || (own_rank(s) != keeper && own_rank(s) != s->reader))
        return 0;
    const comm_move move = own_rank(s) == keeper ? comm_send(s->reader, values, bytes) : comm_receive(keeper, values, bytes);
    return comm_exchange(executor_comm(s->x), &move, 1, e);
}

bool state_reads(const state *s) { return own_rank(s) == s->reader; }

kept_entries state_kept_entries(const state *s, int kind, const piece *p, int r)
{
    static const slab one = {.values = 1};
    const packing *k = s->in->packing;
    const slab *l = kind == STATE_MASTER ? &one : state_slab(s->in, kind, p->param);
    const int64_t cols = s->in->model->params[p->param].cols;
    const piece_share share = packing_share(k, s->in->model, p, r);
    if (l->of_part)
        return (kept_entries){0, share.rows ? slab_of_param(l, &s->in->model->params[p->param]) : 0};
    return (kept_entries){share.row0 * cols / l->values - p->row0 * cols / l->values, slab_entries(l, share.rows * cols)};
}

int64_t state_first_entry(const state *s, int kind, const piece *p)
{
    const slab *l = kind == STATE_MASTER ? NULL : state_slab(s->in, kind, p->param);
    return p->row0 * s->in->model->params[p->param].cols / (l ? l->values : 1);
}

void state_choose_reader(state *s, int kind, int index, int64_t from, int64_t n)
{
    const packing *k = s->in->packing;
    int64_t kept[COMM_RANKS_MOST] = {0};
    s->reader = 0;
    for (int r = 0; r < k->ranks && s->spread; r++) {
        for (int i = k->piece_of_param[index]; i < k->piece_of_param[index + 1]; i++) {
            const kept_entries own = state_kept_entries(s, kind, &k->pieces[i], r);
            const int64_t begin = state_first_entry(s, kind, &k->pieces[i]) + own.begin, end = begin + own.n;
            const int64_t common = (end < from + n ? end : from + n) - (begin > from ? begin : from);
            kept[r] += common > 0 ? common : 0;
        }
        s->reader = kept[r] > kept[s->reader] ? r : s->reader;
    }
}

int state_share(state *s, bool spread, pt_error *e)
{
    comm *c = executor_comm(s->x);
    uint64_t all[COMM_RANKS_MOST], own = s->spare_bytes;
    s->spread = spread && c;
    int failed = c ? comm_all_gather(c, &own, sizeof own, all, e) : 0;
    for (int r = 0; c && r < c->ranks && !failed; r++)
        s->spare_bytes = all[r] < s->spare_bytes ? (size_t)all[r] : s->spare_bytes;
    return failed;
}
