/* Muon: what torch.optim.Muon computes, as near to exact arithmetic as that; each tensor of a parameter by itself; large matrices in
 * slices. */
#include "device/reference.h"

#include "base/json.h"
#include "io/safetensors.h"
#include "optimizer/optimizer.h"

/* ---- one matrix ---- */

typedef struct matrix { param param; pt_dtype type; int64_t n; float *w, *momentum, *g; bf16 *hi; uint16_t *lo; char *workspace; } matrix;

/* Parts of so many rows each, stored as said; its momentum is zero. */
static matrix matrix_make(pt_dtype type, const int64_t *rows, int parts, int64_t cols, bool transposed)
{
    matrix m = {.param = {.role = PARAM_QKV, .kind = param_kind_of(PARAM_QKV), .cols = cols, .decay = true, .trainable = true,
                          .parts = parts, .part = test_alloc((size_t)parts * sizeof(param_part))}, .type = type};
    for (int i = 0; i < parts; i++) {
        m.param.part[i] = (param_part){.row0 = m.param.rows, .rows = rows[i], .transposed = transposed};
        m.param.rows += rows[i];
    }
    m.n = m.param.rows * cols;
    m.w = test_alloc((size_t)m.n * 4);
    m.g = test_alloc((size_t)m.n * 4);
    m.momentum = memset(test_alloc((size_t)m.n * 4), 0, (size_t)m.n * 4);
    m.hi = test_alloc((size_t)m.n * 2);
    m.lo = test_alloc((size_t)m.n * 2);
    m.workspace = test_alloc(rule_workspace(optimizer_muon.rule_of(&m.param), &m.param) + 64);
    m.workspace += -(uintptr_t)m.workspace % 64;
    return m;
}

static void matrix_update(matrix *m, int threads, const update_params *p)
{
    const update_rule *r = optimizer_muon.rule_of(&m->param);
    const bool half = m->type == PT_BF16;
    pt_error e = {0};
    for (int64_t i = 0; i < m->n && half; i++)
        master_split(m->w[i], &m->hi[i], &m->lo[i]);
    bf16 *g = test_alloc((size_t)m->n * 2);
    for (int64_t i = 0; i < m->n; i++)
        g[i] = bf16_from_f32(m->g[i]);
    update u = {.params = p, .param = &m->param, .type = m->type, .n = m->n, .hi = half ? (void *)m->hi : m->w, .lo = half ? m->lo : NULL,
                .g = half ? (void *)g : m->g, .slab = {m->momentum}, .workspace = m->workspace};
    queue *q = the_test.queues[threads];
    r->submit(q, &u);
    assert_int_equal(queue_sync(q, queue_signal(q), &e), 0);
    for (int64_t i = 0; i < m->n && half; i++)
        m->w[i] = master_join(m->hi[i], m->lo[i]);
}

static update_params params(double lr, double weight_decay, double momentum, lr_adjust adjust)
{
    return (update_params){.lr = (float)lr, .weight_decay = (float)weight_decay, .momentum = (float)momentum, .grad_scale = 1, .step = 1,
                           .lr_adjust = adjust};
}

static double distance(const float *a, const float *b, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
    return sqrt(sum);
}

/* ---- torch ---- */

static float *stored(const safetensors *st, const char *name, const char *what, int64_t shape[3])
{
    char full[64];
    pt_error e = {0};
    snprintf(full, sizeof full, "%s.%s", name, what);
    const safetensors_tensor *t = safetensors_find(st, full);
    assert_non_null(t);
    float *v = test_alloc(t->elements * sizeof *v);
    assert_int_equal(safetensors_read_f32(st, t, 0, t->elements, v, &e), 0);
    memcpy(shape, t->shape, (size_t)t->rank * sizeof *shape);
    return v;
}

/* To and from the way in which parameters lie here. */
static void turn(const float *from, int64_t rows, int64_t cols, bool transposed, float *to)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t k = 0; k < cols; k++)
            to[transposed ? k * rows + r : r * cols + k] = from[r * cols + k];
}

