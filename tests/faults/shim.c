/* shim.c - stands between a program and the system (LD_PRELOAD), and makes what it reads and writes fail.
 *
 *   PT_FAULT="WHERE WHAT N KIND"
 *       WHERE   tier: the disk tier's files: the one without a name, and that of states with two slots; files: all others that it has
 *               opened by name, but the system's (/proc, /sys, /dev/nvidia*), which drivers read too; checkpoint: those of the files that
 *               belong to a checkpoint
 *       WHAT    read, write, sync, rename (of a file or a folder, by its new name)
 *       KIND    eio, enospc: call number N fails; short: every N-th call moves a part of its bytes only; none. Of renames: kill,
 *               killed: the program is killed before call number N, or after it
 *   PT_LOSE="N SEED WHAT" the power fails at call number N that writes states with two slots, or makes them durable (WHAT is any), or of
 *                         those that make them durable alone (sync): the program is killed, and of what was written since the last
 *                         fdatasync some sectors keep what they had before
 *   PT_FAULT_COUNT=FILE   how many such calls there were, written at the end
 *   PT_FAULT_RANK=N       of the ranks of `protrain train --ranks`, only rank N has the fault
 *   PT_STOP_RANK=N        rank N of `protrain train --ranks` stops (SIGSTOP) before its first instruction
 *
 * io_uring is refused, as in many containers, so that every transfer is a call that can be seen here. Programs that this one starts, as
 * drivers do, are left alone. */
#undef _FORTIFY_SOURCE
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

/* fcntl.h and unistd.h declare what is defined here, in ways that differ between systems. */
ssize_t pread(int fd, void *data, size_t n, off_t offset);
ssize_t pwrite(int fd, const void *data, size_t n, off_t offset);
int getpid(void);
#define TMPFILE_FLAG 020200000
#define CREATE_FLAG 0100

enum { FDS = 1024 };
static atomic_int places[FDS]; /* an index into place_names, by descriptor */
static const char *const place_names[] = {"others", "files", "checkpoint", "tier", "tier"};
enum { PLACE_OTHERS, PLACE_FILES, PLACE_CHECKPOINT, PLACE_TIER, PLACE_STATES };
static atomic_long count;
static long lose_n; /* calls that PT_LOSE counts */

/* Is the fault another rank's? */
static bool is_spared(void)
{
    const char *meant = getenv("PT_FAULT_RANK"), *rank = getenv("PROTRAIN_RANK");
    return meant && (!rank || strcmp(meant, rank));
}

static const char *setting(int field)
{
    static char words[4][16];
    static atomic_bool read;
    if (!atomic_load(&read)) {
        const char *text = is_spared() ? NULL : getenv("PT_FAULT");
        if (!text || sscanf(text, "%15s %15s %15s %15s", words[0], words[1], words[2], words[3]) != 4)
            strcpy(words[0], "none");
        atomic_store(&read, 1);
    }
    return words[field];
}

__attribute__((constructor)) static void begin(void)
{
    const char *stop = getenv("PT_STOP_RANK"), *rank = getenv("PROTRAIN_RANK");
    setting(0);
    if (stop && rank && !strcmp(stop, rank))
        raise(SIGSTOP);
    if ((!stop && !getenv("PT_FAULT_RANK")) || rank) /* else it starts the ranks */
        unsetenv("LD_PRELOAD");
}

__attribute__((destructor)) static void end(void)
{
    const char *path = is_spared() ? NULL : getenv("PT_FAULT_COUNT");
    FILE *f = path ? fopen(path, "w") : NULL;
    if (f) {
        fprintf(f, "%ld\n", lose_n ? lose_n : atomic_load(&count));
        fclose(f);
    }
}

static bool is_meant(int place)
{
    return strcmp(setting(0), place_names[place]) == 0 || (place == PLACE_CHECKPOINT && strcmp(setting(0), place_names[PLACE_FILES]) == 0);
}

