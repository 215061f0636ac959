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
int command_merge(int argc, char **argv);
int command_export(int argc, char **argv);
int command_tokenize(int argc, char **argv);
int command_report(int argc, char **argv);
int command_ritz(int argc, char **argv);
int command_ritz_plan(int argc, char **argv); /* protrain plan --problem */

/* --optimizer, in the order of pt_optimizer. */
#define BASE_CHOICE "auto|bf16|fp32|nf4|int8" /* in the order of pt_base */
#define BASE_HELP                                                                                                                          \
    "how frozen matrices of layers are kept: nf4 takes half a byte\na value (as bitsandbytes has it), int8 one; default auto, --dtype's"
#define OPTIMIZER_CHOICE "adamw|adamw8bit|muon"
#define OPTIMIZER_HELP                                                                                                                     \
    "adamw8bit: AdamW with moments in 8 bits; muon: orthogonal steps of\nthe layers' matrices, AdamW for the rest; default adamw"

/* Rows of a table of options, for train and those that speak of it. */
#define ADAPTER_ARGS(o)                                                                                                                    \
    {"--lora", ARG_COUNT, &(o)->lora_rank, "RANK", "train adapters of this rank (LoRA) beside the model, which is frozen", false},         \
    {"--lora-alpha", ARG_DOUBLE, &(o)->lora_alpha, "X", "what they add is scaled by alpha / rank; default 2 x rank", false},               \
    {"--lora-targets", ARG_STRING, &(o)->lora_targets, "NAMES",                                                                            \
        "all-linear, attention, mlp, or names as q_proj,v_proj; default all-linear", false},                                               \
    {"--lora-dropout", ARG_DOUBLE, &(o)->lora_dropout, "X", "0 alone: none is applied", false},                                            \
    {"--rslora", ARG_FLAG, &(o)->rslora, NULL, "scale by alpha / sqrt(rank) instead", false},                                              \
    {"--dora", ARG_FLAG, &(o)->dora, NULL, "magnitudes of the outputs are trained too (DoRA)", false},                                     \
    {"--adapter", ARG_STRING, &(o)->adapter, "DIR", "go on from this adapter, PEFT's or protrain's", false}

/* SIGINT, SIGTERM and SIGHUP. Until a command takes them, they end it at once, with a word and 128 + signal: there is nothing to keep. */
void signals_go_to(void (*handler)(int));

/* Prints "protrain: TEXT" on stderr and gives the exit status of the error. */
int exit_with(const pt_error *e);

#endif
