#include "commands.h"
#include "exit.h"
#include "input.h"
#include "interrupt.h"
#include "ranks.h"

#include "base/similar.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static const struct { const char *name, *help; int (*run)(int, char **); bool by_ranks;
} commands[] = {
    {"train", "train or fine-tune a Hugging Face model", command_train, true},
    {"plan", "show what training would do, how long it would take and whether it fits", command_plan, false},
    {"profile", "measure what a training step costs on this machine", command_profile, false},
    {"eval", "compute loss and perplexity of a model on data", command_eval, false},
    {"generate", "generate text with a model", command_generate, false},
    {"serve", "answer requests in the form of OpenAI's API", command_serve, false},
    {"merge", "merge an adapter into its base model", command_merge, false},
    {"export", "export a model as a GGUF file for llama.cpp", command_export, false},
    {"tokenize", "convert text to token ids and back", command_tokenize, false},
    {"report", "make an HTML page of a run", command_report, false},
    {"ritz", "solve a partial differential equation by the Deep Ritz method", command_ritz, false},
};

static void print_help(void)
{
    printf("protrain %s - train language models on the hardware you have\n\nusage: protrain COMMAND [options]\n\n", pt_version());
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        printf("  %-10s %s\n", commands[i].name, commands[i].help);
    printf("\nprotrain COMMAND --help lists a command's options.\n");
}

/* If a standard stream is closed, the next file to be opened would get its number, and output would land in that file: /dev/null,
 * opened so that reading or writing it fails, takes the number. */
static void hold_standard_streams(void)
{
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0)
            (void)!open("/dev/null", fd ? O_RDONLY : O_WRONLY);
}

static void leave(int number)
{
    static const char word[] = "\nprotrain: interrupted before anything was saved; run the same command to start again\n";
    (void)!write(STDERR_FILENO, word, sizeof word - 1);
    _exit(128 + number);
}

/* Threads get stacks of the size of `ulimit -s`. If it is too small, the kernel would kill the program without a message. */
static int check_stack(pt_error *e)
{
    enum { LEAST_KIB = 256, USUAL_KIB = 8192 };
    struct rlimit limit;
    if (getrlimit(RLIMIT_STACK, &limit) || limit.rlim_cur >= LEAST_KIB * 1024)
        return 0;
    e->code = PT_FAILED;
    snprintf(e->text, sizeof e->text, "the stack is limited to %llu KiB and must have at least %d KiB: raise the limit with ulimit -s %d",
             (unsigned long long)limit.rlim_cur / 1024, LEAST_KIB, USUAL_KIB);
    return PT_FAILED;
}

static int refuse_command(const char *typed)
{
    const char *meant = NULL;
    int fewest = word_fewest(strlen(typed));
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        if (word_is_nearer(typed, strlen(typed), commands[i].name, &fewest))
            meant = commands[i].name;
    if (meant)
        fprintf(stderr, "protrain: there is no command \"%s\"; did you mean %s?\n", typed, meant);
    else
        fprintf(stderr, "protrain: there is no command \"%s\"; protrain --help lists them\n", typed);
    return 2;
}

static int run_command(int argc, char **argv)
{
    if (argc < 2) {
        print_help();
        return 2;
    }
    bool help = strcmp(argv[1], "help") == 0;
    if (help && argc == 3)
        return run_command(3, (char *[]){argv[0], argv[2], "--help", NULL});
    if (help || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        print_help();
        return 0;
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("protrain %s\n", pt_version());
        return 0;
    }
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        if (strcmp(argv[1], commands[i].name) == 0)
            return !commands[i].by_ranks && ranks_leave(commands[i].name) ? 0 : commands[i].run(argc - 1, argv + 1);
    return refuse_command(argv[1]);
}

int main(int argc, char **argv)
{
    pt_error e = {0};
    signals_go_to(leave);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* a file size limit becomes an error, like a full disk */
    hold_standard_streams();
    int status = check_stack(&e) ? exit_with(&e) : run_command(argc, argv);
    return !status && output_finish(&e) ? exit_with(&e) : status;
}
