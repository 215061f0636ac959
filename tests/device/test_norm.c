/* Layernorm and rmsnorm: forward against fp64, backward against finite differences. */
#include "device/reference.h"

typedef struct norm_case {
    norm_kind kind;
    int64_t rows, heads, dim, ld;
    double eps, offset;
    tensor x, weight, bias, dy;
} norm_case;

static const norm_kind kinds[] = {NORM_LAYER, NORM_RMS};

/* Rows lie side by side with what rounds them up to 16 bytes, or not. */
static norm_case random_case(norm_kind kind, pt_dtype type, int64_t rows, int64_t heads, int64_t dim)
{
    int64_t ld = heads * dim + (random_below(2) ? 8 : 3);
    static const double offsets[] = {0, 0, 1, -0.75};
    norm_case c = {kind, rows, heads, dim, ld, 1e-5, offsets[random_below(4)], {0}, {0}, {0}, {0}};
    c.x = tensor_random(type, rows * ld, 0.7, 2);
    c.weight = tensor_random(PT_F32, dim, 1 - c.offset, 0.5);
    if (c.offset == 1 && random_below(2)) { /* no weights: the offset alone */
        memset(c.weight.value, 0, (size_t)dim * sizeof *c.weight.value);
        c.weight.data = NULL;
    }
    c.bias = tensor_random(PT_F32, dim, 0, 1);
    c.dy = tensor_random(type, rows * ld, 0, 1);
    return c;
}

/* One row of one head. */
REFERENCE static void reference_vector(const norm_case *c, const double *x, double *y)
{
    double mean = 0, variance = 0;
    for (int64_t i = 0; i < c->dim && c->kind == NORM_LAYER; i++)
        mean += x[i] / (double)c->dim;
    for (int64_t i = 0; i < c->dim; i++)
        variance += (x[i] - mean) * (x[i] - mean) / (double)c->dim;
    for (int64_t i = 0; i < c->dim; i++)
        y[i] = (x[i] - mean) / sqrt(variance + c->eps) * (c->offset + c->weight.value[i]) +
               (c->kind == NORM_LAYER ? c->bias.value[i] : 0);
}

static void norm(int threads, const norm_case *c, void *y)
{
    op_norm o = {c->kind, c->x.type, c->rows, c->heads, c->dim, c->ld, c->ld, (float)c->eps,
                 c->x.data, c->weight.data, c->kind == NORM_LAYER ? c->bias.data : NULL, y, (float)c->offset, NULL, NULL};
    run_op(threads, &(op){OP_NORM, .norm = o});
}

static void check_forward(const norm_case *c)
{
    pt_dtype type = c->x.type;
    size_t bytes = tensor_bytes(&c->x);
    void *y = test_alloc(bytes), *untouched = test_alloc(bytes);
    double *want = test_alloc((size_t)c->dim * sizeof *want);
    norm(1, c, y);
    for (int64_t row = 0; row < c->rows; row++) {
        for (int64_t head = 0; head < c->heads; head++) {
            int64_t at = row * c->ld + head * c->dim;
            reference_vector(c, c->x.value + at, want);
            for (int64_t i = 0; i < c->dim; i++)
                near(type, element(type, y, at + i), want[i], 3e-6, "y", at + i);
        }
        for (int64_t i = c->heads * c->dim; i < c->ld; i++)
            assert_true(element(type, y, row * c->ld + i) == element(type, untouched, row * c->ld + i));
    }
    for (int threads = 2; threads <= TEST_THREADS; threads++) {
        void *again = test_alloc(bytes);
        norm(threads, c, again);
        same_bits(y, again, bytes, "y with more threads");
    }
    void *in_place = test_copy(c->x.data, bytes);
    norm_case over = *c;
    over.x.data = in_place;
    norm(2, &over, in_place);
    for (int64_t row = 0; row < c->rows; row++)
        same_bits((char *)y + (size_t)(row * c->ld) * dtype_bytes(type),
                  (char *)in_place + (size_t)(row * c->ld) * dtype_bytes(type),
                  (size_t)(c->heads * c->dim) * dtype_bytes(type), "y over x");
}

