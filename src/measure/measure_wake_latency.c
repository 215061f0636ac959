/* measure_wake_latency.c - the wake-up latency: the time that arithmetic loses after a pause.
 *
 *   pause        nothing runs
 *   first half   as many matmuls as take HALF_NS at full speed
 *   second half  the same again; the difference is the time lost
 *
 * On two Intel cores with AMX, bf16 matmuls take two to three times as long for the first 2 ms after 100 ms without one, whether the
 * processor slept, spun or read memory meanwhile. If the weights exceed the second-level cache, as in a step, this lasts about 8 ms.
 * Updates lose almost nothing. So a pause starts at the end of the last matmul, whatever else ran since. */
#include "measure/measure_parts.h"

#include <math.h>
#include <time.h>

enum { HALF_NS = 8000000, TRIES = 3, PRODUCTS_MOST = 4096, SETS = 16 };
static const int64_t pauses_ns[] = {1000000, 8000000, 64000000};
enum { PAUSES = sizeof pauses_ns / sizeof *pauses_ns };

static void rest(int64_t ns)
{
    nanosleep(&(struct timespec){.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000}, NULL);
}

static int run_halves(queue *q, timed_matmul *y, int n, double half[2], pt_error *e)
{
    int64_t at[3] = {0};
    queue_mark(q, &at[0]);
    for (int i = 0; i < 2 * n; i++) {
        timed_matmul_run(q, y, 0, i);
        if (i + 1 == n)
            queue_mark(q, &at[1]);
    }
    queue_mark(q, &at[2]);
    int failed = queue_sync(q, queue_signal(q), e);
    half[0] = (double)(at[1] - at[0]);
    half[1] = (double)(at[2] - at[1]);
    return failed;
}

/* Measures after each of the pauses in turn, and only once if nothing is lost. */
static int run_pauses(queue *q, timed_matmul *y, int n, samples lost[PAUSES], pt_error *e)
{
    const double nothing = HALF_NS / 16.0;
    double most = 0;
    for (int try = 0; try < TRIES && (try != 1 || most > nothing); try++)
        for (int i = 0; i < PAUSES; i++) {
            double half[2];
            rest(pauses_ns[i]);
            int failed = run_halves(q, y, n, half, e);
            if (failed)
                return failed;
            samples_add(&lost[i], half[0] - half[1]);
            most = fmax(most, half[0] - half[1]);
        }
    return 0;
}

/* The number of matmuls that take HALF_NS at full speed, from a few that take long enough to be timed. */
static int matmuls_of_half(queue *q, timed_matmul *y, int *n, pt_error *e)
{
    double half[2] = {0};
    int few = 2, failed = run_halves(q, y, few, half, e);
    while (!failed && half[1] < HALF_NS / 4.0 && few < 32)
        failed = run_halves(q, y, few *= 4, half, e);
    if (!failed)
        failed = run_halves(q, y, few, half, e); /* earlier runs may not have reached full speed */
    double most = HALF_NS / fmax(half[1] / few, 1);
    *n = most < 1 ? 1 : most > PRODUCTS_MOST ? PRODUCTS_MOST : (int)most;
    return failed;
}

int measure_wake_latency(bench *b, cost_curve *out, pt_error *e)
{
    const int64_t small = 16 << 20;
    timed_matmul y = {.shape = b->r->shape, .rows = timed_matmul_rows(b->r), .k = 1024, .sets = SETS};
    samples lost[PAUSES] = {0};
    area a;
    int n;
    out->n = 0;
    if (links_bytes(b->r->model) < (uint64_t)small || device_is_gpu(b->r->device))
        return 0;
    bench_progress(b, "measuring pauses", 0, 1);
    for (; y.k > 64 && area_bytes(b, timed_matmul_layout, &y) > b->r->budget[TIER_DEVICE]; y.sets = y.sets > 1 ? y.sets / 2 : 1)
        y.k /= y.sets > 1 ? 1 : 2;
    int failed = area_open(b, TIER_DEVICE, &a, "a matmul", timed_matmul_layout, &y, e);
    if (failed)
        return failed;
    failed = matmuls_of_half(b->compute, &y, &n, e);
    if (!failed)
        failed = run_pauses(b->compute, &y, n, lost, e);
    area_close(&a);
    curve_add(out, 1, 0);
    for (int i = 0; i < PAUSES && !failed; i++)
        curve_add(out, (double)pauses_ns[i], fmax(b->compute->disturbed ? samples_least(&lost[i]) : samples_median(&lost[i]), 0));
    return failed;
}
