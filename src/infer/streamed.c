#include "infer/streamed.h"

#include "infer/load.h"
#include "io/disk.h"
#include "model/shape.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { LINE = 64 };

struct streamed {
    const model *model;
    device *device, *host;
    bool on_disk;
    int n;                     /* layers */
    int *layer;                /* of each image */
    uint64_t *at, *bytes;      /* of each image in the store; bytes: multiples of DISK_ALIGN */
    uint64_t *param_at;        /* of each parameter in its image */
    char *slot[STREAM_SLOTS];
    uint64_t slot_bytes, store_bytes;
    char *store;               /* host memory; NULL: on disk */
    disk_file *file;
    disk_channel *writes, *reads;
    char *bounce[STREAM_SLOTS]; /* host memory between file and GPU, or for loading */
    queue *copies, *reading;   /* reading: only between file and GPU */
    uint64_t was_read[STREAM_SLOTS], ready[STREAM_SLOTS], freed[STREAM_SLOTS]; /* values of reading, copies and compute */
    uint64_t fetched, used;    /* images since the beginning, in order */
    queue *compute;            /* the one that frees slots; NULL at first */
};

bool stream_has(const model *m, int n, int layer)
{
    const int64_t layers = m->config.layers;
    return (layer + 1) * (int64_t)n / layers > layer * (int64_t)n / layers;
}

/* The bytes of a layer's image; param_at may be NULL. */
static uint64_t image_bytes(const model *m, pt_dtype type, int layer, uint64_t *param_at)
{
    uint64_t at = 0;
    for (int role = 0; role < PARAM_ROLES; role++) {
        const int i = m->blocks[layer + 1].param_of_role[role];
        if (i < 0)
            continue;
        if (param_at)
            param_at[i] = at;
        at = align_up(at + load_param_bytes(&m->params[i], type), LINE);
    }
    return align_up(at, DISK_ALIGN);
}

static uint64_t largest_image(const model *m, pt_dtype type, int n)
{
    uint64_t most = 0;
    for (int l = 0; l < m->config.layers; l++) {
        const uint64_t bytes = stream_has(m, n, l) ? image_bytes(m, type, l, NULL) : 0;
        most = bytes > most ? bytes : most;
    }
    return most;
}

uint64_t stream_slot_bytes(const model *m, pt_dtype type, int n) { return n ? STREAM_SLOTS * largest_image(m, type, n) : 0; }

uint64_t stream_store_bytes(const model *m, pt_dtype type, int n)
{
    uint64_t sum = 0;
    for (int l = 0; l < m->config.layers && n; l++)
        sum += stream_has(m, n, l) ? image_bytes(m, type, l, NULL) : 0;
    return sum;
}

uint64_t stream_bounce_bytes(const model *m, pt_dtype type, int n, const device *d, bool on_disk)
{
    return n && on_disk && device_is_gpu(d) ? STREAM_SLOTS * largest_image(m, type, n) : 0;
}

/* ---- life ---- */

static int place_images(streamed *s, pt_dtype type, pt_error *e)
{
    const model *m = s->model;
    s->layer = malloc((size_t)s->n * sizeof *s->layer);
    s->at = malloc((size_t)s->n * sizeof *s->at);
    s->bytes = malloc((size_t)s->n * sizeof *s->bytes);
    s->param_at = calloc((size_t)m->params_n, sizeof *s->param_at);
    if (!s->layer || !s->at || !s->bytes || !s->param_at)
        return pt_fail(e, PT_FAILED, "out of memory");
    int i = 0;
    for (int l = 0; l < m->config.layers; l++) {
        if (!stream_has(m, s->n, l))
            continue;
        s->layer[i] = l;
        s->at[i] = s->store_bytes;
        s->bytes[i] = image_bytes(m, type, l, s->param_at);
        s->store_bytes += s->bytes[i++];
    }
    s->slot_bytes = largest_image(m, type, s->n);
    return 0;
}

static int open_host(device *d, uint64_t bytes, char **out, pt_error *e)
{
    void *base;
    const int failed = d->table->memory_open(d, MEMORY_HOST, bytes, &base, e);
    *out = failed ? NULL : base;
    return failed;
}

static int open_disk(streamed *s, const char *folder, pt_error *e)
{
    int failed = disk_open(folder, s->store_bytes, NULL, &s->file, e);
    if (!failed)
        failed = disk_channel_open(s->file, &s->writes, e);
    if (!failed)
        failed = disk_channel_open(s->file, &s->reads, e);
    if (!failed && device_is_gpu(s->device))
        failed = s->host->table->queue_open(s->host, "weights", 1, &s->reading, e);
    for (int i = 0; i < STREAM_SLOTS && !failed; i++)
        if (device_is_gpu(s->device))
            failed = open_host(s->device, s->slot_bytes, &s->bounce[i], e);
    return failed;
}

