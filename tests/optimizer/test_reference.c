/* Optimizers against their equations in float64, over 20 steps (tests/fixtures/make_optimizers.py); each tensor of a parameter by itself,
 * whatever the threads. */
#include "device/reference.h"

#include "base/json.h"
#include "io/safetensors.h"
#include "optimizer/optimizer.h"

enum { PARTS = 3 };

/* A parameter in memory, with states of zero. */
typedef struct owned {
    const optimizer *by;
    param param;
    param_part part[PARTS];
    pt_dtype type;
    int64_t n;
    float *w, *g;
    bf16 *hi, *half;
    uint16_t *lo;
    void *slab[OPTIMIZER_SLABS];
    char *workspace;
} owned;

static void *zeros(uint64_t bytes) { return memset(test_alloc(bytes), 0, bytes); }

static void owned_open(owned *o, const optimizer *by, param_role role, pt_dtype type, const int64_t *rows, int parts, int64_t cols,
                       bool vector, bool turned, int64_t rank)
{
    *o = (owned){.by = by, .type = type, .param = {.role = role, .kind = param_kind_of(role), .cols = vector ? 0 : cols,
                                                   .rows = vector, .decay = true, .trainable = true, .parts = parts, .low_rank = rank}};
    int64_t at = 0;
    for (int i = 0; i < parts; at += rows[i++])
        o->part[i] = (param_part){.name = "w", .row0 = at, .rows = rows[i], .vector = vector, .transposed = turned};
    o->param.part = o->part;
    o->param.rows = vector ? 1 : at;
    o->param.cols = vector ? at : cols;
    o->n = o->param.rows * o->param.cols;
    o->w = test_alloc((size_t)o->n * 4), o->g = test_alloc((size_t)o->n * 4);
    o->hi = test_alloc((size_t)o->n * 2), o->half = test_alloc((size_t)o->n * 2), o->lo = test_alloc((size_t)o->n * 2);
    const update_rule *r = by->rule_of(&o->param);
    for (int i = 0; i < rule_slabs(r); i++)
        o->slab[i] = zeros((uint64_t)slab_of_param(&r->slabs[i], &o->param) * dtype_bytes(r->slabs[i].type));
    o->workspace = test_alloc(rule_workspace(r, &o->param) + 64);
    o->workspace += -(uintptr_t)o->workspace % 64;
}

static void owned_update(owned *o, int threads, const update_params *p)
{
    const update_rule *r = o->by->rule_of(&o->param);
    const bool half = o->type == PT_BF16;
    pt_error e = {0};
    for (int64_t i = 0; i < o->n && half; i++) {
        master_split(o->w[i], &o->hi[i], &o->lo[i]);
        o->half[i] = bf16_from_f32(o->g[i]);
    }
    update u = {.params = p, .param = &o->param, .type = o->type, .n = o->n, .hi = half ? (void *)o->hi : o->w, .lo = half ? o->lo : NULL,
                .g = half ? (void *)o->half : o->g, .workspace = o->workspace};
    memcpy(u.slab, o->slab, sizeof u.slab);
    queue *q = the_test.queues[threads];
    r->submit(q, &u);
    assert_int_equal(queue_sync(q, queue_signal(q), &e), 0);
    for (int64_t i = 0; i < o->n && half; i++)
        o->w[i] = master_join(o->hi[i], o->lo[i]);
}

static double distance(const float *a, const float *b, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
    return sqrt(sum);
}

/* ---- the reference ---- */

static float *stored(const safetensors *st, const char *name, const char *what, const safetensors_tensor **t)
{
    char full[64];
    pt_error e = {0};
    snprintf(full, sizeof full, "%s.%s", name, what);
    *t = safetensors_find(st, full);
    assert_non_null(*t);
    float *v = test_alloc((*t)->elements * sizeof *v);
    assert_int_equal(safetensors_read_f32(st, *t, 0, (*t)->elements, v, &e), 0);
    return v;
}

static double number(const json_t *c, const char *key) { return json_number_value(json_object_get(c, key)); }

static update_params params_of(const optimizer *by, const json_t *c)
{
    update_params p = {.lr = (float)number(c, "lr"), .weight_decay = (float)number(c, "weight_decay"), .beta1 = 0.9f, .beta2 = 0.999f,
                       .eps = 1e-8f, .grad_scale = 1};
    const char *text = json_string_value(json_object_get(c, "args"));
    pt_error e = {0};
    assert_int_equal(optimizer_args_parse(by, text[0] ? text : NULL, &p.args, &e), 0);
    return p;
}

/* (rows, cols) as Hugging Face stores it, to and from the transposed one. */
static void turn(const float *from, int64_t rows, int64_t cols, bool turned, float *to)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t k = 0; k < cols; k++)
            to[turned ? k * rows + r : r * cols + k] = from[r * cols + k];
}

