/* rows.h - the order of a part's rows in memory and in a checkpoint, inside model/ only. */
#ifndef PT_ROWS_H
#define PT_ROWS_H

#include "model/model.h"

/* The shape of a part in a checkpoint; returns its number of dimensions. */
static inline int part_stored_shape(const param *p, int k, int64_t shape[3])
{
    const param_part *part = &p->part[k];
    const int64_t rows = part->stacked ? part->rows / part->stacked : part->rows;
    int n = 0;
    if (part->abreast) {
        shape[0] = part->rows / part->abreast, shape[1] = p->cols * part->abreast;
        return 2;
    }
    if (part->stacked)
        shape[n++] = part->stacked;
    shape[n++] = part->transposed ? p->cols : rows;
    if (part->middle)
        shape[n++] = 1;
    if (!part->vector)
        shape[n++] = part->transposed ? rows : p->cols;
    return n;
}

/* The stored rows of one head. */
static inline int64_t part_head_rows(const param_part *p)
{
    return p->segment[0] + p->segment[1] + p->segment[2] + p->segment[3];
}

/* For rows row .. of a part, at most n: how many of them are contiguous in the checkpoint, too, and where these begin there (*stored).
 *
 *   memory  q of all heads, k of all heads, v of all heads
 *   stored  if heads > 0: q, k and v of the first head, q, k and v of the second ... */
static inline int64_t part_run(const param_part *p, int64_t row, int64_t n, int64_t *stored)
{
    int64_t in = row, before = 0; /* rows in the segment; rows of a head before it */
    int which = 0;
    *stored = row;
    if (!p->heads)
        return n;
    for (; in >= p->heads * p->segment[which]; which++) {
        in -= p->heads * p->segment[which];
        before += p->segment[which];
    }
    const int64_t d = p->segment[which], left = d - in % d;
    *stored = in / d * part_head_rows(p) + before + in % d;
    return left < n ? left : n;
}

/* The reverse: stored rows to rows in memory. */
static inline int64_t part_stored_run(const param_part *p, int64_t stored, int64_t n, int64_t *row)
{
    const int64_t one = p->heads ? part_head_rows(p) : 1, head = stored / one;
    int64_t in = stored % one, before = 0; /* rows in the head's segment; rows of all segments before it */
    int which = 0;
    *row = stored;
    if (!p->heads)
        return n;
    for (; in >= p->segment[which]; which++) {
        in -= p->segment[which];
        before += p->heads * p->segment[which];
    }
    const int64_t left = p->segment[which] - in;
    *row = before + head * p->segment[which] + in;
    return left < n ? left : n;
}

#endif
