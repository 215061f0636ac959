/* fuzz_hello.c - libFuzzer target: what comes over the network before and while ranks exchange. The first byte says which message, the
 * second how large the pieces are in which notes come: what is read must not depend on that. */
#include "comm/hello.h"

#include <stdlib.h>
#include <string.h>

/* Every string that was found whole may be shown. */
static size_t shown;
static void show(const char *text) { shown += strlen(text); }

static void read_hello(const uint8_t *p, size_t n)
{
    hello h = {0};
    memcpy(&h, p, n < sizeof h ? n : sizeof h);
    if (!hello_is_whole(&h))
        return;
    show(h.host);
    show(h.version);
    if (h.rank < 0 || h.rank >= h.ranks || h.ranks > COMM_RANKS_MOST)
        abort();
}

static void read_answer(const uint8_t *p, size_t n)
{
    hello_answer a = {0};
    memcpy(&a, p, n < sizeof a ? n : sizeof a);
    if (hello_answer_is_whole(&a))
        show(a.why);
}

static void read_places(const uint8_t *p, size_t n)
{
    static hello_place all[COMM_RANKS_MOST];
    const int ranks = (int)(n / sizeof *all) % COMM_RANKS_MOST;
    memcpy(all, p, (size_t)ranks * sizeof *all);
    for (int r = 0; hello_places_are_whole(all, ranks) && r < ranks; r++) {
        show(all[r].address);
        show(all[r].host);
    }
}

typedef struct tally { size_t notes, bytes, hash; int there; } tally;

static tally read_notes(const uint8_t *p, size_t n, size_t piece)
{
    note_reader r = {0};
    note x;
    tally t = {0};
    for (size_t at = 0, used; at < n && t.there >= 0; at += used) {
        t.there = note_take(&r, (const char *)p + at, n - at < piece ? n - at : piece, &used, &x);
        if (t.there > 0) {
            t.notes++;
            t.bytes += strlen(x.text);
            t.hash = t.hash * 31 + (size_t)x.kind * 7 + (size_t)-x.code;
        } else if (!t.there && used != (n - at < piece ? n - at : piece)) {
            abort();
        }
    }
    t.there = t.there < 0 ? -1 : 0;
    return t;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (n < 2)
        return 0;
    const uint8_t which = data[0] % 4, *p = data + 2;
    if (which == 0)
        read_hello(p, n - 2);
    else if (which == 1)
        read_answer(p, n - 2);
    else if (which == 2)
        read_places(p, n - 2);
    else {
        const tally a = read_notes(p, n - 2, SIZE_MAX), b = read_notes(p, n - 2, 1 + data[1] % 9);
        if (memcmp(&a, &b, sizeof a))
            abort();
    }
    return 0;
}
