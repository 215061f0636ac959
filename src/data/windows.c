/* windows.c - a dataset's windows: from the stream of ids, or of examples. */
#include "base/target.h"
#include "data/dataset_parts.h"
#include "data/permute.h"

#include <inttypes.h>
#include <string.h>

/* ---- of a stream ---- */

/* Reads n inputs from id `start` on, and their targets. */
static int read_window(const dataset *data, uint64_t start, size_t n, int32_t *ids, int32_t *targets, pt_error *e)
{
    int rc = token_file_ids(&data->tokens, start, n, data->vocab, (uint32_t *)ids, e);
    if (rc < 0)
        return rc;
    memcpy(targets, ids + 1, (n - 1) * sizeof *targets);
    return token_file_ids(&data->tokens, start + n, 1, data->vocab, (uint32_t *)targets + n - 1, e);
}

/* Reads document starts one after the other. */
typedef struct starts { uint64_t document, ahead[64]; size_t n, at; } starts;

/* *start = the start of the next document; UINT64_MAX: none. */
static int next_start(const dataset *data, starts *s, uint64_t *start, pt_error *e)
{
    *start = UINT64_MAX;
    if (s->at == s->n) {
        const uint64_t left = data->tokens.documents - s->document;
        s->at = 0;
        s->n = left < 64 ? (size_t)left : 64;
        int rc = s->n ? token_file_starts(&data->tokens, s->document, s->n, s->ahead, e) : 0;
        if (rc < 0)
            return rc;
        s->document += s->n;
    }
    if (s->n)
        *start = s->ahead[s->at++];
    return 0;
}

/* Separates the documents of a window of n inputs from id `start` on: sets `first`, and removes the targets at the ends of documents. */
static int part_documents(const dataset *data, uint64_t start, size_t n, const int32_t *ids, int32_t *targets, int32_t *first, pt_error *e)
{
    starts s = {0};
    uint64_t unused, begin = 0;
    int32_t current = 0;
    int rc = token_file_document(&data->tokens, start, &s.document, &unused, e);
    s.document++;
    if (rc == 0)
        rc = next_start(data, &s, &begin, e);
    for (size_t t = 0; t < n && rc == 0; t++) {
        bool ends = ids[t] == data->eos;
        for (; rc == 0 && begin <= start + t + 1; rc = next_start(data, &s, &begin, e))
            ends = true;
        first[t] = current;
        if (ends) {
            targets[t] = TARGET_NONE;
            current = (int32_t)t + 1;
        }
    }
    return rc;
}

/* Reads n inputs from id `start` on, with targets and document starts; pads the rest of the row. */
static int read_stream(const dataset *data, uint64_t start, size_t n, const dataset_row *row, dataset_counts *counts, pt_error *e)
{
    int rc = read_window(data, start, n, row->ids, row->targets, e);
    if (rc == 0 && data->documents)
        rc = part_documents(data, start, n, row->ids, row->targets, row->first, e);
    else if (row->first)
        memset(row->first, 0, (size_t)data->seq_len * sizeof *row->first);
    for (size_t t = n; t < (size_t)data->seq_len && rc == 0; t++) {
        row->ids[t] = 0;
        row->targets[t] = TARGET_PADDING;
        if (data->documents)
            row->first[t] = (int32_t)n;
    }
    for (size_t t = 0; t < n && rc == 0 && counts; t++) {
        counts->tokens += row->targets[t] >= 0;
        counts->learned += row->targets[t] >= 0;
    }
    return rc;
}

/* ---- of examples ---- */

static bool is_learned(const dataset *data, int32_t id) { return !data->tokens.ids.marked || (uint32_t)id & ID_LEARNED; }

/* Puts an example into the row from place `at` on. one, other: the weights of learned targets, and of the others; `other` 0: the
 * others are no targets. Adds the learned targets to *learns. */
