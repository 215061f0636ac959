#include "args.h"
#include "commands.h"
#include "exit.h"
#include "interrupt.h"
#include "progress.h"

#include <stdio.h>

static const char usage[] = "usage: protrain serve --model DIR [--adapter DIR] [--host ADDRESS] [--port N] [options]\n\n"
                            "Answers requests in the form of OpenAI's API over HTTP, one after the other, until Ctrl-C:\n"
                            "GET /v1/models, POST /v1/chat/completions and /v1/completions, also streamed.";

enum { PORT = 8000, TOKENS = 1024 };

static bool is_interrupted(void *arg)
{
    (void)arg;
    return interrupt_signal() != 0;
}

static void tell_ready(void *arg, const char *url)
{
    progress_clear(arg);
    printf("listening on %s\n", url);
    fflush(stdout);
}

int command_serve(int argc, char **argv)
{
    pt_error e = {0};
    pt_options *options;
    progress bar;
    bool quiet = false;
    const char *host = "127.0.0.1";
    int64_t port = PORT, most = TOKENS;
    const arg own[] = {
        ARG(TEXT, "host", &host, "ADDRESS", "Server", "address to listen on, in numbers; default 127.0.0.1"),
        ARG_WHOLE("port", &port, 0, 65535, "Server", "port to listen on; 0: any that is free; default 8000"),
        ARG_WHOLE("max-new-tokens", &most, 1, (double)INT64_MAX, "Server", "the most tokens of a reply; default 1024"),
        ARG(FLAG, "quiet", &quiet, NULL, "Server", "no progress bar"),
    };
    int failed = args_parse(COMMAND_LINE("serve", usage, own), &options, &e);
    progress_open(&bar, quiet);
    if (!failed) {
        pt_serve_options o = {.generate = *pt_options_generate(options), .host = host, .port = (int)port, .max_new_tokens = most,
                              .ready = tell_ready, .stop = is_interrupted, .arg = &bar};
        o.generate.notice = progress_notice;
        o.generate.progress = progress_stage;
        o.generate.arg = &bar;
        interrupt_record();
        failed = pt_serve(&o, &e);
    }
    progress_clear(&bar);
    pt_options_close(options);
    return failed < 0 ? exit_with(&e) : 0;
}
