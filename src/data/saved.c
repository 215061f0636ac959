#include "data/saved.h"

#include "base/json.h"
#include "io/files.h"

#include <string.h>

static bool has_file(const char *folder, const char *name)
{
    char path[FILE_PATH_BYTES];
    return !path_join(path, folder, name, NULL) && path_exists(path);
}

saved_kind saved_kind_of(const char *folder)
{
    return has_file(folder, "dataset_dict.json")                                         ? SAVED_SETS
           : has_file(folder, "dataset_info.json") && has_file(folder, "state.json")     ? SAVED_SET : SAVED_NOT;
}

/* Adds the name that an element is, or has as "filename". */
static int add_name(json_t *names, json_t *element, const char *path, pt_error *e)
{
    json_t *name = json_is_object(element) ? json_object_get(element, "filename") : element;
    const char *text = json_string_value(name);
    if (!text || !text[0] || strchr(text, '/') || !strcmp(text, ".."))
        return pt_fail(e, PT_FAILED, "%s: this is not as save_to_disk writes it: a name of a file or set is missing: save the data again",
                       path);
    json_array_append(names, name);
    return 0;
}

static int take_names(json_t *root, saved_kind kind, const char *path, json_t *names, pt_error *e)
{
    json_t *list = json_object_get(root, kind == SAVED_SETS ? "splits" : "_data_files"), *element;
    size_t i;
    int rc = 0;
    if (json_array_size(json_object_get(root, "_indices_data_files")) || json_is_object(json_object_get(root, "_indices_files")))
        return pt_fail(e, PT_FAILED, "%s: the rows are chosen by an index, as old versions of datasets save it: save the data again", path);
    if (!json_array_size(list))
        return pt_fail(e, PT_FAILED, "%s: there are no files or sets: save the data again", path);
    json_array_foreach(list, i, element)
        if (rc == 0)
            rc = add_name(names, element, path, e);
    return rc;
}

int saved_names(const char *folder, saved_kind kind, json_t **out, pt_error *e)
{
    char path[FILE_PATH_BYTES];
    json_t *root;
    int rc = path_join(path, folder, kind == SAVED_SETS ? "dataset_dict.json" : "state.json", e);
    if (rc == 0)
        rc = json_file_load(path, 0, &root, e);
    if (rc < 0)
        return rc;
    *out = json_array();
    rc = take_names(root, kind, path, *out, e);
    json_decref(root);
    if (rc < 0)
        json_decref(*out);
    return rc;
}
