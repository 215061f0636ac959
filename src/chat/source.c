#include "chat/source.h"

#include "base/json.h"
#include "base/sum.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TEMPLATE_MOST_BYTES = 4 << 20 };

static int path_in(const char *dir, const char *name, char path[4096], pt_error *e)
{
    if (snprintf(path, 4096, "%s/%s", dir, name) >= 4096)
        return pt_fail(e, PT_FAILED, "%.400s: the path is too long", dir);
    return 0;
}

/* ---- special tokens ---- */

static int add_tokens(json_t *tokens, const char *path, pt_error *e)
{
    static const char *const names[] = {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"};
    json_source file;
    if (access(path, F_OK))
        return 0;
    int failed = json_source_open(&file, path, e);
    if (failed)
        return failed;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        json_t *token = json_object_get(file.object, names[i]);
        if (json_is_object(token))
            token = json_object_get(token, "content");
        if (json_is_string(token) && !json_object_get(tokens, names[i]))
            json_object_set(tokens, names[i], token);
    }
    json_source_close(&file);
    return 0;
}

static int read_special_tokens(chat_source *s, const char *dir, pt_error *e)
{
    char path[4096];
    s->special_tokens = json_object();
    int failed = path_in(dir, "tokenizer_config.json", path, e);
    if (!failed)
        failed = add_tokens(s->special_tokens, path, e);
    if (!failed)
        failed = path_in(dir, "special_tokens_map.json", path, e);
    return failed ? failed : add_tokens(s->special_tokens, path, e);
}

/* ---- templates ---- */

static int text_of_file(const char *path, chat_text *out, pt_error *e)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return pt_fail_errno(e, PT_FAILED, "%.400s: cannot be opened", path);
    FILE *f = fdopen(fd, "rb");
    char *text = malloc(TEMPLATE_MOST_BYTES + 1);
    int failed = 0;
    size_t n = 0;
    if (!f || !text)
        failed = pt_fail(e, PT_FAILED, "%.400s: out of memory", path);
    else if (fstat(fd, &st) || !S_ISREG(st.st_mode))
        failed = pt_fail(e, PT_FAILED, "%.400s: this is not a regular file", path);
    else if ((n = fread(text, 1, TEMPLATE_MOST_BYTES + 1, f)) > TEMPLATE_MOST_BYTES)
        failed = pt_fail(e, PT_FAILED, "%.400s: the file has more than %d MiB, too much for a chat template", path,
                         TEMPLATE_MOST_BYTES >> 20);
    else if (ferror(f))
        failed = pt_fail_errno(e, PT_FAILED, "%.400s: cannot be read", path);
    if (f)
        fclose(f);
    else
        close(fd);
    if (failed) {
        free(text);
        return failed;
    }
    *out = (chat_text){.text = text, .n = n};
    snprintf(out->where, sizeof out->where, "%s", path);
    return 0;
}

static int text_of_value(const char *path, const json_t *value, chat_text *out, pt_error *e)
{
    if (!json_is_string(value))
        return pt_fail(e, PT_FAILED, "%.400s: chat_template is %s, but a string is needed", path, json_type_name(value));
    out->n = json_string_length(value);
    out->text = malloc(out->n + 1);
    if (!out->text)
        return pt_fail(e, PT_FAILED, "%.400s: out of memory", path);
    memcpy(out->text, json_string_value(value), out->n + 1);
    snprintf(out->where, sizeof out->where, "%s: chat_template", path);
    return 0;
}

static const json_t *named(const json_t *list, const char *name)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *own = json_string_value(json_object_get(json_array_get(list, i), "name"));
        if (own && !strcmp(own, name))
            return json_object_get(json_array_get(list, i), "template");
    }
    return NULL;
}

static int texts_of_list(chat_texts *s, const char *path, const json_t *list, pt_error *e)
{
    const json_t *plain = named(list, "default"), *tools = named(list, "tool_use");
    int failed = 0;
    if (!plain && !tools)
        return pt_fail(e, PT_FAILED,
                       "%.400s: chat_template has several templates, but none is named default: write the one to use into a file and give "
                       "it with `chat_template`",
                       path);
    if (plain)
        failed = text_of_value(path, plain, &s->plain, e);
    if (!failed && tools)
        failed = text_of_value(path, tools, &s->with_tools, e);
    return failed;
}

