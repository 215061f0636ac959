/* measure_links.c - transfers by size.
 *
 *   device memory   [matmul][states of an update][ D: transfers ]
 *   host memory            [states of an update][ H: transfers ][ K: to and from the disk ]   (only with a host tier;
 *   disk            [ an unnamed scratch file ]                                                otherwise K is D)
 *
 * Disk transfers use the same kind of scratch file as the executor, with direct I/O if the file system allows it, so that the page cache
 * does not matter (a cache in the drive, or of a virtual machine's host, may). Blocks are written before they are read, because blocks that
 * are allocated but unwritten are read without touching the disk. They are also written before writes are timed, because the first write of
 * a block took twice as long (64 MiB at 2.5 GB/s instead of 5). Measurement stops at a size if the previous one predicts that it would take
 * too long, but not before three sizes.
 *
 * Memory and file are as large as a step's, or large enough to behave like it: reads into 64 MiB of memory were 4 to 20% faster than into
 * 128 MiB or more; the first 256 MiB of a file were written 5% faster, and the first 64 MiB 14% faster (bench/results). A virtual machine's
 * disk wrote 1.6 times as fast, at any offset, once 1.5 GiB of its blocks had been written. */
#include "measure/links.h"

#include "base/clock.h"
#include "io/files.h"

#include <math.h>
#include <string.h>

enum { TIMED_MATMUL_BYTES = 256 << 20 };

/* ---- memory, file, queues ---- */

static bool has_disk(const links *x) { return links_have_disk(x->b->r); }

static void device_layout(area *a, void *arg)
{
    links *x = arg;
    timed_matmul_layout(a, &x->timed_matmul);
    region_layout(a, &x->update[0]);
    x->d = area_take(a, x->room, PATTERN_VALUES);
}

static void host_layout(area *a, void *arg)
{
    links *x = arg;
    region_layout(a, &x->update[1]);
    x->h = area_take(a, x->room, PATTERN_VALUES);
    x->k = area_take(a, x->room, PATTERN_VALUES);
}

static bool fits(links *x)
{
    const profile_request *req = x->b->r;
    const uint64_t check = 2 * (x->most < CHECK_BYTES ? x->most : CHECK_BYTES);
    return area_bytes(x->b, device_layout, x) <= req->budget[TIER_DEVICE] && check <= req->budget[TIER_DEVICE] &&
           (!req->host_tier || area_bytes(x->b, host_layout, x) <= req->budget[TIER_HOST]) &&
           (!has_disk(x) || x->span <= req->budget[TIER_DISK]);
}

static int64_t right_side_bytes(const links *x)
{
    return x->timed_matmul.k * x->timed_matmul.k * (int64_t)dtype_bytes(x->timed_matmul.shape->type);
}

/* Shrinks the buffers: first those that are large only to exceed caches, then all. false: nothing can shrink further. */
static bool shrink(links *x)
{
    const int64_t enough = 4 << 20, sides = x->timed_matmul.sets;
    const bool large = x->update[0].elements > enough || x->room > x->most;
    const bool least_timed_matmul = x->timed_matmul.k == 64 && x->timed_matmul.rows <= 16 && sides == 1;
    const bool least = x->most == LINKS_LEAST && x->update[0].elements == RATES_LEAST && least_timed_matmul;
    x->timed_matmul.sets = (sides + 3) / 4;
    if (sides > 1 && sides * right_side_bytes(x) > TIMED_MATMUL_BYTES / 8)
        return true;
    x->update[0].elements = x->update[1].elements = x->update[0].elements > RATES_LEAST ? x->update[0].elements / 4 : RATES_LEAST;
    x->room = x->most;
    if (large)
        return true;
    x->room = x->most = x->most > LINKS_LEAST ? x->most / 4 : LINKS_LEAST;
    x->timed_matmul.k = x->timed_matmul.k > 64 ? x->timed_matmul.k / 4 : 64;
    x->timed_matmul.rows = x->timed_matmul.rows > 64 ? x->timed_matmul.rows / 4 : x->timed_matmul.rows < 16 ? x->timed_matmul.rows : 16;
    return !least;
}

