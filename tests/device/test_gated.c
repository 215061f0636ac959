/* The gates of a scan, and norms with a gate, forward and backward, against fp64. */
#include "device/reference.h"

REFERENCE static double sigmoid(double x) { return 1 / (1 + exp(-x)); }
REFERENCE static double softplus(double x) { return x > 30 ? x : log1p(exp(x)); }

/* ---- the gates of a scan ---- */

typedef struct gates { op_gates o; const double *a, *b, *a_log, *step_bias, *dg, *dbeta; int64_t row, head; } gates;

REFERENCE static double step_of(const gates *t, int64_t row, int64_t head)
{
    const double step = softplus(t->a[row * t->o.ld + head] + t->step_bias[head]);
    if (t->o.kind != SCAN_SSD)
        return step;
    return fmin(fmax(step, (double)t->o.least), t->o.most > 0 ? (double)t->o.most : INFINITY);
}

/* Steps at a limit have no slope. */
static void avoid_limits(const gates *t, tensor *in)
{
    for (int64_t i = 0; i < t->o.rows * t->o.heads; i++) {
        const int64_t row = i / t->o.heads, head = i % t->o.heads, at = row * t->o.ld + head;
        const double step = softplus(in->value[at] + t->step_bias[head]);
        if (fabs(step - (double)t->o.least) < 1e-3 || fabs(step - (double)t->o.most) < 1e-3)
            tensor_set(in, at, in->value[at] + 0.1);
    }
}

REFERENCE static double beta_of(const gates *t, int64_t row, int64_t head)
{
    return t->o.kind == SCAN_SSD ? step_of(t, row, head) : sigmoid(t->b[row * t->o.ld + head]);
}

REFERENCE static double row_loss(const gates *t, int64_t row)
{
    const int64_t i = row * t->o.heads + t->head;
    return -exp(t->a_log[t->head]) * step_of(t, row, t->head) * t->dg[i] + beta_of(t, row, t->head) * t->dbeta[i];
}
REFERENCE static double own_loss(const void *ctx) { return row_loss(ctx, ((const gates *)ctx)->row); }
REFERENCE static double head_loss(const void *ctx)
{
    const gates *t = ctx;
    double sum = 0;
    for (int64_t row = 0; row < t->o.rows; row++)
        sum += row_loss(t, row);
    return sum;
}

static void gates_are_computed(void **state)
{
    static const int64_t shapes[][2] = {{1, 1}, {70, 16}, {513, 5}, {300, 48}};
    for (int turn = 0; turn < 16; turn++) {
        const pt_dtype type = types[turn & 1];
        const int64_t rows = shapes[turn / 4][0], heads = shapes[turn / 4][1], ld = 2 * heads + 1;
        op_gates o = {.kind = turn & 2 ? SCAN_SSD : SCAN_DELTA, .type = type, .rows = rows, .heads = heads, .ld = ld, .least = 0.3f,
                      .most = turn & 8 ? 2 : 0};
        tensor in = tensor_random(type, rows * ld, 0, 2), a_log = tensor_random(PT_F32, heads, 0, 1);
        tensor bias = tensor_random(PT_F32, heads, 0, 1), dg = tensor_random(PT_F32, rows * heads, 0, 1);
        tensor dbeta = tensor_random(PT_F32, rows * heads, 0, 1);
        if (rows > 2)
            tensor_set(&in, 0, -300), tensor_set(&in, ld, 300);
        o.a = in.data, o.b = o.kind == SCAN_DELTA ? (char *)in.data + (size_t)heads * dtype_bytes(type) : NULL, o.a_log = a_log.data;
        o.step_bias = bias.data, o.g = test_alloc((size_t)(rows * heads) * 4), o.beta = test_alloc((size_t)(rows * heads) * 4);
        gates t = {o, in.value, in.value + heads, a_log.value, bias.value, dg.value, dbeta.value, 0, 0};
        avoid_limits(&t, &in);
        run_op(1 + turn % TEST_THREADS, &(op){OP_GATES, .gates = o});
        for (int64_t i = 0; i < rows * heads; i++) {
            const double g = -exp(a_log.value[i % heads]) * step_of(&t, i / heads, i % heads);
            near(PT_F32, o.g[i], g, 1e-6 * fabs(g) + 1e-37, "g", i);
            near(PT_F32, o.beta[i], beta_of(&t, i / heads, i % heads), 1e-6 * fabs((double)o.beta[i]) + 1e-37, "beta", i);
        }
        op_gates_backward b = {.forward = o, .ldd = ld, .dg = dg.data, .dbeta = dbeta.data, .da_log = test_alloc((size_t)heads * 4),
                               .dstep_bias = test_alloc((size_t)heads * 4)};
        b.scratch = test_alloc(gates_backward_scratch_bytes(rows, heads));
        b.da = test_alloc(tensor_bytes(&in)), b.db = o.b ? (char *)b.da + (size_t)heads * dtype_bytes(type) : NULL;
        run_op(1, &(op){OP_GATES_BACKWARD, .gates_backward = b});
        for (t.head = 0; t.head < heads; t.head += 1 + heads / 3) {
            for (t.row = 0; t.row < rows; t.row += 1 + rows / 7) {
                const int64_t at = t.row * ld + t.head;
                near(type, element(type, b.da, at), slope(own_loss, &t, in.value + at), 4e-5, "da", at);
                if (b.db)
                    near(type, element(type, b.db, at), slope(own_loss, &t, in.value + at + heads), 1e-6, "db", at);
            }
            const double by_log = slope(head_loss, &t, a_log.value + t.head);
            near(PT_F32, b.da_log[t.head], by_log, 1e-3 + 2e-6 * fabs(by_log), "da_log", t.head);
            near(PT_F32, b.dstep_bias[t.head], slope(head_loss, &t, bias.value + t.head), 1e-3, "dstep_bias", t.head);
        }
        for (int threads = 2; threads <= TEST_THREADS; threads++) {
            op_gates_backward again = b;
            again.da_log = test_alloc((size_t)heads * 4), again.dstep_bias = NULL;
            run_op(threads, &(op){OP_GATES_BACKWARD, .gates_backward = again});
            same_bits(again.da_log, b.da_log, (size_t)heads * 4, "da_log again");
        }
        test_teardown(state);
    }
}

