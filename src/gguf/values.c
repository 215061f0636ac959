/* values.c - the values of the tensors: rows of the parameters, in their order there. */
#include "gguf/tensors.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PIECE_VALUES = 1 << 20 };

typedef struct copier {
    gguf_writer *w;
    const model *m;
    weights_getter get;
    void *get_arg;
    float *in, *out;     /* `room` values each */
    int64_t room;
    void (*done)(void *arg, uint64_t bytes);
    void *arg;
    uint64_t bytes;
    pt_error *e;
} copier;

/* Of an expert's matrix, or of a part of it. */
static int64_t experts_rows(const gguf_tensor *t)
{
    const int64_t each = t->rows / t->experts, most = PIECE_VALUES / t->cols;
    return each < most ? each : most > 1 ? most : 1;
}

static int64_t turned(const gguf_turn *t, int64_t i)
{
    if (!t->slow || i < t->first)
        return i;
    const int64_t block = t->slow * t->fast * t->run, at = (i - t->first) % (t->period ? t->period : block), run = at / t->run;
    if (at >= block)
        return i;
    return i - at + (run % t->slow * t->fast + run / t->slow) * t->run + at % t->run;
}

/* Where row r (or element) of the tensor is in the parameter. */
static int64_t of_param(const gguf_tensor *t, int64_t r)
{
    return t->row0 + (t->columns ? r : turned(&t->turn, r)) * t->stride + (t->experts ? r / (t->rows / t->experts) * t->skipped : 0);
}

/* Rows to read at once, which follow one another in the parameter; all of a matrix that is stored transposed. */
static int64_t rows_at_once(const model *m, const gguf_tensor *t)
{
    if (t->param < 0 || t->vector || t->stride > 1)
        return 1;
    if (m->params[t->param].part[0].transposed)
        return t->rows;
    if (t->experts)
        return experts_rows(t);
    const int64_t most = PIECE_VALUES / t->cols, n = t->turn.slow && !t->columns ? t->turn.run : t->rows;
    return n < most ? n : most > 1 ? most : 1;
}

static int64_t values_at_once(const model *m, const gguf_tensor *t)
{
    const int64_t row = t->vector && t->param >= 0 ? m->params[t->param].cols : t->cols;
    return rows_at_once(m, t) * row;
}

static float factor_of(const gguf_tensor *t, int64_t row)
{
    for (int i = 0; i < GGUF_FACTORS && t->factor[i].end; i++)
        if (row < t->factor[i].end)
            return t->factor[i].times;
    return 1;
}

/* n rows of the tensor, from `first` on, of those that were read. */
static void change(const copier *x, const gguf_tensor *t, int64_t first, int64_t n, int64_t cols)
{
    for (int64_t i = 0; i < n; i++) {
        const float *from = x->in + i * cols;
        float *to = x->out + i * cols;
        const float scale = factor_of(t, first + i);
        for (int64_t k = 0; k < cols; k++) {
            const float value = from[t->columns ? turned(&t->turn, k) : k];
            to[k] = t->negative_exp ? -expf(value) : scale == 1 && t->offset == 0 ? value : value * scale + t->offset;
        }
    }
}

static int append(copier *x, const gguf_tensor *t, const float *values, int64_t n)
{
    const int status = gguf_append(x->w, values, n, x->e);
    x->bytes += (uint64_t)(n / gguf_block_values(t->type) * gguf_block_bytes(t->type));
    if (x->done)
        x->done(x->arg, x->bytes);
    return status;
}

static int write_vector(copier *x, const gguf_tensor *t)
{
    if (t->param < 0) {
        memset(x->out, 0, (size_t)t->cols * sizeof *x->out);
        return append(x, t, t->values ? t->values : x->out, t->cols);
    }
    const int status = x->get(x->get_arg, t->param, 0, 1, x->in, x->e);
    if (status)
        return status;
    for (int64_t i = 0; i < t->cols; i++)
        x->out[i] = x->in[of_param(t, i)];
    memcpy(x->in, x->out, (size_t)t->cols * sizeof *x->in);
    change(x, t, 0, t->cols, 1);
    return append(x, t, x->out, t->cols);
}

/* Of n rows from r on those before the next run of a turn. */
static int64_t rows_from(const gguf_tensor *t, int64_t r, int64_t n)
{
    if (!t->turn.slow || t->columns)
        return n;
    const int64_t left = r < t->turn.first ? t->turn.first - r : t->turn.run - (r - t->turn.first) % t->turn.run;
    return n < left ? n : left;
}

static int write_matrix(copier *x, const gguf_tensor *t)
{
    const int64_t step = rows_at_once(x->m, t);
    int status = 0;
    for (int64_t r = 0, n; r < t->rows && !status; r += n) {
        const int64_t whole = t->experts ? t->rows / t->experts : t->rows, left = whole - r % whole;
        n = rows_from(t, r, left < step ? left : step);
        status = x->get(x->get_arg, t->param, of_param(t, r), n, x->in, x->e);
        if (status)
            break;
        change(x, t, r, n, t->cols);
        status = append(x, t, x->out, n * t->cols);
    }
    return status;
}

int gguf_tensors_write(gguf_writer *writer, const gguf_tensors *t, const model *m, weights_getter get, void *get_arg,
                       void (*done)(void *arg, uint64_t bytes), void *arg, pt_error *e)
{
    copier x = {.w = writer, .m = m, .get = get, .get_arg = get_arg, .done = done, .arg = arg, .e = e};
    for (int i = 0; i < t->n; i++) {
        const int64_t need = values_at_once(m, &t->list[i]);
        x.room = need > x.room ? need : x.room;
    }
    x.in = malloc((size_t)x.room * sizeof *x.in);
    x.out = malloc((size_t)x.room * sizeof *x.out);
    int status = x.in && x.out ? 0 : pt_fail(e, PT_FAILED, "no memory for %lld values of a tensor", (long long)x.room);
    for (int i = 0; i < t->n && !status; i++)
        status = t->list[i].vector ? write_vector(&x, &t->list[i]) : write_matrix(&x, &t->list[i]);
    free(x.in);
    free(x.out);
    return status;
}