/* Chooses sizes by the model and shrinks them to the budgets. Computation moves on to other weights and states, as a step does: data that
 * stays in the cache would not be slowed down by a disk that writes to memory. */
static void choose_sizes(links *x)
{
    const profile_request *req = x->b->r;
    const bool gpu = device_is_gpu(req->device); /* its matmul must take longer than its launch */
    const int64_t elements = rates_elements(req->model), k = elements < 1 << 20 ? 64 : gpu && elements >= 1 << 24 ? 4096 : 1024;
    x->most = links_bytes(req->model);
    while (has_disk(x) && x->most > req->budget[TIER_DISK] && x->most > LINKS_LEAST)
        x->most /= 4;
    x->room = 4 * x->most;
    x->span = links_file_bytes(req->model);
    while (has_disk(x) && x->span > req->budget[TIER_DISK] && x->span > x->most)
        x->span /= 2;
    x->timed_matmul = (timed_matmul){.shape = req->shape, .rows = gpu ? 2048 : timed_matmul_rows(req), .k = k};
    const int64_t enough = TIMED_MATMUL_BYTES / right_side_bytes(x), all = req->model->parameters / (k * k);
    x->timed_matmul.sets = all < 1 ? 1 : all < enough ? all : enough;
    for (int i = 0; i < 2; i++)
        x->update[i] = (region){.shape = req->shape, .elements = elements};
    while (!fits(x) && shrink(x)) {}
}

uint64_t links_memory(bench *b)
{
    links x = {.b = b};
    if (!b->r->transfers)
        return 0;
    choose_sizes(&x);
    return area_bytes(b, device_layout, &x);
}

static int open_memory(links *x, pt_error *e)
{
    const profile_request *req = x->b->r;
    choose_sizes(x);
    int failed = area_open(x->b, TIER_DEVICE, &x->device, "transfers", device_layout, x, e);
    if (!failed && req->host_tier)
        failed = area_open(x->b, TIER_HOST, &x->host, "transfers", host_layout, x, e);
    if (!req->host_tier)
        x->k = x->d;
    return failed;
}

/* Opens an unnamed file where the disk tier will be, or in the nearest existing folder above, so that no folder is made. */
static int open_file(links *x, pt_error *e)
{
    char folder[FILE_PATH_BYTES];
    int failed = existing_folder(x->b->r->disk_path, folder, e);
    if (!failed)
        failed = disk_open(folder, x->span, NULL, &x->file, e);
    if (!failed)
        failed = disk_channel_open(x->file, &x->reader, e);
    return failed ? failed : disk_channel_open(x->file, &x->writer, e);
}

static int open_queue(links *x, cost_class class, pt_error *e)
{
    const profile_request *req = x->b->r;
    device *d = class == COST_TO_DEVICE || class == COST_FROM_DEVICE ? req->device : req->host;
    int threads = class == COST_HOST ? host_queue_threads(req->device, req->host, req->threads) : 1;
    return bench_queue(x->b, d, cost_class_names[class], threads, &x->queues[class], e);
}

static int links_open(links *x, bench *b, pt_error *e)
{
    *x = (links){.b = b};
    int failed = open_memory(x, e);
    for (int class = COST_TO_DEVICE; class <= COST_HOST && b->r->host_tier && !failed; class++)
        failed = open_queue(x, (cost_class)class, e);
    if (!failed && has_disk(x))
        failed = open_file(x, e);
    for (int class = COST_READ; class <= COST_WRITE && has_disk(x) && !failed; class++)
        failed = open_queue(x, (cost_class)class, e);
    return failed;
}

static void links_close(links *x)
{
    for (int class = 0; class < COST_CLASSES; class++)
        if (x->queues[class])
            x->queues[class]->device->table->queue_close(x->queues[class]);
    disk_channel_close(x->reader);
    disk_channel_close(x->writer);
    disk_close(x->file);
    area_close(&x->device);
    area_close(&x->host);
}

