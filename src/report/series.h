/* series.h - a curve of any length in bounded memory: at most SERIES_BUCKETS buckets of equally many neighbouring points, each with their
 * smallest value, largest value and mean. When all buckets are full, neighbours are merged in pairs. No peak is lost. */
#ifndef PT_SERIES_H
#define PT_SERIES_H

#include <stdint.h>

enum { SERIES_BUCKETS = 400 };

typedef struct series_bucket {
    int64_t first, last; /* steps */
    double low, high, mean;
    int64_t n;           /* points */
} series_bucket;

typedef struct series {
    series_bucket buckets[SERIES_BUCKETS];
    int used;
    int64_t width;       /* points in a full bucket; 0: no points yet */
} series;

/* Steps ascend; |y| is at most 1e100. */
void series_add(series *c, int64_t step, double y);

/* The newest values of a sequence, for their median. */
enum { RECENT_VALUES = 4096 };
typedef struct recent {
    double values[RECENT_VALUES];
    uint64_t n; /* number of values added, including those no longer kept */
} recent;

void recent_add(recent *r, double x);
double recent_median(const recent *r); /* NAN: there are none */

#endif
