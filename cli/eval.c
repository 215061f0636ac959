#include "args.h"
#include "commands.h"
#include "progress.h"

#include <stdio.h>

typedef struct session {
    pt_evaluate_options o;
    arg_strings data;
    int precision;
    bool quiet, json;
    progress bar;
} session;

static const char usage[] =
    "usage: protrain eval --model DIR --data PATH [options]\n\n"
    "Loss (nats a token) and perplexity of a model on data. Every token but the first is a target.";

static int parse(session *s, int argc, char **argv, pt_error *e)
{
    pt_evaluate_options *o = &s->o;
    const arg table[] = {
        {"--model", ARG_STRING, &o->model, "DIR", "Hugging Face folder with weights", false},
        {"--adapter", ARG_STRING, &o->adapter, "DIR", "apply this adapter, PEFT's or protrain's", false},
        {"--data", ARG_STRINGS, &s->data, "PATH", ".txt .jsonl .json .npy .bin or a folder of them; repeatable", false},
        {"--seq-len", ARG_INT, &o->seq_len, "N", "tokens a window; default the model's maximum, at most 1024", false},
        {"--document-mask", ARG_FLAG, &o->document_mask, NULL, "documents do not see each other; each begins at position 0", false},
        {"--dtype", ARG_CHOICE, &s->precision, "bf16|fp32", "what is computed in; default bf16", false},
        {"--device", ARG_STRING, &o->device, "NAME", "auto (a usable GPU, else the CPU), cpu, cuda or cuda:N", false},
        {"--threads", ARG_INT32, &o->threads, "N", "default: all cores that it may use", false},
        {"--device-memory", ARG_SIZE, &o->device_memory, "SIZE", "budget; on a CPU this is RAM", false},
        {"--host-memory", ARG_SIZE, &o->host_memory, "SIZE", "budget; on a CPU, splits RAM into a device and a host", false},
        {"--disk-memory", ARG_SIZE, &o->disk_memory, "SIZE", "budget; 0: never use the disk", false},
        {"--disk-path", ARG_STRING, &o->disk_path, "DIR", "default: $TMPDIR, or /var/tmp", false},
        {"--quiet", ARG_FLAG, &s->quiet, NULL, "no progress bar", false},
        {"--json", ARG_FLAG, &s->json, NULL, "{\"loss\", \"perplexity\", \"tokens\"}", false},
    };
    return args_parse(argc, argv, usage, table, sizeof table / sizeof *table, e);
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
    s.o.precision = s.precision == 1 ? PT_PRECISION_FP32 : PT_PRECISION_BF16;
    s.o.notice = progress_notice;
    s.o.progress = progress_stage;
    s.o.arg = &s.bar;
    progress_open(&s.bar, s.quiet);
    if (!failed)
        failed = pt_evaluate(&s.o, &v, &e);
    progress_clear(&s.bar);
    if (!failed)
        printf(s.json ? "{\"loss\": %.9g, \"perplexity\": %.9g, \"tokens\": %lld}\n" : "loss %.5f  perplexity %.4f  tokens %lld\n", v.loss,
               v.perplexity, (long long)v.tokens);
    return failed ? exit_with(&e) : 0;
}
