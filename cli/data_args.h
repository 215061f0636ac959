/* data_args.h - the options that say what the data are and what of them is learned, of every command that reads data. */
#ifndef CLI_DATA_ARGS_H
#define CLI_DATA_ARGS_H

#include "args.h"

#define DATA_PATHS ".txt .jsonl .json .csv .npy .bin or a folder of them; repeatable"

typedef struct data_args { int format, train_on, longer; } data_args;

/* Rows of a command's table; o has the fields chat_template and no_packing. */
#define DATA_ARGS(a, o)                                                                                                                   \
    {"--data-format", ARG_CHOICE, &(a)->format, "auto|text|messages|sharegpt|prompt|alpaca|tokens",                                       \
     "what the records are; auto: by their keys", false},                                                                                 \
    {"--train-on", ARG_CHOICE, &(a)->train_on, "auto|assistant|completion|last|all",                                                      \
     "what is learned; auto: of chats the assistant's replies, of prompts\ntheir completion, of text all; last: the last reply", false},  \
    {"--chat-template", ARG_STRING, &(o)->chat_template, "FILE", "a template in Jinja instead of the model's own", false},               \
    {"--no-packing", ARG_FLAG, &(o)->no_packing, NULL, "a window for each example, padded", false},                                       \
    {"--long", ARG_CHOICE, &(a)->longer, "cut|drop|error", "examples longer than a window; default cut", false}

/* Takes the choices over. */
#define DATA_ARGS_TAKE(a, o)                                                                                                              \
    ((o)->data_format = (pt_data_format)(a)->format, (o)->train_on = (pt_train_on)(a)->train_on, (o)->long_examples = (pt_long)(a)->longer)

#endif
