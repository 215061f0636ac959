/* bytes.c - the bytes that a plan needs of each tier, and those of rows that are looked up. */
#include "schedule/schedule.h"

#include <string.h>

enum { PAGE = 4096, SAVE_ROOM = 8 << 20 };

uint64_t schedule_window_bytes(const schedule_input *in)
{
    uint64_t most = 0;
    for (int c = 0; c < in->packing->chunks_n; c++) {
        uint64_t bytes = kept_weight_bytes(in, c) + chunk_state_bytes(in->packing, c);
        if (in->plan->chunks[c].placement == TIER_DISK && bytes > most)
            most = bytes;
    }
    return align_up(most, PAGE);
}

tier schedule_scratch_tier(const schedule_input *in) { return in->host_tier ? TIER_HOST : TIER_DEVICE; }

void schedule_raise_bytes(const schedule_input *in, const schedule *sched, uint64_t bytes[TIERS])
{
    for (int t = 0; t < TIERS; t++)
        bytes[t] = sched->bytes[t] > bytes[t] ? sched->bytes[t] : bytes[t];
    tier scratch = schedule_scratch_tier(in);
    uint64_t saving = sched->lasting_bytes[scratch] + schedule_window_bytes(in) + SAVE_ROOM;
    bytes[scratch] = saving > bytes[scratch] ? saving : bytes[scratch];
}

bool schedule_looks_up(const schedule_input *in, tier t)
{
    bool is = false;
    for (int c = 0; c < in->packing->chunks_n; c++)
        is = is || (plan_looks_up(&in->plan->chunks[c], &in->packing->chunks[c]) && in->plan->chunks[c].placement == t);
    return is;
}

uint64_t schedule_rows_bytes(const model *m, const step_shape *shape)
{
    return (uint64_t)(shape->unit_rows * m->config.layers * m->config.input_width) * dtype_bytes(shape->type);
}

bool schedule_updates_rows(const schedule_input *in, tier t)
{
    bool does = false;
    for (int c = 0; c < in->packing->chunks_n && in->training; c++)
        does = does || (chunk_has_rows(in->packing, c) && in->plan->chunks[c].update == t);
    return does;
}

uint64_t schedule_rows_gradient_bytes(const model *m, const step_shape *shape)
{
    return (uint64_t)(listed_rows_most(m, shape) * m->config.layers * m->config.input_width) * dtype_bytes(shape->type);
}

uint64_t schedule_rows_sums_bytes(const model *m, const step_shape *shape)
{
    return (uint64_t)(listed_rows_most(m, shape) * m->config.layers * m->config.input_width) * sizeof(float);
}

int schedule_plan_bytes(const schedule_input *in, unsigned kinds, uint64_t bytes[TIERS], pt_error *e)
{
    memset(bytes, 0, TIERS * sizeof *bytes);
    for (int kind = 0; kind < SCHEDULE_KINDS; kind++) {
        if (!(kinds & 1u << kind))
            continue;
        schedule sched;
        int failed = schedule_place(in, kind, &sched, e);
        if (failed)
            return failed;
        schedule_raise_bytes(in, &sched, bytes);
        schedule_free(&sched);
    }
    return 0;
}
