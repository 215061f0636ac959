/* measure_links.c - transfers by size, and what runs beside them.
 *
 *   device memory   [product][states of an update][ D: transfers ]
 *   host memory            [states of an update][ H: transfers ][ K: to and from the disk ]   (only with a host tier;
 *   disk            [ a scratch file without a name ]                                          else K is in place of D)
 *
 * Disk transfers are those of the executor: the same scratch file, direct where the filesystem allows it, so that the page
 * cache has no part in them (a cache in the drive, or of a virtual machine's host, may have). Blocks are written before they
 * are read: what was only allocated is read without touching the disk; and what is timed was written before, for a block's first
 * write took twice as long (64 MiB at 2.5 GB/s instead of 5). A size is left out where the one before it tells that it would
 * take too long; at least three are measured.
 *
 * Memory and file are as large as a step's, or large enough not to be told from it: through 64 MiB of memory a disk read 4 to 20%
 * faster than through 128 MiB or more, and the first 256 MiB of a file were written 5% faster, 64 MiB a seventh (bench/results).
 *
 * Beside each other: what computes alone (of transfers their curves say it), then every pair that a plan can bring together, each side
 * kept busy for as long as the other is. What is compared is the pace within the time that both ran, in the mean of two rounds: a step
 * is a sum, and holds as much of the moments in which a disk's work disturbs all else as the mean does (layers beside reads took 0.99 of
 * what they take alone in the median, 1.12 in the mean). Copies beside what computes are timed one by one, each after a rest. Transfers of
 * another length are timed as well, for they lose more (other_bytes). A container or a virtual machine that has a quota of processor time
 * computes at full speed beside its disk until the quota of a tenth of a second is used up, and stands still for the rest of it (20 to
 * 40 ms were seen): so what computes is watched for as long as that, or PAIR_OPS runs.
 * Of a control group's quota it is known how much it is: where what runs at once wants more processor time than that, all of it takes
 * that much longer in the long run.
 */
#include "profile/measure_parts.h"

#include "base/clock.h"
#include "io/disk.h"
#include "io/files.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

enum { PAIR_OPS = 512, ROUNDS = 2, PRODUCT_BYTES = 256 << 20 };
static const double QUOTA_NS = 100e6; /* the usual period */

/* room: bytes of memory; span: of the file, from offset on. */
typedef struct transfer { op_kind kind; disk_channel *channel; char *to; const char *from; uint64_t offset, room, span; } transfer;

typedef struct load {
    queue *queue;
    submit_fn submit;
    void *arg;
    int index;       /* amount of one run */
    double alone_ns; /* that one run takes */
    bool computes;   /* takes a moment to come to speed (measure_waking.c) after something else ran */
    int turn;        /* runs so far */
    int other;       /* of a transfer: another amount that is timed too, and what that takes alone */
    double other_ns;
} load;

typedef struct links {
    bench *b;
    uint64_t most;               /* bytes of the largest transfer */
    uint64_t room;               /* bytes of D, H and K each: four times that, as far as they fit */
    uint64_t span, written;      /* of the file: eight times, as far as there is room and time */
    product product;
    region update[2];            /* on the device, on the host */
    char *d, *h, *k;
    area device, host;
    disk_file *file;
    disk_channel *reader, *writer;
    queue *queues[COST_CLASSES];
    transfer transfers[COST_CLASSES];
    load loads[COST_CLASSES];
} links;

/* ---- memory, file, queues ---- */

static bool has_disk(const links *x) { return links_have_disk(x->b->r); }

static void device_layout(area *a, void *arg)
{
    links *x = arg;
    product_layout(a, &x->product);
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
    const profile_request *r = x->b->r;
    const uint64_t check = 2 * (x->most < CHECK_BYTES ? x->most : CHECK_BYTES);
    return area_bytes(x->b, device_layout, x) <= r->budget[TIER_DEVICE] && check <= r->budget[TIER_DEVICE] &&
           (!r->host_tier || area_bytes(x->b, host_layout, x) <= r->budget[TIER_HOST]) &&
           (!has_disk(x) || x->span <= r->budget[TIER_DISK]);
}

