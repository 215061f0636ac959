/* timeline.h - trace.json, which `protrain train --trace` writes, at the resolution of a page: the last step, predicted and measured, a row
 * per queue, in equal columns of time. */
#ifndef PT_TIMELINE_H
#define PT_TIMELINE_H

#include "base/error.h"
#include "schedule/schedule.h"

#include <stddef.h>

enum { TIMELINE_COLUMNS = 500 };

typedef enum timeline_kind { TIMELINE_FORWARD, TIMELINE_BACKWARD, TIMELINE_UPDATE, TIMELINE_MOVE, TIMELINE_KINDS } timeline_kind;
extern const char *const timeline_kind_names[TIMELINE_KINDS];

typedef enum timeline_side { TIMELINE_PREDICTED, TIMELINE_MEASURED, TIMELINE_SIDES } timeline_side;

typedef struct timeline {
    double seconds; /* from the start of the first task to the end of the last; the longer of both sides */
    float busy[TIMELINE_SIDES][QUEUES][TIMELINE_KINDS][TIMELINE_COLUMNS]; /* share of the column's time */
} timeline;

/* Ignores events of other programs. PT_FAILED, with file, event and fix: invalid times, or no events of this program. */
int timeline_read(const char *path, timeline **out, pt_error *e);
int timeline_from_json(const char *name, const char *json, size_t n, timeline **out, pt_error *e);
void timeline_free(timeline *t); /* accepts NULL */

#endif
