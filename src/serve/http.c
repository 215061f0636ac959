#include "serve/http.h"

#include <errno.h>
#include <microhttpd.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

enum { BODY_MOST = 8 << 20, CONNECTIONS_MOST = 128, SILENCE_S = 60, HEADERS_BYTES = 32 << 10, PIECE = 4096 };

/* A request while it is read. */
typedef struct upload {
    text_buffer body;
    bool too_large;
    serve_job *job;       /* once it is read */
} upload;

/* ---- answers ---- */

static enum MHD_Result respond(struct MHD_Connection *c, int status, struct MHD_Response *response, const char *type)
{
    if (!response)
        return MHD_NO;
    MHD_add_response_header(response, "Content-Type", type);
    const enum MHD_Result sent = MHD_queue_response(c, (unsigned)status, response);
    MHD_destroy_response(response);
    return sent;
}

static enum MHD_Result respond_text(struct MHD_Connection *c, int status, const text_buffer *text)
{
    return respond(c, status, MHD_create_response_from_buffer(text->n, text->bytes, MHD_RESPMEM_MUST_COPY), "application/json");
}

static enum MHD_Result refuse(struct MHD_Connection *c, int status, const char *sentence)
{
    text_buffer out = {0};
    const enum MHD_Result sent = serve_put_error(&out, sentence, false, false) ? MHD_NO : respond_text(c, status, &out);
    text_buffer_free(&out);
    return sent;
}

typedef struct reader { serve_jobs *jobs; serve_job *job; } reader;

static ssize_t read_events(void *arg, uint64_t at, char *out, size_t most)
{
    const reader *r = arg;
    serve_job *x = r->job;
    (void)at;
    pthread_mutex_lock(&r->jobs->lock);
    const size_t n = x->out.n < most ? x->out.n : most;
    const bool ends = !n && x->done;
    if (n) {
        memcpy(out, x->out.bytes, n);
        memmove(x->out.bytes, x->out.bytes + n, x->out.n - n);
        x->out.n -= n;
    } else if (!ends) {
        x->suspended = true;
        MHD_suspend_connection(x->connection);
    }
    pthread_mutex_unlock(&r->jobs->lock);
    return ends ? MHD_CONTENT_READER_END_OF_STREAM : (ssize_t)n;
}

static enum MHD_Result respond_job(serve_http *h, serve_job *x)
{
    pthread_mutex_lock(&h->jobs->lock);
    const int status = x->status;
    pthread_mutex_unlock(&h->jobs->lock);
    if (status != MHD_HTTP_OK || !x->request.stream) /* complete: one piece */
        return respond_text(x->connection, status ? status : MHD_HTTP_INTERNAL_SERVER_ERROR, &x->out);
    reader *r = malloc(sizeof *r);
    if (!r)
        return MHD_NO;
    *r = (reader){h->jobs, x};
    struct MHD_Response *response = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, PIECE, read_events, r, free);
    if (response)
        MHD_add_response_header(response, "Cache-Control", "no-cache");
    return respond(x->connection, MHD_HTTP_OK, response, "text/event-stream");
}

/* ---- requests ---- */

static enum MHD_Result begin_job(serve_http *h, struct MHD_Connection *c, upload *u, bool chat)
{
    pt_error e = {0};
    serve_job *x = calloc(1, sizeof *x);
    if (!x)
        return MHD_NO;
    if (serve_request_parse(u->body.n ? u->body.bytes : "", u->body.n, chat, &x->request, &e)) {
        free(x);
        return refuse(c, MHD_HTTP_BAD_REQUEST, e.text);
    }
    x->connection = c;
    if (serve_jobs_add(h->jobs, x)) {
        u->job = x;
        return MHD_YES;
    }
    serve_request_free(&x->request);
    free(x);
    return refuse(c, MHD_HTTP_SERVICE_UNAVAILABLE, "too many requests wait: try again later");
}

static const char *header(struct MHD_Connection *c, const char *name)
{
    const char *value = MHD_lookup_connection_value(c, MHD_HEADER_KIND, name);
    return value ? value : "";
}

/* A web page in a browser on this machine must not use the model: a name that leads here need not be this machine's, and a page cannot send
 * JSON to another site without being allowed to. */
static bool is_addressed(const serve_http *h, struct MHD_Connection *c)
{
    static const char *const ours[] = {"127.0.0.1", "localhost", "[::1]"};
    const char *host = header(c, "Host");
    bool known = !h->local || !host[0];
    for (int i = 0; i < 3; i++) {
        const size_t n = strlen(ours[i]);
        known = known || (!strncasecmp(host, ours[i], n) && (!host[n] || host[n] == ':'));
    }
    return known;
}

static bool is_json(struct MHD_Connection *c) { return !strncasecmp(header(c, "Content-Type"), "application/json", 16); }

static enum MHD_Result refuse_address(struct MHD_Connection *c)
{
    return refuse(c, MHD_HTTP_NOT_FOUND, "there is no such address: GET /v1/models, POST /v1/chat/completions or /v1/completions");
}

