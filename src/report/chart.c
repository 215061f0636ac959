#include "report/chart.h"

#include <math.h>

enum { WIDTH = 720, HEIGHT = 250, LEFT = 66, RIGHT = 30, TOP = 10, BOTTOM = 28, TICKS = 6 };

void html_text(FILE *out, const char *text)
{
    for (; *text; text++) {
        switch (*text) {
        case '&': fputs("&amp;", out); break;
        case '<': fputs("&lt;", out); break;
        case '>': fputs("&gt;", out); break;
        case '"': fputs("&quot;", out); break;
        case '\'': fputs("&#39;", out); break;
        default: fputc((unsigned char)*text < ' ' ? ' ' : *text, out);
        }
    }
}

/* ---- axes ---- */

typedef struct axes { double x0, x1, y0, y1; bool logarithmic; } axes; /* y is log10 if logarithmic */

static double place(const axes *a, double y) { return a->logarithmic ? log10(y) : y; }
static double x_of(const axes *a, double step) { return LEFT + (step - a->x0) / (a->x1 - a->x0) * (WIDTH - LEFT - RIGHT); }

static double y_of(const axes *a, double y)
{
    double share = (place(a, y) - a->y0) / (a->y1 - a->y0);
    return HEIGHT - BOTTOM - fmin(fmax(share, 0), 1) * (HEIGHT - TOP - BOTTOM);
}

static void find_range(const chart *c, double *low, double *high, axes *a)
{
    *low = INFINITY;
    *high = -INFINITY;
    *a = (axes){.x0 = INFINITY, .x1 = -INFINITY};
    for (int s = 0; s < CHART_SERIES; s++) {
        const series *v = c->series[s].points;
        for (int i = 0; v && i < v->used; i++) {
            *low = fmin(*low, v->buckets[i].low);
            *high = fmax(*high, v->buckets[i].high);
            a->x0 = fmin(a->x0, (double)v->buckets[i].first);
            a->x1 = fmax(a->x1, (double)v->buckets[i].last);
        }
    }
}

static axes make_axes(const chart *c)
{
    axes a;
    double low, high;
    find_range(c, &low, &high, &a);
    if (c->most > 0 && high > c->most)
        high = fmax(c->most, low);
    if (c->from_zero)
        low = 0;
    a.logarithmic = c->logarithmic && low > 0;
    a.y0 = place(&a, low);
    a.y1 = place(&a, high);
    double margin = fmax((a.y1 - a.y0) * 0.05, fabs(a.y1) * 1e-6);
    a.y1 += margin > 0 ? margin : 1;
    a.y0 -= c->from_zero ? 0 : margin > 0 ? margin : 1;
    a.x1 = a.x1 > a.x0 ? a.x1 : a.x0 + 1;
    return a;
}

/* 1, 2 or 5 times a power of ten, so that about TICKS steps cover the range. */
static double tick_step(double range)
{
    double rough = range / TICKS, power = pow(10, floor(log10(rough))), part = rough / power;
    return power * (part <= 1 ? 1 : part <= 2 ? 2 : part <= 5 ? 5 : 10);
}

static void write_y_tick(FILE *out, const axes *a, double value, chart_format format)
{
    char text[32];
    double y = y_of(a, value);
    fprintf(out, "<line class=\"grid\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/><text class=\"tick\" x=\"%d\" y=\"%.1f\" "
                 "text-anchor=\"end\">%s</text>", LEFT, WIDTH - RIGHT, y, y, LEFT - 6, y + 4, format(text, value));
}

static void write_axes(FILE *out, const axes *a, chart_format format)
{
    double step = tick_step(a->y1 - a->y0);
    if (a->logarithmic && step < 1) { /* only a few powers of ten */
        for (int i = 0; i <= TICKS; i++)
            write_y_tick(out, a, pow(10, a->y0 + (a->y1 - a->y0) * i / TICKS), format);
    } else {
        for (double i = ceil(a->y0 / step), n = 0; i * step <= a->y1 && n < 4 * TICKS; i++, n++)
            write_y_tick(out, a, a->logarithmic ? pow(10, i * step) : i * step, format);
    }
    step = fmax(tick_step(a->x1 - a->x0), 1);
    for (double i = ceil(a->x0 / step), n = 0; i * step <= a->x1 && n < 4 * TICKS; i++, n++)
        fprintf(out, "<text class=\"tick\" x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%.0f</text>", x_of(a, i * step), HEIGHT - 8,
                i * step);
}

/* ---- curves ---- */

static double middle(const series_bucket *b) { return ((double)b->first + (double)b->last) / 2; }

