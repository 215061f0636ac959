/* The server over a socket: its texts are those of the generator, requests that are wrong are told why, and clients may leave. */
#include "protrain.h"
#include "serve/request.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "infer/model_folder.h"
#include "seed.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#define TEMPLATE                                                                                                                           \
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}<|endoftext|>{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"

enum { TOKENS = 12 };

static char *folder, *template_file;
static pthread_t thread;
static atomic_int port, ending;
static pt_error failure;

static void take_url(void *arg, const char *url)
{
    (void)arg;
    atomic_store(&port, atoi(strrchr(url, ':') + 1));
}

static bool is_ending(void *arg)
{
    (void)arg;
    return atomic_load(&ending);
}

static pt_generate_options options(void)
{
    pt_generate_options o;
    pt_generate_defaults(&o);
    o.model = folder;
    o.temperature = 0;
    o.device = "cpu";
    o.precision = PT_PRECISION_FP32;
    o.threads = 2;
    o.chat_template = template_file;
    return o;
}

static void *serve(void *arg)
{
    (void)arg;
    const pt_serve_options o = {.generate = options(), .host = "127.0.0.1", .max_new_tokens = TOKENS, .ready = take_url, .stop = is_ending};
    if (pt_serve(&o, &failure))
        atomic_store(&port, -1);
    return NULL;
}

static int set_up(void **state)
{
    scratch_make(state);
    folder = strdup(make_model_folder("model", 32, 2, 256, test_seed()));
    scratch_put("template.jinja", TEMPLATE, strlen(TEMPLATE));
    template_file = strdup(scratch_path("template.jinja"));
    assert_int_equal(pthread_create(&thread, NULL, serve, NULL), 0);
    while (!atomic_load(&port))
        usleep(1000);
    if (atomic_load(&port) < 0)
        fail_msg("%s", failure.text);
    return 0;
}

static int tear_down(void **state)
{
    atomic_store(&ending, 1);
    pthread_join(thread, NULL);
    free(folder);
    free(template_file);
    return scratch_remove(state);
}

/* ---- a client ---- */

static int connect_to(void)
{
    const struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atomic_load(&port)),
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(fd >= 0 && !connect(fd, (const struct sockaddr *)&at, sizeof at));
    return fd;
}

static void send_all(int fd, const char *text, size_t n)
{
    for (ssize_t sent; n; text += sent, n -= (size_t)sent)
        if ((sent = send(fd, text, n, MSG_NOSIGNAL)) <= 0)
            return; /* it was refused before it was read to the end */
}

static void ask(int fd, const char *method, const char *path, const char *headers, const char *body)
{
    char head[512];
    snprintf(head, sizeof head, "%s %s HTTP/1.0\r\n%sContent-Length: %zu\r\n\r\n", method, path, headers, strlen(body));
    send_all(fd, head, strlen(head));
    send_all(fd, body, strlen(body));
}

#define JSON "Content-Type: application/json\r\n"

/* The whole response; its body begins at *body. */
static char *request(const char *method, const char *path, const char *headers, const char *json, int *status, const char **body)
{
    const int fd = connect_to();
    char *all = calloc(1, 1 << 20);
    size_t n = 0;
    ask(fd, method, path, headers, json);
    for (ssize_t got; (got = recv(fd, all + n, (1 << 20) - 1 - n, 0)) > 0;)
        n += (size_t)got;
    close(fd);
    *status = atoi(all + strlen("HTTP/1.x "));
    *body = strstr(all, "\r\n\r\n");
    assert_non_null(*body);
    *body += 4;
    return all;
}

static json_t *answer_to(const char *path, const char *json)
{
    int status;
    const char *body;
    char *all = request("POST", path, JSON, json, &status, &body);
    if (status != 200)
        fail_msg("%s: status %d: %s", json, status, body);
    json_t *o = json_loads(body, JSON_ALLOW_NUL, NULL);
    assert_non_null(o);
    free(all);
    return o;
}

/* Appends n bytes to the string `to`. A NUL, which a random model writes like any token, becomes a space. */
static void append(char *to, const char *text, size_t n)
{
    for (to += strlen(to); n; n--, text++)
        *to++ = *text ? *text : ' ';
    *to = 0;
}

