#include "cuda/shim_device.h"

#include "device/ring.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

/* As src/device/cuda/kernels.h declares them, but for the stream, which is ignored. */
#define KERNEL(KIND, name, member, doing) int cuda_##name(const op_##member *o, void *stream);
KERNEL_OPS(KERNEL)
#undef KERNEL
int cuda_matmul_plain(const op_matmul *o, void *stream);
int cuda_matmul_finish(const op_matmul *o, const float *sum, void *stream);
void shim_order_set(int order);

typedef struct shim_device { device base; device *cpu; int order; } shim_device;

typedef struct shim_queue {
    queue base; /* first: a queue * is a shim_queue * */
    int order;
    ring *ring;
    queue *cpu; /* for what is no kernel of our own */
    pthread_mutex_t lock;
    pthread_cond_t reached_more;
    uint64_t reached;
    pt_error error; /* the first; later ops are skipped */
} shim_queue;

static pthread_mutex_t one_kernel = PTHREAD_MUTEX_INITIALIZER; /* the shim's blocks and fibres exist once */

static const device_table *cpu_table(const shim_queue *q)
{
    return ((shim_device *)q->base.device)->cpu->table;
}

static void *behind(const void *p, int64_t elements, pt_dtype type)
{
    return p ? (char *)p + (size_t)elements * dtype_bytes(type) : NULL;
}

/* As matmul.c has the library compute what has more to it than a matmul: sums of some rows, then the pass over them. Every second time;
 * the plain kernel does all of it at once. */
static int product_run(const op_matmul *o)
{
    enum { ROWS = 7 };
    static unsigned turn;
    static float *sums;
    static int64_t room;
    int status = 0;
    if (!(o->bias || o->residual || o->stream || o->more_k) || turn++ % 2)
        return cuda_matmul_plain(o, NULL);
    if (room < ROWS * o->n) {
        room = ROWS * o->n;
        free(sums);
        sums = malloc((size_t)room * sizeof *sums);
    }
    for (int64_t row = 0; row < o->m && !status; row += ROWS) {
        op_matmul part = *o;
        part.m = o->m - row < ROWS ? o->m - row : ROWS;
        part.a = behind(o->a, row * (o->layout == MATMUL_TN ? 1 : o->lda), o->type);
        part.c = behind(o->c, row * o->ldc, o->out_type);
        part.residual = behind(o->residual, row * o->ldc, o->type);
        part.stream = behind(o->stream, row * o->ldc, PT_F32);
        part.more_a = behind(o->more_a, row * o->more_lda, o->type);
        op_matmul product = part;
        product.out_type = PT_F32;
        product.bias = product.residual = NULL;
        product.stream = NULL;
        product.scale = NULL;
        product.more_k = 0;
        product.accumulate = false;
        product.c = sums;
        product.ldc = o->n;
        status = cuda_matmul_plain(&product, NULL);
        if (!status && o->more_k) {
            product = matmul_more(&part);
            product.out_type = PT_F32;
            product.bias = product.residual = NULL;
            product.stream = NULL;
            product.scale = NULL;
            product.accumulate = true;
            product.c = sums;
            product.ldc = o->n;
            status = cuda_matmul_plain(&product, NULL);
        }
        if (!status)
            status = cuda_matmul_finish(&part, sums, NULL);
    }
    return status;
}

static int kernel_run(const op *o, bool *is_kernel)
{
    *is_kernel = true;
    switch (o->kind) {
#define LAUNCH(KIND, name, member, doing) case OP_##KIND: return cuda_##name(&o->member, NULL);
    KERNEL_OPS(LAUNCH)
#undef LAUNCH
    case OP_MATMUL: return product_run(&o->matmul);
    default: *is_kernel = false; return 0;
    }
}

static void run_op(shim_queue *q, const op *o)
{
    bool is_kernel;
    pthread_mutex_lock(&one_kernel);
    shim_order_set(q->order);
    int status = kernel_run(o, &is_kernel);
    pthread_mutex_unlock(&one_kernel);
    if (status)
        pt_fail(&q->error, PT_FAILED, "a kernel was launched with a wrong configuration (error %d)", status);
    if (!is_kernel) {
        queue_submit(q->cpu, o);
        queue_sync(q->cpu, queue_signal(q->cpu), &q->error);
    }
}

