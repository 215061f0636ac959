#include "comm/net.h"

#include "base/clock.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <math.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BACKLOG = 256 };

static int bind_and_listen(int fd, const void *address, socklen_t bytes)
{
    const int yes = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (!bind(fd, address, bytes) && !listen(fd, BACKLOG))
        return fd;
    const int why = errno;
    close(fd);
    errno = why;
    return -1;
}

/* The same address in both forms; of IPv6 only in its own. */
static bool read_address(const char *text, struct in6_addr *six, struct in_addr *four)
{
    if (inet_pton(AF_INET, text, four) != 1)
        return inet_pton(AF_INET6, text, six) == 1;
    *six = (struct in6_addr){.s6_addr = {[10] = 0xff, [11] = 0xff}};
    memcpy(&six->s6_addr[12], four, sizeof *four);
    return true;
}

int net_listen(const char *address, int port)
{
    struct sockaddr_in6 both = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_ANY_INIT, .sin6_port = htons((uint16_t)port)};
    struct sockaddr_in old = {.sin_family = AF_INET, .sin_addr.s_addr = INADDR_ANY, .sin_port = htons((uint16_t)port)};
    const int no = 0;
    if (address && !read_address(address, &both.sin6_addr, &old.sin_addr)) {
        errno = EADDRNOTAVAIL;
        return -1;
    }
    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0 && !setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no) && (fd = bind_and_listen(fd, &both, sizeof both)) >= 0)
        return fd;
    if (errno == EADDRINUSE || errno == EACCES)
        return -1;
    fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    return fd < 0 ? -1 : bind_and_listen(fd, &old, sizeof old);
}

bool net_is_loopback(const char *address)
{
    struct in6_addr six;
    struct in_addr four;
    return read_address(address, &six, &four) && (IN6_IS_ADDR_LOOPBACK(&six) || (IN6_IS_ADDR_V4MAPPED(&six) && six.s6_addr[12] == 127));
}

int net_port(int fd)
{
    struct sockaddr_storage a;
    socklen_t n = sizeof a;
    if (getsockname(fd, (struct sockaddr *)&a, &n))
        return 0;
    return ntohs(a.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&a)->sin6_port : ((struct sockaddr_in *)&a)->sin_port);
}

/* Messages are small or large, and the other side always waits for them: they are sent without delay. */
static void make_prompt(int fd)
{
    const int yes = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof yes);
}

static void write_address(const struct sockaddr_storage *a, socklen_t bytes, char *out, size_t room)
{
    static const char mapped[] = "::ffff:";
    char text[NI_MAXHOST];
    out[0] = 0;
    if (getnameinfo((const struct sockaddr *)a, bytes, text, sizeof text, NULL, 0, NI_NUMERICHOST))
        return;
    const char *from = strncmp(text, mapped, sizeof mapped - 1) ? text : text + sizeof mapped - 1;
    if (strncmp(from, "127.", 4) && strcmp(from, "::1"))
        snprintf(out, room, "%s", from);
}

int net_accept(int listener, char *address, size_t room)
{
    struct sockaddr_storage a;
    socklen_t n = sizeof a;
    const int fd = accept4(listener, (struct sockaddr *)&a, &n, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0)
        return -1;
    make_prompt(fd);
    write_address(&a, n, address, room);
    return fd;
}

void net_own_addresses(char *out, size_t room)
{
    struct ifaddrs *all = NULL;
    char address[INET6_ADDRSTRLEN], host[64] = "";
    out[0] = 0;
    if (getifaddrs(&all))
        all = NULL;
    for (const struct ifaddrs *a = all; a; a = a->ifa_next) {
        const bool up = a->ifa_addr && a->ifa_flags & IFF_UP && !(a->ifa_flags & IFF_LOOPBACK);
        const struct sockaddr_in *v4 = up && a->ifa_addr->sa_family == AF_INET ? (const void *)a->ifa_addr : NULL;
        const struct sockaddr_in6 *v6 = up && a->ifa_addr->sa_family == AF_INET6 ? (const void *)a->ifa_addr : NULL;
        if (v6 && IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr))
            continue;
        if ((v4 && inet_ntop(AF_INET, &v4->sin_addr, address, sizeof address)) ||
            (v6 && inet_ntop(AF_INET6, &v6->sin6_addr, address, sizeof address)))
            if (strlen(out) + strlen(address) + 1 < room)
                sprintf(out + strlen(out), "%s%s", out[0] ? "," : "", address);
    }
    if (all)
        freeifaddrs(all);
    if (!gethostname(host, sizeof host - 1) && strlen(out) + strlen(host) + 1 < room)
        sprintf(out + strlen(out), "%s%s", out[0] ? "," : "", host);
}

bool net_is_closed(int fd)
{
    char byte;
    const ssize_t n = recv(fd, &byte, 1, MSG_PEEK);
    return !n || (n < 0 && errno != EAGAIN && errno != EINTR);
}

bool net_wait(int fd, short events, double until_s)
{
    for (;;) {
        const double left = until_s - clock_s();
        struct pollfd p = {fd, events, 0};
        const int n = poll(&p, 1, left <= 0 ? 0 : (int)fmin(ceil(left * 1e3), 60000));
        if (n > 0)
            return true;
        if ((n < 0 && errno != EINTR) || left <= 0)
            return false;
    }
}

static const char *connect_one(const struct addrinfo *a, double until_s, int *out)
{
    int error = 0;
    socklen_t n = sizeof error;
    const int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return strerror(errno);
    if (connect(fd, a->ai_addr, a->ai_addrlen))
        error = errno;
    if (error == EINPROGRESS && !net_wait(fd, POLLOUT, until_s))
        error = ETIMEDOUT;
    else if (error == EINPROGRESS && getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &n))
        error = errno;
    if (error) {
        close(fd);
        return strerror(error);
    }
    make_prompt(fd);
    *out = fd;
    return NULL;
}

const char *net_connect(const char *address, int port, double until_s, int *fd)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *all;
    char service[16];
    const char *why = "it has no address";
    snprintf(service, sizeof service, "%d", port);
    const int unknown = getaddrinfo(address, service, &hints, &all);
    if (unknown)
        return gai_strerror(unknown);
    for (const struct addrinfo *a = all; a && why; a = a->ai_next)
        why = connect_one(a, until_s, fd);
    freeaddrinfo(all);
    return why;
}

bool net_send_all(int fd, const void *data, size_t bytes, double until_s)
{
    for (const char *p = data; bytes;) {
        const ssize_t n = send(fd, p, bytes, MSG_NOSIGNAL);
        if (n < 0 && errno != EAGAIN && errno != EINTR)
            return false;
        if (n < 0 && errno == EAGAIN && !net_wait(fd, POLLOUT, until_s))
            return false;
        p += n > 0 ? n : 0;
        bytes -= n > 0 ? (size_t)n : 0;
    }
    return true;
}

bool net_receive_all(int fd, void *data, size_t bytes, double until_s)
{
    for (char *p = data; bytes;) {
        const ssize_t n = recv(fd, p, bytes, 0);
        if (!n || (n < 0 && errno != EAGAIN && errno != EINTR))
            return false;
        if (n < 0 && errno == EAGAIN && !net_wait(fd, POLLIN, until_s))
            return false;
        p += n > 0 ? n : 0;
        bytes -= n > 0 ? (size_t)n : 0;
    }
    return true;
}
