#include "profile/machine.h"

#include "base/cores.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum { PATH_BYTES = 1200 };

static uint64_t min_u64(uint64_t a, uint64_t b) { return a < b ? a : b; }

/* The number behind `key` in a file of "key: value" or "key value" lines; key NULL: the file's first word. */
static uint64_t read_number(const char *path, const char *key, uint64_t absent)
{
    FILE *f = fopen(path, "re");
    char line[512];
    uint64_t value = absent;
    while (f && fgets(line, sizeof line, f)) {
        const char *at = line;
        size_t n = key ? strlen(key) : 0;
        if (key && (strncmp(line, key, n) != 0 || !strchr(": \t", line[n])))
            continue;
        at += n + (key ? strspn(line + n, ": \t") : 0);
        char *end;
        errno = 0;
        unsigned long long number = strtoull(at, &end, 10);
        if (end != at && !errno)
            value = number; /* "max" leaves `absent` */
        break;
    }
    if (f)
        fclose(f);
    return value;
}

static uint64_t read_kib(const char *root, const char *file, const char *key)
{
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s%s", root, file);
    return read_number(path, key, 0) * 1024;
}

static void read_processor(const char *root, char *out, size_t n)
{
    char path[PATH_BYTES], line[512];
    snprintf(path, sizeof path, "%s/proc/cpuinfo", root);
    FILE *f = fopen(path, "re");
    snprintf(out, n, "unknown processor");
    while (f && fgets(line, sizeof line, f)) {
        const char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || !colon)
            continue;
        snprintf(out, n, "%s", colon + 1 + strspn(colon + 1, " "));
        out[strcspn(out, "\n")] = 0;
        break;
    }
    if (f)
        fclose(f);
}

/* ---- control groups ---- */

/* The names of version 2, and of version 1, where memory and processors have hierarchies of their own; "" and NULL: not there.
 * Above `high` the kernel slows a group's processes down. The quota's period is the second number of its file, or in one of its own. */
typedef struct group_files { const char *root, *limit, *high, *use, *cache[2], *quota, *period; } group_files;
static const group_files version2 = {"/sys/fs/cgroup", "memory.max", "memory.high", "memory.current", {"inactive_file", "active_file"},
                                     "cpu.max", NULL};
static const group_files version1 = {"/sys/fs/cgroup/memory", "memory.limit_in_bytes", "", "memory.usage_in_bytes",
                                     {"total_inactive_file", "total_active_file"}, "", NULL};
static const group_files version1_cpu = {"/sys/fs/cgroup/cpu", "", "", "", {"", ""}, "cpu.cfs_quota_us", "cpu.cfs_period_us"};

/* So many processors' time in each period, rounded up to whole ones. */
static void apply_quota(machine *m, const group_files *g, const char *folder)
{
    char path[PATH_BYTES + 64];
    unsigned long long quota = 0, period = 0;
    snprintf(path, sizeof path, "%s/%s", folder, g->quota);
    FILE *f = *g->quota ? fopen(path, "re") : NULL;
    int n = f ? fscanf(f, "%llu %llu", &quota, &period) : 0; /* "max 100000" has no quota; -1, of version 1, is a large one */
    if (f)
        fclose(f);
    snprintf(path, sizeof path, "%s/%s", folder, g->period ? g->period : "");
    if (g->period)
        period = read_number(path, NULL, 0);
    if (n < 1 || !period)
        return;
    uint64_t cores = quota / period + (quota % period > 0);
    if (cores < (uint64_t)m->cores)
        m->cores = cores > 1 ? (int)cores : 1;
}

/* Limit and use of one group's folder. Reclaimable page cache does not count as use. */
static void apply_memory(machine *m, const group_files *g, const char *limit_file, const char *folder)
{
    char path[PATH_BYTES + 64];
    if (!*limit_file)
        return;
    snprintf(path, sizeof path, "%s/%s", folder, g->use);
    uint64_t used = read_number(path, NULL, 0);
    snprintf(path, sizeof path, "%s/memory.stat", folder);
    for (int i = 0; i < 2; i++) /* what was read twice is kept longer, and given back all the same */
        used -= min_u64(used, read_number(path, g->cache[i], 0));
    snprintf(path, sizeof path, "%s/%s", folder, limit_file);
    uint64_t limit = read_number(path, NULL, UINT64_MAX);
    uint64_t left = limit - min_u64(limit, used);
    if (limit < m->memory_bytes) {
        m->memory_bytes = limit;
        m->memory_used_bytes = used;
    }
    if (left >= m->memory_free_bytes)
        return;
    m->memory_free_bytes = left;
    snprintf(m->memory_limit, sizeof m->memory_limit, "%.90s", path);
}

static void apply_group(machine *m, const group_files *g, const char *folder)
{
    apply_memory(m, g, g->limit, folder);
    apply_memory(m, g, g->high, folder);
    apply_quota(m, g, folder);
}

/* A group and all above it: every one of them can limit. A container may see its own group as the root. */
static void apply_groups_above(machine *m, const char *root, const group_files *g, const char *group)
{
    char path[PATH_BYTES];
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

/* Whether a list such as "cpu,cpuacct" has this very name. */
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
    char path[PATH_BYTES], line[1024];
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

/* ---- the process's own limits ---- */

static void apply_limit(machine *m, int resource, uint64_t used, const char *name)
{
    struct rlimit r;
    if (getrlimit(resource, &r) || r.rlim_cur == RLIM_INFINITY)
        return;
    uint64_t left = (uint64_t)r.rlim_cur - min_u64((uint64_t)r.rlim_cur, used);
    if (r.rlim_cur < m->memory_bytes) { /* the margin is a share of it */
        m->memory_bytes = r.rlim_cur;
        m->memory_used_bytes = used;
    }
    if (left >= m->memory_free_bytes)
        return;
    m->memory_free_bytes = left;
    snprintf(m->memory_limit, sizeof m->memory_limit, "%s", name);
}

/* ---- all ---- */

int machine_probe_at(const char *root, machine *m, pt_error *e)
{
    memset(m, 0, sizeof *m);
    m->cores = cores_allowed();
    read_processor(root, m->processor, sizeof m->processor);
    m->memory_bytes = read_kib(root, "/proc/meminfo", "MemTotal");
    m->memory_free_bytes = min_u64(m->memory_bytes, read_kib(root, "/proc/meminfo", "MemAvailable"));
    m->memory_used_bytes = m->memory_bytes - m->memory_free_bytes;
    snprintf(m->memory_limit, sizeof m->memory_limit, "RAM");
    if (!m->memory_bytes)
        return pt_fail(e, PT_FAILED, "%s/proc/meminfo does not say how much memory there is: give --device-memory", root);
    apply_groups(m, root);
    apply_limit(m, RLIMIT_AS, read_kib(root, "/proc/self/status", "VmSize"), "ulimit -v");
    apply_limit(m, RLIMIT_DATA, read_kib(root, "/proc/self/status", "VmData"), "ulimit -d");
    return 0;
}

int machine_probe(machine *m, pt_error *e) { return machine_probe_at("", m, e); }

int machine_threads(int asked)
{
    machine m;
    return asked ? asked : machine_probe(&m, NULL) ? 0 : m.cores;
}

uint64_t machine_memory_margin(const machine *m)
{
    uint64_t share = m->memory_bytes / 20, least = 512ull << 20;
    return share > least ? share : least;
}
