/* interrupt.h - SIGINT, SIGTERM and SIGHUP, and commands that save what they have when they are interrupted. */
#ifndef CLI_INTERRUPT_H
#define CLI_INTERRUPT_H

/* Sets the handler of the three. Until a command sets its own, they end it at once with a message and status 128 + signal, because there
 * is nothing to save yet. A signal that is ignored stays ignored: a shell makes its background commands ignore SIGINT, and nohup makes
 * them ignore SIGHUP. */
void signals_go_to(void (*handler)(int));

/* From now on the first of the three is only recorded, and a second one ends the program at once. */
void interrupt_record(void);
/* The signal that was recorded; 0: none. May be called from any thread. */
int interrupt_signal(void);

#endif
