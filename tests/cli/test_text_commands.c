/* generate, tokenize and eval as a user meets them: what they print, and their exit status. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "cli/terminal.h"
#include "infer/model_folder.h"
#include "program.h"

#include <errno.h>
#include <math.h>
#include <sys/resource.h>
#include <unistd.h>

static char out[1 << 16], err[1 << 14];

static void read_back(const char *name, char *text, size_t room)
{
    FILE *f = fopen(scratch_path(name), "rb");
    size_t n = fread(text, 1, room - 1, f);
    text[n] = 0;
    fclose(f);
}

/* Runs `PROGRAM ARGUMENTS` with a shell in the scratch folder, where the model lies in `model`; its exit status. */
static int run_redirected(const char *arguments, const char *redirections)
{
    char name[16], command[2048];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(arguments, " "), arguments);
    snprintf(command, sizeof command, "cd %s && '%s' %s%s%s < in 2> err %s", scratch, PT_PROGRAM, name,
             command_computes(name) ? " --device cpu --threads 2" : "", arguments + strlen(name), redirections);
    int status = system(command);
    read_back("err", err, sizeof err);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static int run(const char *input, const char *arguments)
{
    scratch_put("in", input, strlen(input));
    int status = run_redirected(arguments, "> out");
    read_back("out", out, sizeof out);
    return status;
}

static int set_up(void **state)
{
    scratch_make(state);
    make_model_folder("model", 32, 2, 64, 5);
    return 0;
}

static void ids_on_a_line_or_as_json_and_back_byte_for_byte(void **state)
{
    const char text[] = " Two words\n\xe2\x82\xac \xff<|endoftext|>and more \n\n";
    assert_int_equal(run(text, "tokenize --model model"), 0);
    char ids[4096];
    snprintf(ids, sizeof ids, "%.4000s", out);
    assert_true(strspn(ids, "0123456789 ") == strlen(ids) - 1 && ids[strlen(ids) - 1] == '\n');
    assert_non_null(strstr(ids, " 420 "));
    assert_int_equal(run(ids, "tokenize --model model --decode"), 0);
    assert_string_equal(out, text);
    assert_int_equal(run(text, "tokenize --model model --json"), 0);
    json_t *root = json_loads(out, 0, NULL);
    assert_true(json_array_size(json_object_get(root, "ids")) > 10);
    json_decref(root);
    snprintf(ids, sizeof ids, "%.4000s", out);
    assert_int_equal(run(ids, "tokenize --model model --json --decode"), 0);
    assert_string_equal(out, text);
    assert_int_equal(run(ids, "tokenize --model model --decode"), 0);
    assert_string_equal(out, text);
    assert_int_equal(run("10, 11", "tokenize --model model --json --decode"), 0);
    assert_int_equal(run("", "tokenize --model model --json"), 0);
    assert_string_equal(out, "{\"ids\": []}\n");
}

static void ids_that_are_none_are_refused(void **state)
{
    assert_int_equal(run("1 2 x", "tokenize --model model --decode"), 1);
    assert_non_null(strstr(err, "byte 4"));
    assert_int_equal(run("99999", "tokenize --model model --decode"), 1);
    assert_int_equal(run("{\"ids\": [1.5]}", "tokenize --model model --decode --json"), 1);
    assert_int_equal(run("[[", "tokenize --model model --decode --json"), 1);
    assert_int_equal(run("", "tokenize"), 2);
    assert_int_equal(run("", "tokenize --model nowhere"), 1);
    assert_non_null(strstr(err, "nowhere"));
    assert_int_equal(run("", "tokenize --model model/tokenizer.json"), 1);
    assert_non_null(strstr(err, "model/tokenizer.json: is a file"));
    assert_int_equal(run("", "tokenize --model model --wrong"), 2);
}

