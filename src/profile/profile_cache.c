/* profile_cache.c - earlier measurements, in files named by what they were made for. No function fails: an unreadable file is measured
 * again, and an unwritable one is not kept. Files are replaced atomically, so that processes that measure at the same time leave one
 * complete result. If there are many, the oldest are removed. */
#include "profile/profile_parts.h"

#include "io/files.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_FILES = 200, FILE_MAX_BYTES = 1 << 20 };

static int cache_folder(char out[FILE_PATH_BYTES])
{
    const char *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (xdg && xdg[0] == '/')
        return path_join(out, xdg, "protrain", NULL);
    return home && home[0] == '/' && path_is_folder(home) ? path_join(out, home, ".cache/protrain", NULL) : -1;
}

static int cache_path(profile_part p, const profile_request *req, char folder[FILE_PATH_BYTES], char path[FILE_PATH_BYTES])
{
    char fingerprint[32], name[64];
    json_t *made_for = profile_made_for(p, req);
    if (!made_for)
        return -1;
    profile_fingerprint(made_for, fingerprint);
    json_decref(made_for);
    snprintf(name, sizeof name, "profile-%s-%s.json", profile_part_names[p], fingerprint);
    return cache_folder(folder) || path_join(path, folder, name, NULL) ? -1 : 0;
}

const char *profile_cache_missing(void)
{
    const char *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    const bool named = xdg && xdg[0] == '/';
    return !named && home && *home && !path_is_folder(home) ? home : NULL;
}

int profile_cache_load(profile_part p, const profile_request *req, profile_result *out)
{
    char folder[FILE_PATH_BYTES], path[FILE_PATH_BYTES], *text;
    size_t n;
    if (cache_path(p, req, folder, path) || file_read_all(path, FILE_MAX_BYTES, &text, &n, NULL))
        return -1;
    int failed = profile_parts_from_json(1u << p, path, text, n, req, out, NULL);
    free(text);
    return failed;
}

static int is_profile(const struct dirent *d) { return !strncmp(d->d_name, "profile-", 8); }

/* Removes half of the files, the oldest first. */
static void remove_old(const char *folder)
{
    struct dirent **entries;
    int n = scandir(folder, &entries, is_profile, NULL);
    if (n < 0)
        return;
    for (int removed = 0; n > MOST_FILES && removed < n / 2; removed++) {
        char path[FILE_PATH_BYTES], oldest[FILE_PATH_BYTES] = "";
        struct timespec least = {0};
        struct stat st;
        for (int i = 0; i < n; i++) {
            if (path_join(path, folder, entries[i]->d_name, NULL) || stat(path, &st))
                continue;
            bool older = st.st_mtim.tv_sec < least.tv_sec || (st.st_mtim.tv_sec == least.tv_sec && st.st_mtim.tv_nsec < least.tv_nsec);
            if (!oldest[0] || older) {
                least = st.st_mtim;
                memcpy(oldest, path, sizeof oldest);
            }
        }
        if (!oldest[0] || unlink(oldest))
            break;
    }
    for (int i = 0; i < n; i++)
        free(entries[i]);
    free(entries);
}

void profile_cache_store(profile_part p, const profile_request *req, const profile_result *result)
{
    char folder[FILE_PATH_BYTES], path[FILE_PATH_BYTES];
    if (cache_path(p, req, folder, path) || dir_make(folder, NULL))
        return;
    remove_old(folder);
    char *text = profile_parts_to_json(1u << p, req, result);
    if (text)
        file_write_atomic(path, text, strlen(text), NULL);
    free(text);
}
