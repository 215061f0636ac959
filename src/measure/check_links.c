/* check_links.c - checks transfers against a profile: the shortest of several runs, with memory and a file of their own. */
#include "measure/links.h"

#include "io/files.h"

/* The memory of one end of a transfer. */
typedef struct side { char *base; uint64_t bytes; } side;

static void side_layout(area *a, void *arg)
{
    side *s = arg;
    s->base = area_take(a, s->bytes, PATTERN_VALUES);
}

/* Times consecutive transfers that cycle through a buffer of twice their size. */
static int check_transfer(const bench *b, device *d, transfer *t, int64_t bytes, double *ns, pt_error *e)
{
    queue *q;
    int failed = bench_queue(b, d, "check", 1, &q, e);
    if (failed)
        return failed;
    failed = measure_least(q, transfer_run, t, (int)bytes, ns, e);
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
        failed = check_transfer(b, b->r->device, &t, bytes, ns, e);
    area_close(&h);
    area_close(&a);
    return failed;
}

int check_to_device(bench *b, int64_t bytes, double *ns, pt_error *e) { return check_copy(b, true, bytes, ns, e); }
int check_from_device(bench *b, int64_t bytes, double *ns, pt_error *e) { return check_copy(b, false, bytes, ns, e); }

static int check_file(bench *b, op_kind kind, disk_file *f, disk_channel *channel, int64_t bytes, double *ns, pt_error *e)
{
    side memory = {.bytes = disk_bytes(f)};
    area a;
    int failed = area_open(b, b->r->host_tier ? TIER_HOST : TIER_DEVICE, &a, "the disk", side_layout, &memory, e);
    if (failed)
        return failed;
    transfer t = {.kind = kind, .channel = channel, .to = memory.base, .room = memory.bytes, .span = memory.bytes};
    failed = disk_write(channel, 0, memory.base, memory.bytes, e);
    if (!failed)
        failed = check_transfer(b, b->r->host, &t, bytes, ns, e);
    area_close(&a);
    return failed;
}

static int check_disk(bench *b, op_kind kind, int64_t bytes, double *ns, pt_error *e)
{
    char folder[FILE_PATH_BYTES];
    disk_file *f = NULL;
    disk_channel *channel = NULL;
    int failed = existing_folder(b->r->disk_path, folder, e);
    if (!failed)
        failed = disk_open(folder, 2 * (uint64_t)bytes, NULL, &f, e);
    if (!failed)
        failed = disk_channel_open(f, &channel, e);
    if (!failed)
        failed = check_file(b, kind, f, channel, bytes, ns, e);
    disk_channel_close(channel);
    disk_close(f);
    return failed;
}

int check_read(bench *b, int64_t bytes, double *ns, pt_error *e) { return check_disk(b, OP_DISK_READ, bytes, ns, e); }
int check_write(bench *b, int64_t bytes, double *ns, pt_error *e) { return check_disk(b, OP_DISK_WRITE, bytes, ns, e); }