static void a_conversation_becomes_ids_and_what_is_learned(void **state)
{
    static const char chat[] = "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", "
                               "\"content\": \"b \\u20ac\"}]}";
    static const char template[] = "{% for m in messages %}[{{ m.role }}]{{ m.content }}<|endoftext|>{% endfor %}"
                                   "{% if add_generation_prompt %}[assistant]{% endif %}";
    scratch_put("chat.jinja", template, strlen(template));
    assert_int_equal(run(chat, "tokenize --model model --chat --chat-template chat.jinja --json"), 0);
    json_t *root = json_loads(out, 0, NULL), *ids = json_object_get(root, "ids"), *learned = json_object_get(root, "learned");
    const size_t n = json_array_size(ids);
    assert_string_equal(json_string_value(json_object_get(root, "text")), "[user]a<|endoftext|>[assistant]b \xe2\x82\xac<|endoftext|>");
    assert_int_equal(json_array_size(learned), n);
    assert_int_equal(json_integer_value(json_array_get(ids, n - 1)), 420);
    assert_int_equal(json_integer_value(json_array_get(learned, n - 1)), 1);
    assert_int_equal(json_integer_value(json_array_get(learned, 0)), 0);
    json_decref(root);
    assert_int_equal(run(chat, "tokenize --model model --chat"), 1);
    assert_non_null(strstr(err, "--chat-template"));
    const char *pair = "{\"prompt\": \"a\", \"chosen\": \"bc\", \"rejected\": \"d\"}";
    assert_int_equal(run(pair, "tokenize --model model --chat --json"), 0);
    root = json_loads(out, 0, NULL);
    const json_t *rejected = json_object_get(root, "rejected");
    assert_string_equal(json_string_value(json_object_get(root, "text")), "abc");
    assert_string_equal(json_string_value(json_object_get(rejected, "text")), "ad");
    assert_int_equal(json_array_size(json_object_get(rejected, "ids")), json_array_size(json_object_get(rejected, "learned")));
    json_decref(root);
    assert_int_equal(run(pair, "tokenize --model model --chat"), 0);
    assert_non_null(strchr(strchr(out, '\n') + 1, '\n'));
    assert_int_equal(run("{\"text\": \"abc\"}", "tokenize --model model --chat --json"), 0);
    root = json_loads(out, 0, NULL);
    assert_string_equal(json_string_value(json_object_get(root, "text")), "abc");
    ids = json_object_get(root, "ids");
    assert_int_equal(json_integer_value(json_array_get(ids, json_array_size(ids) - 1)), 420);
    json_decref(root);
    assert_int_equal(run("{\"text\": 3}", "tokenize --model model --chat --json"), 1);
    assert_non_null(strstr(err, "\"text\" is an integer"));
    assert_int_equal(run("[1]", "tokenize --model model --chat --chat-template chat.jinja"), 1);
    assert_non_null(strstr(err, "message 1"));
    assert_int_equal(run(chat, "tokenize --model model --chat --decode"), 2);
    assert_int_equal(run(chat, "tokenize --model model --chat-template chat.jinja"), 2);
}

/* What a command writes to a terminal, without carriage returns. */
static int run_on_terminal(const char *input, const char *arguments)
{
    char name[64], redirection[200];
    const int shown = terminal_open(80, name);
    const int kept = open(name, O_RDWR | O_NOCTTY | O_CLOEXEC); /* what was written stays until it is read */
    assert_true(kept >= 0);
    scratch_put("in", input, strlen(input));
    snprintf(redirection, sizeof redirection, "> %s; echo $? > status; printf '\\4' > %s", name, name);
    assert_int_equal(run_redirected(arguments, redirection), 0);
    size_t n = 0;
    for (char c = 0; n + 1 < sizeof out && read(shown, &c, 1) == 1 && c != 4;)
        if (c != '\r')
            out[n++] = c;
    out[n] = 0;
    close(kept);
    close(shown);
    char status[16];
    read_back("status", status, sizeof status);
    return atoi(status);
}

#define GREEN(text) "\033[1;32m" text "\033[0m"

static void a_terminal_shows_what_is_learned_in_green(void **state)
{
    static const char chat[] = "[{\"role\": \"user\", \"content\": \"a\\u001b[2J\"}, {\"role\": \"assistant\", \"content\": \"b\"}]";
    static const char template[] = "{% for m in messages %}[{{ m.role }}]{{ m.content }}<|endoftext|>{% endfor %}"
                                   "{% if add_generation_prompt %}[assistant]{% endif %}";
    scratch_put("chat.jinja", template, strlen(template));
    assert_int_equal(run_on_terminal(chat, "tokenize --model model --chat --chat-template chat.jinja"), 0);
    assert_non_null(strstr(out, "[user]a?[2J<|endoftext|>[assistant]" GREEN("b<|endoftext|>") "\n"));
    /* the end-of-text token, which is not in the text, and what goes before it */
    assert_int_equal(run_on_terminal("{\"prompt\": \"a\", \"completion\": \"b\"}", "tokenize --model model --chat"), 0);
    assert_non_null(strstr(out, "a" GREEN("b") GREEN("<|endoftext|>") "\n2 of 3 tokens"));
    assert_int_equal(run_on_terminal("{\"prompt\": \"a\", \"chosen\": \"b\", \"rejected\": \"\"}", "tokenize --model model --chat"), 0);
    assert_non_null(strstr(out, "a" GREEN("b") GREEN("<|endoftext|>") "\n"));
    assert_non_null(strstr(out, "rejected\033[0m\na" GREEN("<|endoftext|>") "\n1 of 2 tokens"));
}

