/* events.h - a run's numbers for TensorBoard, beside metrics.jsonl.
 *
 *     8 bytes   length of the record          4 bytes   checksum of them
 *     length    an Event, in protobuf         4 bytes   checksum of it         (TFRecord; masked CRC-32C)
 *
 *     Event     1 wall_time (double)   2 step (varint)   3 file_version (string)   5 summary (Summary)
 *     Summary   1 value, repeated: 1 tag (string), 2 simple_value (float)
 *
 * One file a run, whatever the number of times that it was resumed: it is cut back to the step that a run starts from,
 * as metrics.jsonl is, so that no step is there twice. What is no whole record of ours ends it too. */
#ifndef PT_EVENTS_H
#define PT_EVENTS_H

#include "io/files.h"
#include "protrain.h"

#define EVENTS_NAME "events.out.tfevents.protrain"

typedef struct events {
    char path[FILE_PATH_BYTES];
    int fd; /* -1: nothing is written */
} events;

/* In the folder `out`. A file that is there is cut back to `step`, also where nothing is to be written. */
int events_open(events *v, const char *out, int64_t step, bool write, pt_error *e);
int events_write(const events *v, const pt_step *s, const pt_memory *memory, int memory_n, pt_error *e);
int events_write_evaluation(const events *v, const pt_step *s, pt_error *e); /* only that */
int events_sync(const events *v, pt_error *e);
void events_close(events *v);

uint32_t crc32c(const void *bytes, size_t n);

#endif
