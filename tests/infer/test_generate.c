#include "base/units.h"
#include "infer/inference.h"
#include "infer/streamed.h"
#include "text/tokenizer.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "infer/model_folder.h"
#include "program.h"
#include "seed.h"

#include "faults/fault.h"

static uint64_t seed;
static const char *folder;

static int set_up(void **state)
{
    seed = test_seed();
    scratch_make(state);
    folder = strdup(make_model_folder("model", 32, 2, 48, seed));
    return 0;
}

static int tear_down(void **state)
{
    free((char *)folder);
    return scratch_remove(state);
}

static pt_generator *open_generator(pt_generate_options *o)
{
    pt_error e = {0};
    pt_generator *g;
    o->model = folder;
    o->threads = 2;
    if (pt_generator_open(o, &g, &e))
        fail_msg("%s", e.text);
    return g;
}

static pt_generate_options greedy(void)
{
    pt_generate_options o;
    pt_generate_defaults(&o);
    o.temperature = 0;
    o.device = "cpu";
    o.precision = PT_PRECISION_FP32;
    o.ignore_eos = true;
    return o;
}

/* The whole text, NUL-terminated, in a buffer of the test's. */
static int64_t continue_text(pt_generator *g, const char *prompt, int64_t most, char *text, size_t room)
{
    pt_error e = {0};
    const char *piece;
    size_t bytes, n = 0;
    int more;
    if (pt_generator_prompt(g, prompt, strlen(prompt), most, &e))
        fail_msg("%s", e.text);
    while ((more = pt_generator_next(g, &piece, &bytes, &e)) > 0) {
        assert_true(n + bytes < room);
        memcpy(text + n, piece, bytes);
        n += bytes;
    }
    if (more < 0)
        fail_msg("%s", e.text);
    text[n] = 0;
    return pt_generator_tokens(g, NULL);
}

static bool occurs(const int32_t *ids, size_t n, int32_t id)
{
    size_t i = 0;
    while (i < n && ids[i] != id)
        i++;
    return i < n;
}

static float penalized(float logit, double by) { return logit < 0 ? logit * (float)by : logit / (float)by; }

/* n tokens behind the prompt, the whole sequence computed anew for each. */
static void most_probable(const char *prompt, int n, double penalty, uint32_t *made)
{
    pt_error e = {0};
    model *m;
    safetensors *st;
    tokenizer *t;
    encoder *c;
    device *d;
    inference *x;
    id_list ids = {0};
    assert_int_equal(model_open(folder, NULL, NULL, &m, &e) | safetensors_open(folder, &st, &e) | tokenizer_open(folder, &t, &e), 0);
    assert_int_equal(encoder_open(t, &c, &e) | encoder_run(c, prompt, strlen(prompt), ENCODE_TEMPLATE, &ids, &e), 0);
    assert_int_equal(device_cpu_open(&(device_options){.threads = 1}, &d, &e) | inference_open(m, d, PT_F32, 1, 0, NULL, &x, &e), 0);
    assert_int_equal(inference_load(x, st, NULL, 0, NULL, NULL, &e), 0);
    int32_t all[256];
    size_t length = ids.n;
    for (size_t i = 0; i < length; i++)
        all[i] = (int32_t)ids.ids[i];
    for (int i = 0; i < n; i++) {
        const float *logits;
        int32_t best = 0;
        float highest = -INFINITY;
        assert_int_equal(inference_begin(x, (int64_t)length, (cache_plan){0}, NULL, &e), 0);
        assert_int_equal(inference_feed(x, all, (int64_t)length, &logits, &e), 0);
        for (int32_t k = 0; k < (int32_t)tokenizer_vocab_size(t) && k < m->config.vocab; k++) {
            const float score = occurs(all, length, k) ? penalized(logits[k], penalty) : logits[k];
            best = score > highest ? k : best;
            highest = fmaxf(highest, score);
        }
        made[i] = (uint32_t)best;
        all[length++] = best;
    }
    inference_close(x);
    d->table->close(d);
    encoder_close(c);
    tokenizer_close(t);
    safetensors_close(st);
    model_close(m);
    id_list_free(&ids);
}

