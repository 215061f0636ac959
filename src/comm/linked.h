/* linked.h - exchanges between the GPUs of ranks by themselves (device/link.h), and through the host of what does not lie on them.
 *
 * The ranks agree on it: it is used where each of them can load the library, in the same version, and no two have the same GPU. The id by
 * which NCCL's communicators find each other goes by the ranks' own transport, which knows its run.
 *
 * Of the moves of one exchange either all are of device memory on both sides, on every rank, and then go by the link; or none of the
 * exchange does. Both sides of a pair cut alike what goes from one to the other.
 */
#ifndef PT_LINKED_H
#define PT_LINKED_H

#include "comm/comm.h"
#include "device/link.h"

enum { LINKED_WHY_BYTES = 400 };

/* gpu: the same number on all ranks of a GPU. by_host: of the same ranks, for memory of either kind (staged.h); it and the device stay the
 * caller's, and outlive it. *out NULL, 0 returned: it is not to be used, and `why` says so. Else `why` names the library. */
int comm_linked_open(comm *by_host, device *d, uint64_t gpu, comm **out, char why[LINKED_WHY_BYTES], pt_error *e);

#endif
