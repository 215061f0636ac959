#include "run/evaluation.h"

#include "base/target.h"
#include "comm/comm.h"
#include "run/sequences.h"

#include <math.h>
#include <string.h>

typedef struct window_source { dataset *data; uint64_t window; int64_t length; } window_source;

/* The windows from `window` on; those after the last have no targets. */
static int load_window(void *arg, uint64_t sequence, const dataset_row *row, dataset_counts *counts, pt_error *e)
{
    const window_source *from = arg;
    const uint64_t w = from->window + sequence;
    const dataset_row unweighted = {row->ids, row->targets, row->first, NULL};
    if (w < dataset_eval_windows(from->data))
        return dataset_eval_window(from->data, w, &unweighted, counts, e);
    memset(row->ids, 0, (size_t)from->length * sizeof *row->ids);
    for (int64_t k = 0; k < from->length; k++)
        row->targets[k] = TARGET_PADDING;
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
    const uint64_t batch = (uint64_t)shape_sequences(shape); /* windows of all ranks */
    uint64_t windows = dataset_eval_windows(data);
    dataset_counts counts = {0};
    *out = (evaluation_sum){.bad_window = -1};
    for (uint64_t w = 0; w < windows && out->bad_window < 0; w += batch) {
        if (!pass->progress(pass->arg, w, windows)) {
            out->stopped = true;
            return 0;
        }
        window_source from = {data, w, shape_length(shape)};
        int failed = sequences_load(exec, load_window, &from, &counts, e);
        if (!failed)
            failed = executor_run(exec, SCHEDULE_EVAL, 0, NULL, e);
        if (!failed && pass->ran)
            failed = pass->ran(pass->arg, w, windows - w < batch ? windows - w : batch, e);
        if (failed)
            return failed;
        for (int64_t i = 0; i < (int64_t)batch * shape_length(shape); i++) {
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
