/* staged.h - exchanges of device memory through host memory and any transport: the path between GPUs that cannot reach each other.
 *
 *     device   [ sums ]  ..from queue..>  [ slot of each peer ]  ==transport==>  [ slot of each peer ]  ..to queue..>  [ sums ]
 *                                           two of them, in turn                   two of them, in turn
 *
 * The bytes for a peer are cut into rounds of one slot. While the transport moves one round, the next is copied from the device and the
 * previous one to it. Host memory is moved directly, in the same rounds, so that both sides of a pair cut alike whatever memory they have.
 *
 * The slots are host memory of a fixed size, allocated at open. All ranks have the same number of peers, so that all slots are equally
 * large.
 */
#ifndef PT_STAGED_H
#define PT_STAGED_H

#include "comm/comm.h"
#include "device/device.h"

enum { STAGED_BYTES = 32 << 20 };

/* bytes: of all slots, the same on all ranks (STAGED_BYTES; tests take less). `inner` and the device stay the caller's and must outlive the
 * comm; nobody else uses `inner` during an exchange. */
int comm_staged_open(comm *inner, device *d, size_t bytes, comm **out, pt_error *e);

#endif
