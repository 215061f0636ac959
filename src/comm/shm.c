#include "comm/shm.h"

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
    size_t bytes, ring_bytes, data_at;  /* of all; of a ring; where the rings' bytes begin */
    atomic_int aborted;                 /* 1: the reason is being written, 2: it is there */
    int abort_code;
    char abort_text[400];
    struct { _Alignas(LINE) atomic_ullong count; } beat[COMM_RANKS_MOST];
    ring_ends ends[];                   /* (ranks, ranks) */
};

/* ---- segment ---- */

int shm_segment_make(int ranks, shm_segment **out, int *fd, pt_error *e)
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

void shm_segment_abort(shm_segment *s, int rank, int code, const char *why)
{
    int none = 0;
    if (!atomic_compare_exchange_strong(&s->aborted, &none, 1))
        return;
    s->abort_code = code ? code : PT_FAILED;
    if (rank < 0)
        snprintf(s->abort_text, sizeof s->abort_text, "%.390s", why);
    else
        snprintf(s->abort_text, sizeof s->abort_text, "rank %d: %.370s", rank, why);
    atomic_store(&s->aborted, 2);
}

bool shm_segment_aborted(const shm_segment *s, pt_error *why)
{
    if (!atomic_load(&s->aborted))
        return false;
    const struct timespec moment = {.tv_nsec = 1000000};
    for (int i = 0; i < 1000 && atomic_load(&s->aborted) == 1; i++) /* who says why may be ended meanwhile */
        nanosleep(&moment, NULL);
    if (atomic_load(&s->aborted) == 2)
        pt_fail(why, s->abort_code, "%s", s->abort_text);
    else
        pt_fail(why, PT_FAILED, "another rank failed");
    return true;
}

uint64_t shm_segment_beat(const shm_segment *s, int rank) { return atomic_load(&s->beat[rank].count); }

static ring_ends *ends_of(shm_segment *s, int from, int to) { return &s->ends[from * s->ranks + to]; }
static char *data_of(shm_segment *s, int from, int to) { return (char *)s + s->data_at + (size_t)(from * s->ranks + to) * s->ring_bytes; }

/* ---- a rank ---- */

typedef struct shm_comm {
    comm base; /* first */
    shm_segment *s;
    pthread_t beater;
    pthread_mutex_t lock;
    pthread_cond_t ending;
    bool ended;
} shm_comm;

/* The next bytes of the moves with a peer, in one direction. */
typedef struct cursor { int move; size_t at; } cursor;

static size_t bytes_of(const comm_move *m, bool send) { return send ? m->send_bytes : m->receive_bytes; }

/* Steps over moves of other peers and finished ones; false: none is left. */
static bool cursor_ready(cursor *k, const comm_move *moves, int n, int peer, bool send)
{
    while (k->move < n && (moves[k->move].peer != peer || k->at == bytes_of(&moves[k->move], send))) {
        k->move++;
        k->at = 0;
    }
    return k->move < n;
}

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

/* As much as goes on without a turn of the ring; 0: nothing. */
static size_t put(shm_comm *c, int peer, const void *from, size_t bytes)
{
    ring_ends *r = ends_of(c->s, c->base.rank, peer);
    const uint64_t head = atomic_load_explicit(&r->head, memory_order_relaxed), tail = atomic_load_explicit(&r->tail, memory_order_acquire);
    const size_t at = head % c->s->ring_bytes, n = least(bytes, least(c->s->ring_bytes - (size_t)(head - tail), c->s->ring_bytes - at));
    memcpy(data_of(c->s, c->base.rank, peer) + at, from, n);
    if (n)
        atomic_store_explicit(&r->head, head + n, memory_order_release);
    return n;
}

static size_t take(shm_comm *c, int peer, void *to, size_t bytes)
{
    ring_ends *r = ends_of(c->s, peer, c->base.rank);
    const uint64_t tail = atomic_load_explicit(&r->tail, memory_order_relaxed), head = atomic_load_explicit(&r->head, memory_order_acquire);
    const size_t at = tail % c->s->ring_bytes, n = least(bytes, least((size_t)(head - tail), c->s->ring_bytes - at));
    memcpy(to, data_of(c->s, peer, c->base.rank) + at, n);
    if (n)
        atomic_store_explicit(&r->tail, tail + n, memory_order_release);
    return n;
}