static int64_t right_side_bytes(const links *x)
{
    return x->product.k * x->product.k * (int64_t)dtype_bytes(x->product.shape->type);
}

/* All of it smaller, at first what only need not lie in a cache; false: it is as small as can be. */
static bool shrink(links *x)
{
    const int64_t enough = 4 << 20, sides = x->product.sets;
    const bool large = x->update[0].elements > enough || x->room > x->most;
    const bool least_product = x->product.k == 64 && x->product.rows <= 16 && sides == 1;
    const bool least = x->most == LINKS_LEAST && x->update[0].elements == RATES_LEAST && least_product;
    x->product.sets = (sides + 3) / 4;
    if (sides > 1 && sides * right_side_bytes(x) > PRODUCT_BYTES / 8)
        return true;
    x->update[0].elements = x->update[1].elements = x->update[0].elements > RATES_LEAST ? x->update[0].elements / 4 : RATES_LEAST;
    x->room = x->most;
    if (large)
        return true;
    x->room = x->most = x->most > LINKS_LEAST ? x->most / 4 : LINKS_LEAST;
    x->span = x->most < x->span / 8 ? 8 * x->most : x->span;
    x->product.k = x->product.k > 64 ? x->product.k / 4 : 64;
    x->product.rows = x->product.rows > 64 ? x->product.rows / 4 : x->product.rows < 16 ? x->product.rows : 16;
    return !least;
}

/* As large as this model wants it, and as fits. What computes goes on to other weights and other states, as a step does, and has no more
 * rows for them: what stays in the cache would not notice that a disk writes into memory. */
static void choose_sizes(links *x)
{
    const profile_request *r = x->b->r;
    const bool gpu = device_is_gpu(r->device); /* its product has to take longer than it takes to launch */
    const int64_t elements = rates_elements(r->model), k = elements < 1 << 20 ? 64 : gpu && elements >= 1 << 24 ? 4096 : 1024;
    x->most = links_bytes(r->model);
    while (has_disk(x) && x->most > r->budget[TIER_DISK] && x->most > LINKS_LEAST)
        x->most /= 4;
    x->room = 4 * x->most;
    x->span = 8 * x->most;
    while (has_disk(x) && x->span > r->budget[TIER_DISK] && x->span > x->most)
        x->span /= 2;
    x->product = (product){.shape = r->shape, .rows = gpu ? 2048 : product_rows(r), .k = k};
    const int64_t enough = PRODUCT_BYTES / right_side_bytes(x), all = r->model->parameters / (k * k);
    x->product.sets = all < 1 ? 1 : all < enough ? all : enough;
    for (int i = 0; i < 2; i++)
        x->update[i] = (region){.shape = r->shape, .elements = elements};
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
    const profile_request *r = x->b->r;
    choose_sizes(x);
    int failed = area_open(x->b, TIER_DEVICE, &x->device, "transfers", device_layout, x, e);
    if (!failed && r->host_tier)
        failed = area_open(x->b, TIER_HOST, &x->host, "transfers", host_layout, x, e);
    if (!r->host_tier)
        x->k = x->d;
    return failed;
}

/* Where the disk tier will be; no folder is made, the file has no name. */
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
    const profile_request *r = x->b->r;
    device *d = class == COST_TO_DEVICE || class == COST_FROM_DEVICE ? r->device : r->host;
    int threads = class == COST_HOST ? host_queue_threads(r->device, r->host, r->threads) : 1;
    return d->table->queue_open(d, cost_class_names[class], threads, &x->queues[class], e);
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

/* The next `n` bytes of the room and of the span; what is left over at their ends is not used. */
static void run_transfer(queue *q, void *arg, int n, int turn)
{
    const transfer *t = arg;
    uint64_t bytes = (uint64_t)n, at = (uint64_t)turn % (t->room / bytes) * bytes;
    if (t->kind == OP_COPY)
        queue_submit(q, &(op){OP_COPY, .copy = {t->to + at, t->from + at, bytes}});
    else
        queue_submit(q, &(op){t->kind, .disk = {t->channel, t->to + at, t->offset + (uint64_t)turn % (t->span / bytes) * bytes, bytes}});
}

