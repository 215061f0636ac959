/* machine_nodes.h - the memory nodes (NUMA) from which a process may take memory. */
#ifndef PT_MACHINE_NODES_H
#define PT_MACHINE_NODES_H

#include <stdbool.h>
#include <stdint.h>

typedef struct node_memory {
    char nodes[64];              /* their numbers, as "0-1,4" */
    uint64_t bytes, free_bytes;  /* of these nodes; pages of files that are in use by nobody count as free */
} node_memory;

/* false: all of the machine's nodes may be taken from, or it does not say. A node is left out by a cpuset, or by a policy that
 * binds (numactl -m): where the others are full the kernel ends a process rather than give it memory of such a node. */
bool machine_nodes_at(const char *root, node_memory *out);

#endif
