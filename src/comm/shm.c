#include "comm/shm.h"

#include "comm/ending.h"
#include "comm/turns.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { LINE = 64, PAGE = 4096, RINGS_BYTES = 16 << 20, RING_LEAST = 64 << 10, RING_MOST = 2 << 20 };
enum { MAGIC = 0x70726f74 };

typedef struct ring_ends {
    _Alignas(LINE) atomic_ullong head; /* bytes put in */
    _Alignas(LINE) atomic_ullong tail; /* bytes taken out */
} ring_ends;

struct shm_segment {
    uint32_t magic;
    int ranks;
    uint64_t nonce;
    size_t bytes, ring_bytes, data_at;  /* of the segment; of a ring; offset of the rings' bytes */
    ending end;
    struct { _Alignas(LINE) atomic_ullong count; } beat[COMM_RANKS_MOST];
    atomic_bool left[COMM_RANKS_MOST];
    ring_ends ends[];                   /* (ranks, ranks) */
};

/* ---- segment ---- */

int shm_segment_make(int ranks, uint64_t nonce, shm_segment **out, int *fd, pt_error *e)
{
    const size_t rings = (size_t)ranks * (size_t)ranks;
    size_t ring = RINGS_BYTES / rings / PAGE * PAGE;
    ring = ring < RING_LEAST ? RING_LEAST : ring > RING_MOST ? RING_MOST : ring;
    const size_t data_at = (sizeof(shm_segment) + rings * sizeof(ring_ends) + PAGE - 1) / PAGE * PAGE, bytes = data_at + rings * ring;
    const int file = memfd_create("protrain ranks", 0);
    if (file < 0 || ftruncate(file, (off_t)bytes)) {
        int failed = pt_fail_errno(e, PT_FAILED, "no memory that %d ranks could share", ranks);
        if (file >= 0)
            close(file);
        return failed;
    }
    shm_segment *s = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (s == MAP_FAILED) {
        int failed = pt_fail_errno(e, PT_FAILED, "no memory that %d ranks could share", ranks);
        close(file);
        return failed;
    }
    s->magic = MAGIC;
    s->ranks = ranks;
    s->nonce = nonce;
    s->bytes = bytes;
    s->ring_bytes = ring;
    s->data_at = data_at;
    if (fd)
        *fd = file;
    else
        close(file);
    *out = s;
    return 0;
}

int shm_segment_map(int fd, shm_segment **out, pt_error *e)
{
    struct stat st;
    if (fstat(fd, &st) || (size_t)st.st_size < sizeof(shm_segment))
        return pt_fail(e, PT_FAILED,
                       "the memory that this rank shares with the others does not exist: start the ranks with protrain train --ranks N");
    shm_segment *s = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (s == MAP_FAILED)
        return pt_fail_errno(e, PT_FAILED, "the memory that this rank shares with the others cannot be mapped");
    if (s->magic != MAGIC || s->bytes != (size_t)st.st_size) {
        munmap(s, (size_t)st.st_size);
        return pt_fail(e, PT_FAILED,
                       "the memory that this rank was given belongs to no run: start the ranks with protrain train --ranks N");
    }
    *out = s;
    return 0;
}

void shm_segment_unmap(shm_segment *s)
{
    if (s)
        munmap(s, s->bytes);
}

int shm_segment_ranks(const shm_segment *s) { return s->ranks; }

uint64_t shm_segment_nonce(const shm_segment *s) { return s->nonce; }

void shm_segment_abort(shm_segment *s, int rank, int code, const char *why) { ending_say(&s->end, rank, code, why); }

bool shm_segment_aborted(const shm_segment *s, pt_error *why) { return ending_ask(&s->end, why); }

uint64_t shm_segment_beat(const shm_segment *s, int rank) { return atomic_load(&s->beat[rank].count); }

void shm_segment_leave(shm_segment *s, int rank) { atomic_store(&s->left[rank], true); }

bool shm_segment_left(const shm_segment *s, int rank) { return atomic_load(&s->left[rank]); }

static ring_ends *ends_of(shm_segment *s, int from, int to) { return &s->ends[from * s->ranks + to]; }
static char *data_of(shm_segment *s, int from, int to) { return (char *)s + s->data_at + (size_t)(from * s->ranks + to) * s->ring_bytes; }

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

