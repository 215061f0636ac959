/* links.h - the memory, file and queues that measurements of transfers use, alone (measure_links.c) and under contention (measure_pace.c,
 * measure_quota.c, measure_beside.c). Internal to measure/. */
#ifndef PT_LINKS_H
#define PT_LINKS_H

#include "io/disk.h"
#include "measure/measure_parts.h"

/* room: bytes of memory to cycle through; span: bytes of the file to cycle through, from `offset` on. */
typedef struct transfer { op_kind kind; disk_channel *channel; char *to; const char *from; uint64_t offset, room, span; } transfer;

/* Submits a transfer of the next `n` bytes of the memory and of the file's span. A remainder at their ends is not used. */
void transfer_run(queue *q, void *transfer_of, int n, int turn);

typedef struct links {
    bench *b;
    uint64_t most;               /* bytes of the largest transfer */
    uint64_t room;               /* bytes of D, H and K each: 4 * most, or less if that does not fit */
    uint64_t span, written;      /* bytes of the file (links_file_bytes), limited by space; bytes written so far, limited by time */
    timed_matmul timed_matmul;
    region update[2];            /* on the device, on the host */
    char *d, *h, *k;
    area device, host;
    disk_file *file;
    disk_channel *reader, *writer;
    queue *queues[COST_CLASSES];
    transfer transfers[COST_CLASSES];
} links;

/* Copies in each direction cycle through all of D and H, because a cache could hold a part of them. If apart, each has its own half, so
 * that both can run concurrently. */
void links_set_copies(links *x, bool apart);
/* Reads and writes cycle through `span` bytes of the file; if apart, each through its own half. */
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
    bool computes;   /* slow at first after other work ran (measure_wake_latency.c) */
    int turn;        /* runs so far */
    int other;       /* transfers: a second amount that is also timed, and its time alone */
    double other_ns;
} load;

/* at[0]: when the first run began; at[i]: when run i ended. work: processor time of the queue's threads at the start and the end. */
enum { PACE_RUNS = 4096 };
typedef struct pace { int n; int64_t at[PACE_RUNS + 1], work[2]; } pace;

/* The number of runs that take `ns` alone, clamped to 3..PACE_RUNS. */
int load_runs(const load *l, double ns);
/* Runs both concurrently for at least `ns`; b may be NULL. */
int paces_run(load *a, load *b, double ns, pace *a_pace, pace *b_pace, pt_error *e);
/* The interval in which both ran; b may be NULL. */
void paces_meet(const pace *a, const pace *b, double *from, double *to);
/* ns of the interval in which the queue stalled: the excess of runs over the median, counted only if it is longer than usual jitter. */
double pace_stood(const pace *p, double from, double to);
/* ns per run in the interval, without the time `stood` in which the queue stalled. 0: none ran. */
double pace_ns(const pace *p, double from, double to, double stood);

/* Should the quota be measured: is there a disk whose work on the host may use up processor time of this virtual machine? Not if a control
 * group sets a quota, which is known. */
bool quota_shows(const links *x);
/* The class that computes during this measurement. */
int quota_class(const links *x);
/* ns per run of each while both run, without stalls (0: they did not overlap), and the ns of the stalls. */
typedef struct watched { double computes_ns, moves_ns, stood_ns; } watched;
/* Measures the quota. `loads` is indexed by cost_class; alone_ns of quota_class, reads and writes must be set. paces: receives reads and
 * writes concurrent with quota_class. */
int measure_quota(const links *x, load *loads, cost_quota *out, watched paces[COST_CLASSES], pt_error *e);

/* Measures the contention of each pair of classes. The curves of transfers must have been measured. */
int measure_contention(links *x, costs *costs, pt_error *e);

#endif
