#include "report/samples_file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "infer/model_folder.h"

static const char *folder;
static char data[200], out[200], said[300], chats[200], template[200];

static int set_up(void **state)
{
    static const char text[] = "Some text to be learned, and a little more of it, so that there are windows.";
#define TURNS(question, reply)                                                                                                             \
    "{\"messages\": [{\"role\": \"user\", \"content\": \"" question "\"}, {\"role\": \"assistant\", \"content\": \"" reply "\"}]}\n"
    static const char conversations[] = TURNS("Some text", "is said") TURNS("more", "of it");
    static const char rendering[] = "{% for m in messages %}<{{ m.role }}>{{ m.content }}<|endoftext|>{% endfor %}{% if "
                                    "add_generation_prompt %}<assistant>{% endif %}";
    if (scratch_make(state))
        return 1;
    folder = strdup(make_model_folder("model", 32, 2, 96, 5));
    scratch_put("data.txt", text, sizeof text - 1);
    snprintf(data, sizeof data, "%s", scratch_path("data.txt"));
    scratch_put("chats.jsonl", conversations, sizeof conversations - 1);
    snprintf(chats, sizeof chats, "%s", scratch_path("chats.jsonl"));
    scratch_put("template.jinja", rendering, sizeof rendering - 1);
    snprintf(template, sizeof template, "%s", scratch_path("template.jinja"));
    return 0;
}

static int tear_down(void **state)
{
    free((char *)folder);
    return scratch_remove(state);
}

static int told;

static void notice(void *arg, const char *sentence) { told += strstr(sentence, arg) != NULL; }

static pt_train_options options(const char *name, const char *const *prompts, int n)
{
    static const char *const files[] = {data};
    pt_train_options o;
    snprintf(out, sizeof out, "%s/%s", scratch, name);
    snprintf(said, sizeof said, "%s/" SAMPLES_NAME, out);
    pt_train_defaults(&o);
    o.model = folder;
    o.data = o.eval_data = files;
    o.data_n = o.eval_data_n = 1;
    o.out = out;
    o.steps = 3;
    o.seq_len = 4;
    o.batch_size = 2;
    o.threads = 2;
    o.device = "cpu";
    o.precision = PT_PRECISION_FP32;
    o.device_memory = 64 << 20;
    o.sample = prompts;
    o.sample_n = n;
    o.notice = notice;
    o.arg = "left out";
    told = 0;
    return o;
}

static void run(const pt_train_options *o)
{
    pt_error e = {0};
    pt_trainer *t;
    pt_step s;
    pt_summary m;
    double loss;
    int64_t tokens;
    int more = pt_trainer_open(o, &t, &e);
    while (more >= 0 && (more = pt_trainer_step(t, &s, &e)) > 0) {}
    if (more < 0 || pt_trainer_finish(t, &e) < 0)
        fail_msg("%s", e.text);
    pt_trainer_summary(t, &m);
    assert_true(m.memory_n > 0 && m.memory[0].peak_bytes > 0); /* as it was */
    assert_int_equal(pt_trainer_step(t, &s, &e), 0);
    if (o->sample_n) {
        assert_int_equal(pt_trainer_evaluate(t, &loss, &tokens, &e), PT_FAILED);
        assert_non_null(strstr(e.text, "no memory any more"));
    }
    pt_trainer_close(t);
}

/* How the model in the folder goes on, or replies by its template, always with the most probable token. */
static void goes_on_as(const char *model, const char *adapter, bool replies, const char *prompt, char *to, size_t room)
{
    pt_error e = {0};
    pt_generate_options o;
    pt_generator *g;
    const char *piece;
    size_t bytes, n = 0;
    pt_generate_defaults(&o);
    o.model = model;
    o.adapter = adapter;
    o.chat_template = template;
    o.temperature = 0;
    o.precision = PT_PRECISION_FP32;
    o.device = "cpu";
    if (pt_generator_open(&o, &g, &e) || (replies ? pt_generator_say : pt_generator_prompt)(g, prompt, strlen(prompt), 64, &e))
        fail_msg("%s", e.text);
    while (pt_generator_next(g, &piece, &bytes, &e) > 0) {
        assert_true(n + bytes < room);
        memcpy(to + n, piece, bytes);
        n += bytes;
    }
    to[n] = 0;
    pt_generator_close(g);
}

static void goes_on(const char *model, const char *prompt, char *to, size_t room) { goes_on_as(model, NULL, false, prompt, to, room); }

