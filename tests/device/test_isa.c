/* Every instruction set gives the same bits: a process for each runs the same ops. (What it lowers
 * to is chosen once, so this program must not run an op before it forks.) */
#include "device/cpu/isa.h"
#include "device/cpu/ops.h"
#include "device/reference.h"
#include "seed.h"

#include <sys/wait.h>
#include <unistd.h>

static pool *the_pool;

static uint64_t hash_bytes(uint64_t hash, const void *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ ((const unsigned char *)data)[i]) * 0x100000001b3u;
    return hash;
}

static uint64_t hash_norm(pt_dtype type, uint64_t hash)
{
    enum { ROWS = 9, DIM = 219 }; /* pairs of vectors, one, and a part of one */
    for (int kind = NORM_LAYER; kind <= NORM_RMS; kind++) {
        const float offset = kind == NORM_RMS ? 1 : 0;
        tensor x = tensor_random(type, ROWS * DIM, 0, 1), w = tensor_random(PT_F32, DIM, 1, 1), dy = tensor_random(type, ROWS * DIM, 0, 1);
        float dweight[DIM], dbias[DIM], stream[ROWS * DIM];
        op_norm o = {kind, type, ROWS, 1, DIM, DIM, DIM, 1e-5f, x.data, w.data, w.data, test_alloc(ROWS * DIM * 4), offset, NULL, NULL};
        cpu_norm(the_pool, &o);
        op_norm_backward b = {kind, type, false, ROWS, 1, DIM, DIM, DIM, DIM, 1e-5f, x.data, w.data, dy.data, x.data,
                              dy.data, NULL, stream, dweight, dbias, test_alloc(norm_backward_scratch_bytes(ROWS, 1, DIM)), w.data,
                              test_alloc(ROWS * DIM * 4), offset};
        cpu_norm_backward(the_pool, &b);
        same_bits(o.y, b.y, tensor_bytes(&x), "y again");
        hash = hash_bytes(hash, o.y, tensor_bytes(&x));
        o.residual = o.y, o.stream = stream;
        cpu_norm(the_pool, &o);
        hash = hash_bytes(hash, o.y, tensor_bytes(&x));
        hash = hash_bytes(hash, dy.data, tensor_bytes(&dy));
        hash = hash_bytes(hash, stream, sizeof stream);
        hash = hash_bytes(hash_bytes(hash, dweight, sizeof dweight), dbias, sizeof dbias);
    }
    return hash;
}

#if defined(__x86_64__)
enum { LEAST_ISA = 2, COPIES = 3 };
#define TANH_COPIES {tanh_vector_v2tanh, tanh_vector_v3tanh, tanh_vector_v4tanh}
void tanh_vector_v2tanh(const float x[16], float y[16]); /* tanh_kernel.c */
void tanh_vector_v3tanh(const float x[16], float y[16]);
void tanh_vector_v4tanh(const float x[16], float y[16]);
#else
enum { LEAST_ISA = 1, COPIES = 1 };
#define TANH_COPIES {tanh_vector_neontanh}
void tanh_vector_neontanh(const float x[16], float y[16]);
#endif

/* Over all magnitudes of which a score or a logit may be. */
static void tanh_is_within_3e_7_everywhere(void **state)
{
    static void (*const kernels[])(const float *, float *) = TANH_COPIES;
    const float special[16] = {0, -0.0f, INFINITY, -INFINITY, NAN, 1e30f, -1e30f, 0x1p-100f, 0.625f, -0.625f};
    float y[16], before[16];
    double worst = 0;
    for (int copy = 0; copy < COPIES && LEAST_ISA + copy <= cpu_isa(); copy++) {
        for (uint64_t i = 0; i < 300000; i += 16) {
            float x[16];
            for (uint64_t k = 0; k < 16; k++)
                x[k] = (float)(exp2(34 * rng_uniform(the_test.seed, RNG_TEST, 53, i + k) - 30) * (k % 2 ? 1 : -1));
            kernels[copy](x, y);
            kernels[0](x, before);
            same_bits(before, y, sizeof y, "tanh");
            for (int k = 0; k < 16; k++)
                worst = fmax(worst, fabs(y[k] / tanh((double)x[k]) - 1));
        }
        kernels[copy](special, y);
        assert_true(y[0] == 0 && !signbit(y[0]) && y[1] == 0 && signbit(y[1]) && y[2] == 1 && y[3] == -1 && isnan(y[4]));
        assert_true(y[5] == 1 && y[6] == -1 && y[7] == 0x1p-100f && y[8] == -y[9]);
    }
    print_message("tanh: at most %.3g of its value\n", worst);
    assert_true(worst < 3e-7);
}

