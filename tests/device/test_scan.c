/* Scans, i.e. the gated delta rule and Mamba-2's: against the recurrence, row by row, in fp64, and slopes of it. */
#include "device/reference.h"

typedef struct shape { int64_t seqs, len, key_heads, heads, key_dim, dim; } shape;

/* One row; less than a chunk; more than a segment; several tasks for a key head; a long segment of wide heads. */
static const shape shapes[] = {
    {1, 1, 1, 1, 4, 3}, {2, 37, 2, 4, 6, 10}, {1, 520, 1, 1, 6, 10}, {2, 70, 1, 9, 5, 3}, {1, 140, 1, 1, 132, 5}};
enum { SHAPES = sizeof shapes / sizeof *shapes, DIMS = 160 };

typedef struct inputs { op_scan o; tensor qkv, g, beta, skip, dout; double *q, *k, *v; int64_t seq, key_head; } inputs;

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

/* Turns go through types and kinds. Emulated kernels take long: they leave every second turn out, under the sanitizers three of four. */
static bool is_left_out(int turn)
{
    return device_is_cuda() && (SANITIZED ? turn % 4 != turn / 4 % 4 : (turn ^ turn / 2) & 1);
}

/* q, k and v are columns of one matrix. */
static inputs inputs_of(pt_dtype type, shape s, scan_kind kind, bool documents)
{
    const int64_t rows = s.seqs * s.len, wide = s.key_heads * s.key_dim, ld = 2 * wide + s.heads * s.dim + 3;
    inputs in = {.o = {.kind = kind, .type = type, .seqs = s.seqs, .len = s.len, .key_heads = s.key_heads, .heads = s.heads,
                       .key_dim = s.key_dim, .dim = s.dim, .ld = ld, .ldo = s.heads * s.dim + 1, .scale = kind == SCAN_DELTA ? 0.7f : 0,
                       .norm_eps = kind == SCAN_DELTA ? 1e-6f : 0, .first = documents ? random_documents(s.seqs, s.len) : NULL}};
    in.qkv = tensor_random(type, rows * ld, 0, 0.6), in.g = tensor_random(PT_F32, rows * s.heads, 0, 1);
    in.beta = tensor_random(PT_F32, rows * s.heads, 0, 1), in.skip = tensor_random(PT_F32, s.heads, 1, 0.3);
    in.dout = tensor_random(type, rows * in.o.ldo, 0, 1);
    for (int64_t i = 0; i < rows * s.heads; i++) { /* much decay, little, and none */
        const double g = in.g.value[i];
        tensor_set(&in.g, i, i % 7 == 3 ? -30 * g * g : i % 5 == 1 ? 0 : -0.1 * g * g);
        tensor_set(&in.beta, i, 1 / (1 + exp(-2 * in.beta.value[i])));
    }
    const size_t each = dtype_bytes(type);
    in.o.q = in.qkv.data, in.o.k = (char *)in.qkv.data + (size_t)wide * each, in.o.v = (char *)in.qkv.data + 2 * (size_t)wide * each;
    in.q = in.qkv.value, in.k = in.q + wide, in.v = in.k + wide;
    in.o.g = in.g.data, in.o.beta = in.beta.data, in.o.skip = kind == SCAN_SSD ? in.skip.data : NULL;
    in.o.out = test_alloc((size_t)(rows * in.o.ldo) * each);
    in.o.after = test_alloc((size_t)(s.seqs * s.heads * s.key_dim * s.dim) * 4);
    in.o.states = test_alloc(scan_states_bytes(s.seqs, s.len, s.heads, s.key_dim, s.dim));
    return in;
}

REFERENCE static void unit(const op_scan *o, const double *x, double scale, double *to)
{
    double sum = (double)o->norm_eps;
    for (int64_t i = 0; i < o->key_dim; i++)
        sum += x[i] * x[i];
    for (int64_t i = 0; i < o->key_dim; i++)
        to[i] = x[i] * scale / (o->norm_eps > 0 ? sqrt(sum) : 1);
}

