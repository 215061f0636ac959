/* report_open.c - pt_report: a run's folder as an HTML page and as JSON. */
#include "io/files.h"
#include "report/page.h"

#include <stdlib.h>

struct pt_report {
    run_folder *folder;
    char path[FILE_PATH_BYTES]; /* the default path of the page */
};

int pt_report_open(const char *folder, pt_report **out, pt_error *e)
{
    if (!folder)
        return pt_fail_null(e, "pt_report_open", "the folder");
    if (!out)
        return pt_fail_null(e, "pt_report_open", "the place for the report");
    *out = NULL;
    pt_report *r = calloc(1, sizeof *r);
    if (!r)
        return pt_fail(e, PT_FAILED, "out of memory");
    int failed = run_folder_read(folder, &r->folder, e);
    if (!failed)
        failed = path_join(r->path, folder, "report.html", e);
    if (failed)
        pt_report_close(r);
    else
        *out = r;
    return failed;
}

const char *pt_report_note(const pt_report *r, int i) { return r && i >= 0 && i < r->folder->notes_n ? r->folder->notes[i] : NULL; }

int pt_report_write(const pt_report *r, const char *path, const char **written, pt_error *e)
{
    if (!r)
        return pt_fail_null(e, "pt_report_write", "the report");
    const char *to = path ? path : r->path;
    size_t n;
    int refused = path ? file_may_replace(path, "out", PAGE_BEGINS, "page", e) : 0;
    if (refused)
        return refused;
    char *text = page_make(r->folder, &n);
    int failed = text ? file_write_atomic(to, text, n, e) : pt_fail(e, PT_FAILED, "out of memory");
    free(text);
    if (written)
        *written = to;
    return failed;
}

char *pt_report_json(const pt_report *r)
{
    json_t *object = r ? run_folder_json(r->folder) : NULL;
    char *text = object ? json_dumps(object, JSON_INDENT(2)) : NULL;
    json_decref(object);
    return text;
}

void pt_report_close(pt_report *r)
{
    if (!r)
        return;
    run_folder_free(r->folder);
    free(r);
}
