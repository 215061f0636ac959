#include "chat/replies.h"

#include "chat/prompt.h"
#include "text/buffer.h"
#include "text/plain_mark.h"

#include <stdlib.h>
#include <string.h>

size_t chat_common(const text_buffer *x, const text_buffer *y)
{
    size_t n = 0;
    while (n < x->n && n < y->n && x->bytes[n] == y->bytes[n])
        n++;
    return n;
}

unsigned chat_flags(const chat_call *call) { return call->wish->plain ? ENCODE_MARKED : 0; }

int chat_encode(encoder *encoder, unsigned flags, const char *where, const char *text, size_t n, id_list *ids, pt_error *e)
{
    const int failed = encoder_run(encoder, text, n, flags, ids, e);
    return failed ? pt_error_prefix(e, "%.300s", where) : 0;
}

int chat_render(const chat_call *call, const json_t *variables, chat_rendering *out)
{
    int failed = chat_template_render(call->template, variables, call->wish->now, out, call->error);
    return failed ? pt_error_prefix(call->error, "%.300s", call->wish->where) : 0;
}

int chat_render_first(const chat_call *call, size_t n, bool prompt, chat_rendering *out)
{
    json_t *all = json_object_get(call->variables, "messages"), *some = json_array(), *variables = json_copy(call->variables);
    for (size_t i = 0; i < n; i++)
        json_array_append(some, json_array_get(all, i));
    json_object_set_new(variables, "messages", some);
    json_object_set_new(variables, "add_generation_prompt", json_boolean(prompt));
    int failed = chat_render(call, variables, out);
    json_decref(variables);
    return failed;
}

static bool is_blank(char c) { return c && strchr(" \t\r\n", c); }

static bool is_role(const json_t *messages, size_t i, const char *wanted)
{
    const char *role = json_string_value(json_object_get(json_array_get(messages, i), "role"));
    return role && !strcmp(role, wanted);
}

bool chat_is_reply(const chat_call *call, size_t i) { return is_role(json_object_get(call->variables, "messages"), i, "assistant"); }

bool chat_is_special(const tokenizer *tok, uint32_t id)
{
    const char *bytes;
    size_t shown = 0, hidden = 0;
    pt_error ignored;
    return !tokenizer_id_bytes(tok, id, false, false, &bytes, &shown, &ignored) &&
           !tokenizer_id_bytes(tok, id, false, true, &bytes, &hidden, &ignored) && shown && !hidden;
}

/* The end of the special token with which a text begins, after white space; 0: it begins otherwise. */
static int first_special(const chat_call *call, const char *s, size_t n, size_t *behind)
{
    enum { LONGEST = 256 };
    id_list ids = {0};
    size_t blank = 0, length = 0;
    const char *bytes;
    *behind = 0;
    while (blank < n && is_blank(s[blank]))
        blank++;
    size_t looked = n - blank < LONGEST ? n - blank : LONGEST;
    while (looked < n - blank && (s[blank + looked] & 0xc0) == 0x80)
        looked--;
    int failed = chat_encode(call->encoder, chat_flags(call), call->wish->where, s + blank, looked, &ids, call->error);
    if (!failed && ids.n && chat_is_special(call->tokenizer, ids.ids[0])) {
        failed = tokenizer_id_bytes(call->tokenizer, ids.ids[0], false, false, &bytes, &length, call->error);
        /* The tokenizer may have normalized the text before it found the token: then the token is not in this text. */
        const bool literal = !failed && length <= n - blank && !memcmp(s + blank, bytes, length);
        *behind = literal ? blank + length : 0;
    }
    id_list_free(&ids);
    return failed;
}

typedef struct reply_search {
    chat_rendering prompted, with, other; /* the conversation up to a reply's prompt; the whole with two other replies */
    const char *token;                    /* special token that ended another reply, in the whole rendering; NULL: unknown */
    size_t token_n;
    bool learned;                         /* that token was searched for */
    size_t ended_n;                       /* length of the special token that ended the last reply searched; 0: none did */
} reply_search;

/* Without its special tokens, a reply's end often cannot be told from what follows. */
static int fail_reply(const chat_call *call, size_t i, const char *what)
{
    char mark[CHAT_MARK_BYTES];
    if (chat_foreign_mark_in(&call->out->rendering.text, call->tokenizer, mark))
        return pt_fail(call->error, PT_FAILED,
                       "%.300s: %s of the reply in message %zu cannot be found, and the tokenizer has no token %s, which is in the "
                       "rendered text: give a template for this tokenizer by `chat_template`, or mark the replies by {%% generation %%} in "
                       "a copy of this one", call->wish->where, what, i + 1, mark);
    return pt_fail(call->error, PT_FAILED,
                   "%.300s: %s of the reply in message %zu cannot be found: the template writes it otherwise here than alone; mark the "
                   "replies by {%% generation %%} in a copy of the template and give it by `chat_template`",
                   call->wish->where, what, i + 1);
}