int stream_open(const model *m, device *d, pt_dtype type, int n, const stream_place *place, void *slots, streamed **out, pt_error *e)
{
    streamed *s = *out = calloc(1, sizeof *s);
    if (!s)
        return pt_fail(e, PT_FAILED, "out of memory");
    *s = (streamed){.model = m, .device = d, .host = place->host, .on_disk = place->on_disk, .n = n};
    int failed = place_images(s, type, e);
    for (int i = 0; i < STREAM_SLOTS; i++)
        s->slot[i] = (char *)slots + (uint64_t)i * s->slot_bytes;
    if (!failed)
        failed = s->on_disk ? open_disk(s, place->disk_path, e) : open_host(d, s->store_bytes, &s->store, e);
    if (!failed)
        failed = d->table->queue_open(d, "fetch", 1, &s->copies, e);
    if (failed) {
        stream_close(s);
        *out = NULL;
    }
    return failed;
}

void stream_close(streamed *s)
{
    if (!s)
        return;
    pt_error e;
    queue *const queues[] = {s->reading, s->copies};
    for (int i = 0; i < 2; i++)
        if (queues[i]) {
            queue_sync(queues[i], queue_signal(queues[i]), &e);
            queues[i]->device->table->queue_close(queues[i]);
        }
    disk_channel_close(s->reads);
    disk_channel_close(s->writes);
    disk_close(s->file);
    for (int i = 0; i < STREAM_SLOTS; i++)
        s->device->table->memory_close(s->device, MEMORY_HOST, s->bounce[i], s->slot_bytes);
    s->device->table->memory_close(s->device, MEMORY_HOST, s->store, s->store_bytes);
    free(s->layer);
    free(s->at);
    free(s->bytes);
    free(s->param_at);
    free(s);
}

/* ---- loading ---- */

static int image_of(const streamed *s, int layer)
{
    int i = 0;
    while (s->layer[i] != layer)
        i++;
    return i;
}

char *stream_image(streamed *s, int layer, const uint64_t **param_at)
{
    *param_at = s->param_at;
    if (s->store)
        return s->store + s->at[image_of(s, layer)];
    return s->bounce[0] ? s->bounce[0] : s->slot[0]; /* of a CPU the device's memory is the host's */
}

int stream_store(streamed *s, int layer, pt_error *e)
{
    const int i = image_of(s, layer);
    const uint64_t *at;
    return s->store ? 0 : disk_write(s->writes, s->at[i], stream_image(s, layer, &at), s->bytes[i], e);
}

/* ---- fetching ---- */

static void fetch(streamed *s)
{
    const int i = (int)(s->fetched % (uint64_t)s->n), slot = (int)(s->fetched % STREAM_SLOTS);
    char *from = s->store ? s->store + s->at[i] : s->bounce[slot];
    const op read = {OP_DISK_READ, .disk = {s->reads, s->reading ? from : s->slot[slot], s->at[i], s->bytes[i]}};
    if (s->reading) {
        if (s->fetched >= STREAM_SLOTS)
            queue_wait(s->reading, s->copies, s->ready[slot]);
        queue_submit(s->reading, &read);
        s->was_read[slot] = queue_signal(s->reading);
        queue_wait(s->copies, s->reading, s->was_read[slot]);
    }
    if (s->fetched >= STREAM_SLOTS)
        queue_wait(s->copies, s->compute, s->freed[slot]);
    queue_submit(s->copies, s->on_disk && !s->reading ? &read : &(op){OP_COPY, .copy = {s->slot[slot], from, s->bytes[i]}});
    s->ready[slot] = queue_signal(s->copies);
    s->fetched++;
}

char *stream_next(streamed *s, queue *compute, int layer)
{
    const int slot = (int)(s->used % STREAM_SLOTS);
    s->compute = compute;
    while (s->fetched < s->used + STREAM_SLOTS)
        fetch(s);
    queue_wait(compute, s->copies, s->ready[slot]);
    return s->layer[s->used % (uint64_t)s->n] == layer ? s->slot[slot] : NULL;
}

void stream_done(streamed *s, queue *compute)
{
    s->freed[s->used % STREAM_SLOTS] = queue_signal(compute);
    s->used++;
}

int stream_check(streamed *s, pt_error *e)
{
    const uint64_t slot = (s->used - 1) % STREAM_SLOTS; /* of the last one */
    const int failed = s->used && s->reading ? queue_sync(s->reading, s->was_read[slot], e) : 0;
    return failed || !s->used ? failed : queue_sync(s->copies, s->ready[slot], e);
}

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* A whole round, so that the next begins with the first layer. */
int stream_measure(streamed *s, queue *compute, double *seconds, pt_error *e)
{
    const double begun = now_s();
    for (int i = 0; i < s->n; i++) {
        stream_next(s, compute, s->layer[i]);
        stream_done(s, compute);
    }
    const int failed = queue_sync(compute, queue_signal(compute), e);
    *seconds = now_s() - begun;
    return failed ? failed : stream_check(s, e);
}
