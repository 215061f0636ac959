/* source.h - where a model's chat template is, and what Transformers gives to it. */
#ifndef PT_CHAT_SOURCE_H
#define PT_CHAT_SOURCE_H

#include "chat/template.h"

typedef struct chat_text {
    char *text;         /* NULL: there is none */
    size_t n;
    char where[4200];   /* for messages */
} chat_text;

/* What stands in a model's folder, whether it can be parsed or not: the first there is of chat_template.jinja, "chat_template" of
 * tokenizer_config.json (one, or named ones, of which default and tool_use are taken), chat_template.json. None: both are NULL. */
typedef struct chat_texts {
    chat_text plain, with_tools;
} chat_texts;
int chat_texts_find(chat_texts *s, const char *model_dir, pt_error *e);
void chat_texts_free(chat_texts *s);

typedef struct chat_source {
    chat_template *plain, *with_tools; /* the same where there is one for both */
    json_t *special_tokens;            /* bos_token, eos_token ... as strings */
} chat_source;

/* The file of a chat template that stands in place of the model's: the one that is given, else that of the adapter's folder, put into path
 * (4096 bytes). NULL: there is none. Both may be NULL. */
const char *chat_template_file(const char *given, const char *adapter, char *path);

/* `file` (--chat-template), or where it is NULL what the folder has; tool_use is taken where there are tools. PT_FAILED: there is none, or
 * it is broken. */
int chat_source_open(chat_source *s, const char *model_dir, const char *file, pt_error *e);
void chat_source_close(chat_source *s);
uint64_t chat_source_sum(const chat_source *s); /* changes when a conversation may be rendered otherwise */

/* The variables of a conversation, a new object: {"messages": [...], "tools": [...]} or the list alone, as Transformers prepares it: keys
 * that are null go, reasoning has its aliases, tools are null where absent. Special tokens are not in it. */
int chat_variables(const json_t *conversation, const char *where, json_t **out, pt_error *e);

#endif