static void forward_is_the_fp64_norm_rounded_once(void **state)
{
    static const int64_t shapes[][3] = {{1, 1, 257}, {7, 1, 40}, {7, 3, 40}, {5, 2, 128}, {40, 1, 768}, {3, 1, 1}, {2, 1, 5}, {3, 1, 4096},
                                        {2, 1, 1501}, {9, 1, 2048}, {2, 1, 4100}, {2, 1, 8200}};
    for (size_t k = 0; k < 2; k++)
        for (size_t t = 0; t < TYPES; t++)
            for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
                norm_case c = random_case(kinds[k], types[t], shapes[s][0], shapes[s][1], shapes[s][2]);
                check_forward(&c);
                test_teardown(NULL);
            }
}

/* Kernels take rows side by side, and what is left over one by one. */
static void a_row_is_the_same_beside_others(void **state)
{
    for (int turn = 0; turn < 80; turn++) {
        pt_dtype type = types[turn & 1];
        norm_case c = random_case(kinds[turn >> 1 & 1], type, 1 + turn / 4, 1 + random_below(2), 1 + random_below(300)), alone = c;
        char *together = test_alloc(tensor_bytes(&c.x)), *y = test_alloc(tensor_bytes(&c.x));
        norm(1, &c, together);
        alone.rows = 1;
        for (int64_t row = 0; row < c.rows; row++) {
            size_t at = (size_t)(row * c.ld) * dtype_bytes(type);
            alone.x.data = (char *)c.x.data + at;
            norm(1, &alone, y + at);
            same_bits(together + at, y + at, (size_t)(c.heads * c.dim) * dtype_bytes(type), "y of a row alone");
        }
        test_teardown(NULL);
    }
}

/* The sums that y and the stream hold, in fp32 from the norm itself, which a stream of zeros gives. */
static void check_added(const norm_case *c, bool residual, bool stream, bool over)
{
    const pt_dtype type = c->x.type;
    const size_t bytes = tensor_bytes(&c->x), wide = (size_t)c->x.n * sizeof(float);
    tensor add = tensor_random(type, c->x.n, 0, 1), before = tensor_random(PT_F32, c->x.n, 0, 1);
    float *alone = test_alloc(wide), *sums = test_copy(before.data, wide);
    void *y = over ? test_copy(add.data, bytes) : test_alloc(bytes), *untouched = over ? add.data : test_alloc(bytes);
    memset(alone, 0, wide);
    op_norm o = {c->kind, type, c->rows, 1, c->dim, c->ld, c->ld, (float)c->eps, c->x.data, c->weight.data,
                 c->kind == NORM_LAYER ? c->bias.data : NULL, test_alloc(bytes), (float)c->offset, NULL, alone};
    run_op(1, &(op){OP_NORM, .norm = o});
    double *want = test_alloc((size_t)c->dim * sizeof *want);
    reference_vector(c, c->x.value, want);
    for (int64_t i = 0; i < c->dim; i++)
        near(PT_F32, alone[i], want[i], 3e-6, "norm", i);
    o.y = y;
    o.residual = !residual ? NULL : over ? y : add.data;
    o.stream = stream ? sums : NULL;
    run_op(1 + (int)random_below(TEST_THREADS), &(op){OP_NORM, .norm = o});
    for (int64_t i = 0; i < c->x.n; i++) {
        const bool there = i % c->ld < c->dim;
        const float sum = there ? (float)before.value[i] + alone[i] : (float)before.value[i];
        const float whole = residual ? alone[i] + (float)add.value[i] : sum;
        assert_true(!stream || sums[i] == sum);
        assert_true(element(type, y, i) == (!there            ? element(type, untouched, i)
                                            : type == PT_BF16 ? bf16_to_f32(bf16_from_f32(whole)) : whole));
    }
}

static void what_a_norm_gives_is_added_as_a_product_would_be(void **state)
{
    static const int64_t dims[] = {5, 64, 219, 768, 1600, 2048, 2501, 4096, 8193};
    for (int turn = 0; turn < 72; turn++) {
        const int64_t dim = dims[turn % 9];
        norm_case c = random_case(kinds[turn & 1], types[turn >> 1 & 1], 1 + random_below(dim > 2000 ? 12 : 60), 1, dim);
        const int what = turn / 9 % 3;
        check_added(&c, what != 0, what != 1, what != 0 && turn & 4);
        test_teardown(NULL);
    }
}

