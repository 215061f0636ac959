/* Texts, conversations and served replies are the same where a GPU's KV cache is in host memory. On the stand-in for a GPU; on a CPU there
 * is nothing to test: test_inference has the same at a lower level, on a device that only behaves as if it had memory of its own. */
#include "base/units.h"
#include "infer/generator.h"
#include "infer/served.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "infer/model_folder.h"
#include "seed.h"
#include "test_device.h"

#define TEMPLATE                                                                                                       \
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}<|endoftext|>{% endfor %}{% if add_generation_prompt "        \
    "%}<assistant>{% endif %}"

enum { LAYERS = 4, ROOM = 4096, NEW = 12 };

static const char *folder, *template_file, *device_name;
static char told[4][512];
static int told_n;

static int set_up(void **state)
{
    static const char config[] = "{\"model_type\": \"llama\", \"vocab_size\": 424, \"hidden_size\": 64, \"num_hidden_layers\": 4, "
                                 "\"num_attention_heads\": 8, \"num_key_value_heads\": 4, \"intermediate_size\": 48, "
                                 "\"max_position_embeddings\": 2048, \"initializer_range\": 0.3, \"bos_token_id\": 420, "
                                 "\"eos_token_id\": 420}";
    scratch_make(state);
    device_name = getenv("PROTRAIN_TEST_DEVICE");
    folder = strdup(make_folder_of("model", config, test_seed()));
    scratch_put("template.jinja", TEMPLATE, strlen(TEMPLATE));
    template_file = strdup(scratch_path("template.jinja"));
    return 0;
}

static int tear_down(void **state)
{
    free((char *)folder);
    free((char *)template_file);
    return scratch_remove(state);
}

static bool is_gpu(void) { return device_name && !strncmp(device_name, "cuda", 4); }

static void keep_note(void *arg, const char *sentence)
{
    (void)arg;
    if (strstr(sentence, "KV cache") && told_n < 4)
        snprintf(told[told_n++], sizeof told[0], "%s", sentence);
}

/* Budgets: PT_AUTO, or bytes. */
static pt_generator *open_with(uint64_t device_memory, uint64_t host_memory)
{
    pt_error e = {0};
    pt_generator *g;
    pt_generate_options o;
    pt_generate_defaults(&o);
    o.model = folder;
    o.temperature = 0;
    o.device = device_name;
    o.precision = PT_PRECISION_BF16;
    o.threads = 2;
    o.chat_template = template_file;
    o.ignore_eos = true;
    o.device_memory = device_memory;
    o.host_memory = host_memory;
    o.disk_memory = 0;
    o.notice = keep_note;
    told_n = 0;
    if (pt_generator_open(&o, &g, &e))
        fail_msg("%s", e.text);
    return g;
}

/* Device memory for a context of so many tokens, with `away` layers' caches in host memory. *host: that. */
static uint64_t memory_of(int64_t context, cache_plan cache, uint64_t *host)
{
    uint64_t fetched;
    pt_generator *g = open_with(PT_AUTO, PT_AUTO);
    const uint64_t bytes = inference_bytes(g->model, PT_BF16, g->device, 0, context, cache) + g->device->info.threads_bytes;
    *host = inference_cache_bytes(g->model, PT_BF16, g->device, context, cache, &fetched);
    pt_generator_close(g);
    return bytes;
}

static size_t read_all(pt_generator *g, char *to)
{
    pt_error e = {0};
    const char *piece;
    size_t bytes, n = 0;
    int more;
    while ((more = pt_generator_next(g, &piece, &bytes, &e)) > 0) {
        assert_true(n + bytes < ROOM);
        memcpy(to + n, piece, bytes);
        n += bytes;
    }
    if (more < 0)
        fail_msg("%s", e.text);
    to[n] = 0;
    return n;
}

static const char *long_prompt(void)
{
    static char text[300];
    for (size_t i = 0; i + 1 < sizeof text; i++)
        text[i] = (char)('a' + (i * i + i / 7) % 26);
    return text;
}

/* Text, then logits of its last step. */
static int64_t continue_text(pt_generator *g, const char *prompt, char *text, float *logits)
{
    pt_error e = {0};
    int64_t tokens;
    if (pt_generator_prompt(g, prompt, strlen(prompt), NEW, &e))
        fail_msg("%s", e.text);
    read_all(g, text);
    memcpy(logits, g->logits, (size_t)pt_generator_vocabulary(g) * sizeof *logits);
    const int64_t made = pt_generator_tokens(g, &tokens);
    return made + tokens;
}