/* Ids do not depend on the day, here as in training. */
static void a_templates_date_is_that_of_training(void **state)
{
    static const char template[] = "{{ strftime_now('%d %b %Y') }}{% for m in messages %}{{ m.content }}<|endoftext|>{% endfor %}";
    scratch_put("dated.jinja", template, strlen(template));
    assert_int_equal(run("[{\"role\": \"user\", \"content\": \"a\"}]",
                         "tokenize --model model --chat --chat-template dated.jinja --json"), 0);
    assert_non_null(strstr(out, "\"26 Jul 2024a"));
}

static void the_new_text_alone_or_with_the_prompt(void **state)
{
    char text[4096];
    assert_int_equal(run("", "generate --model model --prompt 'Hello' --max-new-tokens 12 --temperature 0 --ignore-eos"), 0);
    assert_true(out[0] != 0);
    snprintf(text, sizeof text, "Hello%.4000s", out);
    assert_int_equal(run("", "generate --model model --prompt Hello --max-new-tokens 12 --temperature 0 --ignore-eos --echo"), 0);
    assert_string_equal(out, text);
    assert_int_equal(run("Hello", "generate --model model --prompt-file - --max-new-tokens 12 --top-k 1 --ignore-eos --echo "
                                  "--quiet"), 0);
    assert_string_equal(out, text);
    assert_string_equal(err, "");
    assert_int_equal(run("Hello", "generate --model model --prompt-file in --max-new-tokens 0"), 0);
    assert_string_equal(out, "");
    assert_non_null(strstr(err, "; 0 new tokens\n")); /* at no speed */
}

static void what_cannot_be_generated_says_why(void **state)
{
    assert_int_equal(run("", "generate --model model"), 2);
    assert_int_equal(run("", "generate --model model --prompt a --prompt-file b"), 2);
    assert_int_equal(run("", "generate --model model --prompt a --top-p 0"), 2);
    assert_int_equal(run("", "generate --model nowhere --prompt a"), 1);
    assert_int_equal(run("", "generate --model model --prompt-file nowhere"), 1);
    assert_non_null(strstr(err, "nowhere"));
    assert_int_equal(run("", "generate --model model --prompt a --device-memory 1KiB"), 3);
    assert_int_equal(run("", "generate --help"), 0);
    assert_non_null(strstr(out, "--temperature"));
}

static void a_prompt_without_end_is_refused(void **state)
{
    scratch_put("long", "", 0);
    assert_int_equal(truncate(scratch_path("long"), (65 << 20)), 0);
    assert_int_equal(run("", "generate --model model --prompt-file long"), 1);
    assert_non_null(strstr(err, "long: the text has more than 64 MiB"));
    assert_int_equal(run("", "generate --model model --prompt-file /dev/zero"), 1);
    assert_non_null(strstr(err, "/dev/zero: the text has more than 64 MiB"));
}

/* The file's name and what is wrong with it, however long the path is. */
static void a_long_path_does_not_hide_what_is_wrong(void **state)
{
    char path[1400] = "", arguments[1600];
    for (int i = 0; i < 13; i++)
        snprintf(path + 100 * i, sizeof path - 100 * (size_t)i, "%099d/", i);
    strcat(path, "prompt.txt");
    snprintf(arguments, sizeof arguments, "generate --model model --prompt-file %s", path);
    assert_int_equal(run("", arguments), 1);
    assert_non_null(strstr(err, "/prompt.txt: cannot open this file: No such file or directory\n"));
}

