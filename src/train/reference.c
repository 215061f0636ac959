#include "train/reference.h"

#include "base/sum.h"
#include "comm/comm.h"
#include "train/options.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define REFERENCE_MAGIC "ptref\0\0\3"

typedef struct reference_header {
    char magic[8];
    uint64_t windows, seq_len, samples, model;
    char data[40]; /* fingerprint of the token ids */
    uint64_t sum;  /* of what stands before */
    char rest[8];
} reference_header;
_Static_assert(sizeof(reference_header) == 96, "losses begin there");

reference_want reference_of_training(const job *j)
{
    return (reference_want){j->data, (uint64_t)(j->steps * j->shape.batch), (uint64_t)j->epoch_samples};
}

reference_want reference_of_evaluation(const job *j)
{
    const uint64_t n = dataset_eval_windows(j->eval);
    return (reference_want){j->eval, n, n};
}

/* ---- which windows ---- */

typedef struct window_set { uint8_t *bits; uint64_t n, left; } window_set; /* `left`: number of windows not in the set */

static bool has(const window_set *s, uint64_t w) { return s->bits[w / 8] >> w % 8 & 1; }

static void add_window(window_set *s, uint64_t window)
{
    s->left -= !has(s, window);
    s->bits[window / 8] |= (uint8_t)(1u << window % 8);
}

/* Adds the windows of samples from .. to, until all are in it. */
static void add_samples(window_set *s, const reference_want *w, uint64_t from, uint64_t to)
{
    for (uint64_t i = from; i < to && s->left; i++) {
        const uint64_t window = dataset_window_of(w->data, i, w->per_epoch);
        if (window == NO_WINDOW)
            continue;
        add_window(s, window);
        if (dataset_all_windows(w->data) > dataset_windows(w->data))
            add_window(s, dataset_windows(w->data) + window); /* mismatched */
    }
}

static int make_set(window_set *s, const reference_want *w, uint64_t samples, pt_error *e)
{
    const uint64_t n = dataset_all_windows(w->data);
    *s = (window_set){calloc(1, (size_t)(n / 8 + 1)), n, n};
    if (!s->bits)
        return pt_fail(e, PT_FAILED, "out of memory for a set of %llu windows", (unsigned long long)n);
    add_samples(s, w, 0, samples);
    return 0;
}

/* ---- windows in the file ---- */

static uint64_t at_window(uint64_t window, uint64_t seq_len)
{
    return sizeof(reference_header) + window * (seq_len * sizeof(float) + sizeof(uint64_t));
}

static uint64_t sum_window(uint64_t model, uint64_t window, const float *losses, uint64_t seq_len)
{
    return sum_bytes(model, window + 1, losses, (size_t)seq_len * sizeof *losses);
}

static int write_window(const reference *r, uint64_t model, uint64_t window, const float *losses, uint64_t seq_len, pt_error *e)
{
    const uint64_t at = at_window(window, seq_len), bytes = seq_len * sizeof *losses, sum = sum_window(model, window, losses, seq_len);
    int failed = fd_pwrite_all(r->fd, losses, (size_t)bytes, at, r->path, e);
    return failed ? failed : fd_pwrite_all(r->fd, &sum, sizeof sum, at + bytes, r->path, e);
}

static int read_window(const reference *r, uint64_t window, float *losses, uint64_t seq_len, pt_error *e)
{
    const uint64_t at = at_window(window, seq_len), bytes = seq_len * sizeof *losses;
    uint64_t sum;
    int failed = fd_pread_all(r->fd, losses, (size_t)bytes, at, r->path, e);
    if (!failed)
        failed = fd_pread_all(r->fd, &sum, sizeof sum, at + bytes, r->path, e);
    if (!failed && sum != sum_window(r->model, window, losses, seq_len))
        failed = pt_fail(e, PT_FAILED,
                         "%s is damaged: the losses of window %llu are not those that were written; `resume` computes them again", r->path,
                         (unsigned long long)window);
    return failed;
}

/* ---- the file ---- */

static reference_header header_of(const reference *r, const reference_want *w, const job *j)
{
    reference_header h = {.windows = dataset_all_windows(w->data), .seq_len = (uint64_t)j->shape.seq_len, .samples = r->samples,
                          .model = r->model};
    memcpy(h.magic, REFERENCE_MAGIC, sizeof h.magic);
    snprintf(h.data, sizeof h.data, "%s", dataset_fingerprint(w->data));
    h.sum = sum_bytes(0, 0, &h, offsetof(reference_header, sum));
    return h;
}

static int write_header(const reference *r, const reference_want *w, const job *j, pt_error *e)
{
    const reference_header h = header_of(r, w, j);
    if (fdatasync(r->fd))
        return pt_fail_errno(e, PT_FAILED, "%s cannot be synced to the disk", r->path);
    int failed = fd_pwrite_all(r->fd, &h, sizeof h, 0, r->path, e);
    return failed || !fdatasync(r->fd) ? failed : pt_fail_errno(e, PT_FAILED, "%s cannot be synced to the disk", r->path);
}