/* Each way through all of D and H, for a cache would hold a part of them; or (apart) each through a half of its own, to run at once. */
static void set_copies(links *x, bool apart)
{
    const uint64_t half = apart ? x->room / 2 : 0, each = x->room - half;
    x->transfers[COST_TO_DEVICE] = (transfer){.kind = OP_COPY, .to = x->d, .from = x->h, .room = each};
    x->transfers[COST_FROM_DEVICE] = (transfer){.kind = OP_COPY, .to = x->h + half, .from = x->d + half, .room = each};
}

/* Reads and writes of `span` bytes of the file, or (apart) of a half each. */
static void set_disk(links *x, uint64_t span, bool apart)
{
    const uint64_t half = apart ? x->room / 2 : 0, file_half = apart ? span / 2 : 0, room = x->room - half, each = span - file_half;
    x->transfers[COST_READ] = (transfer){.kind = OP_DISK_READ, .channel = x->reader, .to = x->k, .room = room, .span = each};
    x->transfers[COST_WRITE] = (transfer){.kind = OP_DISK_WRITE, .channel = x->writer, .to = x->k + half, .offset = file_half, .room = room,
                                          .span = each};
}

/* Seconds for the size behind the last. */
static double next_size_s(const cost_curve *c) { return c->n ? c->ns[c->n - 1] * 4e-9 : 0; }

static bool ends_here(const cost_curve *c, double seconds)
{
    enum { POINTS_LEAST = 3 };
    return c->n >= POINTS_LEAST && next_size_s(c) > seconds;
}

/* The blocks that runs of `bytes` go through have been written once, as those of all states have when a step begins: many runs' blocks,
 * or on a slow disk as many as a moment suffices for. */
static int write_first(links *x, uint64_t bytes, pt_error *e)
{
    enum { RUNS = 32, RUNS_LEAST = 8 };
    const double moment_s = 0.5, start = clock_s();
    const uint64_t least = 16 << 20, to = RUNS * bytes > least ? RUNS * bytes : least, end = to < x->span ? to : x->span;
    queue *q = x->queues[COST_WRITE];
    int failed = 0;
    while (x->written < end && !failed && (x->written < RUNS_LEAST * bytes || clock_s() - start < moment_s)) {
        const uint64_t n = end - x->written < x->most ? end - x->written : x->most;
        queue_submit(q, &(op){OP_DISK_WRITE, .disk = {x->writer, x->k, x->written, n}});
        x->written += n;
        failed = queue_sync(q, queue_signal(q), e);
    }
    x->transfers[COST_WRITE].span = x->written;
    return failed;
}

/* For the curve of disk transfers; copies get half of it. */
static double seconds_of(uint64_t most) { return most >= 1 << 24 ? 0.1 : 0.02; }

/* The curve over 64 KiB, 256 KiB ... `most`. */
static int measure_sizes(links *x, cost_class class, uint64_t most, double seconds, cost_curve *out, double *spread, pt_error *e)
{
    double largest = 0;
    out->n = 0;
    for (uint64_t n = LINKS_LEAST; n <= most; n *= 4) {
        stage one = {run_transfer, (int)n, NULL};
        samples s = {0};
        double expected = next_size_s(out);
        if (ends_here(out, seconds))
            break;
        one.times = &s;
        int failed = class == COST_WRITE ? write_first(x, n, e) : 0;
        if (failed)
            return failed;
        failed = expected < seconds / 8 ? measure_stage(x->queues[class], run_transfer, &x->transfers[class], (int)n, seconds / 8, &s, e)
                                            : measure_rounds(x->queues[class], &one, 1, &x->transfers[class], 0, TELLING, seconds / 2, e);
        if (failed)
            return failed;
        curve_add(out, (double)n, samples_median(&s));
        samples_tell(&s, &largest);
    }
    *spread = largest > *spread ? largest : *spread;
    return 0;
}