static lr_adjust adjust_of(const json_t *c)
{
    static const char *const names[] = {"original", "match_rms_adamw", "spectral_unclamped"};
    const char *name = json_string_value(json_object_get(c, "adjust_lr_fn"));
    int i = 0;
    while (strcmp(name, names[i]))
        i++;
    return (lr_adjust)i;
}

/* Ours may be as far from exact arithmetic as PyTorch's, and half of that more. */
static void check_case(const safetensors *st, const char *name, const json_t *c, bool transposed)
{
    int64_t size[3], steps[3];
    const float *start = stored(st, name, "weight", size), *grads = stored(st, name, "grad", steps);
    const float *after = stored(st, name, "after", steps), *exact = stored(st, name, "exact", steps),
        *last = stored(st, name, "momentum", size);
    const int64_t rows = size[0], cols = size[1], n = rows * cols, here = transposed ? cols : rows;
    matrix m = matrix_make(PT_F32, &here, 1, n / here, transposed);
    const update_params p = params(json_number_value(json_object_get(c, "lr")), json_number_value(json_object_get(c, "weight_decay")),
                                   json_number_value(json_object_get(c, "momentum")), adjust_of(c));
    float *w = test_alloc((size_t)n * 4);
    turn(start, rows, cols, transposed, m.w);
    for (int64_t s = 0; s < steps[0]; s++) {
        turn(grads + s * n, rows, cols, transposed, m.g);
        matrix_update(&m, 1 + (int)s, &p);
        turn(m.w, transposed ? cols : rows, transposed ? rows : cols, transposed, w);
        const double moved = distance(start, exact + s * n, n), torch = distance(after + s * n, exact + s * n, n) / moved;
        const double ours = distance(w, exact + s * n, n) / moved;
        printf("%s%s step %d: off by %.4f, PyTorch by %.4f\n", name, transposed ? ", transposed" : "", (int)s + 1, ours, torch);
        assert_true(ours <= 1.5 * torch + 1e-5);
        assert_true(distance(w, after + s * n, n) / moved <= 2 * torch + 1e-5);
    }
    turn(m.momentum, transposed ? cols : rows, transposed ? rows : cols, transposed, w);
    for (int64_t i = 0; i < n; i++)
        assert_true(fabs((double)w[i] - (double)last[i]) <= 1e-7);
}

static void it_is_torchs_muon(void **state)
{
    char path[512];
    pt_error e = {0};
    safetensors *st;
    json_t *all, *c;
    const char *name;
    snprintf(path, sizeof path, "%s/optimizer/muon.json", PT_FIXTURES);
    assert_int_equal(json_file_load(path, 0, &all, &e), 0);
    snprintf(path, sizeof path, "%s/optimizer/muon.safetensors", PT_FIXTURES);
    assert_int_equal(safetensors_open(path, &st, &e), 0);
    int n = 0;
    json_object_foreach(json_object_get(all, "cases"), name, c) {
        check_case(st, name, c, false);
        check_case(st, name, c, true);
        n++;
    }
    assert_true(n >= 5);
    safetensors_close(st);
    json_decref(all);
}

/* ---- exact arithmetic ---- */

/* out (m, n) += a (m, k) . b (k, n) */
static void multiply_add(const double *a, const double *b, int64_t m, int64_t n, int64_t k, double *out)
{
    for (int64_t i = 0; i < m; i++)
        for (int64_t l = 0; l < k; l++) {
            const double x = a[i * k + l];
            for (int64_t j = 0; j < n; j++)
                out[i * n + j] += x * b[l * n + j];
        }
}

static void turn_double(const double *from, int64_t rows, int64_t cols, double *to)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t k = 0; k < cols; k++)
            to[k * rows + r] = from[r * cols + k];
}

