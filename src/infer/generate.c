/* generate.c - pt_generator: prompt -> ids -> logits -> ids -> text.
 *
 *   prompt: the prompt's ids are fed          next: [the last token is fed] a token is sampled, its text is returned
 *
 * A sampled token is fed only when the next one is requested, so that its text is returned before the model runs again. */
#include "infer/fit.h"

#include "base/units.h"
#include "infer/open.h"
#include "infer/recommended.h"
#include "model/weights.h"
#include "options/table.h"
#include "run/budgets.h"
#include "text/buffer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void progress(const pt_generator *g, const char *stage, uint64_t done, uint64_t total)
{
    if (g->o.progress)
        g->o.progress(g->o.arg, stage, done, total);
}

/* ---- opening ---- */

static int check_options(const pt_generate_options *o, pt_error *e)
{
    int failed = options_check_size(&generate_table, o, e);
    if (failed)
        return failed;
    if (!o->model || !o->model[0])
        return pt_fail(e, PT_USAGE, "no model: `model` names a Hugging Face folder with config.json, weights and tokenizer.json");
    if (!(o->temperature == 0 || o->temperature == PT_OF_MODEL || (o->temperature >= 1e-3 && o->temperature <= 1e3)))
        return pt_fail(e, PT_USAGE, "`temperature` is %g: it must be 0 (always the most probable token), or from 0.001 to 1000",
                       o->temperature);
    if (o->repetition_penalty != PT_OF_MODEL && !(o->repetition_penalty >= 1e-3))
        return pt_fail(e, PT_USAGE, "`repetition_penalty` is %g: it must be from 0.001 to 1000; 1 is off", o->repetition_penalty);
    failed = options_check_values(&generate_table, o, e);
    return failed ? failed : device_name_check(o->device, e);
}

static int open_model(pt_generator *g, pt_error *e)
{
    int failed = infer_open_adapted(g->folder, g->o.adapter, g->o.notice, g->o.arg, &g->model, &g->adapter, e);
    if (!failed && g->model->config.labels)
        failed = pt_fail(e, PT_FAILED, "%.400s scores texts and predicts no tokens: protrain eval evaluates it", g->folder);
    const infer_base base = {g->folder, g->o.adapter, g->o.base, g->o.precision, g->o.notice, g->o.arg};
    if (!failed)
        failed = infer_store_base(&base, g->model, e);
    if (!failed)
        failed = safetensors_open(g->folder, &g->st, e);
    if (!failed)
        failed = weights_check(g->model, g->st, NULL, e);
    if (!failed && g->adapter)
        failed = weights_check_adapter(g->model, g->adapter, e);
    if (!failed)
        weights_notice_unused(g->model, g->st, g->o.notice, g->o.arg);
    if (!failed)
        failed = tokenizer_open_beside(g->folder, g->o.adapter, &g->tokenizer, e);
    return failed ? failed : encoder_open(g->tokenizer, &g->encoder, e);
}

static int open_rest(pt_generator *g, pt_error *e)
{
    const device_options d = {.threads = machine_threads(g->o.threads), .notice = g->o.notice, .arg = g->o.arg};
    int64_t known = tokenizer_vocab_size(g->tokenizer), scored = g->model->config.vocab;
    g->vocab = (int32_t)(known < scored ? known : scored);
    g->sampler = (sampler){g->o.temperature, g->o.top_k, g->o.top_p, g->o.seed, malloc((size_t)g->vocab * sizeof(candidate))};
    g->penalized = g->o.repetition_penalty == 1 ? NULL : malloc((size_t)g->vocab * sizeof *g->penalized);
    if (!g->sampler.candidates || (g->o.repetition_penalty != 1 && !g->penalized))
        return pt_fail(e, PT_FAILED, "out of memory");
    int failed = device_open(g->o.device, &d, &g->device, &g->host, e);
    if (!failed && !device_is_gpu(g->device) && g->o.host_memory != PT_AUTO)
        failed = pt_fail(e, PT_USAGE, "`host_memory` is for what a GPU has no room for, but this is a CPU: use `device_memory`");
    bool host_tier;
    const budget_request r = {{g->o.device_memory, g->o.host_memory, g->o.disk_memory}, .disk_path = generator_disk_folder(g),
                              .device = g->device};
    return failed ? failed : budgets_choose(&r, g->budget, &host_tier, NULL, e);
}

