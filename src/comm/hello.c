#include "comm/hello.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char MAGIC[8] = "protrain";
enum { FORMAT = 1, PORTS = 65536 };

static bool is_text(const char *s, size_t room)
{
    for (size_t i = 0; i < room; i++) {
        if (!s[i])
            return true;
        if (s[i] < ' ' || s[i] > '~')
            return false;
    }
    return false;
}

hello hello_make(hello_kind kind, uint64_t key, int rank, int ranks, int port, uint64_t machine)
{
    hello h = {.format = FORMAT, .kind = kind, .key = key, .ranks = ranks, .rank = rank, .port = (uint32_t)port, .machine = machine,
               .version = PT_VERSION};
    memcpy(h.magic, MAGIC, sizeof MAGIC);
    if (gethostname(h.host, sizeof h.host - 1) || !is_text(h.host, sizeof h.host))
        snprintf(h.host, sizeof h.host, "unnamed");
    return h;
}

hello_answer hello_answer_make(hello_verdict verdict, const char *why)
{
    hello_answer a = {.verdict = verdict};
    memcpy(a.magic, MAGIC, sizeof MAGIC);
    snprintf(a.why, sizeof a.why, "%s", why);
    return a;
}

bool hello_is_whole(const hello *h)
{
    return !memcmp(h->magic, MAGIC, sizeof MAGIC) && h->format == FORMAT && h->kind <= HELLO_DATA && h->ranks >= 1 &&
           h->ranks <= COMM_RANKS_MOST && h->rank >= 0 && h->rank < h->ranks && h->port < PORTS && is_text(h->version, sizeof h->version) &&
           is_text(h->host, sizeof h->host);
}

bool hello_answer_is_whole(const hello_answer *a)
{
    return !memcmp(a->magic, MAGIC, sizeof MAGIC) && a->verdict <= HELLO_LATER && is_text(a->why, sizeof a->why);
}

bool hello_places_are_whole(const hello_place *p, int ranks)
{
    for (int r = 0; r < ranks; r++)
        if (!is_text(p[r].address, sizeof p[r].address) || p[r].port >= PORTS || !is_text(p[r].host, sizeof p[r].host))
            return false;
    return true;
}

size_t note_make(char out[sizeof(note_head) + NOTE_TEXT_BYTES], note_kind kind, int code, const char *text)
{
    const size_t n = strnlen(text, NOTE_TEXT_BYTES);
    const note_head head = {(uint8_t)kind, (uint8_t)-code, (uint16_t)n};
    memcpy(out, &head, sizeof head);
    memcpy(out + sizeof head, text, n);
    return sizeof head + n;
}

static size_t wanted(const note_reader *r)
{
    note_head head;
    memcpy(&head, r->bytes, sizeof head);
    return r->n < sizeof head ? sizeof head : sizeof head + head.bytes;
}

/* The text comes from another machine and is printed: control characters are replaced. */
static void read_text(note *out, const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++)
        out->text[i] = (char)((unsigned char)text[i] < ' ' || text[i] == 0x7f ? '?' : text[i]);
    out->text[n] = 0;
}

int note_take(note_reader *r, const char *p, size_t n, size_t *used, note *out)
{
    note_head head;
    *used = 0;
    while (r->n < wanted(r) && *used < n) {
        r->bytes[r->n++] = p[(*used)++];
        memcpy(&head, r->bytes, sizeof head);
        if (r->n == sizeof head && (head.kind > NOTE_GOODBYE || head.bytes > NOTE_TEXT_BYTES))
            return -1;
    }
    if (r->n < sizeof head || r->n < wanted(r))
        return 0;
    memcpy(&head, r->bytes, sizeof head);
    out->kind = (note_kind)head.kind;
    out->code = -(int)head.code;
    read_text(out, r->bytes + sizeof head, head.bytes);
    r->n = 0;
    return 1;
}