/* Rounded by adding to its bits, this one would become -0. */
static void a_weight_or_bias_that_is_no_number_is_seen(void **state)
{
    static const uint32_t bits = 0x7fffffff;
    for (int turn = 0; turn < 60; turn++) {
        pt_dtype type = types[turn & 1];
        norm_case c = random_case(kinds[turn >> 1 & 1], type, 9, 1, 1 + random_below(300));
        int64_t bad = random_below(c.dim);
        tensor *parameter = c.kind == NORM_LAYER && turn & 4 ? &c.bias : &c.weight;
        if (!parameter->data)
            continue;
        memcpy((float *)parameter->data + bad, &bits, sizeof bits);
        void *y = test_alloc(tensor_bytes(&c.x));
        norm(2, &c, y);
        for (int64_t i = 0; i < 9 * c.dim; i++)
            assert_true(isnan(element(type, y, i / c.dim * c.ld + i % c.dim)) == (i % c.dim == bad));
        test_teardown(NULL);
    }
}

typedef struct norm_gradients { void *dx; float *dweight, *dbias, *stream; const float *stream_add; void *y; } norm_gradients;

static void norm_backward(int threads, const norm_case *c, const void *dx_add, bool accumulate, const void *dy,
                          norm_gradients *g)
{
    op_norm_backward o = {
        .kind = c->kind, .type = c->x.type, .accumulate = accumulate, .rows = c->rows, .heads = c->heads,
        .dim = c->dim, .ldx = c->ld, .lddy = c->ld, .lddx = c->ld, .eps = (float)c->eps, .x = c->x.data,
        .weight = c->weight.data, .dy = dy, .dx_add = dx_add, .dx = g->dx,
        .stream_add = g->stream_add, .stream = g->stream, .dweight = g->dweight,
        .dbias = c->kind == NORM_LAYER ? g->dbias : NULL,
        .scratch = test_alloc(norm_backward_scratch_bytes(c->rows, c->heads, c->dim)),
        .bias = c->kind == NORM_LAYER ? c->bias.data : NULL, .y = g->y, .offset = (float)c->offset,
    };
    run_op(threads, &(op){OP_NORM_BACKWARD, .norm_backward = o});
}

static norm_gradients gradients_alloc(const norm_case *c)
{
    return (norm_gradients){.dx = test_alloc(tensor_bytes(&c->x)), .dweight = test_alloc((size_t)c->dim * 4),
                            .dbias = test_alloc((size_t)c->dim * 4)};
}

/* sum of dy * y over the whole op, or over one row while x of that row varies. */
typedef struct loss_rows { const norm_case *c; int64_t row0, row1; } loss_rows;
REFERENCE static double norm_loss(const void *ctx)
{
    const loss_rows *rows = ctx;
    const norm_case *c = rows->c;
    double loss = 0, y[2048];
    for (int64_t row = rows->row0; row < rows->row1; row++)
        for (int64_t head = 0; head < c->heads; head++) {
            int64_t at = row * c->ld + head * c->dim;
            reference_vector(c, c->x.value + at, y);
            for (int64_t i = 0; i < c->dim; i++)
                loss += y[i] * c->dy.value[at + i];
        }
    return loss;
}

static void check_backward(const norm_case *c)
{
    pt_dtype type = c->x.type;
    norm_gradients g = gradients_alloc(c);
    g.stream = test_alloc((size_t)c->x.n * sizeof(float));
    norm_backward(1, c, NULL, false, c->dy.data, &g);
    loss_rows all = {c, 0, c->rows};
    double size = sqrt((double)(c->rows * c->heads));
    for (int64_t i = 0; i < c->dim; i++) {
        near(PT_F32, g.dweight[i], slope(norm_loss, &all, &c->weight.value[i]), 1e-5 * size, "dweight", i);
        if (c->kind == NORM_LAYER)
            near(PT_F32, g.dbias[i], slope(norm_loss, &all, &c->bias.value[i]), 1e-5 * size, "dbias", i);
    }
    for (int64_t row = 0; row < c->rows; row++)
        for (int64_t i = row * c->ld; i < row * c->ld + c->heads * c->dim; i++) {
            loss_rows one = {c, row, row + 1};
            double dx = slope(norm_loss, &one, &c->x.value[i]);
            near(type, element(type, g.dx, i), dx, 1e-5, "dx", i);
            near(PT_F32, g.stream[i], dx, 1e-5, "stream", i);
        }
}

