/* listed_rows.h - the rows of a table that is looked up of which a step's gradient is a list: those of the tokens of all ranks, each once,
 * by ascending numbers. Updates that wait for the next step read the list of the step before.
 *
 * With several ranks, each has sums over its own tokens for all of the list, and sends every other rank those of the rows that it has in
 * its shards, which are neighbours in the list. On CPUs it leaves out the rows that its tokens do not touch (touched.h).
 */
#ifndef PT_LISTED_ROWS_H
#define PT_LISTED_ROWS_H

#include "schedule/schedule.h"

struct comm;

typedef struct row_list { int32_t *ids; int64_t n; } row_list;

typedef struct listed_rows {
    row_list of_step, before;
    int32_t *place;       /* of each row of the table in of_step */
    unsigned char *found; /* [row]: it is in of_step */
    int32_t *ids;         /* (ranks, tokens): of all ranks; NULL: there is one */
    int64_t vocab;
} listed_rows;

/* Entries of the list. */
typedef struct row_entries { int64_t first, n; } row_entries;

/* Stays empty where no gradient is a list of rows. */
int listed_rows_open(listed_rows *g, const model *m, const step_shape *shape, pt_error *e);
void listed_rows_close(listed_rows *g);
/* Begins a step: lists the rows of its tokens, of which this rank has n, and tells the other ranks of `c` (NULL: there is one) of them.
 * places (n) and numbers (ranks, n) are the planes of the batch for them. Does nothing if no gradient is a list of rows. */
int listed_rows_begin(listed_rows *g, struct comm *c, const int32_t *ids, int64_t n, int32_t *places, int32_t *numbers, pt_error *e);
/* The list that the updates of such a schedule read. */
const row_list *listed_rows_of(const listed_rows *g, schedule_kind kind);
/* Where a slice of the list from `first` on, of at most `most` rows, ends: rows that share a sum of squares are not divided. */
int64_t listed_rows_slice(const row_list *l, int64_t first, int64_t most);
/* The first entry whose number is at least `row`. */
int64_t listed_rows_from(const row_list *l, int64_t row);
/* Those of a rank's shard of a chunk. */
row_entries listed_rows_of_shard(const row_list *l, const packing *packing, const model *m, int chunk, int rank);

#endif