/* Who sets it wants the bits of one level: what is misspelt is no wish for the best. */
static void a_level_that_is_none_is_refused(void **state)
{
    static const struct { const char *level; int failed; } cases[] = {
#if defined(__x86_64__)
        {"v2", 0}, {"v4", 0}, {"", 0}, {"avx2", PT_FAILED}, {"V3", PT_FAILED}, {"v5", PT_FAILED}, {"v33", PT_FAILED}, {"neon", PT_FAILED}};
#else
        {"neon", 0}, {"neonbf16", 0}, {"", 0}, {"v3", PT_FAILED}, {"NEON", PT_FAILED}, {"neonbf1", PT_FAILED}};
#endif
    const char *before = getenv("PROTRAIN_ISA");
    char kept[16];
    snprintf(kept, sizeof kept, "%s", before ? before : "");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pt_error e = {0};
        setenv("PROTRAIN_ISA", cases[i].level, 1);
        assert_int_equal(cpu_isa_check(&e), cases[i].failed);
        assert_true(!cases[i].failed || strstr(e.text, cases[i].level));
    }
    setenv("PROTRAIN_ISA", kept, 1);
    if (!before)
        unsetenv("PROTRAIN_ISA");
}

/* One block of rows: added one after the other, each sum rounded. */
static void rows_are_added_one_by_one(void **state)
{
    pool *p;
    assert_int_equal(pool_open(2, &p, NULL), 0);
    for (int turn = 0; turn < 32; turn++) {
        pt_dtype type = types[turn & 1];
        int64_t rows = 1 + turn / 4, cols = 1 + random_below(300);
        tensor dy = tensor_random(type, rows * cols, 0, 1);
        float *want = test_alloc((size_t)cols * 4), *got = test_alloc((size_t)cols * 4);
        memset(want, 0, (size_t)cols * 4);
        for (int64_t i = 0; i < rows * cols; i++)
            want[i % cols] += (float)dy.value[i];
        cpu_bias_backward(p, &(op_bias_backward){type, false, rows, cols, cols, dy.data, got});
        same_bits(want, got, (size_t)cols * 4, "sums");
        test_teardown(NULL);
    }
    pool_close(p);
}

static uint64_t hash_activation(pt_dtype type, uint64_t hash)
{
    enum { N = 20011 };
    tensor x = tensor_random(type, N, 0, 3), d = tensor_random(type, N, 0, 1);
    for (int kind = ACT_GELU_TANH; kind <= ACT_RELU; kind++) {
        op_activation o = {kind, false, type, 1, N, x.data, test_alloc(N * 4)};
        cpu_activation(the_pool, &o);
        op_activation_backward b = {kind, false, type, 1, N, x.data, d.data, test_alloc(N * 4), NULL};
        cpu_activation_backward(the_pool, &b);
        hash = hash_bytes(hash_bytes(hash, o.out, tensor_bytes(&x)), b.dup, tensor_bytes(&x));
    }
    return hash;
}

/* Of each number of bf16 that is not a NaN. */
static uint64_t hash_all_activations(uint64_t hash)
{
    enum { N = 1 << 16 };
    tensor x = tensor_random(PT_BF16, N, 0, 1), d = tensor_random(PT_BF16, N, 0, 1);
    for (int64_t i = 0; i < N; i++)
        ((bf16 *)x.data)[i] = isnan(bf16_to_f32((bf16)i)) ? 0 : (bf16)i;
    for (int kind = ACT_GELU_TANH; kind <= ACT_RELU; kind++) {
        op_activation o = {kind, false, PT_BF16, 1, N, x.data, test_alloc(N * 2)};
        cpu_activation(the_pool, &o);
        op_activation_backward b = {kind, false, PT_BF16, 1, N, x.data, d.data, test_alloc(N * 2), NULL};
        cpu_activation_backward(the_pool, &b);
        hash = hash_bytes(hash_bytes(hash, o.out, N * 2), b.dup, N * 2);
    }
    return hash;
}

