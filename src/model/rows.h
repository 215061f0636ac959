/* rows.h - the order of a part's rows in memory and in a checkpoint, inside model/ only. */
#ifndef PT_ROWS_H
#define PT_ROWS_H

#include "model/model.h"

/* For rows row .. of a part, at most n: how many of them are contiguous in the checkpoint, too, and where these begin there (*stored).
 *
 *   memory  q of all heads, k of all heads, v of all heads
 *   stored  if interleaved: q, k and v of the first head, q, k and v of the second ... */
static inline int64_t part_run(const param_part *p, int64_t row, int64_t n, int64_t *stored)
{
    const int64_t d = p->interleaved, third = p->rows / 3;
    *stored = row;
    if (!d)
        return n;
    const int64_t which = row / third, head = row % third / d, left = d - row % d;
    *stored = head * 3 * d + which * d + row % d;
    return left < n ? left : n;
}

/* The reverse: stored rows to rows in memory. */
static inline int64_t part_stored_run(const param_part *p, int64_t stored, int64_t n, int64_t *row)
{
    const int64_t d = p->interleaved, third = p->rows / 3;
    *row = stored;
    if (!d)
        return n;
    const int64_t head = stored / (3 * d), which = stored % (3 * d) / d, left = d - stored % d;
    *row = which * third + head * d + stored % d;
    return left < n ? left : n;
}

#endif
