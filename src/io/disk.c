#include "io/disk_parts.h"

#include "base/sum.h"

#include <errno.h>
#include <liburing.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { DISK_STALLS_MAX = 1000 /* successive transfers without progress after which the job fails */ };

typedef disk_part disk_piece; /* the rest of one piece */

struct disk_channel {
    disk_file *file;
    struct io_uring ring;
    bool has_uring, broken; /* broken: the ring failed with pieces in flight */
    char *tail;             /* one block: the last one of a buffer that does not fill it */
    disk_piece pieces[DISK_DEPTH_MAX];
    int idle[DISK_DEPTH_MAX]; /* stack of free entries of `pieces` */
};

/* A call of disk_read or disk_write in progress. */
typedef struct disk_job {
    bool is_write;
    disk_piece rest;       /* whole blocks not yet divided into pieces */
    const disk_part *parts; /* what comes after them */
    int parts_n;
    disk_piece tail;       /* the channel's tail block, transferred last; bytes = 0: none */
    int stalls;            /* transfers without progress since the last progress */
    int error;             /* the first errno; 0: none */
    uint64_t error_offset;
    struct { uint64_t offset, sum; const char *memory; size_t bytes; } unsummed; /* what the checksum lacks; bytes 0: none is wanted */
} disk_job;

static uint64_t sum_block(uint64_t offset, const void *memory, size_t bytes) { return sum_bytes(offset, bytes, memory, bytes); }

uint64_t disk_sum(uint64_t offset, const void *memory, size_t bytes)
{
    const char *at = memory;
    uint64_t sum = 0;
    for (size_t done = 0; done < bytes; done += DISK_SUM_BYTES)
        sum += sum_block(offset + done, at + done, bytes - done < DISK_SUM_BYTES ? bytes - done : DISK_SUM_BYTES);
    return sum;
}

/* Adds the next blocks to the job's checksum, about as much as one piece. */
static void job_sum(disk_job *job, size_t most)
{
    const size_t whole = (most + DISK_SUM_BYTES - 1) / DISK_SUM_BYTES * DISK_SUM_BYTES;
    const size_t n = job->unsummed.bytes < whole ? job->unsummed.bytes : whole;
    job->unsummed.sum += disk_sum(job->unsummed.offset, job->unsummed.memory, n);
    job->unsummed.offset += n;
    job->unsummed.memory += n;
    job->unsummed.bytes -= n;
}

bool disk_channel_has_uring(const disk_channel *channel) { return channel->has_uring; }

/* False where the kernel or a sandbox refuses io_uring, or io_uring lacks IORING_OP_READ: pread and pwrite are used then. */
static bool ring_open(struct io_uring *ring, int depth)
{
    if (io_uring_queue_init((unsigned)depth, ring, 0))
        return false;
    struct io_uring_probe *probe = io_uring_get_probe_ring(ring);
    bool usable = probe && io_uring_opcode_supported(probe, IORING_OP_READ) &&
                  io_uring_opcode_supported(probe, IORING_OP_WRITE);
    if (probe)
        io_uring_free_probe(probe);
    if (!usable)
        io_uring_queue_exit(ring);
    return usable;
}

int disk_channel_open(disk_file *f, disk_channel **out, pt_error *e)
{
    *out = NULL;
    disk_channel *channel = calloc(1, sizeof *channel);
    char *tail = aligned_alloc(DISK_ALIGN, DISK_ALIGN);
    if (!channel || !tail) {
        free(channel);
        free(tail);
        return pt_fail(e, PT_FAILED, "no memory for a disk channel's %zu bytes", sizeof *channel + DISK_ALIGN);
    }
    channel->file = f;
    channel->tail = memset(tail, 0, DISK_ALIGN);
    channel->has_uring = !f->options.no_uring && ring_open(&channel->ring, f->options.depth);
    for (int i = 0; i < DISK_DEPTH_MAX; i++)
        channel->idle[i] = i;
    *out = channel;
    return 0;
}

void disk_channel_close(disk_channel *channel)
{
    if (!channel)
        return;
    if (channel->has_uring)
        io_uring_queue_exit(&channel->ring);
    free(channel->tail);
    free(channel);
}

