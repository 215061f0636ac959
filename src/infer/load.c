/* load.c - loads weights. Parameters are divided into items: rows of some MiB, or the whole of a matrix that is stored transposed or in
 * few bits. Each thread takes the next item, reads and converts it in its own memory, and copies it to the device on its own queue. bf16
 * rounds as master weights do (base/dtype.h), so that a trained model and the same model read from fp32 files compute with the same bits.
 * The caller is one of the threads. */
#include "infer/load.h"

#include "io/safetensors.h"
#include "model/adapter.h"
#include "model/prequantized.h"
#include "model/quantize.h"
#include "model/shape.h"
#include "model/storage.h"
#include "model/weights.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

enum { ITEM_ELEMENTS = 1 << 20, SCRATCH_BYTES = 4 << 20, MOST_THREADS = 16, QUANTIZED_ROWS = 64 /* at least: quantize.h */ };

typedef struct loader {
    const load_job *job;
    int64_t room;              /* elements of the largest item */
    atomic_llong next;         /* item */
    atomic_ullong done;        /* bytes */
    uint64_t total;
    pthread_mutex_t lock;
    pt_error error;            /* of the thread that failed first */
    atomic_bool failed;
} loader;

static bool in_few_bits(const param *p) { return p->storage != STORAGE_PLAIN; }

uint64_t load_param_bytes(const param *p, pt_dtype type)
{
    return in_few_bits(p) ? storage_bytes(p) : (uint64_t)(p->rows * p->cols) * dtype_bytes(param_type(p, type));
}

static int64_t item_rows(const param *p)
{
    int64_t rows = ITEM_ELEMENTS / p->cols;
    const int64_t whole = p->part[0].transposed ? part_whole_rows(p, 0) : 1; /* read at once */
    rows = rows < whole ? whole : rows / whole * whole;
    return in_few_bits(p) || rows > p->rows ? p->rows : rows;
}

static int64_t largest_item(const model *m)
{
    int64_t most = 0;
    for (int i = 0; i < m->params_n; i++) {
        const param *p = &m->params[i];
        const int64_t some = QUANTIZED_ROWS * p->cols;
        int64_t n = !in_few_bits(p) ? item_rows(p) * p->cols : some > ITEM_ELEMENTS ? some : ITEM_ELEMENTS;
        most = n > most ? n : most;
    }
    return most;
}

/* While a matrix is quantized. */
static uint64_t largest_scales(const model *m)
{
    uint64_t most = 0;
    for (int i = 0; i < m->params_n; i++)
        for (int k = 0; k < m->params[i].parts && in_few_bits(&m->params[i]); k++) {
            const uint64_t n = (uint64_t)(m->params[i].part[k].rows * m->params[i].cols) / 16;
            most = n > most ? n : most;
        }
    return most;
}

static int threads_of(int wanted) { return wanted < MOST_THREADS ? wanted : MOST_THREADS; }

uint64_t load_bytes(const model *m, pt_dtype type, int threads)
{
    uint64_t each = (uint64_t)largest_item(m) * (sizeof(float) + (type == PT_BF16 ? sizeof(bf16) : 0)) + SCRATCH_BYTES +
                          largest_scales(m);
    return (uint64_t)threads_of(threads) * each;
}

static bool is_wanted(const load_job *j, int param) { return !j->wanted || j->wanted[param]; }

/* The parameter and first row of item number `item`; false after the last. */
static bool find_item(const load_job *j, int64_t item, int *param_index, int64_t *row)
{
    const model *m = j->model;
    for (int i = 0; i < m->params_n; i++) {
        if (!is_wanted(j, i))
            continue;
        int64_t rows = item_rows(&m->params[i]), items = (m->params[i].rows + rows - 1) / rows;
        if (item < items) {
            *param_index = i;
            *row = item * rows;
            return true;
        }
        item -= items;
    }
    return false;
}

/* ---- matrices in few bits ---- */

typedef struct quantizing { const load_job *job; queue *q; int index; void *scratch; } quantizing;

static int read_rows(void *arg, int index, int64_t row0, int64_t n_rows, float *out, pt_error *e)
{
    const quantizing *x = arg;
    if (x->job->st)
        return weights_read(x->job->model, x->job->st, index, row0, n_rows, out, x->scratch, SCRATCH_BYTES, e);
    weights_init(x->job->model, x->job->seed, index, row0, n_rows, out);
    return 0;
}

static int put_bytes(void *arg, uint64_t at, const void *bytes, size_t n, pt_error *e)
{
    const quantizing *x = arg;
    queue_submit(x->q, &(op){OP_COPY, .copy = {x->job->base + x->job->param_at[x->index] + at, bytes, n}});
    return queue_sync(x->q, queue_signal(x->q), e);
}

