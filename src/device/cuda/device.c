/* device.c - an NVIDIA GPU as a device: finds, describes and opens it, or says why it cannot be used. */
#include "device/cuda/cuda.h"
#include "device/cuda/kernels.h"
#include "device/cuda/matmul_table.h"
#include "device/module.h"

#include <cublasLt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LEAST_MAJOR = 8 }; /* compute capability, for bf16 on tensor cores and asynchronous copies to shared memory */

static int count_devices(int *n, pt_error *e)
{
    int driver = 0, runtime = 0;
    cudaError_t error = cudaGetDeviceCount(n);
    cudaDriverGetVersion(&driver);
    cudaRuntimeGetVersion(&runtime);
    if (error == cudaErrorInsufficientDriver)
        return pt_fail(e, PT_FAILED,
                       "the NVIDIA driver is too old: it runs CUDA %d.%d, but this build needs %d.%d: update the driver, or use `device` "
                       "cpu",
                       driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
    if (error == cudaErrorNoDevice || (error == cudaSuccess && *n == 0))
        return pt_fail(e, PT_FAILED, "the NVIDIA driver finds no GPU (does CUDA_VISIBLE_DEVICES hide it?): use `device` cpu");
    return error ? cuda_fail(e, error, "looking for GPUs") : 0;
}

static int check_device(int ordinal, struct cudaDeviceProp *p, pt_error *e)
{
    int n;
    int failed = count_devices(&n, e);
    if (failed)
        return failed;
    if (ordinal >= n)
        return pt_fail(e, PT_USAGE, "GPU %d does not exist: this machine has %d, counted from 0", ordinal, n);
    cudaError_t error = cudaGetDeviceProperties(p, ordinal);
    if (error)
        return cuda_fail(e, error, "asking what the GPU is");
    if (p->major < LEAST_MAJOR)
        return pt_fail(e, PT_FAILED, "%s has compute capability %d.%d, but %d.0 is needed (Ampere or later): use `device` cpu", p->name,
                       p->major, p->minor, LEAST_MAJOR);
    return 0;
}

/* Identifies the GPU, whatever its number in a process: FNV-1a of its UUID. */
static uint64_t id_of(const struct cudaDeviceProp *p)
{
    uint64_t id = 0xcbf29ce484222325u;
    for (size_t i = 0; i < sizeof p->uuid; i++)
        id = (id ^ (unsigned char)p->uuid.bytes[i]) * 0x100000001b3u;
    return id;
}

/* What the bits of matmuls depend on, beside the table. */
static void write_kind(const struct cudaDeviceProp *p, char out[MATMUL_GPU_BYTES])
{
    snprintf(out, MATMUL_GPU_BYTES, "sm_%d%d, %d multiprocessors, cuBLASLt %zu", p->major, p->minor, p->multiProcessorCount,
             cublasLtGetVersion());
}

static void describe(cuda_device *d, const struct cudaDeviceProp *p, const char *kind, int threads)
{
    device_info *info = &d->base.info;
    const uint32_t table = cuda_matmul_table(d->matmul);
    size_t left = 0, all = 0;
    int driver = 0;
    cudaDriverGetVersion(&driver);
    cudaMemGetInfo(&left, &all);
    snprintf(info->name, sizeof info->name, "%.63s", p->name);
    int used = snprintf(info->arithmetic, sizeof info->arithmetic, "cuda %s, driver CUDA %d.%d", kind, driver / 1000, driver % 1000 / 10);
    if (table)
        snprintf(info->arithmetic + used, sizeof info->arithmetic - (size_t)used, ", matmul table %08x", table);
    info->threads = threads ? threads : (int)sysconf(_SC_NPROCESSORS_ONLN);
    info->shares_ram = p->integrated != 0;
    info->memory_bytes = all;
    info->memory_free_bytes = left;
}

static void cuda_close(device *base)
{
    cuda_device *d = (cuda_device *)base;
    cudaSetDevice(d->ordinal);
    cuda_matmul_close(d->matmul);
    cuda_memory_free(d->memory);
    free(d);
}

static const device_table CUDA_TABLE = {
    .close = cuda_close,
    .memory_open = cuda_memory_open,
    .memory_close = cuda_memory_close,
    .queue_open = cuda_queue_open,
    .queue_close = cuda_queue_close,
    .submit = cuda_queue_submit,
    .signal = cuda_queue_signal,
    .wait = cuda_queue_wait,
    .mark = cuda_queue_mark,
    .sync = cuda_queue_sync,
};

#define EXPORT __attribute__((visibility("default")))

EXPORT uint64_t protrain_module_seam(void) { return device_seam(); }

/* Does not create a context. */
EXPORT int protrain_module_list(gpu_list *out, pt_error *e)
{
    struct cudaDeviceProp p;
    pt_error why = {0};
    int n;
    *out = (gpu_list){0};
    int failed = count_devices(&n, e);
    for (int i = 0; i < n && out->n < GPUS_MOST && !failed; i++)
        if (!check_device(i, &p, &why)) {
            out->ordinal[out->n] = i;
            out->id[out->n++] = id_of(&p);
        }
    return failed || out->n ? failed : pt_fail(e, PT_FAILED, "%s", why.text);
}

/* Creates the context, cuBLASLt's handle and its workspace before it queries the free memory. */
EXPORT int protrain_module_open(const device_options *o, device **out, pt_error *e)
{
    struct cudaDeviceProp p;
    char kind[MATMUL_GPU_BYTES];
    *out = NULL;
    int failed = check_device(o->ordinal, &p, e);
    if (failed)
        return failed;
    cuda_device *d = calloc(1, sizeof *d);
    if (!d)
        return pt_fail(e, PT_FAILED, "no memory for the description of the GPU");
    d->base.table = &CUDA_TABLE;
    d->ordinal = o->ordinal;
    cudaError_t error = cudaSetDevice(o->ordinal);
    if (!error)
        error = cudaFree(NULL);
    if (error)
        failed = cuda_fail(e, error, "opening it");
    error = failed ? cudaSuccess : (cudaError_t)cuda_check_kernels();
    if (error == cudaErrorNoKernelImageForDevice || error == cudaErrorInvalidDeviceFunction || error == cudaErrorUnsupportedPtxVersion)
        failed = pt_fail(e, PT_FAILED,
                         "the CUDA module was not built for %s (compute capability %d.%d): build it on this machine, or with "
                         "-DPT_CUDA=ON for all, or use `device` cpu",
                         p.name, p.major, p.minor);
    else if (error)
        failed = cuda_fail(e, error, "loading its kernels");
    write_kind(&p, kind);
    if (!failed)
        failed = cuda_matmul_open(o, kind, &d->matmul, e);
    if (!failed && !(d->memory = cuda_memory_new(o, e)))
        failed = PT_FAILED;
    if (failed) {
        cuda_close(&d->base);
        return failed;
    }
    describe(d, &p, kind, o->threads);
    *out = &d->base;
    return 0;
}
