#include "base/units.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

static const struct { const char *name; uint64_t bytes; } size_units[] = {
    {"", 1}, {"B", 1},
    {"K", 1ull << 10}, {"KiB", 1ull << 10}, {"kB", 1000ull},
    {"M", 1ull << 20}, {"MiB", 1ull << 20}, {"MB", 1000000ull},
    {"G", 1ull << 30}, {"GiB", 1ull << 30}, {"GB", 1000000000ull},
    {"T", 1ull << 40}, {"TiB", 1ull << 40}, {"TB", 1000000000000ull},
};

static uint64_t size_unit(const char *name)
{
    for (size_t i = 0; i < sizeof size_units / sizeof size_units[0]; i++)
        if (!strcasecmp(name, size_units[i].name))
            return size_units[i].bytes;
    return 0;
}

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

static int size_not_one(const char *text, pt_error *e)
{
    return pt_fail(e, PT_USAGE, "'%.60s' is not a size: write a number of bytes, or a number with a unit, such as 512MiB, 1.5GiB or 6GB",
                   text);
}

int size_parse(const char *text, uint64_t *bytes, pt_error *e)
{
    const char *p = text;
    uint64_t whole = 0, fraction = 0, scale = 1;
    bool digits = false, overflow = false;
    for (; is_digit(*p); p++, digits = true)
        overflow |= __builtin_mul_overflow(whole, 10u, &whole) ||
                    __builtin_add_overflow(whole, (uint64_t)(*p - '0'), &whole);
    bool point = *p == '.';
    if (point)
        for (p++; is_digit(*p); p++, digits = true)
            if (scale < 1000000000000000000u) { /* 18 digits are below one byte of a TiB */
                fraction = fraction * 10 + (uint64_t)(*p - '0');
                scale *= 10;
            }
    if (!digits)
        return size_not_one(text, e);
    if (*p == ' ')
        p++;
    uint64_t unit = size_unit(p);
    if (!unit || (*p == 0 && p > text && p[-1] == ' '))
        return size_not_one(text, e);
    if (point && unit == 1 && fraction)
        return pt_fail(e, PT_USAGE, "'%.60s' is not a whole number of bytes: add a unit, such as GiB", text);
    uint64_t total, part = (uint64_t)((unsigned __int128)fraction * unit / scale);
    overflow |= __builtin_mul_overflow(whole, unit, &total) || __builtin_add_overflow(total, part, &total);
    if (overflow || total > INT64_MAX)
        return pt_fail(e, PT_USAGE, "'%.60s' is more than 2^63 - 1 bytes: write a smaller size", text);
    *bytes = total;
    return 0;
}

uint64_t size_granule(uint64_t bytes)
{
    uint64_t granule = 1;
    while (granule <= bytes / 128)
        granule *= 2;
    return granule;
}

uint64_t size_round_up(uint64_t bytes)
{
    const uint64_t granule = size_granule(bytes), more = (granule - bytes % granule) % granule;
    return bytes > UINT64_MAX - more ? bytes : bytes + more;
}

uint64_t size_round_down(uint64_t bytes) { return bytes - bytes % size_granule(bytes); }

/* Uses the largest unit in which the size is at least 1 and a multiple of a sixteenth, so that sizes from 8 MiB on are not in KiB, and
 * those from 8 GiB on not in MiB. */
char *size_option(char buf[32], uint64_t bytes)
{
    static const char *const names[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    const uint64_t size = size_round_up(bytes);
    int unit = 4;
    while (unit && (size < 1ull << 10 * unit || size % (1ull << (10 * unit - 4))))
        unit--;
    snprintf(buf, 32, "%.10g%s", (double)size / (double)(1ull << 10 * unit), names[unit]);
    return buf;
}

char *size_format(char buf[32], uint64_t bytes)
{
    static const char *const names[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    if (bytes < 1024) {
        snprintf(buf, 32, "%u B", (unsigned)bytes);
        return buf;
    }
    double value = (double)bytes / 1024;
    int unit = 0;
    for (; value >= 1023.995 && unit < 5; unit++)
        value /= 1024;
    snprintf(buf, 32, "%.2f %s", value, names[unit]);
    return buf;
}

char *seconds_format(char buf[32], double seconds)
{
    if (!(seconds >= 0) || isinf(seconds)) {
        snprintf(buf, 32, "?");
    } else if (seconds < 0.9995e-3) {
        snprintf(buf, 32, "%.0f us", seconds * 1e6);
    } else if (seconds < 0.99995) {
        snprintf(buf, 32, "%.1f ms", seconds * 1e3);
    } else if (seconds < 59.995) {
        snprintf(buf, 32, "%.2f s", seconds);
    } else if (seconds < 3599.5) {
        unsigned s = (unsigned)(seconds + 0.5);
        snprintf(buf, 32, "%um%02us", s / 60, s % 60);
    } else if (seconds < 86370) {
        unsigned minutes = (unsigned)(seconds / 60 + 0.5);
        snprintf(buf, 32, "%uh%02um", minutes / 60, minutes % 60);
    } else {
        double hours = floor(seconds / 3600 + 0.5), days = floor(hours / 24);
        snprintf(buf, 32, "%.0fd%02.0fh", days, hours - 24 * days);
    }
    return buf;
}

char *count_format(char buf[32], uint64_t count)
{
    static const char *const names[] = {"K", "M", "B", "T"};
    if (count < 1000) {
        snprintf(buf, 32, "%u", (unsigned)count);
        return buf;
    }
    double value = (double)count / 1000;
    int unit = 0;
    for (; value >= 999.95 && unit < 3; unit++)
        value /= 1000;
    snprintf(buf, 32, "%.1f%s", value, names[unit]);
    return buf;
}

const char *plural(uint64_t n) { return n == 1 ? "" : "s"; }

const char *slash_after(const char *folder)
{
    const size_t n = strlen(folder);
    return !n || folder[n - 1] == '/' ? "" : "/";
}

int pt_size_parse(const char *text, uint64_t *bytes, pt_error *e)
{
    if (!text)
        return pt_fail_null(e, "pt_size_parse", "the text");
    return bytes ? size_parse(text, bytes, e) : pt_fail_null(e, "pt_size_parse", "the number of bytes");
}

char *pt_size_text(char buf[32], uint64_t bytes) { return buf ? size_format(buf, bytes) : NULL; }
char *pt_seconds_text(char buf[32], double seconds) { return buf ? seconds_format(buf, seconds) : NULL; }
char *pt_count_text(char buf[32], uint64_t count) { return buf ? count_format(buf, count) : NULL; }
