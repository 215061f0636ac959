/* root.h - made-up files of /proc and /sys under the scratch folder, which machine_probe_at reads. Include after io/scratch.h. */
#ifndef PT_TEST_ROOT_H
#define PT_TEST_ROOT_H

#include "machine/machine.h"

#include <stdarg.h>

static inline uint64_t mib(uint64_t n) { return n << 20; }

static inline void put(const char *path, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static inline void put(const char *path, const char *fmt, ...)
{
    char full[512], text[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    snprintf(full, sizeof full, "%s%s", scratch, path);
    char *slash = strrchr(full, '/');
    *slash = 0;
    assert_int_equal(dir_make(full, NULL), 0);
    *slash = '/';
    FILE *f = fopen(full, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

/* total and available in MiB */
static inline void put_machine(uint64_t total, uint64_t available)
{
    put("/proc/cpuinfo", "processor\t: 0\nmodel name\t: Some Processor 9000\n");
    put("/proc/meminfo", "MemTotal: %llu kB\nMemFree: 1 kB\nMemAvailable: %llu kB\n", (unsigned long long)total * 1024,
        (unsigned long long)available * 1024);
    put("/proc/self/status", "VmSize:\t1024 kB\nVmData:\t512 kB\n");
}

static inline machine probe(void)
{
    machine m;
    pt_error e = {0};
    if (machine_probe_at(scratch, &m, &e))
        fail_msg("%s", e.text);
    return m;
}

#endif
