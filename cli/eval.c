#include "args.h"
#include "commands.h"
#include "exit.h"
#include "progress.h"

#include <stdio.h>

static const char usage[] = "usage: protrain eval --model DIR --data PATH [options]\n\n"
                            "Computes loss (in nats per token) and perplexity of a model on data. The targets are all tokens of a\n"
                            "text but the first, and the tokens of a chat that training would learn.";

/* Without labels there is no loss. */
static void print_unlabelled(const pt_evaluation *v, bool json)
{
    if (json)
        printf("{\"loss\": null, \"perplexity\": null, \"tokens\": %lld, \"learned_tokens\": 0, \"accuracy\": null}\n",
               (long long)v->tokens);
    else
        printf("no record has a label: no loss  tokens %lld\n", (long long)v->tokens);
}

static void print_result(const pt_evaluation *v, bool json)
{
    if (!v->learned_tokens)
        print_unlabelled(v, json);
    else if (json)
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
    pt_error e = {0};
    pt_options *options;
    pt_evaluation v;
    progress bar;
    bool quiet = false, json = false;
    const arg own[] = {
        ARG(FLAG, "quiet", &quiet, NULL, NULL, "no progress bar"),
        ARG(FLAG, "json", &json, NULL, NULL, "print {\"loss\", \"perplexity\", \"tokens\", \"learned_tokens\", \"accuracy\"}"),
    };
    int failed = args_parse(COMMAND_LINE("eval", usage, own), &options, &e);
    pt_evaluate_options *o = pt_options_evaluate(options);
    progress_open(&bar, quiet);
    if (!failed) {
        o->notice = progress_notice;
        o->progress = progress_stage;
        o->arg = &bar;
        failed = pt_evaluate(o, &v, &e);
    }
    progress_clear(&bar);
    if (!failed)
        print_result(&v, json);
    if (!failed && o->predictions && !quiet)
        fprintf(stderr, "%lld prediction%s written to %s\n", (long long)v.predictions, v.predictions == 1 ? "" : "s", o->predictions);
    pt_options_close(options);
    return failed < 0 ? exit_with(&e) : 0;
}
