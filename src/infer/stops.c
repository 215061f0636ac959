#include "infer/stops.h"

#include "base/json.h"
#include "io/files.h"

bool stops_has(const stop_ids *s, int32_t id)
{
    for (int i = 0; i < s->n; i++)
        if (s->ids[i] == id)
            return true;
    return false;
}

void stops_add(stop_ids *s, const model *m, int64_t id)
{
    if (id >= 0 && id < m->config.vocab && s->n < STOPS_MOST && !stops_has(s, (int32_t)id))
        s->ids[s->n++] = (int32_t)id;
}

/* "eos_token_id" of a file is an id or a list; chat models have several. */
int stops_add_named(stop_ids *s, const char *folder, const char *name, const model *m, pt_error *e)
{
    char path[FILE_PATH_BYTES];
    json_source file;
    int failed = path_join(path, folder, name, e);
    if (failed || !path_exists(path))
        return failed;
    failed = json_source_open(&file, path, e);
    if (failed)
        return failed;
    const json_t *value = json_object_get(file.object, "eos_token_id");
    for (size_t i = 0; i < json_array_size(value); i++)
        if (json_is_integer(json_array_get(value, i)))
            stops_add(s, m, json_integer_value(json_array_get(value, i)));
    if (json_is_integer(value))
        stops_add(s, m, json_integer_value(value));
    json_source_close(&file);
    return 0;
}

int stops_find(stop_ids *s, const char *folder, const model *m, const tokenizer *tok, pt_error *e)
{
    s->n = 0;
    stops_add(s, m, tokenizer_eos(tok));
    int failed = stops_add_named(s, folder, "generation_config.json", m, e);
    if (!failed)
        failed = stops_add_named(s, folder, "config.json", m, e);
    if (!failed && !s->n)
        stops_add(s, m, m->config.eos);
    return failed;
}