static char *weights(void)
{
    char path[300], *bytes;
    size_t n;
    pt_error e = {0};
    snprintf(path, sizeof path, "%s/model.safetensors", out);
    if (file_read_all(path, 1 << 24, &bytes, &n, &e))
        fail_msg("%s", e.text);
    char *sum = malloc(n + 8);
    memcpy(sum, &n, 8);
    memcpy(sum + 8, bytes, n);
    free(bytes);
    return sum;
}

static void samples_are_what_the_model_says_and_change_nothing(void **state)
{
    (void)state;
    static const char *const prompts[] = {"Some text", "\"x\" \xc3\xa4"};
    char text[4096];
    pt_error e = {0};
    said_samples s;
    pt_train_options o = options("without", NULL, 0);
    run(&o);
    assert_false(path_exists(said));
    char *without = weights();
    o = options("with", prompts, 2);
    run(&o);
    char *with = weights();
    size_t n;
    memcpy(&n, without, 8);
    assert_memory_equal(with, without, n + 8);
    free(with);
    free(without);
    assert_int_equal(told, 0);
    assert_int_equal(said_read(said, &s, &e), 0);
    assert_int_equal(s.n, 4);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(s.list[i].step, i < 2 ? 0 : 3);
        assert_string_equal(s.list[i].prompt, prompts[i % 2]);
        goes_on(i < 2 ? folder : out, prompts[i % 2], text, sizeof text);
        assert_string_equal(s.list[i].text, text);
    }
    said_free(&s);
    o = options("with", prompts, 1); /* from the end of that run on */
    o.resume = true;
    o.steps = 5;
    run(&o);
    assert_int_equal(said_read(said, &s, &e), 0);
    assert_int_equal(s.n, 5);
    assert_true(s.list[3].step == 3 && s.list[4].step == 5);
    said_free(&s);
}

/* Of adapters: the model that was given, and with what was trained; the next run goes on from that. */
static void adapters_and_templates_are_those_of_the_run(void **state)
{
    (void)state;
    static const char *const prompts[] = {"Some text", "more"}, *const files[] = {chats};
    char text[4096], first[200];
    pt_error e = {0};
    said_samples s, t;
    pt_train_options o = options("replies", prompts, 2);
    o.data = o.eval_data = files;
    o.chat_template = template;
    o.seq_len = 64;
    o.batch_size = 1;
    o.lora_rank = 2;
    o.lr = 0.1;
    run(&o);
    assert_int_equal(told, 0);
    assert_int_equal(said_read(said, &s, &e), 0);
    assert_int_equal(s.n, 4);
    int changed = 0;
    for (int i = 0; i < 4; i++) {
        goes_on_as(folder, i < 2 ? NULL : out, true, prompts[i % 2], text, sizeof text);
        assert_string_equal(s.list[i].text, text);
        changed += i > 1 && strcmp(text, s.list[i - 2].text) != 0;
    }
    assert_true(changed);
    memcpy(first, out, sizeof first);
    o = options("further", prompts, 2);
    o.data = o.eval_data = files;
    o.chat_template = template;
    o.seq_len = 64;
    o.batch_size = 1;
    o.adapter = first;
    run(&o);
    assert_int_equal(said_read(said, &t, &e), 0);
    for (int i = 0; i < 2; i++)
        assert_string_equal(t.list[i].text, s.list[2 + i].text); /* where the other run ended */
    said_free(&s);
    said_free(&t);
}

/* A prompt beyond the model's context, or a file that is none of samples: a line says it, and the run goes on. */
static void what_cannot_be_said_is_left_out(void **state)
{
    (void)state;
    char long_prompt[400];
    pt_error e = {0};
    said_samples s;
    memset(long_prompt, '7', sizeof long_prompt - 1);
    long_prompt[sizeof long_prompt - 1] = 0;
    const char *const prompts[] = {long_prompt};
    pt_train_options o = options("long", prompts, 1);
    run(&o);
    assert_int_equal(told, 2);
    assert_int_equal(said_read(said, &s, &e), 0);
    assert_int_equal(s.n, 0);
    scratch_put("bad.jsonl", "{\"step\": 1, \"prompt\": \"a\", \"text\": \"b\"}\n{\"step\": 2}\n", 52);
    assert_int_equal(said_read(scratch_path("bad.jsonl"), &s, &e), PT_FAILED);
    assert_non_null(strstr(e.text, "bad.jsonl: line 2: the key \"prompt\" is missing"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(samples_are_what_the_model_says_and_change_nothing),
        cmocka_unit_test(adapters_and_templates_are_those_of_the_run),
        cmocka_unit_test(what_cannot_be_said_is_left_out),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