/* Renders reply i with other content. `plain`: without its tool calls and their consequences, up to the user's next message. */
static json_t *other_messages(const chat_call *call, size_t i, const char *content, bool plain)
{
    json_t *messages = json_copy(json_object_get(call->variables, "messages")), *reply = json_copy(json_array_get(messages, i));
    const bool parts = json_is_array(json_object_get(reply, "content"));
    json_object_set_new(reply, "content", parts ? json_pack("[{s:s, s:s}]", "type", "text", "text", content) : json_string(content));
    json_array_set_new(messages, i, reply);
    if (!plain)
        return messages;
    json_object_del(reply, "tool_calls");
    while (i + 1 < json_array_size(messages) && !is_role(messages, i + 1, "user"))
        json_array_remove(messages, i + 1);
    return messages;
}

static int render_messages(const chat_call *call, json_t *messages, chat_rendering *out)
{
    json_t *variables = json_copy(call->variables);
    json_object_set_new(variables, "messages", messages);
    json_object_set_new(variables, "add_generation_prompt", json_false());
    int failed = chat_render(call, variables, out);
    json_decref(variables);
    return failed;
}

static size_t common_end(const text_buffer *x, const text_buffer *y)
{
    size_t n = 0;
    while (n < x->n && n < y->n && x->bytes[x->n - 1 - n] == y->bytes[y->n - 1 - n])
        n++;
    return n;
}

bool chat_has_calls(const chat_call *call, size_t i)
{
    return json_array_size(json_object_get(json_array_get(json_object_get(call->variables, "messages"), i), "tool_calls")) > 0;
}

/* Renders the first n messages, which a template may refuse though it accepts the whole: most look at the first message, which the prompt
 * of a chat that begins with a reply does not have. */
static bool renders_first(const chat_call *call, size_t n, bool prompt, chat_rendering *out)
{
    pt_error ignored;
    chat_call quiet = *call;
    quiet.error = &ignored;
    return !chat_render_first(&quiet, n, prompt, out);
}

/* The end of the prompt for reply i, if the whole rendering begins with it; else SIZE_MAX. */
static size_t start_by_prompt(const chat_call *call, reply_search *s, size_t i)
{
    const bool renders = renders_first(call, i, true, &s->prompted);
    const size_t n = s->prompted.text.n;
    return renders && chat_common(&s->prompted.text, &call->out->rendering.text) == n ? n : SIZE_MAX;
}

static int render_others(const chat_call *call, reply_search *s, size_t i, bool plain)
{
    int failed = render_messages(call, other_messages(call, i, "q1w", plain), &s->with);
    return failed ? failed : render_messages(call, other_messages(call, i, "z2k", plain), &s->other);
}

/* Does the whole rendering begin with what the template writes before any reply here? Blanks before a plain reply do not count. */
static bool start_by_others(const chat_call *call, const reply_search *s, bool plain, size_t *start)
{
    const size_t before = chat_common(&s->with.text, &s->other.text), same = chat_common(&s->with.text, &call->out->rendering.text);
    *start = before;
    while (plain && *start > same && is_blank(s->with.text.bytes[*start - 1]))
        --*start;
    return before < s->with.text.n && same >= *start;
}

/* A template may omit the content of a reply with tool calls; a plain reply shows where it begins. */
static int start_of_reply(const chat_call *call, reply_search *s, size_t i, size_t *start)
{
    pt_error ignored;
    chat_call quiet = *call;
    int failed = render_others(call, s, i, false);
    *start = failed ? SIZE_MAX : start_by_prompt(call, s, i);
    if (failed || *start != SIZE_MAX || start_by_others(call, s, false, start))
        return failed;
    quiet.error = &ignored;
    if (chat_has_calls(call, i) && !render_others(&quiet, s, i, true) && start_by_others(call, s, true, start))
        return 0;
    return fail_reply(call, i, "the start");
}

/* Renders the first n messages, followed by one of the user. */
static int render_followed(const chat_call *call, size_t n, chat_rendering *out)
{
    json_t *messages = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append(messages, json_array_get(json_object_get(call->variables, "messages"), i));
    json_array_append_new(messages, json_pack("{s:s, s:s}", "role", "user", "content", "q1w"));
    return render_messages(call, messages, out);
}