static void backward_is_the_slope_of_forward(void **state)
{
    static const int64_t shapes[][3] = {{1, 1, 257}, {7, 1, 40}, {7, 2, 40}, {130, 1, 33}, {2, 1, 1040}};
    for (size_t k = 0; k < 2; k++)
        for (size_t t = 0; t < TYPES; t++)
            for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
                norm_case c = random_case(kinds[k], types[t], shapes[s][0], shapes[s][1], shapes[s][2]);
                check_backward(&c);
                test_teardown(NULL);
            }
}

/* dx of one vector by the derivative's formula, and what it adds to dweight and dbias; returns 1 / deviation. */
REFERENCE static double reference_backward(const norm_case *c, int64_t at, double *dx, double *dweight, double *dbias)
{
    const double *x = c->x.value + at, *dy = c->dy.value + at, n = (double)c->dim;
    double mean = 0, variance = 0, d_mean = 0, du_mean = 0;
    for (int64_t i = 0; i < c->dim && c->kind == NORM_LAYER; i++) {
        mean += x[i] / n;
        d_mean += dy[i] * (c->offset + c->weight.value[i]) / n;
    }
    for (int64_t i = 0; i < c->dim; i++)
        variance += (x[i] - mean) * (x[i] - mean) / n;
    const double rstd = 1 / sqrt(variance + c->eps);
    for (int64_t i = 0; i < c->dim; i++)
        du_mean += dy[i] * (c->offset + c->weight.value[i]) * (x[i] - mean) * rstd / n;
    for (int64_t i = 0; i < c->dim; i++) {
        const double u = (x[i] - mean) * rstd;
        dx[i] = rstd * (dy[i] * (c->offset + c->weight.value[i]) - d_mean - u * du_mean);
        dweight[i] += dy[i] * u;
        dbias[i] += dy[i];
    }
    return rstd;
}

static void check_formula(const norm_case *c)
{
    norm_gradients g = gradients_alloc(c);
    size_t bytes = (size_t)c->dim * sizeof(double);
    double *dx = test_alloc(bytes), *dweight = test_alloc(bytes), *dbias = test_alloc(bytes);
    memset(dweight, 0, bytes);
    memset(dbias, 0, bytes);
    norm_backward(1 + (int)random_below(TEST_THREADS), c, NULL, false, c->dy.data, &g);
    for (int64_t row = 0; row < c->rows; row++)
        for (int64_t head = 0; head < c->heads; head++) {
            int64_t at = row * c->ld + head * c->dim;
            double rstd = reference_backward(c, at, dx, dweight, dbias); /* by whose square the errors of x - mean grow */
            for (int64_t i = 0; i < c->dim; i++)
                near(c->x.type, element(c->x.type, g.dx, at + i), dx[i], 1e-6 * (10 + rstd * rstd), "dx", at + i);
        }
    double slack = 1e-5 * sqrt((double)(c->rows * c->heads));
    for (int64_t i = 0; i < c->dim; i++) {
        near(PT_F32, g.dweight[i], dweight[i], slack, "dweight", i);
        if (c->kind == NORM_LAYER)
            near(PT_F32, g.dbias[i], dbias[i], slack, "dbias", i);
    }
}

/* Kernels treat short, middling, long and very long vectors differently, and few vectors and many. */
static void backward_of_all_sizes_is_the_fp64_formula(void **state)
{
    static const int64_t shapes[][3] = {{6500, 1, 9}, {3300, 2, 12}, {100, 3, 64}, {100, 2, 128}, {40, 1, 256}, {70, 1, 768}, {25, 1, 1600},
                                        {20, 1, 2048}, {11, 1, 2056}, {9, 1, 2501}, {17, 1, 4096}, {9, 1, 8192}, {9, 1, 8193},
                                        {10, 1, 8296}};
    for (size_t k = 0; k < 2; k++)
        for (size_t t = 0; t < TYPES; t++)
            for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
                norm_case c = random_case(kinds[k], types[t], shapes[s][0], shapes[s][1], shapes[s][2]);
                check_formula(&c);
                test_teardown(NULL);
            }
}