static void assert_text(const char *text, const uint32_t *made, int n)
{
    uint32_t kept[64];
    char *expected;
    size_t bytes, kept_n = 0, same = 0;
    pt_error e = {0};
    pt_tokenizer *t;
    assert_int_equal(pt_tokenizer_open(folder, &t, &e), 0);
    for (int i = 0; i < n; i++) /* special tokens give no text */
        if (made[i] != 420)
            kept[kept_n++] = made[i];
    assert_int_equal(pt_tokenizer_decode(t, kept, kept_n, false, &expected, &bytes, &e), 0);
    while (same < bytes && (unsigned char)expected[same] < 0x80) /* bytes that are no text have become replacement characters */
        same++;
    assert_memory_equal(text, expected, same);
    free(expected);
    pt_tokenizer_close(t);
}

static void greedy_text_is_that_of_the_whole_sequence_computed_anew(void **state)
{
    enum { N = 12 };
    static const double penalties[] = {1, 1.3, 20, 0.5};
    char text[4096];
    uint32_t made[N];
    for (int i = 0; i < 4; i++) {
        pt_generate_options o = greedy();
        o.repetition_penalty = penalties[i];
        pt_generator *g = open_generator(&o);
        for (int again = 0; again < 2; again++) { /* the second time most of the prompt is known */
            most_probable("Hello there, Hello there", N, penalties[i], made);
            assert_int_equal(continue_text(g, "Hello there, Hello there", N, text, sizeof text), N);
            assert_text(text, made, N);
        }
        pt_generator_close(g);
    }
}

typedef struct heard_notice { int n; char last[1024]; } heard_notice;

static void keep_notice(void *arg, const char *sentence)
{
    heard_notice *h = arg;
    h->n++;
    snprintf(h->last, sizeof h->last, "%s", sentence);
}

/* What a file says where the options leave it to the model; `given`: they do not. */
static void text_of_file(const char *file, bool given, heard_notice *heard, char *text, size_t room)
{
    pt_generate_options o = greedy();
    scratch_put("model/generation_config.json", file, strlen(file));
    o.temperature = given ? 0 : PT_OF_MODEL;
    o.top_k = given ? 0 : PT_OF_MODEL;
    o.top_p = given ? 1 : PT_OF_MODEL;
    o.repetition_penalty = given ? 1 : PT_OF_MODEL;
    o.seed = 3;
    o.notice = keep_notice;
    o.arg = heard;
    *heard = (heard_notice){0};
    pt_generator *g = open_generator(&o);
    continue_text(g, "Once upon", 20, text, room);
    pt_generator_close(g);
    assert_int_equal(unlink(scratch_path("model/generation_config.json")), 0);
}

static void a_model_says_how_its_text_is_sampled(void **state)
{
    static const char *const as_greedy[] = {"{\"do_sample\": false, \"temperature\": 0.9}", "{\"do_sample\": true, \"top_k\": 1}",
                                            "{\"temperature\": 0.00001}", "{\"top_p\": 0.0}"};
    static const char hot[] = "{\"do_sample\": true, \"temperature\": 50.0, \"top_k\": 200, \"repetition_penalty\": 3}";
    char plain[4096], text[4096], usual[4096];
    uint32_t made[20];
    heard_notice heard;
    text_of_file("{\"eos_token_id\": 420}", true, &heard, plain, sizeof plain);
    for (int i = 0; i < 4; i++) {
        text_of_file(as_greedy[i], false, &heard, text, sizeof text);
        assert_string_equal(text, plain);
        assert_true(heard.n == 1 && strstr(heard.last, "generation_config.json"));
    }
    text_of_file(hot, true, &heard, text, sizeof text);
    assert_string_equal(text, plain);
    assert_int_equal(heard.n, 0);
    text_of_file("{\"eos_token_id\": 420}", false, &heard, usual, sizeof usual);
    assert_int_equal(heard.n, 0);
    text_of_file(hot, false, &heard, text, sizeof text);
    assert_string_not_equal(text, usual);
    assert_true(heard.n == 1 && strstr(heard.last, "`temperature` 50") && strstr(heard.last, "`top_k` 200") &&
                strstr(heard.last, "`repetition_penalty` 3"));
    text_of_file("{\"do_sample\": false, \"repetition_penalty\": 1.5}", false, &heard, text, sizeof text);
    most_probable("Once upon", 20, 1.5, made);
    assert_text(text, made, 20);
}

