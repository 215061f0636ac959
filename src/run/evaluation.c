#include "run/evaluation.h"

#include "base/target.h"
#include "comm/comm.h"

#include <math.h>
#include <string.h>

/* The windows from `window` on; those after the last have no targets. */
static int load_batch(executor *exec, dataset *data, uint64_t window, dataset_counts *counts, pt_error *e)
{
    const step_shape *shape = executor_input_of(exec)->shape;
    executor_batch b = executor_input(exec);
    for (int64_t i = 0; i < shape->batch; i++) {
        const dataset_row row = {b.ids + i * shape->seq_len, b.targets + i * shape->seq_len, b.first + i * shape->seq_len, NULL};
        uint64_t w = window + (uint64_t)i;
        if (w < dataset_eval_windows(data)) {
            int failed = dataset_eval_window(data, w, &row, counts, e);
            if (failed)
                return failed;
        } else {
            memset(row.ids, 0, (size_t)shape->seq_len * sizeof *row.ids);
            for (int64_t k = 0; k < shape->seq_len; k++)
                row.targets[k] = TARGET_PADDING;
        }
    }
    if (shape->documents)
        executor_place(exec);
    return 0;
}

int evaluation_add_ranks(const executor *exec, int64_t *tokens, pt_error *e)
{
    comm *c = executor_comm(exec);
    int64_t all[COMM_RANKS_MOST];
    if (!c)
        return 0;
    int failed = comm_all_gather(c, tokens, sizeof *tokens, all, e);
    *tokens = 0;
    for (int r = 0; r < c->ranks && !failed; r++)
        *tokens += all[r];
    return failed;
}

int evaluation_run(executor *exec, dataset *data, const evaluation_pass *pass, evaluation_sum *out, pt_error *e)
{
    const step_shape *shape = executor_input_of(exec)->shape;
    const uint64_t batch = (uint64_t)(shape->batch * shape_ranks(shape)); /* windows of all ranks */
    uint64_t windows = dataset_eval_windows(data);
    dataset_counts counts = {0};
    *out = (evaluation_sum){.bad_window = -1};
    for (uint64_t w = 0; w < windows && out->bad_window < 0; w += batch) {
        if (!pass->progress(pass->arg, w, windows)) {
            out->stopped = true;
            return 0;
        }
        int failed = load_batch(exec, data, w + (uint64_t)(shape->rank * shape->batch), &counts, e);
        if (!failed)
            failed = executor_run(exec, SCHEDULE_EVAL, 0, NULL, e);
        if (!failed && pass->ran)
            failed = pass->ran(pass->arg, w, windows - w < batch ? windows - w : batch, e);
        if (failed)
            return failed;
        for (int64_t i = 0; i < (int64_t)batch * shape->seq_len; i++) {
            out->loss += (double)executor_losses(exec)[i];
            out->right += (int64_t)executor_right(exec)[i];
        }
        out->tokens = counts.tokens;
        out->learned = counts.learned;
        out->bad_window = isfinite(out->loss) ? -1 : (int64_t)w;
    }
    pass->progress(pass->arg, windows, windows);
    int failed = evaluation_add_ranks(exec, &out->tokens, e);
    return failed ? failed : evaluation_add_ranks(exec, &out->learned, e);
}