static uint64_t hash_loss(pt_dtype type, uint64_t hash)
{
    enum { ROWS = 3, VOCAB = 1003 };
    tensor logits = tensor_random(PT_F32, ROWS * VOCAB, 0, 5);
    float loss[ROWS];
    op_cross_entropy o = {type, ROWS, VOCAB, VOCAB, VOCAB, 0.01f, logits.data, random_ids(ROWS, VOCAB), loss,
                          test_alloc(ROWS * VOCAB * 4), 0, 0, NULL, NULL, 0, false};
    cpu_cross_entropy(the_pool, &o);
    hash = hash_bytes(hash_bytes(hash, loss, sizeof loss), o.dlogits, ROWS * VOCAB * dtype_bytes(type));
    o.logit_scale = 0.7f, o.softcap = 3, o.smoothing = 0.1f;
    cpu_cross_entropy(the_pool, &o);
    return hash_bytes(hash_bytes(hash, loss, sizeof loss), o.dlogits, ROWS * VOCAB * dtype_bytes(type));
}

static uint64_t hash_optimizer(pt_dtype type, uint64_t hash)
{
    enum { N = 30011 };
    tensor acc = tensor_random(PT_F32, N, 0, 1e-3), m = tensor_random(PT_F32, N, 0, 1e-3), v = tensor_random(PT_F32, N, 1e-3, 1e-4);
    tensor w = tensor_random(PT_F32, N, 0, 1), lo = tensor_random(PT_BF16, N, 0, 1);
    double sumsq;
    op_gradient_finish f = {type, 1, N, acc.data, m.data, test_alloc(N * 4), &sumsq, NULL};
    cpu_gradient_finish(the_pool, &f);
    op_adamw o = {type, N, w.data, type == PT_BF16 ? lo.data : NULL, m.data, v.data, f.g, 0.7f, 0.99f, 0.9f, 0.95f, 1e-8f, 1e-2f,
                  .sqrt_correction2 = 0.4f};
    cpu_adamw(the_pool, &o);
    hash = hash_bytes(hash_bytes(hash, f.g, N * dtype_bytes(type)), &sumsq, sizeof sumsq);
    hash = hash_bytes(hash_bytes(hash, w.data, N * dtype_bytes(type)), lo.data, tensor_bytes(&lo));
    return hash_bytes(hash_bytes(hash, m.data, N * 4), v.data, N * 4);
}

static uint64_t hash_codes(pt_dtype type, uint64_t hash)
{
    enum { N = 30011, BLOCKS = N / ADAMW8BIT_BLOCK + 1 };
    tensor w = tensor_random(PT_F32, N, 0, 1), lo = tensor_random(PT_BF16, N, 0, 1), g = tensor_random(type, N, 0, 1e-2);
    tensor m_scale = tensor_random(PT_F32, BLOCKS, 1e-2, 1e-3), v_scale = tensor_random(PT_F32, BLOCKS, 1e-4, 1e-5);
    tensor codes = tensor_random(PT_F32, N, 0, 1), more = tensor_random(PT_F32, N, 0, 1);
    op_adamw8bit o = {{type, N, w.data, type == PT_BF16 ? lo.data : NULL, NULL, NULL, g.data, 0.7f, 0.99f, 0.9f, 0.95f, 1e-8f, 1e-2f,
                       .sqrt_correction2 = 0.4f},
                      codes.data, more.data, m_scale.data, v_scale.data};
    cpu_adamw8bit(the_pool, &o);
    hash = hash_bytes(hash_bytes(hash, w.data, N * dtype_bytes(type)), lo.data, tensor_bytes(&lo));
    hash = hash_bytes(hash_bytes(hash, codes.data, N), more.data, N);
    return hash_bytes(hash_bytes(hash, m_scale.data, tensor_bytes(&m_scale)), v_scale.data, tensor_bytes(&v_scale));
}

