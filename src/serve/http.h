/* http.h - the connections: which requests there are, and limits on their sizes and times. */
#ifndef PT_SERVE_HTTP_H
#define PT_SERVE_HTTP_H

#include "serve/job.h"

struct MHD_Daemon;

typedef struct serve_http {
    serve_jobs *jobs;
    const char *folder;      /* of the model */
    char model[256];         /* its name */
    int64_t since;
    bool local;              /* only this machine's programs reach it */
    char url[96];
    struct MHD_Daemon *daemon;
} serve_http;

/* With `jobs` and `folder` set. Afterwards requests are accepted. */
int serve_http_open(serve_http *h, const char *host, int port, pt_error *e);
void serve_http_close(serve_http *h); /* waits until answers that are complete have been sent, or their clients are gone */

#endif
