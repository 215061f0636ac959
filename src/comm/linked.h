/* linked.h - exchanges between the ranks' GPUs by NCCL (device/link.h), and through the host for memory that is not on a GPU.
 *
 * The ranks agree whether to use it: each of them must be able to load the same version of the library, and no two may share a GPU. The id
 * by which NCCL's communicators find each other is sent by the ranks' own transport, so that no other run can use it.
 *
 * If all moves of an exchange are between device memory, on every rank, NCCL runs the exchange; else `by_host` runs all of it. Both sides
 * of a pair must cut the bytes alike.
 */
#ifndef PT_LINKED_H
#define PT_LINKED_H

#include "comm/comm.h"
#include "device/link.h"

enum { LINKED_WHY_BYTES = 400 };

/* gpu: identifies the GPU, also across processes. by_host: a comm of the same ranks for memory of both kinds (staged.h); it and the device
 * stay the caller's and must outlive the comm. If 0 is returned and *out is NULL, NCCL cannot be used, and `why` has the reason; else `why`
 * names the library. */
int comm_linked_open(comm *by_host, device *d, uint64_t gpu, comm **out, char why[LINKED_WHY_BYTES], pt_error *e);

#endif
