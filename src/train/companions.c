#include "train/companions.h"

#include "base/json.h"
#include "io/files.h"

#include <stdlib.h>

static const char *const names[COMPANIONS] = {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
                                              "vocab.json", "merges.txt", "tokenizer.model", "generation_config.json",
                                              "chat_template.jinja", "chat_template.json", "preprocessor_config.json",
                                              "processor_config.json", "tekken.json"};
enum { CHAT_TEMPLATE = 8, BYTES_MOST = 1 << 30 };

int companions_read(companions *c, const char *model_dir, pt_error *e)
{
    char path[FILE_PATH_BYTES];
    *c = (companions){0};
    int failed = path_join(path, model_dir, "config.json", e);
    if (!failed)
        failed = json_file_load(path, 0, &c->config, e);
    for (int i = 0; i < COMPANIONS && !failed; i++) {
        failed = path_join(path, model_dir, names[i], e);
        if (!failed && path_exists(path))
            failed = file_read_all(path, BYTES_MOST, &c->files[i].data, &c->files[i].n, e);
    }
    return failed;
}

int companions_take_template(companions *c, const char *path, pt_error *e)
{
    char *data = NULL;
    size_t n;
    int failed = file_read_all(path, BYTES_MOST, &data, &n, e);
    if (failed)
        return failed;
    free(c->files[CHAT_TEMPLATE].data);
    c->files[CHAT_TEMPLATE].data = data;
    c->files[CHAT_TEMPLATE].n = n;
    return 0;
}

static int write_config(const companions *c, const char *folder, pt_dtype saved, const char *model_type, pt_error *e)
{
    static const char *const types[] = {[PT_F32] = "float32", [PT_BF16] = "bfloat16", [PT_F16] = "float16"};
    char path[FILE_PATH_BYTES];
    json_t *config = json_copy(c->config);
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

int companions_write_files(const companions *c, const char *folder, pt_error *e)
{
    char path[FILE_PATH_BYTES];
    int failed = 0;
    for (int i = 0; i < COMPANIONS && !failed; i++) {
        if (!c->files[i].data)
            continue;
        failed = path_join(path, folder, names[i], e);
        if (!failed)
            failed = file_write_atomic(path, c->files[i].data, c->files[i].n, e);
    }
    return failed;
}

int companions_write(const companions *c, const char *folder, pt_dtype saved, const char *model_type, pt_error *e)
{
    int failed = write_config(c, folder, saved, model_type, e);
    return failed ? failed : companions_write_files(c, folder, e);
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
        if (!path_join(path, model_dir, names[i], NULL) && !stat(path, &st))
            sum += (uint64_t)st.st_size + more;
    return sum;
}
