#include "chat/prompt.h"
#include "infer/generator.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "infer/model_folder.h"
#include "seed.h"

#define TEMPLATE                                                                                                       \
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}<|endoftext|>{% endfor %}{% if add_generation_prompt "        \
    "%}<assistant>{% endif %}"

static const char *folder, *delta_folder, *template_file;

static int set_up(void **state)
{
    const uint64_t seed = test_seed();
    scratch_make(state);
    static const char delta[] = "{\"model_type\": \"qwen3_5_text\", \"vocab_size\": 424, \"hidden_size\": 32, \"num_hidden_layers\": 3, "
                                "\"num_attention_heads\": 2, \"num_key_value_heads\": 1, \"head_dim\": 16, \"intermediate_size\": 48, "
                                "\"full_attention_interval\": 3, \"linear_num_key_heads\": 1, \"linear_num_value_heads\": 2, "
                                "\"linear_key_head_dim\": 16, \"linear_value_head_dim\": 16, \"max_position_embeddings\": 512, "
                                "\"initializer_range\": 0.3, \"bos_token_id\": 420, \"eos_token_id\": 420}";
    folder = strdup(make_model_folder("model", 32, 2, 512, seed));
    delta_folder = strdup(make_folder_of("delta", delta, seed));
    scratch_put("template.jinja", TEMPLATE, strlen(TEMPLATE));
    template_file = strdup(scratch_path("template.jinja"));
    return 0;
}

static int tear_down(void **state)
{
    free((char *)folder);
    free((char *)delta_folder);
    free((char *)template_file);
    return scratch_remove(state);
}

static pt_generator *open_generator(const char *model, const char *system, bool ignore_eos)
{
    pt_error e = {0};
    pt_generator *g;
    pt_generate_options o;
    pt_generate_defaults(&o);
    o.model = model;
    o.temperature = 0;
    o.device = "cpu";
    o.precision = PT_PRECISION_FP32;
    o.threads = 2;
    o.system = system;
    o.chat_template = template_file;
    o.ignore_eos = ignore_eos;
    if (pt_generator_open(&o, &g, &e))
        fail_msg("%s", e.text);
    return g;
}

/* What comes behind, NUL-terminated, and its bytes, of which some may be 0; `to` has room for 4096 bytes. */
static size_t read_all(pt_generator *g, char *to)
{
    pt_error e = {0};
    const char *piece;
    size_t bytes, n = 0;
    int more;
    while ((more = pt_generator_next(g, &piece, &bytes, &e)) > 0) {
        assert_true(n + bytes < 4096);
        memcpy(to + n, piece, bytes);
        n += bytes;
    }
    if (more < 0)
        fail_msg("%s", e.text);
    to[n] = 0;
    return n;
}

static size_t say(pt_generator *g, const char *text, int64_t most, char *reply)
{
    pt_error e = {0};
    if (pt_generator_say(g, text, strlen(text), most, &e))
        fail_msg("%s", e.text);
    return read_all(g, reply);
}

/* Turns continue what was fed before; each reply is that to the whole conversation written out. */
static void check_turns(const char *model)
{
    pt_error e = {0};
    char reply[4096], whole[16384] = "<system>Be brief.<|endoftext|>", alone[4096];
    size_t n = strlen(whole);
    pt_generator *g = open_generator(model, "Be brief.", true), *other = open_generator(model, NULL, true);
    static const char *const turns[] = {"The one", "and 12 more", "or not?", "x"};
    for (int i = 0; i < 4; i++) {
        n += (size_t)snprintf(whole + n, sizeof whole - n, "<user>%s<|endoftext|><assistant>", turns[i]);
        if (i == 2) { /* what cannot be taken changes nothing */
            assert_int_equal(pt_generator_say(g, "\xff\xfe", 2, 5, &e), PT_FAILED);
            assert_non_null(strstr(e.text, "UTF-8"));
        }
        const size_t replied = say(g, turns[i], 12, reply);
        assert_int_equal(pt_generator_prompt(other, whole, n, 12, &e), 0);
        assert_int_equal(read_all(other, alone), replied);
        assert_memory_equal(reply, alone, replied);
        memcpy(whole + n, reply, replied);
        n += replied;
        n += (size_t)snprintf(whole + n, sizeof whole - n, "<|endoftext|>");
    }
    pt_generator_close(other);
    pt_generator_close(g);
}

static void turns_are_one_text(void **state)
{
    (void)state;
    check_turns(folder);
}

/* A state cannot be cut back to where two conversations part. */
static void turns_of_a_model_with_states_are_one_text(void **state)
{
    (void)state;
    check_turns(delta_folder);
}

/* The special token that the template puts behind a reply ends one, though no file names it as an end. */
static void a_turn_has_its_own_end(void **state)
{
    (void)state;
    char reply[4096];
    const char *config = "{\"model_type\": \"gpt2\", \"vocab_size\": 424, \"n_embd\": 32, \"n_layer\": 2, \"n_head\": "
                         "2, \"n_positions\": 512, "
                         "\"eos_token_id\": null}";
    char *other = strdup(make_model_folder("other", 32, 2, 512, 1));
    scratch_put("other/config.json", config, strlen(config));
    pt_generator *g = open_generator(other, NULL, false);
    assert_int_equal(g->stops.n, 0);
    say(g, "12", 5, reply);
    assert_true(g->stops.n == 1 && stops_has(&g->stops, 420));
    pt_generator_close(g);
    free(other);
}

static void the_end_of_a_turn_is_found(void **state)
{
    (void)state;
    static const struct { const char *text; int64_t end; } all[] = {
        {TEMPLATE, 420},
        {"{% for m in messages %}{{ m.content }}\n<|endoftext|>\n{% endfor %}", 420},
        {"{% for m in messages %}<|endoftext|>{{ m.content }}\n{% endfor %}", -1},
        {"{{ raise_exception('no') }}", -1},
        {"{{ messages[0].content }}<|endoftext|>", -1},
    };
    tokenizer *t;
    encoder *c;
    pt_error e = {0};
    if (tokenizer_open(folder, &t, &e) || encoder_open(t, &c, &e))
        fail_msg("%s", e.text);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        chat_source s;
        scratch_put("end.jinja", all[i].text, strlen(all[i].text));
        assert_int_equal(chat_source_open(&s, folder, scratch_path("end.jinja"), &e), 0);
        assert_int_equal(chat_turn_end(&s, t, c, 0), all[i].end);
        chat_source_close(&s);
    }
    encoder_close(c);
    tokenizer_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(turns_are_one_text), cmocka_unit_test(turns_of_a_model_with_states_are_one_text),
        cmocka_unit_test(a_turn_has_its_own_end),
        cmocka_unit_test(the_end_of_a_turn_is_found),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