static int put_example(const dataset *data, const packed_example *x, int64_t at, float one, float other, const dataset_row *row,
                       int64_t *learns, pt_error *e)
{
    int32_t *ids = row->ids + at, *targets = row->targets + at;
    int rc = read_window(data, x->start, x->places, ids, targets, e);
    if (data->scored)
        targets[x->places - 1] = (int32_t)(x->label | ID_LEARNED);
    for (uint32_t t = 0; t < x->places && rc == 0; t++) {
        const bool marked = is_learned(data, targets[t]);
        const bool learned = marked && !(data->unlabelled && (int64_t)((uint32_t)targets[t] & ~ID_LEARNED) == data->unlabelled);
        *learns += learned;
        ids[t] = (int32_t)((uint32_t)ids[t] & ~ID_LEARNED);
        targets[t] = learned || other != 0 ? (int32_t)((uint32_t)targets[t] & ~ID_LEARNED) : TARGET_NONE;
        if (row->first)
            row->first[at + t] = (int32_t)at;
        if (row->weights)
            row->weights[at + t] = learned ? one : other;
    }
    return rc;
}

/* One of a pair: 0 the chosen example, 1 the rejected one. */
static packed_example half_of(const packed_example *x, int of)
{
    return of ? (packed_example){.start = x->start + x->rejected, .places = x->places - x->chosen, .learned = x->learned, .label = x->label}
              : (packed_example){.start = x->start, .places = x->chosen, .learned = x->learned, .label = x->label};
}

/* Puts an example, or both of a pair. *n: as dataset_counts.examples; learns: the learned targets of both. */
static int put_packed(const dataset *data, const packed_example *x, int64_t at, const dataset_row *row, int64_t *n, int64_t learns[2],
                      pt_error *e)
{
    const float each = 1.0F / (float)x->learned, chosen_weight = data->margins ? x->margin : data->prompts ? 1 : each;
    *n = 1;
    if (!x->chosen)
        return put_example(data, x, at, each, 0, row, learns, e);
    const packed_example chosen = half_of(x, 0), rejected = half_of(x, 1);
    int rc = put_example(data, &chosen, at, chosen_weight, data->prompts ? -1 : 0, row, &learns[0], e);
    if (rc == 0)
        rc = put_example(data, &rejected, at + x->chosen, data->prompts || data->margins ? 0 : each, 0, row, &learns[1], e);
    if (data->labels)
        *n = (learns[0] > 0) + (learns[1] > 0);
    return rc;
}

static void pad(const dataset_row *row, int64_t from, int64_t to)
{
    for (int64_t t = from; t < to; t++) {
        row->ids[t] = 0;
        row->targets[t] = TARGET_PADDING;
        if (row->first)
            row->first[t] = (int32_t)from;
        if (row->weights)
            row->weights[t] = 0;
    }
}

static int read_packed(const dataset *data, uint64_t w, const dataset_row *row, dataset_counts *counts, pt_error *e)
{
    packed_example some[32];
    uint64_t first, n;
    int64_t at = 0;
    int rc = packing_window(&data->packing, w, &first, &n, e);
    for (uint64_t done = 0; done < n && rc == 0;) {
        const size_t now = n - done < 32 ? (size_t)(n - done) : 32;
        rc = packing_examples(&data->packing, first + done, now, some, e);
        for (size_t i = 0; i < now && rc == 0; at += some[i++].places) {
            int64_t replies, learns[2] = {0, 0};
            rc = put_packed(data, &some[i], at, row, &replies, learns, e);
            if (counts) {
                counts->examples += replies;
                counts->learned += learns[0] + learns[1];
                counts->chosen += some[i].chosen;
            }
        }
        done += now;
    }
    pad(row, at, data->seq_len);
    if (counts) {
        counts->tokens += at;
    }
    return rc;
}

/* ---- scored ---- */

uint64_t dataset_records(const dataset *data) { return data->pairs ? data->tokens.documents / 2 : data->tokens.documents; }
bool dataset_pairs(const dataset *data) { return data->pairs; }