static void a_value_of_the_file_that_makes_no_sense_is_named(void **state)
{
    static const char *const wrong[][2] = {{"{\"temperature\": -1}", "temperature"}, {"{\"top_p\": 1.5}", "top_p"},
                                           {"{\"top_k\": 2.5}", "top_k"}, {"{\"repetition_penalty\": 0}", "repetition_penalty"},
                                           {"{\"do_sample\": \"yes\"}", "do_sample"}};
    pt_error e = {0};
    pt_generator *g;
    for (int i = 0; i < 5; i++) {
        pt_generate_options o;
        pt_generate_defaults(&o);
        o.model = folder;
        o.device = "cpu";
        scratch_put("model/generation_config.json", wrong[i][0], strlen(wrong[i][0]));
        assert_int_equal(pt_generator_open(&o, &g, &e), PT_FAILED);
        assert_non_null(strstr(e.text, "generation_config.json"));
        assert_non_null(strstr(e.text, wrong[i][1]));
    }
    assert_int_equal(unlink(scratch_path("model/generation_config.json")), 0);
}

/* On a GPU, whose sums differ from the CPU's in their last bits. */
static void a_base_in_few_bits_gives_a_gpu_the_text_of_the_cpu(void **state)
{
    const char *name = getenv("PROTRAIN_TEST_DEVICE");
    char text[2][4096];
    if (!name || !strcmp(name, "cpu"))
        skip();
    for (pt_base base = PT_BASE_NF4; base <= PT_BASE_INT8; base++) {
        for (int gpu = 0; gpu < 2; gpu++) {
            pt_generate_options o = greedy();
            o.device = gpu ? name : "cpu";
            o.base = base;
            pt_generator *g = open_generator(&o);
            assert_int_equal(continue_text(g, "Hello there", 12, text[gpu], sizeof text[gpu]), 12);
            pt_generator_close(g);
        }
        assert_string_equal(text[0], text[1]);
    }
}

static uint32_t ids_with_text(void)
{
    pt_error e = {0};
    tokenizer *t;
    assert_int_equal(tokenizer_open(folder, &t, &e), 0);
    const uint32_t n = (uint32_t)tokenizer_vocab_size(t);
    tokenizer_close(t);
    return n;
}

/* The most probable token by the logits of a batch is the one that is generated. */
static void logits_of_a_batch_are_those_of_generation(void **state)
{
    (void)state;
    pt_generate_options o = greedy();
    pt_generator *g = open_generator(&o);
    pt_tokenizer *t;
    pt_error e = {0};
    uint32_t *ids, batch[2 * 64], best = 0, generated;
    size_t n;
    assert_int_equal(pt_tokenizer_open(folder, &t, &e), 0);
    assert_int_equal(pt_tokenizer_encode(t, "a small boat", 12, true, &ids, &n, &e), 0);
    assert_true(n > 1 && n <= 64);
    for (size_t i = 0; i < n; i++) {
        batch[n + i] = ids[i];
        batch[i] = ids[n - 1 - i];
    }
    const int64_t vocab = pt_generator_vocabulary(g);
    float *logits = malloc(2 * n * (size_t)vocab * sizeof *logits), *last = logits + (2 * n - 1) * (size_t)vocab;
    if (pt_generator_logits(g, batch, 2, (int64_t)n, logits, &e))
        fail_msg("%s", e.text);
    for (uint32_t v = 1, n_text = ids_with_text(); v < n_text && v < (uint32_t)vocab; v++)
        best = last[v] > last[best] ? v : best;
    most_probable("a small boat", 1, 1, &generated);
    assert_int_equal(best, generated);
    batch[1] = (uint32_t)vocab;
    assert_int_equal(pt_generator_logits(g, batch, 2, (int64_t)n, logits, &e), PT_USAGE);
    assert_non_null(strstr(e.text, "at token 2, but the model's vocabulary has"));
    assert_int_equal(pt_generator_logits(g, batch, 2, 1 << 20, logits, &e), PT_USAGE);
    free(ids);
    free(logits);
    pt_tokenizer_close(t);
    pt_generator_close(g);
}

