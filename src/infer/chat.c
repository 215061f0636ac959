/* chat.c - pt_generator_say: turns of a conversation. Each turn renders the whole conversation with the template; the KV cache of the ids
 * that were fed before is kept as far as they are its beginning. */
#include "infer/generator.h"

#include "chat/prompt.h"
#include "text/buffer.h"

#include <stdio.h>
#include <string.h>

static int add_message(chat_state *c, const char *role, const char *text, size_t n, pt_error *e)
{
    json_t *content = json_stringn(n ? text : "", n), *message = content ? json_pack("{s:s, s:o}", "role", role, "content", content) : NULL;
    if (!message || json_array_append_new(c->messages, message))
        return pt_fail(e, PT_FAILED, "a message of the role \"%s\" is not UTF-8, or there is no memory for its %zu bytes", role, n);
    return 0;
}

int chat_open(pt_generator *g, pt_error *e)
{
    chat_state *c = &g->chat;
    char path[FILE_PATH_BYTES];
    int failed = chat_source_open(&c->source, g->folder, chat_template_file(g->o.chat_template, g->o.adapter, path), e);
    if (failed)
        return failed;
    c->open = true;
    c->messages = json_array();
    stops_add(&g->stops, g->model, chat_turn_end(&c->source, g->tokenizer, g->encoder, time(NULL)));
    return g->o.system ? add_message(c, "system", g->o.system, strlen(g->o.system), e) : 0;
}

static int add_turn(pt_generator *g, const char *text, size_t bytes, pt_error *e)
{
    chat_state *c = &g->chat;
    const json_t *last = json_array_get(c->messages, json_array_size(c->messages) - 1);
    const char *role = json_string_value(json_object_get(last, "role"));
    const bool replied = role && !strcmp(role, "user");
    int failed = replied ? add_message(c, "assistant", c->reply.bytes, c->reply.n, e) : 0;
    c->reply.n = 0;
    return failed ? failed : add_message(c, "user", text, bytes, e);
}

/* The state before the turn that failed. */
static void take_back(chat_state *c, size_t messages, size_t reply)
{
    while (json_array_size(c->messages) > messages)
        json_array_remove(c->messages, json_array_size(c->messages) - 1);
    c->reply.n = reply;
}

int pt_generator_say(pt_generator *g, const char *text, size_t bytes, int64_t max_new_tokens, pt_error *e)
{
    if (!g)
        return pt_fail_null(e, "pt_generator_say", "the generator");
    if (!(text || !bytes))
        return pt_fail_null(e, "pt_generator_say", "the text");
    g->ended = true;
    g->spoken = false;
    g->chat.replying = true;
    int failed = g->chat.open ? 0 : chat_open(g, e);
    if (failed)
        return failed;
    const size_t messages = json_array_size(g->chat.messages), reply = g->chat.reply.n;
    failed = add_turn(g, text, bytes, e);
    if (!failed)
        failed = chat_prompt(&g->chat.source, g->tokenizer, g->encoder, g->chat.messages, g->o.plain_contents,
                             "the conversation", time(NULL), &g->prompt, e);
    if (!failed)
        failed = generator_start(g, max_new_tokens, e);
    if (failed)
        take_back(&g->chat, messages, reply);
    return failed;
}
