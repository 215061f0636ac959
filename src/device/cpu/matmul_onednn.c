/* matmul_onednn.c - everything that this program knows of oneDNN (2.5 and later, 3.x).
 *
 * c is cut into rectangles of one size, and each is one single-threaded call:
 *
 *        n ->  0        448        896   1200           a rectangle that would pass the edge is moved
 *     m   0    +---------+---------+                    back until it ends there; what it computes a
 *     |        |         |         |                    second time is not stored. So all calls for
 *     v 256    +---------+-------[=+=====]              a product have one shape, and with it one
 *              |         |       [ |     ]              kernel and one order of summation: the bits
 *       300    +---------+-------[=+=====]              of a row do not depend on how many rows come
 *                                                       with it, as long as there are ROWS or more.
 *
 * oneDNN writes the fp32 sums into the thread's scratch space; bias, residual, accumulation and
 * the one rounding are our own epilogue, the same as for our own products.
 *
 * oneDNN as distributions build it runs on OpenMP threads: each of our threads asks for a team of
 * one, also before it makes a primitive, which remembers the size of the team; else every call would start a team per core,
 * and split K by its size.
 *
 * Whether oneDNN has a kernel depends on shape and processor alone: without one the product is ours. Anything else that goes
 * wrong (no memory) is an error, never a product of ours instead: that would be other bits.
 *
 * A primitive is created when its shape is first met and kept in a table that never shrinks; past
 * PRIMITIVES_MOST shapes they are created for a product and dropped after it.
 */
#include "device/cpu/matmul_onednn.h"

#include "device/cpu/isa.h"
#include "device/cpu/kernels/matmul_epilogue.h"

#include <dlfcn.h>
#include <dnnl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

enum {
    ROWS = 256, ROWS_SMALL = 64, COLS_MOST = 512, /* of a rectangle; with fewer rows, see onednn_matmul; columns: cols_of */
    PRIMITIVES_MOST = 512,
    SUM_BYTES = ROWS * COLS_MOST * 4
};

/* ---- the two generations of the interface --------------------------------------------------- */

#if DNNL_VERSION_MAJOR >= 3
typedef dnnl_memory_desc_t matrix_desc;
typedef const_dnnl_memory_desc_t matrix_desc_ref;
#define REF(desc) (desc)
#else
typedef dnnl_memory_desc_t matrix_desc;
typedef const dnnl_memory_desc_t *matrix_desc_ref;
#define REF(desc) (&(desc))
#endif

static dnnl_status_t matrix_desc_make(matrix_desc *out, pt_dtype type, int64_t rows, int64_t cols, int64_t row_step, int64_t col_step)
{
    dnnl_dims_t dims = {rows, cols}, steps = {row_step, col_step};
    dnnl_data_type_t t = type == PT_BF16 ? dnnl_bf16 : dnnl_f32;
#if DNNL_VERSION_MAJOR >= 3
    return dnnl_memory_desc_create_with_strides(out, 2, dims, t, steps);
#else
    return dnnl_memory_desc_init_by_strides(out, 2, dims, t, steps);
#endif
}

static void matrix_desc_drop(matrix_desc *d)
{
#if DNNL_VERSION_MAJOR >= 3
    dnnl_memory_desc_destroy(*d);
#endif
}

static dnnl_status_t product_desc_make(dnnl_primitive_desc_t *out, dnnl_engine_t engine, const matrix_desc m[3],
                                       const_dnnl_primitive_attr_t attr)
{
#if DNNL_VERSION_MAJOR >= 3
    return dnnl_matmul_primitive_desc_create(out, engine, m[0], m[1], NULL, m[2], attr);
#else
    dnnl_matmul_desc_t desc;
    dnnl_status_t status = dnnl_matmul_desc_init(&desc, &m[0], &m[1], NULL, &m[2]);
    return status ? status : dnnl_primitive_desc_create(out, &desc, attr, engine, NULL);
#endif
}

/* ---- primitives ----------------------------------------------------------------------------- */

typedef struct product_key {
    matmul_layout layout;
    pt_dtype type;
    int64_t rows, cols, k, lda, ldb;
} product_key;

typedef struct product {
    product_key key;
    bool usable;                 /* false: oneDNN has no kernel for the key; that is remembered too */
    dnnl_primitive_t primitive;
    matrix_desc matrix[3];       /* a, b, sum */
    matrix_desc_ref workspace;   /* lives in the primitive; NULL: none needed */
} product;

static struct {
    pthread_mutex_t lock;
    dnnl_engine_t engine; /* NULL: not made yet */
    int count;
    product products[PRIMITIVES_MOST];
} library = {.lock = PTHREAD_MUTEX_INITIALIZER};

