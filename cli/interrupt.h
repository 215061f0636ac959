/* interrupt.h - commands that save what they have when they are interrupted. */
#ifndef CLI_INTERRUPT_H
#define CLI_INTERRUPT_H

/* From now on the first SIGINT, SIGTERM or SIGHUP is only recorded, and a second one ends the program at once. */
void interrupt_record(void);
/* The signal that was recorded; 0: none. May be called from any thread. */
int interrupt_signal(void);

#endif
