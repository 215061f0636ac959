#include "data/foreign.h"

#include "data/files.h"
#include "io/files.h"

#include <string.h>
#include <strings.h>

/* Python that prints records of Arrow tables as .jsonl. Arrow has a null for each key that another record has: these are left out. */
#define PRINTS                                                                                                                             \
    "f = lambda v: {k: f(x) for k, x in v.items() if x is not None} if isinstance(v, dict) else [f(x) for x in v] if isinstance(v, list) " \
    "else v; [print(json.dumps(f(r), default=str)) for a in sys.argv[1:] for b in "
#define ARROW "python3 -c \"import json, sys, pyarrow.ipc as p; " PRINTS "p.open_stream(a) for r in b.to_pylist()]\""

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
    if (ends_with(name, ".arrow"))
        return true;
    if (i == PACKED || strlen(name) >= sizeof inside)
        return false;
    memcpy(inside, name, strlen(name) + 1);
    inside[strlen(name) - strlen(packed[i].end)] = 0;
    return data_kind_of(inside, &kind) == 0 || data_is_foreign(inside);
}

/* The supported distributions have no C library that reads Arrow. */
int data_refuse_foreign(const char *path, pt_error *e)
{
    const int i = packing_of(path);
    data_kind kind;
    if (data_kind_of(path, &kind) == 0)
        return 0;
    if (i < PACKED)
        return pt_fail(e, PT_FAILED, "%.400s is %s: unpack it: %s '%.400s'", path, packed[i].what, packed[i].command, path);
    if (!ends_with(path, ".arrow"))
        return 0;
    return pt_fail(e, PT_FAILED, "%.250s: Arrow is not supported; convert the file to .jsonl (pip install pyarrow): " ARROW
                   " '%.250s' > data.jsonl", path, path);
}

static bool has_file(const char *folder, const char *name)
{
    char path[FILE_PATH_BYTES];
    return !path_join(path, folder, name, NULL) && path_exists(path);
}

int data_refuse_saved(const char *folder, pt_error *e)
{
    if (has_file(folder, "dataset_dict.json"))
        return pt_fail(e, PT_FAILED, "%.250s: a folder that save_to_disk wrote, with a folder for each of its sets: convert one of them to "
                       ".jsonl (pip install pyarrow): " ARROW " '%.250s'/train/*.arrow > data.jsonl", folder, folder);
    if (has_file(folder, "dataset_info.json") && has_file(folder, "state.json"))
        return pt_fail(e, PT_FAILED, "%.250s: a folder that save_to_disk wrote: convert it to .jsonl (pip install pyarrow): " ARROW
                       " '%.250s'/*.arrow > data.jsonl", folder, folder);
    return 0;
}