static void the_same_seed_draws_the_same_text_again(void **state)
{
    char a[4096], b[4096], c[4096];
    pt_generate_options o = greedy();
    o.temperature = 1;
    o.seed = 7;
    pt_generator *g = open_generator(&o);
    continue_text(g, "One", 30, a, sizeof a);
    continue_text(g, "Something else, and longer", 5, b, sizeof b);
    continue_text(g, "One", 30, b, sizeof b);
    assert_string_equal(a, b);
    pt_generator_close(g);
    o.seed = 8;
    g = open_generator(&o);
    continue_text(g, "One", 30, c, sizeof c);
    assert_string_not_equal(a, c);
    pt_generator_close(g);
}

static void a_text_ends_before_any_of_the_tokens_that_end_it(void **state)
{
    enum { N = 10 };
    uint32_t made[N];
    char text[4096], config[64];
    int first = 0;
    most_probable("The end", N, 1, made);
    while (made[first] != made[N / 2]) /* it may come earlier */
        first++;
    snprintf(config, sizeof config, "{\"eos_token_id\": [1, %u]}", made[N / 2]);
    scratch_put("model/generation_config.json", config, strlen(config));
    pt_generate_options o = greedy();
    o.ignore_eos = false;
    pt_generator *g = open_generator(&o);
    int64_t n = continue_text(g, "The end", N, text, sizeof text);
    pt_generator_close(g);
    o.ignore_eos = true;
    g = open_generator(&o);
    int64_t more = continue_text(g, "The end", N, text, sizeof text);
    pt_generator_close(g);
    assert_int_equal(unlink(scratch_path("model/generation_config.json")), 0);
    assert_true(n <= first); /* fewer where another end (1, 420) came before */
    assert_int_equal(more, N);
}

/* A vocabulary may name ids that no token has: they are drawn like others, and say nothing. A template's end is not put behind a prompt. */
static void gaps_say_nothing_and_a_prompt_is_not_ended(void **state)
{
    char text[4096];
    int64_t prompt, closed;
    pt_error e = {0};
    json_t *whole;
    pt_generate_options o = greedy();
    o.temperature = 5;
    pt_generator *g = open_generator(&o);
    continue_text(g, "Some words", 1, text, sizeof text);
    pt_generator_tokens(g, &prompt);
    pt_generator_close(g);

    const char *path = strdup(scratch_path("model/tokenizer.json"));
    assert_int_equal(json_file_load(path, 0, &whole, &e), 0);
    char *before = json_dumps(whole, 0);
    json_array_append_new(json_object_get(whole, "added_tokens"), json_pack("{s:i, s:s, s:b, s:b, s:b, s:b, s:b}", "id", 423, "content",
                                                                            "<last>",
        "single_word", 0, "lstrip", 0, "rstrip", 0, "normalized", 0, "special", 1)); /* none has 421 or 422 */
    json_object_set_new(whole, "post_processor", json_pack("{s:s, s:[{s:{s:s, s:i}}, {s:{s:s, s:i}}], s:[], s:{s:{s:s, s:[i], s:[s]}}}",
        "type", "TemplateProcessing", "single", "Sequence", "id", "A", "type_id", 0, "SpecialToken", "id", "<|endoftext|>", "type_id", 0,
        "pair", "special_tokens", "<|endoftext|>", "id", "<|endoftext|>", "ids", 420, "tokens", "<|endoftext|>"));
    char *after = json_dumps(whole, 0);
    json_decref(whole);
    scratch_put("model/tokenizer.json", after, strlen(after));
    g = open_generator(&o);
    for (int i = 0; i < 40; i++) {
        char start[16];
        snprintf(start, sizeof start, "%d", i);
        assert_int_equal(continue_text(g, start, 40, text, sizeof text), 40);
    }
    continue_text(g, "Some words", 1, text, sizeof text);
    pt_generator_tokens(g, &closed);
    assert_int_equal(closed, prompt);
    pt_generator_close(g);
    scratch_put("model/tokenizer.json", before, strlen(before));
    free(before), free(after), free((char *)path);
}