static void check_case(const safetensors *st, const char *name, const json_t *c, bool turned)
{
    const safetensors_tensor *t, *steps;
    const optimizer *by = optimizer_find(json_string_value(json_object_get(c, "optimizer")));
    const float *start = stored(st, name, "weight", &t), *grads = stored(st, name, "grad", &steps);
    const float *exact = stored(st, name, "exact", &steps);
    const bool vector = t->rank == 1;
    const int64_t rows = vector ? 1 : t->shape[0], cols = t->shape[t->rank - 1], n = rows * cols, here = vector || turned ? cols : rows;
    assert_non_null(by);
    owned o;
    update_params p = params_of(by, c);
    owned_open(&o, by, vector ? PARAM_QKV_BIAS : PARAM_OUT, PT_F32, &here, 1, n / here, vector, turned, (int64_t)p.args.rank);
    float *w = test_alloc((size_t)n * 4);
    double most = 0;
    turn(start, rows, cols, turned, o.w);
    for (p.step = 1; p.step <= steps->shape[0]; p.step++) {
        if (p.args.relative_step != 0)
            p.lr = (float)optimizer_relative_lr(&p.args, p.step);
        turn(grads + (p.step - 1) * n, rows, cols, turned, o.g);
        owned_update(&o, 1 + (int)(p.step % TEST_THREADS), &p);
        turn(o.w, turned ? cols : rows, turned ? rows : cols, turned, w);
        const float *want = exact + (p.step - 1) * n;
        most = fmax(most, distance(w, want, n) / distance(start, want, n));
    }
    printf("%s%s: off by %.2g of the update\n", name, turned ? ", transposed" : "", most);
    assert_true(most <= 1e-5);
}

static void they_follow_their_equations(void **state)
{
    char path[512];
    pt_error e = {0};
    safetensors *st;
    json_t *all, *c;
    const char *name;
    snprintf(path, sizeof path, "%s/optimizer/reference.json", PT_FIXTURES);
    assert_int_equal(json_file_load(path, 0, &all, &e), 0);
    snprintf(path, sizeof path, "%s/optimizer/reference.safetensors", PT_FIXTURES);
    assert_int_equal(safetensors_open(path, &st, &e), 0);
    int n = 0;
    json_object_foreach(json_object_get(all, "cases"), name, c) {
        check_case(st, name, c, false);
        if (strcmp(json_string_value(json_object_get(c, "optimizer")), optimizer_adam_mini.name)) /* which has moments of outputs */
            check_case(st, name, c, true);
        test_teardown(NULL);
        n++;
    }
    assert_true(n >= 5);
    safetensors_close(st);
    json_decref(all);
}

/* ---- parts, threads ---- */

static void fill(float *v, int64_t n, uint32_t stream)
{
    for (int64_t i = 0; i < n; i++)
        v[i] = (float)rng_normal(the_test.seed, RNG_TEST, stream, (uint64_t)i);
}

static void check_parts(const optimizer *by, pt_dtype type, int threads)
{
    static const int64_t rows[PARTS] = {70, 8, 24};
    enum { COLS = 45 };
    update_params p = {.lr = 0.01f, .weight_decay = 0.1f, .beta1 = 0.9f, .beta2 = 0.999f, .eps = 1e-8f, .grad_scale = 0.5f,
                       .momentum = MUON_MOMENTUM};
    pt_error e = {0};
    owned all, each[PARTS];
    assert_int_equal(optimizer_args_parse(by, NULL, &p.args, &e), 0);
    owned_open(&all, by, PARAM_QKV, type, rows, PARTS, COLS, false, false, 6);
    fill(all.w, all.n, 1);
    for (int k = 0; k < PARTS; k++) {
        owned_open(&each[k], by, PARAM_QKV, type, &rows[k], 1, COLS, false, false, 6);
        memcpy(each[k].w, all.w + part_first(&all.param, k), (size_t)each[k].n * 4);
    }
    for (p.step = 1; p.step <= 3; p.step++) {
        fill(all.g, all.n, 10 + (uint32_t)p.step);
        for (int k = 0; k < PARTS; k++) {
            memcpy(each[k].g, all.g + part_first(&all.param, k), (size_t)each[k].n * 4);
            owned_update(&each[k], 1, &p);
        }
        owned_update(&all, threads, &p);
    }
    const update_rule *r = by->rule_of(&all.param);
    for (int k = 0; k < PARTS; k++) {
        same_bits(each[k].w, all.w + part_first(&all.param, k), (size_t)each[k].n * 4, "w");
        for (int i = 0; i < rule_slabs(r); i++) {
            const uint64_t entry = dtype_bytes(r->slabs[i].type);
            same_bits(each[k].slab[i], (char *)all.slab[i] + (uint64_t)slab_first(&r->slabs[i], &all.param, k) * entry,
                      (uint64_t)slab_of_param(&r->slabs[i], &each[k].param) * entry, r->slabs[i].name);
        }
    }
}

static void each_tensor_moves_by_itself_whatever_the_threads(void **state)
{
    for (size_t i = 0; optimizers[i]; i++)
        for (int turn = 0; turn < (device_is_cuda() ? 2 : 2 * TEST_THREADS); turn++) {
            check_parts(optimizers[i], types[turn % 2], 1 + turn / 2);
            test_teardown(NULL);
        }
}

