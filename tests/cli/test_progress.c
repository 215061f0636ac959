/* The line that shows how far a command is, on terminals of several widths. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "infer/model_folder.h"

#include "cli/refusal.h"
#include "cli/terminal.h"

#include <poll.h>

/* Everything that a run shows there until it is stopped after some seconds. */
static void run_on(unsigned short columns, char *out, size_t n)
{
    arguments a = {0};
    char name[64], folder[200];
    size_t got = 0;
    int shown = terminal_open(columns, name), kept = open(name, O_RDWR | O_NOCTTY | O_CLOEXEC); /* else it ends between two writers */
    assert_true(kept >= 0);
    snprintf(folder, sizeof folder, "%s/run-%d", scratch, columns);
    add_arguments(&a, WORDS("train", "--model", scratch_path("model"), "--data", scratch_path("data.txt"), "--seq-len", "4",
                            "--batch-size", "1", "--device-memory", "64MiB", "--steps", "10000000", "--save-every", "0", "--out", folder));
    pid_t child = program_start(&a, "/dev/null", name);
    bool stopped = false;
    for (double begun = seconds_now(); seconds_now() - begun < 600;) {
        struct pollfd p = {shown, POLLIN, 0};
        ssize_t more = poll(&p, 1, 200) > 0 ? read(shown, out + got, n - 1 - got) : 0;
        got += more > 0 ? (size_t)more : 0;
        out[got] = 0;
        if (!stopped && strstr(out, " left") && seconds_now() - begun > 2) {
            kill(child, SIGINT);
            stopped = true;
        }
        if (stopped && more <= 0 && waitpid(child, NULL, WNOHANG) == child)
            break;
        assert_true(got + 1 < n);
    }
    assert_true(stopped);
    close(kept);
    close(shown);
}

/* Columns that a line takes: bytes that begin a character, up to what clears the rest. */
static int columns_of(const char *line, size_t bytes)
{
    int n = 0;
    for (size_t i = 0; i < bytes && line[i] != '\033'; i++)
        n += ((unsigned char)line[i] & 0xc0) != 0x80;
    return n;
}

/* No line is wider than the terminal, and none lacks what is left: of what follows the loss goes last, then the speed. */
static void what_is_left_is_shown_on_terminals_of_any_width(void **state)
{
    (void)state;
    static const unsigned short widths[] = {34, 60, 160};
    static char text[1 << 20];
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
        int lines = 0, with_loss = 0;
        run_on(widths[i], text, sizeof text);
        for (char *line = strtok(text, "\r\n"); line; line = strtok(NULL, "\r\n")) {
            const char *percent = strstr(line, "% ");
            const char *left = strstr(line, " left"), *step = strstr(line, "step ");
            if (strncmp(line, "training ", 9) || !percent || (!lines && !left)) /* nothing is known of the first step's time */
                continue;
            if (columns_of(line, strlen(line)) >= widths[i] || !left || (step && step < left))
                fail_msg("%d columns: %s", widths[i], line);
            lines++;
            with_loss += strstr(line, "loss ") != NULL;
        }
        assert_true(lines > 2);
        assert_true(widths[i] < 60 ? !with_loss : with_loss);
    }
}

static int set_up(void **state)
{
    static const char text[] = "Some text to be learned, and a little more of it.";
    if (scratch_make(state))
        return 1;
    make_model_folder("model", 32, 2, 64, 5);
    scratch_put("data.txt", text, sizeof text - 1);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(what_is_left_is_shown_on_terminals_of_any_width)};
    return cmocka_run_group_tests(tests, set_up, scratch_remove);
}
