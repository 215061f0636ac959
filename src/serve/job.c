#include "serve/job.h"

#include <errno.h>
#include <microhttpd.h>
#include <stdlib.h>
#include <time.h>

enum { WAITING_MOST = 64 };

int serve_jobs_open(serve_jobs *j, pt_error *e)
{
    pthread_condattr_t clock;
    *j = (serve_jobs){0};
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    const int failed = pthread_mutex_init(&j->lock, NULL) || pthread_cond_init(&j->some, &clock);
    pthread_condattr_destroy(&clock);
    return failed ? pt_fail(e, PT_FAILED, "no memory for a queue of requests") : 0;
}

static void wake(serve_job *x)
{
    if (x->suspended && !x->gone)
        MHD_resume_connection(x->connection);
    x->suspended = false;
}

bool serve_jobs_add(serve_jobs *j, serve_job *x)
{
    pthread_mutex_lock(&j->lock);
    const bool taken = !j->closed && j->waiting < WAITING_MOST;
    if (taken) {
        *(j->last ? &j->last->next : &j->first) = x;
        j->last = x;
        j->waiting++;
        x->queued = x->suspended = true;
        MHD_suspend_connection(x->connection);
        pthread_cond_signal(&j->some);
    }
    pthread_mutex_unlock(&j->lock);
    return taken;
}

static serve_job *pop(serve_jobs *j)
{
    serve_job *x = j->first;
    if (x) {
        j->first = x->next;
        j->last = j->first ? j->last : NULL;
        j->waiting--;
        x->next = NULL;
    }
    return x;
}

serve_job *serve_jobs_take(serve_jobs *j)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += 100000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_mutex_lock(&j->lock);
    while (!j->first && pthread_cond_timedwait(&j->some, &j->lock, &until) != ETIMEDOUT) {}
    serve_job *x = pop(j);
    pthread_mutex_unlock(&j->lock);
    return x;
}

int serve_job_put(serve_jobs *j, serve_job *x, int status, const char *bytes, size_t n, bool done)
{
    pthread_mutex_lock(&j->lock);
    const int failed = text_buffer_append(&x->out, bytes, n, NULL);
    x->status = x->status ? x->status : status;
    x->done = x->done || done || failed;
    const int gone = x->gone || failed;
    wake(x);
    pthread_mutex_unlock(&j->lock);
    return gone;
}

static void job_free(serve_job *x)
{
    serve_request_free(&x->request);
    text_buffer_free(&x->out);
    free(x);
}

void serve_job_leave(serve_jobs *j, serve_job *x)
{
    pthread_mutex_lock(&j->lock);
    const bool last = x->gone;
    x->queued = false;
    x->done = true;
    wake(x);
    pthread_mutex_unlock(&j->lock);
    if (last)
        job_free(x);
}

void serve_job_hang_up(serve_jobs *j, serve_job *x)
{
    pthread_mutex_lock(&j->lock);
    const bool last = !x->queued;
    x->gone = true;
    pthread_mutex_unlock(&j->lock);
    if (last)
        job_free(x);
}

void serve_jobs_close(serve_jobs *j, const char *sentence)
{
    pthread_mutex_lock(&j->lock);
    j->closed = true;
    pthread_mutex_unlock(&j->lock);
    for (;;) {
        pthread_mutex_lock(&j->lock);
        serve_job *x = pop(j);
        pthread_mutex_unlock(&j->lock);
        if (!x)
            return;
        text_buffer out = {0};
        serve_put_error(&out, sentence, true, false);
        serve_job_put(j, x, MHD_HTTP_SERVICE_UNAVAILABLE, out.bytes, out.n, true);
        text_buffer_free(&out);
        serve_job_leave(j, x);
    }
}

void serve_jobs_free(serve_jobs *j)
{
    pthread_mutex_destroy(&j->lock);
    pthread_cond_destroy(&j->some);
}
