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
 * Where oneDNN likes b in a layout of its own, all threads first bring b into that layout, rectangle by rectangle as far as their
 * scratch space lasts, then compute what they packed: oneDNN would pack again for each rectangle below another, which on AMX takes
 * more instructions than the product. Whether that is done follows from layout, types, n and k (and m, where it is a weight's),
 * not from how many rows there are: not for the loss head, whose slices have one or two rectangles below each other, and not where
 * k is so large that a column's worth of b does not fit a thread's scratch space.
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
    WEIGHT_ROWS_PACKED = 5 * ROWS, /* for fewer rectangles below each other packing takes more than it saves */
    SUM_BYTES = ROWS * COLS_MOST * 4,
    PACKED_BYTES = POOL_SCRATCH_BYTES - SUM_BYTES - (256 << 10) /* of a column, with some for oneDNN's workspace */
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

static dnnl_data_type_t type_of(pt_dtype type) { return type == PT_BF16 ? dnnl_bf16 : dnnl_f32; }

static dnnl_status_t matrix_desc_make(matrix_desc *out, pt_dtype type, int64_t rows, int64_t cols, int64_t row_step, int64_t col_step)
{
    dnnl_dims_t dims = {rows, cols}, steps = {row_step, col_step};
#if DNNL_VERSION_MAJOR >= 3
    return dnnl_memory_desc_create_with_strides(out, 2, dims, type_of(type), steps);
#else
    return dnnl_memory_desc_init_by_strides(out, 2, dims, type_of(type), steps);
#endif
}

/* In the layout that oneDNN likes best. */
static dnnl_status_t matrix_desc_any(matrix_desc *out, pt_dtype type, int64_t rows, int64_t cols)
{
    dnnl_dims_t dims = {rows, cols};
#if DNNL_VERSION_MAJOR >= 3
    return dnnl_memory_desc_create_with_tag(out, 2, dims, type_of(type), dnnl_format_tag_any);
#else
    return dnnl_memory_desc_init_by_tag(out, 2, dims, type_of(type), dnnl_format_tag_any);
#endif
}

/* Whether its elements lie in blocks, not just in rows or columns: products then need not pack it again. */
static bool has_blocks(matrix_desc_ref d)
{
#if DNNL_VERSION_MAJOR >= 3
    int blocks = 0;
    return !dnnl_memory_desc_query(d, dnnl_query_inner_nblks_s32, &blocks) && blocks > 0;
#else
    return d->format_kind == dnnl_blocked && d->format_desc.blocking.inner_nblks > 0;
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
    bool packs; /* if oneDNN likes that */
} product_key;

typedef struct product {
    product_key key;
    bool usable;                 /* false: oneDNN has no kernel for the key; that is remembered too */
    dnnl_primitive_t primitive;
    matrix_desc matrix[3];       /* a, b, sum */
    dnnl_primitive_t pack;       /* brings b into `packed`; NULL: b is read as it is */
    matrix_desc_ref packed;      /* lives in the primitive, as the workspaces do in theirs; NULL: none needed */
    matrix_desc_ref workspace, pack_workspace;
    size_t packed_at;            /* where packed columns begin in a thread's scratch space: behind the sums and the workspaces */
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
           a->lda == b->lda && a->ldb == b->ldb && a->packs == b->packs;
}

static void product_drop(product *p)
{
    if (!p->usable)
        return;
    dnnl_primitive_destroy(p->primitive);
    if (p->pack)
        dnnl_primitive_destroy(p->pack);
    for (int i = 0; i < 3; i++)
        matrix_desc_drop(&p->matrix[i]);
}

/* What the primitive knows of one of its memories; NULL: it needs none. */
static matrix_desc_ref memory_of(dnnl_primitive_t primitive, dnnl_query_t what)
{
    const_dnnl_primitive_desc_t own;
    matrix_desc_ref d = dnnl_primitive_get_primitive_desc(primitive, &own) ? NULL : dnnl_primitive_desc_query_md(own, what, 0);
    return d && dnnl_memory_desc_get_size(d) ? d : NULL;
}

static size_t bytes_of(matrix_desc_ref d) { return d ? (dnnl_memory_desc_get_size(d) + 63) / 64 * 64 : 0; }

/* The workspace comes from our scratch space: one that oneDNN allocates belongs to the primitive, which all threads run at once. */
static dnnl_status_t attr_make(dnnl_primitive_attr_t *attr)
{
    dnnl_status_t status = dnnl_primitive_attr_create(attr);
    return status ? status : dnnl_primitive_attr_set_scratchpad_mode(*attr, dnnl_scratchpad_mode_user);
}

/* From its description, which is used up; `status`: of that. */
static dnnl_status_t primitive_make(dnnl_primitive_t *out, dnnl_status_t status, dnnl_primitive_desc_t desc, dnnl_primitive_attr_t attr)
{
    if (!status)
        status = dnnl_primitive_create(out, desc);
    dnnl_primitive_desc_destroy(desc);
    dnnl_primitive_attr_destroy(attr);
    return status;
}

static dnnl_status_t product_try(product *p, dnnl_engine_t engine, const matrix_desc matrix[3])
{
    dnnl_primitive_attr_t attr = NULL;
    dnnl_primitive_desc_t desc = NULL;
    dnnl_status_t status = attr_make(&attr);
    if (!status)
        status = product_desc_make(&desc, engine, matrix, attr);
    status = primitive_make(&p->primitive, status, desc, attr);
    if (status)
        return status;
    p->workspace = memory_of(p->primitive, dnnl_query_scratchpad_md);
    if (bytes_of(p->workspace) <= POOL_SCRATCH_BYTES - SUM_BYTES)
        return dnnl_success;
    dnnl_primitive_destroy(p->primitive);
    return dnnl_unimplemented;
}

static dnnl_status_t pack_make(product *p, dnnl_engine_t engine)
{
    dnnl_primitive_attr_t attr = NULL;
    dnnl_primitive_desc_t desc = NULL;
    dnnl_status_t status = attr_make(&attr);
    if (!status)
        status = dnnl_reorder_primitive_desc_create(&desc, REF(p->matrix[1]), engine, p->packed, engine, attr);
    return primitive_make(&p->pack, status, desc, attr);
}

/* With b in oneDNN's layout; dnnl_unimplemented: it has none of its own, or a thread has no room. */
static dnnl_status_t product_try_packed(product *p, dnnl_engine_t engine)
{
    matrix_desc matrix[3] = {p->matrix[0], p->matrix[1], p->matrix[2]};
    dnnl_status_t status = matrix_desc_any(&matrix[1], p->key.type, p->key.k, p->key.cols);
    if (status)
        return status;
    status = product_try(p, engine, matrix);
    matrix_desc_drop(&matrix[1]);
    if (status)
        return status;
    p->packed = memory_of(p->primitive, dnnl_query_weights_md);
    status = p->packed && has_blocks(p->packed) ? pack_make(p, engine) : dnnl_unimplemented;
    if (!status) {
        p->pack_workspace = memory_of(p->pack, dnnl_query_scratchpad_md);
        size_t other = bytes_of(p->pack_workspace), own = bytes_of(p->workspace);
        p->packed_at = SUM_BYTES + (other > own ? other : own);
        if (p->packed_at + bytes_of(p->packed) <= POOL_SCRATCH_BYTES)
            return dnnl_success;
        dnnl_primitive_destroy(p->pack);
    }
    p->pack = NULL;
    p->packed = p->pack_workspace = NULL;
    dnnl_primitive_destroy(p->primitive);
    return status ? status : dnnl_unimplemented;
}

static bool has_no_kernel(dnnl_status_t status) { return status == dnnl_unimplemented || status == dnnl_invalid_arguments; }

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
    bool described = !status;
    if (described)
        status = key->packs ? product_try_packed(p, engine) : dnnl_unimplemented;
    if (described && has_no_kernel(status))
        status = product_try(p, engine, p->matrix);
    p->usable = !status;
    for (int i = 0; i < made && status; i++)
        matrix_desc_drop(&p->matrix[i]);
    return has_no_kernel(status) ? dnnl_success : status;
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
    int64_t down, across; /* rectangles below and beside each other */
    int64_t first;        /* of those beside each other that are packed */
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

typedef struct argument { int name; matrix_desc_ref desc; void *data; } argument; /* desc NULL: not needed */

static dnnl_status_t primitive_run(dnnl_primitive_t primitive, int n, const argument *arguments)
{
    enum { MOST = 4 };
    dnnl_memory_t memory[MOST] = {NULL};
    dnnl_exec_arg_t list[MOST];
    dnnl_stream_t stream = NULL;
    int used = 0;
    dnnl_status_t status = dnnl_stream_create(&stream, library.engine, dnnl_stream_default_flags);
    for (int i = 0; i < n && !status; i++) {
        if (!arguments[i].desc)
            continue;
        status = dnnl_memory_create(&memory[used], arguments[i].desc, library.engine, arguments[i].data);
        list[used] = (dnnl_exec_arg_t){arguments[i].name, memory[used]};
        used++;
    }
    if (!status)
        status = dnnl_primitive_execute(primitive, stream, used, list);
    if (!status)
        status = dnnl_stream_wait(stream);
    for (int i = 0; i < used; i++)
        if (memory[i])
            dnnl_memory_destroy(memory[i]);
    if (stream)
        dnnl_stream_destroy(stream);
    return status;
}

/* Where the rectangles of this column are computed: the last is moved back from the edge. */
static int64_t column_at(const onednn_job *job, int64_t column)
{
    int64_t n = column * job->product->key.cols;
    return n + job->product->key.cols <= job->o->n ? n : job->o->n - job->product->key.cols;
}

static const char *columns_of_b(const onednn_job *job, int64_t column)
{
    int64_t n = column_at(job, column), at = job->o->layout == MATMUL_NT ? n * job->o->ldb : n;
    return (const char *)job->o->b + (size_t)at * dtype_bytes(job->o->type);
}

/* Thread after thread, then behind those. */
static char *packed_columns(const onednn_job *job, int64_t column)
{
    int64_t i = column - job->first, threads = pool_threads(job->pool);
    const product *p = job->product;
    return (char *)pool_scratch(job->pool, (int)(i % threads)) + p->packed_at + (size_t)(i / threads) * bytes_of(p->packed);
}

static void pack_column(void *arg, int64_t tile, int thread)
{
    const onednn_job *job = arg;
    const product *p = job->product;
    int64_t column = job->first + tile;
    const argument arguments[] = {{DNNL_ARG_FROM, REF(p->matrix[1]), (void *)columns_of_b(job, column)},
                                  {DNNL_ARG_TO, p->packed, packed_columns(job, column)},
                                  {DNNL_ARG_SCRATCHPAD, p->pack_workspace, (char *)pool_scratch(job->pool, thread) + SUM_BYTES}};
    team_of_one();
    dnnl_status_t status = primitive_run(p->pack, 3, arguments);
    if (status)
        atomic_store(job->status, (int)status);
}

/* The sums (rows, cols) to the beginning of the scratch space. */
static dnnl_status_t product_run(const onednn_job *job, const void *a, int64_t column, char *scratch)
{
    const product *p = job->product;
    const argument arguments[] = {{DNNL_ARG_SRC, REF(p->matrix[0]), (void *)a},
                                  {DNNL_ARG_WEIGHTS, p->pack ? p->packed : REF(p->matrix[1]),
                                   p->pack ? packed_columns(job, column) : (void *)columns_of_b(job, column)},
                                  {DNNL_ARG_DST, REF(p->matrix[2]), scratch},
                                  {DNNL_ARG_SCRATCHPAD, p->workspace, scratch + SUM_BYTES}};
    return primitive_run(p->primitive, 4, arguments);
}

static void onednn_rectangle(void *arg, int64_t tile, int thread)
{
    const onednn_job *job = arg;
    const op_matmul *o = job->o;
    const product_key *key = &job->product->key;
    int64_t column = job->first + tile / job->down, m0 = tile % job->down * key->rows, n0 = column * key->cols;
    int64_t m = m0 + key->rows <= o->m ? m0 : o->m - key->rows, n = column_at(job, column); /* where the rectangle is computed */
    const char *a = (const char *)o->a + (size_t)(o->layout == MATMUL_TN ? m : m * o->lda) * dtype_bytes(o->type);
    float *sum = pool_scratch(job->pool, thread);
    team_of_one();
    int64_t rows = m + key->rows - m0, cols = n + key->cols - n0; /* what is new of it */
    dnnl_status_t status = product_run(job, a, column, (char *)sum);
    if (status)
        atomic_store(job->status, (int)status);
    else
        KERNEL_BEST(matmul_epilogue)(o, sum + (m0 - m) * key->cols + (n0 - n), key->cols, m0, rows, n0, cols);
}

static void job_run(onednn_job *job)
{
    const product *p = job->product;
    int64_t at_once = job->across;
    if (p->pack)
        at_once = (int64_t)((POOL_SCRATCH_BYTES - p->packed_at) / bytes_of(p->packed)) * pool_threads(job->pool);
    for (job->first = 0; job->first < job->across && !atomic_load(job->status); job->first += at_once) {
        int64_t columns = job->across - job->first < at_once ? job->across - job->first : at_once;
        if (p->pack)
            pool_run(job->pool, columns, pack_column, job);
        if (!atomic_load(job->status))
            pool_run(job->pool, columns * job->down, onednn_rectangle, job);
    }
}

static int product_failed(const op_matmul *o, dnnl_status_t status, pt_error *e)
{
    char name[48];
    onednn_name(name, sizeof name);
    return pt_fail(e, PT_FAILED, "%s could not compute a product of %lld x %lld x %lld: %s (status %d): end other programs or give a smaller "
                   "--device-memory, so that it has memory of its own", name, (long long)o->m, (long long)o->n, (long long)o->k,
                   status == dnnl_out_of_memory ? "out of memory" : "it reports an error", (int)status);
}

/* As many as make the rectangles compute least twice, and of those the most: by n, and by k where a column is to be packed. */
static int64_t cols_of(const op_matmul *o, bool packs)
{
    enum { STEP = 64, COLS_LEAST = 256 };
    int64_t n = o->n, best = n, least = INT64_MAX, most = COLS_MOST, fit = PACKED_BYTES / (o->k * (int64_t)dtype_bytes(o->type));
    if (packs && fit >= COLS_LEAST && fit < most)
        most = fit / STEP * STEP;
    for (int64_t cols = most; cols >= COLS_LEAST && n > most; cols -= STEP) {
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
    key.packs = o->layout == MATMUL_TN ? o->m >= WEIGHT_ROWS_PACKED : o->out_type == o->type; /* the head gives fp32 for bf16 */
    key.cols = cols_of(o, key.packs);
    product spare = {.usable = false};
    const product *found;
    dnnl_status_t status = product_find(&key, &spare, &found);
    if (status || !found->usable)
        return status ? product_failed(o, status, e) : 0;
    atomic_int failed = dnnl_success;
    onednn_job job = {o, p, found, (o->m + key.rows - 1) / key.rows, (o->n + key.cols - 1) / key.cols, 0, &failed};
    job_run(&job);
    product_drop(&spare);
    status = (dnnl_status_t)atomic_load(&failed);
    return status ? product_failed(o, status, e) : 1;
}

void onednn_name(char *out, size_t size)
{
    const dnnl_version_t *v = dnnl_version();
    snprintf(out, size, "oneDNN %d.%d.%d isa %#x", v->major, v->minor, v->patch, (unsigned)dnnl_get_effective_cpu_isa());
}
