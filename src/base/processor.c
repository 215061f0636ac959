/* processor.c - name and caches of the processor.
 *
 * On x86-64 /proc/cpuinfo has the name ("model name"). On ARM64 it has only the numbers of each core's implementer and part, and the C
 * library does not know the caches, which sysfs lists.
 */
#include "base/processor.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH_BYTES = 1200, KINDS = 3 };

/* ---- name ---- */

typedef struct core { unsigned implementer, part; } core;

static const struct known { core core; const char *name; } known[] = {
    {{0x41, 0xd03}, "Cortex-A53"},    {{0x41, 0xd05}, "Cortex-A55"},    {{0x41, 0xd07}, "Cortex-A57"},    {{0x41, 0xd08}, "Cortex-A72"},
    {{0x41, 0xd09}, "Cortex-A73"},    {{0x41, 0xd0a}, "Cortex-A75"},    {{0x41, 0xd0b}, "Cortex-A76"},    {{0x41, 0xd0c}, "Neoverse-N1"},
    {{0x41, 0xd0d}, "Cortex-A77"},    {{0x41, 0xd40}, "Neoverse-V1"},   {{0x41, 0xd41}, "Cortex-A78"},    {{0x41, 0xd42}, "Cortex-A78AE"},
    {{0x41, 0xd44}, "Cortex-X1"},     {{0x41, 0xd46}, "Cortex-A510"},   {{0x41, 0xd47}, "Cortex-A710"},   {{0x41, 0xd48}, "Cortex-X2"},
    {{0x41, 0xd49}, "Neoverse-N2"},   {{0x41, 0xd4b}, "Cortex-A78C"},   {{0x41, 0xd4c}, "Cortex-X1C"},    {{0x41, 0xd4d}, "Cortex-A715"},
    {{0x41, 0xd4e}, "Cortex-X3"},     {{0x41, 0xd4f}, "Neoverse-V2"},   {{0x41, 0xd80}, "Cortex-A520"},   {{0x41, 0xd81}, "Cortex-A720"},
    {{0x41, 0xd82}, "Cortex-X4"},     {{0x41, 0xd83}, "Neoverse-V3AE"}, {{0x41, 0xd84}, "Neoverse-V3"},   {{0x41, 0xd85}, "Cortex-X925"},
    {{0x41, 0xd87}, "Cortex-A725"},   {{0x41, 0xd8e}, "Neoverse-N3"},   {{0x46, 0x001}, "A64FX"},         {{0x48, 0xd01}, "Kunpeng 920"},
    {{0x4e, 0x004}, "NVIDIA Carmel"}, {{0xc0, 0xac3}, "Ampere-1"},      {{0xc0, 0xac4}, "Ampere-1a"},
};

static void core_name(core c, char *out, size_t n)
{
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].core.implementer == c.implementer && known[i].core.part == c.part) {
            snprintf(out, n, "%s", known[i].name);
            return;
        }
    snprintf(out, n, "%s part %#x", c.implementer == 0x61 ? "Apple" : "ARM64 processor", c.part);
}

static bool is_new(const core *kinds, int count, core c)
{
    for (int i = 0; i < count; i++)
        if (kinds[i].implementer == c.implementer && kinds[i].part == c.part)
            return false;
    return true;
}

static void name_of_cores(const core *kinds, int count, char *out, size_t n)
{
    size_t used = 0;
    for (int i = 0; i < count && used < n; i++) {
        char name[40];
        core_name(kinds[i], name, sizeof name);
        used += (size_t)snprintf(out + used, n - used, "%s%s", i ? " + " : "", name);
    }
}

/* The value of a line "key  : value", or NULL. */
static const char *value_of(char *line, const char *key)
{
    const char *colon = strchr(line, ':');
    if (strncmp(line, key, strlen(key)) != 0 || !colon)
        return NULL;
    line[strcspn(line, "\n")] = 0;
    return colon + 1 + strspn(colon + 1, " ");
}

void processor_name(const char *root, char *out, size_t n)
{
    char path[PATH_BYTES], line[512];
    snprintf(path, sizeof path, "%s/proc/cpuinfo", root);
    snprintf(out, n, "unknown processor");
    FILE *f = fopen(path, "re");
    core kinds[KINDS], c = {0, 0};
    int count = 0;
    while (f && fgets(line, sizeof line, f)) {
        const char *value;
        if ((value = value_of(line, "model name"))) {
            snprintf(out, n, "%s", value);
            break;
        }
        if ((value = value_of(line, "CPU implementer")))
            c.implementer = (unsigned)strtoul(value, NULL, 0);
        if (!(value = value_of(line, "CPU part")))
            continue;
        c.part = (unsigned)strtoul(value, NULL, 0);
        if (count < KINDS && is_new(kinds, count, c))
            kinds[count++] = c;
    }
    if (f)
        fclose(f);
    name_of_cores(kinds, count, out, n);
}

/* ---- caches ---- */

/* "level" and "size" of a cache; false: there is no such cache. */
static bool read_cache_file(const char *root, int index, const char *name, char *out, size_t n)
{
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s/sys/devices/system/cpu/cpu0/cache/index%d/%s", root, index, name);
    FILE *f = fopen(path, "re");
    const bool read = f && fgets(out, (int)n, f);
    if (f)
        fclose(f);
    return read;
}

static uint64_t listed_cache_bytes(const char *root)
{
    char text[32];
    uint64_t largest = 0;
    for (int index = 0; read_cache_file(root, index, "size", text, sizeof text); index++) {
        char *unit;
        uint64_t bytes = strtoull(text, &unit, 10);
        bytes <<= *unit == 'K' ? 10 : *unit == 'M' ? 20 : *unit == 'G' ? 30 : 0;
        largest = bytes > largest ? bytes : largest;
    }
    return largest;
}

uint64_t processor_cache_bytes(const char *root)
{
    long bytes = 0;
#ifdef _SC_LEVEL3_CACHE_SIZE
    bytes = *root ? 0 : sysconf(_SC_LEVEL3_CACHE_SIZE);
#endif
    return bytes > 0 ? (uint64_t)bytes : listed_cache_bytes(root);
}
