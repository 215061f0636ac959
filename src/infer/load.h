/* load.h - loads weights from files into one arena, with several threads. Matrices in few bits are quantized on the way. */
#ifndef PT_INFER_LOAD_H
#define PT_INFER_LOAD_H

#include "device/device.h"
#include "model/model.h"

struct safetensors;

typedef struct load_job {
    const model *model;
    const struct safetensors *st; /* NULL: random weights from `seed` */
    const struct safetensors *adapter; /* of the model's adapters; NULL: none */
    uint64_t seed;
    pt_dtype type;                /* of the weights in the arena */
    device *device;
    int threads;
    char *base;                   /* device memory; parameter i starts at base + param_at[i] */
    const uint64_t *param_at;
    const bool *wanted;           /* of each parameter; NULL: all are */
    void (*progress)(void *arg, uint64_t done, uint64_t total); /* bytes; from the caller's thread; may be NULL */
    void *arg;
} load_job;

/* Bytes of a parameter in the arena. */
uint64_t load_param_bytes(const param *p, pt_dtype type);
int load_weights(const load_job *job, pt_error *e);
uint64_t load_bytes(const model *m, pt_dtype type, int threads); /* memory in use during loading */

#endif