int pt_generator_open(const pt_generate_options *o, pt_generator **out, pt_error *e)
{
    if (!o)
        return pt_fail_null(e, "pt_generator_open", "the options");
    if (!out)
        return pt_fail_null(e, "pt_generator_open", "the place for the generator");
    *out = NULL;
    int failed = check_options(o, e);
    if (failed)
        return failed;
    pt_generator *g = calloc(1, sizeof *g);
    if (!g)
        return pt_fail(e, PT_FAILED, "out of memory");
    g->o = *o;
    g->type = o->precision == PT_PRECISION_BF16 ? PT_BF16 : PT_F32;
    g->ended = true;
    snprintf(g->folder, sizeof g->folder, "%s", o->model);
    failed = open_model(g, e);
    if (!failed)
        failed = stops_find(&g->stops, g->folder, g->model, g->tokenizer, e);
    if (!failed)
        failed = recommended_apply(&g->o, e);
    if (!failed)
        failed = open_rest(g, e);
    if (failed) {
        pt_generator_close(g);
        return failed;
    }
    *out = g;
    return 0;
}

void pt_generator_close(pt_generator *g)
{
    if (!g)
        return;
    inference_close(g->x);
    device_close(g->device, g->host);
    safetensors_close(g->st);
    safetensors_close(g->adapter);
    encoder_close(g->encoder);
    tokenizer_close(g->tokenizer);
    model_close(g->model);
    id_list_free(&g->prompt);
    id_list_free(&g->fed);
    chat_state_free(&g->chat);
    utf8_stream_free(&g->stream);
    free(g->sampler.candidates);
    free(g->penalized);
    free(g);
}

/* ---- the prompt ---- */

static int encode_prompt(pt_generator *g, const char *text, size_t bytes, pt_error *e)
{
    const model_config *m = &g->model->config;
    g->prompt.n = 0;
    int failed = encoder_run(g->encoder, text, bytes, ENCODE_TEMPLATE, &g->prompt, e);
    if (failed)
        return pt_error_prefix(e, "the prompt");
    g->prompt.n -= tokenizer_template_after(g->tokenizer); /* the text continues after it */
    int64_t start = m->bos >= 0 ? m->bos : tokenizer_eos(g->tokenizer);
    if (!g->prompt.n && start >= 0 && (failed = id_list_push(&g->prompt, (uint32_t)start, e)))
        return failed;
    if (!g->prompt.n)
        return pt_fail(e, PT_FAILED, "the prompt is empty, and the model has no token to start a text with: give a prompt");
    return 0;
}

static int check_prompt(const pt_generator *g, pt_error *e)
{
    const model_config *m = &g->model->config;
    if (!g->prompt.n)
        return pt_fail(e, PT_FAILED, "%s/tokenizer.json gives no token for the prompt: it knows none of its characters", g->folder);
    for (size_t i = 0; i < g->prompt.n; i++)
        if (g->prompt.ids[i] >= (uint64_t)m->vocab)
            return pt_fail(e, PT_FAILED, "%s/tokenizer.json gives token %u for the prompt, but the model's vocabulary has %lld: they do "
                                         "not belong together", g->folder, g->prompt.ids[i], (long long)m->vocab);
    if ((int64_t)g->prompt.n >= m->max_positions)
        return pt_fail(e, PT_FAILED, "the prompt has %zu tokens, but the model's context has %lld: shorten it to %lld or fewer",
                       g->prompt.n, (long long)m->max_positions, (long long)m->max_positions - 1);
    return 0;
}

/* ---- memory ---- */

static void pass_progress(void *arg, uint64_t done, uint64_t total) { progress(arg, "loading", done, total); }

