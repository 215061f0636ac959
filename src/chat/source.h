/* source.h - a model's chat template, and the variables that Transformers passes to it. */
#ifndef PT_CHAT_SOURCE_H
#define PT_CHAT_SOURCE_H

#include "chat/template.h"

typedef struct chat_text {
    char *text;         /* NULL: there is none */
    size_t n;
    char where[4200];   /* for errors */
} chat_text;

/* The templates of a model's folder, not parsed: from the first that exists of chat_template.jinja, "chat_template" of
 * tokenizer_config.json (one template, or named ones, of which default and tool_use are used), and chat_template.json. Both NULL: none. */
typedef struct chat_texts {
    chat_text plain, with_tools;
} chat_texts;
int chat_texts_find(chat_texts *s, const char *model_dir, pt_error *e);
int chat_texts_of_file(chat_texts *s, const char *file, pt_error *e); /* one template */
void chat_texts_free(chat_texts *s);

typedef struct chat_source {
    chat_template *plain, *with_tools; /* the same if there is only one */
    json_t *special_tokens;            /* bos_token, eos_token ... : strings */
} chat_source;

/* The file of a template that replaces the model's: `given`, else the adapter folder's, written to path (4096 bytes). NULL: there is none.
 * Both arguments may be NULL. */
const char *chat_template_file(const char *given, const char *adapter, char *path);

/* Opens `file` (--chat-template), or if it is NULL the folder's templates; tool_use is for conversations with tools. PT_FAILED: there is
 * none, or it cannot be parsed. */
int chat_source_open(chat_source *s, const char *model_dir, const char *file, pt_error *e);
void chat_source_close(chat_source *s);
uint64_t chat_source_sum(const chat_source *s); /* differs if conversations may be rendered differently */

/* The variables of a conversation as a new object. `conversation` is {"messages": [...], "tools": [...]} or the list of messages. As in
 * Transformers, null values are removed, reasoning gets its aliases, and tools are null if absent. Special tokens are not included. */
int chat_variables(const json_t *conversation, const char *where, json_t **out, pt_error *e);

#endif
