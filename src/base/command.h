/* command.h - the command of this process, and when it was given. */
#ifndef PT_COMMAND_H
#define PT_COMMAND_H

/* As a shell reads it; free() it. NULL: out of memory, or unknown. */
char *command_text(void);
enum { COMMAND_TIME = 32 };
const char *command_time(char out[COMMAND_TIME]); /* now: "2026-11-29 08:40:12 UTC" */

#endif