/* dx over dy, dx_add over dx, sums on top of sums, threads: none changes the bits. */
static void backward_in_place_and_with_more_threads_has_the_same_bits(void **state)
{
    for (int turn = 0; turn < 16; turn++) {
        pt_dtype type = types[turn & 1];
        norm_case c = random_case(kinds[turn >> 1 & 1], type, 1 + random_below(300), 1 + random_below(2), 1 + random_below(300));
        size_t bytes = tensor_bytes(&c.x);
        tensor add = tensor_random(type, c.x.n, 0, 1);
        norm_gradients want = gradients_alloc(&c);
        memcpy(want.dx, c.dy.data, bytes); /* what lies between the rows stays dy in all */
        norm_backward(1, &c, add.data, false, c.dy.data, &want);
        for (int threads = 1; threads <= TEST_THREADS; threads++) {
            norm_gradients got = gradients_alloc(&c);
            memcpy(got.dx, c.dy.data, bytes);
            norm_backward(threads, &c, add.data, false, got.dx, &got);
            same_bits(want.dx, got.dx, bytes, "dx over dy");
            same_bits(want.dweight, got.dweight, (size_t)c.dim * 4, "dweight");
            same_bits(want.dbias, got.dbias, (size_t)c.dim * 4, "dbias");

            norm_backward(threads, &c, NULL, true, c.dy.data, &got);
            for (int64_t i = 0; i < c.dim; i++)
                assert_true(got.dweight[i] == want.dweight[i] + want.dweight[i] &&
                            (c.kind == NORM_RMS || got.dbias[i] == want.dbias[i] + want.dbias[i]));
            memcpy(got.dx, add.data, bytes);
            norm_backward(threads, &c, got.dx, false, c.dy.data, &got);
            for (int64_t row = 0; row < c.rows; row++) {
                size_t at = (size_t)(row * c.ld) * dtype_bytes(type);
                same_bits((char *)want.dx + at, (char *)got.dx + at, (size_t)(c.heads * c.dim) * dtype_bytes(type), "dx_add over dx");
            }
        }
        test_teardown(NULL);
    }
}

/* Over dy, or elsewhere; of all kinds of vectors. */
static void backward_hands_out_the_forward_passs_output_again(void **state)
{
    static const int64_t dims[] = {9, 64, 219, 768, 1600, 2048, 2501, 4096, 8193};
    for (int turn = 0; turn < 72; turn++) {
        const int64_t dim = dims[turn % 9];
        norm_case c = random_case(kinds[turn & 1], types[turn >> 1 & 1], 1 + random_below(dim > 2000 ? 12 : 60), 1 + random_below(2), dim);
        const size_t bytes = tensor_bytes(&c.x);
        norm_gradients without = gradients_alloc(&c), apart = gradients_alloc(&c), over = gradients_alloc(&c);
        void *y = test_copy(c.dy.data, bytes); /* what lies between the rows stays dy */
        apart.y = test_copy(c.dy.data, bytes);
        over.y = test_copy(c.dy.data, bytes);
        norm(1, &c, y);
        norm_backward(1, &c, NULL, false, c.dy.data, &without);
        norm_backward(1, &c, NULL, false, c.dy.data, &apart);
        norm_backward(1 + turn % TEST_THREADS, &c, NULL, false, over.y, &over);
        same_bits(y, apart.y, bytes, "y");
        same_bits(y, over.y, bytes, "y over dy");
        same_bits(without.dx, over.dx, bytes, "dx beside y over dy");
        same_bits(without.dx, apart.dx, bytes, "dx beside y");
        same_bits(without.dweight, over.dweight, (size_t)c.dim * 4, "dweight beside y over dy");
        same_bits(without.dbias, over.dbias, (size_t)c.dim * 4, "dbias beside y over dy");
        test_teardown(NULL);
    }
}

/* dx and the stream of a row, not the sums over rows. */
static void backward_of_a_row_is_the_same_beside_others(void **state)
{
    for (int turn = 0; turn < 80; turn++) {
        pt_dtype type = types[turn & 1];
        norm_case c = random_case(kinds[turn >> 1 & 1], type, 1 + turn / 4, 1 + random_below(2), 1 + random_below(300)), alone = c;
        norm_gradients all = gradients_alloc(&c), one = gradients_alloc(&c);
        all.stream = test_alloc((size_t)c.x.n * sizeof(float));
        norm_backward(1, &c, NULL, false, c.dy.data, &all);
        alone.rows = 1;
        for (int64_t row = 0; row < c.rows; row++) {
            size_t at = (size_t)(row * c.ld) * dtype_bytes(type);
            alone.x.data = (char *)c.x.data + at;
            one.stream = test_alloc((size_t)c.ld * sizeof(float));
            norm_backward(1, &alone, NULL, false, (char *)c.dy.data + at, &one);
            same_bits((char *)all.dx + at, one.dx, (size_t)(c.heads * c.dim) * dtype_bytes(type), "dx of a row alone");
            same_bits(all.stream + row * c.ld, one.stream, (size_t)(c.heads * c.dim) * sizeof(float), "stream of a row alone");
        }
        test_teardown(NULL);
    }
}