/* ---- norms with a gate ---- */

typedef struct normed { op_gated_norm o; const double *x, *z, *weight, *dy; int64_t row, head, lddy; } normed;

REFERENCE static double act_of(const normed *t, double z) { return (t->o.sigmoid ? 1 : z) * sigmoid(z); }

REFERENCE static void outputs(const normed *t, int64_t row, int64_t head, double *y)
{
    const op_gated_norm *o = &t->o;
    const double *x = t->x + row * o->ldx + head * o->dim, *z = t->z + row * o->ldz + head * (o->z_step ? o->z_step : o->dim);
    double sum = 0;
    for (int64_t i = 0; i < o->dim; i++) {
        y[i] = o->kind == GATED_NORM_FIRST ? x[i] : x[i] * act_of(t, z[i]);
        sum += y[i] * y[i];
    }
    const double r = 1 / sqrt(sum / (double)o->dim + (double)o->eps);
    for (int64_t i = 0; i < o->dim && o->kind != GATED_ONLY; i++)
        y[i] *= r * t->weight[head * o->weight_step + i] * (o->kind == GATED_NORM_FIRST ? act_of(t, z[i]) : 1);
}

REFERENCE static double vector_loss(const void *ctx)
{
    const normed *t = ctx;
    double y[600], sum = 0;
    outputs(t, t->row, t->head, y);
    for (int64_t i = 0; i < t->o.dim; i++)
        sum += y[i] * t->dy[t->row * t->lddy + t->head * t->o.dim + i];
    return sum;
}

REFERENCE static double all_loss(const void *ctx)
{
    normed t = *(const normed *)ctx;
    double sum = 0;
    for (t.row = 0; t.row < t.o.rows; t.row++)
        for (t.head = 0; t.head < t.o.heads; t.head++)
            sum += vector_loss(&t);
    return sum;
}

static void check_norm_slopes(normed *t, const op_gated_norm_backward *b)
{
    const op_gated_norm *o = &t->o;
    const int64_t step = o->z_step ? o->z_step : o->dim;
    for (t->row = 0; t->row < o->rows; t->row += 1 + o->rows / 3)
        for (t->head = 0; t->head < o->heads; t->head += 2)
            for (int64_t i = 0; i < o->dim; i += 1 + o->dim / 5) {
                const int64_t x = t->row * o->ldx + t->head * o->dim + i, z = t->row * o->ldz + t->head * step + i;
                const double dx = slope(vector_loss, t, (double *)t->x + x), dz = slope(vector_loss, t, (double *)t->z + z);
                near(o->type, element(o->type, b->dx, t->row * b->lddx + t->head * o->dim + i), dx, 3e-5 * (1 + fabs(dx)), "dx", x);
                near(o->type, element(o->type, b->dz, t->row * b->lddz + t->head * step + i), dz, 3e-5 * (1 + fabs(dz)), "dz", z);
            }
    const int64_t weights = o->weight_step ? o->heads * o->dim : o->dim;
    for (int64_t i = 0; b->dweight && i < weights; i += 1 + weights / 4)
        near(PT_F32, b->dweight[i], slope(all_loss, t, (double *)t->weight + i), 1e-3, "dweight", i);
}

