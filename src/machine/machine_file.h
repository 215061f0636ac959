/* machine_file.h - a machine described by a JSON file, so that it need not be at hand: what its parts can do, each figure with its source.
 *
 *   {"name": "GeForce RTX 3090", "kind": "cuda",
 *    "device": {"memory_bytes": 25769803776, "memory_bandwidth": 936e9, "memory_efficiency": 0.91,
 *               "bf16_flops": 71.2e12, "fp32_flops": 35.6e12, "matmul_efficiency": 0.95, "kernel_s": 4e-6},
 *    "host":   {"memory_bytes": 137438953472, "memory_bandwidth": 80e9, "memory_efficiency": 0.8},
 *    "link":   {"to_device_bandwidth": 12.4e9, "from_device_bandwidth": 12.8e9, "latency_s": 10e-6, "both_ways": 0.9},
 *    "disk":   {"bytes": 1e12, "read_bandwidth": 3.0e9, "write_bandwidth": 2.0e9, "latency_s": 100e-6, "both_ways": 0.5},
 *    "ranks": 4, "devices": 8, "collective_bandwidth": 6e9, "collective_latency_s": 20e-6, "network_bandwidth": 25e9,
 *    "price_per_hour": 1.5,
 *    "sources": {"device.memory_bandwidth": "vendor's data sheet", ...}}
 *
 * Bandwidths are bytes per second. FLOP rates count a multiply-add as two, for dense operands, with fp32 sums. "memory_bandwidth" and
 * "*_flops" may be the vendor's figures; "*_efficiency" is the share of them that large operations reach (1 if missing). "kernel_s" is
 * the time lost between two operations of the device. "both_ways" is the share of its bandwidth that a direction keeps while the other
 * is busy. Host memory and disk are those of the whole machine; all other figures are for one device.
 *
 * "host.cores" is the number of the host's cores. An update there reads and writes "host.core_bandwidth" bytes a second per core, up to the
 * memory's bandwidth (9.8e9 if missing: AdamW of 10^9 parameters, 26 bytes each, takes 0.166 s on the 16 cores of an H100's host). Without
 * "cores" only the memory limits it.
 *
 * "host" and "disk" may be missing: there is no such tier. (If a budget asks for it all the same, a CPU's host tier is a part of its RAM,
 * and a common disk is assumed.) "link" is required with a host. "ranks" (default 1) is the number of devices that share a step unless
 * another is asked for; it requires "collective_bandwidth", at which a device receives data from the others. A machine has "devices"
 * devices (default: all); more ranks are in other such machines, from which a device receives data at "network_bandwidth".
 *
 * "device.watts" is the most that a device draws, "price_per_hour" the price of one device for an hour, in any currency. Both may be
 * missing; they are for the energy and the price of a run.
 *
 * Zero, negative, NaN, impossible or unknown entries are PT_FAILED with file, key and fix.
 */
#ifndef PT_MACHINE_FILE_H
#define PT_MACHINE_FILE_H

#include "base/error.h"
#include "plan/plan.h"

enum { MACHINE_PATH_BYTES = 4096, MACHINE_NAMES_BYTES = 600, MACHINE_MAX_RANKS = 1 << 16 };

typedef struct machine_spec {
    char name[96];
    bool cuda;                                       /* "kind": "cuda" or "cpu" */
    uint64_t memory_bytes[TIERS];                    /* 0: no such tier */
    double memory_bandwidth[TIERS], memory_efficiency[TIERS]; /* of device and host memory */
    double host_cores, core_bandwidth;               /* of its processor; 0 cores: enough for the memory's bandwidth */
    double bf16_flops, fp32_flops, matmul_efficiency, kernel_s;
    double attention_efficiency;                     /* 0: 0.6 of that of matmuls */
    double sustained;                                /* the clock under load, a share of the peak's; 0: 1 */
    double to_device_bandwidth, from_device_bandwidth, link_latency_s, link_both_ways;
    double read_bandwidth, write_bandwidth, disk_latency_s, disk_both_ways;
    int ranks;                                       /* devices that share a step; default 1 */
    int devices;                                     /* in one machine; 0: all ranks */
    double collective_bandwidth, collective_latency_s; /* at which a device receives from the others; 0: unknown */
    double network_bandwidth;                        /* the same from other machines */
    double watts, price_per_hour;                    /* of one device; 0: unknown */
} machine_spec;

/* The number of ranks, of so many, that share a machine. */
static inline int machine_ranks_here(const machine_spec *x, int ranks) { return x->devices && x->devices < ranks ? x->devices : ranks; }

/* The part of a machine that one of so many ranks has: on a GPU machine a device and its share of host and disk; on a CPU machine a share
 * of everything. */
machine_spec machine_share(const machine_spec *x, int ranks);

int machine_file_read(const char *path, machine_spec *out, pt_error *e);
int machine_from_json(const char *name, const char *json, size_t n, machine_spec *out, pt_error *e);

/* The path of a machine's file: `name` itself if it is a path that exists, else one of those that come with the program (machines/ or
 * share/protrain/machines/ beside the program or above it, then the place of installation), with or without ".json". PT_FAILED lists their
 * names. (machine_find.c) */
int machine_file_find(const char *name, char path[MACHINE_PATH_BYTES], pt_error *e);
/* Those names, between ", ". */
void machine_file_names(char names[MACHINE_NAMES_BYTES]);

#endif