static const char *text_of(const json_t *o)
{
    static char text[1 << 16];
    const json_t *choice = json_array_get(json_object_get(o, "choices"), 0), *message = json_object_get(choice, "message");
    const json_t *value = message ? json_object_get(message, "content") : json_object_get(choice, "text");
    assert_true(json_is_string(value));
    *text = 0;
    append(text, json_string_value(value), json_string_length(value));
    return text;
}

static const char *reason_of(const json_t *o)
{
    return json_string_value(json_object_get(json_array_get(json_object_get(o, "choices"), 0), "finish_reason"));
}

/* What the generator says of the same. */
static char *generated(const char *message, const char *prompt)
{
    pt_generate_options o = options();
    pt_generator *g;
    pt_error e = {0};
    const char *text;
    size_t n;
    char *all = calloc(1, 1 << 16);
    assert_int_equal(pt_generator_open(&o, &g, &e), 0);
    assert_int_equal(message ? pt_generator_say(g, message, strlen(message), TOKENS, &e)
                             : pt_generator_prompt(g, prompt, strlen(prompt), TOKENS, &e), 0);
    while (pt_generator_next(g, &text, &n, &e) > 0)
        append(all, text, n);
    pt_generator_close(g);
    return all;
}

#define HELLO "\"messages\": [{\"role\": \"user\", \"content\": \"hello\"}]"

static void a_reply_is_that_of_the_generator(void **state)
{
    (void)state;
    char *said = generated("hello", NULL), *continued = generated(NULL, "hello");
    json_t *o = answer_to("/v1/chat/completions", "{\"model\": \"any\", " HELLO "}");
    assert_string_equal(text_of(o), said);
    assert_string_equal(json_string_value(json_object_get(o, "object")), "chat.completion");
    const json_t *usage = json_object_get(o, "usage");
    const json_int_t made = json_integer_value(json_object_get(usage, "completion_tokens"));
    assert_true(made > 0 && made <= TOKENS && json_integer_value(json_object_get(usage, "prompt_tokens")) > 0);
    assert_string_equal(reason_of(o), made == TOKENS ? "length" : "stop");
    json_decref(o);
    o = answer_to("/v1/chat/completions", "{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"hel\"}, "
                                          "{\"type\": \"text\", \"text\": \"lo\"}]}], \"max_tokens\": 100000}");
    assert_string_equal(text_of(o), said);
    json_decref(o);
    o = answer_to("/v1/completions", "{\"prompt\": \"hello\"}");
    assert_string_equal(text_of(o), continued);
    json_decref(o);
    if (strlen(continued) > 2) { /* it ends before a stop text */
        char body[300];
        json_t *letter = json_stringn(continued + strlen(continued) / 2, 1);
        char *stop = json_dumps(letter, JSON_ENCODE_ANY);
        json_decref(letter);
        if (stop && continued[strlen(continued) / 2] != ' ') { /* a space may stand for a NUL */
            snprintf(body, sizeof body, "{\"prompt\": \"hello\", \"stop\": [\"\\u4e00\", %s]}", stop);
            o = answer_to("/v1/completions", body);
            const size_t n = strlen(text_of(o));
            assert_true(n < strlen(continued) && !strncmp(text_of(o), continued, n));
            assert_string_equal(reason_of(o), "stop");
            json_decref(o);
        }
        free(stop);
    }
    free(said);
    free(continued);
}

static void a_stream_adds_up_to_the_reply(void **state)
{
    (void)state;
    int status;
    const char *body;
    char *said = generated("hello", NULL), *sum = calloc(1, 1 << 16);
    static const char streamed[] = "{" HELLO ", \"stream\": true, \"stream_options\": {\"include_usage\": true}}";
    char *all = request("POST", "/v1/chat/completions", JSON, streamed, &status, &body);
    bool ended = false, counted = false;
    assert_int_equal(status, 200);
    assert_non_null(strstr(all, "text/event-stream"));
    for (const char *line = body; *line; line = strchr(line, '\n') + 2) {
        assert_memory_equal(line, "data: ", 6);
        if (!strncmp(line + 6, "[DONE]", 6)) {
            ended = true;
            continue;
        }
        json_t *o = json_loadb(line + 6, strcspn(line + 6, "\n"), JSON_ALLOW_NUL, NULL);
        assert_non_null(o);
        const json_t *delta = json_object_get(json_array_get(json_object_get(o, "choices"), 0), "delta");
        const json_t *text = json_object_get(delta, "content");
        if (text)
            append(sum, json_string_value(text), json_string_length(text));
        counted = counted || json_is_object(json_object_get(o, "usage"));
        json_decref(o);
    }
    assert_true(ended && counted);
    assert_string_equal(sum, said);
    free(all);
    free(said);
    free(sum);
}