/* The length of the part, up to reply i and beyond, that does not depend on whether the conversation ends with that reply. */
static size_t what_stays(const chat_call *call, reply_search *s, size_t i)
{
    const size_t messages = json_array_size(json_object_get(call->variables, "messages"));
    pt_error ignored;
    chat_call quiet = *call;
    quiet.error = &ignored;
    if (i + 1 < messages ? !renders_first(call, i + 1, false, &s->prompted) : render_followed(&quiet, messages, &s->prompted))
        return 0;
    return chat_common(&s->prompted.text, &call->out->rendering.text);
}

/* A special token directly after the one that ends a reply also ends it, if it does not depend on what follows. */
static int extend_end(const chat_call *call, reply_search *s, size_t i, size_t *end)
{
    const text_buffer *whole = &call->out->rendering.text;
    size_t stays = SIZE_MAX, behind;
    while (*end < whole->n && !is_blank(whole->bytes[*end])) {
        int failed = first_special(call, whole->bytes + *end, whole->n - *end, &behind);
        if (failed || !behind)
            return failed;
        stays = stays == SIZE_MAX ? what_stays(call, s, i) : stays;
        if (*end + behind > stays)
            return 0;
        *end += behind;
        s->ended_n += behind;
    }
    return 0;
}

/* For a reply without tool calls: the whole rendering ends with what follows any reply here; special tokens at its beginning end the
 * reply. Otherwise *end is unchanged. */
static int end_by_rest(const chat_call *call, reply_search *s, size_t i, size_t start, size_t *end)
{
    const text_buffer *whole = &call->out->rendering.text;
    const size_t rest = common_end(&s->with.text, &s->other.text);
    size_t behind;
    if (common_end(&s->with.text, whole) < rest || whole->n - rest < start)
        return 0;
    int failed = first_special(call, whole->bytes + whole->n - rest, rest, &behind);
    if (failed || !behind)
        return failed;
    *end = whole->n - rest + behind;
    s->ended_n = behind;
    failed = extend_end(call, s, i, end);
    s->token = whole->bytes + whole->n - rest;
    s->token_n = s->ended_n;
    return failed;
}

/* The length of the last special token of [from, to) if only white space follows it, and *behind, its end. 0: there is none. */
static int last_special(const chat_call *call, const char *s, size_t n, size_t *bytes, size_t *behind)
{
    enum { LONGEST = 64 };
    *bytes = 0;
    while (n && is_blank(s[n - 1]))
        n--;
    *behind = n;
    for (size_t from = n; from-- > 0 && n - from < LONGEST;) {
        size_t end;
        if ((s[from] & 0xc0) == 0x80 || (call->wish->plain && plain_mark_before(s, from)))
            continue;
        int failed = first_special(call, s + from, n - from, &end);
        if (failed || end == n - from) {
            *bytes = end;
            return failed;
        }
    }
    return 0;
}

/* In the rendering that ends with the reply, the reply is what follows its prompt, if the whole rendering has the same text from `start`
 * on. */
static int end_by_itself(const chat_call *call, reply_search *s, size_t i, size_t start, size_t *end)
{
    const text_buffer *whole = &call->out->rendering.text, *with = &s->with.text, *prompt = &s->prompted.text;
    size_t from = start, bytes, behind;
    if (!renders_first(call, i + 1, false, &s->with))
        return 0;
    if (with->n < start || chat_common(with, whole) < with->n) {
        const bool renders = renders_first(call, i, true, &s->prompted);
        from = prompt->n;
        if (!renders || chat_common(prompt, with) < from)
            return 0;
    }
    int failed = last_special(call, with->bytes + from, with->n - from, &bytes, &behind);
    const size_t n = !failed && bytes ? behind : with->n - from;
    if (failed || n == 0 || whole->n - start < n || memcmp(whole->bytes + start, with->bytes + from, n))
        return failed;
    *end = start + n;
    s->ended_n = bytes;
    return 0;
}

/* Finds, once, the token that ends one of the first replies without tool calls. */
static int learn_token(const chat_call *call, reply_search *s)
{
    const size_t n = s->learned ? 0 : json_array_size(json_object_get(call->variables, "messages"));
    int failed = 0, tries = 8;
    s->learned = true;
    for (size_t i = 0, start, end; i < n && !failed && !s->token && tries; i++)
        if (chat_is_reply(call, i) && !chat_has_calls(call, i) && tries-- && !(failed = start_of_reply(call, s, i, &start)))
            failed = end_by_rest(call, s, i, start, &end);
    return failed;
}

/* The position up to which the whole rendering does not depend on the content of the message after reply i. */
static int before_next(const chat_call *call, reply_search *s, size_t i, size_t *limit)
{
    *limit = call->out->rendering.text.n;
    if (i + 1 >= json_array_size(json_object_get(call->variables, "messages")))
        return 0;
    int failed = render_others(call, s, i + 1, false);
    *limit = chat_common(&s->with.text, &s->other.text);
    return failed;
}

