/* serve.c - pt_serve: one thread reads requests and sends answers, this one runs the model, for one request after the other. */
#include "protrain.h"

#include "serve/http.h"

#include "base/clock.h"

#include <time.h>

enum { ANSWER_S = 600 }; /* then an answer is cut off */

typedef struct task {
    serve_jobs *jobs;
    serve_job *job;
    const pt_serve_options *o;
    double until;
    bool took;
} task;

static int take(void *arg, const char *bytes, size_t n)
{
    task *x = arg;
    x->took = true;
    return serve_job_put(x->jobs, x->job, 200, bytes, n, !x->job->request.stream);
}

static bool is_over(void *arg)
{
    task *x = arg;
    pthread_mutex_lock(&x->jobs->lock);
    const bool gone = x->job->gone;
    pthread_mutex_unlock(&x->jobs->lock);
    return gone || clock_s() > x->until || (x->o->stop && x->o->stop(x->o->arg));
}

static void answer(serve_http *h, serve_jobs *jobs, serve_job *job, pt_generator *g, const pt_serve_options *o, uint64_t number)
{
    pt_error e = {0};
    task x = {jobs, job, o, clock_s() + ANSWER_S, false};
    const answer_sink sink = {take, is_over, &x};
    serve_reply r = {.chat = job->request.chat, .number = number, .created = time(NULL), .model = h->model};
    if (serve_answer(g, &job->request, &r, o->max_new_tokens, &sink, &e) && !x.took) {
        text_buffer out = {0};
        serve_put_error(&out, e.text, false, false);
        serve_job_put(jobs, job, 400, out.bytes, out.n, true);
        text_buffer_free(&out);
    }
    serve_job_leave(jobs, job);
}

static int check_options(const pt_serve_options *o, pt_error *e)
{
    if (o->port < 0 || o->port > 65535)
        return pt_fail(e, PT_USAGE, "`port` is %d: it must be from 0 (any that is free) to 65535", o->port);
    if (o->max_new_tokens < 1)
        return pt_fail(e, PT_USAGE, "`max_new_tokens` is %lld: it must be 1 or more", (long long)o->max_new_tokens);
    return 0;
}

static int run(const pt_serve_options *o, pt_generator *g, pt_error *e)
{
    serve_jobs jobs;
    serve_http h = {.jobs = &jobs, .folder = o->generate.model};
    int failed = serve_jobs_open(&jobs, e);
    if (failed)
        return failed;
    failed = serve_http_open(&h, o->host ? o->host : "127.0.0.1", o->port, e);
    if (!failed && o->ready)
        o->ready(o->arg, h.url);
    for (uint64_t number = 0; !failed && !(o->stop && o->stop(o->arg));) {
        serve_job *job = serve_jobs_take(&jobs);
        if (job)
            answer(&h, &jobs, job, g, o, number++);
    }
    if (!failed)
        serve_jobs_close(&jobs, "the server ends");
    serve_http_close(&h);
    serve_jobs_free(&jobs);
    return failed;
}

int pt_serve(const pt_serve_options *o, pt_error *e)
{
    pt_generator *g;
    if (!o)
        return pt_fail_null(e, "pt_serve", "the options");
    int failed = check_options(o, e);
    if (!failed)
        failed = pt_generator_open(&o->generate, &g, e);
    if (failed)
        return failed;
    failed = pt_generator_prompt(g, "a", 1, 1, e); /* the first prompt loads the weights */
    if (!failed)
        failed = run(o, g, e);
    pt_generator_close(g);
    return failed;
}