/* Reads the key chat_template of a JSON file, if both exist. */
static int texts_of_json(chat_texts *s, const char *path, pt_error *e)
{
    json_source file;
    if (access(path, F_OK))
        return 0;
    int failed = json_source_open(&file, path, e);
    if (failed)
        return failed;
    const json_t *value = json_object_get(file.object, "chat_template");
    if (json_is_array(value))
        failed = texts_of_list(s, path, value, e);
    else if (value && !json_is_null(value))
        failed = text_of_value(path, value, &s->plain, e);
    json_source_close(&file);
    return failed;
}

int chat_texts_find(chat_texts *s, const char *dir, pt_error *e)
{
    char path[4096];
    *s = (chat_texts){0};
    int failed = path_in(dir, "chat_template.jinja", path, e);
    if (!failed && !access(path, F_OK))
        failed = text_of_file(path, &s->plain, e);
    if (!failed && s->plain.text && !path_in(dir, "chat_templates/tool_use.jinja", path, e) && !access(path, F_OK))
        failed = text_of_file(path, &s->with_tools, e);
    static const char *const files[] = {"tokenizer_config.json", "chat_template.json"};
    for (int i = 0; i < 2 && !failed && !s->plain.text && !s->with_tools.text; i++)
        if (!(failed = path_in(dir, files[i], path, e)))
            failed = texts_of_json(s, path, e);
    if (failed)
        chat_texts_free(s);
    return failed;
}

void chat_texts_free(chat_texts *s)
{
    free(s->plain.text);
    free(s->with_tools.text);
    *s = (chat_texts){0};
}

const char *chat_template_file(const char *given, const char *adapter, char *path)
{
    if (given || !adapter || path_in(adapter, "chat_template.jinja", path, NULL) || access(path, R_OK))
        return given;
    return path;
}

int chat_texts_of_file(chat_texts *s, const char *file, pt_error *e)
{
    *s = (chat_texts){0};
    return text_of_file(file, &s->plain, e);
}

static int find_texts(chat_texts *s, const char *dir, const char *file, pt_error *e)
{
    if (file)
        return chat_texts_of_file(s, file, e);
    const int failed = chat_texts_find(s, dir, e);
    if (!failed && !s->plain.text && !s->with_tools.text)
        return pt_fail(e, PT_FAILED,
                       "%.400s: the model has no chat template, neither chat_template.jinja nor the key chat_template of "
                       "tokenizer_config.json: give one with `chat_template` (protrain's examples/chatml.jinja for a tokenizer with "
                       "<|im_start|>, examples/turns.jinja for any other)",
                       dir);
    return failed;
}

static int parse_text(const chat_text *text, chat_template **out, pt_error *e)
{
    return text->text ? chat_template_parse(text->where, text->text, text->n, out, e) : 0;
}

int chat_source_open(chat_source *s, const char *model_dir, const char *file, pt_error *e)
{
    chat_texts texts = {0};
    *s = (chat_source){0};
    int failed = read_special_tokens(s, model_dir, e);
    if (!failed)
        failed = find_texts(&texts, model_dir, file, e);
    if (!failed)
        failed = parse_text(&texts.plain, &s->plain, e);
    if (!failed)
        failed = parse_text(&texts.with_tools, &s->with_tools, e);
    chat_texts_free(&texts);
    if (failed)
        chat_source_close(s);
    else if (!s->with_tools)
        s->with_tools = s->plain;
    return failed;
}

void chat_source_close(chat_source *s)
{
    if (s->with_tools != s->plain)
        chat_template_free(s->with_tools);
    chat_template_free(s->plain);
    json_decref(s->special_tokens);
    *s = (chat_source){0};
}

