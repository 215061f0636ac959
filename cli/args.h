/* args.h - parses command lines by a table: one row per option, with its help. */
#ifndef CLI_ARGS_H
#define CLI_ARGS_H

#include "protrain.h"

typedef enum arg_kind {
    ARG_HEADING, /* a heading between groups in the help */
    ARG_FLAG,    /* bool */
    ARG_STRING,  /* const char * */
    ARG_OPERAND, /* const char *: an argument that is not an option; `name` is for help and messages */
    ARG_STRINGS, /* arg_strings: repeatable */
    ARG_INT,     /* int64_t */
    ARG_COUNT,   /* int64_t, 1 or more */
    ARG_INT32,   /* int */
    ARG_SEED,    /* uint64_t */
    ARG_DOUBLE,  /* double */
    ARG_FROM_0,  /* double, 0 or more */
    ARG_ABOVE_0, /* double, above 0 */
    ARG_SIZE,    /* uint64_t bytes: 512MiB, 1.5GiB ... */
    ARG_CHOICE,  /* int: index in `choices`, "a|b|c" */
    ARG_IGNORED, /* another command's option, which has no effect here: accepted with its value, not shown in the help */
    ARG_IGNORED_FLAG
} arg_kind;

enum { ARG_MANY = 256 };
typedef struct arg_strings { const char *v[ARG_MANY]; int n; } arg_strings;

typedef struct arg {
    const char *name;     /* "--model" */
    arg_kind kind;
    void *value;
    const char *meta;     /* "DIR" in the help; for ARG_CHOICE the choices */
    const char *help;     /* NULL: not in the help */
    bool value_optional;  /* ARG_STRING: `--resume` alone gives "" */
} arg;

/* Fills the values. Returns 0; 1 if --help was given and printed on stdout; PT_USAGE with a sentence in `e`. */
int args_parse(int argc, char **argv, const char *usage, const arg *table, int n, pt_error *e);
/* Whether `name` is more similar to the `length` letters than the best so far: it begins with them, or fewer letters differ. Initialise
 * *fewest with word_fewest. */
int word_fewest(size_t length);
bool word_is_nearer(const char *typed, size_t length, const char *name, int *fewest);
void args_help(const char *usage, const arg *table, int n);

#endif
