/* table.h - the options of each command: one row an option.
 *
 * A row has all that is said and known of its option: field, flag, type, range, default, help, which commands take it, what records it,
 * and what it needs to have an effect. Parsing, --help, checks, settings of checkpoints and notes come from it.
 */
#ifndef PT_OPTION_TABLE_H
#define PT_OPTION_TABLE_H

#include "base/option.h"

/* Does the result of a run depend on it, and how does a checkpoint know? */
typedef enum option_record {
    RECORD_NONE,   /* the result does not depend on it: it may differ when a run is resumed */
    RECORD_COURSE, /* neither, but all ranks must have the same */
    RECORD_INPUT,  /* a checkpoint records what it leads to: a fingerprint of the data, the model's and the adapter's config */
    RECORD_LENGTH, /* of the run, which may grow */
    RECORD_RESULT  /* must be the same: a checkpoint has its value */
} option_record;

/* Without it, an option has no effect. */
typedef enum option_need {
    NEED_NOTHING,
    NEED_PAIRS, NEED_GAMMA, NEED_DPO, NEED_SMOOTHING, NEED_LABELS, NEED_CENTER, /* task */
    NEED_CHATS, NEED_TEXT, NEED_EXAMPLES, NEED_CONTENTS, /* data */
    NEED_DECAY, NEED_RESTARTS, NEED_WSD, /* of the learning rate */
    NEED_CHECKPOINTS, NEED_DISK, NEED_SEARCH, NEED_TURNS,
    NEED_MUON
} option_need;

typedef struct option_row {
    pt_option is;
    unsigned taken_by;      /* commands */
    const char *plan_help;  /* of plan and profile; NULL: the same */
    option_record record;
    option_need need;
} option_row;

enum { BY_TRAIN = 1, BY_PLAN = 2, BY_PROFILE = 4 };

typedef struct option_table { const option_row *rows; int n; size_t bytes; } option_table;

extern const option_table train_table, evaluate_table, generate_table, merge_table, export_table, ritz_table;

/* Fills the struct with the defaults. */
void options_reset(const option_table *t, void *into);
/* Of the caller's struct: before any other field is read. */
int options_check_size(const option_table *t, const void *from, pt_error *e);
/* All ranges and choices. */
int options_check_values(const option_table *t, const void *from, pt_error *e);
/* NULL: none. name: of the flag. */
const option_row *option_find(const option_table *t, const char *name);

/* Notes the options that are given and have no effect. met[need]: is the need met? */
typedef struct option_needs { bool unmet[NEED_MUON + 1]; } option_needs;
void options_tell_idle(const option_table *t, const void *from, const option_needs *needs, void (*notice)(void *, const char *), void *arg);

/* Ways to write a row: the first fields of pt_option for the field f of the struct S. */
#define OPTION(S, f, flag, k, v) .is.field = #f, .is.name = flag, .is.kind = PT_OPTION_##k, .is.values = v, .is.at = offsetof(S, f)
#define OPTION_LIST(S, f, flag, v) OPTION(S, f, flag, TEXTS, v), .is.also = offsetof(S, f##_n)
#define RANGE(from, to) .is.low = from, .is.high = to

/* What several tables have. */
#define THREADS_MOST 4096
#define SEQ_LEN_MOST (1 << 24)
#define DTYPES "bf16|fp32"                       /* pt_precision */
#define BASES "auto|bf16|fp32|nf4|int8|mxfp4"    /* pt_base */
#define SAVE_DTYPES "stored|fp32|bf16|fp16"      /* pt_save_type */
#define DATA_HELP                                                                                                                          \
    ".txt, .jsonl, .json, .csv, .parquet, .arrow, .npy, .bin or a folder; repeatable;\n"                                                  \
    "PATH:0.3 takes that share of the records"
#define DOCUMENT_HELP "attend only within a document; positions restart at each document"
#define THREADS_HELP "default: all cores available to the process"
#define DEVICE_MEMORY_HELP "memory budget, such as 8GiB; on a CPU, of RAM"
#define HOST_MEMORY_HELP "RAM budget beside a GPU; on a CPU, RAM as a second tier"
#define DISK_MEMORY_HELP "budget of disk space; 0: never use the disk"
#define DEVICE_HELP "auto (a usable GPU, else the CPU), cpu, cuda or cuda:N"

/* The rows of data, which training and evaluation have. BY: of each row. */
#define DATA_ROWS(S, BY)                                                                                                                   \
    {OPTION(S, columns, "columns", TEXT, "NAME=KEY,..."),                                                                                  \
     .is.help = "rename keys of records, as in prompt=query,completion=response", .record = RECORD_INPUT, BY},                             \
    {OPTION(S, data_format, "data-format", CHOICE, "auto|text|messages|sharegpt|prompt|alpaca|tokens|preference"),                         \
     .is.help = "format of the records; auto: recognized by their keys", .record = RECORD_INPUT, BY},                                     \
    {OPTION(S, train_on, "train-on", CHOICE, "auto|assistant|completion|last|all"),                                                        \
     .is.help = "tokens to train on; auto: assistant replies of chats, completions of\n"                                                   \
                "prompts, all of plain text; last: the last reply", .record = RECORD_INPUT, BY},                                          \
    {OPTION(S, chat_template, "chat-template", TEXT, "FILE"), .is.help = "use this Jinja chat template, not the model's",                  \
     .record = RECORD_INPUT, .need = NEED_CHATS, BY},                                                                                      \
    {OPTION(S, plain_contents, "plain-contents", FLAG, NULL), .is.help = "special tokens in messages and prompts are plain text",          \
     .record = RECORD_RESULT, .need = NEED_CONTENTS, BY},                                                                                  \
    {OPTION(S, no_packing, "no-packing", FLAG, NULL), .is.help = "one example per window, padded", .record = RECORD_RESULT,                \
     .need = NEED_EXAMPLES, BY},                                                                                                           \
    {OPTION(S, long_examples, "long", CHOICE, "cut|drop|error"), .is.initial = "cut",                                                      \
     .is.help = "what to do with examples longer than a window", .record = RECORD_RESULT, .need = NEED_EXAMPLES, BY}

#endif
