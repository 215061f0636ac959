/* timeline.h - trace.json as `protrain train --trace` writes it, as coarse as a page shows it: the last step, as predicted and as
 * it ran, a row for each queue, cut into equal columns of time. */
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
    double seconds; /* from the first task's start to the last one's end, of the longer of both */
    float busy[TIMELINE_SIDES][QUEUES][TIMELINE_KINDS][TIMELINE_COLUMNS]; /* share of the column's time */
} timeline;

/* Events that are not ours are left out; none of ours, or times that make no sense: PT_FAILED with file, event and mend. */
int timeline_read(const char *path, timeline **out, pt_error *e);
int timeline_from_json(const char *name, const char *json, size_t n, timeline **out, pt_error *e);
void timeline_free(timeline *t); /* NULL is fine */

#endif
