/* commands.h - one function per subcommand. Each gets its own argv (argv[0] is the subcommand) and returns the exit status: 0 done, 1
 * failed, 2 wrong usage, 3 does not fit, 128 + signal if interrupted. */
#ifndef CLI_COMMANDS_H
#define CLI_COMMANDS_H

int command_train(int argc, char **argv);
int command_plan(int argc, char **argv);
int command_profile(int argc, char **argv);
int command_eval(int argc, char **argv);
int command_generate(int argc, char **argv);
int command_serve(int argc, char **argv);
int command_merge(int argc, char **argv);
int command_export(int argc, char **argv);
int command_tokenize(int argc, char **argv);
int command_report(int argc, char **argv);
int command_ritz(int argc, char **argv);
int command_ritz_plan(int argc, char **argv); /* protrain plan --problem */

#endif
