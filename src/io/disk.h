/* disk.h - the disk tier: a scratch file of fixed size, and channels that move blocks between it
 * and memory near the disk's speed.
 *
 * A disk_file is taken whole at open (blocks really allocated, so that no later write can find the
 * disk full) and has no name: it is gone when the process is, however it ends. A disk_channel has
 * an io_uring of its own and is used by one thread at a time; different channels may work on one
 * file at the same time (one reads while another writes). Nothing allocates after open.
 *
 * A call is cut into pieces, several of which are in flight; it returns when all are done:
 *
 *     memory  |piece 0|piece 1|piece 2|piece 3|piece 4|tail|
 *                done    done   [in flight, `depth` at most]  waiting
 *
 * Channels share the disk by what they have in flight, and a piece waits behind all that is. 8 MiB filled the disk that was
 * measured, and leave a transfer of that size or more its half beside a longer one; with 32 MiB one of 16 got a third.
 *
 * Offsets and memory must be multiples of DISK_ALIGN; a buffer owns whole blocks of the file: where
 * `bytes` is no multiple, the rest of the last block is undefined after a write. O_DIRECT is used
 * where the filesystem takes it, else the page cache (tmpfs); io_uring where the kernel allows it,
 * else pread and pwrite (containers often forbid it). Both facts can be asked for.
 */
#ifndef PT_DISK_H
#define PT_DISK_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { DISK_ALIGN = 4096 };

typedef struct disk_file disk_file;
typedef struct disk_channel disk_channel;

/* For tests and measurements; NULL or zeros mean the defaults. `fault` sees the result of every
 * single transfer (bytes done or -errno) before the channel does and returns what to take
 * instead; it is called in the channel's thread. */
typedef struct disk_options {
    bool no_direct, no_uring;
    size_t piece_bytes; /* default 512 KiB; rounded up to DISK_ALIGN */
    int depth;          /* pieces in flight, default 16, at most 64 */
    int (*fault)(void *context, bool is_write, uint64_t offset, size_t bytes, int result);
    void *context;
} disk_options;

/* What a shell lets files become (ulimit -f); UINT64_MAX: anything. */
uint64_t disk_file_limit(void);
/* What a scratch file in `folder`, or its nearest parent that exists, may take: what is free there, and no more than that limit. */
int disk_room_bytes(const char *folder, uint64_t *bytes, pt_error *e);

/* A scratch file of `bytes` (rounded up to DISK_ALIGN) in `folder`, which is made if absent and goes with the file then.
 * PT_DOES_NOT_FIT, with the bytes needed and free, if the disk has no room, or the limit in its place. `options` may be NULL. */
int disk_open(const char *folder, uint64_t bytes, const disk_options *options, disk_file **out, pt_error *e);
void disk_close(disk_file *f); /* after its channels */
uint64_t disk_bytes(const disk_file *f);
bool disk_is_direct(const disk_file *f);

int disk_channel_open(disk_file *f, disk_channel **out, pt_error *e);
void disk_channel_close(disk_channel *c);
bool disk_channel_has_uring(const disk_channel *c);

/* memory[0 .. bytes) <- file[offset ...) and the way back. Blocking. After an error the content of
 * the target is undefined, nothing is in flight any more, and the channel can still be used.
 * PT_USAGE: not aligned, or beyond the end of the file. */
int disk_read(disk_channel *c, uint64_t offset, void *memory, size_t bytes, pt_error *e);
int disk_write(disk_channel *c, uint64_t offset, const void *memory, size_t bytes, pt_error *e);

#endif
