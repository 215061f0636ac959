/* bench_matmul.c - matmuls of a training step, beside what the processor and oneDNN can do.
 *
 *     bench_matmul [threads [seconds per line [wall|cpu [ROWSxOUTxIN ...]]]]
 *
 * Per matmul (default: those of GPT-2 124M): GFLOP/s in fp32 and bf16 (median of repetitions), oneDNN's own
 * multi-threaded matmuls timed in turn with them, and the share of the peak: threads x the rate of a loop of
 * independent fma in registers, timed in turn as well, so that a shared machine is fair to all.
 * oneDNN's bf16 matmul is the faster of two: b as it lies, and b brought into oneDNN's own layout beforehand, which is not timed.
 * With `cpu` the clock is the CPU time of the process over the threads: what others take from the
 * processor does not count then, nor does a thread that has nothing to do.
 */
#include "huge_pages.h"

#include "base/rng.h"
#include "device/cpu/isa.h"
#include "device/cpu/ops.h"

#include <dlfcn.h>
#include <dnnl.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef struct shape { const char *name; int64_t rows, out, in; } shape; /* y (rows, out) = x (rows, in) . W^T */

static const shape SHAPES[] = {
    {"qkv", 2048, 2304, 768}, {"attention out", 2048, 768, 768}, {"mlp up", 2048, 3072, 768},
    {"mlp down", 2048, 768, 3072}, {"loss head", 512, 50257, 768}, {"one row", 1, 3072, 768}, {"4 rows", 4, 50257, 768}};
static const char *const PASSES[] = {"forward", "dgrad", "wgrad"};