/* Codes and scales of a folder that has the matrix in the same format. */
static int take_part(void *arg, int index, int part, pt_error *e)
{
    const quantizing *x = arg;
    const param *p = &x->job->model->params[index];
    prequantized from;
    const int few = x->job->st ? weights_in_few_bits(x->job->model, x->job->st, index, part, &from, e) : 0;
    if (few <= 0 || from.format != p->storage)
        return few < 0 ? few : 0;
    int failed = 0;
    for (int slab = 0; slab < STORAGE_SLABS && !failed; slab++) {
        const uint64_t bytes = storage_slab_bytes(p, part, slab);
        for (uint64_t done = 0, n; done < bytes && !failed; done += n) {
            n = bytes - done < SCRATCH_BYTES ? bytes - done : SCRATCH_BYTES;
            failed = prequantized_take(&from, slab, done, n, x->scratch, e);
            if (!failed)
                failed = put_bytes(arg, storage_slab_at(p, part, slab) + done, x->scratch, n, e);
        }
    }
    return failed ? failed : 1;
}

static int load_few_bits(loader *l, queue *q, int index, float *room, void *scratch, pt_error *e)
{
    const load_job *j = l->job;
    quantizing x = {j, q, index, scratch};
    int failed = quantize(j->model, index, &(quantize_io){read_rows, put_bytes, take_part, &x}, room, (size_t)l->room, e);
    atomic_fetch_add(&l->done, storage_bytes(&j->model->params[index]));
    return failed;
}

/* ---- items ---- */

static int load_item(loader *l, queue *q, int index, int64_t row, float *values, bf16 *rounded, void *scratch, pt_error *e)
{
    const load_job *j = l->job;
    const param *p = &j->model->params[index];
    int64_t step = item_rows(p), rows = p->rows - row < step ? p->rows - row : step, n = rows * p->cols;
    int failed = 0;
    if (in_few_bits(p))
        return load_few_bits(l, q, index, values, scratch, e);
    const struct safetensors *from = param_is_adapter(p) || (p->whole && j->adapter) ? j->adapter : j->st;
    if (j->st)
        failed = weights_read(j->model, from, index, row, rows, values, scratch, SCRATCH_BYTES, e);
    else
        weights_init(j->model, j->seed, index, row, rows, values);
    if (failed)
        return failed;
    uint16_t low;
    pt_dtype type = param_type(p, j->type);
    for (int64_t i = 0; i < n && type == PT_BF16; i++)
        master_split(values[i], &rounded[i], &low);
    size_t size = dtype_bytes(type);
    queue_submit(q, &(op){OP_COPY, .copy = {j->base + j->param_at[index] + (size_t)(row * p->cols) * size,
                                            type == PT_BF16 ? (void *)rounded : values, (size_t)n * size}});
    atomic_fetch_add(&l->done, (uint64_t)n * size);
    return queue_sync(q, queue_signal(q), e);
}

static void note_failure(loader *l, const pt_error *e)
{
    pthread_mutex_lock(&l->lock);
    if (!atomic_load(&l->failed))
        l->error = *e;
    atomic_store(&l->failed, true);
    pthread_mutex_unlock(&l->lock);
}

static void run_items(loader *l, bool report)
{
    const load_job *j = l->job;
    pt_error e = {0};
    queue *q = NULL;
    float *values = malloc((size_t)l->room * sizeof *values);
    bf16 *rounded = j->type == PT_BF16 ? malloc((size_t)l->room * sizeof *rounded) : NULL;
    void *scratch = malloc(SCRATCH_BYTES);
    int index, failed = 0;
    int64_t row;
    if (!values || !scratch || (j->type == PT_BF16 && !rounded))
        failed = pt_fail(&e, PT_FAILED, "out of memory while loading the weights");
    if (!failed)
        failed = j->device->table->queue_open(j->device, "load", 1, &q, &e);
    while (!failed && !atomic_load(&l->failed) && find_item(j, atomic_fetch_add(&l->next, 1), &index, &row)) {
        failed = load_item(l, q, index, row, values, rounded, scratch, &e);
        if (report && j->progress)
            j->progress(j->arg, atomic_load(&l->done), l->total);
    }
    if (failed)
        note_failure(l, &e);
    if (q)
        q->device->table->queue_close(q);
    free(values);
    free(rounded);
    free(scratch);
}

static void *worker(void *arg)
{
    run_items(arg, false);
    return NULL;
}

int load_weights(const load_job *job, pt_error *e)
{
    pthread_t threads[MOST_THREADS];
    int started = 0;
    loader l = {.job = job, .room = largest_item(job->model), .lock = PTHREAD_MUTEX_INITIALIZER};
    for (int i = 0; i < job->model->params_n; i++)
        l.total += is_wanted(job, i) ? load_param_bytes(&job->model->params[i], job->type) : 0;
    while (started < threads_of(job->threads) - 1 && pthread_create(&threads[started], NULL, worker, &l) == 0)
        started++;
    run_items(&l, true);
    for (int i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
    pthread_mutex_destroy(&l.lock);
    if (!atomic_load(&l.failed))
        return 0;
    return pt_fail(e, l.error.code, "%s", l.error.text);
}