/* What is to happen to this call of n bytes: -1 with errno, or how many of them it may move. */
static ssize_t verdict(int fd, const char *what, size_t n)
{
    int place = fd >= 0 && fd < FDS ? atomic_load(&places[fd]) : PLACE_OTHERS;
    if (fd <= 2 || !is_meant(place) || strcmp(setting(1), what))
        return (ssize_t)n;
    long number = atomic_fetch_add(&count, 1) + 1, wanted = atol(setting(2));
    if (!strcmp(setting(3), "short"))
        return number % wanted || n < 2 ? (ssize_t)n : (ssize_t)(n > 8192 ? (n / 2 / 4096) * 4096 : n > 4096 ? 4096 : n);
    if (!strcmp(setting(3), "none") || number != wanted)
        return (ssize_t)n;
    errno = !strcmp(setting(3), "eio") ? EIO : ENOSPC;
    return -1;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static int place_of(int flags, const char *path)
{
    static const char *const roots[] = {"/dev/nvidia", "/proc/", "/sys/"};
    if (strstr(path, "/states-"))
        return PLACE_STATES;
    if ((flags & TMPFILE_FLAG) == TMPFILE_FLAG || strstr(path, "/.scratch-"))
        return PLACE_TIER;
    for (size_t i = 0; i < sizeof roots / sizeof *roots; i++)
        if (strncmp(path, roots[i], strlen(roots[i])) == 0)
            return PLACE_OTHERS;
    return strstr(path, "checkpoint-") ? PLACE_CHECKPOINT : PLACE_FILES;
}

static int opened(int fd, int flags, const char *path)
{
    if (fd >= 0 && fd < FDS)
        atomic_store(&places[fd], place_of(flags, path));
    return fd;
}

#define OPEN(name)                                                                          \
    int name(const char *path, int flags, ...)                                              \
    {                                                                                       \
        va_list ap;                                                                         \
        va_start(ap, flags);                                                                \
        int mode = flags & CREATE_FLAG || (flags & TMPFILE_FLAG) == TMPFILE_FLAG ? va_arg(ap, int) : 0; \
        va_end(ap);                                                                         \
        return opened(REAL(name)(path, flags, mode), flags, path);                          \
    }
OPEN(open)
OPEN(open64)

#define OPEN_CHECKED(name) \
    int name(const char *path, int flags) { return opened(REAL(name)(path, flags), flags, path); }
OPEN_CHECKED(__open_2)
OPEN_CHECKED(__open64_2)

#define TEMPORARY(name) \
    int name(char *path, int flags) { return opened(REAL(name)(path, flags), 0, path); }
TEMPORARY(mkostemp)
TEMPORARY(mkostemp64)

#define READ(name)                                              \
    ssize_t name(int fd, void *data, size_t n, off_t offset)    \
    {                                                           \
        ssize_t may = verdict(fd, "read", n);                   \
        return may < 0 ? -1 : REAL(name)(fd, data, (size_t)may, offset); \
    }
READ(pread)
READ(pread64)

#define READ_CHECKED(name)                                                  \
    ssize_t name(int fd, void *data, size_t n, off_t offset, size_t room)   \
    {                                                                       \
        ssize_t may = verdict(fd, "read", n);                               \
        return may < 0 ? -1 : REAL(name)(fd, data, (size_t)may, offset, room); \
    }
READ_CHECKED(__pread_chk)
READ_CHECKED(__pread64_chk)

/* ---- lost writes ---- */

enum { SECTOR = 512 };

/* What was there before a write that is not durable yet; `earlier`: the write before. */
typedef struct undo { struct undo *earlier; int fd; off_t offset; size_t n; char *before; } undo;
static undo *undone;
static long lose_at, lose_seed;
static char lose_what[8];
static pthread_mutex_t lose_lock = PTHREAD_MUTEX_INITIALIZER;

static bool loses(int fd)
{
    static bool read;
    if (!read && getenv("PT_LOSE") && sscanf(getenv("PT_LOSE"), "%ld %ld %7s", &lose_at, &lose_seed, lose_what) != 3)
        abort();
    read = true;
    return lose_at && fd >= 0 && fd < FDS && atomic_load(&places[fd]) == PLACE_STATES;
}

static unsigned draw(void)
{
    lose_seed = (long)((unsigned long)lose_seed * 6364136223846793005u + 1442695040888963407u);
    return (unsigned)((unsigned long)lose_seed >> 33);
}

/* All of a write is lost, or nothing, or any of its sectors. */
static void lose_write(const undo *u)
{
    char *now = aligned_alloc(4096, u->n);
    const unsigned kind = draw() % 4;
    if (REAL(pread)(u->fd, now, u->n, u->offset) != (ssize_t)u->n)
        abort();
    for (size_t at = 0; at < u->n; at += SECTOR)
        if (kind == 0 || (kind > 1 && draw() % 2))
            memcpy(now + at, u->before + at, SECTOR);
    if (REAL(pwrite)(u->fd, now, u->n, u->offset) != (ssize_t)u->n)
        abort();
}

static void lose_power(void)
{
    for (const undo *u = undone; u; u = u->earlier)
        lose_write(u);
    kill(getpid(), SIGKILL);
}

static ssize_t write_with_undo(int fd, const void *data, size_t n, off_t offset)
{
    pthread_mutex_lock(&lose_lock);
    undo *u = malloc(sizeof *u);
    *u = (undo){undone, fd, offset, n, aligned_alloc(4096, n)};
    if (REAL(pread)(fd, u->before, n, offset) != (ssize_t)n)
        abort();
    undone = u;
    const ssize_t done = REAL(pwrite)(fd, data, n, offset);
    if (strcmp(lose_what, "sync") && ++lose_n == lose_at)
        lose_power();
    pthread_mutex_unlock(&lose_lock);
    return done;
}

int fdatasync(int fd)
{
    if (!loses(fd))
        return verdict(fd, "sync", 0) < 0 ? -1 : REAL(fdatasync)(fd);
    pthread_mutex_lock(&lose_lock);
    if (++lose_n == lose_at)
        lose_power();
    for (undo *u = undone, *earlier; u; u = earlier) {
        earlier = u->earlier;
        free(u->before);
        free(u);
    }
    undone = NULL;
    pthread_mutex_unlock(&lose_lock);
    return REAL(fdatasync)(fd);
}

#define WRITE(name)                                                  \
    ssize_t name(int fd, const void *data, size_t n, off_t offset)   \
    {                                                                \
        if (loses(fd))                                               \
            return write_with_undo(fd, data, n, offset);             \
        ssize_t may = verdict(fd, "write", n);                       \
        return may < 0 ? -1 : REAL(name)(fd, data, (size_t)may, offset); \
    }
WRITE(pwrite)
WRITE(pwrite64)

ssize_t read(int fd, void *data, size_t n)
{
    ssize_t may = verdict(fd, "read", n);
    return may < 0 ? -1 : REAL(read)(fd, data, (size_t)may);
}

ssize_t write(int fd, const void *data, size_t n)
{
    ssize_t may = verdict(fd, "write", n);
    return may < 0 ? -1 : REAL(write)(fd, data, (size_t)may);
}

int close(int fd)
{
    if (fd >= 0 && fd < FDS)
        atomic_store(&places[fd], PLACE_OTHERS); /* its number may come back as a pipe's */
    return REAL(close)(fd);
}

int fsync(int fd) { return verdict(fd, "sync", 0) < 0 ? -1 : REAL(fsync)(fd); }

/* Is this the call before or after which the program is killed? */
static bool is_chosen(const char *to)
{
    return is_meant(place_of(0, to)) && !strcmp(setting(1), "rename") && atomic_fetch_add(&count, 1) + 1 == atol(setting(2));
}

static void kill_if(bool chosen, const char *kind)
{
    if (chosen && !strcmp(setting(3), kind))
        raise(SIGKILL);
}

int rename(const char *from, const char *to)
{
    const bool chosen = is_chosen(to);
    kill_if(chosen, "kill");
    const int failed = REAL(rename)(from, to);
    kill_if(chosen, "killed");
    return failed;
}

int renameat2(int from_folder, const char *from, int to_folder, const char *to, unsigned flags)
{
    const bool chosen = is_chosen(to);
    kill_if(chosen, "kill");
    const int failed = REAL(renameat2)(from_folder, from, to_folder, to, flags);
    kill_if(chosen, "killed");
    return failed;
}

struct io_uring;
int io_uring_queue_init(unsigned entries, struct io_uring *ring, unsigned flags)
{
    (void)entries, (void)ring, (void)flags;
    return -ENOSYS;
}