/* state (key_dim, dim) from before the row to after it; out: `dim` values. */
REFERENCE static void step(const inputs *in, int64_t row, int64_t head, bool begins, double *state, double *out)
{
    const op_scan *o = &in->o;
    const int64_t key = row * o->ld + head / (o->heads / o->key_heads) * o->key_dim;
    const double *v = in->v + row * o->ld + head * o->dim, decay = begins ? 0 : exp(in->g.value[row * o->heads + head]);
    double q[DIMS], k[DIMS];
    unit(o, in->q + key, o->scale != 0 ? (double)o->scale : 1, q);
    unit(o, in->k + key, 1, k);
    for (int64_t d = 0; d < o->dim; d++) {
        double seen = 0;
        for (int64_t i = 0; i < o->key_dim; i++) {
            state[i * o->dim + d] *= decay;
            seen += state[i * o->dim + d] * k[i];
        }
        const double u = in->beta.value[row * o->heads + head] * (v[d] - (o->kind == SCAN_DELTA ? seen : 0));
        out[d] = o->skip ? in->skip.value[head] * v[d] : 0;
        for (int64_t i = 0; i < o->key_dim; i++) {
            state[i * o->dim + d] += k[i] * u;
            out[d] += state[i * o->dim + d] * q[i];
        }
    }
}

static bool begins(const op_scan *o, int64_t seq, int64_t s) { return s == 0 || (o->first && o->first[seq * o->len + s] == s); }

/* Of the sequence and the value heads of the key head. */
REFERENCE static double loss(const void *ctx)
{
    const inputs *in = ctx;
    const op_scan *o = &in->o;
    const int64_t group = o->heads / o->key_heads;
    static double state[DIMS * DIMS];
    double sum = 0, out[DIMS];
    for (int64_t head = in->key_head * group; head < (in->key_head + 1) * group; head++) {
        memset(state, 0, sizeof state);
        for (int64_t s = 0; s < o->len; s++) {
            const int64_t row = in->seq * o->len + s;
            step(in, row, head, begins(o, in->seq, s), state, out);
            for (int64_t d = 0; d < o->dim; d++)
                sum += out[d] * in->dout.value[row * o->ldo + head * o->dim + d];
        }
    }
    return sum;
}

/* Out and the last states are those of the recurrence, but for `slack`. */
static void check_forward(const inputs *in, double slack)
{
    const op_scan *o = &in->o;
    static double state[DIMS * DIMS];
    double out[DIMS];
    for (int64_t h = 0; h < o->seqs * o->heads; h++) {
        const int64_t seq = h / o->heads, head = h % o->heads;
        memset(state, 0, sizeof state);
        for (int64_t s = 0; s < o->len; s++) {
            const int64_t row = seq * o->len + s;
            step(in, row, head, begins(o, seq, s), state, out);
            for (int64_t d = 0; d < o->dim; d++)
                near(o->type, element(o->type, o->out, row * o->ldo + head * o->dim + d), out[d], slack, "out", row);
        }
        for (int64_t i = 0; i < o->key_dim * o->dim && o->after; i++)
            near(PT_F32, o->after[h * o->key_dim * o->dim + i], state[i], slack, "after", i);
    }
}

static void forward(int threads, const op_scan *o) { run_op(threads, &(op){OP_SCAN, .scan = *o}); }

static void scans_are_the_recurrence(void **state)
{
    for (int turn = 0; turn < 4 * SHAPES; turn++) {
        if (is_left_out(turn))
            continue;
        const shape s = shapes[turn / 4];
        inputs in = inputs_of(types[turn & 1], s, turn & 2 ? SCAN_SSD : SCAN_DELTA, random_below(2));
        const size_t bytes = (size_t)(s.seqs * s.len * in.o.ldo) * dtype_bytes(in.o.type);
        const size_t states = scan_states_bytes(s.seqs, s.len, s.heads, s.key_dim, s.dim);
        forward(1, &in.o);
        check_forward(&in, 2e-5);
        for (int threads = 2; threads <= (device_is_cuda() ? 2 : TEST_THREADS); threads++) {
            op_scan again = in.o;
            again.out = test_alloc(bytes), again.states = test_alloc(states), again.after = NULL;
            forward(threads, &again);
            same_bits(again.out, in.o.out, bytes, "out again");
            same_bits(again.states, in.o.states, states, "states again");
        }
        test_teardown(state);
    }
}

