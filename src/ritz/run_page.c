/* run_page.c - the page of a run, and the same as JSON, from its metrics.jsonl and, once it is trained, its network. */
#include "ritz/page.h"

#include "base/json.h"
#include "base/median.h"
#include "base/units.h"
#include "report/chart.h"
#include "ritz/solver.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

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
        json_t *object = json_text_check(path, line, strlen(line), NULL) ? NULL : json_loads(line, 0, NULL);
        const json_t *value = json_object_get(object, key);
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

/* x1, u and, unless exact is NULL, the exact solution at n points of the box's diagonal, which pass through the room of a unit. */
static int slice(pt_ritz *ritz, int n, double *x, double *u, double *exact, pt_error *e)
{
    const int64_t dim = ritz->net.dim;
    const double *lower = ritz->problem.is.lower, *upper = ritz->problem.is.upper;
    int failed = 0;
    for (int first = 0, rows; first < n && !failed; first += rows) {
        rows = n - first < ritz->unit_rows ? n - first : (int)ritz->unit_rows;
        for (int i = 0; i < rows; i++) {
            for (int64_t j = 0; j < dim; j++)
                ritz->x[i * dim + j] = lower[j] + (upper[j] - lower[j]) * (first + i) / (n - 1);
            x[first + i] = ritz->x[i * dim];
        }
        failed = pt_ritz_evaluate(ritz, rows, ritz->x, u + first, NULL, e);
        if (!failed && exact)
            failed = pt_ritz_exact(ritz, rows, ritz->x, exact + first, NULL, e);
    }
    return failed;
}

/* Thins two columns to about POINTS_SHOWN points, gives back their other memory, and returns how many points there are. */
static int thin(double **columns, int n)
{
    const int every = (n + POINTS_SHOWN - 1) / POINTS_SHOWN;
    double *at = *columns;
    int kept = 0;
    for (int i = 0; i < n; i += every)
        at[kept++] = at[i];
    for (int i = 0, to = kept; i < n; i += every)
        at[to++] = at[n + i];
    double *less = realloc(at, (size_t)(2 * kept + 1) * sizeof *at);
    *columns = less ? less : at;
    return kept;
}

/* Value of the key in the last line that has it; NAN: none has. */
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

/* The last energy on other points than those of the steps. */
static void write_energy(FILE *out, const char *folder)
{
    const double energy = last_of(folder, "estimated_energy"), error = last_of(folder, "standard_error");
    if (isfinite(energy) && isfinite(error))
        fprintf(out, "<p>energy on other points than those of the steps: %.7g &plusmn; %.2g (standard error)</p>\n", energy, error);
}

/* Loads the network of a run. NULL: there is none yet, or it cannot be read, which e then says. */
static pt_ritz *load_network(const char *folder, pt_error *e)
{
    char path[FILE_PATH_BYTES];
    pt_ritz *ritz = NULL;
    if (!path_join(path, folder, "config.json", NULL) && path_exists(path))
        pt_ritz_load(folder, 0, &ritz, e);
    return ritz;
}

/* note (may be NULL): what the page lacks. */
static char *text_of(pt_ritz *ritz, const char *folder, const char *note)
{
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    if (!out)
        return NULL;
    if (ritz)
        fprintf(out, "<p>%lld dimensions, %lld parameters, %s</p>\n", (long long)ritz->net.dim, (long long)ritz->net.params,
                ritz->net.type == PT_F64 ? "fp64" : "fp32");
    if (ritz && ritz->inside)
        fprintf(out, "<p>%lld %s points a step</p>\n", (long long)(ritz->o.n + ritz->boundary_n), points_names[ritz->o.points]);
    if (ritz && ritz_maps_write(ritz, out, NULL))
        fputs("<p>The page lacks the maps.</p>\n", out);
    write_energy(out, folder);
    write_memory(out, folder);
    if (note && *note) {
        fputs("<p>The page lacks the solution: ", out);
        html_text(out, note);
        fputs("</p>\n", out);
    }
    fclose(out);
    return text;
}

