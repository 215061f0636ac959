/* Sinks of attention, forward and backward, against fp64. With attention: train.gradients (gpt_oss). */
#include "device/reference.h"

typedef struct sink_case { op_sink o; tensor out, lse, sinks, dout; int64_t ldo; } sink_case;

static sink_case sink_open(pt_dtype type, int64_t seqs, int64_t q_len, int64_t heads, int64_t dim)
{
    const int64_t ldo = heads * dim + 3, rows = seqs * q_len;
    sink_case c = {.out = tensor_random(type, rows * ldo, 0, 1), .lse = tensor_random(PT_F32, seqs * heads * q_len, 1, 4),
                   .sinks = tensor_random(PT_F32, heads, 0, 2), .dout = tensor_random(type, rows * ldo, 0, 1), .ldo = ldo};
    c.o = (op_sink){.type = type, .seqs = seqs, .q_len = q_len, .heads = heads, .dim = dim, .ldo = ldo, .sinks = c.sinks.data,
                    .out = test_copy(c.out.data, tensor_bytes(&c.out)), .lse = test_copy(c.lse.data, tensor_bytes(&c.lse))};
    return c;
}

REFERENCE static double new_lse(const sink_case *c, int64_t row, int64_t head)
{
    const double lse = c->lse.value[(row / c->o.q_len * c->o.heads + head) * c->o.q_len + row % c->o.q_len], sink = c->sinks.value[head];
    return fmax(lse, sink) + log1p(exp(-fabs(lse - sink)));
}

static void check_forward(const sink_case *c)
{
    const op_sink *o = &c->o;
    for (int64_t row = 0; row < o->seqs * o->q_len; row++)
        for (int64_t head = 0; head < o->heads; head++) {
            const int64_t at = (row / o->q_len * o->heads + head) * o->q_len + row % o->q_len;
            const double lse = new_lse(c, row, head), factor = exp(c->lse.value[at] - lse);
            near(PT_F32, o->lse[at], lse, 1e-6 * fmax(1, fabs(lse)), "lse", at);
            for (int64_t i = 0; i < o->dim; i++) {
                const int64_t k = row * o->ldo + head * o->dim + i;
                near(o->type, element(o->type, o->out, k), c->out.value[k] * factor, 2e-6 * fabs(c->out.value[k]), "out", k);
            }
        }
    for (int64_t row = 0; row < o->seqs * o->q_len; row++) /* what lies between rows stays */
        assert_true(element(o->type, o->out, row * o->ldo + o->ldo - 1) == c->out.value[row * o->ldo + o->ldo - 1]);
}

static void check_backward(sink_case *c, bool accumulate)
{
    const op_sink *o = &c->o;
    const int64_t rows = o->seqs * o->q_len;
    tensor before = tensor_random(PT_F32, o->heads, 0, 1);
    op_sink_backward b = {.forward = *o, .accumulate = accumulate, .lddo = c->ldo, .dout = c->dout.data,
                          .scratch = test_alloc(sink_scratch_bytes(rows, o->heads)),
                          .dsinks = test_copy(before.data, tensor_bytes(&before))};
    run_op(2, &(op){OP_SINK_BACKWARD, .sink_backward = b});
    for (int64_t head = 0; head < o->heads; head++) {
        double want = accumulate ? before.value[head] : 0, size = 1;
        for (int64_t row = 0; row < rows; row++) {
            double dot = 0;
            for (int64_t i = 0; i < o->dim; i++)
                dot += c->dout.value[row * c->ldo + head * o->dim + i] * element(o->type, o->out, row * o->ldo + head * o->dim + i);
            want -= exp(c->sinks.value[head] - new_lse(c, row, head)) * dot;
            size += fabs(dot);
        }
        near(PT_F32, b.dsinks[head], want, 1e-6 * size, "dsinks", head);
    }
}

static void sinks_take_their_share(void **state)
{
    static const int64_t shapes[][4] = {{1, 1, 1, 8}, {3, 37, 4, 10}, {1, 200, 5, 64}, {2, 65, 300, 6}};
    for (int turn = 0; turn < 8; turn++) {
        const int64_t *s = shapes[turn / 2];
        sink_case c = sink_open(types[turn % 2], s[0], s[1], s[2], s[3]);
        run_op(1 + turn % TEST_THREADS, &(op){OP_SINK, .sink = c.o});
        check_forward(&c);
        check_backward(&c, turn % 4 > 1);
        test_teardown(NULL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {OP_TEST(sinks_take_their_share)};
    return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
