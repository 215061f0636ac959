/* Matmuls on the device under test: against sums in double precision, in every layout and type and with all that can be added; a
 * row's bits beside other rows; and what marks say of how long they took. */
#include "reference.h"

typedef struct matmul {
    op_matmul o;
    tensor a, b, bias, residual, before, stream, more_a, more_b, scale;
} matmul;

static matmul matmul_make(op_matmul o, bool bias, bool residual, bool stream)
{
    matmul p = {.o = o};
    p.o.lda = (o.layout == MATMUL_TN ? o.m : o.k) + 8;
    p.o.ldb = (o.layout == MATMUL_NT ? o.k : o.n) + 16;
    p.o.ldc = o.n + 8;
    p.a = tensor_random(o.type, (o.layout == MATMUL_TN ? o.k : o.m) * p.o.lda, 0, 1);
    p.b = tensor_random(o.type, (o.layout == MATMUL_NT ? o.n : o.k) * p.o.ldb, 0, 1);
    p.bias = tensor_random(o.type, o.n, 0, 1);
    p.residual = tensor_random(o.type, o.m * p.o.ldc, 0, 1);
    p.before = tensor_random(o.out_type, o.m * p.o.ldc, 0, 1);
    p.stream = tensor_random(PT_F32, o.m * p.o.ldc, 0, 1);
    p.o.a = p.a.data;
    p.o.b = p.b.data;
    p.o.bias = bias ? p.bias.data : NULL;
    p.o.residual = residual ? p.residual.data : NULL;
    p.o.stream = stream ? test_copy(p.stream.data, tensor_bytes(&p.stream)) : NULL;
    p.o.c = test_copy(p.before.data, tensor_bytes(&p.before));
    if (!o.more_k)
        return p;
    p.o.more_lda = o.more_k + 8;
    p.o.more_ldb = (o.layout == MATMUL_NT ? o.more_k : o.n) + 8;
    p.more_a = tensor_random(o.type, o.m * p.o.more_lda, 0, 1);
    p.more_b = tensor_random(o.type, (o.layout == MATMUL_NT ? o.n : o.more_k) * p.o.more_ldb, 0, 1);
    p.scale = tensor_random(PT_F32, o.n, 0, 1);
    p.o.more_a = p.more_a.data;
    p.o.more_b = p.more_b.data;
    p.o.scale = o.more_k % 2 ? p.scale.data : NULL;
    return p;
}

static void matmul_run(const matmul *p)
{
    run_op(1, &(op){OP_MATMUL, .matmul = p->o});
}

static void sums(const matmul *p, int64_t m, int64_t n, double *sum, double *size)
{
    const op_matmul *o = &p->o;
    *sum = *size = 0;
    for (int64_t k = 0; k < o->k; k++) {
        double x = p->a.value[o->layout == MATMUL_TN ? k * o->lda + m : m * o->lda + k] *
                   p->b.value[o->layout == MATMUL_NT ? n * o->ldb + k : k * o->ldb + n];
        *sum += x;
        *size += fabs(x);
    }
    for (int64_t k = 0; k < o->more_k; k++) {
        double x = p->more_a.value[m * o->more_lda + k] * p->more_b.value[o->layout == MATMUL_NT ? n * o->more_ldb + k
                                                                                                  : k * o->more_ldb + n];
        *sum += x;
        *size += fabs(x);
    }
    const double scale = o->scale ? p->scale.value[n] : 1;
    *sum *= scale;
    *size *= fabs(scale);
}

/* Matmuls in fp32 may be off by 2^-24 of all magnitudes for each of them. */
static void matmul_check(const matmul *p)
{
    const op_matmul *o = &p->o;
    for (int64_t m = 0; m < o->m; m++)
        for (int64_t n = 0; n < o->ldc; n++) {
            int64_t at = m * o->ldc + n;
            double got = element(o->out_type, o->c, at), sum, size;
            if (n >= o->n) { /* between the rows nothing is written */
                assert_true(got == p->before.value[at] && (!o->stream || o->stream[at] == (float)p->stream.value[at]));
                continue;
            }
            sums(p, m, n, &sum, &size);
            sum *= o->alpha ? o->alpha : 1;
            size *= o->alpha ? fabsf(o->alpha) : 1;
            sum += o->bias ? p->bias.value[n] : 0;
            double streamed = sum + p->stream.value[at], slack = (double)(o->k + o->more_k + 8) * (size + 4) * 0x1p-24;
            double added = o->residual ? p->residual.value[at] : o->accumulate ? p->before.value[at] : 0;
            double want = o->stream && !o->residual ? streamed : sum + added;
            near(o->out_type, got, want, slack, "c", at);
            if (o->stream)
                near(PT_F32, o->stream[at], streamed, slack, "stream", at);
        }
}

static void every_layout_type_and_addition(void **state)
{
    static const float alphas[] = {0, 1, 0.22f, -1.5f};
    static const int64_t sizes[][3] = {{64, 128, 96}, {17, 40, 64}, {5, 72, 200}, {130, 33, 31}, {1, 16, 8}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int kind = 0; kind < 9; kind++) {
            op_matmul o = {.layout = kind % 3, .type = kind / 3 ? PT_BF16 : PT_F32, .out_type = kind / 3 == 1 ? PT_BF16 : PT_F32,
                           .alpha = alphas[random_below(4)], .m = sizes[i][0], .n = sizes[i][1], .k = sizes[i][2]};
            matmul p = matmul_make(o, false, false, false);
            matmul_run(&p);
            matmul_check(&p);
            if (o.out_type == PT_F32) { /* as weight gradients are */
                o.accumulate = true;
                p = matmul_make(o, false, false, false);
                matmul_run(&p);
                matmul_check(&p);
                o.accumulate = false;
            }
            for (int more = 1; more < 8 && o.layout == MATMUL_NT && o.type == o.out_type; more++) { /* as forward's are */
                o.alpha = alphas[random_below(4)];
                o.more_k = random_below(3) * (3 + random_below(20)); /* beside an adapter */
                p = matmul_make(o, more & 1, more & 2, more & 4);
                matmul_run(&p);
                matmul_check(&p);
            }
            test_teardown(state);
        }
}