static void write_band(FILE *out, const axes *a, const series *v, int colour)
{
    if (v->width < 2)
        return;
    fprintf(out, "<path class=\"band series%d\" d=\"M", colour);
    for (int i = 0; i < v->used; i++)
        fprintf(out, "%.1f %.1f ", x_of(a, middle(&v->buckets[i])), y_of(a, v->buckets[i].high));
    for (int i = v->used - 1; i >= 0; i--)
        fprintf(out, "%.1f %.1f ", x_of(a, middle(&v->buckets[i])), y_of(a, v->buckets[i].low));
    fprintf(out, "Z\"/>");
}

static void write_line(FILE *out, const axes *a, const chart_series *s, int colour)
{
    const series *v = s->points;
    fprintf(out, "<polyline class=\"line series%d\" points=\"", colour);
    for (int i = 0; i < v->used; i++)
        fprintf(out, "%.1f,%.1f ", x_of(a, middle(&v->buckets[i])), y_of(a, v->buckets[i].mean));
    fprintf(out, "\"/>");
    for (int i = 0; i < v->used && (s->dots || v->used == 1); i++)
        fprintf(out, "<circle class=\"dot series%d\" cx=\"%.1f\" cy=\"%.1f\" r=\"3\"/>", colour, x_of(a, middle(&v->buckets[i])),
                y_of(a, v->buckets[i].mean));
}

static void write_best(FILE *out, const axes *a, const chart_series *s, int colour)
{
    for (int i = 0; i < s->points->used; i++) {
        const series_bucket *b = &s->points->buckets[i];
        if (s->best >= b->first && s->best <= b->last)
            fprintf(out, "<circle class=\"best line series%d\" cx=\"%.1f\" cy=\"%.1f\" r=\"7\"/>", colour, x_of(a, middle(b)),
                    y_of(a, b->mean));
    }
}

static void write_steps(FILE *out, const series_bucket *b)
{
    if (b->first == b->last)
        fprintf(out, "step %lld", (long long)b->first);
    else
        fprintf(out, "steps %lld to %lld", (long long)b->first, (long long)b->last);
}

/* The tooltips of columns and dots. */
static void write_tips(FILE *out, const axes *a, const chart *c, int colour)
{
    const chart_series *s = &c->series[colour];
    char mean[32], low[32], high[32];
    for (int i = 0; i < s->points->used; i++) {
        const series_bucket *b = &s->points->buckets[i];
        double left = x_of(a, (double)b->first - 0.5), right = x_of(a, (double)b->last + 0.5);
        if (s->dots)
            fprintf(out, "<circle class=\"tip\" cx=\"%.1f\" cy=\"%.1f\" r=\"7\"><title>", x_of(a, middle(b)), y_of(a, b->mean));
        else
            fprintf(out, "<rect class=\"tip\" x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"%d\"><title>", left, TOP, right - left,
                    HEIGHT - TOP - BOTTOM);
        write_steps(out, b);
        fprintf(out, ": %s %s", s->name, c->format(mean, b->mean));
        if (b->n > 1)
            fprintf(out, " (%s to %s)", c->format(low, b->low), c->format(high, b->high));
        fprintf(out, "</title></%s>", s->dots ? "circle" : "rect");
    }
}

static void write_legend(FILE *out, const chart *c)
{
    for (int s = 0; s < CHART_SERIES; s++)
        if (c->series[s].points && c->series[s].points->used)
            fprintf(out, c->series[s].best ? "<span class=\"key\"><i class=\"series%d\"></i>%s, best circled (step %lld)</span>"
                                           : "<span class=\"key\"><i class=\"series%d\"></i>%s</span>",
                    s, c->series[s].name, (long long)c->series[s].best);
}

void chart_write(FILE *out, const chart *c)
{
    if (!c->series[0].points->used)
        return;
    axes a = make_axes(c);
    fprintf(out, "<figure><figcaption><b>%s</b>", c->title);
    write_legend(out, c);
    fprintf(out, "</figcaption><svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"%s\">", WIDTH, HEIGHT, c->title);
    write_axes(out, &a, c->format);
    for (int s = 0; s < CHART_SERIES; s++)
        if (c->series[s].points && c->series[s].points->used) {
            write_band(out, &a, c->series[s].points, s);
            write_line(out, &a, &c->series[s], s);
            write_best(out, &a, &c->series[s], s);
        }
    for (int s = 0; s < CHART_SERIES; s++)
        if (c->series[s].points && (s == 0 || c->series[s].dots))
            write_tips(out, &a, c, s);
    fprintf(out, "</svg></figure>\n");
}