/* What each token then waits for. */
static int tell_streamed(pt_generator *g, pt_error *e)
{
    double seconds;
    char sentence[300], size[32], time[32];
    int failed = inference_fetch_s(g->x, &seconds, e);
    if (failed || !g->o.notice)
        return failed;
    snprintf(sentence, sizeof sentence,
             "the weights do not fit: those of %d of %lld layers, %s, are fetched from %s for each token, which takes about %s",
             g->fit.streamed, (long long)g->model->config.layers,
             size_format(size, stream_store_bytes(g->model, g->type, g->fit.streamed)), g->fit.place.on_disk ? "the disk" : "host memory",
             seconds_format(time, seconds));
    g->o.notice(g->o.arg, sentence);
    return 0;
}

static void unload(pt_generator *g)
{
    inference_close(g->x);
    g->x = NULL;
    g->fed.n = 0;
}

static int load_model(pt_generator *g, const generator_fit *fit, pt_error *e)
{
    g->fit = *fit;
    int failed = inference_open(g->model, g->device, g->type, g->o.threads, fit->streamed, fit->streamed ? &fit->place : NULL, &g->x, e);
    if (!failed)
        failed = inference_load(g->x, g->st, g->adapter, 0, pass_progress, g, e);
    if (!failed && fit->streamed)
        failed = tell_streamed(g, e);
    if (failed)
        unload(g);
    return failed;
}

/* A conversation grows: with room for twice as many tokens, the KV cache need not move, nor the model be loaded again, for each turn. Not
 * if angles depend on the length. */
static int64_t lasting_context(const pt_generator *g, int64_t need)
{
    const model_config *m = &g->model->config;
    const int64_t twice = 2 * need < m->max_positions ? 2 * need : m->max_positions;
    const bool plain = !m->ropes_n || (m->rope[0].kind != ROPE_LONG && m->rope[0].kind != ROPE_DYNAMIC);
    return g->chat.replying && plain ? twice : need;
}

/* Loads the model, if it is not loaded, or so much of it that the context does not fit beside it. */
static int make_room(pt_generator *g, int64_t need, pt_error *e)
{
    cache_plan cache;
    generator_fit fit, lasting;
    if (g->x && fit_cache(g, &g->fit, need, &cache))
        return 0;
    if (g->x)
        unload(g);
    int failed = fit_check_host(g, e);
    if (failed)
        return failed;
    if (!fit_find(g, need, &fit))
        return fit_refuse(g, need, e);
    if (fit.streamed && fit_find(g, lasting_context(g, need), &lasting) && lasting.streamed)
        fit = lasting;
    return load_model(g, &fit, e);
}

/* How many ids of the prompt are in the KV cache: all that it begins with, except the last, whose logits are needed. */
static int64_t fed_already(const pt_generator *g)
{
    size_t n = 0;
    while (n < g->fed.n && n + 1 < g->prompt.n && g->fed.ids[n] == g->prompt.ids[n])
        n++;
    return (int64_t)n;
}

static int feed(pt_generator *g, const int32_t *ids, int64_t n, pt_error *e)
{
    int failed = inference_feed(g->x, ids, n, &g->logits, e);
    for (int64_t i = 0; i < n && !failed; i++)
        failed = id_list_push(&g->fed, (uint32_t)ids[i], e);
    return failed;
}

static int feed_prompt(pt_generator *g, int64_t first, pt_error *e)
{
    const int64_t n = (int64_t)g->prompt.n;
    int failed = 0;
    const int64_t rows = inference_rows(g->x);
    for (int64_t done = first; done < n && !failed; done += rows) {
        int64_t part = n - done < rows ? n - done : rows;
        failed = feed(g, (const int32_t *)g->prompt.ids + done, part, e);
        progress(g, "reading the prompt", (uint64_t)(done + part), (uint64_t)n);
    }
    return failed;
}