size_t shm_put(shm_segment *s, int from, int to, const void *data, size_t bytes)
{
    ring_ends *r = ends_of(s, from, to);
    const uint64_t head = atomic_load_explicit(&r->head, memory_order_relaxed), tail = atomic_load_explicit(&r->tail, memory_order_acquire);
    const size_t at = head % s->ring_bytes, n = least(bytes, least(s->ring_bytes - (size_t)(head - tail), s->ring_bytes - at));
    memcpy(data_of(s, from, to) + at, data, n);
    if (n)
        atomic_store_explicit(&r->head, head + n, memory_order_release);
    return n;
}

size_t shm_take(shm_segment *s, int from, int to, void *data, size_t bytes)
{
    ring_ends *r = ends_of(s, from, to);
    const uint64_t tail = atomic_load_explicit(&r->tail, memory_order_relaxed), head = atomic_load_explicit(&r->head, memory_order_acquire);
    const size_t at = tail % s->ring_bytes, n = least(bytes, least((size_t)(head - tail), s->ring_bytes - at));
    memcpy(data, data_of(s, from, to) + at, n);
    if (n)
        atomic_store_explicit(&r->tail, tail + n, memory_order_release);
    return n;
}

/* ---- a rank ---- */

typedef struct shm_comm {
    comm base; /* first */
    shm_segment *s;
    pthread_t beater;
    pthread_mutex_t lock;
    pthread_cond_t ending;
    bool ended;
} shm_comm;

static int put(comm *c, int peer, const void *from, size_t bytes, size_t *moved, pt_error *e)
{
    *moved = shm_put(((shm_comm *)c)->s, c->rank, peer, from, bytes);
    return 0;
}

static int take(comm *c, int peer, void *to, size_t bytes, size_t *moved, pt_error *e)
{
    *moved = shm_take(((shm_comm *)c)->s, peer, c->rank, to, bytes);
    return 0;
}

static int look_and_pause(comm *c, const unsigned char *wants, int idle, pt_error *e)
{
    pt_error why = {0};
    if (shm_segment_aborted(((shm_comm *)c)->s, &why))
        return pt_fail(e, why.code, "%s", why.text);
    turns_pause(idle);
    return 0;
}

static int shm_exchange(comm *c, const comm_move *moves, int n, pt_error *e)
{
    static const turn_channels rings = {put, take, look_and_pause};
    return turns_exchange(&rings, c, moves, n, e);
}

static void shm_abort(comm *base, const pt_error *why)
{
    shm_segment_abort(((shm_comm *)base)->s, base->rank, why->code, why->text);
}

static void *beat(void *arg)
{
    shm_comm *c = arg;
    struct timespec until; /* monotonic, as `ending` is: the wall clock may be set back */
    pthread_mutex_lock(&c->lock);
    while (!c->ended) {
        atomic_fetch_add(&c->s->beat[c->base.rank].count, 1);
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += 200 * 1000000;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        pthread_cond_timedwait(&c->ending, &c->lock, &until);
    }
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

static void shm_close(comm *base)
{
    shm_comm *c = (shm_comm *)base;
    pthread_mutex_lock(&c->lock);
    c->ended = true;
    pthread_cond_signal(&c->ending);
    pthread_mutex_unlock(&c->lock);
    pthread_join(c->beater, NULL);
    pthread_cond_destroy(&c->ending);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

static bool shm_over(comm *base, pt_error *why) { return shm_segment_aborted(((shm_comm *)base)->s, why); }

static const comm_table shm_table = {shm_exchange, shm_abort, shm_over, shm_close};

static void open_ending(shm_comm *c)
{
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->ending, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

int comm_shm_open(shm_segment *s, int rank, comm **out, pt_error *e)
{
    if (rank < 0 || rank >= s->ranks)
        return pt_fail(e, PT_FAILED, "there is no rank %d of %d", rank, s->ranks);
    shm_comm *c = calloc(1, sizeof *c);
    if (!c)
        return pt_fail(e, PT_FAILED, "out of memory");
    c->base = (comm){&shm_table, rank, s->ranks, 0};
    c->s = s;
    open_ending(c);
    if (pthread_create(&c->beater, NULL, beat, c)) {
        free(c);
        return pt_fail(e, PT_FAILED, "no thread could be started for the exchanges between ranks");
    }
    *out = &c->base;
    return 0;
}