int dataset_scored(const dataset *data, uint64_t w, int (*each)(void *, const scored_example *, pt_error *), void *arg, pt_error *e)
{
    packed_example x;
    uint64_t first, n;
    int64_t at = 0;
    int rc = packing_window(&data->packing, w, &first, &n, e);
    for (uint64_t i = 0; i < n && rc == 0; i++) {
        rc = packing_examples(&data->packing, first + i, 1, &x, e);
        if (rc < 0)
            return rc;
        const int64_t chosen = x.chosen ? x.chosen : x.places;
        rc = each(arg, &(scored_example){x.number, {at + chosen - 1, at + x.places - 1}}, e);
        at += x.places;
    }
    return rc;
}

/* ---- mismatched ---- */

/* A prompt with its reply: so many ids from `start` on, the first `prompt` of them the prompt. */
typedef struct prompt_reply { uint64_t start; uint32_t ids, prompt; } prompt_reply;

/* *prompt: the ids before the first learned one of an example; 0: it has none. */
static int find_reply(const dataset *data, const packed_example *x, uint32_t *prompt, pt_error *e)
{
    uint32_t ids[256];
    int rc = 0;
    *prompt = 0;
    for (uint32_t at = 1; at <= x->places && !*prompt && rc == 0;) {
        const uint32_t left = x->places + 1 - at, n = left < 256 ? left : 256;
        rc = token_file_ids(&data->tokens, x->start + at, n, data->vocab, ids, e);
        for (uint32_t i = 0; i < n && !*prompt && rc == 0; i++)
            *prompt = ids[i] & ID_LEARNED ? at + i : 0;
        at += n;
    }
    return rc;
}

typedef struct mismatching {
    const dataset *d;
    const dataset_row *row;
    int64_t at;
    prompt_reply before;  /* the reply that the next prompt gets */
    int64_t replies;
} mismatching;

/* Puts the prompt of x with the reply before it, as far as there is room. */
static int put_mismatched(mismatching *m, const prompt_reply *x, pt_error *e)
{
    const int64_t room = m->d->seq_len - m->at, all = (int64_t)x->prompt + m->before.ids - m->before.prompt - 1;
    const int64_t n = all < room ? all : room;
    const int64_t prompt = x->prompt < n ? x->prompt : n, reply = n - x->prompt + 1 > 0 ? n - x->prompt + 1 : 0;
    int32_t *ids = m->row->ids + m->at, *targets = m->row->targets + m->at, *learned = targets + x->prompt - 1;
    int rc = n ? token_file_ids(&m->d->tokens, x->start, (size_t)prompt, m->d->vocab, (uint32_t *)ids, e) : 0;
    if (rc == 0 && reply)
        rc = token_file_ids(&m->d->tokens, m->before.start + m->before.prompt, (size_t)reply, m->d->vocab, (uint32_t *)learned, e);
    for (int64_t t = 0; t < n && rc == 0; t++) {
        targets[t] = t < x->prompt - 1 ? TARGET_NONE : (int32_t)((uint32_t)targets[t] & ~ID_LEARNED);
        ids[t] = t < x->prompt ? (int32_t)((uint32_t)ids[t] & ~ID_LEARNED) : targets[t - 1];
        if (m->row->first)
            m->row->first[m->at + t] = (int32_t)m->at;
        if (m->row->weights)
            m->row->weights[m->at + t] = 0;
    }
    m->at += n;
    return rc;
}

