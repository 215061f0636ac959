/* data_args.h - options of all commands that read data: their format, and which tokens are trained on. */
#ifndef CLI_DATA_ARGS_H
#define CLI_DATA_ARGS_H

#include "args.h"

#define DATA_PATHS ".txt, .jsonl, .json, .csv, .npy, .bin or a folder of them; repeatable"

typedef struct data_args { int format, train_on, longer; } data_args;

/* Option rows; o has the fields chat_template, plain_contents and no_packing. */
#define DATA_ARGS(a, o)                                                                                                                    \
    {"--data-format",                                                                                                                      \
     ARG_CHOICE,                                                                                                                           \
     &(a)->format,                                                                                                                         \
     "auto|text|messages|sharegpt|prompt|alpaca|tokens|preference",                                                                        \
     "format of the records; auto: recognized by their keys",                                                                              \
     false},                                                                                                                               \
        {"--train-on",                                                                                                                     \
         ARG_CHOICE,                                                                                                                       \
         &(a)->train_on,                                                                                                                   \
         "auto|assistant|completion|last|all",                                                                                             \
         "tokens to train on; auto: assistant replies of chats, completions of\nprompts, all of plain text; last: the last reply",         \
         false},                                                                                                                           \
        {"--chat-template", ARG_STRING, &(o)->chat_template, "FILE", "use this Jinja chat template, not the model's", false},              \
        {"--plain-contents", ARG_FLAG, &(o)->plain_contents, NULL, "special tokens in messages and prompts are plain text", false},        \
        {"--no-packing", ARG_FLAG, &(o)->no_packing, NULL, "one example per window, padded", false},                                       \
    {                                                                                                                                      \
        "--long", ARG_CHOICE, &(a)->longer, "cut|drop|error", "what to do with examples longer than a window; default cut", false          \
    }

/* Copies the choices into the options. */
#define DATA_ARGS_TAKE(a, o)                                                                                                              \
    ((o)->data_format = (pt_data_format)(a)->format, (o)->train_on = (pt_train_on)(a)->train_on, (o)->long_examples = (pt_long)(a)->longer)

#endif
