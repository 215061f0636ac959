#include "train/companions.h"

#include "base/json.h"

#include <stdlib.h>
#include <string.h>

static const char *const file_names[COMPANIONS] = {
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.json", "merges.txt",
    "tokenizer.model", "generation_config.json", "chat_template.jinja", "chat_template.json", "preprocessor_config.json",
    "processor_config.json", "tekken.json"};
enum { TOKENIZER = 0, GENERATION_CONFIG = 7, CHAT_TEMPLATE = 8, BYTES_MOST = 1 << 30 };

/* As model_open_changed changed what it read. */
static int change(companions *companions, const char *where, const model_config *m, pt_error *e)
{
    json_t *text = m->multimodal ? json_object_get(companions->config, "text_config") : NULL;
    if (m->stored_vocab)
        model_set_vocab(text ? text : companions->config, m);
    if (m->stored_vocab && text && json_object_get(companions->config, "vocab_size"))
        model_set_vocab(companions->config, m);
    return m->rope_scaling[0] ? model_scale_rope(text ? text : companions->config, where, m->rope_scaling, e) : 0;
}

int companions_read(companions *c, const char *model_dir, const model *m, pt_error *e)
{
    char path[FILE_PATH_BYTES];
    *c = (companions){0};
    int failed = path_join(path, model_dir, "config.json", e);
    if (!failed)
        failed = json_file_load(path, 0, &c->config, e);
    if (!failed)
        failed = change(c, path, &m->config, e);
    if (!failed)
        failed = path_join(c->generation, model_dir, file_names[GENERATION_CONFIG], e);
    for (int i = 0; i < COMPANIONS && !failed; i++) {
        failed = path_join(path, model_dir, file_names[i], e);
        if (!failed && path_exists(path))
            failed = file_read_all(path, BYTES_MOST, &c->files[i].data, &c->files[i].n, e);
    }
    return failed;
}

int companions_take_template(companions *companions, const char *path, pt_error *e)
{
    char *data = NULL;
    size_t n;
    int failed = file_read_all(path, BYTES_MOST, &data, &n, e);
    if (failed)
        return failed;
    free(companions->files[CHAT_TEMPLATE].data);
    companions->files[CHAT_TEMPLATE].data = data;
    companions->files[CHAT_TEMPLATE].n = n;
    return 0;
}

void companions_take_labels(companions *companions, const model *m, const char *const *names, int64_t padding)
{
    model_set_labels(companions->config, &m->config, names);
    if (padding >= 0 && !json_is_integer(json_object_get(companions->config, "pad_token_id")))
        json_object_set_new(companions->config, "pad_token_id", json_integer((json_int_t)padding));
}

int companions_write_labels(const companions *companions, const char *folder, pt_error *e)
{
    char path[FILE_PATH_BYTES];
    json_t *all = json_pack("{s:O, s:O}", "id2label", json_object_get(companions->config, "id2label"), "label2id",
                            json_object_get(companions->config, "label2id"));
    int failed = all ? path_join(path, folder, LABELS_FILE, e) : pt_fail(e, PT_FAILED, "out of memory");
    if (!failed)
        failed = file_write_json(path, all, e);
    json_decref(all);
    return failed;
}

void companions_take_tokenizer(companions *companions, char *json, size_t n)
{
    free(companions->files[TOKENIZER].data);
    companions->files[TOKENIZER].data = json;
    companions->files[TOKENIZER].n = n;
}

int companions_take_tokenizer_of(companions *companions, const char *folder, pt_error *e)
{
    char path[FILE_PATH_BYTES], *json;
    size_t n;
    int failed = path_join(path, folder, file_names[TOKENIZER], e);
    if (failed || !path_exists(path))
        return failed;
    failed = file_read_all(path, BYTES_MOST, &json, &n, e);
    if (!failed)
        companions_take_tokenizer(companions, json, n);
    return failed;
}

const char *companions_tokenizer(const companions *companions, size_t *n)
{
    *n = companions->files[TOKENIZER].n;
    return companions->files[TOKENIZER].data;
}

/* ---- the ends of a text ---- */

/* "eos_token_id" is an id or a list. */
static void collect_ends(json_t *list, const json_t *value)
{
    for (size_t i = 0; i < json_array_size(value); i++)
        collect_ends(list, json_array_get(value, i));
    if (json_is_integer(value))
        json_array_append(list, (json_t *)value);
}

static bool names(const json_t *list, int64_t id)
{
    for (size_t i = 0; i < json_array_size(list); i++)
        if (json_integer_value(json_array_get(list, i)) == id)
            return true;
    return false;
}

/* What Transformers reads from config.json if there is no generation_config.json. */
static json_t *generation_of(const json_t *config)
{
    static const char *const keys[] = {"bos_token_id", "pad_token_id"};
    json_t *out = json_object();
    for (int i = 0; i < 2; i++)
        if (json_is_integer(json_object_get(config, keys[i])))
            json_object_set(out, keys[i], json_object_get(config, keys[i]));
    return out;
}

