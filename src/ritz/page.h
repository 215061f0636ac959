/* page.h - pages of Deep Ritz runs: each is one HTML file with its styles and pictures, which loads nothing and runs no scripts. */
#ifndef PT_RITZ_PAGE_H
#define PT_RITZ_PAGE_H

#include "protrain_ritz.h"

#include <stdio.h>

/* A curve of n points. band: lowest and highest y at each x (n, 2), or NULL. The arrays are not copied. */
typedef struct ritz_curve { const char *name; int n; const double *x, *y, *band; } ritz_curve;
typedef struct ritz_figure {
    const char *title, *x_title;
    bool log_x, log_y;
    int curves_n;
    ritz_curve curves[8];
} ritz_figure;

/* text: HTML between the title and the figures. */
int ritz_page_write(const char *file, const char *title, const char *text, const ritz_figure *figures, int n, pt_error *e);

/* ---- run_page.c ---- */

/* Writes report.html of a finished run: energy and errors from its metrics.jsonl, and the solution along the box's diagonal. */
int ritz_page_of_run(pt_ritz *ritz, const char *out, pt_error *e);
/* Maps of u and its error as HTML, of problems in two or three dimensions (map.c). */
int ritz_maps_write(pt_ritz *ritz, FILE *out, pt_error *e);
/* Whether a folder has the metrics of a Deep Ritz run; and its page, which may be made while it still runs. */
bool ritz_is_run(const char *folder);
int ritz_page_of_folder(const char *folder, const char *file, pt_error *e);
/* The same as a JSON object: the last energy and errors, times and memory, predicted and measured; malloc'ed. NULL: *e says why. */
char *ritz_json_of_run(const pt_ritz *ritz, const char *out, pt_error *e);
char *ritz_json_of_folder(const char *folder, pt_error *e);
/* Reads `step` and `key` of the lines that have the key: *columns (2, n), malloc'ed. Returns n, or a negative code. */
int ritz_read_metrics(const char *folder, const char *key, double **columns, pt_error *e);
/* Whether a line of a folder's metrics has the key. */
bool ritz_has_metrics(const char *folder, const char *key);
/* What a run minimises, as its metrics name it: "energy", or "residual". */
const char *ritz_loss_key(const char *folder);

/* ---- comparison.c ---- */

/* Whether a folder has a finished run of a comparison (protrain_ritz.h). */
bool ritz_is_comparison(const char *folder);
int ritz_page_of_comparison(const char *folder, const char *file, pt_error *e);
/* The rows of pt_ritz_compared; malloc'ed. NULL: *e says why. */
char *ritz_json_of_comparison(const char *folder, pt_error *e);

#endif
