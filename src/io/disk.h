/* disk.h - the disk tier: a file of fixed size, and channels that transfer blocks between it and memory at nearly the disk's speed.
 *
 * A disk_file is allocated completely at open, so that no later write can find the disk full. A scratch file has no name, so it is gone
 * when the process ends, in whatever way. A disk_channel has its own io_uring and is used by one thread at a time; different channels may
 * use one file concurrently (one reads while another writes). Nothing allocates after open.
 *
 * A transfer is divided into pieces, several of which are in flight; it returns when all are done:
 *
 *     memory  |piece 0|piece 1|piece 2|piece 3|piece 4|tail|
 *                done    done   [in flight, `depth` at most]  waiting
 *
 * Channels share the disk in proportion to what they have in flight, and a piece waits for everything before it. On the measured disk 8 MiB
 * in flight gave full speed, and half of it to a transfer of that size or more beside a longer one; with 32 MiB, one of 16 MiB got a third.
 *
 * Offsets and memory must be multiples of DISK_ALIGN. A buffer owns whole blocks of the file: if `bytes` is not a multiple, the rest of the
 * last block is undefined after a write. Uses O_DIRECT if the file system supports it, else the page cache (tmpfs); io_uring if the kernel
 * allows it, else pread and pwrite (containers often forbid io_uring). Both can be queried.
 */
#ifndef PT_DISK_H
#define PT_DISK_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { DISK_ALIGN = 4096 };
static inline uint64_t disk_align(uint64_t n) { return (n + DISK_ALIGN - 1) / DISK_ALIGN * DISK_ALIGN; }

typedef struct disk_file disk_file;
typedef struct disk_channel disk_channel;

/* Bytes of a file; multiples of DISK_ALIGN. */
typedef struct disk_range { uint64_t offset, bytes; } disk_range;

/* NULL or zeros: the defaults. `holes`, in ascending order, are never read or written and take no room; used by opening alone. The rest is
 * for tests and measurements. `fault` sees the result of every single transfer (bytes done or -errno) before
 * the channel does, and returns the result to use instead; it is called in the channel's thread. */
typedef struct disk_options {
    bool no_direct, no_uring;
    size_t piece_bytes; /* default 512 KiB; rounded up to DISK_ALIGN */
    int depth;          /* pieces in flight, default 16, at most 64 */
    int (*fault)(void *context, bool is_write, uint64_t offset, size_t bytes, int result);
    void *context;
    const disk_range *holes;
    int holes_n;
} disk_options;

/* The limit of file sizes (ulimit -f); UINT64_MAX: none. */
uint64_t disk_file_limit(void);
/* The largest scratch file in `folder`, or in its nearest existing parent: the free space, and at most that limit. */
int disk_room_bytes(const char *folder, uint64_t *bytes, pt_error *e);

/* Creates a scratch file of `bytes` (rounded up to DISK_ALIGN) in `folder`, which is created if absent and then removed with the file.
 * PT_DOES_NOT_FIT, with the bytes needed and free, if the disk lacks space or the limit is too low. `options` may be NULL. */
int disk_open(const char *folder, uint64_t bytes, const disk_options *options, disk_file **out, pt_error *e);
/* The same with a file that has a name and stays; one that exists keeps its contents. Until disk_close it has a shared flock(). */
int disk_open_named(const char *path, uint64_t bytes, const disk_options *options, disk_file **out, pt_error *e);
/* Makes durable what all channels have written. */
int disk_sync(disk_file *f, pt_error *e);
void disk_close(disk_file *f); /* after its channels are closed */
uint64_t disk_bytes(const disk_file *f);
bool disk_is_direct(const disk_file *f);

int disk_channel_open(disk_file *f, disk_channel **out, pt_error *e);
void disk_channel_close(disk_channel *channel);
bool disk_channel_has_uring(const disk_channel *channel);

/* memory[0 .. bytes) <- file[offset ...), and the reverse. Blocking. After an error the destination is undefined, nothing is in flight, and
 * the channel can still be used. PT_USAGE: not aligned, or beyond the end of the file. */
int disk_read(disk_channel *channel, uint64_t offset, void *memory, size_t bytes, pt_error *e);
int disk_write(disk_channel *channel, uint64_t offset, const void *memory, size_t bytes, pt_error *e);

/* Several reads at once, of whole blocks. */
typedef struct disk_part {
    uint64_t offset;
    char *memory;
    size_t bytes;
} disk_part;
int disk_read_parts(disk_channel *channel, const disk_part *parts, int n, pt_error *e);

/* The same as disk_write, with *sum = disk_sum(...) of what is written, computed while the disk is at work. */
int disk_write_summed(disk_channel *channel, uint64_t offset, const void *memory, size_t bytes, uint64_t *sum, pt_error *e);
/* A checksum of bytes and of their place in the file. Of parts whose lengths, but the last, are multiples of DISK_SUM_BYTES the sums add
 * up. */
enum { DISK_SUM_BYTES = 256 << 10 };
uint64_t disk_sum(uint64_t offset, const void *memory, size_t bytes);

#endif