/* Five Newton-Schulz steps of x / its norm, (rows, cols) with rows <= cols. */
static void orthogonalise(double *x, int64_t rows, int64_t cols)
{
    const int64_t n = rows * cols;
    double *t = calloc((size_t)n, sizeof *t), *gram = calloc((size_t)(rows * rows), sizeof *gram),
        *p = calloc((size_t)(rows * rows), sizeof *p);
    double *y = calloc((size_t)n, sizeof *y), norm = 0;
    for (int64_t i = 0; i < n; i++)
        norm += x[i] * x[i];
    norm = fmax(sqrt(norm), 1e-7);
    for (int64_t i = 0; i < n; i++)
        x[i] /= norm;
    for (int step = 0; step < 5; step++) {
        memset(gram, 0, (size_t)(rows * rows) * sizeof *gram);
        memset(p, 0, (size_t)(rows * rows) * sizeof *p);
        memset(y, 0, (size_t)n * sizeof *y);
        turn_double(x, rows, cols, t);
        multiply_add(x, t, rows, rows, cols, gram);
        multiply_add(gram, gram, rows, rows, rows, p);
        for (int64_t i = 0; i < rows * rows; i++)
            p[i] = -4.7750 * gram[i] + 2.0315 * p[i];
        multiply_add(p, x, rows, cols, rows, y);
        for (int64_t i = 0; i < n; i++)
            x[i] = 3.4445 * x[i] + y[i];
    }
    free(t), free(gram), free(p), free(y);
}

/* One step from a momentum of zero, where the weights are zero and stay, but for the step. */
static double *exact_step(const matrix *m, const update_params *p)
{
    const int64_t rows = m->param.rows, cols = m->param.cols, n = m->n;
    double *x = malloc((size_t)n * sizeof *x), *t = malloc((size_t)n * sizeof *t), keep = (double)p->momentum;
    for (int64_t i = 0; i < n; i++)
        x[i] = (double)m->g[i] * (1 - keep + keep * (1 - keep));
    if (rows <= cols) {
        orthogonalise(x, rows, cols);
    } else {
        turn_double(x, rows, cols, t);
        orthogonalise(t, cols, rows);
        turn_double(t, cols, rows, x);
    }
    for (int64_t i = 0; i < n; i++)
        x[i] *= -(double)p->lr * sqrt(fmax(1, (double)rows / (double)cols));
    free(t);
    return x;
}

/* The largest are made in several slices of sums. */
static void it_is_near_to_exact_arithmetic(void **state)
{
    static const int64_t sizes[][2] = {{1, 1}, {7, 130}, {130, 7}, {64, 64}, {90, 200}, {513, 2200}, {2200, 513}};
    const update_params p = params(0.02, 0, 0.95, LR_ADJUST_ORIGINAL);
    const int most = SANITIZED || device_is_cuda() ? 5 : 7;
    for (int k = 0; k < most; k++)
        for (int half = 0; half < 2; half++) {
            matrix m = matrix_make(types[half], &sizes[k][0], 1, sizes[k][1], false);
            memset(m.w, 0, (size_t)m.n * 4);
            for (int64_t i = 0; i < m.n; i++)
                m.g[i] = bf16_to_f32(bf16_from_f32((float)rng_normal(the_test.seed, RNG_TEST, (uint32_t)(100 + k), (uint64_t)i)));
            matrix_update(&m, 2, &p);
            double *want = exact_step(&m, &p), off = 0, all = 0;
            for (int64_t i = 0; i < m.n; i++) {
                off += ((double)m.w[i] - want[i]) * ((double)m.w[i] - want[i]);
                all += want[i] * want[i];
            }
            free(want);
            printf("%lld x %lld: off by %.4f\n", (long long)sizes[k][0], (long long)sizes[k][1], sqrt(off / all));
            assert_true(off <= 0.03 * 0.03 * all);
            test_teardown(NULL);
        }
}

/* ---- parts, threads ---- */

static void fill(float *v, int64_t n, uint32_t stream)
{
    for (int64_t i = 0; i < n; i++)
        v[i] = (float)rng_normal(the_test.seed, RNG_TEST, stream, (uint64_t)i);
}