static int measure_curves(links *x, costs *c, pt_error *e)
{
    double seconds = seconds_of(x->most), *spread = &c->curves_spread;
    int failed = 0;
    set_copies(x, false);
    set_disk(x, x->span, false);
    if (x->b->r->host_tier)
        failed = measure_sizes(x, COST_TO_DEVICE, x->most, seconds / 2, &c->to_device, spread, e);
    if (!failed && x->b->r->host_tier)
        failed = measure_sizes(x, COST_FROM_DEVICE, x->most, seconds / 2, &c->from_device, spread, e);
    bench_progress(x->b, "measuring the disk", 0, 1);
    if (!failed && x->file)
        failed = measure_sizes(x, COST_WRITE, x->most, seconds, &c->write, spread, e);
    if (failed || !x->file)
        return failed;
    set_disk(x, x->written, false);
    return measure_sizes(x, COST_READ, (uint64_t)c->write.amount[c->write.n - 1], seconds, &c->read, spread, e);
}

/* Measuring again would end it where it ends. */
static bool curve_suffices(const cost_curve *c, uint64_t most, double seconds)
{
    return c->n && (c->amount[c->n - 1] >= (double)most || ends_here(c, seconds));
}

bool links_suffice(bench *b, const costs *c)
{
    links x = {.b = b};
    if (!b->r->transfers)
        return true;
    choose_sizes(&x);
    const double seconds = seconds_of(x.most);
    bool copies = !b->r->host_tier ||
                  (curve_suffices(&c->to_device, x.most, seconds / 2) && curve_suffices(&c->from_device, x.most, seconds / 2));
    if (!copies || !has_disk(&x))
        return copies;
    return curve_suffices(&c->write, x.most, seconds) && curve_suffices(&c->read, (uint64_t)c->write.amount[c->write.n - 1], seconds);
}

/* ---- beside each other ---- */

/* When each run ended, and when the first began; the processor time that one thread had taken by then, and at the end. */
typedef struct pace { int n; int64_t at[PAIR_OPS + 1], work[2]; } pace;

static void pace_begin(pace *p, const load *l)
{
    p->n = 0;
    p->work[0] = p->work[1] = 0;
    queue_mark_work(l->queue, &p->work[0]);
    queue_mark(l->queue, &p->at[0]);
}

static void pace_step(pace *p, load *l)
{
    l->submit(l->queue, l->arg, l->index, l->turn++);
    queue_mark(l->queue, &p->at[++p->n]);
}

/* Runs finished until then, in parts too. */
static double runs_until(const pace *p, double t)
{
    int i = 0;
    while (i < p->n && (double)p->at[i + 1] <= t)
        i++;
    double from = (double)p->at[i], length = i < p->n ? (double)p->at[i + 1] - from : 1;
    return i + (t > from && length > 0 ? (t - from) / length : 0);
}

static double ns_between(const pace *p, double from, double to)
{
    double runs = runs_until(p, to) - runs_until(p, from);
    return runs > 0 ? (to - from) / runs : 0;
}

static double processors(const load *l, const pace *p)
{
    const double ns = (double)(p->at[p->n] - p->at[0]);
    return ns > 0 ? l->queue->threads * (double)(p->work[1] - p->work[0]) / ns : 0;
}

/* How many times as long it takes when the quota is used up in every period: those who want more than it stand still together. */
static double stretch(const links *x, double wanted)
{
    const double quota = x->b->r->host->info.quota;
    return quota > 0 ? fmax(wanted / quota, 1) : 1;
}

static int runs_for(const load *l, double ns)
{
    double n = l->alone_ns > 0 ? ns / l->alone_ns : 0;
    return n < 3 ? 3 : n > PAIR_OPS ? PAIR_OPS : (int)n;
}

/* ns of one run of each while the other runs; b NULL: of `a` alone. */
static int run_beside(const links *x, load *a, load *b, double ns, double *a_ns, double *b_ns, pt_error *e)
{
    pace pa, pb = {0};
    int n = runs_for(a, ns), m = b ? runs_for(b, ns) : 0;
    pace_begin(&pa, a);
    if (b)
        pace_begin(&pb, b);
    for (int i = 0; i < n || i < m; i++) {
        if (i < n)
            pace_step(&pa, a);
        if (i < m)
            pace_step(&pb, b);
    }
    queue_mark_work(a->queue, &pa.work[1]);
    if (b)
        queue_mark_work(b->queue, &pb.work[1]);
    int failed = queue_sync(a->queue, queue_signal(a->queue), e);
    if (b) {
        pt_error second = {0};
        int failed_b = queue_sync(b->queue, queue_signal(b->queue), &second);
        if (failed_b && !failed)
            failed = pt_fail(e, failed_b, "%s", second.text);
    }
    if (failed)
        return failed;
    const double by = stretch(x, processors(a, &pa) + (b ? processors(b, &pb) : 0));
    double from = (double)pa.at[0], to = (double)pa.at[pa.n];
    if (b) {
        from = from > (double)pb.at[0] ? from : (double)pb.at[0];
        to = to < (double)pb.at[pb.n] ? to : (double)pb.at[pb.n];
        *b_ns = to > from ? by * ns_between(&pb, from, to) : 0;
    }
    *a_ns = to > from ? by * ns_between(&pa, from, to) : 0;
    return 0;
}

