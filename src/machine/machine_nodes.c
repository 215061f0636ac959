#include "machine/machine_nodes.h"

#include "machine/proc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { NODES = 1024, BITS = 64, BIND = 2 /* MPOL_BIND of linux/mempolicy.h */, MODE_BITS = 0xff /* other bits are flags */ };
typedef struct node_set { unsigned long long word[NODES / BITS]; } node_set;

static bool has(const node_set *s, int node) { return s->word[node / BITS] >> node % BITS & 1; }

/* "0-1,4" */
static node_set read_list(const char *text)
{
    node_set s = {{0}};
    for (char *end; *text; text = end + (*end == ',')) {
        long first = strtol(text, &end, 10), last = first;
        if (end == text)
            break;
        if (*end == '-')
            last = strtol(end + 1, &end, 10);
        for (long i = first; i >= 0 && i <= last && i < NODES; i++)
            s.word[i / BITS] |= 1ull << i % BITS;
    }
    return s;
}

static bool read_file(const char *root, const char *file, const char *key, node_set *s)
{
    char path[PROC_PATH_BYTES], text[512];
    snprintf(path, sizeof path, "%s%s", root, file);
    bool found = proc_text(path, key, text, sizeof text);
    *s = read_list(found ? text : "");
    return found;
}

static bool is_bound(node_set *s)
{
    int mode;
    *s = (node_set){{0}};
    return !syscall(SYS_get_mempolicy, &mode, s->word, (unsigned long)NODES, NULL, 0ul) && (mode & MODE_BITS) == BIND;
}

static uint64_t node_kib(const char *root, int node, const char *what)
{
    char path[PROC_PATH_BYTES], key[64];
    snprintf(path, sizeof path, "%s/sys/devices/system/node/node%d/meminfo", root, node);
    snprintf(key, sizeof key, "Node %d %s", node, what);
    return proc_number(path, key, 0) * 1024;
}

/* Adds a node to the sums and, as "4" or as the end of "0-4", to the list. */
static void add_node(const char *root, int node, bool follows, node_memory *out)
{
    size_t used = strlen(out->nodes);
    if (follows) {
        char *last = strrchr(out->nodes, '-'), *comma = strrchr(out->nodes, ',');
        used = last && last > comma ? (size_t)(last - out->nodes) : used;
    }
    snprintf(out->nodes + used, sizeof out->nodes - used, "%s%d", follows ? "-" : used ? "," : "", node);
    out->bytes += node_kib(root, node, "MemTotal");
    out->free_bytes += node_kib(root, node, "MemFree") + node_kib(root, node, "Active(file)") + node_kib(root, node, "Inactive(file)");
}

bool machine_nodes_at(const char *root, node_memory *out)
{
    node_set there, allowed, bound, processors;
    bool all = true, binds = is_bound(&bound);
    int before = -2;
    *out = (node_memory){.nodes = ""};
    if (!read_file(root, "/sys/devices/system/node/has_memory", NULL, &there) ||
        !read_file(root, "/proc/self/status", "Mems_allowed_list", &allowed))
        return false;
    if (!read_file(root, "/sys/devices/system/node/has_cpu", NULL, &processors))
        processors = there;
    for (int node = 0; node < NODES; node++) {
        const bool taken = has(&allowed, node) && has(&processors, node) && (!binds || has(&bound, node));
        if (!has(&there, node))
            continue;
        all = all && taken;
        if (taken) {
            add_node(root, node, before == node - 1, out);
            before = node;
        }
    }
    return !all && out->bytes;
}
