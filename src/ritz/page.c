#include "ritz/page.h"

#include "io/files.h"
#include "report/chart.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char head[] =
    "<meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
    "<style>\n"
    ":root{color-scheme:light dark;--page:#f6f7f9;--card:#fff;--text:#1b1f24;--soft:#667085;--rule:#e3e6ea;--c0:#2563eb;--c1:#ea7317;"
    "--c2:#139a74;--c3:#8b5cf6;--c4:#d14d8b;--c5:#9aa3af}\n"
    "@media(prefers-color-scheme:dark){:root{--page:#101317;--card:#181c22;--text:#e6e9ee;--soft:#98a2b3;--rule:#2b313a;--c0:#6ea0ff;"
    "--c1:#ff9f4d;--c2:#3ecfa3;--c3:#b197fc;--c4:#f083b6;--c5:#6b7480}}\n"
    "body{margin:0 auto;max-width:1180px;padding:28px 20px 60px;background:var(--page);color:var(--text);font:15px/1.5 "
    "system-ui,sans-serif}\n"
    "h1{font-size:26px;margin:0 0 6px;overflow-wrap:anywhere}table{border-collapse:collapse;margin:14px 0}td,th{padding:3px 12px 3px 0;"
    "text-align:right;font-variant-numeric:tabular-nums}th{color:var(--soft);font-weight:500}"
    "td:first-child,th:first-child{text-align:left}\n"
    ".charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(480px,100%),1fr));gap:12px}figure{background:var(--card);"
    "border:1px solid var(--rule);border-radius:10px;padding:12px 14px;margin:0}figcaption{margin-bottom:6px}.key{color:var(--soft);"
    "font-size:13px;margin-left:14px;white-space:nowrap}.key "
    "i{display:inline-block;width:11px;height:11px;border-radius:3px;margin-right:5px;"
    "background:currentColor}svg{display:block;width:100%;height:auto}.tick{fill:var(--soft);font-size:12px}.grid{stroke:var(--rule)}"
    ".line{fill:none;stroke:currentColor;stroke-width:1.8;stroke-linejoin:round}.band{fill:currentColor;opacity:.18}\n"
    ".series0{color:var(--c0)}.series1{color:var(--c1)}.series2{color:var(--c2)}.series3{color:var(--c3)}.series4{color:var(--c4)}"
    ".series5{color:var(--c5)}\n</style>\n";

enum { WIDTH = 720, HEIGHT = 300, LEFT = 74, RIGHT = 20, TOP = 10, BOTTOM = 40, TICKS = 6 };

typedef struct axis { double low, high; bool logarithmic; } axis;

static double place(const axis *a, double v) { return ((a->logarithmic ? log10(v) : v) - a->low) / (a->high - a->low); }
static double x_of(const axis *a, double v) { return LEFT + place(a, v) * (WIDTH - LEFT - RIGHT); }
static double y_of(const axis *a, double v) { return HEIGHT - BOTTOM - fmin(fmax(place(a, v), 0), 1) * (HEIGHT - TOP - BOTTOM); }
static bool can_show(double v, bool logarithmic) { return isfinite(v) && (!logarithmic || v > 0); }

static void widen(axis *a, const double *v, int n)
{
    for (int i = 0; i < n; i++)
        if (can_show(v[i], a->logarithmic)) {
            const double at = a->logarithmic ? log10(v[i]) : v[i];
            a->low = fmin(a->low, at);
            a->high = fmax(a->high, at);
        }
}

static void finish_axis(axis *a, double margin)
{
    const double span = a->high > a->low ? a->high - a->low : 1;
    if (!(a->high >= a->low))
        a->low = 0, a->high = 1;
    a->low -= margin * span;
    a->high += margin * span + (span == 1 && margin == 0 ? 1 : 0);
}

static double tick_step(double span, bool logarithmic)
{
    const double rough = span / TICKS, power = pow(10, floor(log10(rough))), part = rough / power;
    const double step = power * (part <= 1 ? 1 : part <= 2 ? 2 : part <= 5 ? 5 : 10);
    return logarithmic && step < 1 && span > 1.5 ? 1 : step;
}

