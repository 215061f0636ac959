#include "profile/machine.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t min_u64(uint64_t a, uint64_t b) { return a < b ? a : b; }

/* The number behind `key` in a file of "key: value" or "key value" lines; key NULL: the file's first word. */
static uint64_t read_number(const char *path, const char *key, uint64_t absent)
{
    FILE *f = fopen(path, "re");
    char line[512];
    uint64_t value = absent;
    while (f && fgets(line, sizeof line, f)) {
        const char *at = line;
        if (key && strncmp(line, key, strlen(key)) != 0)
            continue;
        if (key)
            at += strlen(key) + strspn(line + strlen(key), ": \t");
        char *end;
        errno = 0;
        unsigned long long n = strtoull(at, &end, 10);
        if (end != at && !errno)
            value = n; /* "max" leaves `absent` */
        break;
    }
    if (f)
        fclose(f);
    return value;
}

static void read_processor(char *out, size_t n)
{
    FILE *f = fopen("/proc/cpuinfo", "re");
    char line[512];
    snprintf(out, n, "unknown processor");
    while (f && fgets(line, sizeof line, f)) {
        const char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || !colon)
            continue;
        snprintf(out, n, "%s", colon + 2);
        out[strcspn(out, "\n")] = 0;
        break;
    }
    if (f)
        fclose(f);
}

/* Limit and use of one cgroup folder. Reclaimable page cache does not count as use. */
static void apply_cgroup(machine *m, const char *folder, const char *limit_name, const char *use_name, const char *cache_key)
{
    char path[1200];
    snprintf(path, sizeof path, "%s/%s", folder, limit_name);
    uint64_t limit = read_number(path, NULL, UINT64_MAX);
    if (limit >= m->memory_bytes)
        return;
    snprintf(path, sizeof path, "%s/%s", folder, use_name);
    uint64_t used = read_number(path, NULL, 0);
    snprintf(path, sizeof path, "%s/memory.stat", folder);
    uint64_t cache = read_number(path, cache_key, 0);
    used -= min_u64(used, cache);
    m->memory_bytes = limit;
    m->memory_free_bytes = min_u64(m->memory_free_bytes, limit - min_u64(limit, used));
}

/* A folder and all above it: every one of them can limit. */
static void apply_cgroup_tree(machine *m, const char *root, const char *group, const char *limit_name, const char *use_name,
                              const char *cache_key)
{
    char path[1024];
    snprintf(path, sizeof path, "%s%s", root, group);
    while (strlen(path) >= strlen(root)) {
        apply_cgroup(m, path, limit_name, use_name, cache_key);
        char *slash = strrchr(path, '/');
        if (!slash)
            break;
        *slash = 0;
    }
}

static void apply_cgroups(machine *m)
{
    FILE *f = fopen("/proc/self/cgroup", "re");
    char line[1024];
    while (f && fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = 0;
        char *group = strchr(line, ':');
        char *path = group ? strchr(group + 1, ':') : NULL;
        if (!path)
            continue;
        *path++ = 0;
        if (strcmp(group, ":") == 0)
            apply_cgroup_tree(m, "/sys/fs/cgroup", path, "memory.max", "memory.current", "inactive_file");
        else if (strstr(group, "memory"))
            apply_cgroup_tree(m, "/sys/fs/cgroup/memory", path, "memory.limit_in_bytes", "memory.usage_in_bytes",
                              "total_inactive_file");
    }
    if (f)
        fclose(f);
}

int machine_probe(machine *m, pt_error *e)
{
    memset(m, 0, sizeof *m);
    cpu_set_t set;
    m->cores = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    read_processor(m->processor, sizeof m->processor);
    m->memory_bytes = read_number("/proc/meminfo", "MemTotal", 0) * 1024;
    m->memory_free_bytes = read_number("/proc/meminfo", "MemAvailable", 0) * 1024;
    if (!m->memory_bytes)
        return pt_fail(e, PT_FAILED, "/proc/meminfo does not say how much memory there is: give --device-memory");
    apply_cgroups(m);
    return 0;
}

uint64_t machine_memory_margin(const machine *m)
{
    uint64_t share = m->memory_bytes / 20, least = 512ull << 20;
    return share > least ? share : least;
}