static void tell_room(const pt_generator *g, int64_t wanted, int64_t room)
{
    char sentence[160];
    if (wanted <= room || !g->o.notice)
        return;
    snprintf(sentence, sizeof sentence, "the model's context has %lld tokens: at most %lld new ones follow the prompt of %zu",
             (long long)g->model->config.max_positions, (long long)room, g->prompt.n);
    g->o.notice(g->o.arg, sentence);
}

/* What each token then waits for. */
static int tell_cache(pt_generator *g, pt_error *e)
{
    const cache_plan plan = inference_cache(g->x);
    uint64_t fetched;
    double seconds;
    char sentence[300], size[32], time[32];
    if (!plan.away || !g->o.notice)
        return 0;
    const int failed = inference_cache_s(g->x, &seconds, e);
    const uint64_t bytes = inference_cache_bytes(g->model, g->type, g->device, inference_context(g->x), plan, &fetched);
    snprintf(sentence, sizeof sentence,
             "the KV cache of %lld tokens does not fit beside the weights: that of %d of %d layers, %s, is kept in host memory, and passes "
             "through the device for each token, which takes about %s when it is full",
             (long long)inference_context(g->x), plan.away, inference_cache_layers(g->model), size_format(size, bytes),
             seconds_format(time, seconds));
    if (!failed)
        g->o.notice(g->o.arg, sentence);
    return failed;
}

/* Starts a sequence of so many tokens, which keeps the part of the KV cache that the prompt begins with, if it is there. With the room that
 * lasts, wherever that is: what is kept of a conversation, and so how its rows are fed, does not depend on the budgets then. */
static int begin(pt_generator *g, int64_t need, bool keeps, pt_error *e)
{
    cache_plan cache;
    int64_t kept = keeps ? fed_already(g) : 0, context = lasting_context(g, need);
    const int64_t before = inference_context(g->x);
    if (!fit_cache(g, &g->fit, context, &cache)) {
        context = need;
        fit_cache(g, &g->fit, context, &cache);
    }
    int failed = inference_begin(g->x, context, cache, keeps ? &kept : NULL, e);
    if (!failed && inference_context(g->x) != before)
        failed = tell_cache(g, e);
    g->fed.n = failed ? 0 : (size_t)kept;
    return failed;
}

int generator_start(pt_generator *g, int64_t max_new_tokens, pt_error *e)
{
    g->made = 0;
    g->last = -1;
    utf8_stream_reset(&g->stream);
    if (max_new_tokens < 0)
        return pt_fail(e, PT_USAGE, "`max_new_tokens` is %lld: it must be 0 or more", (long long)max_new_tokens);
    int failed = check_prompt(g, e);
    if (failed)
        return failed;
    const int64_t room = g->model->config.max_positions - (int64_t)g->prompt.n;
    g->most = max_new_tokens < room ? max_new_tokens : room;
    const int64_t need = (int64_t)g->prompt.n + g->most;
    failed = make_room(g, need, e);
    if (!failed)
        failed = begin(g, need, true, e);
    if (!failed && g->most)
        failed = feed_prompt(g, (int64_t)g->fed.n, e);
    g->ended = failed || g->most == 0;
    if (!failed)
        tell_room(g, max_new_tokens, room);
    return failed;
}

int pt_generator_prompt(pt_generator *g, const char *text, size_t bytes, int64_t max_new_tokens, pt_error *e)
{
    if (!g)
        return pt_fail_null(e, "pt_generator_prompt", "the generator");
    if (!(text || !bytes))
        return pt_fail_null(e, "pt_generator_prompt", "the prompt");
    g->ended = true;
    g->spoken = bytes > 0;
    g->chat.replying = false;
    const int failed = encode_prompt(g, text, bytes, e);
    return failed ? failed : generator_start(g, max_new_tokens, e);
}

/* ---- the text ---- */