/* y, with stride ld, is the op's. */
static void same_rows(const op_gated_norm *o, const char *y, int64_t ld, const char *what)
{
    const size_t each = dtype_bytes(o->type);
    for (int64_t row = 0; row < o->rows; row++)
        same_bits(y + (size_t)(row * ld) * each, (char *)o->y + (size_t)(row * o->ldy) * each, (size_t)(o->heads * o->dim) * each, what);
}

static void heads_are_normed_and_gated(void **state)
{
    static const int64_t shapes[][3] = {{1, 1, 1}, {37, 4, 24}, {40, 3, 128}, {35, 2, 260}}; /* rows, heads, dim */
    for (int turn = 0; turn < 24; turn++) {
        const pt_dtype type = types[turn & 1];
        const int64_t rows = shapes[turn / 6][0], heads = shapes[turn / 6][1], dim = shapes[turn / 6][2], wide = heads * dim;
        const bool apart = random_below(2), shared = random_below(2);
        op_gated_norm o = {.kind = (gated_kind)(turn / 2 % 3), .sigmoid = random_below(2), .type = type, .rows = rows, .heads = heads,
                           .dim = dim, .ldx = wide + 1, .ldz = 2 * wide + 5, .ldy = wide + 2, .z_step = apart ? 2 * dim : 0,
                           .weight_step = shared ? 0 : dim, .eps = 1e-5f};
        tensor x = tensor_random(type, rows * o.ldx, 0, 1), z = tensor_random(type, rows * o.ldz, 0, 2);
        tensor weight = tensor_random(PT_F32, wide, 1, 0.3), dy = tensor_random(type, rows * o.ldy, 0, 1);
        const size_t bytes = (size_t)(rows * o.ldy) * dtype_bytes(type), weights = (size_t)(shared ? dim : wide) * 4;
        o.x = x.data, o.z = z.data, o.weight = o.kind == GATED_ONLY ? NULL : weight.data, o.y = test_alloc(bytes);
        normed t = {o, x.value, z.value, weight.value, dy.value, 0, 0, o.ldy};
        run_op(1, &(op){OP_GATED_NORM, .gated_norm = o});
        for (int64_t v = 0; v < rows * heads; v++) {
            double want[600];
            outputs(&t, v / heads, v % heads, want);
            for (int64_t i = 0; i < dim; i++)
                near(type, element(type, o.y, v / heads * o.ldy + v % heads * dim + i), want[i], 4e-6 * (1 + fabs(want[i])), "y", i);
        }
        op_gated_norm_backward b = {.forward = o, .lddy = o.ldy, .lddx = wide + 4, .lddz = o.ldz, .dy = dy.data,
                                    .dx = test_alloc((size_t)(rows * (wide + 4)) * dtype_bytes(type)), .dz = test_alloc(tensor_bytes(&z)),
                                    .dweight = o.weight ? test_alloc(weights) : NULL,
                                    .scratch = test_alloc(gated_norm_backward_scratch_bytes(rows, shared ? dim : wide))};
        run_op(1, &(op){OP_GATED_NORM_BACKWARD, .gated_norm_backward = b});
        check_norm_slopes(&t, &b);
        for (int threads = 2; threads <= (device_is_cuda() ? 2 : TEST_THREADS); threads++) { /* y in the place of dy; x normed in place */
            op_gated_norm_backward again = b;
            again.y = test_copy(dy.data, tensor_bytes(&dy)), again.dy = again.y;
            again.dweight = o.weight ? memset(test_alloc(weights), 0, weights) : NULL, again.accumulate = true;
            again.dz = test_alloc(tensor_bytes(&z));
            run_op(threads, &(op){OP_GATED_NORM_BACKWARD, .gated_norm_backward = again});
            same_rows(&o, again.y, o.ldy, "y again");
            if (o.weight)
                same_bits(again.dweight, b.dweight, weights, "dweight again");
            op_gated_norm place = o;
            place.y = test_copy(x.data, tensor_bytes(&x)), place.x = place.y, place.ldy = place.ldx;
            run_op(threads, &(op){OP_GATED_NORM, .gated_norm = place});
            same_rows(&o, place.y, o.ldx, "y in place");
        }
        test_teardown(state);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {OP_TEST(gates_are_computed), OP_TEST(heads_are_normed_and_gated)};
    return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
