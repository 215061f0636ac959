/* terminal.h - a terminal for programs under test. */
#ifndef TESTS_CLI_TERMINAL_H
#define TESTS_CLI_TERMINAL_H

#include <fcntl.h>
#include <stdlib.h>
#include <sys/ioctl.h>

/* A terminal of so many columns; its name is good for opening it. The end that shows what was written there is returned. */
static inline int terminal_open(unsigned short columns, char name[64])
{
    int shown = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    assert_true(shown >= 0);
    assert_int_equal(grantpt(shown), 0);
    assert_int_equal(unlockpt(shown), 0);
    assert_int_equal(ptsname_r(shown, name, 64), 0);
    assert_int_equal(ioctl(shown, TIOCSWINSZ, &(struct winsize){.ws_row = 24, .ws_col = columns}), 0);
    return shown;
}

#endif