static void write_axes(FILE *out, const axis *x, const axis *y)
{
    double step = tick_step(y->high - y->low, y->logarithmic);
    for (double i = ceil(y->low / step); i * step <= y->high; i++) {
        const double v = y->logarithmic ? pow(10, i * step) : fabs(i * step) < 1e-12 ? 0 : i * step;
        fprintf(out, "<line class=\"grid\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/><text class=\"tick\" x=\"%d\" y=\"%.1f\" "
                     "text-anchor=\"end\">%.3g</text>",
                LEFT, WIDTH - RIGHT, y_of(y, v), y_of(y, v), LEFT - 6, y_of(y, v) + 4, v);
    }
    step = tick_step(x->high - x->low, x->logarithmic);
    for (double i = ceil(x->low / step); i * step <= x->high; i++) {
        const double v = x->logarithmic ? pow(10, i * step) : fabs(i * step) < 1e-12 ? 0 : i * step;
        fprintf(out, "<text class=\"tick\" x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%.6g</text>", x_of(x, v), HEIGHT - BOTTOM + 16, v);
    }
}

static void write_curve(FILE *out, const axis *x, const axis *y, const ritz_curve *c, int colour)
{
    if (c->band) {
        fprintf(out, "<path class=\"band series%d\" d=\"M", colour);
        for (int i = 0; i < c->n; i++)
            if (can_show(c->band[2 * i + 1], y->logarithmic))
                fprintf(out, "%.1f %.1f ", x_of(x, c->x[i]), y_of(y, c->band[2 * i + 1]));
        for (int i = c->n - 1; i >= 0; i--)
            if (can_show(c->band[2 * i], y->logarithmic))
                fprintf(out, "%.1f %.1f ", x_of(x, c->x[i]), y_of(y, c->band[2 * i]));
        fputs("Z\"/>", out);
    }
    fprintf(out, "<polyline class=\"line series%d\" points=\"", colour);
    for (int i = 0; i < c->n; i++)
        if (can_show(c->y[i], y->logarithmic) && can_show(c->x[i], x->logarithmic))
            fprintf(out, "%.1f,%.1f ", x_of(x, c->x[i]), y_of(y, c->y[i]));
    fputs("\"/>", out);
}

static void write_figure(FILE *out, const ritz_figure *f)
{
    axis x = {INFINITY, -INFINITY, f->log_x}, y = {INFINITY, -INFINITY, f->log_y};
    for (int i = 0; i < f->curves_n; i++) {
        widen(&x, f->curves[i].x, f->curves[i].n);
        widen(&y, f->curves[i].y, f->curves[i].n);
        if (f->curves[i].band)
            widen(&y, f->curves[i].band, 2 * f->curves[i].n);
    }
    finish_axis(&x, 0);
    finish_axis(&y, 0.04);
    fputs("<figure><figcaption><b>", out);
    html_text(out, f->title);
    fputs("</b>", out);
    for (int i = 0; i < f->curves_n; i++) {
        fprintf(out, "<span class=\"key\"><i class=\"series%d\"></i>", i);
        html_text(out, f->curves[i].name);
        fputs("</span>", out);
    }
    fprintf(out, "</figcaption><svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"", WIDTH, HEIGHT);
    html_text(out, f->title);
    fputs("\">", out);
    write_axes(out, &x, &y);
    for (int i = 0; i < f->curves_n; i++)
        write_curve(out, &x, &y, &f->curves[i], i);
    fprintf(out, "<text class=\"tick\" x=\"%d\" y=\"%d\" text-anchor=\"middle\">", (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 6);
    html_text(out, f->x_title);
    fputs("</text></svg></figure>\n", out);
}

int ritz_page_write(const char *path, const char *title, const char *text, const ritz_figure *figures, int n, pt_error *e)
{
    char *page = NULL;
    size_t bytes;
    FILE *f = open_memstream(&page, &bytes);
    if (!f)
        return pt_fail(e, PT_FAILED, "out of memory");
    fputs("<!doctype html>\n<html lang=\"en\"><head><title>", f);
    html_text(f, title);
    fprintf(f, " - Deep Ritz</title>\n%s</head><body>\n<h1>", head);
    html_text(f, title);
    fprintf(f, "</h1>\n%s<div class=\"charts\">\n", text);
    for (int i = 0; i < n; i++)
        write_figure(f, &figures[i]);
    fputs("</div></body></html>\n", f);
    const bool bad = ferror(f);
    int failed = fclose(f) || bad ? pt_fail(e, PT_FAILED, "out of memory") : file_write_atomic(path, page, bytes, e);
    free(page);
    return failed;
}
