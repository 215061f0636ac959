/* rows.h - defers ops on the rows of a unit, to run them together.
 *
 * Between two OP_ROWS a queue defers ops that can be divided by rows. It runs them all before the next op that cannot, or before a signal:
 * a thread takes a slice of rows through all of these ops, in its caches, then the next slice. So threads synchronize once, not after each
 * op, and do not read what another one wrote.
 *
 * Matmuls that sum over the rows (TN) are deferred, too. A sum is divided at multiples of SLICE_ROWS: each slice makes a partial sum, and
 * the partial sums are added in order. So its bits depend neither on the number of threads nor on when the ops are run. If there are more
 * threads than slices, the other ops are divided further, and each sum is run by itself, in parts of its rows of c.
 */
#ifndef PT_CPU_ROWS_H
#define PT_CPU_ROWS_H

#include "device/cpu/pool.h"
#include "device/device.h"

enum { ROW_OPS = 256, SLICE_ROWS = 128 };

typedef struct row_ops {
    int64_t rows;      /* of each op; in sums also twice as many: (rows) of one factor, then (rows) of the other */
    bool open;         /* between two OP_ROWS */
    int n;
    int64_t sum_values; /* of the collected sums' results */
    op ops[ROW_OPS];
} row_ops;

/* True: the op is deferred; earlier ones may have been run. False: call rows_run(), then run the op. */
bool rows_keep(row_ops *r, pool *pool, const op *o);
void rows_run(row_ops *r, pool *pool);

#endif
