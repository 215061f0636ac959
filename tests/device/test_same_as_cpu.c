/* Rounding gradients and updates: the device under test has the CPU's bits, so that it does not matter who updates a
 * chunk. (A test of the CPU against itself where no other device is named.) */
#include "device/reference.h"

#include "model/shape.h"

static void run_on(queue *q, const op *o)
{
    pt_error e = {0};
    queue_submit(q, o);
    if (queue_sync(q, queue_signal(q), &e))
        fail_msg("%s", e.text);
}

static device *cpu;
static queue *cpu_queue;

static int open_cpu(void **state)
{
    pt_error e;
    if (group_setup(state) || device_cpu_open(&(device_options){.threads = 1}, &cpu, &e))
        return -1;
    return cpu->table->queue_open(cpu, "cpu", 1, &cpu_queue, &e);
}

static int close_cpu(void **state)
{
    cpu->table->queue_close(cpu_queue);
    cpu->table->close(cpu);
    return group_teardown(state);
}

/* Of every exponent, both signs. */
static float *random_floats(int64_t n, int least, int most)
{
    float *x = test_alloc((size_t)n * sizeof *x);
    uint32_t stream = the_test.stream++;
    for (int64_t i = 0; i < n; i++) {
        double u = rng_uniform(the_test.seed, RNG_TEST, stream, (uint64_t)i);
        double sign = rng_uniform(the_test.seed, RNG_TEST, stream + (1u << 30), (uint64_t)i) < 0.5 ? -1 : 1;
        x[i] = (float)(sign * exp2(least + (most - least) * u));
    }
    return x;
}

static void gradients_and_their_sums_of_squares(void **state)
{
    for (int turn = 0; turn < 40; turn++) {
        pt_dtype type = types[turn & 1];
        int64_t rows = 1 + random_below(400), cols = 1 + random_below(turn & 2 ? 3000 : 40), parts = (rows + SUMSQ_ROWS - 1) / SUMSQ_ROWS;
        size_t bytes = (size_t)(rows * cols) * dtype_bytes(type), sums = (size_t)parts * sizeof(double);
        float *acc = random_floats(rows * cols, -60, 20), *acc2 = turn & 4 ? random_floats(rows * cols, -60, 20) : NULL;
        op_gradient_finish want = {type, rows, cols, acc, acc2, test_alloc(bytes), test_alloc(sums), NULL}, got = want;
        got.g = test_alloc(bytes), got.sumsq = test_alloc(sums);
        run_on(cpu_queue, &(op){OP_GRADIENT_FINISH, .gradient_finish = want});
        run_op(1 + turn % TEST_THREADS, &(op){OP_GRADIENT_FINISH, .gradient_finish = got});
        same_bits(want.g, got.g, bytes, "g");
        same_bits(want.sumsq, got.sumsq, sums, "sumsq");
        test_teardown(NULL);
    }
}

static void adamw_over_all_magnitudes(void **state)
{
    for (int turn = 0; turn < 40; turn++) {
        pt_dtype type = types[turn & 1];
        int64_t n = 1 + random_below(20000);
        size_t bytes = (size_t)n * sizeof(float);
        float *w = random_floats(n, -140, 20), *m = random_floats(n, -140, 10), *v = random_floats(n, -149, 10);
        bf16 *hi = test_alloc((size_t)n * 2), *g = test_alloc((size_t)n * 2);
        uint16_t *lo = test_alloc((size_t)n * 2);
        float *gradient = random_floats(n, -140, 10);
        for (int64_t i = 0; i < n; i++) {
            v[i] = fabsf(v[i]);
            master_split(w[i], &hi[i], &lo[i]);
            g[i] = bf16_from_f32(gradient[i]);
        }
        bool half = type == PT_BF16;
        op_adamw want = {type, n, half ? (void *)hi : w, half ? lo : NULL, m, v, half ? (void *)g : gradient, 0.37f,
                         1 - 3e-4f * 0.1f, 0.9f, 0.999f, 1e-8f, 3e-4f / 0.1f, .sqrt_correction2 = 0.0316f}, got = want;
        got.hi = test_copy(want.hi, (size_t)n * dtype_bytes(type));
        got.lo = half ? test_copy(lo, (size_t)n * 2) : NULL;
        got.m = test_copy(m, bytes), got.v = test_copy(v, bytes);
        for (int step = 0; step < 3; step++) {
            run_on(cpu_queue, &(op){OP_ADAMW, .adamw = want});
            run_op(1 + turn % TEST_THREADS, &(op){OP_ADAMW, .adamw = got});
        }
        same_bits(want.hi, got.hi, (size_t)n * dtype_bytes(type), "weights");
        if (half)
            same_bits(want.lo, got.lo, (size_t)n * 2, "low halves");
        same_bits(want.m, got.m, bytes, "m");
        same_bits(want.v, got.v, bytes, "v");
        test_teardown(NULL);
    }
}

