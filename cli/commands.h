/* commands.h - one function a subcommand. Each gets its own argv (argv[0] is the subcommand) and returns
 * the exit status: 0 done, 1 failed, 2 wrong usage, 3 does not fit, 128 + signal when interrupted. */
#ifndef CLI_COMMANDS_H
#define CLI_COMMANDS_H

#include "protrain.h"

int command_train(int argc, char **argv);
int command_plan(int argc, char **argv);
int command_profile(int argc, char **argv);
int command_eval(int argc, char **argv);
int command_generate(int argc, char **argv);
int command_export(int argc, char **argv);
int command_tokenize(int argc, char **argv);
int command_report(int argc, char **argv);

/* --optimizer, in the order of pt_optimizer. */
#define BASE_CHOICE "auto|bf16|fp32|nf4|int8" /* in the order of pt_base */
#define BASE_HELP "how frozen matrices of layers are kept: nf4 takes half a byte\na value (as bitsandbytes has it), int8 one; default auto, --dtype's"
#define OPTIMIZER_CHOICE "adamw|adamw8bit|muon"
#define OPTIMIZER_HELP "adamw8bit: AdamW with moments in 8 bits; muon: orthogonal steps of\nthe layers' matrices, AdamW for the rest; default adamw"

/* SIGINT, SIGTERM and SIGHUP. Until a command takes them, they end it at once, with a word and 128 + signal: there is nothing to keep. */
void signals_go_to(void (*handler)(int));

/* Prints "protrain: TEXT" on stderr and gives the exit status of the error. */
int exit_with(const pt_error *e);

#endif