static enum MHD_Result get(serve_http *h, struct MHD_Connection *c, const char *path)
{
    static const char models[] = "/v1/models";
    text_buffer out = {0};
    const bool one = !strncmp(path, models, sizeof models - 1) && path[sizeof models - 1] == '/';
    if (!strcmp(path, "/health"))
        text_buffer_append(&out, "{\"status\":\"ok\"}\n", 16, NULL);
    else if (!strcmp(path, models) || (one && !strcmp(path + sizeof models, h->model)))
        serve_put_models(&out, h->model, h->since, !one);
    else
        return refuse_address(c);
    const enum MHD_Result sent = respond_text(c, MHD_HTTP_OK, &out);
    text_buffer_free(&out);
    return sent;
}

static enum MHD_Result answer(serve_http *h, struct MHD_Connection *c, const char *path, const char *method, upload *u)
{
    const bool post = !strcmp(method, "POST"), chat = !strcmp(path, "/v1/chat/completions");
    const bool completion = chat || !strcmp(path, "/v1/completions");
    if (u->job)
        return respond_job(h, u->job);
    if (!is_addressed(h, c))
        return refuse(c, MHD_HTTP_FORBIDDEN, "this server is for this machine: address it by 127.0.0.1 or localhost");
    if (!completion)
        return strcmp(method, "GET") ? refuse_address(c) : get(h, c, path);
    if (!post)
        return refuse(c, MHD_HTTP_METHOD_NOT_ALLOWED, "this address takes POST");
    if (!is_json(c))
        return refuse(c, MHD_HTTP_UNSUPPORTED_MEDIA_TYPE, "the header \"Content-Type: application/json\" is missing");
    return u->too_large ? refuse(c, 413, "the body is larger than 8 MiB") : begin_job(h, c, u, chat);
}

static enum MHD_Result on_request(void *arg, struct MHD_Connection *c, const char *path, const char *method, const char *version,
                                  const char *data, size_t *n, void **state)
{
    upload *u = *state;
    (void)version;
    if (!u) {
        *state = calloc(1, sizeof *u);
        return *state ? MHD_YES : MHD_NO;
    }
    if (!*n)
        return answer(arg, c, path, method, u);
    u->too_large = u->too_large || u->body.n + *n > BODY_MOST;
    if (!u->too_large && text_buffer_append(&u->body, data, *n, NULL))
        return MHD_NO;
    *n = 0;
    return MHD_YES;
}

static void on_end(void *arg, struct MHD_Connection *c, void **state, enum MHD_RequestTerminationCode code)
{
    serve_http *h = arg;
    upload *u = *state;
    (void)c;
    (void)code;
    if (!u)
        return;
    if (u->job)
        serve_job_hang_up(h->jobs, u->job);
    text_buffer_free(&u->body);
    free(u);
    *state = NULL;
}

/* ---- the server ---- */

static void set_name(serve_http *h)
{
    char *whole = realpath(h->folder, NULL);
    const char *path = whole ? whole : h->folder, *slash = strrchr(path, '/');
    snprintf(h->model, sizeof h->model, "%s", slash && slash[1] ? slash + 1 : path);
    free(whole);
    h->since = time(NULL);
}

static bool is_loopback(const char *host) { return !strncmp(host, "127.", 4) || !strcmp(host, "::1"); }

int serve_http_open(serve_http *h, const char *host, int port, pt_error *e)
{
    const struct addrinfo wish = {.ai_flags = AI_NUMERICHOST | AI_PASSIVE, .ai_socktype = SOCK_STREAM};
    struct addrinfo *found;
    char text[16];
    snprintf(text, sizeof text, "%d", port);
    if (getaddrinfo(host, text, &wish, &found))
        return pt_fail(e, PT_USAGE, "`host` is \"%.100s\": it must be an address in numbers, such as 127.0.0.1 or 0.0.0.0", host);
    set_name(h);
    h->local = is_loopback(host);
    const bool six = found->ai_family == AF_INET6;
    errno = 0;
    const unsigned how = MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_AUTO | MHD_ALLOW_SUSPEND_RESUME | (six ? MHD_USE_IPv6 : 0u);
    h->daemon = MHD_start_daemon(how, (uint16_t)port, NULL, NULL, on_request, h, MHD_OPTION_SOCK_ADDR, found->ai_addr,
                                 MHD_OPTION_NOTIFY_COMPLETED, on_end, h, MHD_OPTION_CONNECTION_LIMIT, (unsigned)CONNECTIONS_MOST,
                                 MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)SILENCE_S, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
                                 (size_t)HEADERS_BYTES, MHD_OPTION_END);
    const int why = errno;
    freeaddrinfo(found);
    if (!h->daemon)
        return pt_fail(e, PT_FAILED, "port %d of %.100s cannot be listened on (%s): give another `port`", port, host,
                       why ? strerror(why) : "no reason is known");
    const union MHD_DaemonInfo *bound = MHD_get_daemon_info(h->daemon, MHD_DAEMON_INFO_BIND_PORT);
    snprintf(h->url, sizeof h->url, six ? "http://[%.60s]:%d/v1" : "http://%.60s:%d/v1", host, bound ? bound->port : port);
    return 0;
}

void serve_http_close(serve_http *h)
{
    if (h->daemon)
        MHD_stop_daemon(h->daemon);
    h->daemon = NULL;
}