static void texts_and_logits_have_the_same_bits(void **state)
{
    (void)state;
    if (!is_gpu())
        skip();
    char whole[ROOM], text[ROOM], part[64];
    float a[424], b[424];
    uint64_t host;
    pt_generator *g = open_with(PT_AUTO, PT_AUTO);
    const int64_t context = continue_text(g, long_prompt(), whole, a);
    assert_int_equal(told_n, 0);
    pt_generator_close(g);
    static const cache_plan plans[] = {{3, 1}, {LAYERS, 1}, {LAYERS, 2}, {LAYERS, 4}};
    for (int i = 0; i < 4; i++) {
        g = open_with(memory_of(context, plans[i], &host), PT_AUTO);
        assert_int_equal(continue_text(g, long_prompt(), text, b), context);
        assert_string_equal(text, whole);
        assert_memory_equal(a, b, sizeof a);
        assert_int_equal(g->fit.streamed, 0);
        assert_int_equal(inference_cache(g->x).away, plans[i].away);
        assert_int_equal(inference_cache(g->x).blocks, plans[i].blocks);
        snprintf(part, sizeof part, "that of %d of %d layers", plans[i].away, LAYERS);
        assert_int_equal(told_n, 1);
        assert_non_null(strstr(told[0], part));
        pt_generator_close(g);
    }
}

/* Turns of growing length: the cache is made anew for longer ones, and is kept else. */
static void turns_are_the_same(void **state)
{
    (void)state;
    if (!is_gpu())
        skip();
    static const char *const turns[] = {"Tell me of the sea", "Why?", "And what then, at the end of the day?", "Go on"};
    char replies[4][ROOM], text[ROOM];
    uint64_t host;
    pt_error e = {0};
    for (int away = 0; away < 2; away++) {
        pt_generator *g = away ? open_with(memory_of(600, (cache_plan){LAYERS, 4}, &host), PT_AUTO) : open_with(PT_AUTO, PT_AUTO);
        int kept = 0;
        for (int i = 0; i < 4; i++) {
            if (pt_generator_say(g, turns[i], strlen(turns[i]), NEW, &e))
                fail_msg("%s", e.text);
            kept += i && g->fed.n > 0 && inference_context(g->x) >= (int64_t)g->prompt.n + NEW;
            read_all(g, away ? text : replies[i]);
            if (away)
                assert_string_equal(text, replies[i]);
        }
        assert_true(kept > 0);
        assert_int_equal(inference_cache(g->x).away > 0, away);
        pt_generator_close(g);
    }
}

static void serve_one(pt_generator *g, const char *content, char *reply)
{
    pt_error e = {0};
    json_t *messages = json_pack("[{s:s, s:s}]", "role", "user", "content", content);
    if (generator_converse(g, messages, NEW, &e))
        fail_msg("%s", e.text);
    read_all(g, reply);
    json_decref(messages);
}

static void served_replies_are_the_same(void **state)
{
    (void)state;
    if (!is_gpu())
        skip();
    static const char *const asked[] = {"One two three four five", "One two three four six", "Something else", "One two three four five"};
    char replies[4][ROOM], text[ROOM];
    uint64_t host;
    for (int away = 0; away < 2; away++) {
        pt_generator *g = away ? open_with(memory_of(120, (cache_plan){LAYERS, 1}, &host), PT_AUTO) : open_with(PT_AUTO, PT_AUTO);
        for (int i = 0; i < 4; i++) {
            serve_one(g, asked[i], away ? text : replies[i]);
            if (away)
                assert_string_equal(text, replies[i]);
        }
        assert_string_equal(replies[0], replies[3]);
        assert_int_equal(inference_cache(g->x).away > 0, away);
        pt_generator_close(g);
    }
}

static void a_host_without_room_is_told(void **state)
{
    (void)state;
    if (!is_gpu())
        skip();
    char text[ROOM], give[64], size[32];
    float logits[424];
    uint64_t host;
    pt_error e = {0};
    pt_generator *g = open_with(PT_AUTO, PT_AUTO);
    const int64_t context = continue_text(g, long_prompt(), text, logits);
    pt_generator_close(g);
    const uint64_t memory = memory_of(context, (cache_plan){LAYERS, 4}, &host);
    g = open_with(memory, host - 1);
    assert_int_equal(pt_generator_prompt(g, long_prompt(), strlen(long_prompt()), NEW, &e), PT_DOES_NOT_FIT);
    snprintf(give, sizeof give, "give `host_memory` %s", size_option(size, host));
    assert_non_null(strstr(e.text, give));
    pt_generator_close(g);
    g = open_with(memory, host);
    continue_text(g, long_prompt(), text, logits);
    pt_generator_close(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_and_logits_have_the_same_bits), cmocka_unit_test(turns_are_the_same),
        cmocka_unit_test(served_replies_are_the_same), cmocka_unit_test(a_host_without_room_is_told)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
