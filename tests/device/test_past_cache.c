/* What is written past the caches has the bits of what is written into them, whatever the array's place and its rows' length. */
#include "device/reference.h"

#include "device/cpu/kernels/activation.h"
#include "device/cpu/kernels/embedding.h"
#include "device/cpu/kernels/norm.h"

enum { TURNS = 200, OUT_BYTES = 1 << 18, ALIGN = 64, NORM_SCRATCH = 6 /* rows of floats */ };

/* A row's length that vectors divide, or one that they do not; and a place for it. */
static int64_t some_length(void) { return random_below(2) ? 32 * (1 + random_below(20)) : 1 + random_below(600); }
static int64_t some_place(pt_dtype type) { return random_below(2) ? 0 : (int64_t)dtype_bytes(type) * random_below(ALIGN); }

typedef struct outputs { char *all[2], *at[2]; } outputs; /* into the caches, past them */

static outputs outputs_alloc(int64_t place)
{
    outputs o;
    for (int past = 0; past < 2; past++) {
        char *memory = test_alloc(OUT_BYTES + ALIGN);
        o.all[past] = memory + (-(uintptr_t)memory & (ALIGN - 1));
        memset(o.all[past], 0x5a, OUT_BYTES);
        o.at[past] = o.all[past] + place;
    }
    return o;
}

static void check(const outputs *o) { same_bits(o->all[0], o->all[1], OUT_BYTES, "past the caches"); }

static void activations(void **state)
{
    for (int turn = 0; turn < TURNS; turn++) {
        const pt_dtype type = types[turn & 1];
        const activation_kind kind = (activation_kind)random_below(4);
        const bool gated = random_below(2);
        const int64_t cols = some_length(), rows = 1 + random_below(8), col0 = gated ? 0 : random_below((int)cols);
        tensor up = tensor_random(type, 2 * rows * cols, 0, 2), dout = tensor_random(type, rows * cols, 0, 1);
        outputs forward = outputs_alloc(some_place(type)), backward = outputs_alloc(some_place(type)),
            again = outputs_alloc(some_place(type));
        for (int past = 0; past < 2; past++)
            for (int64_t row = 0; row < rows; row++) {
                const op_activation o = {kind, gated, type, rows, cols, up.data, forward.at[past]};
                KERNEL_BEST(activation_part)(&o, row, col0, cols, past);
                const op_activation_backward b = {kind, gated, type, rows, cols, up.data, dout.data, backward.at[past], again.at[past]};
                KERNEL_BEST(activation_backward_part)(&b, row, col0, cols, past);
            }
        check(&forward);
        check(&backward);
        check(&again);
        test_teardown(NULL);
    }
}

static void norms(void **state)
{
    for (int turn = 0; turn < TURNS; turn++) {
        const pt_dtype type = types[turn & 1];
        const norm_kind kind = random_below(2) ? NORM_LAYER : NORM_RMS;
        const int64_t dim = some_length(), rows = 1 + random_below(9), heads = 1 + random_below(3), ld = heads * dim + random_below(2) * 32;
        tensor x = tensor_random(type, rows * ld, 0, 2), w = tensor_random(PT_F32, 2 * dim, 1, 0.1);
        outputs out = outputs_alloc(some_place(type));
        char *scratch = test_alloc((size_t)(NORM_SCRATCH * dim) * sizeof(float) + ALIGN);
        scratch += -(uintptr_t)scratch & (ALIGN - 1);
        for (int past = 0; past < 2; past++) {
            const op_norm o = {kind, type, rows, heads, dim, ld, ld, 1e-5f, x.data, w.data, (const float *)w.data + dim, out.at[past],
                               0, NULL, NULL};
            KERNEL_BEST(norm_rows)(&o, 0, rows, past, (float *)scratch);
        }
        check(&out);
        test_teardown(NULL);
    }
}

static void embeddings(void **state)
{
    enum { VOCAB = 40 };
    for (int turn = 0; turn < TURNS; turn++) {
        const pt_dtype type = types[turn & 1];
        const int64_t cols = some_length(), rows = 1 + random_below(30);
        tensor table = tensor_random(type, VOCAB * cols, 0, 1);
        int32_t *ids = random_ids(rows, VOCAB), *positions = random_ids(rows, VOCAB);
        outputs out = outputs_alloc(some_place(type)), residual = outputs_alloc(some_place(PT_F32));
        const bool with_residual = random_below(2), with_positions = random_below(2);
        for (int past = 0; past < 2; past++) {
            const void *second = with_positions ? table.data : NULL;
            float *stream = with_residual ? (float *)residual.at[past] : NULL;
            const op_embedding o = {type, rows, cols, 0, VOCAB, ids, positions, table.data, second, out.at[past], stream, 0, 0, 0, 0};
            KERNEL_BEST(embedding_rows)(&o, 0, rows, past);
        }
        check(&out);
        check(&residual);
        test_teardown(NULL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        OP_TEST(activations),
        OP_TEST(norms),
        OP_TEST(embeddings),
    };
    return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
