#include "train/preferences.h"

#include "comm/comm.h"
#include "data/hash.h"
#include "device/preference.h"
#include "train/options.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define REFERENCE_MAGIC "ptref\0\0\1"

typedef struct reference_header {
    char magic[8];
    uint64_t windows, seq_len;
    char data[40];  /* the fingerprint of the ids */
} reference_header;
_Static_assert(sizeof(reference_header) == 64, "losses begin there");

static reference_header header_of(const job *j)
{
    reference_header h = {.windows = dataset_windows(j->data), .seq_len = (uint64_t)j->shape.seq_len};
    memcpy(h.magic, REFERENCE_MAGIC, sizeof h.magic);
    snprintf(h.data, sizeof h.data, "%s", dataset_fingerprint(j->data));
    return h;
}

/* ---- the file ---- */

int reference_open(reference *r, const char *out, const job *j, pt_error *e)
{
    const reference_header want = header_of(j);
    reference_header h;
    struct stat st;
    r->fd = -1;
    int failed = path_join(r->path, out, "reference.bin", e);
    if (failed)
        return failed;
    r->fd = file_open_regular(r->path, &st, e);
    if (r->fd < 0)
        return pt_error_prefix(e, "the losses of the model before training, without which pairs cannot be compared: start the run anew");
    const uint64_t bytes = sizeof h + want.windows * want.seq_len * sizeof(float);
    if ((uint64_t)st.st_size != bytes)
        return pt_fail(e, PT_FAILED, "%s has %llu bytes and not %llu: it is cut, or of other data; start the run anew", r->path,
                       (unsigned long long)st.st_size, (unsigned long long)bytes);
    failed = fd_pread_all(r->fd, &h, sizeof h, 0, r->path, e);
    if (!failed && memcmp(&h, &want, sizeof h))
        return pt_fail(e, PT_FAILED, "%s is of other data: start the run anew", r->path);
    return failed;
}

int reference_read(const reference *r, uint64_t window, int64_t seq_len, float *losses, pt_error *e)
{
    const size_t n = (size_t)seq_len * sizeof *losses;
    return fd_pread_all(r->fd, losses, n, sizeof(reference_header) + window * n, r->path, e);
}

void reference_close(reference *r)
{
    if (r->fd >= 0)
        close(r->fd);
    r->fd = -1;
}

/* ---- making it ---- */

/* The rank's part of windows from `from` on; what is left of the batch computes some again. */
static int load_windows(const job *j, executor *x, uint64_t from, uint64_t n, pt_error *e)
{
    const step_shape *s = executor_input_of(x)->shape;
    const executor_batch b = executor_input(x);
    for (int64_t i = 0; i < s->batch; i++) {
        const int64_t at = i * s->seq_len;
        const dataset_row row = {b.ids + at, b.targets + at, b.first + at, NULL};
        int failed = dataset_eval_window(j->data, from + (uint64_t)(s->rank * s->batch + i) % n, &row, NULL, e);
        if (failed)
            return failed;
    }
    executor_place(x);
    return 0;
}

int reference_make(const char *out, const job *j, executor *x, bool writes, pt_error *e)
{
    const step_shape *s = &j->shape;
    const reference_header h = header_of(j);
    const size_t row = (size_t)s->seq_len * sizeof(float);
    char path[FILE_PATH_BYTES];
    file_stage stage;
    int failed = path_join(path, out, "reference.bin", e);
    if (!failed && writes)
        failed = file_stage_begin(&stage, path, e);
    if (failed)
        return failed;
    failed = writes ? file_stage_write(&stage, &h, sizeof h, e) : 0;
    for (uint64_t w = 0; w < h.windows && !failed; w += (uint64_t)s->batch) {
        const uint64_t left = h.windows - w, n = left < (uint64_t)s->batch ? left : (uint64_t)s->batch;
        options_progress(&j->o, "comparing with the model before training", w, h.windows);
        failed = load_windows(j, x, w, n, e);
        if (!failed)
            failed = executor_run(x, SCHEDULE_EVAL, 0, NULL, e);
        if (!failed && writes)
            failed = file_stage_write(&stage, executor_losses(x), n * row, e);
    }
    options_progress(&j->o, "comparing with the model before training", h.windows, h.windows);
    if (!writes)
        return failed;
    if (!failed)
        failed = file_stage_commit(&stage, e);
    file_stage_abort(&stage);
    return failed;
}

/* ---- pairs ---- */

static void add_pair(preference_sum *sum, const preference_pairs *p)
{
    const double margin = p->beta * (p->example[0].sum - p->example[1].sum); /* of rewards, which IPO does not divide */
    sum->loss += preference_loss(p->kind, p->beta, preference_margin(p));
    sum->margin += margin;
    sum->right += margin > 0;
    sum->pairs++;
}

static void add_sequence(preference_sum *sum, const step_shape *s, const int32_t *first, const int32_t *targets, const float *loss,
                         const float *before)
{
    preference_pairs p = preference_begin(s->ipo ? PREFERENCE_IPO : PREFERENCE_SIGMOID, s->beta, NULL);
    for (int64_t r = 0; r < s->seq_len; r++) {
        const bool begins = first[r] == r;
        if (preference_is_whole(&p, begins)) {
            add_pair(sum, &p);
            preference_close(&p);
        }
        preference_row(&p, r, begins, targets[r] >= 0, loss[r], before[r]);
    }
    if (preference_is_whole(&p, true))
        add_pair(sum, &p);
}

/* What the sums are made of, of all sequences of a step: (ranks, batch, seq_len) each. */
typedef struct whole_step { int32_t *first, *targets; float *before; } whole_step;

static int gather_step(executor *x, whole_step *w, pt_error *e)
{
    const step_shape *s = executor_input_of(x)->shape;
    const executor_batch b = executor_input(x);
    const size_t n = (size_t)(s->batch * s->seq_len), all = n * (size_t)shape_ranks(s);
    comm *c = executor_comm(x);
    *w = (whole_step){malloc(3 * all * sizeof(float)), NULL, NULL};
    if (!w->first)
        return pt_fail(e, PT_FAILED, "out of memory");
    w->targets = w->first + all;
    w->before = (float *)(w->targets + all);
    int failed = comm_all_gather(c, b.first, n * sizeof *b.first, w->first, e);
    if (!failed)
        failed = comm_all_gather(c, b.targets, n * sizeof *b.targets, w->targets, e);
    return failed ? failed : comm_all_gather(c, b.weights, n * sizeof *b.weights, w->before, e);
}

int preferences_sum(executor *x, preference_sum *sum, pt_error *e)
{
    const step_shape *s = executor_input_of(x)->shape;
    const executor_batch b = executor_input(x);
    const bool several = executor_comm(x);
    whole_step w = {b.first, b.targets, b.weights};
    int failed = several ? gather_step(x, &w, e) : 0;
    *sum = (preference_sum){0};
    for (int64_t i = 0; i < s->batch * shape_ranks(s) && !failed; i++) {
        const int64_t at = i * s->seq_len;
        add_sequence(sum, s, w.first + at, w.targets + at, executor_losses(x) + at, w.before + at);
    }
    if (several)
        free(w.first);
    return failed;
}
