/* state_values.h - all weights and optimizer states of an executor, to compare their bits. */
#ifndef PT_TEST_STATE_VALUES_H
#define PT_TEST_STATE_VALUES_H

#include "run/state.h"

#include <stdlib.h>

/* free() *values, also after an error. */
static inline int state_values(executor *x, const model *m, float **values, size_t *n, pt_error *e)
{
    state s;
    state_open(&s, x);
    *n = 0;
    for (int kind = 0; kind < state_kinds(s.in); kind++)
        for (int i = 0; i < m->params_n; i++)
            *n += (size_t)state_entries(s.in, kind, i);
    float *at = *values = malloc(*n * sizeof *at);
    int failed = at ? 0 : pt_fail(e, PT_FAILED, "out of memory");
    for (int kind = 0; kind < state_kinds(s.in) && !failed; kind++)
        for (int i = 0; i < m->params_n && !failed; i++) {
            const int64_t entries = state_entries(s.in, kind, i);
            failed = entries ? state_read(&s, kind, i, 0, entries, at, e) : 0;
            at += entries;
        }
    int closed = state_close(&s, failed ? NULL : e);
    return failed ? failed : closed;
}

#endif
