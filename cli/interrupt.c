#include "interrupt.h"

#include "progress.h"

#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

static atomic_int caught;

void signals_go_to(void (*handler)(int))
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction a = {.sa_handler = handler}, before;
    sigfillset(&a.sa_mask);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (!sigaction(numbers[i], NULL, &before) && before.sa_handler != SIG_IGN)
            sigaction(numbers[i], &a, NULL);
}

/* A signal that follows within 0.3 s counts as the first: when a terminal closes, the shell and the kernel both send one, and timeout(1)
 * signals its child and then the whole group. Each may interrupt another thread. */
static void on_signal(int number)
{
    static _Atomic double first_s;
    const double now = now_s();
    int none = 0;
    if (atomic_load(&caught) && number != SIGHUP && now - atomic_load(&first_s) > 0.3)
        _exit(128 + number);
    if (!atomic_load(&caught))
        atomic_store(&first_s, now);
    atomic_compare_exchange_strong(&caught, &none, number);
}

void interrupt_record(void) { signals_go_to(on_signal); }
int interrupt_signal(void) { return atomic_load(&caught); }