static bool key_equal(const product_key *a, const product_key *b)
{
    return a->layout == b->layout && a->type == b->type && a->rows == b->rows && a->cols == b->cols && a->k == b->k &&
           a->lda == b->lda && a->ldb == b->ldb;
}

static void product_drop(product *p)
{
    if (!p->usable)
        return;
    dnnl_primitive_destroy(p->primitive);
    for (int i = 0; i < 3; i++)
        matrix_desc_drop(&p->matrix[i]);
}

/* The workspace comes from our scratch space: one that oneDNN allocates belongs to the primitive, which all threads run at once. */
static dnnl_status_t product_try(product *p, dnnl_engine_t engine)
{
    dnnl_primitive_attr_t attr;
    dnnl_primitive_desc_t desc = NULL;
    dnnl_status_t status = dnnl_primitive_attr_create(&attr);
    if (status)
        return status;
    status = dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user);
    if (!status)
        status = product_desc_make(&desc, engine, p->matrix, attr);
    if (!status)
        status = dnnl_primitive_create(&p->primitive, desc);
    dnnl_primitive_desc_destroy(desc);
    dnnl_primitive_attr_destroy(attr);
    if (status)
        return status;
    const_dnnl_primitive_desc_t own;
    p->workspace = NULL;
    if (!dnnl_primitive_get_primitive_desc(p->primitive, &own))
        p->workspace = dnnl_primitive_desc_query_md(own, dnnl_query_scratchpad_md, 0);
    if (p->workspace && dnnl_memory_desc_get_size(p->workspace) == 0)
        p->workspace = NULL;
    if (p->workspace && dnnl_memory_desc_get_size(p->workspace) > POOL_SCRATCH_BYTES - SUM_BYTES) {
        dnnl_primitive_destroy(p->primitive);
        return dnnl_unimplemented;
    }
    return dnnl_success;
}

/* dnnl_success also where oneDNN has no kernel for the key: then p is not usable. */
static dnnl_status_t product_make(product *p, const product_key *key, dnnl_engine_t engine)
{
    bool a_turned = key->layout == MATMUL_TN, b_turned = key->layout == MATMUL_NT;
    *p = (product){.key = *key};
    const struct { pt_dtype type; int64_t rows, cols, row_step, col_step; } shape[3] = {
        {key->type, key->rows, key->k, a_turned ? 1 : key->lda, a_turned ? key->lda : 1},
        {key->type, key->k, key->cols, b_turned ? 1 : key->ldb, b_turned ? key->ldb : 1},
        {PT_F32, key->rows, key->cols, key->cols, 1}};
    dnnl_status_t status = dnnl_success;
    int made = 0;
    for (; made < 3 && !status; made += !status)
        status = matrix_desc_make(&p->matrix[made], shape[made].type, shape[made].rows, shape[made].cols, shape[made].row_step,
                                  shape[made].col_step);
    if (!status)
        status = product_try(p, engine);
    p->usable = !status;
    for (int i = 0; i < made && status; i++)
        matrix_desc_drop(&p->matrix[i]);
    bool none = status == dnnl_unimplemented || status == dnnl_invalid_arguments;
    return none ? dnnl_success : status;
}

/* The product for the key, from the table or, where that is full, made into `spare`. */
static dnnl_status_t product_find(const product_key *key, product *spare, const product **out)
{
    pthread_mutex_lock(&library.lock);
    product *found = NULL;
    dnnl_status_t status = library.engine ? dnnl_success : dnnl_engine_create(&library.engine, dnnl_cpu, 0);
    for (int i = 0; i < library.count && !found; i++)
        if (key_equal(&library.products[i].key, key))
            found = &library.products[i];
    if (!found && !status) {
        bool room = library.count < PRIMITIVES_MOST;
        found = room ? &library.products[library.count] : spare;
        status = product_make(found, key, library.engine);
        library.count += room && !status;
    }
    pthread_mutex_unlock(&library.lock);
    *out = found;
    return status;
}

/* ---- a rectangle ---------------------------------------------------------------------------- */

typedef struct onednn_job {
    const op_matmul *o;
    pool *pool;
    const product *product;
    int64_t down, across;
    atomic_int *status; /* of a call that failed, else dnnl_success */
} onednn_job;

static void team_of_one(void)
{
    static _Thread_local bool asked;
    if (asked)
        return;
    asked = true;
    void (*set_threads)(int) = (void (*)(int))dlsym(RTLD_DEFAULT, "omp_set_num_threads");
    if (set_threads)
        set_threads(1);
}

