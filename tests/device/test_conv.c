/* Causal depthwise convolution with documents, gates and a past, forward and backward, against fp64. */
#include "device/reference.h"

typedef struct shape { int64_t seqs, len, channels, taps; } shape;

static const shape shapes[] = {{1, 1, 5, 4}, {2, 40, 260, 4}, {3, 5, 40, 8}, {1, 270, 17, 3}, {2, 130, 20, 2}};
enum { SHAPES = sizeof shapes / sizeof *shapes };

/* Documents of 1 to 70 rows; each row's begins at the value for it. */
static int32_t *random_documents(int64_t seqs, int64_t len)
{
    int32_t *first = test_alloc((size_t)(seqs * len) * sizeof *first);
    for (int64_t seq = 0; seq < seqs; seq++)
        for (int64_t s = 0, begin = 0, next = 1 + random_below(70); s < len; s++) {
            if (s == next)
                begin = s, next = s + 1 + random_below(random_below(2) ? 3 : 70);
            first[seq * len + s] = (int32_t)begin;
        }
    return first;
}

typedef struct inputs { op_conv o; const double *x, *before, *after, *weight, *bias, *past, *dy; int64_t width; } inputs;

REFERENCE static double product(const inputs *in, int64_t seq, int64_t s, int64_t c)
{
    const op_conv *o = &in->o;
    if (s < 0)
        return in->past ? in->past[(seq * (o->taps - 1) + o->taps - 1 + s) * o->channels + c] : 0;
    const int64_t i = (seq * o->len + s) * o->ldx + c;
    return in->x[i] * (in->before ? in->before[i] : 1);
}

REFERENCE static double output(const inputs *in, int64_t seq, int64_t s, int64_t c)
{
    const op_conv *o = &in->o;
    const int64_t row = seq * o->len + s, begin = o->first ? o->first[row] : 0;
    double sum = in->bias ? in->bias[c] : 0;
    for (int64_t j = 0; j < o->taps; j++) {
        const int64_t from = s - o->taps + 1 + j;
        if (from >= begin || begin == 0)
            sum += in->weight[c * o->taps + j] * product(in, seq, from, c);
    }
    sum = o->silu ? sum / (1 + exp(-sum)) : sum;
    return sum * (in->after ? in->after[row * o->ldx + c] : 1);
}

/* Over the rows of all sequences, in one channel. */
typedef struct channel_loss { const inputs *in; int64_t c; } channel_loss;

REFERENCE static double loss(const void *ctx)
{
    const channel_loss *l = ctx;
    double sum = 0;
    for (int64_t seq = 0; seq < l->in->o.seqs; seq++)
        for (int64_t s = 0; s < l->in->o.len; s++)
            sum += output(l->in, seq, s, l->c) * l->in->dy[(seq * l->in->o.len + s) * l->in->o.ldy + l->c];
    return sum;
}

/* x and its gates are columns of one matrix. bits of `with`: silu, before, after, bias, documents, past */
enum { SILU = 1, BEFORE = 2, AFTER = 4, BIAS = 8, DOCUMENTS = 16, PAST = 32 };

