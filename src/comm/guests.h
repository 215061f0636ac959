/* guests.h - connections that have not said yet who they are. All are served at once, so that one that says nothing delays no other. */
#ifndef PT_GUESTS_H
#define PT_GUESTS_H

#include "comm/hello.h"

enum { GUESTS = 2 * COMM_RANKS_MOST + 32, GUEST_S = 3 }; /* how many there may be; what time each has */

typedef struct guest {
    int fd;
    size_t n; /* bytes of the hello that have come */
    hello h;
    char address[HELLO_ADDRESS_BYTES];
    double until_s;
} guest;

typedef struct guests {
    int listener, n;
    guest of[GUESTS];
} guests;

/* Waits a moment, not beyond until_s, for something to come, and accepts connections. Where there are too many, the oldest goes. */
void guests_wait(guests *g, double until_s);
/* Takes out one that has said its hello; false: there is none now. Forgets those that are gone or silent. */
bool guests_next(guests *g, guest *out);
void guests_close(guests *g); /* the listener stays open */

#endif
