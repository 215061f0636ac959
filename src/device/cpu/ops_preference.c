/* ops_preference.c - the loss of pairs and the weights of their rows. A tile is a sequence, whose rows are summed in order. */
#include "device/cpu/ops.h"
#include "device/preference.h"

static void preference_sequence(void *arg, int64_t sequence, int thread)
{
    const op_preference *o = arg;
    const int64_t at = sequence * o->seq_len;
    preference_pairs p = preference_begin(o->rule, o->weights + at);
    for (int64_t r = 0; r < o->seq_len; r++) {
        const bool begins = o->first[at + r] == r;
        if (preference_is_whole(&p, begins))
            preference_close(&p);
        preference_row(&p, r, begins, o->targets[at + r] >= 0, o->loss[at + r], o->given ? o->given[at + r] : 0);
    }
    preference_close(&p);
    for (int64_t r = 0; r < o->seq_len; r++)
        o->weights[at + r] = o->weights[at + o->first[at + r]];
    for (int64_t r = 0; r < o->seq_len && o->given; r++)
        o->weights[at + r] = preference_row_weight(o->rule, o->weights[at + r], o->given[at + r]);
}

void cpu_preference(pool *pool, const op_preference *o) { pool_run(pool, o->sequences, preference_sequence, (void *)o); }
