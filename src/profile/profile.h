/* profile.h - measuring what a model's step costs on this machine, and keeping it.
 *
 * Each kind of block is run for real on the device for one unit, for each phase and save level, on random data, in
 * memory as large as the largest of them needs: a model many times larger than memory is profiled in seconds.
 * Transfers are measured by size, alone and beside others, but only where a plan may need them, or there is a host to
 * transfer to. Repeats until the median settles.
 *
 * What was measured is kept in a cache folder ($XDG_CACHE_HOME/protrain, else ~/.cache/protrain; without either nothing is
 * kept), in two files: one for the blocks of a model, one for the machine (optimizer, transfers), which other models use
 * too. Each is looked for by what it was made for. Before it is used, some runs are timed again (a layer, updates, transfers); if
 * they differ by more than 15% from what they took then (disk writes: by more than 2.3 times, for a disk's cache takes them at a speed
 * of its own), it is measured anew. Budgets are no part of it, but what was measured
 * within smaller ones, and for that with smaller amounts or fewer rows, is measured anew too; so is what does not agree with its own
 * checks (profile_agree.c), and after an hour a model's blocks that are sure to no better than 10%, as others were at work beside them.
 * Where the budgets leave no room to measure anew, what was kept serves.
 */
#ifndef PT_PROFILE_H
#define PT_PROFILE_H

#include "device/device.h"
#include "predict/costs.h"

typedef struct profile_request {
    device *device, *host;      /* the same on a CPU */
    int threads;                /* compute threads, 0: the device's default */
    const model *model;
    const step_shape *shape;
    uint64_t budget[TIERS];     /* measuring stays inside them */
    bool host_tier;
    bool transfers;             /* something may not stay on the device: links, disk and contention are needed */
    const char *disk_path;      /* folder of the disk tier; NULL or budget 0: no disk */
    const char *file;           /* a profile.json to use instead of measuring, NULL: none */
    bool fresh;                 /* do not use what is cached */
    void (*progress)(void *arg, const char *stage, uint64_t done, uint64_t total); /* may be NULL */
    void (*notice)(void *arg, const char *sentence); /* a `file` that is used, though its checks take longer or shorter; may be NULL */
    void *arg;
} profile_request;

/* A run that is quickly done again: how much of it (0: what it needs is not there), and what it took (the shortest of several). */
typedef struct profile_check { int64_t amount; double ns; } profile_check;

/* An update of `amount` elements by so many threads. */
typedef struct profile_threads { int threads; int64_t amount; double ns; } profile_threads;
enum { PROFILE_THREADS = 8 };

typedef struct profile_result {
    costs costs;
    int threads_n;              /* thread counts that the optimizer was measured with: 1, 2, 4, ... and all, of the host */
    profile_threads threads[PROFILE_THREADS];
    bool cached;                /* all of it is from the cache or a file, and was checked, where there is memory for that */
    double seconds;             /* taken to measure or check */
    int64_t measured_at;        /* of the blocks, seconds since 1970 */
    profile_check layer;        /* forward of the first kind of layer, by rows */
    int64_t within_bytes;       /* of the device that measuring the blocks might take: its budget then; 0: not known */
    profile_check update;       /* by the optimizer's first rule on the device, by elements */
    profile_check update_host;  /* the same on the host */
    profile_check to_device, from_device, read, write; /* one transfer, by bytes */
    char fingerprint[32];       /* of what it was made for */
    uint64_t needs[TIERS];      /* where it does not fit: what the block takes that was to be measured */
} profile_result;

/* PT_DOES_NOT_FIT: a block is larger than the budget. A `file` that is for something else, whose costs are far from its own checks or
 * nothing, or whose checks take more than twice or less than half as long as they did (disk writes: four times), is PT_FAILED; a notice
 * says where they differ by more than 15%. What does not fit the budgets is not checked. */
int profile_get(const profile_request *r, profile_result *out, pt_error *e);

/* HOME where the cache would lie in it and it is no folder; else NULL. */
const char *profile_cache_missing(void);

/* profile.json: the costs, what they are for, when and how sure. */
int profile_write(const char *path, const profile_request *r, const profile_result *p, pt_error *e);
char *profile_to_json(const profile_request *r, const profile_result *p); /* malloc'ed, NULL: out of memory */
/* A profile of another machine, arithmetic or model shape, or one that lacks transfers where they are needed, is refused
 * with what differs; so are times that are negative, not finite or otherwise impossible. */
int profile_read(const char *path, const profile_request *r, profile_result *out, pt_error *e);
int profile_from_json(const char *name, const char *json, size_t n, const profile_request *r, profile_result *out, pt_error *e);

#endif