/* The first place of the token that ended another reply; marked ones are plain text. */
static const char *find_token(const chat_call *call, const text_buffer *whole, size_t from, const reply_search *s)
{
    const char *found = NULL;
    do
        found = memmem(whole->bytes + from, whole->n - from, s->token, s->token_n);
    while (found && call->wish->plain && plain_mark_before(whole->bytes, from = (size_t)(found - whole->bytes)) && ++from);
    return found;
}

/* Ends the reply with the token that ended another one, if that token is between the start and the next message. */
static int end_by_token(const chat_call *call, reply_search *s, size_t i, size_t start, size_t *end)
{
    const text_buffer *whole = &call->out->rendering.text;
    size_t limit;
    int failed = learn_token(call, s);
    const char *found = !failed && s->token ? find_token(call, whole, start, s) : NULL;
    if (!found)
        return failed;
    failed = before_next(call, s, i, &limit);
    *end = (size_t)(found - whole->bytes) + s->token_n;
    s->ended_n = s->token_n;
    if (!failed && *end > limit)
        *end = SIZE_MAX;
    return failed;
}

static int end_of_reply(const chat_call *call, reply_search *s, size_t i, size_t start, size_t *end)
{
    *end = SIZE_MAX;
    s->ended_n = 0;
    int failed = chat_has_calls(call, i) ? 0 : end_by_rest(call, s, i, start, end);
    if (!failed && *end == SIZE_MAX)
        failed = end_by_itself(call, s, i, start, end);
    if (!failed && *end == SIZE_MAX)
        failed = end_by_token(call, s, i, start, end);
    return failed || *end != SIZE_MAX ? failed : fail_reply(call, i, "the end");
}

/* Ignores what is known of other replies. */
static int find_alone(const chat_call *call, reply_search *s, size_t i, chat_reply *out)
{
    *out = (chat_reply){.message = i};
    int failed = start_of_reply(call, s, i, &out->span.first);
    if (!failed)
        failed = end_of_reply(call, s, i, out->span.first, &out->span.end);
    out->ended_n = s->ended_n;
    return failed;
}

enum { KINDS = 16 }; /* number of replies that others are compared with */

typedef struct reply_kinds { chat_frames frames; chat_reply of[KINDS]; size_t n; } reply_kinds;

static int find_reply(const chat_call *call, reply_search *s, reply_kinds *kinds, size_t i, chat_span *span)
{
    chat_reply found;
    for (size_t k = 0; k < kinds->n; k++)
        if (chat_frames_same(call, &kinds->frames, &kinds->of[k], i, span))
            return 0;
    int failed = find_alone(call, s, i, &found);
    *span = found.span;
    if (!failed && kinds->n < KINDS)
        kinds->of[kinds->n++] = found;
    return failed;
}

static size_t count_replies(const chat_call *call, size_t n, size_t *last)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++)
        if (chat_is_reply(call, i))
            count++, *last = i;
    return count;
}

static int search_replies(const chat_call *call, reply_search *s, reply_kinds *kinds, size_t n)
{
    enum { FEW = 2 }; /* so few replies that frames would save nothing */
    chat_rendering *all = &call->out->rendering;
    size_t first = 0;
    const size_t replies = count_replies(call, n, &first);
    if (call->wish->learned != CHAT_LAST)
        first = 0;
    int failed = !first && replies > FEW ? chat_frames_find(call, &kinds->frames) : 0;
    for (size_t i = first, before = 0; i < n && !failed; i++) {
        chat_span span;
        if (!chat_is_reply(call, i))
            continue;
        failed = find_reply(call, s, kinds, i, &span);
        if (!failed && (span.first < before || span.end < span.first))
            failed = fail_reply(call, i, "the start");
        if (!failed) {
            all->spans[all->n_spans++] = span;
            before = span.end;
        }
    }
    return failed;
}

int chat_find_replies(const chat_call *call)
{
    const size_t n = json_array_size(json_object_get(call->variables, "messages"));
    reply_search s = {0};
    reply_kinds kinds = {0};
    free(call->out->rendering.spans);
    call->out->rendering.n_spans = 0;
    call->out->rendering.spans = malloc((n + 1) * sizeof *call->out->rendering.spans);
    if (!call->out->rendering.spans)
        return pt_fail(call->error, PT_FAILED, "out of memory");
    int failed = search_replies(call, &s, &kinds, n);
    chat_frames_free(&kinds.frames);
    chat_rendering_free(&s.prompted);
    chat_rendering_free(&s.with);
    chat_rendering_free(&s.other);
    return failed;
}