/* However many rows a micro-batch has. Matmuls of few rows, which generation has, may be computed in another way: fewer than 17, on
 * a CPU fewer than 256. */
static void rows_alone_and_beside_others(void **state, int64_t most, int64_t n, int64_t k)
{
    for (int kind = 0; kind < 4; kind++) {
        op_matmul o = {.layout = kind % 2 ? MATMUL_NN : MATMUL_NT, .type = kind / 2 ? PT_BF16 : PT_F32, .m = most, .n = n, .k = k};
        o.out_type = o.type;
        matmul p = matmul_make(o, kind % 2 == 0, false, false);
        matmul_run(&p);
        char *whole = test_copy(p.o.c, tensor_bytes(&p.before));
        const int64_t rows[] = {device_is_cuda() ? 17 : 256, device_is_cuda() ? 32 : 300, most / 3, most - 1};
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
            matmul part = p;
            int64_t from = (most - rows[i]) / 2;
            part.o.m = rows[i];
            part.o.a = (char *)p.a.data + (size_t)(from * p.o.lda) * dtype_bytes(o.type);
            part.o.c = (char *)p.o.c + (size_t)(from * p.o.ldc) * dtype_bytes(o.type);
            memcpy(p.o.c, p.before.data, tensor_bytes(&p.before));
            matmul_run(&part);
            const size_t row_bytes = (size_t)p.o.ldc * dtype_bytes(o.type);
            same_bits(part.o.c, whole + (size_t)from * row_bytes, (size_t)rows[i] * row_bytes, "rows");
        }
        test_teardown(state);
    }
}

static void a_row_has_the_same_bits_beside_any_others(void **state)
{
    if (test_device_is_emulated()) {
        rows_alone_and_beside_others(state, 70, 24, 48);
        return;
    }
    rows_alone_and_beside_others(state, 2500, 512, 768);
    rows_alone_and_beside_others(state, 800, 64, 4096); /* a sum that a library would like to split */
}

/* Whatever else was multiplied before: a device may take a library's matmul once and one of its own then. */
static void a_sum_of_two_parts_has_the_same_bits_each_time(void **state)
{
    for (int kind = 0; kind < 4; kind++) {
        op_matmul o = {.layout = kind % 2 ? MATMUL_NN : MATMUL_NT, .type = kind / 2 ? PT_BF16 : PT_F32, .alpha = 0.7f, .m = 21, .n = 40,
                       .k = 90,
                       .more_k = 9};
        o.out_type = o.type;
        matmul p = matmul_make(o, false, false, false);
        matmul_run(&p);
        char *once = test_copy(p.o.c, tensor_bytes(&p.before));
        for (int turn = 0; turn < 3; turn++) {
            memcpy(p.o.c, p.before.data, tensor_bytes(&p.before));
            matmul_run(&p);
            same_bits(p.o.c, once, tensor_bytes(&p.before), "again");
        }
        test_teardown(state);
    }
}

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

/* What n matmuls take by the device's marks around them, as a share of what they take by the clock here, in *here milliseconds. Of marks
 * outside of that time: 2. */
static double marked(const matmul *p, int n, double *here)
{
    queue *q = the_test.queues[1];
    pt_error e = {0};
    int64_t begin = 0, end = 0;
    double from = now_ms();
    queue_mark(q, &begin);
    for (int i = 0; i < n; i++)
        queue_submit(q, &(op){OP_MATMUL, .matmul = p->o});
    queue_mark(q, &end);
    if (queue_sync(q, queue_signal(q), &e))
        fail_msg("%s", e.text);
    *here = now_ms() - from;
    bool inside = (double)begin * 1e-6 >= from - 0.1 && (double)end * 1e-6 <= from + *here + 0.1;
    return inside ? (double)(end - begin) * 1e-6 / *here : 2;
}

/* The queue is idle between the turns, of which the first opens what marks need. This process may lose the processor for a while, but not
 * in all turns. */
static void marks_say_how_long_the_work_between_them_took(void **state)
{
    const int64_t size = test_device_is_emulated() ? 24 : 512;
    matmul p = matmul_make((op_matmul){.layout = MATMUL_NT, .m = size, .n = size, .k = size}, false, false, false);
    double here = 0;
    int n = 1;
    bool good = false;
    for (int turn = 0; turn < 60 && !good; turn++) {
        double share = marked(&p, n, &here);
        n *= here < 20 ? 2 : 1;
        good = turn > 0 && here >= 20 && share > 0.7 && share <= 1.01;
    }
    assert_true(good);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        OP_TEST(every_layout_type_and_addition),
        OP_TEST(a_row_has_the_same_bits_beside_any_others),
        OP_TEST(a_sum_of_two_parts_has_the_same_bits_each_time),
        OP_TEST(marks_say_how_long_the_work_between_them_took),
    };
    return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
