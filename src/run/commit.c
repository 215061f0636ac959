#include "run/commit.h"

#include <stdlib.h>

enum { BOUNCE_BYTES = 16 * DISK_SUM_BYTES };

/* bounce: for what lies on a device beside a host tier, which is reached only by copies; NULL without one. */
typedef struct committing { executor *x; slots *s; char *bounce; } committing;

static int put_object(const committing *c, object_kind kind, int chunk, uint64_t bytes, bool away, pt_error *e)
{
    uint64_t unused, offset, *sum;
    char *from = executor_placement(c->x, kind, chunk, &unused);
    int failed = 0;
    slots_place(c->s, true, kind, chunk, &offset, &sum);
    if (!away)
        return slots_write(c->s, offset, 0, from, bytes, sum, e);
    for (uint64_t at = 0; at < bytes && !failed; at += BOUNCE_BYTES) {
        const size_t n = bytes - at < BOUNCE_BYTES ? (size_t)(bytes - at) : BOUNCE_BYTES;
        failed = executor_move(c->x, c->bounce, from + at, n, e);
        if (!failed)
            failed = slots_write(c->s, offset, at, c->bounce, n, sum, e);
    }
    return failed;
}

static int put_chunk(const committing *c, int chunk, pt_error *e)
{
    const schedule_input *in = executor_input_of(c->x);
    const tier t = in->plan->chunks[chunk].placement;
    const uint64_t states = chunk_state_bytes(in->packing, chunk);
    const bool away = c->bounce && t == TIER_DEVICE;
    if (t == TIER_DISK || !in->packing->chunks[chunk].trained)
        return 0;
    int failed = put_object(c, kept_weights(in, chunk), chunk, kept_weight_bytes(in, chunk), away, e);
    return failed || !states ? failed : put_object(c, OBJECT_STATES, chunk, states, away, e);
}

int commit_states(executor *exec, slots *s, int64_t step, const char *text, size_t n, pt_error *e)
{
    const schedule_input *in = executor_input_of(exec);
    const committing c = {exec, s, in->host_tier ? aligned_alloc(DISK_ALIGN, BOUNCE_BYTES) : NULL};
    int failed = c.bounce || !in->host_tier ? 0 : pt_fail(e, PT_FAILED, "out of memory");
    for (int k = 0; k < in->packing->chunks_n && !failed; k++)
        failed = put_chunk(&c, k, e);
    free(c.bounce);
    return failed ? failed : slots_commit(s, step, text, n, e);
}
