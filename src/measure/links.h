/* links.h - the memory, the file and the queues that transfers are measured with (measure_links.c), alone and beside each other
 * (measure_pace.c, measure_quota.c, measure_beside.c). Internal to measure/. */
#ifndef PT_LINKS_H
#define PT_LINKS_H

#include "io/disk.h"
#include "measure/measure_parts.h"

/* room: bytes of memory; span: of the file, from offset on. */
typedef struct transfer { op_kind kind; disk_channel *channel; char *to; const char *from; uint64_t offset, room, span; } transfer;

/* The next `n` bytes of the room and of the span; what is left over at their ends is not used. */
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

/* Each way through all of D and H, for a cache would hold a part of them; or (apart) each through a half of its own, to run at once. */
void links_set_copies(links *x, bool apart);
/* Reads and writes of `span` bytes of the file, or (apart) of a half each. */
void links_set_disk(links *x, uint64_t span, bool apart);

/* ---- what runs beside something else ---- */

/* Of a quota of processor time: the usual period. */
#define QUOTA_PERIOD_NS 100e6

typedef struct load {
    queue *queue;
    submit_fn submit;
    void *arg;
    int index;       /* amount of one run */
    double alone_ns; /* that one run takes */
    cost_class class;
    bool computes;   /* takes a moment to come to speed (measure_wake_latency.c) after something else ran */
    int turn;        /* runs so far */
    int other;       /* of a transfer: another amount that is timed too, and what that takes alone */
    double other_ns;
} load;

/* When each run ended, and when the first began; the processor time that one thread had taken by then, and at the end. */
enum { PACE_RUNS = 4096 };
typedef struct pace { int n; int64_t at[PACE_RUNS + 1], work[2]; } pace;

/* So many runs as take `ns` alone: 3 to PACE_RUNS. */
int load_runs(const load *l, double ns);
/* Both at once, for `ns` or a little longer; b may be NULL. */
int paces_run(load *a, load *b, double ns, pace *a_pace, pace *b_pace, pt_error *e);
/* From when to when both ran; b may be NULL. */
void paces_meet(const pace *a, const pace *b, double *from, double *to);
/* ns of these in which nothing went on: what runs took longer than the last ones in the median, where that is more than what disturbs
 * single ones. */
double pace_stood(const pace *p, double from, double to);
/* ns of one run between these, of which it stood still for so many. 0: none ran. */
double pace_ns(const pace *p, double from, double to, double stood);

/* Whether there is a disk whose host's work may hold up this machine, and time to find it. Not where a control group has a quota: then all
 * is stretched by what it wants of that. */
bool quota_shows(const links *x);
/* The class that computes while it is looked for. */
int quota_class(const links *x);
/* ns of one run of each while both go on and nothing stands still (0: they did not meet), and what did. */
typedef struct watched { double computes_ns, moves_ns, stood_ns; } watched;
/* What it is, of loads by cost_class; what those of quota_class, reads and writes take alone is known. paces: of reads and writes beside
 * quota_class. */
int measure_quota(const links *x, load *loads, cost_quota *out, watched paces[COST_CLASSES], pt_error *e);

/* How many times as long everything takes beside everything else; what transfers take alone is known. */
int measure_contention(links *x, costs *c, pt_error *e);

#endif
