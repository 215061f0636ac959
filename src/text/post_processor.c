#include "text/post_processor.h"

#include "text/buffer.h"

#include <string.h>

static int read_id(const json_t *value, id_list *out, pt_error *e)
{
    json_int_t id = json_integer_value(value);
    if (!json_is_integer(value) || id < 0 || id > UINT32_MAX)
        return pt_fail(e, PT_FAILED, "post_processor: an id is no number from 0; correct the file");
    return id_list_push(out, (uint32_t)id, e);
}

static int read_special(const json_t *section, const json_t *item, id_list *out, pt_error *e)
{
    const json_t *name = json_object_get(item, "id");
    const json_t *all = json_object_get(section, "special_tokens");
    const json_t *ids = json_is_string(name) ? json_object_get(json_object_get(all, json_string_value(name)), "ids") : NULL;
    if (!json_is_array(ids))
        return pt_fail(e, PT_FAILED, "post_processor: special_tokens has no ids of \"%.60s\"; add them",
                       json_is_string(name) ? json_string_value(name) : "(no string)");
    int status = 0;
    for (size_t i = 0; i < json_array_size(ids) && !status; i++)
        status = read_id(json_array_get(ids, i), out, e);
    return status;
}

static int read_template(const json_t *section, post_processor *w, pt_error *e)
{
    const json_t *single = json_object_get(section, "single");
    int n_texts = 0, status = 0;
    for (size_t i = 0; i < json_array_size(single) && !status; i++) {
        const json_t *item = json_array_get(single, i), *special = json_object_get(item, "SpecialToken");
        const json_t *text = json_object_get(json_object_get(item, "Sequence"), "id");
        if (special)
            status = read_special(section, special, n_texts ? &w->after : &w->before, e);
        else if (json_is_string(text) && strcmp(json_string_value(text), "A") == 0)
            n_texts++;
        else
            status = pt_fail(e, PT_FAILED, "post_processor: single[%zu] is neither a SpecialToken nor Sequence A; correct it", i);
    }
    if (!status && n_texts != 1)
        return pt_fail(e, PT_FAILED, "post_processor: \"single\" holds Sequence A %d times, not once; correct the template", n_texts);
    return status;
}

/* BertProcessing, RobertaProcessing: "cls": [token, id] before, "sep": [token, id] after. */
static int read_cls_sep(const json_t *section, post_processor *w, pt_error *e)
{
    int status = read_id(json_array_get(json_object_get(section, "cls"), 1), &w->before, e);
    return status ? status : read_id(json_array_get(json_object_get(section, "sep"), 1), &w->after, e);
}

/* Puts the ids of a step around those of the earlier steps of a Sequence. */
static int wrap(post_processor *p, post_processor *w, pt_error *e)
{
    int status = id_list_append(&w->before, &p->before, e);
    if (status)
        return status;
    id_list inner = p->before;
    p->before = w->before;
    w->before = inner;
    return id_list_append(&p->after, &w->after, e);
}

static int read_section(post_processor *p, const json_t *section, pt_error *e)
{
    const json_t *type = json_object_get(section, "type");
    const char *name = json_is_string(type) ? json_string_value(type) : "(none)";
    post_processor w = {0}; /* the ids that this step adds */
    int status = 0;
    if (strcmp(name, "Sequence") == 0) {
        const json_t *list = json_object_get(section, "processors");
        if (!json_is_array(list))
            return pt_fail(e, PT_FAILED, "post_processor: a Sequence without the array \"processors\"; write it");
        for (size_t i = 0; i < json_array_size(list) && !status; i++)
            status = read_section(p, json_array_get(list, i), e);
        return status;
    }
    if (strcmp(name, "ByteLevel") == 0)
        return 0;
    if (strcmp(name, "TemplateProcessing") == 0)
        status = read_template(section, &w, e);
    else if (strcmp(name, "BertProcessing") == 0 || strcmp(name, "RobertaProcessing") == 0)
        status = read_cls_sep(section, &w, e);
    else
        status = pt_fail(e, PT_FAILED,
                         "post_processor: type \"%.60s\" is not supported (TemplateProcessing, ByteLevel, BertProcessing, "
                         "RobertaProcessing and Sequence are); use a tokenizer without it",
                         name);
    if (!status)
        status = wrap(p, &w, e);
    post_processor_close(&w);
    return status;
}

int post_processor_open(post_processor *p, const json_t *section, pt_error *e)
{
    *p = (post_processor){0};
    return !section || json_is_null(section) ? 0 : read_section(p, section, e);
}

void post_processor_close(post_processor *p)
{
    id_list_free(&p->before);
    id_list_free(&p->after);
}
