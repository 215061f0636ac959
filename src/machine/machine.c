#include "machine/machine.h"

#include "base/cores.h"
#include "base/processor.h"
#include "machine/machine_nodes.h"
#include "machine/proc.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

static uint64_t min_u64(uint64_t a, uint64_t b) { return a < b ? a : b; }

static uint64_t read_kib(const char *root, const char *file, const char *key)
{
    char path[PROC_PATH_BYTES];
    snprintf(path, sizeof path, "%s%s", root, file);
    return proc_number(path, key, 0) * 1024;
}

/* ---- control groups ---- */

/* The file names of version 2, and of version 1, in which memory and processors have hierarchies of their own; "" and NULL: there is none.
 * Above `high` the kernel slows a group's processes down. The period of the quota is the second number of its file, or has its own file. */
typedef struct group_files { const char *root, *limit, *high, *use, *cache[2], *quota, *period; } group_files;
static const group_files version2 = {"/sys/fs/cgroup", "memory.max", "memory.high", "memory.current", {"inactive_file", "active_file"},
                                     "cpu.max", NULL};
static const group_files version1 = {"/sys/fs/cgroup/memory", "memory.limit_in_bytes", "", "memory.usage_in_bytes",
                                     {"total_inactive_file", "total_active_file"}, "", NULL};
static const group_files version1_cpu = {"/sys/fs/cgroup/cpu", "", "", "", {"", ""}, "cpu.cfs_quota_us", "cpu.cfs_period_us"};

/* Number of processors whose time the group gets per period. The number of threads is this rounded up: two threads on 1.5 processors take
 * 0.75 of the time of one, although they stand still for a quarter of it. */
static void apply_quota(machine *m, const group_files *g, const char *folder)
{
    char path[PROC_PATH_BYTES + 64];
    unsigned long long quota = 0, period = 0;
    snprintf(path, sizeof path, "%s/%s", folder, g->quota);
    FILE *f = *g->quota ? fopen(path, "re") : NULL;
    int n = f ? fscanf(f, "%llu %llu", &quota, &period) : 0; /* "max 100000" has no quota; -1, in version 1, becomes a large number */
    if (f)
        fclose(f);
    snprintf(path, sizeof path, "%s/%s", folder, g->period ? g->period : "");
    if (g->period)
        period = proc_number(path, NULL, 0);
    if (n < 1 || !quota || !period)
        return;
    const double processors = (double)quota / (double)period;
    if (processors >= (m->quota > 0 ? m->quota : m->cores))
        return;
    m->quota = processors;
    m->cores = (int)ceil(processors);
}

/* `used` of `limit` bytes are in use. The margin is a share of the lowest limit; free memory is the least of all. */
static void apply_limit(machine *m, uint64_t limit, uint64_t used, const char *name)
{
    uint64_t left = limit - min_u64(limit, used);
    if (limit < m->memory_bytes) {
        m->memory_bytes = limit;
        m->memory_used_bytes = used;
    }
    if (left >= m->memory_free_bytes)
        return;
    m->memory_free_bytes = left;
    snprintf(m->memory_limit, sizeof m->memory_limit, "%.90s", name);
}

/* Limit and use of one group's folder. Reclaimable page cache does not count as use. */
static void apply_memory(machine *m, const group_files *g, const char *limit_file, const char *folder)
{
    char path[PROC_PATH_BYTES + 64];
    if (!*limit_file)
        return;
    snprintf(path, sizeof path, "%s/%s", folder, g->use);
    uint64_t used = proc_number(path, NULL, 0);
    snprintf(path, sizeof path, "%s/memory.stat", folder);
    for (int i = 0; i < 2; i++) /* pages that were read twice are kept longer, but reclaimed, too */
        used -= min_u64(used, proc_number(path, g->cache[i], 0));
    snprintf(path, sizeof path, "%s/%s", folder, limit_file);
    apply_limit(m, proc_number(path, NULL, UINT64_MAX), used, path);
}

static void apply_group(machine *m, const group_files *g, const char *folder)
{
    apply_memory(m, g, g->limit, folder);
    apply_memory(m, g, g->high, folder);
    apply_quota(m, g, folder);
}

/* A group and all its ancestors, because each can limit. A container may see its own group as the root. */
static void apply_groups_above(machine *m, const char *root, const group_files *g, const char *group)
{
    char path[PROC_PATH_BYTES];
    size_t top = (size_t)snprintf(path, sizeof path, "%s%s", root, g->root);
    if (top >= sizeof path)
        return;
    snprintf(path + top, sizeof path - top, "%s", group);
    for (char *slash = path; slash; ) {
        apply_group(m, g, path);
        slash = strlen(path) > top ? strrchr(path, '/') : NULL;
        if (slash)
            *slash = 0;
    }
}