/* ---- transfers ---- */

void transfer_run(queue *q, void *arg, int n, int turn)
{
    const transfer *t = arg;
    uint64_t bytes = (uint64_t)n, at = (uint64_t)turn % (t->room / bytes) * bytes;
    if (t->kind == OP_COPY)
        queue_submit(q, &(op){OP_COPY, .copy = {t->to + at, t->from + at, bytes}});
    else
        queue_submit(q, &(op){t->kind, .disk = {t->channel, t->to + at, t->offset + (uint64_t)turn % (t->span / bytes) * bytes, bytes}});
}

void links_set_copies(links *x, bool apart)
{
    const uint64_t half = apart ? x->room / 2 : 0, each = x->room - half;
    x->transfers[COST_TO_DEVICE] = (transfer){.kind = OP_COPY, .to = x->d, .from = x->h, .room = each};
    x->transfers[COST_FROM_DEVICE] = (transfer){.kind = OP_COPY, .to = x->h + half, .from = x->d + half, .room = each};
}

void links_set_disk(links *x, uint64_t span, bool apart)
{
    const uint64_t half = apart ? x->room / 2 : 0, file_half = apart ? span / 2 : 0, room = x->room - half, each = span - file_half;
    x->transfers[COST_READ] = (transfer){.kind = OP_DISK_READ, .channel = x->reader, .to = x->k, .room = room, .span = each};
    x->transfers[COST_WRITE] = (transfer){.kind = OP_DISK_WRITE, .channel = x->writer, .to = x->k + half, .offset = file_half, .room = room,
                                          .span = each};
}

/* The predicted seconds of the next size. */
static double next_size_s(const cost_curve *curve) { return curve->n ? curve->ns[curve->n - 1] * 4e-9 : 0; }

static bool ends_here(const cost_curve *curve, double seconds)
{
    enum { POINTS_LEAST = 3 };
    return curve->n >= POINTS_LEAST && next_size_s(curve) > seconds;
}

/* Writes the file's blocks up to `to` once. Stops after moment_s, but not before `least`. */
static int write_blocks(links *x, uint64_t least, uint64_t to, double moment_s, pt_error *e)
{
    const double start = clock_s();
    const uint64_t end = to < x->span ? to : x->span;
    queue *q = x->queues[COST_WRITE];
    int failed = 0;
    while (x->written < end && !failed && (x->written < least || clock_s() - start < moment_s)) {
        const uint64_t n = end - x->written < x->most ? end - x->written : x->most;
        queue_submit(q, &(op){OP_DISK_WRITE, .disk = {x->writer, x->k, x->written, n}});
        x->written += n;
        failed = queue_sync(q, queue_signal(q), e);
    }
    x->transfers[COST_WRITE].span = x->written;
    return failed;
}

/* Writes the blocks that several runs of `bytes` go through, because a step writes to blocks that were written before. */
static int write_first(links *x, uint64_t bytes, pt_error *e)
{
    enum { RUNS = 32, RUNS_LEAST = 8 };
    const uint64_t least = 16 << 20, all = RUNS * bytes > least ? RUNS * bytes : least;
    return write_blocks(x, RUNS_LEAST * bytes, all, 0.5, e);
}

/* Writes a large model's file before any size is timed (links_file_bytes). */
static int write_large(links *x, pt_error *e)
{
    const model *m = x->b->r->model;
    return links_file_bytes(m) > 8 * links_bytes(m) ? write_blocks(x, 0, x->span, 1, e) : 0;
}

/* Seconds for each curve of disk transfers. Copies get half. */
static double seconds_of(uint64_t most) { return most >= 1 << 24 ? 0.1 : 0.02; }

/* A disk delays some transfers, and a step has all of them, so their mean is used (writes of 64 MiB: 3.5 GB/s in the median, 3.2 to 3.4 in
 * the mean). It is limited, so that one very long delay among few runs does not dominate. */