/* Takes the next piece, of at most `most` bytes, from the job; false if nothing is left. */
static bool job_next(disk_job *job, size_t most, disk_piece *p)
{
    for (; !job->rest.bytes && job->parts_n; job->parts_n--)
        job->rest = *job->parts++;
    disk_piece *from = job->rest.bytes ? &job->rest : &job->tail;
    if (!from->bytes || job->error)
        return false;
    *p = *from;
    if (p->bytes > most)
        p->bytes = most;
    from->offset += p->bytes;
    from->memory += p->bytes;
    from->bytes -= p->bytes;
    return true;
}

/* Records the result of one transfer (bytes or -errno). True if the rest of the piece has to be submitted again. Only whole blocks count as
 * progress, so that offsets stay aligned. */
static bool piece_done(const disk_channel *channel, disk_job *job, disk_piece *p, int result)
{
    const disk_options *o = &channel->file->options;
    if (o->fault)
        result = o->fault(o->context, job->is_write, p->offset, p->bytes, result);
    size_t moved = result > 0 ? (size_t)result : 0;
    if (moved < p->bytes)
        moved = moved / DISK_ALIGN * DISK_ALIGN;
    job->stalls = moved ? 0 : job->stalls + 1;
    bool again = result > 0 || result == -EINTR || result == -EAGAIN;
    if (moved >= p->bytes)
        return false;
    p->offset += moved;
    p->memory += moved;
    p->bytes -= moved;
    if (again && job->stalls <= DISK_STALLS_MAX)
        return !job->error;
    if (!job->error) {
        job->error = result < 0 ? -result : EIO; /* 0: the file has been truncated */
        job->error_offset = p->offset;
    }
    return false;
}

/* Submits the piece in entry i. The ring has room: at most `depth` pieces are in flight. */
static void ring_put(disk_channel *channel, const disk_job *job, int i)
{
    const disk_piece *p = &channel->pieces[i];
    struct io_uring_sqe *sqe = io_uring_get_sqe(&channel->ring);
    if (job->is_write)
        io_uring_prep_write(sqe, channel->file->fd, p->memory, (unsigned)p->bytes, p->offset);
    else
        io_uring_prep_read(sqe, channel->file->fd, p->memory, (unsigned)p->bytes, p->offset);
    io_uring_sqe_set_data(sqe, (void *)(intptr_t)i);
}

static void job_run_ring(disk_channel *channel, disk_job *job)
{
    int idle = channel->file->options.depth, in_flight = 0;
    for (;;) {
        while (idle > 0 && job_next(job, channel->file->options.piece_bytes, &channel->pieces[channel->idle[idle - 1]])) {
            ring_put(channel, job, channel->idle[--idle]);
            in_flight++;
        }
        if (!in_flight)
            return;
        if (job->unsummed.bytes) {
            io_uring_submit(&channel->ring); /* what it leaves is submitted below */
            job_sum(job, channel->file->options.piece_bytes);
        }
        int status = io_uring_submit_and_wait(&channel->ring, 1);
        if (status < 0 && status != -EINTR && status != -EAGAIN && status != -EBUSY) {
            job->error = -status;
            job->error_offset = job->rest.offset;
            channel->broken = true;
            return;
        }
        struct io_uring_cqe *cqe;
        while (!io_uring_peek_cqe(&channel->ring, &cqe)) {
            int i = (int)(intptr_t)io_uring_cqe_get_data(cqe), result = cqe->res;
            io_uring_cqe_seen(&channel->ring, cqe);
            if (piece_done(channel, job, &channel->pieces[i], result)) {
                ring_put(channel, job, i);
            } else {
                channel->idle[idle++] = i;
                in_flight--;
            }
        }
    }
}

/* Without io_uring: one call at a time, large enough for the kernel to keep the disk busy. */
static void job_run_plain(disk_channel *channel, disk_job *job)
{
    size_t most = channel->file->options.piece_bytes * (size_t)channel->file->options.depth;
    disk_piece p;
    while (job_next(job, most < 1 << 30 ? most : 1 << 30, &p)) {
        ssize_t done;
        do {
            done = job->is_write ? pwrite(channel->file->fd, p.memory, p.bytes, (off_t)p.offset)
                                 : pread(channel->file->fd, p.memory, p.bytes, (off_t)p.offset);
        } while (piece_done(channel, job, &p, done < 0 ? -errno : (int)done));
    }
}

