/* net.h - TCP connections, none of which waits longer than it is told. All descriptors are non-blocking. Times are of clock_s(). */
#ifndef PT_NET_H
#define PT_NET_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>

/* On every address of this machine. port 0: any. -1 and errno: it cannot. */
int net_listen(int port);
int net_port(int fd);
/* The next who connects, -1: nobody does now. address: where from, "" from this machine itself. */
int net_accept(int listener, char *address, size_t room);
/* NULL: *fd is connected; else why not, in some words. */
const char *net_connect(const char *address, int port, double until_s, int *fd);
/* By which others may reach this machine, with commas between them: its interfaces' addresses, and its name. */
void net_own_addresses(char *out, size_t room);
/* Whether something can be done by then. */
bool net_wait(int fd, short events, double until_s);
bool net_send_all(int fd, const void *data, size_t bytes, double until_s);
bool net_receive_all(int fd, void *data, size_t bytes, double until_s);

#endif
