#include "ritz.h"

#include "base/error.h"
#include "base/units.h"

#include <string.h>

int ritz_sets(const char *list, const char *otherwise, ritz_set sets[PT_RITZ_SETS], pt_error *e)
{
    int n = 0;
    for (const char *at = list ? list : otherwise; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        if (n == PT_RITZ_SETS)
            return pt_fail(e, PT_USAGE, "--compare takes at most %d sets of points", PT_RITZ_SETS);
        ritz_set *s = &sets[n];
        int failed = pt_ritz_find_set(at, strcspn(at, ","), &s->points, &s->randomize, e);
        if (failed)
            return failed;
        pt_ritz_set_name(s->points, s->randomize, s->name);
        for (int k = 0; k < n; k++)
            if (!strcmp(sets[k].name, s->name))
                return pt_fail(e, PT_USAGE, "the points %s are named twice: name each set once", s->name);
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