/* What goes to the stream is the sum before its one rounding. */
static void the_streams_gradient_is_added_to_in_fp32(void **state)
{
    for (int turn = 0; turn < 16; turn++) {
        pt_dtype type = types[turn & 1];
        norm_case c = random_case(kinds[turn >> 1 & 1], type, 1 + random_below(60), 1, 1 + random_below(300));
        tensor add = tensor_random(PT_F32, c.x.n, 0, 1);
        norm_gradients alone = gradients_alloc(&c), sum = gradients_alloc(&c);
        alone.stream = test_alloc((size_t)c.x.n * sizeof(float));
        sum.stream = test_copy(add.data, tensor_bytes(&add));
        sum.stream_add = sum.stream;
        norm_backward(1, &c, NULL, false, c.dy.data, &alone);
        norm_backward(1 + turn % TEST_THREADS, &c, NULL, false, c.dy.data, &sum);
        for (int64_t i = 0; i < c.x.n; i++) {
            if (i % c.ld >= c.dim) {
                assert_true(sum.stream[i] == (float)add.value[i]);
                continue;
            }
            assert_true(sum.stream[i] == alone.stream[i] + (float)add.value[i]);
            assert_true(element(type, sum.dx, i) == (type == PT_BF16 ? bf16_to_f32(bf16_from_f32(sum.stream[i])) : sum.stream[i]));
        }
        test_teardown(NULL);
    }
}

static void gradients_of_weights_may_be_unwanted(void **state)
{
    norm_case c = random_case(NORM_LAYER, PT_F32, 9, 1, 50);
    norm_gradients want = gradients_alloc(&c), got = {.dx = test_alloc(tensor_bytes(&c.x))};
    norm_backward(2, &c, NULL, false, c.dy.data, &want);
    norm_backward(2, &c, NULL, false, c.dy.data, &got);
    for (int64_t row = 0; row < c.rows; row++)
        same_bits((float *)want.dx + row * c.ld, (float *)got.dx + row * c.ld, (size_t)c.dim * 4, "dx");
}

static void not_finite_input_is_seen(void **state)
{
    static const double bad[] = {NAN, INFINITY, -INFINITY};
    for (int turn = 0; turn < 12; turn++) {
        pt_dtype type = types[turn & 1];
        norm_case c = random_case(kinds[turn >> 1 & 1], type, 3, 1, 50);
        int64_t i = random_below(50);
        tensor_set(&c.x, c.ld + i, bad[turn % 3]);
        void *y = test_alloc(tensor_bytes(&c.x));
        norm(1, &c, y);
        assert_false(isfinite(element(type, y, c.ld + i)));
        norm_gradients g = gradients_alloc(&c);
        norm_backward(1, &c, NULL, false, c.dy.data, &g);
        assert_false(isfinite(g.dweight[i]));
        assert_false(isfinite(element(type, g.dx, c.ld + i)));
        assert_true(isfinite(element(type, y, i)) && isfinite(element(type, g.dx, 2 * c.ld + i)));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        OP_TEST(forward_is_the_fp64_norm_rounded_once),
        OP_TEST(a_row_is_the_same_beside_others),
        OP_TEST(what_a_norm_gives_is_added_as_a_product_would_be),
        OP_TEST(a_weight_or_bias_that_is_no_number_is_seen),
        OP_TEST(backward_is_the_slope_of_forward),
        OP_TEST(backward_of_all_sizes_is_the_fp64_formula),
        OP_TEST(backward_in_place_and_with_more_threads_has_the_same_bits),
        OP_TEST(backward_hands_out_the_forward_passs_output_again),
        OP_TEST(backward_of_a_row_is_the_same_beside_others),
        OP_TEST(the_streams_gradient_is_added_to_in_fp32),
        OP_TEST(gradients_of_weights_may_be_unwanted),
        OP_TEST(not_finite_input_is_seen),
    };
    return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
