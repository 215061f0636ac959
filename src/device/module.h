/* module.h - the interface of a backend that is loaded at run time. */
#ifndef PT_DEVICE_MODULE_H
#define PT_DEVICE_MODULE_H

#include "device/device.h"

#define CUDA_MODULE_FILE "libprotrain_cuda.so"

/* A hash of the interface, so that a module of another build is refused. */
static inline uint64_t device_seam(void)
{
    return (uint64_t)sizeof(device_options) << 54 | (uint64_t)sizeof(op) << 40 | (uint64_t)sizeof(device_table) << 24 |
           (uint64_t)sizeof(device_info) << 8 | OP_KINDS;
}

/* The functions that the module exports: its device_seam(), open, and the list of usable GPUs. */
typedef uint64_t device_module_seam_fn(void);
typedef int device_module_open_fn(const device_options *o, device **out, pt_error *e);
typedef int device_module_list_fn(gpu_list *out, pt_error *e);
#define DEVICE_MODULE_SEAM "protrain_module_seam"
#define DEVICE_MODULE_OPEN "protrain_module_open"
#define DEVICE_MODULE_LIST "protrain_module_list"
#define DEVICE_MODULE_LINKS "protrain_module_links" /* a link_table (link.h) */

#endif