/* No file names a token that ends a text: the architecture's does, 2 of Llama's. */
static void the_architecture_has_an_end_of_its_own(void **state)
{
    static const char config[] = "{\"model_type\": \"llama\", \"vocab_size\": 8, \"hidden_size\": 32, \"intermediate_size\": 48, "
                                 "\"num_hidden_layers\": 1, \"num_attention_heads\": 2, \"max_position_embeddings\": 64%s}";
    char text[4096], whole[400];
    const char *before = folder;
    int64_t made[2] = {0};
    for (int named = 0; named < 2; named++) {
        folder = strdup(make_model_folder("llama", 32, 1, 48, seed));
        snprintf(whole, sizeof whole, config, named ? ", \"eos_token_id\": 9" : "");
        scratch_put("llama/config.json", whole, strlen(whole));
        write_weights(folder, seed);
        pt_generate_options o = greedy();
        o.temperature = 3;
        o.ignore_eos = false;
        for (o.seed = 0; o.seed < 8; o.seed++) {
            pt_generator *g = open_generator(&o);
            made[named] += continue_text(g, "!", 50, text, sizeof text);
            pt_generator_close(g);
        }
        free((char *)folder);
    }
    folder = before;
    assert_true(made[0] < 8 * 50);
    assert_int_equal(made[1], 8 * 50); /* named, and beyond the vocabulary: none */
}

static void count_notice(void *arg, const char *sentence) { ++*(int *)arg; }

static void the_context_of_the_model_is_the_end_and_is_announced(void **state)
{
    char text[4096];
    int notices = 0;
    int64_t prompt;
    pt_generate_options o = greedy();
    o.notice = count_notice;
    o.arg = &notices;
    pt_generator *g = open_generator(&o);
    int64_t n = continue_text(g, "A b c", 1000, text, sizeof text);
    pt_generator_tokens(g, &prompt);
    assert_int_equal(n + prompt, 48);
    assert_int_equal(notices, 1);
    assert_int_equal(continue_text(g, "A b c", 3, text, sizeof text), 3);
    assert_int_equal(continue_text(g, "A b c", 0, text, sizeof text), 0);
    assert_int_equal(notices, 1);
    assert_int_equal(continue_text(g, "", 4, text, sizeof text), 4);
    pt_generator_close(g);
}

/* ---- weights that do not fit ---- */

static char told[512];

static void keep_note(void *arg, const char *sentence)
{
    (void)arg;
    if (strstr(sentence, "do not fit"))
        snprintf(told, sizeof told, "%s", sentence);
}

/* The memory of so many streamed layers, and of a context of so many tokens, whose caches are on a GPU or, if they leave it, on the host.
 * *store: of all that is streamed. */
static uint64_t memory_with(const char *device_name, const char *model_folder, int streamed, int64_t context, bool leaves, uint64_t *store)
{
    pt_error e = {0};
    model *m;
    device *d, *h;
    assert_int_equal(model_open(model_folder, NULL, NULL, &m, &e), 0);
    assert_int_equal(device_open(device_name, &(device_options){.threads = 2}, &d, &h, &e), 0);
    const cache_plan away = {inference_cache_layers(m), inference_cache_blocks(m)};
    const uint64_t bytes = inference_bytes(m, PT_F32, d, streamed, context, leaves ? away : (cache_plan){0}) + d->info.threads_bytes;
    *store = stream_store_bytes(m, PT_F32, streamed);
    device_close(d, h);
    model_close(m);
    return bytes;
}

