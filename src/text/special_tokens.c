/* special_tokens.c - finds the id that ends a text. tokenizer.json does not say; four other files may. The ids around a text come from
 * tokenizer.json's template alone: Transformers 5.24 ignores add_bos_token and add_eos_token of tokenizer_config.json if there is a
 * tokenizer.json (4.x respects them for Llama's class). */
#include "base/json.h"
#include "text/tokenizer_parts.h"

#include <stdio.h>
#include <unistd.h>

static int64_t find_named(const tokenizer *tok, const json_t *value)
{
    const json_t *name = json_is_object(value) ? json_object_get(value, "content") : value;
    return json_is_string(name) ? tokenizer_find(tok, json_string_value(name)) : -1;
}

/* Reads an id, or the first of a list. An id without a token, such as the architecture's default with a smaller vocabulary, is ignored; so
 * is a value that is not a number, which config.json's reader reports. */
static void find_numbered(const tokenizer *tok, const json_source *file, int64_t *id)
{
    const json_t *value = json_object_get(file->object, "eos_token_id"), *first = json_is_array(value) ? json_array_get(value, 0) : value;
    const int64_t said = json_is_integer(first) ? json_integer_value(first) : -1;
    if (said >= 0 && said < (int64_t)tokenizer_vocab_size(tok))
        *id = said;
}

int tokenizer_read_eos(tokenizer *tok, const char *model_dir, pt_error *e)
{
    static const char *const files[] = {"tokenizer_config.json", "special_tokens_map.json", "generation_config.json",
                                        "config.json"};
    for (int i = 0; i < 4 && tok->eos < 0; i++) {
        char path[4096];
        json_source file;
        int status = 0, length = snprintf(path, sizeof path, "%s/%s", model_dir, files[i]);
        if (length >= (int)sizeof path || access(path, F_OK) != 0)
            continue;
        if ((status = json_source_open(&file, path, e)))
            return status;
        if (i < 2)
            tok->eos = find_named(tok, json_object_get(file.object, "eos_token"));
        else
            find_numbered(tok, &file, &tok->eos);
        json_source_close(&file);
        if (status)
            return status;
    }
    return 0;
}

/* Reads one entry of a file, if there is one: a number, or a name. */
static int read_padding(const tokenizer *tok, const char *model_dir, const char *name, const char *key, int64_t *id, pt_error *e)
{
    char path[4096];
    json_source file;
    if (snprintf(path, sizeof path, "%s/%s", model_dir, name) >= (int)sizeof path || access(path, F_OK))
        return 0;
    const int failed = json_source_open(&file, path, e);
    if (failed)
        return failed;
    const json_t *value = json_object_get(file.object, key);
    *id = json_is_integer(value) ? (int64_t)json_integer_value(value) : find_named(tok, value);
    json_source_close(&file);
    return 0;
}

int tokenizer_padding(const tokenizer *tok, const char *model_dir, int64_t *id, pt_error *e)
{
    *id = -1;
    int failed = read_padding(tok, model_dir, "config.json", "pad_token_id", id, e);
    if (!failed && *id < 0)
        failed = read_padding(tok, model_dir, "tokenizer_config.json", "pad_token", id, e);
    *id = *id < 0 ? tokenizer_eos(tok) : *id;
    return failed;
}