static void each_tensor_moves_by_itself_whatever_the_threads(void **state)
{
    static const int64_t rows[3] = {40, 16, 24};
    enum { COLS = 56 };
    for (int half = 0; half < 2; half++)
        for (int threads = 1; threads <= TEST_THREADS; threads++) {
            const update_params p = params(0.02, 0.1, 0.95, LR_ADJUST_RMS);
            matrix all = matrix_make(types[half], rows, 3, COLS, threads % 2);
            fill(all.w, all.n, 1), fill(all.g, all.n, 2), fill(all.momentum, all.n, 3);
            matrix each[3];
            for (int k = 0; k < 3; k++) {
                const int64_t at = part_first(&all.param, k);
                each[k] = matrix_make(types[half], &rows[k], 1, COLS, threads % 2);
                memcpy(each[k].w, all.w + at, (size_t)each[k].n * 4);
                memcpy(each[k].g, all.g + at, (size_t)each[k].n * 4);
                memcpy(each[k].momentum, all.momentum + at, (size_t)each[k].n * 4);
                matrix_update(&each[k], 1, &p);
            }
            matrix_update(&all, threads, &p);
            for (int k = 0; k < 3; k++) {
                same_bits(each[k].w, all.w + part_first(&all.param, k), (size_t)each[k].n * 4, "w");
                same_bits(each[k].momentum, all.momentum + part_first(&all.param, k), (size_t)each[k].n * 4, "momentum");
            }
            test_teardown(NULL);
        }
}

/* Of experts in one tensor, the gate and the up matrix of each. */
static void each_matrix_of_experts_moves_by_itself(void **state)
{
    enum { EXPERTS = 3, COLS = 24, N = 10 * COLS };
    static const int64_t whole = EXPERTS * 2 * (N / COLS), one = N / COLS;
    const update_params p = params(0.02, 0.1, 0.95, LR_ADJUST_RMS);
    matrix all = matrix_make(PT_BF16, &whole, 1, COLS, false), each[EXPERTS * 2];
    all.param.role = PARAM_EXPERTS_UP, all.param.kind = param_kind_of(PARAM_EXPERTS_UP);
    all.param.part[0].stacked = EXPERTS;
    all.param.part[0].paired = true;
    fill(all.w, all.n, 5), fill(all.g, all.n, 6), fill(all.momentum, all.n, 7);
    for (int k = 0; k < EXPERTS * 2; k++) {
        each[k] = matrix_make(PT_BF16, &one, 1, COLS, false);
        memcpy(each[k].w, all.w + k * N, N * 4);
        memcpy(each[k].g, all.g + k * N, N * 4);
        memcpy(each[k].momentum, all.momentum + k * N, N * 4);
        matrix_update(&each[k], 1, &p);
    }
    matrix_update(&all, TEST_THREADS, &p);
    for (int k = 0; k < EXPERTS * 2; k++) {
        same_bits(each[k].w, all.w + k * N, N * 4, "w");
        same_bits(each[k].momentum, all.momentum + k * N, N * 4, "momentum");
    }
}

/* A tensor without a gradient has no direction: it only decays. */
static void nothing_moves_without_a_gradient(void **state)
{
    const int64_t rows = 30;
    const update_params p = params(0.02, 0.5, 0.95, LR_ADJUST_ORIGINAL);
    matrix m = matrix_make(PT_F32, &rows, 1, 20, false);
    fill(m.w, m.n, 4);
    memset(m.g, 0, (size_t)m.n * 4);
    float *before = test_copy(m.w, (size_t)m.n * 4);
    matrix_update(&m, 1, &p);
    for (int64_t i = 0; i < m.n; i++)
        assert_true(m.w[i] == before[i] * 0.99f && m.momentum[i] == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {OP_TEST(it_is_torchs_muon), OP_TEST(it_is_near_to_exact_arithmetic),
                                       OP_TEST(each_tensor_moves_by_itself_whatever_the_threads),
                                       OP_TEST(each_matrix_of_experts_moves_by_itself),
                                       OP_TEST(nothing_moves_without_a_gradient)};
    return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
