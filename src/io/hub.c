#include "io/hub.h"

#include "io/files.h"

#include <string.h>
#include <strings.h>

static const char *last_part(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

bool hub_is_name(const char *path)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
    const size_t owner = strspn(path, letters), n = strlen(path);
    const char *name = last_part(path), *end = strrchr(name, '.');
    char folder[FILE_PATH_BYTES];
    if (!n || n >= sizeof folder || strchr(".-", path[0]) || strchr(".-", name[0]) || (end && !strncasecmp(end, ".json", 5)))
        return false;
    memcpy(folder, path, owner);
    folder[owner] = 0;
    if (owner == n)
        return true;
    return path[owner] == '/' && name == path + owner + 1 && strspn(name, letters) == strlen(name) && !path_exists(folder);
}

int hub_fail_model(const char *folder, const char *need, pt_error *e)
{
    if (path_exists(folder) || !hub_is_name(folder))
        return pt_fail(e, PT_FAILED, "%.400s is not a folder: %s", folder, need);
    return pt_fail(e, PT_FAILED, "%.200s is not a folder: %s; for a model on the Hugging Face hub: hf download %.200s --local-dir %.200s, "
                   "then give that folder", folder, need, folder, last_part(folder));
}

int hub_fail_data(const char *path, pt_error *e)
{
    return pt_fail(e, PT_FAILED, "%.200s does not exist: give files or a folder; for a data set on the Hugging Face hub: hf download "
                   "%.200s --repo-type dataset --local-dir %.200s, then give its files", path, path, last_part(path));
}
