#include "progress.h"

#include "fields.h"

#include "protrain.h"

#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

void progress_open(progress *p, bool quiet)
{
    memset(p, 0, sizeof *p);
    p->quiet = quiet;
    p->terminal = isatty(STDERR_FILENO);
}

static int terminal_width(void)
{
    struct winsize w;
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col > 20 ? w.ws_col : 80;
}

/* The bar takes the width that the text leaves, up to a limit; if nothing is left, the text is cut at its end. */
static void draw_line(const progress *p, uint64_t done, uint64_t total, const char *left, const char *text)
{
    enum { BAR = 24 };
    char bar[BAR * 3 + 1] = "", line[512];
    int n = snprintf(line, sizeof line, "%3d%%%s%s%s%s", total ? (int)(100 * (double)done / (double)total) : 0, left[0] ? "  " : "", left,
                     text ? "  " : "", text ? text : "");
    const int room = terminal_width() - (int)strlen(p->stage) - 2, spare = room - n - 1;
    const int wide = spare > BAR ? BAR : spare > 0 ? spare : 0, full = total ? (int)((double)done / (double)total * wide) : 0;
    for (int i = 0; i < wide; i++)
        strcat(bar, i < full ? "█" : "░");
    fprintf(stderr, "\r%s %s%s%.*s\033[K", p->stage, bar, wide ? " " : "", room < n ? (room > 0 ? room : 0) : n, line);
    fflush(stderr);
}

void progress_draw(progress *p, const char *stage, uint64_t done, uint64_t total, const char *text)
{
    double now = now_s();
    if (p->quiet)
        return;
    if (strcmp(p->stage, stage) != 0) {
        progress_clear(p);
        snprintf(p->stage, sizeof p->stage, "%s", stage);
        p->started_s = now;
        p->drawn_s = 0;
        p->first = done;
    }
    bool last = done >= total;
    if (now - p->drawn_s < (p->terminal ? 0.1 : 10) && !last)
        return;
    char left[64] = "", time[32];
    uint64_t fresh = done - p->first;
    if (fresh && !last)
        snprintf(left, sizeof left, "%s left", pt_seconds_text(time, (now - p->started_s) / (double)fresh * (double)(total - done)));
    p->drawn_s = now;
    if (p->terminal) {
        draw_line(p, done, total, left, text);
        p->shown = true;
    } else if (!last || p->shown || now - p->started_s > 1) { /* what has begun is finished */
        p->shown = true;
        fprintf(stderr, "%s %3d%%%s%s%s%s\n", stage, total ? (int)(100 * (double)done / (double)total) : 0, text ? "  " : "",
                text ? text : "", left[0] ? "  " : "", left);
    }
}

void progress_clear(progress *p)
{
    if (p->shown && p->terminal)
        fprintf(stderr, "\r\033[K");
    p->shown = false;
    p->stage[0] = 0;
}

void progress_notice(void *bar, const char *sentence)
{
    progress_clear(bar);
    fputs("note: ", stderr);
    print_sentence(stderr, sentence);
    fputc('\n', stderr);
}

void progress_stage(void *bar, const char *stage, uint64_t done, uint64_t total) { progress_draw(bar, stage, done, total, NULL); }
