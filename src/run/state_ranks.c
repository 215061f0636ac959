/* state_ranks.c - several ranks: rank 0 reads what the others keep. */
#include "run/state_parts.h"

#include "comm/comm.h"

#include <stdio.h>

/* Rank 0 asks for the entries of a piece, as many as one message holds, or for bytes of a chunk's weights, or says that it needs no
 * more. */
typedef struct request { int32_t done, code; int32_t kind, index; int64_t from, n; char text[400]; } request;
enum { REPLY_ENTRIES = 1 << 17 };

int state_fetch(state *s, int rank, int kind, int index, int64_t from, int64_t n, void *out, pt_error *e)
{
    comm *c = executor_comm(s->x);
    const size_t each = kind == STATE_BYTES ? 1 : sizeof(float);
    int failed = 0;
    if (c->rank)
        return pt_fail(e, PT_FAILED, "rank %d was asked for what another one keeps; this is a bug", c->rank);
    for (int64_t at = 0; at < n && !failed; at += REPLY_ENTRIES) {
        const int64_t part = n - at < REPLY_ENTRIES ? n - at : REPLY_ENTRIES;
        const request r = {.kind = kind, .index = index, .from = from + at, .n = part};
        failed = comm_exchange(c, &(comm_move){rank, &r, sizeof r, (char *)out + (size_t)at * each, (size_t)part * each}, 1, e);
    }
    return failed;
}

static int answer(state *s, comm *c, const request *r, pt_error *e)
{
    const size_t each = r->kind == STATE_BYTES ? 1 : sizeof(float);
    float *values = (float *)s->spare;
    if (r->n < 1 || r->n > REPLY_ENTRIES || (size_t)r->n * sizeof *values > s->spare_bytes)
        return pt_fail(e, PT_FAILED, "rank %d has no room for %lld values that were asked for", c->rank, (long long)r->n);
    int failed = r->kind == STATE_BYTES ? state_read_own_bytes(s, r->index, r->from, r->n, s->spare, e)
                                       : state_read(s, r->kind, r->index, r->from, r->n, values, e);
    return failed ? failed : comm_exchange(c, &(comm_move){0, values, (size_t)r->n * each, NULL, 0}, 1, e);
}

int state_lead(executor *x, int (*work)(void *arg, pt_error *e), void *arg, pt_error *e)
{
    comm *c = executor_comm(x);
    pt_error own = {0};
    request r = {0};
    state s;
    if (!c)
        return work(arg, e);
    if (!c->rank) {
        r = (request){.done = 1, .code = work(arg, &own)};
        snprintf(r.text, sizeof r.text, "%.390s", own.text);
        int failed = comm_broadcast(c, 0, &r, sizeof r, r.code ? NULL : &own);
        if (e)
            *e = own;
        return r.code ? r.code : failed;
    }
    state_open(&s, x);
    int failed = 0;
    while (!failed && !r.done) {
        failed = comm_exchange(c, &(comm_move){0, NULL, 0, &r, sizeof r}, 1, e);
        if (!failed && !r.done)
            failed = answer(&s, c, &r, e);
    }
    state_close(&s, NULL);
    r.text[sizeof r.text - 1] = 0;
    return failed || !r.code ? failed : pt_fail(e, r.code, "%s", r.text);
}