/* The text that the token adds; after the last one nothing follows. */
static int speak(pt_generator *g, int32_t id, bool last, pt_error *e)
{
    const char *bytes = "";
    size_t n = 0;
    const bool has_text = id >= 0 && tokenizer_has_id(g->tokenizer, (uint32_t)id); /* a vocabulary may have gaps */
    int failed = has_text ? tokenizer_id_bytes(g->tokenizer, (uint32_t)id, !g->spoken, true, &bytes, &n, e) : 0;
    g->spoken |= n > 0;
    return failed ? failed : utf8_stream_feed(&g->stream, bytes, n, last, e);
}

/* The logits, with the penalty for ids that the prompt or the text has. */
static const float *scores(pt_generator *g)
{
    if (!g->penalized)
        return g->logits;
    penalize(g->penalized, g->logits, g->vocab, g->fed.ids, g->fed.n, g->o.repetition_penalty);
    return g->penalized;
}

int pt_generator_next(pt_generator *g, const char **text, size_t *bytes, pt_error *e)
{
    if (!g)
        return pt_fail_null(e, "pt_generator_next", "the generator");
    if (!text)
        return pt_fail_null(e, "pt_generator_next", "the place for the text");
    if (!bytes)
        return pt_fail_null(e, "pt_generator_next", "the place for its length");
    int32_t id;
    *text = "";
    *bytes = 0;
    if (g->ended)
        return 0;
    int failed = g->last < 0 ? 0 : feed(g, &g->last, 1, e);
    if (!failed)
        failed = sample(&g->sampler, scores(g), g->vocab, g->prompt.n + (uint64_t)g->made, &id, e);
    if (failed) {
        g->ended = true;
        return failed;
    }
    bool stop = !g->o.ignore_eos && stops_has(&g->stops, id);
    g->last = id;
    g->made += !stop;
    g->ended = stop || g->made == g->most;
    failed = speak(g, stop ? -1 : id, g->ended, e);
    if (failed)
        return failed;
    *bytes = g->stream.out;
    *text = *bytes ? g->stream.text.bytes : "";
    if (g->chat.replying && (failed = text_buffer_append(&g->chat.reply, *text, *bytes, e)))
        return failed;
    return !stop || *bytes > 0;
}

/* ---- logits ---- */

static int check_batch(const pt_generator *g, const uint32_t *ids, int64_t texts, int64_t length, pt_error *e)
{
    const model_config *m = &g->model->config;
    if (texts < 1 || length < 1 || length > m->max_positions || texts > INT64_MAX / length)
        return pt_fail(e, PT_USAGE, "%lld texts of %lld tokens: give at least one text, of 1 to %lld tokens", (long long)texts,
                       (long long)length, (long long)m->max_positions);
    for (int64_t i = 0; i < texts * length; i++)
        if (ids[i] >= (uint64_t)m->vocab)
            return pt_fail(e, PT_USAGE, "text %lld has the id %u at token %lld, but the model's vocabulary has %lld",
                           (long long)(i / length + 1), ids[i], (long long)(i % length + 1), (long long)m->vocab);
    return 0;
}

int pt_generator_logits(pt_generator *g, const uint32_t *ids, int64_t texts, int64_t length, float *out, pt_error *e)
{
    if (!g)
        return pt_fail_null(e, "pt_generator_logits", "the generator");
    if (!ids)
        return pt_fail_null(e, "pt_generator_logits", "the ids");
    if (!out)
        return pt_fail_null(e, "pt_generator_logits", "the place for the logits");
    int failed = check_batch(g, ids, texts, length, e);
    if (!failed)
        failed = make_room(g, length, e);
    g->ended = true;
    g->fed.n = 0;
    for (int64_t i = 0; i < texts && !failed; i++) {
        failed = begin(g, length, false, e);
        if (!failed)
            failed = inference_feed_all(g->x, (const int32_t *)ids + i * length, length, out + i * length * pt_generator_vocabulary(g), e);
    }
    return failed;
}

int64_t pt_generator_vocabulary(const pt_generator *g) { return g ? g->model->config.vocab : 0; }

int64_t pt_generator_tokens(const pt_generator *g, int64_t *prompt)
{
    if (prompt)
        *prompt = g ? (int64_t)g->prompt.n : 0;
    return g ? g->made : 0;
}
