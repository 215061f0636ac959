#include "comm/guests.h"

#include "base/clock.h"
#include "comm/net.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

static guest *oldest(guests *g)
{
    guest *first = &g->of[0];
    for (int i = 1; i < g->n; i++)
        if (g->of[i].until_s < first->until_s)
            first = &g->of[i];
    return first;
}

/* At most so many at once that those who were here before have been heard. */
static void accept_some(guests *g)
{
    for (int i = 0; i < GUESTS / 2; i++) {
        guest x = {.until_s = clock_s() + GUEST_S};
        x.fd = net_accept(g->listener, x.address, sizeof x.address);
        if (x.fd < 0)
            return;
        if (g->n < GUESTS) {
            g->of[g->n++] = x;
        } else {
            guest *old = oldest(g);
            close(old->fd);
            *old = x;
        }
    }
}

void guests_wait(guests *g, double until_s)
{
    enum { MOMENT_MS = 200 };
    struct pollfd p[GUESTS + 1] = {{g->listener, POLLIN, 0}};
    for (int i = 0; i < g->n; i++)
        p[i + 1] = (struct pollfd){g->of[i].fd, POLLIN, 0};
    poll(p, (nfds_t)g->n + 1, (int)fmax(0, fmin(MOMENT_MS, 1e3 * (until_s - clock_s()))));
    accept_some(g);
}

typedef enum heard { HEARD_PART, HEARD_ALL, HEARD_GONE } heard;

static heard hear(guest *x)
{
    const ssize_t n = recv(x->fd, (char *)&x->h + x->n, sizeof x->h - x->n, 0);
    if (n > 0)
        x->n += (size_t)n;
    if (x->n == sizeof x->h)
        return hello_is_whole(&x->h) ? HEARD_ALL : HEARD_GONE;
    return !n || (n < 0 && errno != EAGAIN && errno != EINTR) || clock_s() > x->until_s ? HEARD_GONE : HEARD_PART;
}

bool guests_next(guests *g, guest *out)
{
    for (int i = g->n - 1; i >= 0; i--) {
        const heard what = hear(&g->of[i]);
        if (what == HEARD_PART)
            continue;
        *out = g->of[i];
        g->of[i] = g->of[--g->n];
        if (what == HEARD_ALL)
            return true;
        close(out->fd);
    }
    return false;
}

void guests_close(guests *g)
{
    for (int i = 0; i < g->n; i++)
        close(g->of[i].fd);
    g->n = 0;
}
