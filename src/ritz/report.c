/* report.c - the page and the JSON of a folder of Deep Ritz runs, which is recognised. */
#include "io/files.h"
#include "ritz/page.h"

typedef enum folder_kind { FOLDER_OTHER, FOLDER_RUN, FOLDER_COMPARISON } folder_kind;

static folder_kind kind_of(const char *folder)
{
    return ritz_is_comparison(folder) ? FOLDER_COMPARISON : ritz_is_run(folder) ? FOLDER_RUN : FOLDER_OTHER;
}

int pt_ritz_report(const char *folder, const char *file, pt_error *e)
{
    char path[FILE_PATH_BYTES];
    if (!folder)
        return pt_fail_null(e, "pt_ritz_report", "folder");
    const folder_kind kind = kind_of(folder);
    if (kind == FOLDER_OTHER)
        return 0;
    int failed = file ? 0 : path_join(path, folder, "report.html", e);
    if (!failed)
        failed = (kind == FOLDER_RUN ? ritz_page_of_folder : ritz_page_of_comparison)(folder, file ? file : path, e);
    return failed ? failed : 1;
}

int pt_ritz_report_json(const char *folder, char **json, pt_error *e)
{
    if (!folder || !json)
        return pt_fail_null(e, "pt_ritz_report_json", folder ? "json" : "folder");
    *json = NULL;
    const folder_kind kind = kind_of(folder);
    if (kind == FOLDER_OTHER)
        return 0;
    *json = (kind == FOLDER_RUN ? ritz_json_of_folder : ritz_json_of_comparison)(folder, e);
    return *json ? 1 : PT_FAILED;
}