static void what_is_wrong_is_told(void **state)
{
    (void)state;
    static const struct { const char *method, *path, *headers, *body; int status; const char *said; } all[] = {
        {"GET", "/v1/models", "", "", 200, "\"id\":\"model\""},
        {"GET", "/v1/models/model", "", "", 200, "\"owned_by\":\"protrain\""},
        {"GET", "/health", "", "", 200, "ok"},
        {"GET", "/v1/models/other", "", "", 404, "no such address"},
        {"GET", "/v1/chat/completions", "", "", 405, "POST"},
        {"DELETE", "/v1/models", "", "", 404, "no such address"},
        {"GET", "/v1/models", "Host: example.com\r\n", "", 403, "127.0.0.1"},
        {"GET", "/v1/models", "Host: localhost:80\r\n", "", 200, "model"},
        {"POST", "/v1/chat/completions", "", "{" HELLO "}", 415, "Content-Type"},
        {"POST", "/v1/chat/completions", JSON, "{\"messages\": [}", 400, "not JSON"},
        {"POST", "/v1/chat/completions", JSON, "", 400, "not JSON"},
        {"POST", "/v1/chat/completions", JSON, "[1]", 400, "must be an object"},
        {"POST", "/v1/chat/completions", JSON, "{}", 400, "\\\"messages\\\" must be"},
        {"POST", "/v1/chat/completions", JSON, "{\"messages\": [{\"content\": \"x\"}]}", 400, "has no \\\"role\\\""},
        {"POST", "/v1/chat/completions", JSON, "{" HELLO ", \"temperature\": -1}", 400, "\\\"temperature\\\" must be"},
        {"POST", "/v1/chat/completions", JSON, "{" HELLO ", \"n\": 2}", 400, "\\\"n\\\" must be 1"},
        {"POST", "/v1/chat/completions", JSON, "{" HELLO ", \"tools\": [{}]}", 400, "\\\"tools\\\" is not supported"},
        {"POST", "/v1/completions", JSON, "{\"prompt\": [\"a\", \"b\"]}", 400, "\\\"prompt\\\" must be"}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        int status;
        const char *body;
        char *response = request(all[i].method, all[i].path, all[i].headers, all[i].body, &status, &body);
        if (status != all[i].status || !strstr(body, all[i].said))
            fail_msg("%s %s %s: %d %s", all[i].method, all[i].path, all[i].body, status, body);
        free(response);
    }
    int status;
    const char *body;
    char *large = malloc((9 << 20) + 1);
    memset(large, ' ', 9 << 20);
    large[9 << 20] = 0;
    char *response = request("POST", "/v1/completions", JSON, large, &status, &body);
    assert_int_equal(status, 413);
    free(response);
    memset(large, 'a', 5000); /* more tokens than the model's context has room for */
    memcpy(large, "{\"prompt\": \"", 12);
    strcpy(large + 5000, "\"}");
    response = request("POST", "/v1/completions", JSON, large, &status, &body);
    assert_int_equal(status, 400);
    assert_non_null(strstr(body, "context"));
    free(response);
    free(large);
}

/* Clients that leave, at any point, do not keep others waiting. */
static void clients_may_leave(void **state)
{
    (void)state;
    enum { CLIENTS = 24 };
    int open[CLIENTS];
    for (int i = 0; i < CLIENTS; i++) {
        open[i] = connect_to();
        if (i % 4 == 1)
            send_all(open[i], "POST /v1/comp", 13);
        else if (i % 4)
            ask(open[i], "POST", "/v1/chat/completions", JSON, i % 4 == 2 ? "{" HELLO ", \"stream\": true}" : "{" HELLO "}");
    }
    for (int i = 0; i < CLIENTS; i++)
        if (i % 8 < 6)
            close(open[i]);
    json_t *o = answer_to("/v1/completions", "{\"prompt\": \"hello\"}");
    json_decref(o);
    for (int i = 0; i < CLIENTS; i++)
        if (i % 8 >= 6)
            close(open[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_reply_is_that_of_the_generator), cmocka_unit_test(a_stream_adds_up_to_the_reply),
                                       cmocka_unit_test(what_is_wrong_is_told), cmocka_unit_test(clients_may_leave)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
