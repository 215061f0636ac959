#include "commands.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

static const struct { const char *name, *help; int (*run)(int, char **); } commands[] = {
    {"train", "train or fine-tune a Hugging Face model", command_train},
    {"plan", "say what training would do, what it would cost and whether it fits", command_plan},
    {"profile", "measure this machine and a model's blocks", command_profile},
    {"eval", "loss and perplexity of a model on data", command_eval},
    {"generate", "text from a model", command_generate},
    {"tokenize", "text to token ids and back", command_tokenize},
};

static void print_help(void)
{
    printf("protrain %s - train language models on the hardware you have\n\nusage: protrain COMMAND [options]\n\n", pt_version());
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        printf("  %-10s %s\n", commands[i].name, commands[i].help);
    printf("\nprotrain COMMAND --help tells more of each.\n");
}

int exit_with(const pt_error *e)
{
    fprintf(stderr, "protrain: %s\n", e->text);
    return e->code == PT_USAGE ? 2 : e->code == PT_DOES_NOT_FIT ? 3 : 1;
}

int main(int argc, char **argv)
{
    signal(SIGPIPE, SIG_IGN);
    if (argc < 2) {
        print_help();
        return 2;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0) {
        print_help();
        return 0;
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("protrain %s\n", pt_version());
        return 0;
    }
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        if (strcmp(argv[1], commands[i].name) == 0)
            return commands[i].run(argc - 1, argv + 1);
    fprintf(stderr, "protrain: there is no command \"%s\"; protrain --help lists them\n", argv[1]);
    return 2;
}
