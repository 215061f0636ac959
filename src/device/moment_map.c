#include "device/moment_map.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { DECADES = 7 };

static int ascending(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return x < y ? -1 : x > y;
}

/* Bound i of n equal parts of 0.1 .. 1, computed from the nearer end. */
static float bound(int i, int n)
{
    const float from = 0.1f, to = 1.0f, part = (to - from) / (float)n;
    return i < (n + 1) / 2 ? fmaf(part, (float)i, from) : fmaf(-part, (float)(n - i), to);
}

static void find_values(moment_map *m, bool is_signed)
{
    static const float scale[DECADES] = {1e-6f, 1e-5f, 1e-4f, 1e-3f, 1e-2f, 1e-1f, 1.0f};
    int n = 0;
    for (int decade = 0; decade < DECADES; decade++) {
        const int parts = (is_signed ? 1 : 2) << decade;
        for (int i = 0; i < parts; i++) {
            const float centre = (bound(i, parts) + bound(i + 1, parts)) / 2.0f;
            m->value[n++] = scale[decade] * centre;
            if (is_signed)
                m->value[n++] = -(scale[decade] * centre);
        }
    }
    m->value[n++] = 0.0f;
    m->value[n++] = 1.0f;
    qsort(m->value, (size_t)n, sizeof *m->value, ascending);
}

static float from_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static void find_starts(moment_map *m)
{
    for (uint32_t i = 0; i < MOMENT_BUCKETS; i++) {
        const uint32_t bucket = MOMENT_BUCKET_LEAST + i;
        const float lowest = i ? from_bits(bucket << 16) : 0.0f, largest = i + 1 < MOMENT_BUCKETS ? from_bits(bucket << 16 | 0xffff) : 1.0f;
        m->start[0][i] = (uint8_t)moment_nearest(m->middle, lowest);
        m->start[1][i] = (uint8_t)moment_nearest(m->middle, -largest);
    }
}

static moment_map maps[2];

static void make(void)
{
    for (int is_signed = 0; is_signed < 2; is_signed++) {
        moment_map *m = &maps[is_signed];
        find_values(m, is_signed);
        for (int i = 0; i < MOMENT_CODES; i++)
            m->middle[i] = i + 1 < MOMENT_CODES ? (m->value[i] + m->value[i + 1]) * 0.5f : INFINITY;
        find_starts(m);
    }
}

const moment_map *moment_map_get(bool is_signed)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make);
    return &maps[is_signed];
}
