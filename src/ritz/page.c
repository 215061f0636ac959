#include "ritz/page.h"

#include "base/units.h"
#include "report/chart.h"
#include "ritz/solver.h"

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

/* ---- a run ---- */

enum { METRICS_MOST = 1 << 21, POINTS_SHOWN = 800 };

int ritz_read_metrics(const char *folder, const char *key, double **columns, pt_error *e)
{
    char path[FILE_PATH_BYTES], *line = NULL;
    int failed = path_join(path, folder, "metrics.jsonl", e), n = 0;
    size_t room = 0;
    double *both = malloc(2 * (size_t)METRICS_MOST * sizeof *both);
    FILE *f = failed || !both ? NULL : fopen(path, "re");
    if (!f) {
        free(both);
        return failed ? failed : pt_fail_errno(e, PT_FAILED, "%s cannot be read", path);
    }
    while (n < METRICS_MOST && getline(&line, &room, f) > 0) {
        json_t *object = json_loads(line, 0, NULL), *value = json_object_get(object, key);
        if (json_is_number(value)) {
            both[n] = (double)json_integer_value(json_object_get(object, "step"));
            both[METRICS_MOST + n++] = json_number_value(value);
        }
        json_decref(object);
    }
    free(line);
    fclose(f);
    memmove(both + n, both + METRICS_MOST, (size_t)n * sizeof *both);
    *columns = both;
    return n;
}

/* Along the line from one corner of the box to the opposite one. */
int ritz_slice(pt_ritz *r, int n, double *x, double *u, double *exact, pt_error *e)
{
    const int64_t dim = r->net.dim;
    double *points = malloc((size_t)(n * dim) * 2 * sizeof *points);
    if (!points)
        return pt_fail(e, PT_FAILED, "out of memory");
    for (int i = 0; i < n; i++) {
        for (int64_t j = 0; j < dim; j++)
            points[i * dim + j] = r->problem.is.lower[j] + (r->problem.is.upper[j] - r->problem.is.lower[j]) * i / (n - 1);
        x[i] = points[i * dim];
    }
    int failed = pt_ritz_evaluate(r, n, points, u, NULL, e);
    if (!failed && exact)
        problem_exact(&r->problem, n, points, exact, points + (int64_t)n * dim);
    free(points);
    return failed;
}

/* No more than can be seen: every so many'th point. */
static int thin(double *columns, int n)
{
    const int every = (n + POINTS_SHOWN - 1) / POINTS_SHOWN;
    int kept = 0;
    for (int i = 0; every > 1 && i < n; i += every)
        columns[kept++] = columns[i];
    for (int i = 0, at = kept; every > 1 && i < n; i += every)
        columns[at++] = columns[n + i];
    return every > 1 ? kept : n;
}

/* The last line's value of a key; NAN: no line has it. */
static double last_of(const char *folder, const char *key)
{
    double *columns = NULL;
    const int n = ritz_read_metrics(folder, key, &columns, NULL);
    const double value = n > 0 ? columns[2 * n - 1] : NAN;
    free(columns);
    return value;
}

/* "memory: 12.6 MiB of the device planned, 12.6 MiB taken" */
static void write_memory(FILE *out, const char *folder)
{
    const char *before = "<p>memory: ";
    for (int t = 0; t < TIERS; t++) {
        char key[48], a[32], b[32];
        snprintf(key, sizeof key, "%s_predicted_bytes", tier_names[t]);
        const double planned = last_of(folder, key);
        snprintf(key, sizeof key, "%s_peak_bytes", tier_names[t]);
        const double taken = last_of(folder, key);
        if (!(planned > 0 && taken > 0))
            continue;
        fprintf(out, "%s%s of the %s planned, %s taken", before, size_format(a, (uint64_t)planned), tier_names[t],
                size_format(b, (uint64_t)taken));
        before = "; ";
    }
    if (*before == ';')
        fputs("</p>\n", out);
}

static char *text_of(const pt_ritz *r, const char *folder)
{
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    if (!out)
        return NULL;
    if (r)
        fprintf(out, "<p>%lld dimensions, %lld parameters, %s</p>\n", (long long)r->net.dim, (long long)r->net.params,
                r->net.type == PT_F64 ? "fp64" : "fp32");
    if (r && r->inside)
        fprintf(out, "<p>%lld %s points a step</p>\n", (long long)(r->o.n + r->boundary_n), points_names[r->o.points]);
    write_memory(out, folder);
    fclose(out);
    return text;
}

/* r NULL: there is no network yet. */
static int write_run(pt_ritz *r, const char *folder, const char *file, pt_error *e)
{
    enum { SLICE = 129, KEYS = 5, FIGURES = 4 };
    double *columns[KEYS] = {NULL}, x[SLICE], u[SLICE], exact[SLICE];
    static const char *const keys[KEYS] = {"energy", "l2_error", "h1_error", "step_s", "predicted_step_s"};
    int n[KEYS] = {0}, figures_n = 0, failed = 0;
    ritz_figure figures[FIGURES];
    char *text = text_of(r, folder);
    for (int i = 0; i < KEYS && !failed; i++) {
        n[i] = ritz_read_metrics(folder, keys[i], &columns[i], e);
        failed = n[i] < 0 ? n[i] : 0;
        n[i] = failed ? 0 : thin(columns[i], n[i]);
    }
    if (!failed && !text)
        failed = pt_fail(e, PT_FAILED, "out of memory");
    if (!failed && r)
        failed = ritz_slice(r, SLICE, x, u, r->problem.is.exact ? exact : NULL, e);
    if (!failed) {
        static const char *const names[KEYS] = {"energy", "L2", "H1", "measured", "predicted"};
        ritz_curve curves[KEYS];
        for (int i = 0; i < KEYS; i++)
            curves[i] = (ritz_curve){names[i], n[i], columns[i], columns[i] + n[i], NULL};
        figures[figures_n++] = (ritz_figure){"energy", "step", false, false, 1, {curves[0]}};
        if (n[1])
            figures[figures_n++] = (ritz_figure){"relative errors", "step", false, true, 2, {curves[1], curves[2]}};
        if (r)
            figures[figures_n++] = (ritz_figure){"along the diagonal", "x1", false, false, r->problem.is.exact ? 2 : 1,
                                                 {{"u", SLICE, x, u, NULL}, {"exact", SLICE, x, exact, NULL}}};
        figures[figures_n++] = (ritz_figure){"time of a step, s", "step", false, false, n[4] ? 2 : 1, {curves[3], curves[4]}};
        failed = ritz_page_write(file, r && r->problem.name[0] ? r->problem.name : folder, text, figures, figures_n, e);
    }
    for (int i = 0; i < KEYS; i++)
        free(columns[i]);
    free(text);
    return failed;
}

int ritz_page_of_run(pt_ritz *r, const char *out, pt_error *e)
{
    char path[FILE_PATH_BYTES];
    int failed = path_join(path, out, "report.html", e);
    return failed ? failed : write_run(r, out, path, e);
}

bool ritz_has_metrics(const char *folder, const char *key) { return isfinite(last_of(folder, key)); }
bool ritz_is_run(const char *folder) { return ritz_has_metrics(folder, "energy"); }

int ritz_page_of_folder(const char *folder, const char *file, pt_error *e)
{
    pt_ritz *r = NULL;
    pt_error none;
    const bool done = !pt_ritz_load(folder, 0, &r, &none); /* else it still runs */
    int failed = write_run(done ? r : NULL, folder, file, e);
    pt_ritz_close(r);
    return failed;
}