/* All of Muon's but matmuls; a matrix's moments of any size, in rows that are no whole vectors. */
typedef struct muon_case { pt_dtype type; int64_t rows, cols; void *hi, *g; uint16_t *lo, *x; float *m, *s; double *sums; } muon_case;

static muon_case muon_copy(const muon_case *c)
{
    const size_t n = (size_t)(c->rows * c->cols);
    muon_case y = *c;
    y.hi = test_copy(c->hi, n * dtype_bytes(c->type));
    y.lo = test_copy(c->lo, n * 2);
    y.m = test_copy(c->m, n * 4);
    y.x = test_alloc(n * 2);
    y.sums = test_alloc((size_t)muon_sums((int64_t)n) * sizeof *y.sums);
    return y;
}

static void muon_run(const muon_case *c, int threads)
{
    const int64_t n = c->rows * c->cols;
    const op all[] = {
        {OP_MUON_MOMENTUM, .muon_momentum = {c->type, n, c->g, c->m, c->x, c->sums, 0.37f, 0.95f}},
        {OP_MUON_SCALE, .muon_scale = {n, c->x, c->sums, 1e-7f}},
        {OP_MUON_COMBINE, .muon_combine = {c->rows, c->cols - 1, c->cols, c->cols, c->cols, c->x, c->s, c->x, 3.4445f, 1}},
        {OP_MUON_APPLY, .muon_apply = {c->type, n, c->hi, c->type == PT_BF16 ? c->lo : NULL, c->x, 0.99f, 0.02f}}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        threads ? run_op(threads, &all[i]) : run_on(cpu_queue, &all[i]);
}

static void muons_passes_over_a_matrix(void **state)
{
    for (int turn = 0; turn < 40; turn++) {
        muon_case want = {.type = types[turn & 1], .rows = 1 + random_below(150), .cols = 2 + random_below(200)};
        const int64_t n = want.rows * want.cols;
        float *w = random_floats(n, -40, 20), *g = random_floats(n, -60, 10);
        bf16 *hi = test_alloc((size_t)n * 2), *halves = test_alloc((size_t)n * 2);
        want.lo = test_alloc((size_t)n * 2);
        want.m = random_floats(n, -60, 10);
        want.s = random_floats(n, -40, 4);
        for (int64_t i = 0; i < n; i++) {
            master_split(w[i], &hi[i], &want.lo[i]);
            halves[i] = bf16_from_f32(g[i]);
        }
        want.hi = want.type == PT_BF16 ? (void *)hi : w;
        want.g = want.type == PT_BF16 ? (void *)halves : g;
        want = muon_copy(&want);
        muon_case got = muon_copy(&want);
        muon_run(&want, 0);
        muon_run(&got, 1 + turn % TEST_THREADS);
        same_bits(want.sums, got.sums, (size_t)muon_sums(n) * sizeof(double), "sums");
        same_bits(want.m, got.m, (size_t)n * 4, "momentum");
        same_bits(want.x, got.x, (size_t)n * 2, "x");
        same_bits(want.hi, got.hi, (size_t)n * dtype_bytes(want.type), "weights");
        if (want.type == PT_BF16)
            same_bits(want.lo, got.lo, (size_t)n * 2, "low halves");
        test_teardown(NULL);
    }
}

/* ---- optimizers that keep little ---- */

/* All memory of one update lies in one block, so that a copy of it can be updated, too. */
enum { LITTLE_ARRAYS = 8 };
typedef struct little { pt_dtype type; int64_t rows, cols, rank; size_t at[LITTLE_ARRAYS], bytes; char *memory; } little;
enum little_array { WEIGHTS, LOW, GRADIENT, MOMENTS, SECONDS, FACTORS, SUMS, MATRIX };

static float *floats_of(const little *c, enum little_array a, int64_t skip) { return (float *)(c->memory + c->at[a]) + skip; }

static little little_open(int turn)
{
    little c = {.type = types[turn & 1], .rows = 1 + random_below(150), .cols = 1 + random_below(150)};
    c.rank = 1 + random_below((int)(c.rows < c.cols ? c.rows : c.cols));
    const int64_t n = c.rows * c.cols, sides = c.rows + c.cols;
    const int64_t floats[LITTLE_ARRAYS] = {n, n, n, n, n, 4 * sides + (factor_blocks(c.rows) + 1) * c.cols, 4 * sides + 8, 3 * n};
    for (int i = 0; i < LITTLE_ARRAYS; i++) {
        c.at[i] = c.bytes;
        c.bytes += align_up((size_t)floats[i] * 4, 64);
    }
    c.memory = memset(test_alloc(c.bytes), 0, c.bytes);
    float *w = random_floats(n, -40, 20), *g = random_floats(n, -30, 10), *m = random_floats(n, -60, 10);
    for (int64_t i = 0; i < n; i++) {
        master_split(w[i], (bf16 *)(c.memory + c.at[WEIGHTS]) + i, (uint16_t *)(c.memory + c.at[LOW]) + i);
        ((bf16 *)(c.memory + c.at[GRADIENT]))[i] = bf16_from_f32(g[i]);
        *floats_of(&c, MOMENTS, i) = m[i];
        *floats_of(&c, SECONDS, i) = fabsf(m[i]);
    }
    if (c.type == PT_F32) {
        memcpy(c.memory + c.at[WEIGHTS], w, (size_t)n * 4);
        memcpy(c.memory + c.at[GRADIENT], g, (size_t)n * 4);
    }
    return c;
}

/* Adafactor's ops, then those of few dimensions on what they left, then Adam by rows. */
static void little_run(const little *c, int threads, int turn)
{
    char *const hi = c->memory + c->at[WEIGHTS], *const g = c->memory + c->at[GRADIENT];
    uint16_t *lo = c->type == PT_BF16 ? (uint16_t *)(c->memory + c->at[LOW]) : NULL;
    double *sums = (double *)(c->memory + c->at[SUMS]);
    float *row = floats_of(c, FACTORS, 0), *col = row + c->rows, *row_factor = col + c->cols, *col_factor = row_factor + c->rows;
    float *limit = col_factor + c->cols, *last = limit + 2, *partial = last + 2;
    float *m = floats_of(c, MOMENTS, 0), *v = floats_of(c, SECONDS, 0);
    float *r = floats_of(c, MATRIX, 0), *noise = r + c->rows * c->cols, *out = noise + c->rows * c->cols;
    const bool by_rows = c->rows >= c->cols, together = turn & 2;
    const int64_t channels = by_rows ? c->rows : c->cols, small = by_rows ? c->cols : c->rows;
    double *given = sums + channels;
    const float *rows_by = by_rows ? row_factor : NULL, *cols_by = by_rows ? NULL : col_factor;
    uint8_t *codes = (uint8_t *)r;
    const int64_t n = c->rows * c->cols;
    float *scale = r + (2 * n + 3) / 4;
    const op all[] = {
        {OP_FACTOR_SUMS, .factor_sums = {c->type, c->rows, c->cols, g, 0.37f, 0.6f, 1e-30f, row, partial}},
        {OP_FACTOR_FOLD, .factor_fold = {c->rows, c->cols, row, partial, 0.6f, 1e-30f, col, row_factor, col_factor}},
        {OP_SCALED_SQUARES, .scaled_squares = {c->type, c->rows, c->cols, g, 0.37f, row_factor, col_factor, sums}},
        {OP_MASTER_SQUARES, .master_squares = {c->type, c->rows, c->cols, hi, lo, given}},
        {OP_UPDATE_LIMIT, .update_limit = {LIMIT_RMS, c->rows, c->rows * c->cols, sums, given, 1e-3f, 0.1f, 0.5f, 1e-3f, NULL, limit}},
        {OP_SCALED_APPLY, .scaled_apply = {c->type, c->type, c->rows, c->cols, hi, lo, g, 0.37f, row_factor, col_factor, limit}},
        {OP_RANDOM_MATRIX, .random_matrix = {PT_F32, channels * c->rank, 5, (uint32_t)turn, 3, r}},
        {OP_RANDOM_MATRIX, .random_matrix = {PT_F32, small * c->rank, (uint64_t)turn << 40, 7, (uint32_t)turn, noise}},
        {OP_LOW_MOMENTS, .low_moments = {channels, c->rank, by_rows, r, 0.1f, 0.9f, 0.99f, 1e-8f, m, v, r, sums, given}},
        {OP_CHANNEL_SCALE, .channel_scale = {channels, together, sums, given, by_rows ? row_factor : col_factor}},
        {OP_SCALED_SQUARES, .scaled_squares = {c->type, c->rows, c->cols, g, 1, rows_by, cols_by, sums}},
        {OP_UPDATE_LIMIT, .update_limit = {LIMIT_GROWTH, c->rows, 1, sums, NULL, 1e-3f, 0.1f, 1.01f, 0, last, limit}},
        {OP_UPDATE_LIMIT, .update_limit = {LIMIT_GROWTH, c->rows / 2, 1, sums, NULL, 1e-3f, 0.1f, 1.01f, 0, last, limit}},
        {OP_SCALED_APPLY, .scaled_apply = {c->type, PT_F32, c->rows, c->cols, hi, lo, m, 1, NULL, col_factor, limit}},
        {OP_ORTHONORMAL, .orthonormal = {c->rank, small, m, noise, out}},
        {OP_RANDOM_MATRIX, .random_matrix = {c->type, channels * c->rank, 5, 6, 3, r}},
        {OP_ROW_ADAM, .row_adam = {c->type, c->rows, c->cols, hi, lo, g, 0.5f, m, row, 0.99f, 0.9f, 1e-8f, 1e-3f, 0.9f}},
        {OP_MOMENT_CODES, .moment_codes = {true, n, m, v, codes, codes + n, scale}},
        {OP_MOMENT_CODES, .moment_codes = {false, n, m, v, codes, codes + n, scale}}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        threads ? run_op(threads, &all[i]) : run_on(cpu_queue, &all[i]);
}

static void optimizers_that_keep_little(void **state)
{
    for (int turn = 0; turn < 40; turn++) {
        little want = little_open(turn), got = want;
        got.memory = test_copy(want.memory, want.bytes);
        little_run(&want, 0, turn);
        little_run(&got, 1 + turn % TEST_THREADS, turn);
        same_bits(want.memory, got.memory, want.bytes, "memory of the update");
        test_teardown(NULL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {OP_TEST(gradients_and_their_sums_of_squares), OP_TEST(adamw_over_all_magnitudes),
                                       OP_TEST(muons_passes_over_a_matrix), OP_TEST(optimizers_that_keep_little)};
    return cmocka_run_group_tests(tests, open_cpu, close_cpu);
}
