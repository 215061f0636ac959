/* together.h - ranks as threads of a test, joined by any transport. Include after cmocka.h. */
#ifndef PT_TEST_TOGETHER_H
#define PT_TEST_TOGETHER_H

#include "comm/net.h"
#include "comm/shm.h"
#include "comm/tcp.h"

#include <unistd.h>

typedef enum transport { BY_MEMORY, BY_SOCKETS, BY_BOTH, TRANSPORTS } transport;
static const char *const transport_names[TRANSPORTS] = {"memory", "sockets", "sockets and memory"};

typedef struct together {
    transport by;
    shm_segment *segment;
    meeting meeting;
    ending end[COMM_RANKS_MOST];
} together;

/* Some that are free now. */
static inline int free_port(void)
{
    const int fd = net_listen(NULL, 0), port = net_port(fd);
    assert_true(fd >= 0);
    close(fd);
    return port;
}

static inline void together_make(together *t, transport by, int ranks)
{
    static uint64_t runs;
    *t = (together){.by = by};
    t->meeting = (meeting){.ranks = ranks, .address = "localhost", .seconds = 60, .key = ((uint64_t)getpid() << 20) + ++runs,
                           .sockets_only = by == BY_SOCKETS};
    if (by == BY_MEMORY)
        assert_int_equal(shm_segment_make(ranks, 0, &t->segment, NULL, NULL), 0);
    else
        t->meeting.port = free_port(), t->meeting.ports = t->meeting.port < 65000 ? 16 : 1;
}

static inline int together_open(together *t, int rank, comm **out, pt_error *e)
{
    meeting m = t->meeting;
    m.rank = rank;
    return t->by == BY_MEMORY ? comm_shm_open(t->segment, rank, out, e) : comm_tcp_open(&m, &t->end[rank], out, e);
}

static inline void together_free(together *t) { shm_segment_unmap(t->segment); }

#endif
