/* load.c - loads weights. Parameters are divided into items: rows of some MiB, or the whole of a matrix that is stored transposed. Each
 * thread takes the next item, reads and converts it in its own memory, and copies it to the device on its own queue. bf16 rounds as master
 * weights do (base/dtype.h), so that a trained model and the same model read from fp32 files compute with the same bits. The caller is one
 * of the threads. */
#include "infer/load.h"

#include "io/safetensors.h"
#include "model/adapter.h"
#include "model/shape.h"
#include "model/weights.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

enum { ITEM_ELEMENTS = 1 << 20, SCRATCH_BYTES = 4 << 20, MOST_THREADS = 16 };

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

static int64_t item_rows(const param *p)
{
    int64_t rows = ITEM_ELEMENTS / p->cols;
    return p->part[0].transposed || rows > p->rows ? p->rows : rows < 1 ? 1 : rows;
}

static int64_t largest_item(const model *m)
{
    int64_t most = 0;
    for (int i = 0; i < m->params_n; i++) {
        int64_t n = item_rows(&m->params[i]) * m->params[i].cols;
        most = n > most ? n : most;
    }
    return most;
}

static int threads_of(int wanted) { return wanted < MOST_THREADS ? wanted : MOST_THREADS; }

uint64_t load_bytes(const model *m, pt_dtype type, int threads)
{
    uint64_t each = (uint64_t)largest_item(m) * (sizeof(float) + (type == PT_BF16 ? sizeof(bf16) : 0)) + SCRATCH_BYTES;
    return (uint64_t)threads_of(threads) * each;
}

/* The parameter and first row of item number `item`; false after the last. */
static bool find_item(const model *m, int64_t item, int *param_index, int64_t *row)
{
    for (int i = 0; i < m->params_n; i++) {
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

static int load_item(loader *l, queue *q, int index, int64_t row, float *values, bf16 *rounded, void *scratch, pt_error *e)
{
    const load_job *j = l->job;
    const param *p = &j->model->params[index];
    int64_t step = item_rows(p), rows = p->rows - row < step ? p->rows - row : step, n = rows * p->cols;
    int failed = 0;
    if (j->st)
        failed = weights_read(j->model, param_is_adapter(p) ? j->adapter : j->st, index, row, rows, values, scratch, SCRATCH_BYTES, e);
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
    while (!failed && !atomic_load(&l->failed) && find_item(j->model, atomic_fetch_add(&l->next, 1), &index, &row)) {
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
    l.total = (uint64_t)job->model->parameters * dtype_bytes(job->type);
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
