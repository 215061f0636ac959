/* windows.c - a dataset's windows: from the stream of ids, or of examples. */
#include "data/dataset_parts.h"
#include "data/permute.h"

#include <inttypes.h>
#include <string.h>

enum { NO_TARGET = -100 };

/* ---- of a stream ---- */

/* Reads n inputs from id `start` on, and their targets. */
static int read_window(const dataset *d, uint64_t start, size_t n, int32_t *ids, int32_t *targets, pt_error *e)
{
    int rc = token_file_ids(&d->tokens, start, n, d->vocab, (uint32_t *)ids, e);
    if (rc < 0)
        return rc;
    memcpy(targets, ids + 1, (n - 1) * sizeof *targets);
    return token_file_ids(&d->tokens, start + n, 1, d->vocab, (uint32_t *)targets + n - 1, e);
}

/* Reads document starts one after the other. */
typedef struct starts { uint64_t document, ahead[64]; size_t n, at; } starts;

/* *start = the start of the next document; UINT64_MAX: none. */
static int next_start(const dataset *d, starts *s, uint64_t *start, pt_error *e)
{
    *start = UINT64_MAX;
    if (s->at == s->n) {
        const uint64_t left = d->tokens.documents - s->document;
        s->at = 0;
        s->n = left < 64 ? (size_t)left : 64;
        int rc = s->n ? token_file_starts(&d->tokens, s->document, s->n, s->ahead, e) : 0;
        if (rc < 0)
            return rc;
        s->document += s->n;
    }
    if (s->n)
        *start = s->ahead[s->at++];
    return 0;
}

/* Separates the documents of a window of n inputs from id `start` on: sets `first`, and removes the targets at the ends of documents. */
static int part_documents(const dataset *d, uint64_t start, size_t n, const int32_t *ids, int32_t *targets, int32_t *first, pt_error *e)
{
    starts s = {0};
    uint64_t unused, begin = 0;
    int32_t current = 0;
    int rc = token_file_document(&d->tokens, start, &s.document, &unused, e);
    s.document++;
    if (rc == 0)
        rc = next_start(d, &s, &begin, e);
    for (size_t t = 0; t < n && rc == 0; t++) {
        bool ends = ids[t] == d->eos;
        for (; rc == 0 && begin <= start + t + 1; rc = next_start(d, &s, &begin, e))
            ends = true;
        first[t] = current;
        if (ends) {
            targets[t] = -100;
            current = (int32_t)t + 1;
        }
    }
    return rc;
}

/* Reads n inputs from id `start` on, with targets and document starts; pads the rest of the row. */
static int read_stream(const dataset *d, uint64_t start, size_t n, const dataset_row *row, dataset_counts *counts, pt_error *e)
{
    int rc = read_window(d, start, n, row->ids, row->targets, e);
    if (rc == 0 && d->documents)
        rc = part_documents(d, start, n, row->ids, row->targets, row->first, e);
    else if (row->first)
        memset(row->first, 0, (size_t)d->seq_len * sizeof *row->first);
    for (size_t t = n; t < (size_t)d->seq_len && rc == 0; t++) {
        row->ids[t] = 0;
        row->targets[t] = NO_TARGET;
        if (d->documents)
            row->first[t] = (int32_t)n;
    }
    for (size_t t = 0; t < n && rc == 0 && counts; t++) {
        counts->tokens += row->targets[t] >= 0;
        counts->learned += row->targets[t] >= 0;
    }
    return rc;
}

/* ---- of examples ---- */

static bool is_learned(const dataset *d, int32_t id) { return !d->tokens.ids.marked || (uint32_t)id & ID_LEARNED; }

/* Puts an example into the row from place `at` on. one, other: the weights of learned targets, and of the others; `other` 0: the
 * others are no targets. */
static int put_example(const dataset *d, const packed_example *x, int64_t at, float one, float other, const dataset_row *row, pt_error *e)
{
    int32_t *ids = row->ids + at, *targets = row->targets + at;
    int rc = read_window(d, x->start, x->places, ids, targets, e);
    for (uint32_t t = 0; t < x->places && rc == 0; t++) {
        const bool learned = is_learned(d, targets[t]);
        ids[t] = (int32_t)((uint32_t)ids[t] & ~ID_LEARNED);
        targets[t] = learned || other != 0 ? (int32_t)((uint32_t)targets[t] & ~ID_LEARNED) : NO_TARGET;
        if (row->first)
            row->first[at + t] = (int32_t)at;
        if (row->weights)
            row->weights[at + t] = learned ? one : other;
    }
    return rc;
}

