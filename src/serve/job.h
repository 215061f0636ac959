/* job.h - requests that wait for the model, one after the other, and the answers on their way to their clients. Of the thread of the
 * connections and the thread of the model. */
#ifndef PT_SERVE_JOB_H
#define PT_SERVE_JOB_H

#include "serve/answer.h"

#include <pthread.h>

struct MHD_Connection;

typedef struct serve_job {
    struct MHD_Connection *connection;
    serve_request request;
    text_buffer out;           /* the answer, or what of it has not been sent */
    int status;                /* of HTTP; 0: not known yet */
    bool suspended;            /* the connection waits for `status` or for more of `out` */
    bool done, gone;           /* the answer is complete; the client is not there any more */
    bool queued;               /* the thread of the model has it, or will */
    struct serve_job *next;
} serve_job;

typedef struct serve_jobs {
    pthread_mutex_t lock;
    pthread_cond_t some;
    serve_job *first, *last;
    int waiting;
    bool closed;
} serve_jobs;

int serve_jobs_open(serve_jobs *j, pt_error *e);
/* The connection is suspended. False: too many wait, or the server ends. */
bool serve_jobs_add(serve_jobs *j, serve_job *x);
/* The next one; NULL after a tenth of a second without one. */
serve_job *serve_jobs_take(serve_jobs *j);
/* From the thread of the model. Nonzero: the client is gone. */
int serve_job_put(serve_jobs *j, serve_job *x, int status, const char *bytes, size_t n, bool done);
void serve_job_leave(serve_jobs *j, serve_job *x);  /* the thread of the model needs it no more */
void serve_job_hang_up(serve_jobs *j, serve_job *x); /* the thread of the connections neither */
/* No more are added; those that wait are answered with `sentence`. */
void serve_jobs_close(serve_jobs *j, const char *sentence);
void serve_jobs_free(serve_jobs *j);

#endif
