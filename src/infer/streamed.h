/* streamed.h - layers whose weights do not stay on the device. They lie in host memory beside a GPU, or in a scratch file, as the device
 * uses them. Each is fetched into one of two slots of device memory while the layers before it compute:
 *
 *     compute   | layer 0 | layer 1        | layer 2       | layer 3 ...
 *     slot 0    | layer 1 ..................| layer 5 ...
 *     slot 1    | layer 3 .................................|
 *
 * The order is that of the layers, and after the last comes the first again, for the next tokens.
 *
 *     image of a layer  [param 0][param 1] ...        each at a multiple of 64 bytes, as among the weights that stay
 *     store             [image of the first such layer][of the next] ...
 */
#ifndef PT_INFER_STREAMED_H
#define PT_INFER_STREAMED_H

#include "device/device.h"
#include "model/model.h"

typedef struct streamed streamed;

enum { STREAM_SLOTS = 2, STREAM_ALIGN = 4096 /* of a slot */ };

/* Of a model with n such layers: they are spread evenly. */
bool stream_has(const model *m, int n, int layer);
/* Bytes of the slots, and of all images. */
uint64_t stream_slot_bytes(const model *m, pt_dtype type, int n);
uint64_t stream_store_bytes(const model *m, pt_dtype type, int n);
/* RAM beside a GPU that passes on what a file has. */
uint64_t stream_bounce_bytes(const model *m, pt_dtype type, int n, const device *d, bool on_disk);

/* Where to put them. */
typedef struct stream_place {
    device *host;          /* a CPU; the device itself, if that is one */
    bool on_disk;          /* else in host memory, which only a GPU has beside its own */
    const char *disk_path; /* folder of the scratch file */
} stream_place;

/* slots: stream_slot_bytes of device memory. n is at least 1. */
int stream_open(const model *m, device *d, pt_dtype type, int n, const stream_place *place, void *slots, streamed **out, pt_error *e);
void stream_close(streamed *s);

/* For loading layer `layer`: where its image is written in host memory, and where in it each of its parameters lies. */
char *stream_image(streamed *s, int layer, const uint64_t **param_at);
/* Stores it. Calls are in the order of layers. */
int stream_store(streamed *s, int layer, pt_error *e);

/* The next layer's image; what `compute` is given afterwards waits until it is there. */
char *stream_next(streamed *s, queue *compute, int layer);
/* What `compute` was given has used it: its slot is free then. */
void stream_done(streamed *s, queue *compute);
/* After `compute` has ended: have all of its images come whole? A queue that waits for a failed one goes on. */
int stream_check(streamed *s, pt_error *e);
/* Seconds that fetching all layers once takes, measured. */
int stream_measure(streamed *s, queue *compute, double *seconds, pt_error *e);

#endif
