#include "comm/linked.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct linked_comm {
    comm base; /* first */
    comm *by_host;
    const link_table *links;
    device_link *link;
} linked_comm;

/* What each rank sends to all others first. */
typedef struct offer { uint64_t machine, gpu; bool can; char name[LINK_NAME_BYTES], why[LINKED_WHY_BYTES - 40]; } offer;

static bool is_over(void *by_host) { return comm_over(by_host, NULL); }

/* ---- exchanges ---- */

static bool on_devices(const comm_move *moves, int n)
{
    bool all = true;
    for (int i = 0; i < n && all; i++)
        all = moves[i].send_on_device && moves[i].receive_on_device;
    return all;
}

static int linked_exchange(comm *base, const comm_move *moves, int n, pt_error *e)
{
    linked_comm *c = (linked_comm *)base;
    pt_error why = {0};
    if (!on_devices(moves, n))
        return comm_exchange(c->by_host, moves, n, e);
    const int failed = c->links->exchange(c->link, moves, n, e);
    return failed && comm_over(c->by_host, &why) ? pt_fail(e, why.code, "%s", why.text) : failed;
}

static void linked_abort(comm *base, const pt_error *why) { comm_abort(((linked_comm *)base)->by_host, why); }

static bool linked_over(comm *base, pt_error *why) { return comm_over(((linked_comm *)base)->by_host, why); }

static void linked_close(comm *base)
{
    linked_comm *c = (linked_comm *)base;
    c->links->close(c->link);
    free(c);
}

static const comm_table linked_table = {linked_exchange, linked_abort, linked_over, linked_close};

/* ---- whether, and how ---- */

static int write_why(char why[LINKED_WHY_BYTES], int rank, const char *text)
{
    snprintf(why, LINKED_WHY_BYTES, "rank %d: %.350s", rank, text);
    return false;
}

/* The same answer on all ranks. */
static bool all_can(const offer *all, int ranks, char why[LINKED_WHY_BYTES])
{
    for (int r = 0; r < ranks; r++) {
        if (!all[r].can)
            return write_why(why, r, all[r].why);
        if (strcmp(all[r].name, all[0].name) != 0)
            return write_why(why, r, "it has another version of NCCL than rank 0");
        for (int q = 0; q < r; q++)
            if (all[q].machine == all[r].machine && all[q].gpu == all[r].gpu && !getenv("NCCL_MULTI_RANK_GPU_ENABLE"))
                return write_why(why, r, "it shares its GPU with another rank");
    }
    snprintf(why, LINKED_WHY_BYTES, "%.31s", all[0].name);
    return true;
}

static offer own_offer(const comm *c, const link_table *links, uint64_t gpu)
{
    const char *by = getenv("PROTRAIN_GPU_TRANSPORT");
    offer own = {.machine = c->machine, .gpu = gpu};
    pt_error e = {0};
    if (by && !strcmp(by, "host"))
        snprintf(own.why, sizeof own.why, "PROTRAIN_GPU_TRANSPORT=host");
    else if (!links)
        snprintf(own.why, sizeof own.why, "its device has no NCCL");
    else if (links->load(own.name, &e))
        snprintf(own.why, sizeof own.why, "%.300s", e.text);
    else
        own.can = true;
    return own;
}

static int begin(linked_comm *c, device *d, pt_error *e)
{
    unsigned char id[LINK_ID_BYTES] = {0};
    const comm *base = &c->base;
    const link_watch watch = {is_over, c->by_host};
    pt_error why = {0};
    int failed = base->rank ? 0 : c->links->make_id(id, e);
    if (failed) /* the others wait for the id */
        comm_abort(c->by_host, e);
    if (!failed)
        failed = comm_broadcast(c->by_host, 0, id, sizeof id, e);
    if (failed)
        return failed;
    failed = c->links->open(d, id, base->rank, base->ranks, watch, &c->link, e);
    return failed && comm_over(c->by_host, &why) ? pt_fail(e, why.code, "%s", why.text) : failed;
}

int comm_linked_open(comm *by_host, device *d, uint64_t gpu, comm **out, char why[LINKED_WHY_BYTES], pt_error *e)
{
    const link_table *links = device_links(d);
    const offer own = own_offer(by_host, links, gpu);
    *out = NULL;
    offer *all = calloc((size_t)by_host->ranks, sizeof *all);
    int failed = all ? comm_all_gather(by_host, &own, sizeof own, all, e) : pt_fail(e, PT_FAILED, "out of memory");
    const bool can = !failed && all_can(all, by_host->ranks, why);
    free(all);
    if (!can)
        return failed;
    linked_comm *c = calloc(1, sizeof *c);
    if (!c)
        return pt_fail(e, PT_FAILED, "out of memory");
    *c = (linked_comm){.base = {&linked_table, by_host->rank, by_host->ranks, by_host->machine}, .by_host = by_host, .links = links};
    failed = begin(c, d, e);
    if (failed) {
        free(c);
        return failed;
    }
    *out = &c->base;
    return 0;
}
