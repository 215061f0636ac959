#include "args.h"
#include "commands.h"
#include "data_args.h"
#include "exit.h"
#include "progress.h"

#include <stdio.h>

typedef struct session {
    pt_evaluate_options o;
    arg_strings data;
    data_args what;
    int precision, base;
    bool quiet, json;
    progress bar;
} session;

static const char usage[] = "usage: protrain eval --model DIR --data PATH [options]\n\n"
                            "Computes loss (in nats per token) and perplexity of a model on data. The targets are all tokens of a\n"
                            "text but the first, and the tokens of a chat that training would learn.";

static int parse(session *s, int argc, char **argv, pt_error *e)
{
    pt_evaluate_options *o = &s->o;
    const arg table[] = {
        {"--model", ARG_STRING, &o->model, "DIR", "Hugging Face folder with weights", false},
        {"--adapter", ARG_STRING, &o->adapter, "DIR", "apply this adapter (written by PEFT or protrain)", false},
        {"--data", ARG_STRINGS, &s->data, "PATH", DATA_PATHS, false},
        DATA_ARGS(&s->what, o),
        {"--seq-len", ARG_COUNT, &o->seq_len, "N", "tokens per window; default: the model's maximum, at most 1024", false},
        {"--document-mask", ARG_FLAG, &o->document_mask, NULL, "attend only within a document; positions restart at each document", false},
        {"--dtype", ARG_CHOICE, &s->precision, "bf16|fp32", "type of the computation; default bf16", false},
        {"--base", ARG_CHOICE, &s->base, BASE_CHOICE, WHOLE_BASE_HELP, false},
        {"--device", ARG_STRING, &o->device, "NAME", "auto (a usable GPU, else the CPU), cpu, cuda or cuda:N", false},
        {"--threads", ARG_INT32, &o->threads, "N", "default: all cores available to the process", false},
        {"--device-memory", ARG_SIZE, &o->device_memory, "SIZE", "memory budget, such as 8GiB; on a CPU, of RAM", false},
        {"--host-memory", ARG_SIZE, &o->host_memory, "SIZE", "RAM budget beside a GPU; on a CPU, RAM as a second tier", false},
        {"--disk-memory", ARG_SIZE, &o->disk_memory, "SIZE", "budget of disk space; 0: never use the disk", false},
        {"--disk-path", ARG_STRING, &o->disk_path, "DIR", "folder of the disk tier; default: $TMPDIR, or /var/tmp", false},
        {"--quiet", ARG_FLAG, &s->quiet, NULL, "no progress bar", false},
        {"--json", ARG_FLAG, &s->json, NULL, "print {\"loss\", \"perplexity\", \"tokens\", \"learned_tokens\", \"accuracy\"}", false},
    };
    return args_parse(argc, argv, usage, table, sizeof table / sizeof *table, e);
}

static void print_result(const pt_evaluation *v, bool json)
{
    if (json)
        printf("{\"loss\": %.9g, \"perplexity\": %.9g, \"tokens\": %lld, \"learned_tokens\": %lld, \"accuracy\": %.9g}\n", v->loss,
               v->perplexity,
               (long long)v->tokens, (long long)v->learned_tokens, v->accuracy);
    else if (v->learned_tokens == v->tokens)
        printf("loss %.5f  perplexity %.4f  accuracy %.2f%%  tokens %lld\n", v->loss, v->perplexity, 100 * v->accuracy,
               (long long)v->tokens);
    else
        printf("loss %.5f  perplexity %.4f  accuracy %.2f%%  tokens %lld, of which %lld are evaluated\n", v->loss, v->perplexity,
               100 * v->accuracy,
               (long long)v->tokens, (long long)v->learned_tokens);
}

int command_eval(int argc, char **argv)
{
    static session s;
    pt_error e = {0};
    pt_evaluation v;
    pt_evaluate_defaults(&s.o);
    int failed = parse(&s, argc, argv, &e);
    if (failed == 1)
        return 0;
    s.o.data = s.data.v;
    s.o.data_n = s.data.n;
    DATA_ARGS_TAKE(&s.what, &s.o);
    s.o.precision = s.precision == 1 ? PT_PRECISION_FP32 : PT_PRECISION_BF16;
    s.o.base = (pt_base)s.base;
    s.o.notice = progress_notice;
    s.o.progress = progress_stage;
    s.o.arg = &s.bar;
    progress_open(&s.bar, s.quiet);
    if (!failed)
        failed = pt_evaluate(&s.o, &v, &e);
    progress_clear(&s.bar);
    if (!failed)
        print_result(&v, s.json);
    return failed ? exit_with(&e) : 0;
}