static double clock_seconds(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* ---- the peak ------------------------------------------------------------------------------- */

/* Twelve independent chains keep two fma units of latency 4 to 6 busy. */
#define PEAK_FMA(n) "vfmadd231ps %%" REG "0, %%" REG "1, %%" REG #n "\n\t"
#define PEAK_ALL                                                                                       \
    PEAK_FMA(2) PEAK_FMA(3) PEAK_FMA(4) PEAK_FMA(5) PEAK_FMA(6) PEAK_FMA(7) PEAK_FMA(8) PEAK_FMA(9)    \
    PEAK_FMA(10) PEAK_FMA(11) PEAK_FMA(12) PEAK_FMA(13)
#define PEAK_CLOBBERS                                                                                  \
    "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13"
enum { PEAK_TURNS = 1 << 20, PEAK_CHAINS = 12 };

static void peak_tile(void *arg, int64_t tile, int thread)
{
    if (cpu_isa() == 4) {
        __asm__ volatile("vzeroall" ::: PEAK_CLOBBERS);
        for (int i = 0; i < PEAK_TURNS; i++) {
#define REG "zmm"
            __asm__ volatile(PEAK_ALL ::: PEAK_CLOBBERS);
#undef REG
        }
    } else {
        __asm__ volatile("vzeroall" ::: PEAK_CLOBBERS);
        for (int i = 0; i < PEAK_TURNS; i++) {
#define REG "ymm"
            __asm__ volatile(PEAK_ALL ::: PEAK_CLOBBERS);
#undef REG
        }
    }
}

/* ---- one line ------------------------------------------------------------------------------- */

/* oneDNN's matmul of all threads; b NULL: it has none. */
typedef struct library_matmul { dnnl_primitive_t primitive; dnnl_memory_t a, b, c; void *own_b; } library_matmul;

typedef struct line { op_matmul f32, bf16; const shape *s; int pass; pool *p; library_matmul plain, packed; } line;

static dnnl_engine_t engine;
static dnnl_stream_t stream;

/* Our threads have a processor each, and so must those of oneDNN's team: left to the system (Linux 6.18) two of them had half the rate,
 * as a thread that was woken stood in line behind the other, next to an idle processor. */
static cpu_set_t all_processors, own_processor;
static void stand_on(const cpu_set_t *set) { sched_setaffinity(0, sizeof *set, set); }

/* The caller's own first. */
static cpu_set_t processor(int index)
{
    cpu_set_t one;
    CPU_ZERO(&one);
    for (int i = 0; i < CPU_SETSIZE && index; i++)
        if (CPU_ISSET(i, &all_processors) && !CPU_ISSET(i, &own_processor) && --index == 0)
            CPU_SET(i, &one);
    return CPU_COUNT(&one) ? one : own_processor;
}

static void member_stands(void *arg)
{
    const cpu_set_t one = processor(((int (*)(void))arg)());
    stand_on(&one);
}

/* Our threads ask for teams of one; the primitive remembers the team that it was made for. */
static void team(int threads)
{
    void (*set_threads)(int) = (void (*)(int))dlsym(RTLD_DEFAULT, "omp_set_num_threads");
    if (set_threads)
        set_threads(threads);
}

/* The members of the team that comes next, the caller among them, on a processor each; where ours have none of their own, on all. */
static void team_stands(int threads)
{
    void (*parallel)(void (*)(void *), void *, unsigned, unsigned) =
        (void (*)(void (*)(void *), void *, unsigned, unsigned))dlsym(RTLD_DEFAULT, "GOMP_parallel");
    void *number = dlsym(RTLD_DEFAULT, "omp_get_thread_num");
    stand_on(&all_processors);
    team(threads);
    if (parallel && number && threads == CPU_COUNT(&all_processors))
        parallel(member_stands, number, (unsigned)threads, 0);
}

static void run_own_f32(const line *l) { cpu_matmul(l->p, &l->f32); }
static void run_own_bf16(const line *l) { cpu_matmul(l->p, &l->bf16); }
static void run_onednn_f32(const line *l)
{
    const op_matmul *o = &l->f32;
    dnnl_sgemm(o->layout == MATMUL_TN ? 'T' : 'N', o->layout == MATMUL_NT ? 'T' : 'N', o->m, o->n, o->k, 1.0f, o->a,
               o->lda, o->b, o->ldb, o->accumulate ? 1.0f : 0.0f, o->c, o->ldc);
}
static void run_library(const line *l, const library_matmul *x)
{
    dnnl_exec_arg_t arguments[] = {{DNNL_ARG_SRC, x->a}, {DNNL_ARG_WEIGHTS, x->b}, {DNNL_ARG_DST, x->c}};
    if (!x->b)
        return;
    dnnl_primitive_execute(x->primitive, stream, 3, arguments);
    dnnl_stream_wait(stream);
}
static void run_onednn_bf16(const line *l) { run_library(l, &l->plain); }
static void run_onednn_packed(const line *l) { run_library(l, &l->packed); }
static void run_peak(const line *l)
{
    pool_run(l->p, pool_threads(l->p), peak_tile, NULL);
}

enum { RUNS = 6, MOST = 400 };
static const struct { void (*run)(const line *); bool library; } RUN[RUNS] = {
    {run_own_f32, false}, {run_own_bf16, false}, {run_onednn_f32, true}, {run_onednn_bf16, true}, {run_onednn_packed, true},
    {run_peak, false}};

static void line_time(const line *l, double seconds, bool cpu, double median[RUNS])
{
    clockid_t clock = cpu ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC;
    double share = cpu ? 1.0 / pool_threads(l->p) : 1.0;
    static double times[RUNS][MOST];
    int n = 0;
    double start = clock_seconds(CLOCK_MONOTONIC);
    while (n < 6 || (n < MOST && clock_seconds(CLOCK_MONOTONIC) - start < seconds)) {
        for (int i = 0; i < RUNS; i++) {
            if (RUN[i].library)
                team_stands(pool_threads(l->p));
            double t = clock_seconds(clock);
            RUN[i].run(l);
            times[i][n] = (clock_seconds(clock) - t) * share;
            if (RUN[i].library)
                stand_on(&own_processor);
        }
        n++;
    }
    for (int i = 0; i < RUNS; i++) {
        qsort(times[i] + 1, (size_t)n - 1, sizeof **times, compare); /* the first warms up */
        median[i] = times[i][1 + (n - 2) / 2];
    }
}

static op_matmul op_of(const shape *s, int pass, pt_dtype type, void *x, void *w, void *y, float *dw)
{
    op_matmul o = {.layout = (matmul_layout)pass, .type = type, .out_type = type};
    if (pass == MATMUL_NT)
        o.m = s->rows, o.n = s->out, o.k = s->in, o.a = x, o.b = w, o.c = y, o.lda = s->in, o.ldb = s->in, o.ldc = s->out;
    else if (pass == MATMUL_NN)
        o.m = s->rows, o.n = s->in, o.k = s->out, o.a = y, o.b = w, o.c = x, o.lda = s->out, o.ldb = s->in, o.ldc = s->in;
    else
        o.m = s->out, o.n = s->in, o.k = s->rows, o.a = y, o.b = x, o.c = dw, o.lda = s->out, o.ldb = s->in,
        o.ldc = s->in, o.out_type = PT_F32, o.accumulate = true;
    return o;
}

/* ---- oneDNN's matmuls (2.5 and later, 3.x) ------------------------------------------------- */

#if DNNL_VERSION_MAJOR >= 3
typedef dnnl_memory_desc_t desc;
typedef const_dnnl_memory_desc_t desc_ref;
#define REF(d) (d)
static void desc_strided(desc *d, dnnl_data_type_t t, int64_t m, int64_t n, int64_t down, int64_t across)
{
    dnnl_memory_desc_create_with_strides(d, 2, (dnnl_dims_t){m, n}, t, (dnnl_dims_t){down, across});
}
static void desc_any(desc *d, dnnl_data_type_t t, int64_t m, int64_t n)
{
    dnnl_memory_desc_create_with_tag(d, 2, (dnnl_dims_t){m, n}, t, dnnl_format_tag_any);
}
static dnnl_status_t matmul_desc(dnnl_primitive_desc_t *out, const desc d[3])
{
    return dnnl_matmul_primitive_desc_create(out, engine, d[0], d[1], NULL, d[2], NULL);
}
#else
typedef dnnl_memory_desc_t desc;
typedef const dnnl_memory_desc_t *desc_ref;
#define REF(d) (&(d))
static void desc_strided(desc *d, dnnl_data_type_t t, int64_t m, int64_t n, int64_t down, int64_t across)
{
    dnnl_memory_desc_init_by_strides(d, 2, (dnnl_dims_t){m, n}, t, (dnnl_dims_t){down, across});
}
static void desc_any(desc *d, dnnl_data_type_t t, int64_t m, int64_t n)
{
    dnnl_memory_desc_init_by_tag(d, 2, (dnnl_dims_t){m, n}, t, dnnl_format_tag_any);
}
static dnnl_status_t matmul_desc(dnnl_primitive_desc_t *out, const desc d[3])
{
    dnnl_matmul_desc_t matmul;
    dnnl_status_t status = dnnl_matmul_desc_init(&matmul, &d[0], &d[1], NULL, &d[2]);
    return status ? status : dnnl_primitive_desc_create(out, &matmul, NULL, engine, NULL);
}
#endif

/* b as it lies brought into the layout of `to`. */
static void library_pack(desc_ref from, desc_ref layout, const void *b, dnnl_memory_t to)
{
    dnnl_primitive_desc_t made;
    dnnl_primitive_t reorder;
    dnnl_memory_t source;
    if (dnnl_reorder_primitive_desc_create(&made, from, engine, layout, engine, NULL) || dnnl_primitive_create(&reorder, made))
        exit(1);
    dnnl_memory_create(&source, from, engine, (void *)b);
    dnnl_exec_arg_t arguments[] = {{DNNL_ARG_FROM, source}, {DNNL_ARG_TO, to}};
    dnnl_primitive_execute(reorder, stream, 2, arguments);
    dnnl_stream_wait(stream);
    dnnl_memory_destroy(source);
    dnnl_primitive_destroy(reorder);
    dnnl_primitive_desc_destroy(made);
}

/* The bf16 op as one call for all threads, which does not add to c. */
static library_matmul library_make(const op_matmul *o, int threads, bool packed)
{
    library_matmul x = {NULL};
    bool tn = o->layout == MATMUL_TN, nt = o->layout == MATMUL_NT;
    desc d[3];
    dnnl_primitive_desc_t made;
    team(threads);
    desc_strided(&d[0], dnnl_bf16, o->m, o->k, tn ? 1 : o->lda, tn ? o->lda : 1);
    desc_strided(&d[1], dnnl_bf16, o->k, o->n, nt ? 1 : o->ldb, nt ? o->ldb : 1);
    desc_strided(&d[2], o->out_type == PT_BF16 ? dnnl_bf16 : dnnl_f32, o->m, o->n, o->ldc, 1);
    desc plain = d[1];
    if (packed)
        desc_any(&d[1], dnnl_bf16, o->k, o->n);
    if (matmul_desc(&made, d) || dnnl_primitive_create(&x.primitive, made))
        return x;
    desc_ref b = dnnl_primitive_desc_query_md(made, dnnl_query_weights_md, 0);
    dnnl_memory_create(&x.a, REF(d[0]), engine, (void *)o->a);
    dnnl_memory_create(&x.c, REF(d[2]), engine, o->c);
    x.own_b = packed ? huge_pages(dnnl_memory_desc_get_size(b)) : NULL;
    dnnl_memory_create(&x.b, b, engine, packed ? x.own_b : (void *)o->b);
    if (packed)
        library_pack(REF(plain), b, o->b, x.b);
    return x;
}

static void library_drop(library_matmul *x)
{
    dnnl_memory_t memories[] = {x->a, x->b, x->c};
    for (int i = 0; i < 3; i++)
        if (memories[i])
            dnnl_memory_destroy(memories[i]);
    if (x->primitive)
        dnnl_primitive_destroy(x->primitive);
    free(x->own_b);
}

static void *fill(pt_dtype type, int64_t n)
{
    void *p = huge_pages((size_t)n * dtype_bytes(type));
    for (int64_t i = 0; i < n; i++) {
        float x = (float)((i * 2654435761u) % 4096) / 4096.0f - 0.5f;
        if (type == PT_BF16)
            ((bf16 *)p)[i] = bf16_from_f32(x);
        else
            ((float *)p)[i] = x;
    }
    return p;
}

static void shape_bench(const shape *s, pool *p, double seconds, bool cpu)
{
    int64_t nx = s->rows * s->in, nw = s->out * s->in, ny = s->rows * s->out;
    void *x = fill(PT_F32, nx), *w = fill(PT_F32, nw), *y = fill(PT_F32, ny);
    void *hx = fill(PT_BF16, nx), *hw = fill(PT_BF16, nw), *hy = fill(PT_BF16, ny);
    float *dw = fill(PT_F32, nw);
    for (int pass = 0; pass < (s->rows < 16 ? 1 : 3); pass++) {
        line l = {op_of(s, pass, PT_F32, x, w, y, dw), op_of(s, pass, PT_BF16, hx, hw, hy, dw), s, pass, p, {NULL}, {NULL}};
        if (cpu_has_bf16()) {
            l.plain = library_make(&l.bf16, pool_threads(p), false);
            l.packed = library_make(&l.bf16, pool_threads(p), true);
        }
        double t[RUNS];
        line_time(&l, seconds, cpu, t);
        double library = l.packed.b && t[4] < t[3] ? t[4] : t[3];
        library_drop(&l.plain);
        library_drop(&l.packed);
        double flop = 2.0 * (double)s->rows * (double)s->out * (double)s->in / 1e9;
        double peak = 2.0 * PEAK_CHAINS * (cpu_isa() == 4 ? 16 : 8) * PEAK_TURNS * pool_threads(p) / 1e9 / t[5];
        printf("%-14s %5lld x %6lld x %5lld  %-8s %9.1f %4.0f%% %9.1f %4.0f%% %9.1f %4.0f%% %9.1f %4.0f%% %9.1f\n", s->name,
               (long long)s->rows, (long long)s->out, (long long)s->in, PASSES[pass], flop / t[0], 100 * flop / t[0] / peak,
               flop / t[1], 100 * flop / t[1] / peak, flop / t[2], 100 * flop / t[2] / peak,
               l.plain.b ? flop / library : 0.0, l.plain.b ? 100 * flop / library / peak : 0.0, peak);
        fflush(stdout);
    }
    free(x), free(w), free(y), free(hx), free(hw), free(hy), free(dw);
}

int main(int argc, char **argv)
{
    if (!getenv("OMP_WAIT_POLICY")) { /* else oneDNN's idle threads spin in the time of the others */
        setenv("OMP_WAIT_POLICY", "passive", 1);
        execv("/proc/self/exe", argv);
    }
    int threads = argc > 1 ? atoi(argv[1]) : 2;
    double seconds = argc > 2 ? atof(argv[2]) : 2.0;
    bool cpu = argc > 3 && !strcmp(argv[3], "cpu");
    pt_error e = {0};
    pool *p;
    if (cpu_isa() < 3 || threads < 1 || threads > 256 || pool_open(threads, &p, &e)) {
        fprintf(stderr, "bench_matmul [threads [seconds [wall|cpu [ROWSxOUTxIN ...]]]]: needs AVX2 and 1 to 256 threads; %s\n", e.text);
        return 1;
    }
    sched_getaffinity(0, sizeof all_processors, &all_processors);
    pool_spread(p);
    sched_getaffinity(0, sizeof own_processor, &own_processor);
    dnnl_engine_create(&engine, dnnl_cpu, 0);
    dnnl_stream_create(&stream, engine, dnnl_stream_default_flags);
    const dnnl_version_t *v = dnnl_version();
    printf("x86-64-v%d%s, oneDNN %d.%d.%d isa %#x, %d threads; GFLOP/s and %% of the peak of fp32 fma\n", cpu_isa(),
           cpu_has_amx() ? " amx" : cpu_gains_by_bf16() ? " bf16" : "", v->major, v->minor, v->patch,
           (unsigned)dnnl_get_effective_cpu_isa(), threads);
    printf("%-14s %5s   %6s   %5s  %-8s %9s %5s %9s %5s %9s %5s %9s %5s %9s\n", "matmul", "rows", "out", "in", "pass", "fp32",
           "", "bf16", "", "oneDNN32", "", "oneDNN16", "", "peak");
    for (size_t i = 0; i < sizeof SHAPES / sizeof *SHAPES && argc < 5; i++)
        shape_bench(&SHAPES[i], p, seconds, cpu);
    for (int i = 4; i < argc; i++) {
        shape s = {"-", 0, 0, 0};
        char end;
        if (sscanf(argv[i], "%" SCNd64 "x%" SCNd64 "x%" SCNd64 "%c", &s.rows, &s.out, &s.in, &end) != 3 || s.rows < 1 || s.out < 1 ||
            s.in < 1) {
            fprintf(stderr, "bench_matmul: %s is no ROWSxOUTxIN\n", argv[i]);
            return 1;
        }
        shape_bench(&s, p, seconds, cpu);
    }
    pool_close(p);
    return 0;
}
