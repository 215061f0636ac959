#include "report/series.h"

#include "base/median.h"

#include <math.h>
#include <string.h>

static void merge(series_bucket *a, const series_bucket *b)
{
    a->last = b->last;
    a->low = b->low < a->low ? b->low : a->low;
    a->high = b->high > a->high ? b->high : a->high;
    a->n += b->n;
    a->mean += (b->mean - a->mean) * ((double)b->n / (double)a->n);
}

void series_add(series *c, int64_t step, double y)
{
    const series_bucket point = {step, step, y, y, y, 1};
    series_bucket *newest = c->used ? &c->buckets[c->used - 1] : NULL;
    if (newest && newest->n < c->width) {
        merge(newest, &point);
        return;
    }
    if (c->used == SERIES_BUCKETS) {
        c->used /= 2;
        for (int i = 0; i < c->used; i++) {
            c->buckets[i] = c->buckets[2 * i];
            merge(&c->buckets[i], &c->buckets[2 * i + 1]);
        }
        c->width *= 2;
    }
    c->width = c->width ? c->width : 1;
    c->buckets[c->used++] = point;
}

void recent_add(recent *r, double x) { r->values[r->n++ % RECENT_VALUES] = x; }

double recent_median(const recent *r)
{
    double sorted[RECENT_VALUES];
    size_t n = r->n < RECENT_VALUES ? r->n : RECENT_VALUES;
    if (!n)
        return NAN;
    memcpy(sorted, r->values, n * sizeof *sorted);
    return median(sorted, (int)n);
}
