/* staged.h - exchanges of memory that only a device can reach, by a transport that takes host memory: the path between GPUs that do not
 * see each other.
 *
 *     device   [ sums ]  ..from queue..>  [ slot of each peer ]  ==transport==>  [ slot of each peer ]  ..to queue..>  [ sums ]
 *                                           two of them, in turn                   two of them, in turn
 *
 * What goes to a peer is cut into rounds of a slot. While the transport moves one round, the next is copied from the device and the one
 * before to it. Memory of the host goes straight, in the same rounds, so that both sides of a pair cut alike whatever memory they have.
 *
 * The slots are host memory of a fixed size, taken when it is opened. Each rank has as many peers, so that its slots are as large as
 * theirs.
 */
#ifndef PT_STAGED_H
#define PT_STAGED_H

#include "comm/comm.h"
#include "device/device.h"

enum { STAGED_BYTES = 32 << 20 };

/* `bytes` of host memory (STAGED_BYTES; tests take less). `inner` and the device stay the caller's, and outlive it; nobody else
 * exchanges by `inner` meanwhile. All ranks give the same number of bytes. */
int comm_staged_open(comm *inner, device *d, size_t bytes, comm **out, pt_error *e);

#endif
