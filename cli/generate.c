#include "args.h"
#include "commands.h"
#include "exit.h"
#include "input.h"
#include "progress.h"

#include "base/units.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct session {
    pt_generate_options o;
    const char *prompt, *prompt_file;
    int64_t max_new_tokens;
    int precision, base;
    bool echo, quiet, chat;
    progress bar;
} session;

enum { TEXT_TOKENS = 128, CHAT_TOKENS = 1024 };
enum { PROMPT_BYTES = 64 << 20 }; /* far beyond any model's context; /dev/zero never ends */

static const char usage[] = "usage: protrain generate --model DIR --prompt TEXT|--prompt-file FILE [options]\n"
                            "       protrain generate --model DIR --chat [--system TEXT] [options]\n\n"
                            "Continues a text, or holds a conversation with --chat. Prints only the new text.";

static int parse(session *s, int argc, char **argv, pt_error *e)
{
    pt_generate_options *o = &s->o;
    const arg table[] = {
        {"--model", ARG_STRING, &o->model, "DIR", "Hugging Face folder with weights and tokenizer.json", false},
        {"--adapter", ARG_STRING, &o->adapter, "DIR", "apply this adapter (written by PEFT or protrain)", false},
        {"--prompt", ARG_STRING, &s->prompt, "TEXT", "the text to continue", false},
        {"--prompt-file", ARG_STRING, &s->prompt_file, "FILE", "read the prompt from a file, byte for byte; - is standard input", false},
        {"--chat", ARG_FLAG, &s->chat, NULL,
         "hold a conversation through the model's chat template: type a line, the\n"
         "model replies; Ctrl-D ends. A --prompt, a --prompt-file or piped input is\na single turn",
         false},
        {"--system", ARG_STRING, &o->system, "TEXT", "with --chat: system message, put before the first turn", false},
        {"--chat-template", ARG_STRING, &o->chat_template, "FILE", "with --chat: use this Jinja template instead of the model's own",
         false},
        {"--plain-contents", ARG_FLAG, &o->plain_contents, NULL, "with --chat: special tokens in messages are plain text", false},
        {"--max-new-tokens", ARG_INT, &s->max_new_tokens, "N", "default 128; with --chat 1024 per turn", false},
        {"--temperature", ARG_FROM_0, &o->temperature, "X",
         "0: always take the most probable token. The default of this option\nand the next three is that of the model's\n"
         "generation_config.json, else 0.8",
         false},
        {"--top-k", ARG_INT, &o->top_k, "N", "sample from the N most probable tokens; else 0: from all", false},
        {"--top-p", ARG_ABOVE_0, &o->top_p, "X", "sample from the fewest tokens whose probabilities add up to X;\nelse 0.95; 1: from all",
         false},
        {"--repetition-penalty", ARG_ABOVE_0, &o->repetition_penalty, "X",
         "above 1: make tokens that the text has already less probable; else 1:\noff", false},
        {"--seed", ARG_SEED, &o->seed, "N", "random seed: the same seed gives the same text; default 0", false},
        {"--ignore-eos", ARG_FLAG, &o->ignore_eos, NULL, "do not stop at the end-of-text token", false},
        {"--echo", ARG_FLAG, &s->echo, NULL, "also print the prompt", false},
        {"--dtype", ARG_CHOICE, &s->precision, "bf16|fp32", "type of the computation; default bf16", false},
        {"--base", ARG_CHOICE, &s->base, BASE_CHOICE, WHOLE_BASE_HELP, false},
        {"--device", ARG_STRING, &o->device, "NAME", "auto (a usable GPU, else the CPU), cpu, cuda or cuda:N", false},
        {"--threads", ARG_INT32, &o->threads, "N", "default: all cores available to the process", false},
        {"--device-memory", ARG_SIZE, &o->device_memory, "SIZE", "memory budget, such as 8GiB; on a CPU, of RAM", false},
        {"--quiet", ARG_FLAG, &s->quiet, NULL, "no progress bar and no speed at the end", false},
    };
    int failed = args_parse(argc, argv, usage, table, sizeof table / sizeof *table, e);
    if (!failed && s->prompt && s->prompt_file)
        failed = pt_fail(e, PT_USAGE, "--prompt and --prompt-file are both given: give one of them");
    if (!failed && (o->system || o->chat_template || o->plain_contents) && !s->chat)
        failed = pt_fail(e, PT_USAGE, "%s needs --chat",
                         o->system ? "--system" : o->chat_template ? "--chat-template" : "--plain-contents");
    if (!failed && s->echo && s->chat)
        failed = pt_fail(e, PT_USAGE, "--echo cannot be used with --chat: what you typed is already on the screen");
    if (!failed && !s->prompt && !s->prompt_file && !s->chat)
        failed = pt_fail(e, PT_USAGE, "no prompt: give --prompt TEXT, or --prompt-file FILE (- is standard input)");
    return failed;
}

static int print_text(pt_generator *g, pt_error *e)
{
    const char *text;
    size_t bytes;
    int more;
    while ((more = pt_generator_next(g, &text, &bytes, e)) > 0) {
        fwrite(text, 1, bytes, stdout);
        int failed = output_finish(e);
        if (failed)
            return failed;
    }
    return more;
}