/* ---- moments in codes ---- */

/* The square root of the sum of the squares of what 20 steps of an optimizer change in a matrix beside another's, of what they change. */
static double apart(const optimizer *a, const optimizer *b, int64_t rows, int64_t cols)
{
    enum { RANK = 64, UPDATES = 20 };
    owned x, y;
    update_params p = {.lr = 0.01f, .beta1 = 0.9f, .beta2 = 0.999f, .eps = 1e-8f, .grad_scale = 1};
    pt_error e = {0};
    assert_int_equal(optimizer_args_parse(a, "update_proj_gap=7", &p.args, &e), 0);
    owned_open(&x, a, PARAM_OUT, PT_F32, &rows, 1, cols, false, false, RANK);
    owned_open(&y, b, PARAM_OUT, PT_F32, &rows, 1, cols, false, false, RANK);
    assert_true(a->rule_of(&x.param)->slabs[0].type == PT_U8 && b->rule_of(&y.param)->slabs[0].type == PT_F32);
    fill(x.w, x.n, 1);
    memcpy(y.w, x.w, (size_t)x.n * 4);
    const float *start = test_copy(x.w, (size_t)x.n * 4);
    for (p.step = 1; p.step <= UPDATES; p.step++) {
        fill(x.g, x.n, 10 + (uint32_t)p.step);
        memcpy(y.g, x.g, (size_t)x.n * 4);
        owned_update(&x, 1 + (int)(p.step % TEST_THREADS), &p);
        owned_update(&y, 1, &p);
    }
    return distance(x.w, y.w, x.n) / distance(y.w, start, x.n);
}

static void moments_in_codes_move_weights_as_those_in_fp32_do(void **state)
{
    static const struct { const optimizer *codes, *fp32; double most; } pairs[] = {{&optimizer_galore8bit, &optimizer_galore, 0.03},
                                                                                  {&optimizer_apollo8bit, &optimizer_apollo, 0.005}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        for (int turn = 0; turn < 3; turn++) {
            const int64_t rows = 64 + random_below(70), cols = 64 + random_below(70);
            const double off = apart(pairs[i].codes, pairs[i].fp32, rows, cols);
            printf("%s, %lld x %lld: off by %.2g of the update\n", pairs[i].codes->name, (long long)rows, (long long)cols, off);
            assert_true(off > 0 && off <= pairs[i].most);
            test_teardown(NULL);
        }
}

/* ---- arguments ---- */

static void expect_refused(const optimizer *by, const char *text, const char *says)
{
    optimizer_args a;
    pt_error e = {0};
    assert_int_equal(optimizer_args_parse(by, text, &a, &e), PT_USAGE);
    if (!strstr(e.text, says))
        fail_msg("\"%s\" is refused with \"%s\", without \"%s\"", text, e.text, says);
}

static void arguments_are_read_or_refused(void **state)
{
    const optimizer *by = &optimizer_adafactor;
    optimizer_args a;
    pt_error e = {0};
    assert_int_equal(optimizer_args_parse(by, "clip_threshold=2.5,scale_parameter=True,decay_rate=-1", &a, &e), 0);
    assert_true(a.clip_threshold == 2.5 && a.scale_parameter == 1 && a.decay_rate == -1 && a.relative_step == 0);
    expect_refused(&optimizer_adamw, "rank=8", "leave it out");
    expect_refused(by, "rank=8", "it has scale_parameter, relative_step");
    expect_refused(by, "", "lacks");
    expect_refused(by, "clip_threshold=1,", "lacks");
    expect_refused(by, "clip_threshold", "no value");
    expect_refused(by, "clip_threshold=", "no value");
    expect_refused(by, "clip_threshold=nan", "number");
    expect_refused(by, "clip_threshold=1 ", "number");
    expect_refused(by, "clip_threshold=0x1", "number");
    expect_refused(by, "clip_threshold=1=2", "number");
    expect_refused(by, "clip_threshold=1,clip_threshold=2", "twice");
    expect_refused(by, "clip_threshold=11111111111111111111111111111111111111111111", "number");
    expect_refused(by, "decay_rate=0", "number from");
    expect_refused(by, "relative_step=yes", "true or false");
    expect_refused(by, "warmup_init=true", "relative_step=true");
    expect_refused(&optimizer_apollo, "rank=0", "whole number from 1");
    expect_refused(&optimizer_apollo, "rank=1.5", "whole number");
    expect_refused(&optimizer_apollo, "scale_type=row", "channel or tensor");
    assert_int_equal(optimizer_args_parse(&optimizer_apollo, "scale_type=tensor,rank=7", &a, &e), 0);
    assert_true(a.scale_type == 1 && a.rank == 7 && a.scale == 1 && a.update_proj_gap == 200);
}

int main(void)
{
    const struct CMUnitTest tests[] = {OP_TEST(they_follow_their_equations), OP_TEST(each_tensor_moves_by_itself_whatever_the_threads),
                                       OP_TEST(moments_in_codes_move_weights_as_those_in_fp32_do), OP_TEST(arguments_are_read_or_refused)};
    return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
