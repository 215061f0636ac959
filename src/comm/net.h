/* net.h - TCP connections. No function waits longer than it is told. All descriptors are non-blocking. Times are of clock_s(). */
#ifndef PT_NET_H
#define PT_NET_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>

/* Listens at a numeric address, or at every address of this machine (NULL). port 0: any free port. Returns -1 and sets errno on failure. */
int net_listen(const char *address, int port);
int net_port(int fd);
/* Is it an address that this machine alone reaches: 127.*, ::1? */
bool net_is_loopback(const char *address);
/* The next connection; -1: there is none now. address: of the other side, "" if it is this machine. */
int net_accept(int listener, char *address, size_t room);
/* Returns NULL if *fd is connected, else the reason why not. */
const char *net_connect(const char *address, int port, double until_s, int *fd);
/* The addresses at which others may reach this machine, separated by commas: those of its interfaces, and its name. */
void net_own_addresses(char *out, size_t room);
bool net_is_closed(int fd); /* by the other side, and nothing is left to read */
/* Returns whether one of the events occurs in time. */
bool net_wait(int fd, short events, double until_s);
bool net_send_all(int fd, const void *data, size_t bytes, double until_s);
bool net_receive_all(int fd, void *data, size_t bytes, double until_s);

#endif
