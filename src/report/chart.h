/* chart.h - curves as SVG, for a page without scripts. Colours are the page's: classes "series0" .. and its variables (page.c). */
#ifndef PT_CHART_H
#define PT_CHART_H

#include "report/series.h"

#include <stdbool.h>
#include <stdio.h>

typedef char *(*chart_format)(char buf[32], double value);

typedef struct chart_series {
    const char *name;
    const series *points;
    bool dots;         /* points are few and far between: mark each */
} chart_series;

enum { CHART_SERIES = 2 };
typedef struct chart {
    const char *title;
    chart_format format;
    bool from_zero;
    bool logarithmic;  /* where all values are above zero */
    double most;       /* the axis ends there, what is above is cut; 0: at the largest value */
    chart_series series[CHART_SERIES];
} chart;

/* Of each series the mean of every bucket as a line, and from smallest to largest as a band. Nothing where the first has no points. */
void chart_write(FILE *out, const chart *c);

/* Text between tags and in attributes. */
void html_text(FILE *out, const char *text);

#endif
