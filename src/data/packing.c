#include "data/packing.h"

#include "data/permute.h"
#include "io/files.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BLOCK = 65536, NONE = -1 };
#define ORDER_EPOCH UINT64_MAX /* the epoch of the permutation of examples */

typedef struct sink { /* a file written sequentially */
    int fd;
    uint64_t offset;
    size_t used;
    char buffer[1 << 16];
} sink;

/* Windows by their free places: a list for each number of places, and two levels of bits that say which lists are not empty. */
typedef struct rooms {
    int64_t most;      /* places of an empty window */
    int32_t *head;     /* of each list; NONE: empty */
    uint64_t *bits;    /* of the lists that are not empty */
    uint64_t *words;   /* of the words of `bits` that are not 0 */
} rooms;

typedef struct bin { int32_t next; uint32_t first; } bin; /* first: the lowest position of its examples */

typedef struct packer {
    const token_file *f;
    const packing_options *o;
    window_packing *out;
    rooms rooms;
    packed_example *examples;  /* of the block, by position */
    uint32_t *order, *bin_of;  /* positions, longest first; the window of each */
    uint64_t *sorted;          /* rank of a window << 32 | position */
    bin *bins;
    uint32_t examples_n, bins_n;
    sink examples_out, index_out;
} packer;

/* ---- free places ---- */

static void rooms_put(rooms *r, bin *bins, int32_t b, int64_t room)
{
    if (room < 1)
        return;
    bins[b].next = r->head[room];
    r->head[room] = b;
    r->bits[room / 64] |= UINT64_C(1) << room % 64;
    r->words[room / 4096] |= UINT64_C(1) << room / 64 % 64;
}

/* The smallest number of free places, at least `places`, that a window has; 0: none. */
static int64_t rooms_find(const rooms *r, int64_t places)
{
    int64_t word = places / 64;
    uint64_t bits = r->bits[word] & ~UINT64_C(0) << places % 64;
    if (bits)
        return word * 64 + __builtin_ctzll(bits);
    int64_t group = ++word / 64;
    const int64_t groups = r->most / 4096 + 1;
    uint64_t words = group < groups ? r->words[group] & ~UINT64_C(0) << word % 64 : 0;
    while (!words && ++group < groups)
        words = r->words[group];
    if (!words)
        return 0;
    word = group * 64 + __builtin_ctzll(words);
    return word * 64 + __builtin_ctzll(r->bits[word]);
}

static int32_t rooms_take(rooms *r, const bin *bins, int64_t room)
{
    const int32_t b = r->head[room];
    r->head[room] = bins[b].next;
    if (r->head[room] == NONE) {
        r->bits[room / 64] &= ~(UINT64_C(1) << room % 64);
        if (!r->bits[room / 64])
            r->words[room / 4096] &= ~(UINT64_C(1) << room / 64 % 64);
    }
    return b;
}

static void rooms_clear(rooms *r)
{
    memset(r->head, 0xff, (size_t)(r->most + 1) * sizeof *r->head);
    memset(r->bits, 0, (size_t)(r->most / 64 + 1) * sizeof *r->bits);
    memset(r->words, 0, (size_t)(r->most / 4096 + 1) * sizeof *r->words);
}

/* ---- one block ---- */

static int by_length(const void *a, const void *b, void *arg)
{
    const packed_example *x = arg;
    const uint32_t i = *(const uint32_t *)a, k = *(const uint32_t *)b;
    if (x[i].places != x[k].places)
        return x[i].places > x[k].places ? -1 : 1;
    return i < k ? -1 : 1;
}