static void run_record(void *arg, const record *r)
{
    shim_queue *q = arg;
    struct timespec t;
    switch (r->kind) {
    case RECORD_OP:
        if (!q->error.code)
            run_op(q, &r->op);
        return;
    case RECORD_WAIT: queue_sync(r->wait.other, r->wait.value, q->error.code ? NULL : &q->error); return;
    case RECORD_MARK:
        clock_gettime(CLOCK_MONOTONIC, &t);
        *r->ns = t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
        return;
    case RECORD_SIGNAL:
        pthread_mutex_lock(&q->lock);
        q->reached = r->value;
        pthread_cond_broadcast(&q->reached_more);
        pthread_mutex_unlock(&q->lock);
        return;
    default: return;
    }
}

static ring *ring_of(queue *q) { return ((shim_queue *)q)->ring; }
static void shim_submit(queue *q, const op *o) { ring_op(ring_of(q), o); }
static uint64_t shim_signal(queue *q) { return ring_signal(ring_of(q)); }
static void shim_wait(queue *q, queue *other, uint64_t value) { ring_wait(ring_of(q), other, value); }
static void shim_mark(queue *q, int64_t *ns) { ring_mark(ring_of(q), ns); }

static int shim_sync(queue *base, uint64_t value, pt_error *e)
{
    shim_queue *q = (shim_queue *)base;
    pthread_mutex_lock(&q->lock);
    while (q->reached < value)
        pthread_cond_wait(&q->reached_more, &q->lock);
    if (e && q->error.code)
        *e = q->error;
    pthread_mutex_unlock(&q->lock);
    return q->error.code;
}

static void shim_queue_close(queue *base)
{
    if (!base)
        return;
    shim_queue *q = (shim_queue *)base;
    ring_close(q->ring);
    cpu_table(q)->queue_close(q->cpu);
    pthread_mutex_destroy(&q->lock);
    pthread_cond_destroy(&q->reached_more);
    free(q);
}

static int shim_queue_open(device *d, const char *name, int threads, queue **out, pt_error *e)
{
    *out = NULL;
    shim_queue *q = calloc(1, sizeof *q);
    if (!q)
        return pt_fail(e, PT_FAILED, "no memory for the queue '%s'", name);
    q->base.device = d;
    q->order = threads ? threads : ((shim_device *)d)->order;
    int code = cpu_table(q)->queue_open(((shim_device *)d)->cpu, name, 1, &q->cpu, e);
    if (code) {
        free(q);
        return code;
    }
    pthread_mutex_init(&q->lock, NULL);
    pthread_cond_init(&q->reached_more, NULL);
    code = ring_open(name, run_record, q, &q->ring, e);
    if (!code)
        *out = &q->base;
    else
        shim_queue_close(&q->base);
    return code;
}

static int shim_memory_open(device *d, memory_kind kind, size_t bytes, void **base, pt_error *e)
{
    device *cpu = ((shim_device *)d)->cpu;
    return cpu->table->memory_open(cpu, kind, bytes, base, e);
}

static void shim_memory_close(device *d, memory_kind kind, void *base, size_t bytes)
{
    device *cpu = ((shim_device *)d)->cpu;
    cpu->table->memory_close(cpu, kind, base, bytes);
}

static void shim_close(device *d) { free(d); }

static const device_table SHIM_TABLE = {
    .close = shim_close,
    .memory_open = shim_memory_open,
    .memory_close = shim_memory_close,
    .queue_open = shim_queue_open,
    .queue_close = shim_queue_close,
    .submit = shim_submit,
    .signal = shim_signal,
    .wait = shim_wait,
    .mark = shim_mark,
    .sync = shim_sync,
};

int device_shim_open(const device_options *o, device **out, device **host, pt_error *e)
{
    *out = *host = NULL;
    shim_device *d = calloc(1, sizeof *d);
    if (!d)
        return pt_fail(e, PT_FAILED, "no memory for the description of the shim");
    int code = device_cpu_open(o, &d->cpu, e);
    if (code) {
        free(d);
        return code;
    }
    *host = d->cpu;
    d->order = o->threads;
    d->base.info = d->cpu->info;
    d->base.table = &SHIM_TABLE;
    *out = &d->base;
    return 0;
}
