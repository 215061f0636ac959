/* profile.h - the profile of a machine and a model: costs of a step's parts, and the checks recorded with them, as a struct and as JSON.
 * measure/profile_get.h measures it; profile_parts.h has the cache in which it is kept.
 */
#ifndef PT_PROFILE_H
#define PT_PROFILE_H

#include "device/device.h"
#include "predict/costs.h"

typedef struct profile_request {
    device *device, *host;      /* the same object on a CPU */
    int threads;                /* compute threads, 0: the device's default */
    int ranks;                  /* of this machine, which measure at the same time, each on its own processors or GPU; 0: one */
    const model *model;
    const step_shape *shape;
    uint64_t budget[TIERS];     /* measuring stays inside them */
    bool host_tier;
    bool transfers;             /* something may not stay on the device: transfers, disk and contention are needed */
    const char *disk_path;      /* folder of the disk tier; NULL or budget 0: no disk */
    const char *file;           /* a profile.json to use instead of measuring, NULL: none */
    bool fresh;                 /* do not use what is cached */
    void (*progress)(void *arg, const char *stage, uint64_t done, uint64_t total); /* may be NULL */
    void (*notice)(void *arg, const char *sentence); /* called if `file` is used although its checks take longer or shorter; may be NULL */
    void *arg;
} profile_request;

typedef enum profile_part {
    PROFILE_BLOCKS,  /* layers, embedding, head of one model */
    PROFILE_MACHINE, /* updates, tasks, transfers, and contention with units of so many rows: for any model of that size */
    PROFILE_PARTS
} profile_part;

/* A run that can be repeated quickly: its amount (0: what it needs does not exist), and its time (the shortest of several). */
typedef struct profile_check { int64_t amount; double ns; } profile_check;

/* The time of an update of `amount` elements by so many threads. */
typedef struct profile_threads { int threads; int64_t amount; double ns; } profile_threads;
enum { PROFILE_THREADS = 8 };

typedef struct profile_result {
    costs costs;
    int threads_n;              /* number of thread counts with which the host's optimizer was measured: 1, 2, 4, ... and all */
    profile_threads threads[PROFILE_THREADS];
    bool cached;                /* all of it came from the cache or a file and was checked, as far as there was memory */
    double seconds;             /* taken to measure or check */
    int64_t measured_at;        /* of the blocks, seconds since 1970 */
    double others_now;          /* the same now, where what was measured earlier is used although its checks take longer */
    double others[PROFILE_PARTS]; /* share of the time in which computation wanted a processor and other programs had it meanwhile */
    profile_check layer;        /* forward of the first kind of layer, by rows */
    int64_t within_bytes;       /* budget of the device when the blocks were measured; 0: unknown */
    profile_check update;       /* by the optimizer's first rule on the device; amount in elements */
    profile_check update_host;  /* the same on the host */
    profile_check to_device, from_device, read, write; /* one transfer, by bytes */
    char fingerprint[32];       /* hash of what it was made for */
    uint64_t needs[TIERS];      /* if it does not fit: the needs of the block that was to be measured */
} profile_result;

#define PROFILE_DISTURBED 0.05 /* share of others; more: its times are uncertain */

/* HOME if the cache would lie in it and it is not a folder; else NULL. */
const char *profile_cache_missing(void);

/* profile.json: the costs, what they were made for, when, and how certain they are. */
int profile_write(const char *path, const profile_request *req, const profile_result *result, pt_error *e);
char *profile_to_json(const profile_request *req, const profile_result *result); /* malloc'ed, NULL: out of memory */
/* Refuses a profile of another machine, arithmetic or model shape, or one without transfers if they are needed, and names the difference;
 * also times that are negative, not finite or impossible. */
int profile_read(const char *path, const profile_request *req, profile_result *out, pt_error *e);
int profile_from_json(const char *name, const char *json, size_t n, const profile_request *req, profile_result *out, pt_error *e);

#endif