static json_t *ends_of(const companions *companions, const json_t *generation, int64_t usual)
{
    json_t *ends = json_array();
    collect_ends(ends, json_object_get(generation, "eos_token_id"));
    if (!json_array_size(ends))
        collect_ends(ends, json_object_get(companions->config, "eos_token_id"));
    if (!json_array_size(ends) && usual >= 0)
        json_array_append_new(ends, json_integer((json_int_t)usual));
    return ends;
}

static int open_generation(const companions *companions, json_t **out, pt_error *e)
{
    const char *text = companions->files[GENERATION_CONFIG].data;
    if (!text) {
        *out = generation_of(companions->config);
        return 0;
    }
    int failed = json_text_load(companions->generation, text, companions->files[GENERATION_CONFIG].n, 0, out, e);
    if (!failed && !json_is_object(*out)) {
        failed = pt_fail(e, PT_FAILED, "%.400s: it is %s, but an object is needed", companions->generation, json_type_name(*out));
        json_decref(*out);
    }
    return failed;
}

/* 15 digits show a number as it was written: 0.7 stays 0.7. */
static int set_generation(companions *companions, const json_t *generation, pt_error *e)
{
    char *text = json_dumps(generation, JSON_INDENT(2) | JSON_REAL_PRECISION(15));
    if (!text)
        return pt_fail(e, PT_FAILED, "out of memory");
    free(companions->files[GENERATION_CONFIG].data);
    companions->files[GENERATION_CONFIG].data = text;
    companions->files[GENERATION_CONFIG].n = strlen(text);
    return 0;
}

int companions_add_end(companions *companions, int64_t id, int64_t usual, bool *added, pt_error *e)
{
    json_t *generation;
    *added = false;
    int failed = open_generation(companions, &generation, e);
    if (failed)
        return failed;
    json_t *ends = ends_of(companions, generation, usual);
    if (!names(ends, id)) {
        *added = true;
        json_array_append_new(ends, json_integer((json_int_t)id));
        json_object_set(generation, "eos_token_id", ends);
        failed = set_generation(companions, generation, e);
    }
    json_decref(ends);
    json_decref(generation);
    return failed;
}

int companions_add_ends_of(companions *companions, const char *folder, int64_t usual, bool *added, pt_error *e)
{
    char path[FILE_PATH_BYTES];
    json_source file;
    *added = false;
    int failed = path_join(path, folder, file_names[GENERATION_CONFIG], e);
    if (failed || !path_exists(path))
        return failed;
    failed = json_source_open(&file, path, e);
    if (failed)
        return failed;
    json_t *ends = json_array();
    collect_ends(ends, json_object_get(file.object, "eos_token_id"));
    for (size_t i = 0; i < json_array_size(ends) && !failed; i++) {
        bool one;
        failed = companions_add_end(companions, json_integer_value(json_array_get(ends, i)), usual, &one, e);
        *added = *added || one;
    }
    json_decref(ends);
    json_source_close(&file);
    return failed;
}

/* ---- writing ---- */

static int write_config(const companions *companions, const char *folder, pt_dtype saved, const char *model_type, pt_error *e)
{
    static const char *const types[] = {[PT_F32] = "float32", [PT_BF16] = "bfloat16", [PT_F16] = "float16"};
    char path[FILE_PATH_BYTES];
    json_t *config = json_copy(companions->config);
    if (!config)
        return pt_fail(e, PT_FAILED, "out of memory");
    json_object_set_new(config, json_object_get(config, "dtype") ? "dtype" : "torch_dtype", json_string(types[saved]));
    json_object_del(config, "quantization_config"); /* weights are written unquantized */
    if (!json_is_string(json_object_get(config, "model_type")))
        json_object_set_new(config, "model_type", json_string(model_type));
    int failed = path_join(path, folder, "config.json", e);
    if (!failed)
        failed = file_write_json(path, config, e);
    json_decref(config);
    return failed;
}

int companions_write_files(const companions *companions, const char *folder, pt_error *e)
{
    char path[FILE_PATH_BYTES];
    int failed = 0;
    for (int i = 0; i < COMPANIONS && !failed; i++) {
        if (!companions->files[i].data)
            continue;
        failed = path_join(path, folder, file_names[i], e);
        if (!failed)
            failed = file_write_atomic(path, companions->files[i].data, companions->files[i].n, e);
    }
    return failed;
}

int companions_write(const companions *companions, const char *folder, pt_dtype saved, const char *model_type, pt_error *e)
{
    int failed = write_config(companions, folder, saved, model_type, e);
    return failed ? failed : companions_write_files(companions, folder, e);
}

void companions_free(companions *c)
{
    json_decref(c->config);
    for (int i = 0; i < COMPANIONS; i++)
        free(c->files[i].data);
    *c = (companions){0};
}

uint64_t companions_bytes(const char *model_dir, uint64_t more)
{
    char path[FILE_PATH_BYTES];
    struct stat st;
    uint64_t sum = 0;
    for (int i = 0; i < COMPANIONS; i++)
        if (!path_join(path, model_dir, file_names[i], NULL) && !stat(path, &st))
            sum += (uint64_t)st.st_size + more;
    return sum;
}