static bool meet(const links *x, int a, int b)
{
    return x->loads[a].queue && x->loads[b].queue && x->loads[a].queue != x->loads[b].queue;
}

/* As a chunk's, as far as a run of both curves is over in a moment; at least 4 MiB. */
static uint64_t beside_bytes(const costs *c, uint64_t room)
{
    const double moment = 15e6;
    uint64_t bytes = 4 << 20;
    for (int i = 0; i < c->read.n && i < c->write.n; i++)
        if (c->read.ns[i] <= moment && c->write.ns[i] <= moment && (uint64_t)c->read.amount[i] > bytes)
            bytes = (uint64_t)c->read.amount[i];
    return room / 2 < bytes ? room / 2 : bytes;
}

/* What a transfer takes alone is what its curve says, which its tasks are priced by: three writes timed here took up to 1.4 times that. */
static double alone_by_curve(const costs *c, int class, int bytes)
{
    const cost_curve *const curves[COST_CLASSES] = {[COST_TO_DEVICE] = &c->to_device, [COST_FROM_DEVICE] = &c->from_device,
                                                    [COST_READ] = &c->read, [COST_WRITE] = &c->write};
    return curves[class] ? cost_at(curves[class], bytes) : 0;
}

/* Of copies the longest. Of disk transfers a short one, of which all is in flight at once and waits behind all that is of the other way's:
 * in steps those of less than 8 MiB beside the other way took 1.3 times what those of 16 say, longer ones as much (bench/results). */
static int other_bytes(const links *x, int class, int usual)
{
    const int some = 4 << 20;
    return class != COST_READ && class != COST_WRITE ? (int)x->most : usual < some ? usual : some;
}

static void set_loads(links *x, const costs *c)
{
    int elements = (int)(x->update[0].elements < 4 << 20 ? x->update[0].elements / 4 : 1 << 20);
    int bytes = (int)beside_bytes(c, x->file && x->written < x->most ? x->written : x->most);
    set_copies(x, false);
    set_disk(x, x->written, true);
    for (int class = 0; class < COST_CLASSES; class++)
        x->loads[class] = (load){.queue = x->queues[class], .submit = run_transfer, .arg = &x->transfers[class], .index = bytes,
                                 .alone_ns = alone_by_curve(c, class, bytes), .other = other_bytes(x, class, bytes),
                                 .other_ns = alone_by_curve(c, class, other_bytes(x, class, bytes))};
    x->loads[COST_MATH] = (load){.queue = x->b->compute, .submit = product_run, .arg = &x->product, .computes = true};
    x->loads[COST_MEMORY] = (load){.queue = x->b->compute, .submit = update_run, .arg = &x->update[0], .index = elements, .computes = true};
    x->loads[COST_HOST] = (load){.queue = x->queues[COST_HOST], .submit = update_run, .arg = &x->update[1], .index = elements,
                                 .computes = true};
}

static int measure_alone(const links *x, load *l, double ns, pt_error *e)
{
    int failed = l->alone_ns > 0 ? 0 : run_beside(x, l, NULL, 0, &l->alone_ns, NULL, e);
    for (int run = 0; run < (l->computes ? 2 : 1) && !failed; run++)
        failed = run_beside(x, l, NULL, ns, &l->alone_ns, NULL, e);
    return failed;
}

