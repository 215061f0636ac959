/* gemma4_vocabulary.c - the tokenizer of Gemma 4, which llama.cpp reads by its merges, as they are, not by scores. It has U+2581 for
 * spaces, tokens for bytes, and a BOS before every text. */
#include "gguf/vocabulary_parts.h"

#include "base/json.h"
#include "base/units.h"
#include "io/files.h"

/* Is a space put before a text? */
static bool prepends(const tokenizer *tok)
{
    bool any = false;
    for (size_t i = 0; i < tok->normalizer.n; i++)
        any |= tok->normalizer.steps[i].kind == NORMALIZE_PREPEND;
    for (size_t i = 0; i < tok->pre.n; i++)
        any |= tok->pre.steps[i].kind == PRE_METASPACE && tok->pre.steps[i].prepend != PREPEND_NEVER;
    return any;
}

bool vocabulary_is_gemma4(const vocabulary *v)
{
    const merge_table *m = &v->tokenizer->model.merges;
    bool merges = false;
    for (size_t i = 0; m->entries && i <= m->mask; i++)
        merges |= m->entries[i].value != NO_MERGE;
    return v->gemma4 && merges && !v->tokenizer->model.byte_level && !prepends(v->tokenizer) && vocabulary_bos(v) >= 0;
}

/* The merges whose token has newlines beside other characters. */
static size_t merges_across_lines(const json_t *merges)
{
    size_t across = 0;
    for (size_t i = 0; i < json_array_size(merges); i++) {
        const json_t *merge = json_array_get(merges, i);
        bool line = false, other = false;
        for (size_t k = 0; k < 2; k++) {
            const char *text = json_string_value(json_is_string(merge) ? merge : json_array_get(merge, k));
            for (; text && *text; text++) {
                line |= *text == '\n';
                other |= *text != '\n' && (*text != ' ' || !json_is_string(merge));
            }
        }
        across += line && other;
    }
    return across;
}

int gguf_put_gemma4(gguf_writer *writer, const vocabulary *v, pt_error *e)
{
    char path[FILE_PATH_BYTES];
    json_source file;
    int status = path_join(path, v->folder, "tokenizer.json", e);
    if (!status)
        status = json_source_open(&file, path, e);
    if (status)
        return status;
    gguf_put_string(writer, "tokenizer.ggml.model", "gemma4");
    gguf_put_bool(writer, "tokenizer.ggml.add_space_prefix", false);
    gguf_begin_array(writer, "tokenizer.ggml.scores", GGUF_ARRAY_F32, (uint64_t)v->vocab);
    for (int64_t id = 0; id < v->vocab; id++)
        gguf_add_f32(writer, -1000); /* not used */
    const size_t across = merges_across_lines(json_object_get(json_object_get(file.object, "model"), "merges"));
    if (!tokenizer_template_adds_bos(v->tokenizer))
        vocabulary_tell(v, "llama.cpp begins every text of a Gemma 4 with the BOS token, which this tokenizer does not add");
    if (across)
        vocabulary_tell(v,
                        "llama.cpp cuts texts at newlines and does not apply %zu merge%s across them: it tokenizes some texts differently",
                        across, plural(across));
    status = vocabulary_put_merges(writer, path, file.object, e);
    json_source_close(&file);
    return status;
}
