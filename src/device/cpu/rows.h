/* rows.h - defers ops whose rows are independent, to run them together.
 *
 * Between two OP_ROWS a queue defers ops that can be divided by rows. It runs them all before the next op that cannot, or before a signal:
 * a thread takes a few rows through all of these ops, in its caches, then the next few. Threads synchronize once, not after each op, which
 * took a third of the time with rows of 64 values.
 */
#ifndef PT_CPU_ROWS_H
#define PT_CPU_ROWS_H

#include "device/cpu/pool.h"
#include "device/device.h"

enum { ROW_OPS = 128 };

typedef struct row_ops { int64_t rows; bool open; int n; op ops[ROW_OPS]; } row_ops;

/* True: the op is deferred; earlier ones may have been run. False: call rows_run(), then run the op. */
bool rows_keep(row_ops *r, pool *p, const op *o);
void rows_run(row_ops *r, pool *p);

#endif
