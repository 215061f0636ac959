/* chart.h - curves as SVG, for a page without scripts. Colours come from the page: classes "series0" .. and variables (page.c). */
#ifndef PT_CHART_H
#define PT_CHART_H

#include "report/series.h"

#include <stdbool.h>
#include <stdio.h>

typedef char *(*chart_format)(char buf[32], double value);

typedef struct chart_series {
    const char *name;
    const series *points;
    bool dots;         /* few points: mark each */
    int64_t best;      /* the step of the point to mark as the best; 0: none */
} chart_series;

enum { CHART_SERIES = 2 };
typedef struct chart {
    const char *title;
    chart_format format;
    bool from_zero;
    bool logarithmic;  /* if all values are positive */
    double most;       /* end of the axis, larger values are clipped; 0: the largest value */
    chart_series series[CHART_SERIES];
} chart;

/* Draws the mean of every bucket of a series as a line, and its range as a band. Draws nothing if the first series has no points. */
void chart_write(FILE *out, const chart *c);

/* Escapes text between tags and in attributes. */
void html_text(FILE *out, const char *text);

#endif
