/* special_tokens.c - what stands at a text's ends. Which id ends it, no part of tokenizer.json says, four other files may; and one of
 * them may say that a text has or lacks its begin and its end, whatever tokenizer.json's template says. */
#include "base/json.h"
#include "text/buffer.h"
#include "text/tokenizer_parts.h"

#include <stdio.h>
#include <unistd.h>

static int64_t find_named(const tokenizer *t, const json_t *value)
{
    const json_t *name = json_is_object(value) ? json_object_get(value, "content") : value;
    return json_is_string(name) ? tokenizer_find(t, json_string_value(name)) : -1;
}

/* An id, or a list of which the first counts. One that no token has, such as a default of the architecture beside a smaller vocabulary,
 * ends no text. */
static int find_numbered(const tokenizer *t, const json_source *file, int64_t *id, pt_error *e)
{
    json_t *value = json_object_get(file->object, "eos_token_id"), *first = json_is_array(value) ? json_array_get(value, 0) : value;
    json_source holder = *file;
    int64_t said = -1;
    holder.object = json_pack("{s:O?}", "eos_token_id", first);
    int status = json_get_int(&holder, "eos_token_id", JSON_OPTIONAL, INT64_MIN, INT64_MAX, &said, e);
    json_decref(holder.object);
    if (!status && said >= 0 && said < (int64_t)tokenizer_vocab_size(t))
        *id = said;
    return status;
}

/* Opens `name` of the folder; file->object NULL where there is none. */
static int open_file(const char *model_dir, const char *name, json_source *file, pt_error *e)
{
    char path[4096];
    *file = (json_source){0};
    if (snprintf(path, sizeof path, "%s/%s", model_dir, name) >= (int)sizeof path || access(path, F_OK) != 0)
        return 0;
    return json_source_open(file, path, e);
}

static int read_eos(tokenizer *t, const char *model_dir, pt_error *e)
{
    static const char *const files[] = {"tokenizer_config.json", "special_tokens_map.json", "generation_config.json",
                                        "config.json"};
    for (int i = 0; i < 4 && t->eos < 0; i++) {
        json_source file;
        int status = open_file(model_dir, files[i], &file, e);
        if (status)
            return status;
        if (!file.object)
            continue;
        if (i < 2)
            t->eos = find_named(t, json_object_get(file.object, "eos_token"));
        else
            status = find_numbered(t, &file, &t->eos, e);
        json_source_close(&file);
        if (status)
            return status;
    }
    return 0;
}

static int set_template(id_list *ids, bool wanted, int64_t id, pt_error *e)
{
    id_list_free(ids);
    return wanted && id >= 0 ? id_list_push(ids, (uint32_t)id, e) : 0;
}

/* As Transformers has it (5.x): where tokenizer_config.json has add_bos_token or add_eos_token, they say what is put around a text, and
 * tokenizer.json's template does not. */
static int read_template(tokenizer *t, const char *model_dir, pt_error *e)
{
    json_source file, map;
    int status = open_file(model_dir, "tokenizer_config.json", &file, e);
    const json_t *bos = json_object_get(file.object, "add_bos_token"), *eos = json_object_get(file.object, "add_eos_token");
    if (status || (!bos && !eos)) {
        json_source_close(&file);
        return status;
    }
    int64_t first = find_named(t, json_object_get(file.object, "bos_token"));
    if (first < 0 && !(status = open_file(model_dir, "special_tokens_map.json", &map, e))) {
        first = find_named(t, json_object_get(map.object, "bos_token"));
        json_source_close(&map);
    }
    if (!status)
        status = set_template(&t->post.before, json_is_true(bos), first, e);
    if (!status)
        status = set_template(&t->post.after, json_is_true(eos), t->eos, e);
    json_source_close(&file);
    return status;
}

int tokenizer_read_special_tokens(tokenizer *t, const char *model_dir, pt_error *e)
{
    int status = read_eos(t, model_dir, e);
    return status ? status : read_template(t, model_dir, e);
}
