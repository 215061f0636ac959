#include "data/foreign.h"

#include "data/files.h"

#include <string.h>
#include <strings.h>

static const struct { const char *end, *what, *command; } packed[] = {
    {".gz", "compressed", "gunzip -k"}, {".zst", "compressed", "unzstd"},   {".xz", "compressed", "unxz -k"},
    {".bz2", "compressed", "bunzip2 -k"}, {".zip", "an archive", "unzip"},
};
enum { PACKED = sizeof packed / sizeof *packed };

static bool ends_with(const char *name, const char *end)
{
    const size_t n = strlen(name), m = strlen(end);
    return n > m && !strcasecmp(name + n - m, end);
}

static int packing_of(const char *name)
{
    int i = 0;
    while (i < PACKED && !ends_with(name, packed[i].end))
        i++;
    return i;
}

bool data_is_foreign(const char *name)
{
    const int i = packing_of(name);
    char inside[256];
    data_kind kind;
    if (i == PACKED || strlen(name) >= sizeof inside)
        return false;
    memcpy(inside, name, strlen(name) + 1);
    inside[strlen(name) - strlen(packed[i].end)] = 0;
    return data_kind_of(inside, &kind) == 0 || data_is_foreign(inside);
}

int data_refuse_foreign(const char *path, pt_error *e)
{
    const int i = packing_of(path);
    data_kind kind;
    if (i == PACKED || data_kind_of(path, &kind) == 0)
        return 0;
    return pt_fail(e, PT_FAILED, "%.400s is %s: unpack it: %s '%.400s'", path, packed[i].what, packed[i].command, path);
}
