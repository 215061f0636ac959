/* page.h - runs of the Deep Ritz method as one HTML file: styles and pictures are in it, it asks the network for nothing and runs no
 * script. */
#ifndef PT_RITZ_PAGE_H
#define PT_RITZ_PAGE_H

#include "protrain_ritz.h"

/* A curve: x, y, and where band is not NULL the lowest and highest y at each x (2 n numbers). Copied by nobody. */
typedef struct ritz_curve { const char *name; int n; const double *x, *y, *band; } ritz_curve;
typedef struct ritz_figure {
    const char *title, *x_title;
    bool log_x, log_y;
    int curves_n;
    ritz_curve curves[8];
} ritz_figure;

/* `text` is put between the title and the pictures, as it is. */
int ritz_page_write(const char *file, const char *title, const char *text, const ritz_figure *figures, int n, pt_error *e);
/* The same of a finished run: energy and errors from its metrics.jsonl, and the solution along a line through the box. */
int ritz_page_of_run(pt_ritz *r, const char *out, pt_error *e);
/* Whether some line of a folder's metrics has a key. */
bool ritz_has_metrics(const char *folder, const char *key);
/* Whether a folder has the metrics of such a run, and a page of it, whether or not it still runs. */
bool ritz_is_run(const char *folder);
int ritz_page_of_folder(const char *folder, const char *file, pt_error *e);

/* Columns of a metrics.jsonl: `step` and `key` of the lines that have it; malloc'ed, one behind the other. Returns how many, or a negative
 * code. */
int ritz_read_metrics(const char *folder, const char *key, double **columns, pt_error *e);
/* u, and the exact solution where it is known (else NULL), at `n` points of the box's diagonal: x1, u, exact, each n numbers. */
int ritz_slice(pt_ritz *r, int n, double *x, double *u, double *exact, pt_error *e);

#endif
