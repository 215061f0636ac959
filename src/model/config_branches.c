/* config_branches.c - layers that are a mixer, an MLP or experts alone: layers_block_type, or a letter for each in
 * hybrid_override_pattern. */
#include "model/config_reader.h"

#include <string.h>

static const struct { const char *type, *old, *letter; mixer_kind mixer; bool sparse; } kinds[] = {
    {"linear_attention", "mamba", "M", MIXER_MAMBA, false}, {"full_attention", "attention", "*", MIXER_ATTENTION, false},
    {"mlp", "mlp", "-", MIXER_NONE, false}, {"moe", "moe", "E", MIXER_NONE, true}};

/* The list or the pattern; the list wins, as in Transformers. */
static int find_list(config_reader *reader, json_t **list, const char **pattern, const char **key)
{
    *pattern = NULL;
    *key = config_key_present(&reader->source, "layer_types") ? "layer_types" : "layers_block_type";
    int status = json_get_array(&reader->source, *key, JSON_OPTIONAL, list, reader->e);
    if (status || *list)
        return status;
    *key = "hybrid_override_pattern";
    status = json_get_string(&reader->source, *key, JSON_OPTIONAL, pattern, reader->e);
    if (!status && !*pattern)
        return pt_fail(reader->e, PT_FAILED, "%s: the key \"layers_block_type\" is missing: add it, or \"hybrid_override_pattern\"",
                       reader->source.where);
    return status;
}

int config_count_branches(config_reader *reader)
{
    json_t *list = NULL;
    const char *pattern, *key;
    int status = find_list(reader, &list, &pattern, &key);
    if (status)
        return status;
    const size_t n = list ? json_array_size(list) : strlen(pattern);
    if (n < 1 || n > MODEL_MAX_LAYERS || (config_key_present(&reader->source, reader->a->layers.name) && n != (size_t)reader->c->layers))
        return pt_fail(reader->e, PT_FAILED, "%s: \"%s\" has %zu entries, but \"%s\" is %lld (1 to %d layers are supported)",
                       reader->source.where, key, n, reader->a->layers.name, (long long)reader->c->layers, MODEL_MAX_LAYERS);
    reader->c->layers = (int64_t)n;
    return 0;
}

int config_read_branches(config_reader *reader)
{
    json_t *list = NULL;
    const char *pattern, *key;
    int status = find_list(reader, &list, &pattern, &key);
    reader->c->one_branch = true;
    for (int i = 0; i < reader->c->layers && !status; i++) {
        const char letter[2] = {pattern ? pattern[i] : 0, 0};
        const json_t *value = json_array_get(list, (size_t)i);
        const char *type = pattern ? letter : json_is_string(value) ? json_string_value(value) : "";
        size_t k = 0;
        for (; k < sizeof kinds / sizeof *kinds; k++)
            if (pattern ? !strcmp(type, kinds[k].letter) : !strcmp(type, kinds[k].type) || !strcmp(type, kinds[k].old))
                break;
        if (k == sizeof kinds / sizeof *kinds)
            return pt_fail(reader->e, PT_FAILED,
                           "%s: \"%s\"[%d] is \"%.40s\", which is not supported; supported are \"linear_attention\" (M), "
                           "\"full_attention\" (*), \"mlp\" (-) and \"moe\" (E)",
                           reader->source.where, key, i, type);
        reader->c->mixer[i] = (unsigned char)kinds[k].mixer;
        reader->c->sparse[i] = kinds[k].sparse;
    }
    return status;
}
