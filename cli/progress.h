/* progress.h - a progress bar on the terminal's last line, with the remaining time; plain lines if stderr is not a terminal. */
#ifndef CLI_PROGRESS_H
#define CLI_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct progress {
    bool quiet, terminal, shown;
    double started_s, drawn_s;   /* of the current stage */
    uint64_t first;              /* done when the stage began */
    char stage[32];
} progress;

double now_s(void); /* monotonic; may be called from a signal handler */

void progress_open(progress *p, bool quiet);
/* done of total; `text` (may be NULL) is printed after the bar. */
void progress_draw(progress *p, const char *stage, uint64_t done, uint64_t total, const char *text);
/* Clears the bar so that something else can be printed. */
void progress_clear(progress *p);
/* `notice` and `progress` of the library's options, with the bar as their `arg`. */
void progress_notice(void *bar, const char *sentence);
void progress_stage(void *bar, const char *stage, uint64_t done, uint64_t total);

#endif
