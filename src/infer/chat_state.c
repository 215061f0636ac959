/* chat_state.c - the end of a conversation. */
#include "infer/generator.h"

#include "text/buffer.h"

void chat_state_free(chat_state *c)
{
    if (c->open)
        chat_source_close(&c->source);
    json_decref(c->messages);
    text_buffer_free(&c->reply);
    *c = (chat_state){0};
}

void pt_generator_forget(pt_generator *g)
{
    if (g)
        chat_state_free(&g->chat);
}