static double transfer_ns(cost_class class, const samples *s)
{
    const double held_up = 1.25, median = samples_median(s);
    return class == COST_READ || class == COST_WRITE ? fmin(samples_mean(s), held_up * median) : median;
}

/* At least three runs, because one may be delayed. soon: short runs get a warm-up. */
static int measure_size(links *x, cost_class class, uint64_t bytes, double seconds, bool soon, samples *out, pt_error *e)
{
    const stage one = {transfer_run, (int)bytes, out};
    int failed = class == COST_WRITE ? write_first(x, bytes, e) : 0;
    if (!failed && soon)
        failed = measure_rounds(x->queues[class], &one, 1, &x->transfers[class], 0, 1, 0, e);
    out->n = 0;
    return failed ? failed : measure_rounds(x->queues[class], &one, 1, &x->transfers[class], soon, TELLING, seconds, e);
}

/* Measures the curve at 64 KiB, 256 KiB ... `most`. */
static int measure_sizes(links *x, cost_class class, uint64_t most, double seconds, cost_curve *out, double *spread, pt_error *e)
{
    double largest = 0;
    out->n = 0;
    for (uint64_t n = LINKS_LEAST; n <= most && !ends_here(out, seconds); n *= 4) {
        const bool soon = next_size_s(out) < seconds / 8;
        samples s = {0};
        int failed = measure_size(x, class, n, seconds / (soon ? 8 : 2), soon, &s, e);
        if (failed)
            return failed;
        curve_add(out, (double)n, transfer_ns(class, &s));
        samples_tell(&s, &largest);
    }
    *spread = largest > *spread ? largest : *spread;
    return 0;
}

static int measure_curves(links *x, costs *costs, pt_error *e)
{
    double seconds = seconds_of(x->most), *spread = &costs->curves_spread;
    int failed = 0;
    links_set_copies(x, false);
    links_set_disk(x, x->span, false);
    if (x->b->r->host_tier)
        failed = measure_sizes(x, COST_TO_DEVICE, x->most, seconds / 2, &costs->to_device, spread, e);
    if (!failed && x->b->r->host_tier)
        failed = measure_sizes(x, COST_FROM_DEVICE, x->most, seconds / 2, &costs->from_device, spread, e);
    bench_progress(x->b, "measuring the disk", 0, 1);
    if (!failed && x->file)
        failed = write_large(x, e);
    if (!failed && x->file)
        failed = measure_sizes(x, COST_WRITE, x->most, seconds, &costs->write, spread, e);
    if (failed || !x->file)
        return failed;
    links_set_disk(x, x->written, false);
    return measure_sizes(x, COST_READ, (uint64_t)costs->write.amount[costs->write.n - 1], seconds, &costs->read, spread, e);
}

/* Does the curve reach as far as if it were measured again? */
static bool curve_suffices(const cost_curve *curve, uint64_t most, double seconds)
{
    return curve->n && (curve->amount[curve->n - 1] >= (double)most || ends_here(curve, seconds));
}

bool links_suffice(bench *b, const costs *costs)
{
    links x = {.b = b};
    if (!b->r->transfers)
        return true;
    choose_sizes(&x);
    const double seconds = seconds_of(x.most);
    bool copies = !b->r->host_tier ||
                  (curve_suffices(&costs->to_device, x.most, seconds / 2) && curve_suffices(&costs->from_device, x.most, seconds / 2));
    if (!copies || !has_disk(&x))
        return copies;
    return curve_suffices(&costs->write, x.most, seconds) &&
           curve_suffices(&costs->read, (uint64_t)costs->write.amount[costs->write.n - 1], seconds);
}

int measure_links(bench *b, costs *costs, pt_error *e)
{
    links x;
    bench_progress(b, "measuring transfers", 0, 1);
    int failed = links_open(&x, b, e);
    if (!failed)
        failed = measure_curves(&x, costs, e);
    if (!failed)
        failed = measure_contention(&x, costs, e);
    links_close(&x);
    return failed;
}
