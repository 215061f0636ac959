/* machine_nodes.h - the memory nodes (NUMA) from which a process may take memory. */
#ifndef PT_MACHINE_NODES_H
#define PT_MACHINE_NODES_H

#include <stdbool.h>
#include <stdint.h>

typedef struct node_memory {
    char nodes[64];              /* their numbers, as "0-1,4" */
    uint64_t bytes, free_bytes;  /* of these nodes; pages of unused files count as free */
} node_memory;

/* false: all nodes of the machine count, or it does not say. A cpuset or a binding policy (numactl -m) excludes nodes; if the
 * remaining ones are full, the kernel kills a process instead of giving it memory of another node. Nodes without processors do not count:
 * they are a GPU's own memory (GH200) or slower than RAM (CXL). */
bool machine_nodes_at(const char *root, node_memory *out);

#endif