static int by_value(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static void place(packer *p, uint32_t at)
{
    const int64_t places = p->examples[at].places;
    int64_t room = p->o->alone ? 0 : rooms_find(&p->rooms, places);
    int32_t b;
    if (room) {
        b = rooms_take(&p->rooms, p->bins, room);
    } else {
        b = (int32_t)p->bins_n++;
        p->bins[b].first = at;
        room = p->o->seq_len;
    }
    p->bin_of[at] = (uint32_t)b;
    if (at < p->bins[b].first)
        p->bins[b].first = at;
    rooms_put(&p->rooms, p->bins, b, p->o->alone ? 0 : room - places);
}

static int sink_flush(sink *s, pt_error *e)
{
    int rc = fd_pwrite_all(s->fd, s->buffer, s->used, s->offset, "a temporary file of packed examples", e);
    s->offset += s->used;
    s->used = 0;
    return rc;
}

static int sink_put(sink *s, const void *x, size_t n, pt_error *e)
{
    int rc = s->used + n > sizeof s->buffer ? sink_flush(s, e) : 0;
    memcpy(s->buffer + s->used, x, n);
    s->used += n;
    return rc;
}

/* Writes windows ordered by their first example, and the examples in a window by position. */
static int write_windows(packer *p, pt_error *e)
{
    int rc = 0;
    for (uint32_t i = 0; i < p->examples_n; i++)
        p->sorted[i] = (uint64_t)p->bins[p->bin_of[i]].first << 32 | i;
    qsort(p->sorted, p->examples_n, sizeof *p->sorted, by_value);
    for (uint32_t i = 0; i < p->examples_n && rc == 0; i++) {
        const packed_example *x = &p->examples[(uint32_t)p->sorted[i]];
        if (i == 0 || p->sorted[i] >> 32 != p->sorted[i - 1] >> 32) {
            rc = sink_put(&p->index_out, &p->out->examples, sizeof p->out->examples, e);
            p->out->windows++;
        }
        p->out->examples++;
        p->out->tokens += x->places;
        p->out->learned += x->learned;
        if (rc == 0)
            rc = sink_put(&p->examples_out, x, sizeof *x, e);
    }
    return rc;
}

static int pack_block(packer *p, pt_error *e)
{
    rooms_clear(&p->rooms);
    p->bins_n = 0;
    for (uint32_t i = 0; i < p->examples_n; i++)
        p->order[i] = i;
    qsort_r(p->order, p->examples_n, sizeof *p->order, by_length, p->examples);
    for (uint32_t i = 0; i < p->examples_n; i++)
        place(p, p->order[i]);
    int rc = write_windows(p, e);
    p->examples_n = 0;
    return rc;
}

/* ---- examples ---- */

static const char *file_name(const packer *p, const token_example *x)
{
    return p->o->file_name ? p->o->file_name(p->o->arg, x->file) : "the data";
}

/* The places that an example or a pair takes if it is not cut; *x: the place of its record. */
static int whole_places(const packer *p, uint64_t number, token_example *x, uint64_t *places, pt_error *e)
{
    const uint64_t many = p->o->pairs ? 2 : 1;
    uint64_t ids_n;
    int rc = 0;
    *places = 0;
    for (uint64_t i = 0; i < many && rc == 0; i++) {
        rc = token_file_example(p->f, many * number + i, x, &ids_n, e);
        *places += rc == 0 && ids_n ? ids_n - 1 : 0;
    }
    return rc;
}

/* Names the longest example of all, since what suffices for it suffices. */
static int refuse_long(const packer *p, pt_error *e)
{
    token_example longest = {0}, x;
    uint64_t most = 0, longer = 0, places;
    for (uint64_t i = 0; i < share_count(&p->o->share); i++) {
        int rc = whole_places(p, share_item(&p->o->share, i), &x, &places, e);
        if (rc < 0)
            return rc;
        longer += places > (uint64_t)p->o->seq_len;
        if (places > most) {
            most = places;
            longest = x;
        }
    }
    char others[80] = "";
    if (longer > 1)
        snprintf(others, sizeof others, " (%llu are longer than that; this is the longest)", (unsigned long long)longer);
    char line[40] = ""; /* none: it is a text */
    if (longest.line)
        snprintf(line, sizeof line, "line %llu: ", (unsigned long long)longest.line);
    return pt_fail(e, PT_FAILED,
                   "%.400s: %s%s has %llu tokens, but a window has %lld%s: give `seq_len` %llu, or `long_examples` cut or drop",
                   file_name(p, &longest), line, p->o->pairs && !p->o->labels ? "a pair" : "an example",
                   (unsigned long long)most + (p->o->labels || p->o->scored ? 0 : p->o->pairs ? 2 : 1), (long long)p->o->seq_len, others,
                   (unsigned long long)most);
}

/* Cuts an example after its last learned id within `most` places. */
static int cut_example(const packer *p, packed_example *x, int64_t most, pt_error *e)
{
    uint32_t ids[4096], learned = 0, places = 0;
    for (uint32_t at = 0; at <= most;) {
        const size_t left = (size_t)(most + 1 - at), n = left < 4096 ? left : 4096;
        int rc = token_file_ids(p->f, x->start + at, n, INT64_C(1) << 31, ids, e);
        if (rc < 0)
            return rc;
        for (size_t i = 0; i < n; i++, at++)
            if (at && (!p->f->ids.marked || ids[i] & ID_LEARNED)) {
                learned++;
                places = at;
            }
    }
    x->places = places;
    x->learned = learned;
    return 0;
}

/* Keeps the first `most` ids before the label, without padding at their end. */
static int cut_scored(const packer *p, packed_example *x, int64_t most, pt_error *e)
{
    uint32_t id = (uint32_t)p->o->padding;
    int rc = 0;
    for (x->places = (uint32_t)most; rc == 0 && x->places > 1; x->places--) {
        rc = token_file_ids(p->f, x->start + x->places - 1, 1, INT64_C(1) << 31, &id, e);
        if ((int64_t)(id & ~ID_LEARNED) != p->o->padding)
            break;
    }
    return rc;
}

static int read_label(const packer *p, packed_example *x, uint64_t ids_n, pt_error *e)
{
    const int rc = token_file_ids(p->f, x->start + ids_n - 1, 1, INT64_C(1) << 31, &x->label, e);
    x->label &= ~ID_LEARNED;
    return rc;
}

/* Reads example `number`, cut to `most` places if need be. *cut: it is longer than that. */
static int fit_example(packer *p, uint64_t number, int64_t most, bool *cut, packed_example *out, pt_error *e)
{
    token_example x;
    uint64_t ids_n;
    int rc = token_file_example(p->f, number, &x, &ids_n, e);
    if (rc < 0)
        return rc;
    *out = (packed_example){.start = x.start, .margin = x.margin, .places = (uint32_t)(ids_n ? ids_n - 1 : 0), .learned = x.learned};
    *cut = ids_n > (uint64_t)most + 1;
    if (*cut && p->o->longer == PT_LONG_ERROR)
        return refuse_long(p, e);
    if (p->o->scored)
        rc = read_label(p, out, ids_n, e);
    if (rc < 0 || !*cut || p->o->longer != PT_LONG_CUT)
        return rc;
    return p->o->scored ? cut_scored(p, out, most, e) : cut_example(p, out, most, e);
}

/* Something is left of it, or it is missing. */
static bool may_learn(const packer *p, const packed_example *x) { return x->learned || (p->o->labels && x->places == 1); }

/* Reads a pair as one example: each of the two may have half of a window, or what the other leaves. */
static int fit_pair(packer *p, uint64_t pair, bool *cut, packed_example *out, pt_error *e)
{
    packed_example two[2];
    bool one_cut = false;
    *cut = false;
    for (int i = 0; i < 2; i++) {
        int rc = fit_example(p, 2 * pair + (uint64_t)i, p->o->seq_len, &one_cut, &two[i], e);
        if (rc < 0)
            return rc;
        *cut = *cut || one_cut;
    }
    const int64_t half = p->o->seq_len / 2, all = (int64_t)two[0].places + two[1].places;
    for (int i = 0; i < 2 && all > p->o->seq_len; i++) {
        const int64_t other = two[1 - i].places, most = other < half ? p->o->seq_len - other : half;
        int rc = two[i].places > most ? fit_example(p, 2 * pair + (uint64_t)i, most, &one_cut, &two[i], e) : 0;
        if (rc < 0)
            return rc;
        *cut = true;
    }
    *out = (packed_example){.start = two[0].start, .places = two[0].places + two[1].places, .learned = two[0].learned + two[1].learned,
                            .label = two[0].label, .margin = two[0].margin,
                            .chosen = two[0].places, .rejected = (uint32_t)(two[1].start - two[0].start)};
    if (!may_learn(p, &two[0]) || !may_learn(p, &two[1]))
        out->learned = 0;
    return 0;
}

/* Keeps the longest example, or pair, of those that are too long. */
static int keep_longest(packer *p, uint64_t number, pt_error *e)
{
    window_packing *out = p->out;
    token_example x;
    uint64_t places;
    int rc = whole_places(p, number, &x, &places, e);
    if (rc == 0 && places > out->longest) {
        out->longest = places;
        out->longest_line = x.line;
        out->longest_file = x.file;
    }
    return rc;
}

static int add_example(packer *p, uint64_t number, pt_error *e)
{
    packed_example packed;
    bool cut;
    int rc = p->o->pairs ? fit_pair(p, number, &cut, &packed, e) : fit_example(p, number, p->o->seq_len, &cut, &packed, e);
    packed.number = number;
    if (rc == 0 && cut)
        rc = keep_longest(p, number, e);
    if (rc < 0)
        return rc;
    p->out->dropped += cut && p->o->longer == PT_LONG_DROP;
    if (cut && p->o->longer == PT_LONG_DROP)
        return 0;
    p->out->cut += cut;
    if (!packed.learned) {
        p->out->unlearned++;
        return 0;
    }
    p->examples[p->examples_n++] = packed;
    return p->examples_n == BLOCK ? pack_block(p, e) : 0;
}

static int pack_all(packer *p, pt_error *e)
{
    const uint64_t n = share_count(&p->o->share);
    int rc = 0;
    for (uint64_t i = 0; i < n && rc == 0; i++) {
        const uint64_t at = p->o->shuffle ? permute(p->o->seed, ORDER_EPOCH, i, n) : i;
        rc = add_example(p, share_item(&p->o->share, at), e);
    }
    if (rc == 0)
        rc = pack_block(p, e);
    if (rc == 0)
        rc = sink_put(&p->index_out, &p->out->examples, sizeof p->out->examples, e);
    if (rc == 0)
        rc = sink_flush(&p->index_out, e);
    return rc < 0 ? rc : sink_flush(&p->examples_out, e);
}

/* ---- all together ---- */

static int packer_open(packer *p, pt_error *e)
{
    rooms *r = &p->rooms;
    r->most = p->o->seq_len;
    r->head = malloc((size_t)(r->most + 1) * sizeof *r->head);
    r->bits = malloc((size_t)(r->most / 64 + 1) * sizeof *r->bits);
    r->words = malloc((size_t)(r->most / 4096 + 1) * sizeof *r->words);
    p->examples = malloc(BLOCK * sizeof *p->examples);
    p->order = malloc(BLOCK * sizeof *p->order);
    p->bin_of = malloc(BLOCK * sizeof *p->bin_of);
    p->sorted = malloc(BLOCK * sizeof *p->sorted);
    p->bins = malloc(BLOCK * sizeof *p->bins);
    if (!r->head || !r->bits || !r->words || !p->examples || !p->order || !p->bin_of || !p->sorted || !p->bins)
        return pt_fail(e, PT_FAILED, "out of memory: to pack examples into windows of %lld tokens", (long long)r->most);
    p->out->fd = file_unnamed(p->o->folder, e);
    if (p->out->fd >= 0)
        p->out->index_fd = file_unnamed(p->o->folder, e);
    p->examples_out.fd = p->out->fd;
    p->index_out.fd = p->out->index_fd;
    return p->out->fd < 0 || p->out->index_fd < 0 ? PT_FAILED : 0;
}

static void packer_free(packer *p)
{
    free(p->rooms.head);
    free(p->rooms.bits);
    free(p->rooms.words);
    free(p->examples);
    free(p->order);
    free(p->bin_of);
    free(p->sorted);
    free(p->bins);
    free(p);
}

int packing_make(const token_file *f, const packing_options *o, window_packing *out, pt_error *e)
{
    packer *p = calloc(1, sizeof *p);
    *out = (window_packing){.fd = -1, .index_fd = -1};
    if (!p)
        return pt_fail(e, PT_FAILED, "out of memory: to pack examples");
    p->f = f;
    p->o = o;
    p->out = out;
    int rc = packer_open(p, e);
    if (rc == 0)
        rc = pack_all(p, e);
    packer_free(p);
    return rc;
}

void packing_close(window_packing *p)
{
    if (p->fd >= 0)
        close(p->fd);
    if (p->index_fd >= 0)
        close(p->index_fd);
    p->fd = p->index_fd = -1;
}

int packing_window(const window_packing *p, uint64_t w, uint64_t *first, uint64_t *n, pt_error *e)
{
    uint64_t two[2];
    int rc = fd_pread_all(p->index_fd, two, sizeof two, w * sizeof *two, "a temporary file of packed examples", e);
    *first = two[0];
    *n = two[1] - two[0];
    return rc;
}

int packing_examples(const window_packing *p, uint64_t first, size_t n, packed_example *out, pt_error *e)
{
    return fd_pread_all(p->fd, out, n * sizeof *out, first * sizeof *out, "a temporary file of packed examples", e);
}