/* Visits the replies of window w in order: puts each, or without a row only remembers it. */
static int visit_replies(mismatching *m, uint64_t w, pt_error *e)
{
    packed_example x;
    uint64_t first, n;
    int rc = packing_window(&m->d->packing, w, &first, &n, e);
    m->replies = 0;
    for (uint64_t i = 0; i < 2 * n && rc == 0; i++) {
        rc = i % 2 ? 0 : packing_examples(&m->d->packing, first + i / 2, 1, &x, e);
        const packed_example half = half_of(&x, (int)(i % 2));
        prompt_reply now = {.start = half.start, .ids = half.places + 1};
        if (rc == 0)
            rc = find_reply(m->d, &half, &now.prompt, e);
        if (rc < 0 || !now.prompt)
            continue;
        rc = m->row ? put_mismatched(m, &now, e) : 0;
        m->before = now;
        m->replies++;
    }
    return rc;
}

static int read_mismatched(const dataset *data, uint64_t w, const dataset_row *row, dataset_counts *counts, pt_error *e)
{
    const uint64_t group = data->mismatched > 1 ? (uint64_t)data->mismatched : 2, base = w / group * group,
                   left = data->packing.windows - base;
    const uint64_t n = left < group ? left : group;
    mismatching m = {.d = data};
    int rc = visit_replies(&m, w, e);
    if (rc == 0 && m.replies == 1)
        rc = visit_replies(&m, base + (w - base + n - 1) % n, e);
    m.row = row;
    if (rc == 0)
        rc = visit_replies(&m, w, e);
    if (rc == 0)
        pad(row, m.at, data->seq_len);
    if (counts)
        counts->examples += m.replies;
    return rc;
}

/* ---- of both kinds ---- */

uint64_t dataset_windows(const dataset *data) { return data->packed ? data->packing.windows : share_count(&data->share); }
uint64_t dataset_all_windows(const dataset *data) { return dataset_windows(data) * (data->labels ? 2 : 1); }

/* Reads full window w of this share of the data. */
static int read_whole(const dataset *data, uint64_t w, const dataset_row *row, dataset_counts *counts, pt_error *e)
{
    if (data->packed)
        return read_packed(data, w, row, counts, e);
    return read_stream(data, share_item(&data->share, w) * (uint64_t)data->seq_len, (size_t)data->seq_len, row, counts, e);
}

uint64_t dataset_window_of(const dataset *data, uint64_t index, uint64_t per_epoch)
{
    const uint64_t epoch = index / per_epoch, w = index % per_epoch, windows = dataset_windows(data);
    if (w >= windows)
        return NO_WINDOW;
    return data->shuffle ? permute(data->seed, epoch, w, windows) : w;
}

int dataset_sample(dataset *data, uint64_t index, uint64_t per_epoch, const dataset_row *row, dataset_counts *counts, pt_error *e)
{
    if (per_epoch == 0)
        return pt_fail(e, PT_USAGE, "an epoch has no samples");
    const uint64_t w = dataset_window_of(data, index, per_epoch);
    if (w != NO_WINDOW)
        return read_whole(data, w, row, counts, e);
    pad(row, 0, data->seq_len);
    return 0;
}

uint64_t dataset_eval_windows(const dataset *data)
{
    uint64_t T = (uint64_t)data->seq_len;
    return data->packed || data->share.part != SHARE_ALL ? dataset_windows(data) : (dataset_tokens(data) - 1 + T - 1) / T;
}

int dataset_eval_window(dataset *data, uint64_t w, const dataset_row *row, dataset_counts *counts, pt_error *e)
{
    uint64_t T = (uint64_t)data->seq_len, start = w * T;
    if (w == NO_WINDOW) {
        pad(row, 0, data->seq_len);
        return 0;
    }
    if (data->labels && w >= dataset_windows(data) && w < dataset_all_windows(data))
        return read_mismatched(data, w - dataset_windows(data), row, counts, e);
    if (w >= dataset_eval_windows(data))
        return pt_fail(e, PT_USAGE, "window %" PRIu64 " of %" PRIu64 " does not exist", w, dataset_eval_windows(data));
    if (w < dataset_windows(data))
        return read_whole(data, w, row, counts, e);
    return read_stream(data, start, (size_t)(dataset_tokens(data) - 1 - start), row, counts, e);
}