static int job_check(const disk_channel *channel, bool is_write, uint64_t offset, const void *memory, size_t bytes,
                     pt_error *e)
{
    const char *what = is_write ? "write" : "read";
    if (offset % DISK_ALIGN || (uintptr_t)memory % DISK_ALIGN)
        return pt_fail(e, PT_USAGE, "disk %s of %zu bytes at offset %llu, memory %p: both must be multiples of %d",
                       what, bytes, (unsigned long long)offset, (void *)memory, DISK_ALIGN);
    if (offset > channel->file->bytes || bytes > channel->file->bytes - offset)
        return pt_fail(e, PT_USAGE, "disk %s of %zu bytes at offset %llu passes the end of the scratch file (%llu "
                       "bytes)", what, bytes, (unsigned long long)offset, (unsigned long long)channel->file->bytes);
    if (channel->broken)
        return pt_fail(e, PT_FAILED, "%.400s: an earlier access to the file of the disk tier has failed", channel->file->name);
    return 0;
}

static int job_run(disk_channel *channel, disk_job *job, pt_error *e)
{
    if (channel->has_uring)
        job_run_ring(channel, job);
    else
        job_run_plain(channel, job);
    while (job->unsummed.bytes)
        job_sum(job, job->unsummed.bytes);
    if (!job->error)
        return 0;
    errno = job->error;
    return pt_fail_errno(e, PT_FAILED,
                         "%.400s: %s of the disk tier's file failed at byte %llu: check this disk, or choose another `disk_path`",
                         channel->file->name, job->is_write ? "write" : "read", (unsigned long long)job->error_offset);
}

/* Whole blocks are transferred to or from the caller's memory, a partial last block through channel->tail. */
static disk_job job_of(const disk_channel *channel, bool is_write, uint64_t offset, void *memory, size_t bytes)
{
    const size_t whole = bytes / DISK_ALIGN * DISK_ALIGN;
    return (disk_job){.is_write = is_write, .rest = {offset, memory, whole},
                      .tail = {offset + whole, channel->tail, whole < bytes ? DISK_ALIGN : 0}};
}

int disk_read(disk_channel *channel, uint64_t offset, void *memory, size_t bytes, pt_error *e)
{
    disk_job job = job_of(channel, false, offset, memory, bytes);
    int status = job_check(channel, false, offset, memory, bytes, e);
    if (!status)
        status = job_run(channel, &job, e);
    size_t part = bytes % DISK_ALIGN;
    if (!status && part)
        memcpy((char *)memory + (bytes - part), channel->tail, part);
    return status;
}

int disk_write_summed(disk_channel *channel, uint64_t offset, const void *memory, size_t bytes, uint64_t *sum, pt_error *e)
{
    int status = job_check(channel, true, offset, memory, bytes, e);
    if (status)
        return status;
    size_t part = bytes % DISK_ALIGN;
    if (part)
        memcpy(channel->tail, (const char *)memory + (bytes - part), part);
    disk_job job = job_of(channel, true, offset, (void *)memory, bytes);
    if (sum) {
        job.unsummed.offset = offset;
        job.unsummed.memory = memory;
        job.unsummed.bytes = bytes;
    }
    status = job_run(channel, &job, e);
    if (sum)
        *sum = job.unsummed.sum;
    return status;
}

int disk_write(disk_channel *channel, uint64_t offset, const void *memory, size_t bytes, pt_error *e)
{
    return disk_write_summed(channel, offset, memory, bytes, NULL, e);
}

int disk_read_parts(disk_channel *channel, const disk_part *parts, int n, pt_error *e)
{
    disk_job job = {.parts = parts, .parts_n = n};
    int status = 0;
    for (int i = 0; i < n && !status; i++)
        status = job_check(channel, false, parts[i].offset, parts[i].memory, parts[i].bytes, e);
    return status ? status : job_run(channel, &job, e);
}