/* On a GPU from host memory, or from the disk if that is too small. */
static void the_text_is_the_same_where_weights_are_fetched(void **state)
{
    (void)state;
    enum { LAYERS = 6, TOKENS = 16 };
    const char *name = getenv("PROTRAIN_TEST_DEVICE"), *kept = folder;
    const bool gpu = name && strcmp(name, "cpu");
    char whole[4096], text[4096], layers[64], size[32];
    static const int streamed[] = {3, 4, LAYERS, LAYERS}; /* two would take the slots of two */
    folder = strdup(make_model_folder("deep", 32, LAYERS, 96, seed));
    pt_generate_options o = greedy();
    o.device = gpu ? name : "cpu";
    o.disk_path = scratch_path("spill");
    o.notice = keep_note;
    pt_generator *g = open_generator(&o);
    continue_text(g, "Hello there, hello", TOKENS, whole, sizeof whole);
    int64_t context;
    uint64_t store;
    pt_generator_tokens(g, &context);
    context += TOKENS;
    pt_generator_close(g);
    assert_int_equal(*told, 0);
    for (int i = 0; i < 4; i++) {
        o.device_memory = memory_with(o.device, folder, streamed[i], context, false, &store);
        o.host_memory = gpu && i == 3 ? store - 1 : PT_AUTO; /* too little: the weights go to the disk */
        g = open_generator(&o);
        for (int again = 0; again < 2; again++) { /* the second text begins in the middle of a round */
            continue_text(g, again ? "Hello" : "Hello there, hello", TOKENS - again, text, sizeof text);
            if (!again)
                assert_string_equal(text, whole);
        }
        pt_generator_close(g);
        snprintf(layers, sizeof layers, "those of %d of %d layers", streamed[i], LAYERS);
        assert_non_null(strstr(told, layers));
        assert_non_null(strstr(told, gpu && i < 3 ? "from host memory" : "from the disk"));
        *told = 0;
    }
    pt_error e = {0};
    o.device_memory = memory_with(o.device, folder, LAYERS, context, gpu, &store) - 5000; /* not even with all fetched */
    g = open_generator(&o);
    assert_int_equal(pt_generator_prompt(g, "Hello there, hello", 18, TOKENS, &e), PT_DOES_NOT_FIT);
    pt_generator_close(g);
    o.device_memory = memory_with(o.device, folder, LAYERS, context, gpu, &store);
    snprintf(layers, sizeof layers, "`device_memory` %s", size_option(size, o.device_memory)); /* the least that suffices */
    assert_non_null(strstr(e.text, layers));
    o.disk_memory = 0;
    o.host_memory = PT_AUTO;
    g = open_generator(&o);
    assert_int_equal(pt_generator_prompt(g, "Hello there, hello", 18, TOKENS, &e), gpu ? 0 : PT_DOES_NOT_FIT);
    assert_true(gpu || strstr(e.text, "the disk may not be used"));
    pt_generator_close(g);
    o = greedy();
    o.model = folder;
    o.host_memory = 1 << 30;
    assert_int_equal(pt_generator_open(&o, &g, &e), PT_USAGE); /* on a CPU */
    assert_non_null(strstr(e.text, "`device_memory`"));
    free((char *)folder);
    folder = kept;
}

static int generate_with(const char *model_folder, const char *memory)
{
    arguments a = {0};
    add_arguments(&a, WORDS("generate", "--model", model_folder, "--prompt", "Hello there, hello", "--max-new-tokens", "16",
                            "--temperature", "0", "--dtype", "fp32", "--ignore-eos", "--disk-path", scratch, "--device-memory", memory));
    return program_wait(program_start(&a, scratch_path("out"), scratch_path("err")));
}