static void loss_and_perplexity_for_people_and_as_json(void **state)
{
    assert_int_equal(run("Some text to be scored, and a little more of it.", "tokenize --model model --json"), 0);
    json_t *ids = json_loads(out, 0, NULL);
    size_t n = json_array_size(json_object_get(ids, "ids"));
    scratch_put("data.txt", "Some text to be scored, and a little more of it.", 48);
    assert_int_equal(run("", "eval --model model --data data.txt --json --quiet"), 0);
    json_t *root = json_loads(out, 0, NULL);
    assert_true(json_real_value(json_object_get(root, "loss")) > 0);
    assert_true(json_real_value(json_object_get(root, "perplexity")) > 1);
    assert_int_equal(json_integer_value(json_object_get(root, "tokens")), n); /* EOS at the end, and no target for the first */
    json_decref(root);
    json_decref(ids);
    assert_int_equal(run("", "eval --model model --data data.txt --quiet --dtype fp32 --seq-len 5"), 0);
    assert_non_null(strstr(out, "perplexity"));
    assert_int_equal(run("", "eval --model model"), 2);
    assert_int_equal(run("", "eval --model model --data nowhere.txt"), 1);
    assert_int_equal(run("", "eval --model model --data data.txt --device-memory 1KiB --disk-memory 0"), 3);
}

static void what_standard_output_does_not_take_fails(void **state)
{
    static const char *const commands[] = {"--version", "--help", "eval --help", "tokenize --model model", "help tokenize",
                                           "eval --model model --data data.txt --quiet",
                                           "generate --model model --prompt a --quiet --max-new-tokens 5"};
    scratch_put("in", "Some text", 9);
    scratch_put("data.txt", "Some text to be scored.", 23);
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        for (int closed = 0; closed < 2; closed++) {
            assert_int_equal(run_redirected(commands[i], closed ? ">&-" : "> /dev/full"), 1);
            assert_non_null(strstr(err, "written to standard output"));
            if (strchr(err, '\n')[1])
                fail_msg("%s: %s", commands[i], err);
        }
}

/* Where the standard streams are closed, the run's files take their numbers, and the summary would land in metrics.jsonl. */
static void a_run_without_standard_streams_writes_what_it_writes_with_them(void **state)
{
    static char with[1 << 14], without[1 << 14];
    static const char train[] = "train --model model --data data.txt --seq-len 4 --batch-size 1 --steps 2 --device-memory 64MiB";
    char command[256];
    scratch_put("data.txt", "Some text to be learned, and a little more of it.", 49);
    snprintf(command, sizeof command, "%s --out with", train);
    assert_int_equal(run_redirected(command, "> out"), 0);
    snprintf(command, sizeof command, "%s --out without", train);
    assert_int_equal(run_redirected(command, "<&- >&- 2>&-"), 1);
    read_back("with/model.safetensors", with, sizeof with);
    read_back("without/model.safetensors", without, sizeof without);
    assert_memory_equal(with, without, sizeof with);
    read_back("without/metrics.jsonl", without, sizeof without);
    assert_true(strncmp(without, "{\"step\":1,", 10) == 0);
}

/* The next line as an object, where there is one; *line moves on. */
static json_t *next_object(const char **line)
{
    const char *end = strchr(*line, '\n');
    json_t *object = end ? json_loadb(*line, (size_t)(end - *line), 0, NULL) : NULL;
    *line = end ? end + 1 : *line;
    return object;
}

static void a_step_is_the_same_object_on_standard_output_and_in_the_metrics(void **state)
{
    static char metrics[1 << 14];
    scratch_put("data.txt", "Some text to be learned, and a little more of it.", 49);
    assert_int_equal(run("", "train --model model --data data.txt --seq-len 4 --batch-size 1 --steps 3 --eval-every 2 --eval-data data.txt "
                             "--device-memory 64MiB --json --quiet --out both"), 0);
    assert_non_null(strstr(err, "step 2: evaluation loss")); /* no part of the bar, which --quiet leaves out */
    read_back("both/metrics.jsonl", metrics, sizeof metrics);
    const char *a = out, *b = metrics;
    for (int step = 1; step <= 3; step++) {
        json_t *shown = next_object(&a), *written = next_object(&b), *value;
        const char *key;
        assert_int_equal(json_integer_value(json_object_get(shown, "step")), step);
        assert_int_equal(json_object_size(shown), json_object_size(written));
        json_object_foreach(written, key, value)
            assert_true(fabs(json_number_value(json_object_get(shown,
                                                               key)) - json_number_value(value)) <= 1e-6 * fabs(json_number_value(value)));
        assert_true(json_integer_value(json_object_get(shown, "device_peak_bytes")) > 0);
        assert_true((step >= 2) == (json_object_get(shown, "eval_loss") != NULL));
        json_decref(shown);
        json_decref(written);
    }
}