static int begin(reference *r, const reference_want *w, const job *j, pt_error *e)
{
    const reference_header h = header_of(r, w, j);
    r->fd = open(r->path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (r->fd < 0)
        return pt_fail_errno(e, PT_FAILED, "%s cannot be written", r->path);
    if (ftruncate(r->fd, (off_t)at_window(h.windows, h.seq_len)))
        return pt_fail_errno(e, PT_FAILED, "%s cannot be made %llu bytes long", r->path,
                             (unsigned long long)at_window(h.windows, h.seq_len));
    return write_header(r, w, j, e);
}

static int check_windows(const reference *r, const reference_want *w, uint64_t seq_len, pt_error *e)
{
    window_set there;
    float *losses = malloc((size_t)seq_len * sizeof *losses);
    int failed = make_set(&there, w, r->samples, e);
    if (!failed && !losses)
        failed = pt_fail(e, PT_FAILED, "out of memory");
    for (uint64_t i = 0; i < there.n && !failed; i++)
        failed = has(&there, i) ? read_window(r, i, losses, seq_len, e) : 0;
    free(losses);
    free(there.bits);
    return failed;
}

/* What is there, unless it is of something else or damaged. */
static int look(reference *r, const reference_want *w, uint64_t model, const job *j, pt_error *e)
{
    struct stat st;
    reference_header h;
    r->fd = file_open_regular(r->path, &st, e);
    if (r->fd < 0)
        return PT_FAILED;
    close(r->fd);
    r->fd = open(r->path, O_RDWR | O_CLOEXEC);
    if (r->fd < 0)
        return pt_fail_errno(e, PT_FAILED, "%s cannot be opened for writing", r->path);
    reference_header now = header_of(r, w, j);
    if ((uint64_t)st.st_size != at_window(now.windows, now.seq_len))
        return pt_fail(e, PT_FAILED, "%s is cut, or of other data", r->path);
    int failed = fd_pread_all(r->fd, &h, sizeof h, 0, r->path, e);
    if (failed)
        return failed;
    r->samples = h.samples;
    r->model = h.model;
    now = header_of(r, w, j);
    if (memcmp(&h, &now, sizeof h) || (model && h.samples && h.model != model))
        return pt_fail(e, PT_FAILED, "%s is damaged, or of another run", r->path);
    return check_windows(r, w, now.seq_len, e);
}

int reference_open(reference *r, const char *out, const char *name, const reference_want *w, bool fresh, uint64_t model, const job *j,
                   pt_error *e)
{
    pt_error why;
    *r = (reference){.fd = -1};
    int failed = path_join(r->path, out, name, e);
    if (failed || (!fresh && !look(r, w, model, j, &why)))
        return failed;
    if (!fresh)
        options_notice(&j->o, "%.600s: the losses of the model before training are computed again", why.text);
    reference_close(r);
    r->samples = r->model = 0;
    return begin(r, w, j, e);
}

/* The losses of a rank's part of the windows; 0 for padding. */
static int read_part(const reference *r, const uint64_t *windows, uint64_t n, const step_shape *shape, int rank, float *losses, pt_error *e)
{
    const uint64_t T = (uint64_t)shape->seq_len;
    int failed = 0;
    for (int64_t i = 0; i < shape->batch && !failed; i++) {
        const uint64_t window = windows[(uint64_t)(rank * shape->batch + i) % n];
        if (window == NO_WINDOW)
            memset(losses + i * shape->seq_len, 0, T * sizeof *losses);
        else
            failed = read_window(r, window, losses + i * shape->seq_len, T, e);
    }
    return failed;
}

static int send_parts(const reference *r, const uint64_t *windows, uint64_t n, const step_shape *shape, comm *c, pt_error *e)
{
    const size_t bytes = (size_t)(shape->batch * shape->seq_len) * sizeof(float);
    float *part = malloc(bytes);
    int failed = part ? 0 : pt_fail(e, PT_FAILED, "out of memory");
    for (int rank = 1; rank < c->ranks && !failed; rank++) {
        const comm_move move = comm_send(rank, part, bytes);
        failed = read_part(r, windows, n, shape, rank, part, e);
        if (!failed)
            failed = comm_exchange(c, &move, 1, e);
    }
    free(part);
    return failed;
}

/* Where the example that begins at row `begin` of a sequence ends; *n: its targets. */
static int64_t example_end(const step_shape *shape, const int32_t *first, const int32_t *targets, int64_t begin, int64_t *n)
{
    int64_t r = begin;
    *n = 0;
    do
        *n += targets[r++] >= 0;
    while (r < shape->seq_len && first[r] != r);
    return r;
}

static void mark(const int32_t *targets, float *given, int64_t from, int64_t to, int64_t shared)
{
    for (int64_t r = from; r < to; r++)
        if (targets[r] >= 0 && --shared < 0)
            given[r] = -given[r];
}

/* Targets of a reply beyond the length of the other one get a minus sign (op_preference). */
static void mark_tails(const step_shape *shape, const executor_batch *b)
{
    for (int64_t i = 0; i < shape->batch; i++) {
        const int32_t *first = b->first + i * shape->seq_len, *targets = b->targets + i * shape->seq_len;
        for (int64_t chosen = 0, rejected, end, n[2]; chosen < shape->seq_len; chosen = end) {
            rejected = end = example_end(shape, first, targets, chosen, &n[0]);
            if (rejected == shape->seq_len)
                break;
            end = example_end(shape, first, targets, rejected, &n[1]);
            const int64_t shared = n[0] < n[1] ? n[0] : n[1];
            mark(targets, b->weights + i * shape->seq_len, chosen, rejected, shared);
            mark(targets, b->weights + i * shape->seq_len, rejected, end, shared);
        }
    }
}

int reference_fill(const reference *r, const uint64_t *windows, uint64_t n, executor *exec, pt_error *e)
{
    const step_shape *shape = executor_input_of(exec)->shape;
    const executor_batch b = executor_input(exec);
    comm *c = executor_comm(exec);
    int failed = 0;
    if (c && c->rank) {
        const comm_move move = comm_receive(0, b.weights, (size_t)(shape->batch * shape->seq_len) * sizeof *b.weights);
        failed = comm_exchange(c, &move, 1, e);
    } else {
        failed = c ? send_parts(r, windows, n, shape, c, e) : 0;
        failed = failed ? failed : read_part(r, windows, n, shape, 0, b.weights, e);
    }
    if (!failed && shape->compare.cut > 0)
        mark_tails(shape, &b);
    return failed;
}

void reference_close(reference *r)
{
    if (r->fd >= 0)
        close(r->fd);
    r->fd = -1;
}

/* ---- their losses ---- */

int reference_load(dataset *data, const uint64_t *windows, uint64_t n, executor *exec, dataset_counts *counts, pt_error *e)
{
    const step_shape *shape = executor_input_of(exec)->shape;
    const executor_batch b = executor_input(exec);
    for (int64_t i = 0; i < shape->batch; i++) {
        const int64_t at = i * shape->seq_len;
        const uint64_t of_step = (uint64_t)(shape->rank * shape->batch + i);
        const dataset_row row = {b.ids + at, b.targets + at, b.first + at, shape->weighted ? b.weights + at : NULL};
        int failed = dataset_eval_window(data, windows[of_step % n], &row, of_step < n ? counts : NULL, e);
        if (failed)
            return failed;
    }
    executor_place(exec);
    return 0;
}

typedef struct computing { const reference *r; const reference_want *w; const job *j; executor *x; uint64_t model; bool writes; } computing;

static int compute(const computing *c, const uint64_t *windows, uint64_t n, pt_error *e)
{
    const int64_t T = c->j->shape.seq_len;
    int failed = reference_load(c->w->data, windows, n, c->x, NULL, e);
    if (!failed)
        failed = executor_run(c->x, SCHEDULE_EVAL, 0, NULL, e);
    for (uint64_t i = 0; i < n && c->writes && !failed; i++)
        failed = write_window(c->r, c->model, windows[i], executor_losses(c->x) + (int64_t)i * T, (uint64_t)T, e);
    return failed;
}

/* Computes those in `all` that are not in `there`, as many at a time as a step has. */
static int compute_missing(const computing *c, const window_set *there, const window_set *all, pt_error *e)
{
    static const char stage[] = "comparing with the model before training";
    const uint64_t batch = (uint64_t)c->j->shape.batch, total = there->left - all->left;
    uint64_t *windows = malloc(batch * sizeof *windows), n = 0, done = 0;
    int failed = windows ? 0 : pt_fail(e, PT_FAILED, "out of memory");
    for (uint64_t i = 0; i < all->n && !failed; i++) {
        if (!has(all, i) || has(there, i))
            continue;
        windows[n++] = i;
        if (n < batch && done + n < total)
            continue;
        options_progress(&c->j->o, stage, done, total);
        failed = compute(c, windows, n, e);
        done += n;
        n = 0;
    }
    options_progress(&c->j->o, stage, total, total);
    free(windows);
    return failed;
}

int reference_complete(reference *r, const reference_want *w, uint64_t model, const job *j, executor *exec, bool writes, pt_error *e)
{
    window_set there = {0}, all = {0};
    int failed = make_set(&there, w, r->samples, e);
    if (!failed)
        failed = make_set(&all, w, w->samples, e);
    if (!failed)
        failed = compute_missing(&(computing){r, w, j, exec, model, writes}, &there, &all, e);
    free(there.bits);
    free(all.bits);
    if (failed)
        return failed;
    r->samples = w->samples;
    r->model = model;
    return writes ? write_header(r, w, j, e) : 0;
}