/* lead: what ends the text. */
static void print_speed(const char *lead, int64_t tokens, const char *of, double read_s, int64_t made, double made_s)
{
    fprintf(stderr, "%s%lld token%s of %s read in %.2f s; %lld new token%s", lead, (long long)tokens, plural((uint64_t)tokens), of, read_s,
            (long long)made, plural((uint64_t)made));
    if (made)
        fprintf(stderr, " at %.1f tokens/s", (double)made / made_s);
    fputc('\n', stderr);
}

static int run(session *s, pt_generator *g, pt_error *e)
{
    char *read = NULL;
    const char *prompt = s->prompt;
    size_t bytes = prompt ? strlen(prompt) : 0;
    int64_t prompt_tokens;
    int failed = prompt ? 0 : input_read(s->prompt_file, PROMPT_BYTES, &read, &bytes, e);
    if (!prompt)
        prompt = read ? read : "";
    double start = now_s();
    if (!failed)
        failed = pt_generator_prompt(g, prompt, bytes, s->max_new_tokens, e);
    progress_clear(&s->bar);
    if (!failed && s->echo)
        fwrite(prompt, 1, bytes, stdout);
    double ready = now_s();
    if (!failed)
        failed = print_text(g, e);
    if (!failed && isatty(STDOUT_FILENO))
        puts("");
    if (!failed)
        failed = output_finish(e);
    int64_t made = pt_generator_tokens(g, &prompt_tokens);
    if (!failed && !s->quiet) /* the text may not end with a newline */
        print_speed(isatty(STDOUT_FILENO) ? "" : "\n", prompt_tokens, "prompt", ready - start, made, now_s() - ready);
    free(read);
    return failed;
}

/* ---- a conversation ---- */

static int take_turn(session *s, pt_generator *g, const char *text, size_t bytes, pt_error *e)
{
    int64_t prompt_tokens;
    const double start = now_s();
    int failed = pt_generator_say(g, text, bytes, s->max_new_tokens, e);
    progress_clear(&s->bar);
    const double ready = now_s();
    if (!failed)
        failed = print_text(g, e);
    if (!failed)
        puts("");
    if (!failed)
        failed = output_finish(e);
    const int64_t made = pt_generator_tokens(g, &prompt_tokens);
    if (!failed && made == s->max_new_tokens)
        fprintf(stderr, "note: the reply was cut off by --max-new-tokens %lld\n", (long long)made);
    if (!failed && !s->quiet && !isatty(STDIN_FILENO))
        print_speed("", prompt_tokens, "conversation", ready - start, made, now_s() - ready);
    return failed;
}

/* Reads lines of a terminal until Ctrl-D. */
static int talk(session *s, pt_generator *g, pt_error *e)
{
    char *line = NULL;
    size_t room = 0;
    int failed = 0;
    fprintf(stderr, "Type a message; Ctrl-D ends the conversation.\n");
    while (!failed) {
        fputs("> ", stderr);
        ssize_t n = getline(&line, &room, stdin);
        if (n < 0)
            break;
        while (n && (line[n - 1] == '\n' || line[n - 1] == '\r'))
            n--;
        if (n)
            failed = take_turn(s, g, line, (size_t)n, e);
    }
    if (!failed)
        fputs("\n", stderr);
    free(line);
    return failed;
}

static int chat(session *s, pt_generator *g, pt_error *e)
{
    if (!s->prompt && !s->prompt_file && isatty(STDIN_FILENO))
        return talk(s, g, e);
    char *read = NULL;
    const char *text = s->prompt;
    size_t bytes = text ? strlen(text) : 0;
    int failed = text ? 0 : input_read(s->prompt_file ? s->prompt_file : "-", PROMPT_BYTES, &read, &bytes, e);
    while (read && bytes && (read[bytes - 1] == '\n' || read[bytes - 1] == '\r'))
        bytes--;
    if (!failed && !bytes)
        failed = pt_fail(e, PT_FAILED, "the prompt is empty: give --prompt, or pipe it to standard input");
    if (!failed)
        failed = take_turn(s, g, text ? text : read, bytes, e);
    free(read);
    return failed;
}

int command_generate(int argc, char **argv)
{
    session s = {.max_new_tokens = -1};
    pt_error e = {0};
    pt_generator *g = NULL;
    pt_generate_defaults(&s.o);
    int failed = parse(&s, argc, argv, &e);
    if (failed == 1)
        return 0;
    if (s.max_new_tokens < 0)
        s.max_new_tokens = s.chat ? CHAT_TOKENS : TEXT_TOKENS;
    s.o.precision = s.precision == 1 ? PT_PRECISION_FP32 : PT_PRECISION_BF16;
    s.o.base = (pt_base)s.base;
    s.o.notice = progress_notice;
    s.o.progress = progress_stage;
    s.o.arg = &s.bar;
    progress_open(&s.bar, s.quiet || !isatty(STDERR_FILENO));
    if (!failed)
        failed = pt_generator_open(&s.o, &g, &e);
    if (!failed)
        failed = s.chat ? chat(&s, g, &e) : run(&s, g, &e);
    progress_clear(&s.bar);
    pt_generator_close(g);
    return failed ? exit_with(&e) : 0;
}