/* Rows that come in pieces, with the state kept between them. */
static void scans_continue(void **state)
{
    for (int turn = 0; turn < 4; turn++) {
        if (is_left_out(turn))
            continue;
        const shape s = {1, 72, 1, 2, 6, 10};
        inputs in = inputs_of(types[turn & 1], s, turn & 2 ? SCAN_SSD : SCAN_DELTA, false);
        const size_t each = dtype_bytes(in.o.type);
        const int64_t states = s.heads * s.key_dim * s.dim;
        op_scan o = in.o;
        o.after = memset(test_alloc((size_t)states * 4), 0, (size_t)states * 4), o.before = o.after, o.states = NULL;
        for (int64_t row = 0; row < s.len; row += o.len) {
            const size_t at = (size_t)(row * in.o.ld) * each;
            o.len = row < 66 ? 66 : 1 + random_below(2);
            o.len = o.len < s.len - row ? o.len : s.len - row;
            o.q = (char *)in.o.q + at, o.k = (char *)in.o.k + at, o.v = (char *)in.o.v + at;
            o.g = in.o.g + row * s.heads, o.beta = in.o.beta + row * s.heads, o.out = (char *)in.o.out + (size_t)(row * o.ldo) * each;
            forward(1 + (int)row % TEST_THREADS, &o);
        }
        in.o.after = o.after;
        check_forward(&in, 2e-5);
        test_teardown(state);
    }
}

/* All keys almost the same, no decay, and beta almost 1. */
static void equal_keys_are_exact(void **state)
{
    inputs in = inputs_of(PT_F32, (shape){1, 150, 1, 1, 32, 8}, SCAN_DELTA, false);
    const op_scan *o = &in.o;
    for (int64_t row = 0; row < o->len; row++) {
        for (int64_t i = 0; i < o->key_dim; i++)
            tensor_set(&in.qkv, row * o->ld + o->key_dim + i, in.k[i] + 0.02 * in.k[row * o->ld + i]);
        tensor_set(&in.beta, row, 0.999), tensor_set(&in.g, row, -1e-4 * (double)(row % 2));
    }
    forward(1, o);
    check_forward(&in, 1e-4);
    test_teardown(state);
}

/* ---- backward ---- */

static op_scan_backward backward_of(const inputs *in)
{
    const op_scan *o = &in->o;
    const int64_t rows = o->seqs * o->len, wide = o->key_heads * o->key_dim;
    const size_t each = dtype_bytes(o->type), sums = (size_t)(rows * o->heads) * 4;
    char *dqkv = test_alloc((size_t)(rows * o->ld) * each);
    return (op_scan_backward){
        .forward = *o, .lddo = o->ldo, .ldd = o->ld, .dout = in->dout.data, .dq = dqkv, .dk = dqkv + (size_t)wide * each,
        .dv = dqkv + 2 * (size_t)wide * each, .dg = test_alloc(sums), .dbeta = test_alloc(sums),
        .dskip = o->skip ? memset(test_alloc((size_t)o->heads * 4), 0, (size_t)o->heads * 4) : NULL, .accumulate = o->seqs > 1,
        .scratch = test_alloc(scan_backward_scratch_bytes(o->seqs, o->len, o->key_heads, o->heads, o->key_dim, o->dim, device_is_cuda()))};
}

static void check_element(inputs *in, const void *got, double *value, int64_t at, double slack, const char *what)
{
    const double want = slope(loss, in, value + at);
    near(in->o.type, element(in->o.type, got, at), want, slack * (1 + fabs(want)), what, at);
}

static void check_slopes(inputs *in, const op_scan_backward *b, int64_t each, double slack)
{
    const op_scan *o = &in->o;
    for (in->seq = 0; in->seq < o->seqs; in->seq++)
        for (int64_t s = random_below(2) * (o->len - 1) / 2; s < o->len; s += 1 + random_below(each))
            for (in->key_head = 0; in->key_head < o->key_heads; in->key_head++) {
                const int64_t row = in->seq * o->len + s, group = o->heads / o->key_heads;
                const int64_t head = in->key_head * group + random_below(group);
                const int64_t key = row * o->ld + in->key_head * o->key_dim + random_below(o->key_dim), at = row * o->heads + head;
                check_element(in, b->dq, in->q, key, slack, "dq");
                check_element(in, b->dk, in->k, key, slack, "dk");
                check_element(in, b->dv, in->v, row * o->ld + head * o->dim + random_below(o->dim), slack, "dv");
                near(PT_F32, b->dg[at], slope(loss, in, in->g.value + at), slack * 3, "dg", at);
                near(PT_F32, b->dbeta[at], slope(loss, in, in->beta.value + at), slack * 3, "dbeta", at);
                if (s == 0 || begins(o, in->seq, s))
                    assert_true(b->dg[at] == 0);
            }
}

REFERENCE static double skip_gradient(const inputs *in, int64_t head)
{
    const op_scan *o = &in->o;
    double sum = 0;
    for (int64_t row = 0; row < o->seqs * o->len; row++)
        for (int64_t d = head * o->dim; d < (head + 1) * o->dim; d++)
            sum += in->v[row * o->ld + d] * in->dout.value[row * o->ldo + d];
    return sum;
}