/* r NULL: there is no network. */
static int write_run(pt_ritz *ritz, const char *folder, const char *note, const char *file, pt_error *e)
{
    enum { SLICE = 129, KEYS = 6, FIGURES = 5 };
    double *columns[KEYS] = {NULL}, x[SLICE], u[SLICE], exact[SLICE];
    const bool residual = !strcmp(ritz_loss_key(folder), "residual");
    const char *const keys[KEYS] = {ritz_loss_key(folder), "l2_error", "h1_error", "step_s", "predicted_step_s", "estimated_energy"};
    int n[KEYS] = {0}, figures_n = 0, failed = 0;
    ritz_figure figures[FIGURES];
    char *text = text_of(ritz, folder, note);
    for (int i = 0; i < KEYS && !failed; i++) {
        n[i] = ritz_read_metrics(folder, keys[i], &columns[i], e);
        failed = n[i] < 0 ? n[i] : 0;
        n[i] = failed ? 0 : thin(&columns[i], n[i]);
    }
    if (!failed && !text)
        failed = pt_fail(e, PT_FAILED, "out of memory");
    if (!failed && ritz)
        failed = slice(ritz, SLICE, x, u, ritz->problem.is.exact ? exact : NULL, e);
    if (!failed) {
        static const char *const names[KEYS] = {"of the step", "L2", "H1", "measured", "predicted", "other points"};
        ritz_curve curves[KEYS];
        for (int i = 0; i < KEYS; i++)
            curves[i] = (ritz_curve){names[i], n[i], columns[i], columns[i] + n[i], NULL};
        if (residual)
            figures[figures_n++] = (ritz_figure){"residual loss", "step", false, true, 1, {curves[0]}};
        if (!residual || n[5])
            figures[figures_n++] = (ritz_figure){"energy", "step", false, false, !residual && n[5] ? 2 : 1,
                                                 {curves[residual ? 5 : 0], curves[5]}};
        if (n[1])
            figures[figures_n++] = (ritz_figure){ritz_has_metrics(folder, "absolute_errors") ? "errors" : "relative errors", "step", false,
                                                 true, 2, {curves[1], curves[2]}};
        if (ritz)
            figures[figures_n++] = (ritz_figure){"along the diagonal", "x1", false, false, ritz->problem.is.exact ? 2 : 1,
                                                 {{"u", SLICE, x, u, NULL}, {"exact", SLICE, x, exact, NULL}}};
        figures[figures_n++] = (ritz_figure){"time of a step, s", "step", false, false, n[4] ? 2 : 1, {curves[3], curves[4]}};
        failed = ritz_page_write(file, ritz && ritz->problem.name[0] ? ritz->problem.name : folder, text, figures, figures_n, e);
    }
    for (int i = 0; i < KEYS; i++)
        free(columns[i]);
    free(text);
    return failed;
}

int ritz_page_of_run(pt_ritz *ritz, const char *out, pt_error *e)
{
    char path[FILE_PATH_BYTES];
    int failed = path_join(path, out, "report.html", e);
    return failed ? failed : write_run(ritz, out, NULL, path, e);
}

bool ritz_has_metrics(const char *folder, const char *key) { return isfinite(last_of(folder, key)); }
const char *ritz_loss_key(const char *folder) { return ritz_has_metrics(folder, "energy") ? "energy" : "residual"; }
bool ritz_is_run(const char *folder) { return ritz_has_metrics(folder, ritz_loss_key(folder)); }

int ritz_page_of_folder(const char *folder, const char *file, pt_error *e)
{
    pt_error lack = {0};
    pt_ritz *ritz = load_network(folder, &lack);
    int failed = write_run(ritz, folder, lack.text, file, e);
    pt_ritz_close(ritz);
    return failed;
}

/* ---- as JSON ---- */

/* Median of the key over the lines that have it; NAN: none has. */
static double median_metric(const char *folder, const char *key)
{
    double *columns = NULL;
    const int n = ritz_read_metrics(folder, key, &columns, NULL);
    const double middle = n > 0 ? median(columns + n, n) : NAN;
    free(columns);
    return middle;
}

/* NAN is left out. */
static void put(json_t *object, const char *key, double value, bool whole)
{
    if (isfinite(value))
        json_object_set_new(object, key, whole ? json_integer((json_int_t)value) : json_real(value));
}

static json_t *memory_json(const char *folder)
{
    json_t *memory = json_object();
    for (int t = 0; t < TIERS; t++) {
        json_t *one = json_object();
        static const char *const kinds[] = {"predicted_bytes", "peak_bytes"};
        for (int k = 0; k < 2; k++) {
            char key[48];
            snprintf(key, sizeof key, "%s_%s", tier_names[t], kinds[k]);
            put(one, kinds[k], last_of(folder, key), true);
        }
        if (json_object_size(one))
            json_object_set(memory, tier_names[t], one);
        json_decref(one);
    }
    return memory;
}

/* r NULL: there is no network, for which `lack` has the reason, if there is one. */
static char *json_of(const pt_ritz *ritz, const char *folder, const pt_error *lack, pt_error *e)
{
    static const char *const last[] = {"energy", "residual", "l2_error", "h1_error", "h1_seminorm_error", "energy_norm_error",
                                       "estimated_energy", "standard_error"};
    json_t *all = json_object(), *notes = json_array();
    put(all, "steps", last_of(folder, "step"), true);
    for (size_t i = 0; i < sizeof last / sizeof *last; i++)
        put(all, last[i], last_of(folder, last[i]), false);
    json_object_set_new(all, "absolute_errors", json_boolean(ritz_has_metrics(folder, "absolute_errors")));
    put(all, "step_s", median_metric(folder, "step_s"), false);
    put(all, "predicted_step_s", last_of(folder, "predicted_step_s"), false);
    json_object_set_new(all, "memory", memory_json(folder));
    if (ritz) {
        json_object_set_new(all, "problem", json_string(ritz->problem.name));
        put(all, "dim", (double)ritz->net.dim, true);
        put(all, "parameters", (double)ritz->net.params, true);
    }
    if (lack->code)
        json_array_append_new(notes, json_string(lack->text));
    json_object_set_new(all, "notes", notes);
    char *text = json_dumps(all, 0);
    json_decref(all);
    if (!text)
        pt_fail(e, PT_FAILED, "out of memory");
    return text;
}

char *ritz_json_of_run(const pt_ritz *ritz, const char *out, pt_error *e)
{
    const pt_error nothing = {0};
    return json_of(ritz, out, &nothing, e);
}

char *ritz_json_of_folder(const char *folder, pt_error *e)
{
    pt_error lack = {0};
    pt_ritz *ritz = load_network(folder, &lack);
    char *text = json_of(ritz, folder, &lack, e);
    pt_ritz_close(ritz);
    return text;
}
