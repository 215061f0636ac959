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
    pt_options *options;
    const char *prompt, *prompt_file;
    int64_t max_new_tokens;
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
    const arg own[] = {
        ARG(TEXT, "prompt", &s->prompt, "TEXT", "Text", "the text to continue"),
        ARG(TEXT, "prompt-file", &s->prompt_file, "FILE", "Text", "read the prompt from a file, byte for byte; - is standard input"),
        ARG(FLAG, "chat", &s->chat, NULL, "Text",
            "hold a conversation through the model's chat template: type a line, the\nmodel replies; Ctrl-D ends. A "
            "--prompt, a --prompt-file or piped input is\na single turn"),
        ARG_WHOLE("max-new-tokens", &s->max_new_tokens, 0, (double)INT64_MAX, "Text", "default 128; with --chat 1024 per turn"),
        ARG(FLAG, "echo", &s->echo, NULL, "Text", "also print the prompt"),
        ARG(FLAG, "quiet", &s->quiet, NULL, "Text", "no progress bar and no speed at the end"),
    };
    int failed = args_parse(COMMAND_LINE("generate", usage, own), &s->options, e);
    const pt_generate_options *o = pt_options_generate(s->options);
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
    int failed = parse(&s, argc, argv, &e);
    if (s.max_new_tokens < 0)
        s.max_new_tokens = s.chat ? CHAT_TOKENS : TEXT_TOKENS;
    progress_open(&s.bar, s.quiet || !isatty(STDERR_FILENO));
    if (!failed) {
        pt_generate_options *o = pt_options_generate(s.options);
        o->notice = progress_notice;
        o->progress = progress_stage;
        o->arg = &s.bar;
        failed = pt_generator_open(o, &g, &e);
    }
    if (!failed)
        failed = s.chat ? chat(&s, g, &e) : run(&s, g, &e);
    progress_clear(&s.bar);
    pt_generator_close(g);
    pt_options_close(s.options);
    return failed < 0 ? exit_with(&e) : 0;
}
