/* profile.h - measuring what a model's step costs on this machine, and keeping it.
 *
 * Each kind of block is run for real on the device for one unit, for each phase and save level, on random data, in
 * memory that is taken for it alone and given back: a model many times larger than memory is profiled in seconds.
 * Transfers are measured by size, alone and beside others, but only where a plan may need them. Repeats until the
 * median settles. What was measured is kept in a cache folder ($XDG_CACHE_HOME/protrain, ~/.cache/protrain) under a
 * fingerprint of machine, arithmetic, threads and model shape, and used again if a quick check agrees.
 */
#ifndef PT_PROFILE_H
#define PT_PROFILE_H

#include "device/device.h"
#include "schedule/costs.h"

typedef struct profile_request {
    device *device, *host;      /* the same on a CPU */
    int threads;                /* compute threads, 0: the device's default */
    const model *model;
    const step_shape *shape;
    uint64_t budget[TIERS];     /* measuring stays inside them */
    bool host_tier;
    bool transfers;             /* not everything fits on the device: links, disk and contention are needed */
    const char *disk_path;      /* folder of the disk tier; NULL or budget 0: no disk */
    const char *file;           /* a profile.json to use instead of measuring, NULL: none */
    bool fresh;                 /* do not use what is cached */
    void (*progress)(void *arg, const char *stage, uint64_t done, uint64_t total); /* may be NULL */
    void *arg;
} profile_request;

typedef struct profile_result {
    costs costs;
    bool cached;                /* from the cache or a file, and checked */
    double seconds;             /* taken to measure or check */
    char fingerprint[32];
} profile_result;

int profile_get(const profile_request *r, profile_result *out, pt_error *e);

/* profile.json: the costs, what they are for, when and how sure. */
int profile_write(const char *path, const profile_request *r, const profile_result *p, pt_error *e);
char *profile_to_json(const profile_request *r, const profile_result *p); /* malloc'ed, NULL: out of memory */
/* A profile of another machine, arithmetic or model shape is refused with what differs. */
int profile_read(const char *path, const profile_request *r, profile_result *out, pt_error *e);
int profile_from_json(const char *name, const char *json, size_t n, const profile_request *r, profile_result *out, pt_error *e);

#endif
