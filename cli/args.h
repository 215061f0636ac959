/* args.h - parses command lines by the library's options of a command (pt_options) and the command's own. */
#ifndef CLI_ARGS_H
#define CLI_ARGS_H

#include "base/option.h"

/* An option of the program alone, such as --quiet. */
typedef struct arg {
    pt_option is;
    void *value;
    bool operand; /* an argument that is not an option; its name is for help and messages */
} arg;

/* group: the heading under which the help has it. text NULL: not in the help. */
#define ARG(k, flag, v, meta, heading, text)                                                                                               \
    {{.name = flag, .field = "--" flag, .group = heading, .kind = PT_OPTION_##k, .values = meta, .help = text}, v, false}
#define ARG_WHOLE(flag, v, from, to, heading, text)                                                                                        \
    {{.name = flag, .field = "--" flag, .group = heading, .kind = PT_OPTION_INT, .values = "N", .help = text, .low = from, .high = to},    \
     v,                                                                                                                                    \
     false}
#define ARG_OPERAND(name_, v, text)                                                                                                        \
    {{.name = name_, .field = name_, .kind = PT_OPTION_TEXT, .values = name_, .help = text}, v, true}

typedef struct command_line {
    int argc;
    char **argv;
    const char *command; /* whose options of the library there are; NULL: none */
    const char *usage;   /* the beginning of the help */
    const arg *own;
    size_t own_n;
} command_line;
#define COMMAND_LINE(command, usage, own) (&(command_line){argc, argv, command, usage, own, sizeof (own) / sizeof *(own)})

/* Opens the command's options, which the caller closes, and sets them and the values of its own. Returns 0; 1 if --help was given and
 * printed on stdout; PT_USAGE with a sentence in `e`. */
int args_parse(const command_line *l, pt_options **out, pt_error *e);
/* Prints a file for --config with all options, each with its help, as comments. */
void args_print_config(const pt_options *o);

#endif
