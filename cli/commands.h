/* commands.h - one function per subcommand. Each gets its own argv (argv[0] is the subcommand) and returns the exit status: 0 done, 1
 * failed, 2 wrong usage, 3 does not fit, 128 + signal if interrupted. */
#ifndef CLI_COMMANDS_H
#define CLI_COMMANDS_H

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

#define BASE_CHOICE "auto|bf16|fp32|nf4|int8" /* in the order of pt_base */
#define BASE_HELP                                                                                                                          \
    "format of the layers' frozen matrices: nf4 takes half a byte per\nvalue (as in bitsandbytes), int8 one byte; default auto: as "       \
    "the base\nof --adapter was, else as --dtype"
#define WHOLE_BASE_HELP                                                                                                                    \
    "format of the layers' matrices: nf4 (half a byte per value) or int8; default\nauto: as the base of --adapter was in training, "       \
    "else as --dtype"
#define OPTIMIZER_CHOICE "adamw|adamw8bit|muon" /* in the order of pt_optimizer */
#define OPTIMIZER_HELP \
    "adamw8bit: AdamW with 8-bit moments (embeddings and head: fp32);\nmuon: Muon for the layers' matrices, AdamW for the rest; default " \
    "adamw"

/* Option rows for train and the commands that plan or measure it. */
#define TRAINED_ARGS(s)                                                                                                                    \
    {"--freeze", ARG_STRINGS, &(s)->freeze, "PATTERN", "do not train tensors whose names match ('model.layers.?.*'); repeatable", false},  \
    {                                                                                                                                      \
        "--train-only", ARG_STRINGS, &(s)->train_only, "PATTERN",                                                                          \
        "train only tensors whose names match, except those of --freeze; repeatable", false                                                \
    }
#define ADAPTER_ARGS(o)                                                                                                                    \
    {"--lora", ARG_COUNT, &(o)->lora_rank, "RANK", "freeze the model and train LoRA adapters of this rank", false},                        \
        {"--lora-alpha", ARG_ABOVE_0, &(o)->lora_alpha, "X", "scale the adapters' output by alpha / rank; default 2 x rank", false},       \
        {"--lora-targets",                                                                                                                 \
         ARG_STRING,                                                                                                                       \
         &(o)->lora_targets,                                                                                                               \
         "NAMES",                                                                                                                          \
         "all-linear, attention, mlp, or names such as q_proj,v_proj;\ndefault all-linear",                                                \
         false},                                                                                                                           \
        {"--lora-dropout", ARG_DOUBLE, &(o)->lora_dropout, "X", "must be 0: dropout is not applied", false},                               \
        {"--rslora", ARG_FLAG, &(o)->rslora, NULL, "scale by alpha / sqrt(rank) instead of alpha / rank", false},                          \
        {"--dora", ARG_FLAG, &(o)->dora, NULL, "DoRA: also train the magnitudes of the outputs", false},                                   \
    {                                                                                                                                      \
        "--adapter", ARG_STRING, &(o)->adapter, "DIR", "continue training this adapter (written by PEFT or protrain)", false               \
    }

#endif