static inputs inputs_of(pt_dtype type, shape s, int with, tensor *x, tensor *dy, tensor parameters[3])
{
    const int64_t rows = s.seqs * s.len, width = 3 * s.channels + 1;
    *x = tensor_random(type, rows * width, 0, 1), *dy = tensor_random(type, rows * (s.channels + 3), 0, 1);
    parameters[0] = tensor_random(PT_F32, s.channels * s.taps, 0, 0.5), parameters[1] = tensor_random(PT_F32, s.channels, 0, 1);
    parameters[2] = tensor_random(PT_F32, s.seqs * (s.taps - 1) * s.channels, 0, 1);
    const size_t bytes = dtype_bytes(type);
    op_conv o = {.type = type, .silu = with & SILU, .seqs = s.seqs, .len = s.len, .channels = s.channels, .taps = s.taps, .ldx = width,
                 .ldy = s.channels + 3, .first = with & DOCUMENTS ? random_documents(s.seqs, s.len) : NULL, .x = x->data,
                 .before = with & BEFORE ? (char *)x->data + (size_t)s.channels * bytes : NULL,
                 .after = with & AFTER ? (char *)x->data + 2 * (size_t)s.channels * bytes : NULL, .weight = parameters[0].data,
                 .bias = with & BIAS ? parameters[1].data : NULL, .past = with & PAST ? parameters[2].data : NULL};
    o.y = test_alloc((size_t)(rows * o.ldy) * bytes);
    return (inputs){o, x->value, o.before ? x->value + s.channels : NULL, o.after ? x->value + 2 * s.channels : NULL, parameters[0].value,
                    o.bias ? parameters[1].value : NULL, o.past ? parameters[2].value : NULL, dy->value, width};
}

static void rows_are_convolved(void **state)
{
    for (int turn = 0; turn < 2 * SHAPES; turn++) {
        const shape s = shapes[turn / 2];
        const int with = (int)random_below(64);
        tensor x, dy, parameters[3];
        inputs in = inputs_of(types[turn & 1], s, with, &x, &dy, parameters);
        const size_t kept = (size_t)(s.seqs * (s.taps - 1) * s.channels) * 4;
        const size_t bytes = (size_t)(s.seqs * s.len * in.o.ldy) * dtype_bytes(x.type);
        in.o.last = test_alloc(kept);
        run_op(1, &(op){OP_CONV, .conv = in.o});
        for (int64_t i = 0; i < s.seqs * s.len * s.channels; i++) {
            const int64_t row = i / s.channels, c = i % s.channels;
            near(x.type, element(x.type, in.o.y, row * in.o.ldy + c), output(&in, row / s.len, row % s.len, c), 4e-6, "y", i);
        }
        for (int64_t i = 0; i < s.seqs * (s.taps - 1) * s.channels; i++) {
            const int64_t seq = i / s.channels / (s.taps - 1), j = i / s.channels % (s.taps - 1);
            near(PT_F32, in.o.last[i], product(&in, seq, s.len - s.taps + 1 + j, i % s.channels), 0, "last", i);
        }
        for (int threads = 2; threads <= TEST_THREADS; threads++) { /* and with the past in the place of the last rows */
            op_conv again = in.o;
            again.y = test_alloc(bytes);
            again.last = test_copy(parameters[2].data, kept);
            again.past = in.o.past ? again.last : NULL;
            run_op(threads, &(op){OP_CONV, .conv = again});
            same_bits(again.y, in.o.y, bytes, "y again");
            same_bits(again.last, in.o.last, kept, "last again");
        }
        test_teardown(state);
    }
}

/* One row at a time with the rows before it kept gives the same bits as all at once. */
static void rows_come_one_by_one(void **state)
{
    for (int turn = 0; turn < 2; turn++) {
        const shape s = {1, 9, 37, 4};
        tensor x, dy, parameters[3];
        inputs in = inputs_of(types[turn], s, (int)random_below(16), &x, &dy, parameters);
        float *past = test_alloc((size_t)(3 * s.channels) * 4);
        const size_t each = dtype_bytes(x.type);
        memset(past, 0, (size_t)(3 * s.channels) * 4);
        run_op(1, &(op){OP_CONV, .conv = in.o});
        for (int64_t row = 0; row < s.len; row++) {
            const size_t to = (size_t)(row * in.o.ldx) * each;
            op_conv one = in.o;
            one.len = 1, one.past = past, one.last = past, one.y = test_alloc((size_t)s.channels * each), one.x = (char *)one.x + to;
            one.before = one.before ? (char *)one.before + to : NULL, one.after = one.after ? (char *)one.after + to : NULL;
            run_op(1 + (int)row % TEST_THREADS, &(op){OP_CONV, .conv = one});
            same_bits(one.y, (char *)in.o.y + (size_t)(row * in.o.ldy) * each, (size_t)s.channels * each, "row");
        }
        test_teardown(state);
    }
}