static int measure_computing_alone(links *x, double ns, pt_error *e)
{
    int failed = 0;
    for (int a = 0; a < COST_CLASSES && !failed; a++)
        if (x->loads[a].queue && x->loads[a].computes)
            failed = measure_alone(x, &x->loads[a], ns, e);
    return failed;
}

static void note_slower(samples *slow, double beside_ns, double alone_ns)
{
    double x = beside_ns / alone_ns;
    if (!(beside_ns > 0) || !(alone_ns > 0)) /* the two did not meet */
        return;
    samples_add(slow, x > SLOW_MOST ? SLOW_MOST : x);
}

static int measure_pair(links *x, load *a, load *b, double ns, double beside_ns, samples *slow_a, samples *slow_b, pt_error *e)
{
    double a_ns, b_ns;
    int failed = a->computes ? run_beside(x, a, NULL, ns, &a_ns, NULL, e) : 0; /* the first of a pair, if one computes */
    if (!failed)
        failed = run_beside(x, a, b, beside_ns, &a_ns, &b_ns, e);
    if (failed)
        return failed;
    note_slower(slow_a, a_ns, a->alone_ns);
    note_slower(slow_b, b_ns, b->alone_ns);
    return 0;
}

/* A copy that comes after a rest, as a step's do, is let through by the system at first, for some 3 ms; then it shares the processors with
 * what computes. In steps copies of 1 to 2 ms took as long as alone or 4 ms more, 1.2 to 1.8 times as long in the mean, those of 4 ms
 * and more 1.7 to 2.2 times; copy after copy takes twice to three times. So one of the usual length and one of the longest take turns, and
 * each is noted apart. What computes is timed beside copy after copy (measure_pair), where it loses half of the time of each; layers of a
 * step lost 0.4. */
static int measure_rested(links *x, load *computes, load *copies, double ns, samples slow[2], pt_error *e)
{
    enum { MOST = SAMPLES / ROUNDS };
    int64_t from[MOST], to[MOST], end;
    const double alone[2] = {copies->alone_ns, copies->other_ns};
    const int bytes[2] = {copies->index, copies->other};
    const double pairs = ns / 3 / (alone[0] + alone[1]);
    int n = pairs < 2 ? 4 : pairs < MOST / 2 ? 2 * (int)pairs : MOST, failed = 0;
    for (int i = runs_for(computes, ns); i > 0; i--)
        computes->submit(computes->queue, computes->arg, computes->index, computes->turn++);
    queue_mark(computes->queue, &end);
    for (int i = 0; i < n && !failed; i++) {
        usleep((useconds_t)(alone[i % 2] * 1e-3));
        queue_mark(copies->queue, &from[i]);
        copies->submit(copies->queue, copies->arg, bytes[i % 2], copies->turn++);
        queue_mark(copies->queue, &to[i]);
        failed = queue_sync(copies->queue, queue_signal(copies->queue), e);
    }
    pt_error second = {0};
    int failed_too = queue_sync(computes->queue, queue_signal(computes->queue), &second);
    if (failed_too && !failed)
        failed = pt_fail(e, failed_too, "%s", second.text);
    for (int i = 0; i < n && !failed && to[i] <= end; i++)
        note_slower(&slow[i % 2], (double)(to[i] - from[i]), alone[i % 2]);
    return failed;
}

static void add_all(samples *to, const samples *from)
{
    for (int i = 0; i < from->n; i++)
        samples_add(to, from->ns[i]);
}

/* How many times as long each class takes beside each. */
typedef samples beside[COST_CLASSES][COST_CLASSES];

/* What computes beside a copy. Where a quota of processor time holds up both, or copies did not end in time, copy after copy counts. */
static int measure_computing(links *x, load *computes, load *copies, double ns, double beside_ns, samples *slow, samples *slow_copies,
                             samples *slow_long, pt_error *e)
{
    samples back_to_back = {0}, rested[2] = {0};
    int failed = measure_pair(x, computes, copies, ns, beside_ns, slow, &back_to_back, e);
    if (!failed && x->b->r->host->info.quota <= 0)
        failed = measure_rested(x, computes, copies, beside_ns, rested, e);
    add_all(slow_copies, rested[0].n ? &rested[0] : &back_to_back);
    if (rested[0].n)
        add_all(slow_long, &rested[1]);
    return failed;
}

