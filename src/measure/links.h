/* links.h - memory, file and queues with which transfers are measured (measure_links.c), alone and under contention (measure_pace.c,
 * measure_quota.c, measure_beside.c). Internal to measure/. */
#ifndef PT_LINKS_H
#define PT_LINKS_H

#include "io/disk.h"
#include "measure/measure_parts.h"

/* room: bytes of memory; span: bytes of the file from `offset` on. */
typedef struct transfer { op_kind kind; disk_channel *channel; char *to; const char *from; uint64_t offset, room, span; } transfer;

/* The next `n` bytes of the memory and of the file's span; a remainder at their ends is not used. */
void transfer_run(queue *q, void *transfer_of, int n, int turn);

typedef struct links {
    bench *b;
    uint64_t most;               /* bytes of the largest transfer */
    uint64_t room;               /* bytes of D, H and K each: four times that, as far as they fit */
    uint64_t span, written;      /* of the file (links_file_bytes), as far as there is room and time */
    timed_matmul timed_matmul;
    region update[2];            /* on the device, on the host */
    char *d, *h, *k;
    area device, host;
    disk_file *file;
    disk_channel *reader, *writer;
    queue *queues[COST_CLASSES];
    transfer transfers[COST_CLASSES];
} links;

/* Each way through all of D and H, because a cache would hold a part of them; or (apart) each through its own half, to run concurrently. */
void links_set_copies(links *x, bool apart);
/* Reads and writes of `span` bytes of the file, or (apart) of one half each. */
void links_set_disk(links *x, uint64_t span, bool apart);

/* ---- contention ---- */

/* The usual period of a processor quota. */
#define QUOTA_PERIOD_NS 100e6

typedef struct load {
    queue *queue;
    submit_fn submit;
    void *arg;
    int index;       /* index of the amount of one run */
    double alone_ns; /* time of one run alone */
    cost_class class;
    bool computes;   /* needs a moment to reach its speed (measure_wake_latency.c) after something else ran */
    int turn;        /* runs so far */
    int other;       /* of a transfer: another amount that is also timed, and its time alone */
    double other_ns;
} load;

/* When each run ended, and when the first began; the processor time of its queue's threads at these moments. */
enum { PACE_RUNS = 4096 };
typedef struct pace { int n; int64_t at[PACE_RUNS + 1], work[2]; } pace;

/* As many runs as take `ns` alone: 3 to PACE_RUNS. */
int load_runs(const load *l, double ns);
/* Runs both for `ns` or a little longer; b may be NULL. */
int paces_run(load *a, load *b, double ns, pace *a_pace, pace *b_pace, pt_error *e);
/* The interval in which both ran; b may be NULL. */
void paces_meet(const pace *a, const pace *b, double *from, double *to);
/* ns of it in which nothing proceeded: the time by which runs exceeded the median, if that is more than single disturbances. */
double pace_stood(const pace *p, double from, double to);
/* ns of one run in the interval, of which it stood still for the given time. 0: none ran. */
double pace_ns(const pace *p, double from, double to, double stood);

/* Is there a disk whose work on the host may hold up this machine, and time to measure it? Not if a control group has a quota: then
 * everything is stretched by its need of that. */
bool quota_shows(const links *x);
/* The class that computes during this measurement. */
int quota_class(const links *x);
/* ns of one run of each while both run and nothing stands still (0: they did not overlap), and the time that stood still. */
typedef struct watched { double computes_ns, moves_ns, stood_ns; } watched;
/* Measures the quota, with loads by cost_class; the times of quota_class, reads and writes alone are known. paces: of reads and writes
 * beside quota_class. */
int measure_quota(const links *x, load *loads, cost_quota *out, watched paces[COST_CLASSES], pt_error *e);

/* Measures the contention of everything with everything else; the times of transfers alone are known. */
int measure_contention(links *x, costs *c, pt_error *e);

#endif