static uint64_t hash_muon(pt_dtype type, uint64_t hash)
{
    enum { ROWS = 123, COLS = 244, N = ROWS * COLS };
    tensor w = tensor_random(PT_F32, N, 0, 1), lo = tensor_random(PT_BF16, N, 0, 1), g = tensor_random(type, N, 0, 1e-2);
    tensor m = tensor_random(PT_F32, N, 0, 1e-2), s = tensor_random(PT_F32, N, 0, 1);
    uint16_t *x = test_alloc(N * 2);
    double *sums = test_alloc((size_t)muon_sums(N) * sizeof *sums);
    cpu_muon_momentum(the_pool, &(op_muon_momentum){type, N, g.data, m.data, x, sums, 0.7f, 0.95f});
    cpu_muon_scale(the_pool, &(op_muon_scale){N, x, sums, 1e-7f});
    cpu_muon_combine(the_pool, &(op_muon_combine){ROWS, COLS - 3, COLS, COLS, COLS, x, s.data, x, 3.4445f, 1});
    cpu_muon_apply(the_pool, &(op_muon_apply){type, N, w.data, type == PT_BF16 ? lo.data : NULL, x, 0.99f, 0.02f});
    hash = hash_bytes(hash_bytes(hash, sums, (size_t)muon_sums(N) * sizeof *sums), m.data, N * 4);
    hash = hash_bytes(hash_bytes(hash, x, N * 2), w.data, N * dtype_bytes(type));
    return hash_bytes(hash, lo.data, tensor_bytes(&lo));
}

static uint64_t hash_rows(pt_dtype type, uint64_t hash)
{
    enum { ROWS = 70, COLS = 90 };
    tensor x = tensor_random(type, ROWS * COLS, 0, 1), table = tensor_random(PT_F32, ROWS * COLS, 0, 1);
    int32_t *ids = random_ids(ROWS, ROWS);
    op_rope r = {type, false, ROWS, 5, COLS / 5, COLS, table.data, ids, x.data, 0, false};
    cpu_rope(the_pool, &r);
    r.heads = 1, r.dim = COLS, r.rotated = COLS - 10;
    cpu_rope(the_pool, &r);
    op_embedding e = {type, ROWS, COLS, 0, ROWS, ids, ids, x.data, x.data, test_alloc(ROWS * COLS * 4), NULL, 1.7f, 0, 0, 0};
    cpu_embedding(the_pool, &e);
    float sums[COLS];
    op_bias_backward b = {type, false, ROWS, COLS, COLS, e.out, sums};
    cpu_bias_backward(the_pool, &b);
    op_embedding_backward back = {type, true, ROWS, COLS, 0, ROWS, -1, ids, e.out, table.data, 0};
    cpu_embedding_backward(the_pool, &back);
    back.scale = 0.3f;
    cpu_embedding_backward(the_pool, &back);
    return hash_bytes(hash_bytes(hash, sums, sizeof sums), table.data, tensor_bytes(&table));
}

static uint64_t hash_ops(void)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (int t = 0; t < TYPES; t++) {
        hash = hash_norm(types[t], hash);
        hash = hash_activation(types[t], hash);
        hash = hash_loss(types[t], hash);
        hash = hash_muon(types[t], hash_codes(types[t], hash_optimizer(types[t], hash)));
        hash = hash_rows(types[t], hash);
    }
    return hash_all_activations(hash);
}

static uint64_t hash_with(const char *isa)
{
    int ends[2];
    uint64_t hash = 0;
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (!child) {
        setenv("PROTRAIN_ISA", isa, 1);
        if (pool_open(2, &the_pool, NULL)) /* threads do not survive a fork */
            _exit(1);
        hash = hash_ops();
        _exit(write(ends[1], &hash, sizeof hash) != (ssize_t)sizeof hash);
    }
    close(ends[1]);
    assert_int_equal(read(ends[0], &hash, sizeof hash), sizeof hash);
    close(ends[0]);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    return hash;
}

static void every_instruction_set_gives_the_same_bits(void **state)
{
#if defined(PT_ONE_COPY)
    skip();
#elif defined(__x86_64__)
    uint64_t v2 = hash_with("v2"), v3 = hash_with("v3"), v4 = hash_with("v4");
    assert_true(v2 == v3);
    assert_true(v3 == v4); /* the same program again where there is no v4 */
#else
    assert_true(hash_with("neon") == hash_with("neonbf16"));
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {OP_TEST(every_instruction_set_gives_the_same_bits), OP_TEST(rows_are_added_one_by_one),
                                       cmocka_unit_test(tanh_is_within_3e_7_everywhere),
                                       cmocka_unit_test(a_level_that_is_none_is_refused)};
    the_test.seed = test_seed();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
