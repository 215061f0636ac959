/* machine_file.h - a machine that one need not own, as a JSON file: what its parts can do, each figure with its source.
 *
 *   {"name": "GeForce RTX 3090", "kind": "cuda",
 *    "device": {"memory_bytes": 25769803776, "memory_bandwidth": 936e9, "memory_efficiency": 0.91,
 *               "bf16_flops": 71.2e12, "fp32_flops": 35.6e12, "matmul_efficiency": 0.95, "kernel_s": 4e-6},
 *    "host":   {"memory_bytes": 137438953472, "memory_bandwidth": 80e9, "memory_efficiency": 0.8},
 *    "link":   {"to_device_bandwidth": 12.4e9, "from_device_bandwidth": 12.8e9, "latency_s": 10e-6, "both_ways": 0.9},
 *    "disk":   {"bytes": 1e12, "read_bandwidth": 3.0e9, "write_bandwidth": 2.0e9, "latency_s": 100e-6, "both_ways": 0.5},
 *    "ranks": 4, "devices": 8, "collective_bandwidth": 6e9, "collective_latency_s": 20e-6, "network_bandwidth": 25e9,
 *    "sources": {"device.memory_bandwidth": "vendor's data sheet", ...}}
 *
 * Bandwidths are bytes a second, flops multiply-adds counted twice, dense, with fp32 sums. "memory_bandwidth" and "*_flops"
 * may be the vendor's; "*_efficiency" is the share of them that large operations reach (1 if missing). "kernel_s" is lost
 * between two operations of the device. "both_ways" is the share of its bandwidth that a direction keeps while the other
 * one is busy too. Memory of the host and the disk are those of the whole machine, all else is one device's.
 *
 * "host" and "disk" may be missing: the tier does not exist (where one is asked for all the same, a CPU's host tier is a part of its
 * RAM, and a common disk is assumed). "link" is needed where there is a host. "ranks" (1 if missing)
 * devices share a step, where no other number is asked for; "collective_bandwidth", what one of them receives from the others, is then
 * needed. There are "devices" in a machine (all of them if missing); more ranks are in other such machines, and "network_bandwidth" is what
 * a device receives from those.
 * Zero, negative, NaN, absurd or unknown entries are PT_FAILED with file, key and mend.
 */
#ifndef PT_MACHINE_FILE_H
#define PT_MACHINE_FILE_H

#include "base/error.h"
#include "predict/costs.h"

#include <jansson.h>

enum { MACHINE_PATH_BYTES = 4096, MACHINE_MAX_RANKS = 1 << 16 };

typedef struct machine_spec {
    char name[96];
    bool cuda;                                       /* "kind": "cuda" or "cpu" */
    uint64_t memory_bytes[TIERS];                    /* 0: no such tier */
    double memory_bandwidth[TIERS], memory_efficiency[TIERS]; /* of device and host memory */
    double bf16_flops, fp32_flops, matmul_efficiency, kernel_s;
    double to_device_bandwidth, from_device_bandwidth, link_latency_s, link_both_ways;
    double read_bandwidth, write_bandwidth, disk_latency_s, disk_both_ways;
    int ranks;                                       /* devices that share a step; 1 */
    int devices;                                     /* in one machine; 0: all */
    double collective_bandwidth, collective_latency_s; /* that one receives from the others; 0: not known */
    double network_bandwidth;                        /* the same from other machines */
} machine_spec;

/* Of so many ranks those that share a machine. */
static inline int machine_ranks_here(const machine_spec *x, int ranks) { return x->devices && x->devices < ranks ? x->devices : ranks; }

/* What one of so many ranks has of it: of a GPU's machine a device and its share of host and disk, of a CPU's a share of all. */
machine_spec machine_share(const machine_spec *x, int ranks);

int machine_file_read(const char *path, machine_spec *out, pt_error *e);
int machine_from_json(const char *name, const char *json, size_t n, machine_spec *out, pt_error *e);

/* Where a machine's file lies: `name` itself if it is a path to something; else one of those that come with the program
 * (machines/ or share/protrain/machines/ beside it or above it, then where they were installed), with or without ".json".
 * PT_FAILED lists their names. (machine_find.c) */
int machine_file_find(const char *name, char path[MACHINE_PATH_BYTES], pt_error *e);

/* The other way: a machine from what was measured on it, with the host if memory_bytes has one and the profile its updates and the
 * link; arithmetic is said for the compute type of `s` and taken to be the same for the other. As the text of a file, `source` says
 * where the figures are from. (machine_measured.c) */
int machine_measured(const char *name, bool cuda, const uint64_t memory_bytes[TIERS], const costs *c, const model *m,
                     const step_shape *s, machine_spec *out, pt_error *e);
json_t *machine_to_json(const machine_spec *x, const char *source);

/* Costs of a model's step, or of a rank's part of it, on what machine_share gives it: from operations and bytes alone. (analytic.c) */
int costs_analytic(const machine_spec *x, const model *m, const step_shape *s, costs *out, pt_error *e);

#endif