/* Puts an example, or both of a pair. */
static int put_packed(const dataset *d, const packed_example *x, int64_t at, const dataset_row *row, pt_error *e)
{
    const float each = 1.0F / (float)x->learned;
    if (!x->chosen)
        return put_example(d, x, at, each, 0, row, e);
    const packed_example chosen = {.start = x->start, .places = x->chosen, .learned = x->learned};
    const packed_example rejected = {.start = x->start + x->rejected, .places = x->places - x->chosen, .learned = x->learned};
    int rc = put_example(d, &chosen, at, d->prompts ? 1 : each, d->prompts ? -1 : 0, row, e);
    return rc < 0 ? rc : put_example(d, &rejected, at + x->chosen, d->prompts ? 0 : each, 0, row, e);
}

static void pad(const dataset_row *row, int64_t from, int64_t to)
{
    for (int64_t t = from; t < to; t++) {
        row->ids[t] = 0;
        row->targets[t] = NO_TARGET;
        if (row->first)
            row->first[t] = (int32_t)from;
        if (row->weights)
            row->weights[t] = 0;
    }
}

static int read_packed(const dataset *d, uint64_t w, const dataset_row *row, dataset_counts *counts, pt_error *e)
{
    packed_example some[32];
    uint64_t first, n;
    int64_t at = 0;
    int rc = packing_window(&d->packing, w, &first, &n, e);
    for (uint64_t done = 0; done < n && rc == 0;) {
        const size_t now = n - done < 32 ? (size_t)(n - done) : 32;
        rc = packing_examples(&d->packing, first + done, now, some, e);
        for (size_t i = 0; i < now && rc == 0; at += some[i++].places) {
            rc = put_packed(d, &some[i], at, row, e);
            if (counts) {
                counts->learned += some[i].learned;
                counts->chosen += some[i].chosen;
            }
        }
        done += now;
    }
    pad(row, at, d->seq_len);
    if (counts) {
        counts->tokens += at;
        counts->examples += (int64_t)n;
    }
    return rc;
}

/* ---- of both kinds ---- */

uint64_t dataset_windows(const dataset *d) { return d->packed ? d->packing.windows : share_count(&d->share); }

/* Reads full window w of this share of the data. */
static int read_whole(const dataset *d, uint64_t w, const dataset_row *row, dataset_counts *counts, pt_error *e)
{
    if (d->packed)
        return read_packed(d, w, row, counts, e);
    return read_stream(d, share_item(&d->share, w) * (uint64_t)d->seq_len, (size_t)d->seq_len, row, counts, e);
}

uint64_t dataset_window_of(const dataset *d, uint64_t index, uint64_t per_epoch)
{
    const uint64_t epoch = index / per_epoch, w = index % per_epoch, windows = dataset_windows(d);
    if (w >= windows)
        return NO_WINDOW;
    return d->shuffle ? permute(d->seed, epoch, w, windows) : w;
}

int dataset_sample(dataset *d, uint64_t index, uint64_t per_epoch, const dataset_row *row, dataset_counts *counts, pt_error *e)
{
    if (per_epoch == 0)
        return pt_fail(e, PT_USAGE, "an epoch has no samples");
    const uint64_t w = dataset_window_of(d, index, per_epoch);
    if (w != NO_WINDOW)
        return read_whole(d, w, row, counts, e);
    pad(row, 0, d->seq_len);
    return 0;
}

uint64_t dataset_eval_windows(const dataset *d)
{
    uint64_t T = (uint64_t)d->seq_len;
    return d->packed || d->share.part != SHARE_ALL ? dataset_windows(d) : (dataset_tokens(d) - 1 + T - 1) / T;
}

int dataset_eval_window(dataset *d, uint64_t w, const dataset_row *row, dataset_counts *counts, pt_error *e)
{
    uint64_t T = (uint64_t)d->seq_len, start = w * T;
    if (w >= dataset_eval_windows(d))
        return pt_fail(e, PT_USAGE, "window %" PRIu64 " of %" PRIu64 " does not exist", w, dataset_eval_windows(d));
    if (w < dataset_windows(d))
        return read_whole(d, w, row, counts, e);
    return read_stream(d, start, (size_t)(dataset_tokens(d) - 1 - start), row, counts, e);
}