/* One turn with a peer: whether anything moved; *left: whether anything is still to move. */
static bool turn(shm_comm *c, const comm_move *moves, int n, int peer, cursor *out, cursor *in, bool *left)
{
    size_t moved = 0, now;
    if (cursor_ready(out, moves, n, peer, true)) {
        now = put(c, peer, (const char *)moves[out->move].send + out->at, moves[out->move].send_bytes - out->at);
        out->at += now;
        moved += now;
    }
    if (cursor_ready(in, moves, n, peer, false)) {
        now = take(c, peer, (char *)moves[in->move].receive + in->at, moves[in->move].receive_bytes - in->at);
        in->at += now;
        moved += now;
    }
    *left = *left || cursor_ready(out, moves, n, peer, true) || cursor_ready(in, moves, n, peer, false);
    return moved;
}

/* Ranks may share a processor: after a short look it is left to the others. */
static void pause_for(int idle)
{
    enum { LOOKS = 200, SHORT_NS = 20000, LONG_NS = 200000 };
    if (idle < LOOKS) {
        __builtin_ia32_pause();
        return;
    }
    const struct timespec t = {.tv_nsec = idle < 2 * LOOKS ? SHORT_NS : LONG_NS};
    nanosleep(&t, NULL);
}

/* What a rank sends itself, move by move: the same bytes come in. */
static void move_own(const comm_move *moves, int n, int rank)
{
    cursor out = {0}, in = {0};
    while (cursor_ready(&out, moves, n, rank, true) && cursor_ready(&in, moves, n, rank, false)) {
        const comm_move *a = &moves[out.move], *b = &moves[in.move];
        const size_t bytes = least(a->send_bytes - out.at, b->receive_bytes - in.at);
        memmove((char *)b->receive + in.at, (const char *)a->send + out.at, bytes);
        out.at += bytes;
        in.at += bytes;
    }
}

static int shm_exchange(comm *base, const comm_move *moves, int n, pt_error *e)
{
    shm_comm *c = (shm_comm *)base;
    cursor out[COMM_RANKS_MOST] = {0}, in[COMM_RANKS_MOST] = {0};
    bool left = true;
    move_own(moves, n, base->rank);
    for (int idle = 0; left;) {
        bool moved = false;
        left = false;
        for (int i = 1; i < base->ranks; i++) {
            const int peer = (base->rank + i) % base->ranks;
            moved = turn(c, moves, n, peer, &out[peer], &in[peer], &left) || moved;
        }
        idle = moved ? 0 : idle + 1;
        if (left && !moved && shm_segment_aborted(c->s, e))
            return e && e->code ? e->code : PT_FAILED;
        if (left && !moved)
            pause_for(idle);
    }
    return 0;
}

static void shm_abort(comm *base, const pt_error *why)
{
    shm_segment_abort(((shm_comm *)base)->s, base->rank, why->code, why->text);
}

static void *beat(void *arg)
{
    shm_comm *c = arg;
    struct timespec until;
    pthread_mutex_lock(&c->lock);
    while (!c->ended) {
        atomic_fetch_add(&c->s->beat[c->base.rank].count, 1);
        clock_gettime(CLOCK_REALTIME, &until);
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

static const comm_table shm_table = {shm_exchange, shm_abort, shm_close};

int comm_shm_open(shm_segment *s, int rank, comm **out, pt_error *e)
{
    if (rank < 0 || rank >= s->ranks)
        return pt_fail(e, PT_FAILED, "there is no rank %d of %d", rank, s->ranks);
    shm_comm *c = calloc(1, sizeof *c);
    if (!c)
        return pt_fail(e, PT_FAILED, "out of memory");
    c->base = (comm){&shm_table, rank, s->ranks};
    c->s = s;
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->ending, NULL);
    if (pthread_create(&c->beater, NULL, beat, c)) {
        free(c);
        return pt_fail(e, PT_FAILED, "no thread could be started for the exchanges between ranks");
    }
    *out = &c->base;
    return 0;
}