/* The exit status of a run of so many steps while no file may have more bytes. */
static int run_limited(rlim_t bytes, int steps, const char *folder)
{
    struct rlimit before;
    char command[256];
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    scratch_put("data.txt", "Some text to be learned, and a little more of it.", 49);
    snprintf(command, sizeof command, "train --model model --data data.txt --seq-len 4 --batch-size 1 --steps %d --device-memory 64MiB "
                                      "--quiet --out %s", steps, folder);
    setrlimit(RLIMIT_FSIZE, &(struct rlimit){bytes, before.rlim_max});
    int status = run_redirected(command, "> /dev/null");
    setrlimit(RLIMIT_FSIZE, &before);
    return status;
}

/* A limit on the size of files is told before the first step, and where metrics meet it, it is like a full disk: not the signal that ends
 * a process without a word. */
static void a_file_that_may_not_grow_is_an_error_that_names_it(void **state)
{
    char final[256];
    assert_int_equal(run_limited(8192, 1, "short"), 3);
    assert_non_null(strstr(err, "short: "));
    assert_non_null(strstr(err, "ulimit -f"));
    snprintf(final, sizeof final, "%s/short/model.safetensors", scratch);
    assert_int_not_equal(access(final, F_OK), 0);
    assert_int_equal(run_limited(400 << 10, 100000, "many"), 1);
    if (!strstr(err, "many/metrics.jsonl"))
        fail_msg("%s", err);
    assert_non_null(strstr(err, strerror(EFBIG)));
}

static void a_run_on_pairs_ends_with_margin_and_accuracy(void **state)
{
    (void)state;
    const char *pairs = "{\"prompt\": \"a\", \"chosen\": \"bc\", \"rejected\": \"d\"}\n{\"prompt\": \"e\", \"chosen\": \"f\", "
                        "\"rejected\": \"gh\"}\n";
    scratch_put("pairs.jsonl", pairs, strlen(pairs));
    assert_int_equal(run("", "train --model model --data pairs.jsonl --task dpo --lora 2 --lr 0.1 --steps 3 --seq-len 32 --batch-size 1 "
                             "--quiet --out pairs"), 0);
    const char *last = strstr(err, ", margin ");
    if (!last || !strstr(last, ", chosen 100% after step 3"))
        fail_msg("%s", err);
}

static void an_export_names_its_file_at_the_end(void **state)
{
    (void)state;
    assert_int_equal(run("", "export --model model --to gguf --type f32 --out model.gguf"), 0);
    assert_string_equal(out, "exported to model.gguf\n");
    assert_int_equal(access(scratch_path("model.gguf"), R_OK), 0);
    assert_int_equal(run("", "export --model model --to gguf --type f32 --out quiet.gguf --quiet"), 0);
    assert_string_equal(out, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_export_names_its_file_at_the_end),
        cmocka_unit_test(ids_on_a_line_or_as_json_and_back_byte_for_byte),
        cmocka_unit_test(ids_that_are_none_are_refused),
        cmocka_unit_test(a_conversation_becomes_ids_and_what_is_learned),
        cmocka_unit_test(a_terminal_shows_what_is_learned_in_green),
        cmocka_unit_test(a_templates_date_is_that_of_training),
        cmocka_unit_test(the_new_text_alone_or_with_the_prompt),
        cmocka_unit_test(what_cannot_be_generated_says_why),
        cmocka_unit_test(a_prompt_without_end_is_refused),
        cmocka_unit_test(a_long_path_does_not_hide_what_is_wrong),
        cmocka_unit_test(loss_and_perplexity_for_people_and_as_json),
        cmocka_unit_test(what_standard_output_does_not_take_fails),
        cmocka_unit_test(a_file_that_may_not_grow_is_an_error_that_names_it),
        cmocka_unit_test(a_step_is_the_same_object_on_standard_output_and_in_the_metrics),
        cmocka_unit_test(a_run_without_standard_streams_writes_what_it_writes_with_them),
        cmocka_unit_test(a_run_on_pairs_ends_with_margin_and_accuracy),
    };
    return cmocka_run_group_tests(tests, set_up, scratch_remove);
}
