#include "report/memory_file.h"

#include "base/json.h"
#include "io/files.h"

#include <string.h>

static uint64_t sum_of(const uint64_t part[MEMORY_PARTS])
{
    uint64_t sum = 0;
    for (int p = 0; p < MEMORY_PARTS; p++)
        sum += part[p];
    return sum;
}

int memory_file_write(const char *folder, const uint64_t part[TIERS][MEMORY_PARTS], pt_error *e)
{
    char path[FILE_PATH_BYTES];
    int failed = path_join(path, folder, MEMORY_FILE, e);
    if (failed)
        return failed;
    json_t *all = json_object();
    for (int t = 0; t < TIERS; t++) {
        json_t *parts = json_object();
        for (int p = 0; p < MEMORY_PARTS; p++)
            json_object_set_new(parts, part_names[p], json_integer((json_int_t)part[t][p]));
        if (sum_of(part[t]))
            json_object_set(all, tier_names[t], parts);
        json_decref(parts);
    }
    failed = all ? file_write_json(path, all, e) : pt_fail(e, PT_FAILED, "out of memory");
    json_decref(all);
    return failed;
}

static int read_parts(const json_source *src, uint64_t part[TIERS][MEMORY_PARTS], pt_error *e)
{
    int failed = 0;
    memset(part, 0, TIERS * sizeof *part);
    for (int t = 0; t < TIERS && !failed; t++) {
        json_source of = {0};
        failed = json_get_object(src, tier_names[t], JSON_OPTIONAL, &of, e);
        for (int p = 0; p < MEMORY_PARTS && of.object && !failed; p++) {
            int64_t bytes = 0;
            failed = json_get_int(&of, part_names[p], JSON_REQUIRED, 0, INT64_C(1) << 53, &bytes, e);
            part[t][p] = (uint64_t)bytes;
        }
    }
    return failed;
}

int memory_file_read(const char *path, uint64_t part[TIERS][MEMORY_PARTS], pt_error *e)
{
    json_source src;
    int failed = json_source_file(&src, path, "a run's memory", e);
    if (failed)
        return failed;
    failed = read_parts(&src, part, e);
    json_source_close(&src);
    return failed;
}
