/* events.h - a run's metrics for TensorBoard, in addition to metrics.jsonl.
 *
 *     8 bytes   length of the record          4 bytes   checksum of the length
 *     length    an Event, in protobuf         4 bytes   checksum of the Event  (TFRecord; masked CRC-32C)
 *
 *     Event     1 wall_time (double)   2 step (varint)   3 file_version (string)   5 summary (Summary)
 *     Summary   1 value, repeated: 1 tag (string), 2 simple_value (float)
 *
 * A run has one file, however often it is resumed. Like metrics.jsonl, it is cut back to the step from which the run resumes, so that no
 * step appears twice. It also ends before the first incomplete or unknown record. */
#ifndef PT_EVENTS_H
#define PT_EVENTS_H

#include "io/files.h"
#include "protrain.h"

#define EVENTS_NAME "events.out.tfevents.protrain"

typedef struct events {
    char path[FILE_PATH_BYTES];
    int fd; /* -1: nothing is written */
} events;

/* In the folder `out`. An existing file is cut back to `step`, even if nothing is to be written. */
int events_open(events *v, const char *out, int64_t step, bool write, pt_error *e);
int events_write(const events *v, const pt_step *step, const pt_memory *memory, int memory_n, pt_error *e);
int events_write_evaluation(const events *v, const pt_step *step, pt_error *e); /* only the evaluation */
int events_sync(const events *v, pt_error *e);
void events_close(events *v);

uint32_t crc32c(const void *bytes, size_t n);

#endif
