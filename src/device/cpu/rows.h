/* rows.h - ops whose rows do not know of each other, put off until they can be run together.
 *
 * Between two OP_ROWS a queue keeps what may be cut by rows. All of it is run when something comes that may not, or that tells others
 * how far the queue is: a thread takes a few rows through all of these ops, in its caches, and then the next few. Threads meet once, where
 * they would meet behind each op: with rows of 64 values that took a third of the time.
 */
#ifndef PT_CPU_ROWS_H
#define PT_CPU_ROWS_H

#include "device/cpu/pool.h"
#include "device/device.h"

enum { ROW_OPS = 128 };

typedef struct row_ops { int64_t rows; bool open; int n; op ops[ROW_OPS]; } row_ops;

/* Whether the op is kept; what was kept may have been run. Else rows_run() comes first, then the op. */
bool rows_keep(row_ops *r, pool *p, const op *o);
void rows_run(row_ops *r, pool *p);

#endif