static void gradients_are_slopes(void **state)
{
    for (int turn = 0; turn < 4 * SHAPES; turn++) {
        if (is_left_out(turn))
            continue;
        const shape s = shapes[turn / 4];
        inputs in = inputs_of(types[turn & 1], s, turn & 2 ? SCAN_SSD : SCAN_DELTA, random_below(2));
        const size_t bytes = (size_t)(s.seqs * s.len * in.o.ld) * dtype_bytes(in.o.type), sums = (size_t)(s.seqs * s.len * s.heads) * 4;
        forward(1, &in.o);
        op_scan_backward b = backward_of(&in);
        run_op(1, &(op){OP_SCAN_BACKWARD, .scan_backward = b});
        check_slopes(&in, &b, s.len > 100 || s.dim * s.key_dim > 1000 ? s.len / 2 : 8, 1e-4);
        for (int64_t head = 0; head < s.heads && b.dskip; head++)
            near(PT_F32, b.dskip[head], skip_gradient(&in, head), 1e-4, "dskip", head);
        for (int threads = 2; threads <= (device_is_cuda() ? 2 : TEST_THREADS); threads++) {
            op_scan_backward again = backward_of(&in);
            run_op(threads, &(op){OP_SCAN_BACKWARD, .scan_backward = again});
            same_bits(again.dq, b.dq, bytes, "gradients again");
            same_bits(again.dg, b.dg, sums, "dg again");
            same_bits(again.dbeta, b.dbeta, sums, "dbeta again");
            if (b.dskip)
                same_bits(again.dskip, b.dskip, (size_t)s.heads * 4, "dskip again");
        }
        test_teardown(state);
    }
}

/* Both may be rounded, to neighbours. */
static void near_each_other(pt_dtype type, double a, double b, double slack, const char *what, int64_t i)
{
    near(type, a, b, slack + (type == PT_BF16 ? 0x1p-7 * fabs(b) : 0), what, i);
}

/* Documents of a sequence give what they give alone, as sequences of their own. */
static void documents_are_apart(void **state)
{
    for (int turn = 0; turn < 4; turn++) {
        if (is_left_out(turn))
            continue;
        inputs in = inputs_of(types[turn & 1], (shape){1, 100, 1, 2, 6, 10}, turn & 2 ? SCAN_SSD : SCAN_DELTA, true);
        const op_scan *o = &in.o;
        const size_t each = dtype_bytes(o->type);
        forward(1, o);
        op_scan_backward b = backward_of(&in);
        run_op(1, &(op){OP_SCAN_BACKWARD, .scan_backward = b});
        for (int64_t s = 0, end; s < o->len; s = end) {
            for (end = s + 1; end < o->len && o->first[end] == s; end++)
                ;
            const size_t at = (size_t)(s * o->ld) * each, out_at = (size_t)(s * o->ldo) * each;
            inputs alone = in;
            alone.o.len = end - s, alone.o.first = NULL, alone.o.states = NULL, alone.o.after = NULL;
            alone.o.q = (char *)o->q + at, alone.o.k = (char *)o->k + at, alone.o.v = (char *)o->v + at;
            alone.o.g += s * o->heads, alone.o.beta += s * o->heads, alone.o.out = test_alloc((size_t)((end - s) * o->ldo) * each);
            alone.dout.data = (char *)in.dout.data + out_at;
            forward(1, &alone.o);
            op_scan_backward c = backward_of(&alone);
            run_op(1, &(op){OP_SCAN_BACKWARD, .scan_backward = c});
            for (int64_t row = 0; row < end - s; row++) {
                for (int64_t i = 0; i < o->heads * o->dim; i++)
                    near_each_other(o->type, element(o->type, o->out, (s + row) * o->ldo + i),
                                    element(o->type, alone.o.out, row * o->ldo + i), 1e-5, "out", row);
                for (int64_t i = 0; i < o->ld - 3; i++)
                    near_each_other(o->type, element(o->type, b.dq, (s + row) * o->ld + i), element(o->type, c.dq, row * o->ld + i), 5e-5,
                                    "dqkv", i);
            }
        }
        test_teardown(state);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {OP_TEST(scans_are_the_recurrence), OP_TEST(scans_continue), OP_TEST(equal_keys_are_exact),
                                       OP_TEST(gradients_are_slopes), OP_TEST(documents_are_apart)};
    return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