uint64_t chat_source_sum(const chat_source *s)
{
    char *tokens = json_dumps(s->special_tokens, JSON_COMPACT | JSON_SORT_KEYS);
    const uint64_t plain = s->plain ? chat_template_sum(s->plain) : 0, tools = s->with_tools ? chat_template_sum(s->with_tools) : 0;
    const uint64_t sum = sum_bytes(plain, tools, tokens ? tokens : "", tokens ? strlen(tokens) : 0);
    free(tokens);
    return sum;
}

/* ---- conversations ---- */

static json_t *reasoning_of(const json_t *message)
{
    static const char *const names[] = {"reasoning_content", "thinking", "reasoning"};
    json_t *found = NULL;
    for (int i = 0; i < 3 && !found; i++) {
        found = json_object_get(message, names[i]);
        if (json_is_null(found))
            found = NULL;
    }
    return found;
}

/* A copy of a message without null values, and with its reasoning under the names that templates read. */
static json_t *prepared(const json_t *message)
{
    json_t *out = json_object(), *reasoning = reasoning_of(message), *value;
    const char *key;
    if (reasoning)
        json_object_set(out, "thinking", reasoning);
    json_object_foreach((json_t *)message, key, value)
        if (!json_is_null(value))
            json_object_set(out, key, value);
    if (reasoning)
        json_object_set(out, "reasoning_content", reasoning);
    return out;
}

static int add_messages(const json_t *messages, const char *where, json_t *variables, pt_error *e)
{
    json_t *out = json_array();
    json_object_set_new(variables, "messages", out);
    if (!json_is_array(messages) || !json_array_size(messages))
        return pt_fail(e, PT_FAILED, "%.400s: messages is %s, but a list of one message or more is needed", where,
                       json_is_array(messages) ? "an empty list" : json_type_name(messages));
    for (size_t i = 0; i < json_array_size(messages); i++) {
        const json_t *message = json_array_get(messages, i);
        if (!json_is_object(message) || !json_is_string(json_object_get(message, "role")))
            return pt_fail(e, PT_FAILED, "%.400s: message %zu is not an object with a \"role\"", where, i + 1);
        json_array_append_new(out, prepared(message));
    }
    return 0;
}

/* Tools are a list, or a list as JSON text. */
static int add_tools(const json_t *tools, const char *where, json_t *variables, pt_error *e)
{
    json_t *list = NULL;
    if (json_is_string(tools)) {
        char name[512];
        snprintf(name, sizeof name, "%.400s: tools", where);
        int failed = json_text_load(name, json_string_value(tools), json_string_length(tools), 0, &list, e);
        if (failed)
            return failed;
    } else if (tools)
        list = json_incref((json_t *)tools);
    else
        list = json_null();
    if (json_is_array(list) && !json_array_size(list)) {
        json_decref(list);
        list = json_null();
    }
    const bool right = json_is_array(list) || json_is_null(list);
    json_object_set_new(variables, "tools", list);
    return right ? 0 : pt_fail(e, PT_FAILED, "%.400s: tools is %s, but a list is needed", where, json_type_name(list));
}

int chat_variables(const json_t *conversation, const char *where, json_t **out, pt_error *e)
{
    json_t *variables = json_object();
    const bool is_list = json_is_array(conversation);
    *out = NULL;
    if (!is_list && !json_is_object(conversation)) {
        json_decref(variables);
        return pt_fail(e, PT_FAILED, "%.400s: a conversation is needed, a list of messages or {\"messages\": [...]}, not %s", where,
                       json_type_name(conversation));
    }
    json_t *extra = is_list ? NULL : json_object_get(conversation, "chat_template_kwargs");
    json_object_set_new(variables, "documents", json_null());
    int failed = add_messages(is_list ? conversation : json_object_get(conversation, "messages"), where, variables, e);
    if (!failed)
        failed = add_tools(is_list ? NULL : json_object_get(conversation, "tools"), where, variables, e);
    if (!failed && json_is_object(extra))
        json_object_update(variables, extra);
    if (failed)
        json_decref(variables);
    else
        *out = variables;
    return failed;
}
