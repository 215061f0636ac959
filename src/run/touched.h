/* touched.h - the rows of the embedding's tables that each rank's tokens touch in a step.
 *
 * A rank's sums for a table are zero except in these rows, often a few percent of it. Ranks on CPUs send only these rows, and zero the
 * others where the whole shard would arrive, so that the schedule, its memory and the bits are those of whole shards. GPUs send whole
 * shards, because thousands of small moves would take longer.
 */
#ifndef PT_TOUCHED_H
#define PT_TOUCHED_H

#include "model/shape.h"

struct comm;

typedef struct touched_rows {
    uint64_t *bits; /* (ranks, words); NULL: whole shards are sent */
    int64_t vocab, words;
} touched_rows;

/* Stays empty if whole shards are sent: with one rank, on GPUs, or where the tables are frozen. */
int touched_open(touched_rows *t, const model *m, const step_shape *shape, pt_error *e);
void touched_close(touched_rows *t);
/* Tells the other ranks of this rank's tokens, and learns of theirs. */
int touched_share(touched_rows *t, struct comm *c, const int32_t *ids, int64_t n, pt_error *e);
bool touched_has(const touched_rows *t, int rank, int64_t row);
/* The first run of touched rows in [row, end); false: there is none. */
bool touched_next(const touched_rows *t, int rank, int64_t row, int64_t end, int64_t *first, int64_t *rows);

#endif
