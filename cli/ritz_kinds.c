#include "ritz.h"

#include "base/error.h"
#include "base/units.h"

#include <string.h>

static int kind_of(const char *name, size_t length, pt_ritz_points *kind, pt_error *e)
{
    for (int k = 0; k < PT_RITZ_KINDS; k++) {
        const char *known = pt_ritz_points_name((pt_ritz_points)k);
        if (strlen(known) == length && !strncmp(known, name, length)) {
            *kind = (pt_ritz_points)k;
            return 0;
        }
    }
    return pt_fail(e, PT_USAGE, "unknown points \"%.*s\": give mc, sobol, halton or lattice", (int)(length < 40 ? length : 40), name);
}

int ritz_kinds(const char *list, const char *otherwise, pt_ritz_points kinds[PT_RITZ_KINDS], pt_error *e)
{
    int n = 0;
    for (const char *at = list ? list : otherwise; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        if (n == PT_RITZ_KINDS)
            return pt_fail(e, PT_USAGE, "--compare takes at most %d kinds of points", PT_RITZ_KINDS);
        int failed = kind_of(at, strcspn(at, ","), &kinds[n], e);
        for (int k = 0; k < n && !failed; k++)
            if (kinds[k] == kinds[n])
                failed = pt_fail(e, PT_USAGE, "the points %s are named twice: name each kind once", pt_ritz_points_name(kinds[n]));
        if (failed)
            return failed;
        n++;
    }
    return n;
}

FILE *ritz_open_table(const ritz_session *s, const char *name, pt_error *e)
{
    char path[4096];
    snprintf(path, sizeof path, "%.4000s%s%s", s->o.out, slash_after(s->o.out), name);
    FILE *out = fopen(path, "we");
    if (!out)
        pt_fail_errno(e, PT_FAILED, "%s cannot be written", path);
    return out;
}

int ritz_close_table(FILE *out, const char *name, pt_error *e)
{
    const bool lost = ferror(out);
    return fclose(out) || lost ? pt_fail_errno(e, PT_FAILED, "%s cannot be written", name) : 0;
}
