/* in_use.h - the bytes of a tier that the buffers of a schedule need. */
#ifndef PT_TEST_IN_USE_H
#define PT_TEST_IN_USE_H

#include "schedule/schedule.h"

/* The most that is in use while any one task runs, each buffer rounded up to a multiple of `align`. No layout can do with less. */
static inline uint64_t most_in_use(const schedule *s, tier t, uint64_t align)
{
    uint64_t most = 0;
    for (int i = 0; i < s->tasks_n; i++) {
        uint64_t now = 0;
        for (int k = 0; k < s->buffers_n; k++) {
            const buffer *b = &s->buffers[k];
            if (b->tier == t && b->first >= 0 && b->first <= i && i <= b->last && !(b->idle <= i && i < b->idle_end))
                now += align_up(b->bytes, align);
        }
        most = now > most ? now : most;
    }
    return most;
}

#endif