/* Copies one way beside those the other way, which need memory apart: less of it, where they are faster alone as well. */
static int measure_copies(links *x, double ns, double beside_ns, samples *slow_to, samples *slow_from, pt_error *e)
{
    load to = x->loads[COST_TO_DEVICE], from = x->loads[COST_FROM_DEVICE];
    set_copies(x, true);
    int failed = measure_alone(x, &to, ns, e);
    if (!failed)
        failed = measure_alone(x, &from, ns, e);
    if (!failed)
        failed = measure_pair(x, &to, &from, ns, beside_ns, slow_to, slow_from, e);
    set_copies(x, false);
    return failed;
}

/* Reads beside writes, which no quota of processor time holds up; then short ones of each beside the usual ones of the other. */
static int measure_disk(links *x, double ns, double beside_ns, beside slow, beside other, pt_error *e)
{
    load *read = &x->loads[COST_READ], *write = &x->loads[COST_WRITE], short_read = *read, short_write = *write;
    samples rest = {0};
    short_read.index = read->other;
    short_read.alone_ns = read->other_ns;
    short_write.index = write->other;
    short_write.alone_ns = write->other_ns;
    int failed = measure_pair(x, read, write, ns, fmax(beside_ns / 2, ns), &slow[COST_READ][COST_WRITE], &slow[COST_WRITE][COST_READ], e);
    if (failed || read->other == read->index) /* the usual ones are as short */
        return failed;
    failed = measure_pair(x, &short_read, write, ns, fmax(beside_ns / 4, ns), &other[COST_READ][COST_WRITE], &rest, e);
    if (!failed)
        failed = measure_pair(x, read, &short_write, ns, fmax(beside_ns / 4, ns), &rest, &other[COST_WRITE][COST_READ], e);
    return failed;
}

static bool copies(int class) { return class == COST_TO_DEVICE || class == COST_FROM_DEVICE; }

static int measure_meeting(links *x, int a, int b, double ns, double beside_ns, beside slow, beside other, pt_error *e)
{
    samples *slow_a = &slow[a][b], *slow_b = &slow[b][a];
    const bool a_copies = copies(a), b_copies = copies(b);
    if (!meet(x, a, b))
        return 0;
    if (a_copies && b_copies)
        return measure_copies(x, ns, beside_ns, slow_a, slow_b, e);
    if (a == COST_READ && b == COST_WRITE)
        return measure_disk(x, ns, beside_ns, slow, other, e);
    if (b_copies)
        return measure_computing(x, &x->loads[a], &x->loads[b], ns, beside_ns, slow_a, slow_b, &other[b][a], e);
    if (a_copies && b == COST_HOST)
        return measure_computing(x, &x->loads[b], &x->loads[a], ns, beside_ns, slow_b, slow_a, &other[a][b], e);
    return measure_pair(x, &x->loads[a], &x->loads[b], ns, beside_ns, slow_a, slow_b, e);
}

/* Single ones fall below what they take alone by chance. */
static void set_slow(const links *x, costs *c, beside slow, beside other)
{
    for (int a = 0; a < COST_CLASSES; a++) {
        const load *l = &x->loads[a];
        const bool two = l->other_ns > 0 && fmax(l->other_ns, l->alone_ns) >= COST_LENGTHS_LEAST * fmin(l->other_ns, l->alone_ns);
        c->slow_ns[a][0] = two ? l->alone_ns : 0;
        c->slow_ns[a][1] = two ? l->other_ns : 0;
        for (int b = 0; b < COST_CLASSES; b++) {
            c->slow[a][b] = slow[a][b].n ? fmax(samples_mean(&slow[a][b]), 1) : 1;
            c->slow_more[a][b] = two && other[a][b].n ? fmax(samples_mean(&other[a][b]) - c->slow[a][b], 0) : 0;
        }
    }
}