/* No text is made of weights that did not come whole. */
static void a_disk_that_fails_is_told(void **state)
{
    (void)state;
    const char *name = getenv("PROTRAIN_TEST_DEVICE");
    char deep[300], memory[32], fault[64];
    uint64_t store;
    if (!SHIM_WORKS || (name && strcmp(name, "cpu")))
        skip();
    snprintf(deep, sizeof deep, "%s", make_model_folder("deep", 32, 6, 96, seed));
    snprintf(memory, sizeof memory, "%llu", (unsigned long long)memory_with("cpu", deep, 4, 40, false, &store));
    assert_int_equal(generate_with(deep, "1GiB"), 0);
    char *whole = strdup(text_of(scratch_path("out")));
    fault_set("tier read 1 none", NULL);
    assert_int_equal(generate_with(deep, memory), 0);
    assert_string_equal(text_of(scratch_path("out")), whole);
    const int reads = fault_count();
    assert_true(reads >= 16 * 4);
    static const char *const kinds[] = {"read %d eio", "read 3 short", "write 2 enospc"};
    for (int i = 0; i < 5; i++) {
        char what[40];
        const int call = i == 0 ? 3 /* the first one is a trial of O_DIRECT */ : i == 1 ? reads / 2 : reads - 4;
        snprintf(what, sizeof what, kinds[i < 3 ? 0 : i - 2], call);
        snprintf(fault, sizeof fault, "tier %s", what);
        fault_set(fault, NULL);
        const int status = generate_with(deep, memory);
        if (i == 3) {
            assert_int_equal(status, 0);
            assert_string_equal(text_of(scratch_path("out")), whole);
        } else if (status != 1 || strncmp(text_of(scratch_path("out")), whole, strcspn(text_of(scratch_path("out")), "\n"))) {
            fail_msg("%s: status %d, \"%s\" for \"%s\"", fault, status, text_of(scratch_path("out")), whole);
        }
    }
    fault_clear();
    free(whole);
}

static void refusals_name_the_mend(void **state)
{
    pt_error e = {0};
    pt_generate_options o = greedy();
    pt_generator *g = open_generator(&o);
    char longer[200];
    memset(longer, '~', sizeof longer);
    assert_int_equal(pt_generator_prompt(g, longer, sizeof longer, 5, &e), PT_FAILED);
    assert_non_null(strstr(e.text, "shorten it to 47"));
    pt_generator_close(g);
    o.device_memory = 1000;
    g = open_generator(&o);
    assert_int_equal(pt_generator_prompt(g, "x", 1, 5, &e), PT_DOES_NOT_FIT);
    assert_non_null(strstr(e.text, "`device_memory`"));
    assert_null(strstr(e.text, "`max_new_tokens`")); /* a shorter text would not fit either */
    pt_generator_close(g);
    const struct { double temperature, top_p; int64_t top_k; } wrong[] = {{-2, 1, 0}, {1, 0, 0}, {1, 1.5, 0}, {1, 1, -2}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        o = greedy();
        o.model = folder;
        o.temperature = wrong[i].temperature;
        o.top_p = wrong[i].top_p;
        o.top_k = wrong[i].top_k;
        assert_int_equal(pt_generator_open(&o, &g, &e), PT_USAGE);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(greedy_text_is_that_of_the_whole_sequence_computed_anew),
        cmocka_unit_test(a_base_in_few_bits_gives_a_gpu_the_text_of_the_cpu),
        cmocka_unit_test(a_model_says_how_its_text_is_sampled),
        cmocka_unit_test(a_value_of_the_file_that_makes_no_sense_is_named),
        cmocka_unit_test(logits_of_a_batch_are_those_of_generation),
        cmocka_unit_test(the_same_seed_draws_the_same_text_again),
        cmocka_unit_test(a_text_ends_before_any_of_the_tokens_that_end_it),
        cmocka_unit_test(gaps_say_nothing_and_a_prompt_is_not_ended),
        cmocka_unit_test(the_architecture_has_an_end_of_its_own),
        cmocka_unit_test(the_context_of_the_model_is_the_end_and_is_announced),
        cmocka_unit_test(the_text_is_the_same_where_weights_are_fetched),
        cmocka_unit_test(a_disk_that_fails_is_told),
        cmocka_unit_test(refusals_name_the_mend),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
