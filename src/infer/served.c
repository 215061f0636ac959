#include "infer/served.h"

#include "infer/generator.h"

#include "chat/prompt.h"

#include <string.h>
#include <time.h>

reply_sampling generator_sampling(const pt_generator *g)
{
    return (reply_sampling){g->o.temperature, g->o.top_p, g->o.top_k, g->o.seed};
}

void generator_sample_as(pt_generator *g, reply_sampling s)
{
    g->sampler.temperature = s.temperature;
    g->sampler.top_p = s.top_p;
    g->sampler.top_k = s.top_k;
    g->sampler.seed = s.seed;
}

bool generator_is_cut(const pt_generator *g) { return g->made == g->most && !stops_has(&g->stops, g->last); }

/* The messages, after the options' system message if they have none. NULL: out of memory. */
static json_t *with_system(const pt_generator *g, const json_t *messages)
{
    const char *role = json_string_value(json_object_get(json_array_get(messages, 0), "role"));
    json_t *all = json_copy((json_t *)messages); /* of the list alone */
    const bool has = role && (!strcmp(role, "system") || !strcmp(role, "developer"));
    if (all && g->o.system && !has)
        json_array_insert_new(all, 0, json_pack("{s:s, s:s}", "role", "system", "content", g->o.system));
    return all;
}

int generator_converse(pt_generator *g, const json_t *messages, int64_t max_new_tokens, pt_error *e)
{
    g->ended = true;
    g->spoken = false;
    g->chat.replying = true;
    g->chat.reply.n = 0;
    int failed = g->chat.open ? 0 : chat_open(g, e);
    json_t *all = failed ? NULL : with_system(g, messages);
    if (!failed && !all)
        failed = pt_fail(e, PT_FAILED, "out of memory");
    if (!failed)
        failed = chat_prompt(&g->chat.source, g->tokenizer, g->encoder, all, g->o.plain_contents, "\"messages\"", time(NULL),
                             &g->prompt, e);
    json_decref(all);
    return failed ? failed : generator_start(g, max_new_tokens, e);
}