static int measure_contention(links *x, costs *c, pt_error *e)
{
    const double ns = x->most >= 1 << 24 ? 20e6 : 3e6, beside_ns = x->most >= 1 << 24 ? QUOTA_NS : ns;
    beside slow = {0}, other = {0};
    int failed = 0;
    set_loads(x, c);
    for (int round = 0; round < ROUNDS && !failed; round++) {
        bench_progress(x->b, "measuring all beside each other", round, ROUNDS);
        failed = measure_computing_alone(x, ns, e);
        for (int a = 0; a < COST_CLASSES && !failed; a++)
            for (int b = a + 1; b < COST_CLASSES && !failed; b++)
                failed = measure_meeting(x, a, b, ns, beside_ns, slow, other, e);
    }
    set_slow(x, c, slow, other);
    return failed;
}

int measure_links(bench *b, costs *c, pt_error *e)
{
    links x;
    bench_progress(b, "measuring transfers", 0, 1);
    int failed = links_open(&x, b, e);
    if (!failed)
        failed = measure_curves(&x, c, e);
    if (!failed)
        failed = measure_contention(&x, c, e);
    links_close(&x);
    return failed;
}

/* ---- checks ---- */

/* What transfers need of one tier. */
typedef struct side { char *base; uint64_t bytes; } side;

static void side_layout(area *a, void *arg)
{
    side *s = arg;
    s->base = area_take(a, s->bytes, PATTERN_VALUES);
}

/* One transfer after the other through a room of two. */
static int check_transfer(device *d, transfer *t, int64_t bytes, double *ns, pt_error *e)
{
    queue *q;
    int failed = d->table->queue_open(d, "check", 1, &q, e);
    if (failed)
        return failed;
    failed = measure_least(q, run_transfer, t, (int)bytes, ns, e);
    d->table->queue_close(q);
    return failed;
}

static int check_copy(bench *b, bool to_device, int64_t bytes, double *ns, pt_error *e)
{
    side here = {.bytes = 2 * (uint64_t)bytes}, there = here;
    area a, h = {0};
    int failed = area_open(b, TIER_DEVICE, &a, "transfers", side_layout, &here, e);
    if (failed)
        return failed;
    failed = area_open(b, TIER_HOST, &h, "transfers", side_layout, &there, e);
    side *to = to_device ? &here : &there, *from = to_device ? &there : &here;
    transfer t = {.kind = OP_COPY, .to = to->base, .from = from->base, .room = to->bytes};
    if (!failed)
        failed = check_transfer(b->r->device, &t, bytes, ns, e);
    area_close(&h);
    area_close(&a);
    return failed;
}

int check_to_device(bench *b, int64_t bytes, double *ns, pt_error *e) { return check_copy(b, true, bytes, ns, e); }
int check_from_device(bench *b, int64_t bytes, double *ns, pt_error *e) { return check_copy(b, false, bytes, ns, e); }

static int check_file(bench *b, op_kind kind, disk_file *f, disk_channel *c, int64_t bytes, double *ns, pt_error *e)
{
    side memory = {.bytes = disk_bytes(f)};
    area a;
    int failed = area_open(b, b->r->host_tier ? TIER_HOST : TIER_DEVICE, &a, "the disk", side_layout, &memory, e);
    if (failed)
        return failed;
    transfer t = {.kind = kind, .channel = c, .to = memory.base, .room = memory.bytes, .span = memory.bytes};
    failed = disk_write(c, 0, memory.base, memory.bytes, e);
    if (!failed)
        failed = check_transfer(b->r->host, &t, bytes, ns, e);
    area_close(&a);
    return failed;
}

static int check_disk(bench *b, op_kind kind, int64_t bytes, double *ns, pt_error *e)
{
    char folder[FILE_PATH_BYTES];
    disk_file *f = NULL;
    disk_channel *c = NULL;
    int failed = existing_folder(b->r->disk_path, folder, e);
    if (!failed)
        failed = disk_open(folder, 2 * (uint64_t)bytes, NULL, &f, e);
    if (!failed)
        failed = disk_channel_open(f, &c, e);
    if (!failed)
        failed = check_file(b, kind, f, c, bytes, ns, e);
    disk_channel_close(c);
    disk_close(f);
    return failed;
}

int check_read(bench *b, int64_t bytes, double *ns, pt_error *e) { return check_disk(b, OP_DISK_READ, bytes, ns, e); }
int check_write(bench *b, int64_t bytes, double *ns, pt_error *e) { return check_disk(b, OP_DISK_WRITE, bytes, ns, e); }