/* sum (rows, cols) = a . b. */
static dnnl_status_t product_run(const product *p, const void *a, const void *b, float *sum, void *workspace)
{
    dnnl_memory_t memory[4] = {NULL};
    dnnl_stream_t stream = NULL;
    int arguments = p->workspace ? 4 : 3;
    const matrix_desc_ref desc[4] = {REF(p->matrix[0]), REF(p->matrix[1]), REF(p->matrix[2]), p->workspace};
    void *data[4] = {(void *)a, (void *)b, sum, workspace};
    static const int NAME[4] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST, DNNL_ARG_SCRATCHPAD};
    dnnl_exec_arg_t list[4];
    dnnl_status_t status = dnnl_stream_create(&stream, library.engine, dnnl_stream_default_flags);
    for (int i = 0; i < arguments && !status; i++) {
        status = dnnl_memory_create(&memory[i], desc[i], library.engine, data[i]);
        list[i] = (dnnl_exec_arg_t){NAME[i], memory[i]};
    }
    if (!status)
        status = dnnl_primitive_execute(p->primitive, stream, arguments, list);
    if (!status)
        status = dnnl_stream_wait(stream);
    for (int i = 0; i < arguments; i++)
        if (memory[i])
            dnnl_memory_destroy(memory[i]);
    if (stream)
        dnnl_stream_destroy(stream);
    return status;
}

static void onednn_rectangle(void *arg, int64_t tile, int thread)
{
    const onednn_job *job = arg;
    const op_matmul *o = job->o;
    const product_key *key = &job->product->key;
    int64_t m0 = tile % job->down * key->rows, n0 = tile / job->down * key->cols;
    int64_t m = m0 + key->rows <= o->m ? m0 : o->m - key->rows; /* where the rectangle is computed */
    int64_t n = n0 + key->cols <= o->n ? n0 : o->n - key->cols;
    size_t size = dtype_bytes(o->type);
    const char *a = (const char *)o->a + (size_t)(o->layout == MATMUL_TN ? m : m * o->lda) * size;
    const char *b = (const char *)o->b + (size_t)(o->layout == MATMUL_NT ? n * o->ldb : n) * size;
    float *sum = pool_scratch(job->pool, thread);
    team_of_one();
    int64_t rows = m + key->rows - m0, cols = n + key->cols - n0; /* what is new of it */
    dnnl_status_t status = product_run(job->product, a, b, sum, (char *)sum + SUM_BYTES);
    if (status)
        atomic_store(job->status, (int)status);
    else
        KERNEL_BEST(matmul_epilogue)(o, sum + (m0 - m) * key->cols + (n0 - n), key->cols, m0, rows, n0, cols);
}

static int product_failed(const op_matmul *o, dnnl_status_t status, pt_error *e)
{
    char name[48];
    onednn_name(name, sizeof name);
    return pt_fail(e, PT_FAILED, "%s could not compute a product of %lld x %lld x %lld: %s (status %d): end other programs or give a smaller "
                   "--device-memory, so that it has memory of its own", name, (long long)o->m, (long long)o->n, (long long)o->k,
                   status == dnnl_out_of_memory ? "out of memory" : "it reports an error", (int)status);
}

/* By n alone: as many as make the rectangles compute least twice, and of those the most. */
static int64_t cols_of(int64_t n)
{
    enum { STEP = 64, COLS_LEAST = 256 };
    int64_t best = n, least = INT64_MAX;
    for (int64_t cols = COLS_MOST; cols >= COLS_LEAST && n > COLS_MOST; cols -= STEP) {
        int64_t computed = (n + cols - 1) / cols * cols;
        best = computed < least ? cols : best;
        least = computed < least ? computed : least;
    }
    return best;
}

int onednn_matmul(pool *p, const op_matmul *o, pt_error *e)
{
    if (o->m < ONEDNN_ROWS_LEAST || o->k == 0)
        return 0;
    team_of_one();
    product_key key = {o->layout, o->type, .k = o->k, .lda = o->lda, .ldb = o->ldb};
    key.rows = o->m >= ROWS ? ROWS : o->m >= ROWS_SMALL ? ROWS_SMALL : ONEDNN_ROWS_LEAST;
    key.cols = cols_of(o->n);
    product spare = {.usable = false};
    const product *found;
    dnnl_status_t status = product_find(&key, &spare, &found);
    if (status || !found->usable)
        return status ? product_failed(o, status, e) : 0;
    atomic_int failed = dnnl_success;
    onednn_job job = {o, p, found, (o->m + key.rows - 1) / key.rows, (o->n + key.cols - 1) / key.cols, &failed};
    pool_run(p, job.down * job.across, onednn_rectangle, &job);
    product_drop(&spare);
    status = (dnnl_status_t)atomic_load(&failed);
    return status ? product_failed(o, status, e) : 1;
}

void onednn_name(char *out, size_t size)
{
    const dnnl_version_t *v = dnnl_version();
    snprintf(out, size, "oneDNN %d.%d.%d isa %#x", v->major, v->minor, v->patch, (unsigned)dnnl_get_effective_cpu_isa());
}
