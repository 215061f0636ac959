#include "comm/pmi.h"

#include "base/clock.h"
#include "comm/net.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { LINE_BYTES = 2048, ANSWER_S = 60 }; /* the barrier waits for other ranks */

void pmi_value(const char *line, const char *key, char *out, size_t room)
{
    const size_t n = strlen(key);
    out[0] = 0;
    for (const char *p = line; *p; p += strspn(p, " \n")) {
        const size_t word = strcspn(p, " \n");
        if (word > n && !strncmp(p, key, n) && p[n] == '=') {
            snprintf(out, room, "%.*s", (int)(word - n - 1), p + n + 1);
            return;
        }
        p += word;
    }
}

static bool receive_line(int fd, char line[LINE_BYTES])
{
    const double until_s = clock_s() + ANSWER_S;
    for (size_t n = 0; n < LINE_BYTES - 1;) {
        const ssize_t got = net_wait(fd, POLLIN, until_s) ? read(fd, line + n, 1) : 0;
        if (got < 0 && (errno == EINTR || errno == EAGAIN))
            continue;
        if (got <= 0)
            return false;
        if (line[n++] == '\n') {
            line[n] = 0;
            return true;
        }
    }
    return false;
}

/* Sends a line and receives one, whose command has to be `answer`. */
__attribute__((format(printf, 4, 5))) static bool ask(int fd, const char *answer, char line[LINE_BYTES], const char *fmt, ...)
{
    char command[64];
    va_list ap;
    va_start(ap, fmt);
    const int n = vsnprintf(line, LINE_BYTES, fmt, ap);
    va_end(ap);
    if (n < 0 || n >= LINE_BYTES || write(fd, line, (size_t)n) != n || !receive_line(fd, line))
        return false;
    pmi_value(line, "cmd", command, sizeof command);
    return !strcmp(command, answer);
}

int pmi_exchange(int fd, int rank, char job[PMI_WORD_BYTES], char word[PMI_WORD_BYTES], pt_error *e)
{
    char line[LINE_BYTES];
    bool done = ask(fd, "response_to_init", line, "cmd=init pmi_version=1 pmi_subversion=1\n") &&
                ask(fd, "my_kvsname", line, "cmd=get_my_kvsname\n");
    if (done)
        pmi_value(line, "kvsname", job, PMI_WORD_BYTES);
    if (done && !rank)
        done = ask(fd, "put_result", line, "cmd=put kvsname=%s key=protrain value=%s\n", job, word);
    done = done && ask(fd, "barrier_out", line, "cmd=barrier_in\n") &&
           ask(fd, "get_result", line, "cmd=get kvsname=%s key=protrain\n", job);
    if (done)
        pmi_value(line, "value", word, PMI_WORD_BYTES);
    done = done && job[0] && word[0] && ask(fd, "finalize_ack", line, "cmd=finalize\n");
    return done ? 0 : pt_fail(e, PT_FAILED, "mpirun does not say where rank 0 is (PMI_FD=%d): set MASTER_ADDR and MASTER_PORT", fd);
}