/* Does a list such as "cpu,cpuacct" contain exactly this name? */
static bool has_name(const char *list, const char *name)
{
    for (size_t n; *list; list += n + (list[n] == ',')) {
        n = strcspn(list, ",");
        if (n == strlen(name) && !strncmp(list, name, n))
            return true;
    }
    return false;
}

static void apply_groups(machine *m, const char *root)
{
    char path[PROC_PATH_BYTES], line[1024];
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    FILE *f = fopen(path, "re");
    while (f && fgets(line, sizeof line, f)) { /* "0::/group", or "4:memory:/group" in version 1 */
        line[strcspn(line, "\n")] = 0;
        char *controllers = strchr(line, ':'), *group = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!group)
            continue;
        *group++ = 0;
        if (strcmp(controllers, ":") == 0)
            apply_groups_above(m, root, &version2, group);
        if (has_name(controllers + 1, "memory"))
            apply_groups_above(m, root, &version1, group);
        if (has_name(controllers + 1, "cpu"))
            apply_groups_above(m, root, &version1_cpu, group);
    }
    if (f)
        fclose(f);
}

/* ---- other limits ---- */

static void apply_resource(machine *m, int resource, uint64_t used, const char *name)
{
    struct rlimit r;
    if (getrlimit(resource, &r) || r.rlim_cur == RLIM_INFINITY)
        return;
    apply_limit(m, (uint64_t)r.rlim_cur, used, name);
    m->own_limit = m->own_limit || !strcmp(m->memory_limit, name);
}

static void apply_nodes(machine *m, const char *root)
{
    node_memory n;
    char name[96];
    if (!machine_nodes_at(root, &n))
        return;
    snprintf(name, sizeof name, "memory nodes %s", n.nodes);
    apply_limit(m, n.bytes, n.bytes - min_u64(n.bytes, n.free_bytes), name);
}

/* If nothing is overcommitted, mapped memory counts even if it was never touched. */
static void apply_overcommit(machine *m, const char *root)
{
    char path[PROC_PATH_BYTES];
    uint64_t limit = read_kib(root, "/proc/meminfo", "CommitLimit");
    snprintf(path, sizeof path, "%s/proc/sys/vm/overcommit_memory", root);
    if (limit && proc_number(path, NULL, 0) == 2)
        apply_limit(m, limit, read_kib(root, "/proc/meminfo", "Committed_AS"), "vm.overcommit_memory=2");
}

/* ---- all ---- */

int machine_probe_at(const char *root, machine *m, pt_error *e)
{
    memset(m, 0, sizeof *m);
    m->cores = cores_allowed();
    processor_name(root, m->processor, sizeof m->processor);
    m->memory_bytes = read_kib(root, "/proc/meminfo", "MemTotal");
    m->memory_free_bytes = min_u64(m->memory_bytes, read_kib(root, "/proc/meminfo", "MemAvailable"));
    m->memory_used_bytes = m->memory_bytes - m->memory_free_bytes;
    snprintf(m->memory_limit, sizeof m->memory_limit, "RAM");
    if (!m->memory_bytes)
        return pt_fail(e, PT_FAILED, "%s/proc/meminfo does not say how much memory the machine has: give `device_memory`", root);
    apply_groups(m, root);
    apply_nodes(m, root);
    apply_overcommit(m, root);
    apply_resource(m, RLIMIT_AS, read_kib(root, "/proc/self/status", "VmSize"), "ulimit -v");
    apply_resource(m, RLIMIT_DATA, read_kib(root, "/proc/self/status", "VmData"), "ulimit -d");
    return 0;
}

int machine_probe(machine *m, pt_error *e) { return machine_probe_at("", m, e); }

int machine_threads(int asked)
{
    machine m;
    return asked ? asked : machine_probe(&m, NULL) ? 0 : m.cores;
}

double machine_quota(void)
{
    machine m;
    return machine_probe(&m, NULL) ? 0 : m.quota;
}

uint64_t machine_process_peak(void) { return read_kib("", "/proc/self/status", "VmHWM"); }

uint64_t machine_memory_margin(const machine *m)
{
    const uint64_t share = m->memory_bytes / 20, quarter = min_u64(m->memory_bytes / 4, 512 << 20);
    const uint64_t least = m->own_limit ? 128 << 20 : quarter > MACHINE_PROGRAM_BYTES ? quarter : MACHINE_PROGRAM_BYTES;
    return share > least ? share : least;
}
