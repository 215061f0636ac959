/* machine_file.h - a machine that one need not own, as a JSON file: what its parts can do, each figure with its source.
 *
 *   {"name": "GeForce RTX 3090", "kind": "cuda",
 *    "device": {"memory_bytes": 25769803776, "memory_bandwidth": 936e9, "bf16_flops": 71e12, "fp32_flops": 35.6e12},
 *    "host":   {"memory_bytes": 137438953472, "memory_bandwidth": 80e9, "cores": 16, "adam_bandwidth"?: ...},
 *    "link":   {"to_device_bandwidth": 12.3e9, "from_device_bandwidth": 12.8e9, "latency_s": 10e-6, "both_ways": 0.8},
 *    "disk":   {"bytes": 1e12, "read_bandwidth": 3.0e9, "write_bandwidth": 2.0e9, "latency_s": 100e-6},
 *    "ranks"?: 4, "collective_bandwidth"?: ...,
 *    "sources": {"device.memory_bandwidth": "vendor's data sheet", ...}}
 *
 * "host" and "disk" may be missing (the tier does not exist). Bandwidths are bytes a second, flops multiply-adds counted
 * twice, dense. Zero, negative, NaN, absurd or unknown entries are PT_FAILED with file, key and mend.
 */
#ifndef PT_MACHINE_FILE_H
#define PT_MACHINE_FILE_H

#include "base/error.h"
#include "schedule/costs.h"

typedef struct machine_spec {
    char name[96];
    bool cuda;                                       /* "kind": "cuda" or "cpu" */
    uint64_t memory_bytes[TIERS];                    /* 0: no such tier */
    double memory_bandwidth[TIERS];                  /* of device and host memory */
    double bf16_flops, fp32_flops;
    int host_cores;
    double to_device_bandwidth, from_device_bandwidth, link_latency_s, link_both_ways;
    double read_bandwidth, write_bandwidth, disk_latency_s;
    int ranks;                                       /* devices that share the model's states; 1 */
    double collective_bandwidth;                     /* between them, each; 0: one rank */
} machine_spec;

int machine_file_read(const char *path, machine_spec *out, pt_error *e);
int machine_from_json(const char *name, const char *json, size_t n, machine_spec *out, pt_error *e);

/* analytic.c: costs of a model's blocks on such a machine, from operations and bytes alone. */
int costs_analytic(const machine_spec *x, const model *m, const step_shape *s, costs *out, pt_error *e);

#endif