static void check_slopes(const inputs *in, const op_conv_backward *b)
{
    const op_conv *o = &in->o;
    for (int64_t c = 0; c < o->channels; c += 1 + o->channels / 3) {
        const channel_loss l = {in, c};
        for (int64_t row = 0; row < o->seqs * o->len; row += 1 + o->len / 5) {
            double *x = (double *)in->x + row * o->ldx + c;
            const int64_t at = row * b->lddx + c;
            near(o->type, element(o->type, b->dx, at), slope(loss, &l, x), 2e-5, "dx", at);
            if (o->before)
                near(o->type, element(o->type, b->dbefore, at), slope(loss, &l, x + o->channels), 2e-5, "dbefore", at);
            if (o->after)
                near(o->type, element(o->type, b->dafter, at), slope(loss, &l, x + 2 * o->channels), 2e-5, "dafter", at);
        }
        for (int64_t j = 0; j < o->taps; j++)
            near(PT_F32, b->dweight[c * o->taps + j], slope(loss, &l, (double *)in->weight + c * o->taps + j), 3e-4, "dweight", c);
        if (o->bias)
            near(PT_F32, b->dbias[c], slope(loss, &l, (double *)in->bias + c), 3e-4, "dbias", c);
    }
}

static op_conv_backward backward_of(const inputs *in, const tensor *dy)
{
    const op_conv *o = &in->o;
    const int64_t rows = o->seqs * o->len;
    op_conv_backward b = {.forward = *o, .lddy = o->ldy, .lddx = in->width, .dy = dy->data};
    char *dx = test_alloc((size_t)(rows * in->width) * dtype_bytes(o->type));
    const size_t step = (size_t)o->channels * dtype_bytes(o->type);
    b.dx = dx, b.dbefore = o->before ? dx + step : NULL, b.dafter = o->after ? dx + 2 * step : NULL;
    b.dweight = test_alloc((size_t)(o->channels * o->taps) * 4);
    b.dbias = o->bias ? test_alloc((size_t)o->channels * 4) : NULL;
    b.scratch = test_alloc(conv_backward_scratch_bytes(rows, o->channels, o->taps));
    return b;
}

static void gradients_are_slopes(void **state)
{
    for (int turn = 0; turn < 2 * SHAPES; turn++) {
        const shape s = shapes[turn / 2];
        tensor x, dy, parameters[3];
        inputs in = inputs_of(types[turn & 1], s, (int)random_below(32), &x, &dy, parameters);
        op_conv_backward b = backward_of(&in, &dy);
        const size_t bytes = (size_t)(s.seqs * s.len * in.width) * dtype_bytes(x.type), weights = (size_t)(s.channels * s.taps) * 4;
        run_op(1, &(op){OP_CONV_BACKWARD, .conv_backward = b});
        check_slopes(&in, &b);
        for (int threads = 2; threads <= TEST_THREADS; threads++) {
            op_conv_backward again = backward_of(&in, &dy);
            again.dbias = NULL, again.accumulate = threads == 2;
            for (int64_t i = 0; i < s.channels * s.taps; i++)
                again.dweight[i] = 1;
            run_op(threads, &(op){OP_CONV_BACKWARD, .conv_backward = again});
            same_bits(again.dx, b.dx, bytes, "dx again");
            for (int64_t i = 0; again.accumulate && i < s.channels * s.taps; i++)
                assert_true(again.dweight[i] == 1 + b.dweight[i]);
            if (!again.accumulate)
                same_bits(again.dweight, b.dweight, weights, "dweight again");
        }
        test_teardown(state);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {OP_TEST(rows_are_convolved), OP_TEST(rows_come_one_by_one), OP_TEST(gradients_are_slopes)};
    return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
