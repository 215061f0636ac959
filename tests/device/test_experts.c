/* Mixtures of experts: the choice, the sort, the matmuls of each expert's rows, and what is between them. */
#include "device/reference.h"

#include "base/target.h"
#include "device/cpu/isa.h"

typedef struct mixture { int64_t tokens, experts, k, slots; int32_t *ids, *order, *place, *ends; } mixture;

enum { SPREAD, SAME /* all tokens go to the same experts */, SKEWED, PATTERNS };

/* Ascending ids. SPREAD leaves the last expert without rows, if there are enough others. */
static mixture mixture_of(int64_t tokens, int64_t experts, int64_t k, int pattern)
{
    mixture m = {tokens, experts, k, tokens * k, NULL, NULL, NULL, NULL};
    const int64_t among = pattern == SPREAD && experts - 1 >= k ? experts - 1 : experts;
    m.ids = test_alloc((size_t)m.slots * 4), m.order = test_alloc((size_t)m.slots * 4), m.place = test_alloc((size_t)m.slots * 4);
    m.ends = test_alloc((size_t)experts * 4);
    for (int64_t t = 0; t < tokens; t++) {
        const int64_t extra = pattern == SKEWED && random_below(4) ? k : among;
        int64_t left = k;
        for (int64_t e = 0; e < among && left; e++) {
            const int64_t rest = (extra > e ? extra : among) - e;
            if (pattern == SAME || rest <= left || random_below(rest) < left)
                m.ids[t * k + k - left--] = (int32_t)e;
        }
    }
    run_op(1, &(op){OP_DISPATCH, .dispatch = {m.slots, experts, m.ids, m.order, m.place, m.ends}});
    return m;
}

static int64_t first_row(const mixture *m, int64_t expert) { return expert ? m->ends[expert - 1] : 0; }

static expert_range range_of(const mixture *m, int64_t first, int64_t end)
{
    return (expert_range){first, end - first, m->slots * (end - first) / m->experts, m->ends};
}

static void slots_are_sorted_by_expert(void **state)
{
    static const int64_t shapes[][3] = {{1, 4, 2}, {1, 1, 1}, {37, 5, 3}, {300, 64, 8}, {77, 3, 3}, {1000, 128, 4}};
    for (int i = 0; i < 6; i++)
        for (int pattern = 0; pattern < PATTERNS; pattern++) {
            const mixture m = mixture_of(shapes[i][0], shapes[i][1], shapes[i][2], pattern);
            int64_t row = 0;
            for (int64_t e = 0; e < m.experts; e++) {
                for (int64_t slot = 0; slot < m.slots; slot++)
                    if (m.ids[slot] == e) {
                        assert_int_equal(m.order[row], slot);
                        assert_int_equal(m.place[slot], row++);
                    }
                assert_int_equal(m.ends[e], row);
            }
            for (int threads = 2; threads <= TEST_THREADS; threads++) {
                int32_t *again = test_alloc((size_t)(2 * m.slots + m.experts) * 4), *ends = again + 2 * m.slots;
                run_op(threads, &(op){OP_DISPATCH, .dispatch = {m.slots, m.experts, m.ids, again, again + m.slots, ends}});
                same_bits(again, m.order, (size_t)m.slots * 4, "order");
                same_bits(again + m.slots, m.place, (size_t)m.slots * 4, "place");
                same_bits(ends, m.ends, (size_t)m.experts * 4, "ends");
            }
            test_teardown(state);
        }
}

/* ---- the choice ---- */

typedef struct router { op_route o; const double *logits, *dweights; int64_t row; const float *used; double balance; } router;

REFERENCE static void values_of(const op_route *o, const double *logits, double *p)
{
    double most = logits[0], sum = 0;
    for (int64_t e = 1; e < o->experts; e++)
        most = fmax(most, logits[e]);
    for (int64_t e = 0; e < o->experts; e++)
        sum += p[e] = o->kind == ROUTE_SOFTMAX ? exp(logits[e] - most) : 1 / (1 + exp(-logits[e]));
    for (int64_t e = 0; e < o->experts; e++)
        p[e] = o->kind == ROUTE_SOFTMAX ? p[e] / sum : p[e];
}

REFERENCE static void weights_of(const op_route *o, const double *logits, const int32_t *ids, double *weights)
{
    double p[EXPERTS_MOST], sum = 0;
    values_of(o, logits, p);
    for (int64_t j = 0; j < o->k; j++)
        sum += p[ids[j]];
    const double divisor = o->norm ? fmax(sum, (double)o->least) + (double)o->eps : 1;
    for (int64_t j = 0; j < o->k; j++)
        weights[j] = p[ids[j]] / divisor * (o->scale != 0 ? (double)o->scale : 1) *
                     (o->expert_scale ? (double)o->expert_scale[ids[j]] : 1);
}

REFERENCE static void probabilities_of(const op_route *o, const double *logits, double *p)
{
    op_route softmax = *o;
    softmax.kind = ROUTE_SOFTMAX;
    values_of(&softmax, logits, p);
}

static double balance_loss(const router *r)
{
    double p[EXPERTS_MOST], loss = 0, n = 0;
    probabilities_of(&r->o, r->logits + r->row * r->o.experts, p);
    for (int64_t e = 0; e < r->o.experts; e++) {
        n += (double)r->used[e] / (double)r->o.k;
        loss += (double)r->used[e] * p[e];
    }
    return n > 0 && r->o.targets[r->row] != TARGET_PADDING ? r->balance * loss / n / n : 0;
}

static double weighted_loss(const void *ctx)
{
    const router *r = ctx;
    double weights[SLOTS_MOST], loss = 0;
    weights_of(&r->o, r->logits + r->row * r->o.experts, r->o.ids + r->row * r->o.k, weights);
    for (int64_t j = 0; j < r->o.k; j++)
        loss += weights[j] * r->dweights[r->row * r->o.k + j];
    return r->used ? loss + balance_loss(r) : loss;
}

/* No expert outside is better than the worst inside, in fp64 up to rounding; and none of a group that is not among the best. */
static void check_ids(const op_route *o, const double *logits, const int32_t *ids)
{
    double p[EXPERTS_MOST], group[EXPERTS_MOST], worst = INFINITY, worst_group = INFINITY;
    bool chosen[EXPERTS_MOST] = {false}, used[EXPERTS_MOST] = {false};
    const int64_t size = o->experts / (o->groups > 1 ? o->groups : 1);
    values_of(o, logits, p);
    for (int64_t e = 0; e < o->experts; e++)
        p[e] += o->bias ? (double)o->bias[e] : 0;
    for (int64_t g = 0; g < o->experts / size; g++) {
        double best = -INFINITY, next = -INFINITY;
        for (int64_t e = g * size; e < (g + 1) * size; e++) {
            next = fmax(next, fmin(best, p[e]));
            best = fmax(best, p[e]);
        }
        group[g] = best + next;
    }
    for (int64_t j = 0; j < o->k; j++) {
        assert_true(ids[j] >= 0 && ids[j] < o->experts && (j == 0 || ids[j] > ids[j - 1]));
        chosen[ids[j]] = used[ids[j] / size] = true;
        worst = fmin(worst, p[ids[j]]);
        worst_group = fmin(worst_group, group[ids[j] / size]);
    }
    int64_t groups_used = 0;
    for (int64_t g = 0; g < o->experts / size; g++)
        groups_used += used[g];
    assert_true(o->groups <= 1 || groups_used <= o->groups_used);
    for (int64_t e = 0; e < o->experts; e++)
        if (!chosen[e] && (o->groups <= 1 || used[e / size]))
            assert_true(p[e] <= worst + 1e-6);
    for (int64_t g = 0; o->groups > 1 && groups_used == o->groups_used && g < o->groups; g++)
        assert_true(used[g] || group[g] <= worst_group + 1e-6);
}

/* As models have it: Qwen3, Mixtral; OLMoE; ERNIE, whose minimum binds or not; DeepSeek-V3; MiniMax-M2; Gemma 4; and a gate of one. */
static const op_route kinds[] = {
    {.kind = ROUTE_SOFTMAX, .norm = true, .experts = 128, .k = 8}, {.kind = ROUTE_SOFTMAX, .experts = 60, .k = 4, .scale = 1.5f},
    {.kind = ROUTE_SOFTMAX, .norm = true, .experts = 30, .k = 6, .least = 1e-12f},
    {.kind = ROUTE_SOFTMAX, .norm = true, .experts = 30, .k = 2, .least = 0.9f},
    {.kind = ROUTE_SIGMOID, .norm = true, .experts = 64, .k = 8, .groups = 8, .groups_used = 4, .scale = 2.5f, .eps = 1e-20f},
    {.kind = ROUTE_SIGMOID, .norm = true, .experts = 33, .k = 3}, {.kind = ROUTE_SIGMOID, .experts = 300, .k = 10, .scale = 0.5f},
    {.kind = ROUTE_SOFTMAX, .norm = true, .experts = 7, .k = 7}, {.kind = ROUTE_SIGMOID, .experts = 1, .k = 1}};
enum { KINDS = sizeof kinds / sizeof *kinds };

/* The row of `use` has the k largest logits, of equal ones the first, and all probabilities; nothing in padding. */
static void check_use(const op_route *o, int64_t row, const double *logits)
{
    const float *use = o->use + row * 2 * o->experts;
    const bool padding = o->targets[row] == TARGET_PADDING;
    double p[EXPERTS_MOST];
    probabilities_of(o, logits, p);
    for (int64_t e = 0; e < o->experts; e++) {
        int64_t larger = 0;
        for (int64_t other = 0; other < o->experts; other++)
            larger += logits[other] > logits[e] || (logits[other] == logits[e] && other < e);
        assert_true(use[e] == (float)(larger < o->k && !padding));
        near(PT_F32, use[o->experts + e], padding ? 0 : p[e], 2e-6 * p[e] + 1e-30, "probability", e);
    }
}

/* How often experts were used; some never, in a case nobody. */
static float *random_used(int64_t experts, bool none)
{
    float *used = test_alloc((size_t)experts * sizeof *used);
    tensor rows = tensor_random(PT_F32, experts, 0, 30);
    for (int64_t e = 0; e < experts; e++)
        used[e] = none ? 0 : (float)floor(fmax(rows.value[e], 0));
    return used;
}

static int32_t *random_targets(int64_t rows)
{
    int32_t *targets = test_alloc((size_t)rows * sizeof *targets);
    tensor chance = tensor_random(PT_F32, rows, 0, 1);
    for (int64_t row = 0; row < rows; row++)
        targets[row] = chance.value[row] > 0.7 ? TARGET_PADDING : chance.value[row] < 0 ? TARGET_NONE : 3;
    return targets;
}

static void experts_are_chosen_and_weighted(void **state)
{
    static const int64_t tokens[] = {1, 37, 70};
    for (int i = 0; i < KINDS * 3; i++) {
        op_route o = kinds[i % KINDS];
        const bool biased = o.least > 0 || o.groups > 1 || o.k == 3, scaled = o.k == 7;
        o.rows = tokens[i / KINDS];
        tensor logits = tensor_random(PT_F32, o.rows * o.experts, 0, 2), bias = tensor_random(PT_F32, o.experts, 0, 0.2);
        tensor scale = tensor_random(PT_F32, o.experts, 1, 0.3), dw = tensor_random(PT_F32, o.rows * o.k, 0, 1);
        o.logits = logits.data, o.bias = biased ? bias.data : NULL, o.expert_scale = scaled ? scale.data : NULL;
        o.ids = test_alloc((size_t)(o.rows * o.k) * 4), o.weights = test_alloc((size_t)(o.rows * o.k) * 4);
        o.targets = random_targets(o.rows), o.use = test_alloc((size_t)(2 * o.rows * o.experts) * 4);
        run_op(1, &(op){OP_ROUTE, .route = o});
        for (int64_t row = 0; row < o.rows; row++) {
            double want[SLOTS_MOST];
            check_use(&o, row, logits.value + row * o.experts);
            const int32_t *ids = o.ids + row * o.k;
            check_ids(&o, logits.value + row * o.experts, ids);
            weights_of(&o, logits.value + row * o.experts, ids, want);
            for (int64_t j = 0; j < o.k; j++)
                near(PT_F32, o.weights[row * o.k + j], want[j], 2e-6 * fabs(want[j]), "weight", row * o.k + j);
        }
        const pt_dtype type = types[i & 1];
        const size_t bytes = (size_t)(o.rows * o.experts) * dtype_bytes(type);
        void *dlogits = test_alloc(bytes);
        float *dscale = test_alloc((size_t)(o.rows * o.k) * 4);
        const float *used = i % 2 ? random_used(o.experts, i % 5 == 0) : NULL;
        run_op(1, &(op){OP_ROUTE_BACKWARD, .route_backward = {o, type, dw.data, dlogits, dscale, used, 40}});
        router r = {o, logits.value, dw.value, 0, used, 40};
        for (r.row = 0; r.row < o.rows; r.row += 1 + o.rows / 4)
            for (int64_t e = 0; e < o.experts; e++)
                near(type, element(type, dlogits, r.row * o.experts + e),
                     slope(weighted_loss, &r, logits.value + r.row * o.experts + e), 2e-6 * (o.scale > 1 ? 3 : 1), "dlogit", e);
        for (int64_t slot = 0; slot < o.rows * o.k && scaled; slot++)
            near(PT_F32, dscale[slot], dw.value[slot] * (double)o.weights[slot] / scale.value[o.ids[slot]],
                 4e-6 * fabs(dw.value[slot]), "dscale", slot);
        for (int threads = 2; threads <= TEST_THREADS; threads++) { /* ids that are given are kept, and so are the weights */
            op_route again = o;
            void *dlogits_again = test_alloc(bytes);
            again.weights = test_alloc((size_t)(o.rows * o.k) * 4), again.given = threads % 2;
            again.ids = test_copy(o.ids, (size_t)(o.rows * o.k) * 4);
            again.use = test_alloc((size_t)(2 * o.rows * o.experts) * 4);
            run_op(threads, &(op){OP_ROUTE, .route = again});
            run_op(threads, &(op){OP_ROUTE_BACKWARD, .route_backward = {again, type, dw.data, dlogits_again, NULL, used, 40}});
            same_bits(again.ids, o.ids, (size_t)(o.rows * o.k) * 4, "ids");
            same_bits(again.weights, o.weights, (size_t)(o.rows * o.k) * 4, "weights");
            same_bits(again.use, o.use, (size_t)(2 * o.rows * o.experts) * 4, "use");
            same_bits(dlogits_again, dlogits, bytes, "dlogits");
        }
        test_teardown(state);
    }
}

static void ties_go_to_the_first_and_nan_to_nobody(void **state)
{
    for (int i = 0; i < KINDS; i++) {
        op_route o = kinds[i];
        o.rows = 3;
        float *logits = test_alloc((size_t)(o.rows * o.experts) * 4);
        o.logits = logits, o.ids = test_alloc((size_t)(o.rows * o.k) * 4), o.weights = test_alloc((size_t)(o.rows * o.k) * 4);
        for (int64_t e = 0; e < o.experts; e++) { /* all equal; all NaN; NaN but for the last k */
            logits[e] = e % 2 ? 0.0f : -0.0f;
            logits[o.experts + e] = NAN;
            logits[2 * o.experts + e] = e < o.experts - o.k ? NAN : -3;
        }
        run_op(1, &(op){OP_ROUTE, .route = o});
        for (int64_t j = 0; j < o.k; j++) {
            assert_int_equal(o.ids[j], j);
            assert_int_equal(o.ids[o.k + j], j);
            if (o.groups <= 1)
                assert_int_equal(o.ids[2 * o.k + j], o.experts - o.k + j);
            const int32_t *last = o.ids + 2 * o.k;
            assert_true(last[j] >= 0 && last[j] < o.experts && (j == 0 || last[j] > last[j - 1]));
        }
    }
}

/* ---- matmuls ---- */

/* Sums of products and of their magnitudes: row a of `x` times row b of `y`, or columns. */
REFERENCE static void product_of(const tensor *x, int64_t a, int64_t a_step, const tensor *y, int64_t b, int64_t b_step, int64_t k,
                                 double out[2])
{
    for (int64_t i = 0; i < k; i++) {
        const double term = x->value[a + i * a_step] * y->value[b + i * b_step];
        out[0] += term;
        out[1] += fabs(term);
    }
}

typedef struct rows_case { mixture m; op_grouped_matmul o; tensor a, b, bias, more_a, more_b, old; int64_t c_rows; } rows_case;

/* NT or NN. The rows of a are tokens or sorted. */
static rows_case rows_case_of(int turn, mixture m, int64_t n, int64_t k)
{
    rows_case c = {.m = m};
    const pt_dtype type = types[turn & 1], out = turn & 2 ? PT_F32 : type;
    const matmul_layout layout = turn & 4 ? MATMUL_NN : MATMUL_NT;
    const row_place a_at = turn & 8 ? AT_TOKEN : AT_ROW;
    const int64_t more = turn % 3 ? 0 : 8, pad = turn % 5 ? 0 : 3;
    c.a = tensor_random(type, m.slots * (k + pad), 0, 1), c.b = tensor_random(type, m.experts * n * k, 0, 1);
    c.bias = tensor_random(type, m.experts * n, 0, 1), c.old = tensor_random(out, m.slots * n, 0, 1);
    c.more_a = tensor_random(type, m.slots * more + 1, 0, 1), c.more_b = tensor_random(type, m.experts * n * more + 1, 0, 1);
    const bool nt = layout == MATMUL_NT;
    c.o = (op_grouped_matmul){
        .of = {.layout = layout, .type = type, .out_type = out, .accumulate = out == PT_F32 && turn % 2, .n = n, .k = k, .lda = k + pad,
               .ldb = nt ? k : n, .ldc = n, .a = c.a.data, .b = c.b.data, .bias = nt ? c.bias.data : NULL,
               .alpha = turn % 7 ? 0 : 0.5f, .more_k = more, .more_lda = more, .more_ldb = nt ? more : n, .more_a = c.more_a.data,
               .more_b = c.more_b.data},
        .range = range_of(&m, 0, m.experts), .a_at = a_at, .order = m.order, .k = m.k, .b_step = n * k, .more_b_step = n * more};
    return c;
}

static void check_rows(const rows_case *c, const void *got)
{
    const op_matmul *of = &c->o.of;
    const bool nt = of->layout == MATMUL_NT;
    for (int64_t e = 0; e < c->m.experts; e++)
        for (int64_t r = first_row(&c->m, e); r < c->m.ends[e]; r++)
            for (int64_t j = 0; j < of->n; j++) {
                const int64_t line = c->o.a_at == AT_TOKEN ? c->m.order[r] / c->m.k : r, b = e * of->n * of->k;
                double sum[2] = {0};
                product_of(&c->a, line * of->lda, 1, &c->b, b + (nt ? j * of->k : j), nt ? 1 : of->n, of->k, sum);
                product_of(&c->more_a, r * of->more_k, 1, &c->more_b, e * of->n * of->more_k + (nt ? j * of->more_k : j), nt ? 1 : of->n,
                           of->more_k, sum);
                const double alpha = of->alpha != 0 ? (double)of->alpha : 1;
                const double want = alpha * sum[0] + (of->bias ? c->bias.value[e * of->n + j] : 0) +
                                    (of->accumulate ? c->old.value[r * of->n + j] : 0);
                near(of->out_type, element(of->out_type, got, r * of->n + j), want, (sum[1] + 3) * (double)(of->k + 8) * 0x1p-23, "row", r);
            }
}

/* The same rows by a matmul of its own for each expert, of all gathered rows. */
static void check_rows_bits(const rows_case *c, const void *got)
{
    const pt_dtype type = c->o.of.type, out = c->o.of.out_type;
    op_matmul all = c->o.of;
    const size_t line = (size_t)all.k * dtype_bytes(type), result = (size_t)all.n * dtype_bytes(out);
    if (c->m.slots < 16)
        return;
    char *a = test_alloc((size_t)c->m.slots * line);
    for (int64_t r = 0; r < c->m.slots; r++) {
        const int64_t from = c->o.a_at == AT_TOKEN ? c->m.order[r] / c->m.k : r;
        memcpy(a + (size_t)r * line, (const char *)c->a.data + (size_t)(from * all.lda) * dtype_bytes(type), line);
    }
    all.a = a, all.lda = all.k, all.m = c->m.slots;
    for (int64_t e = 0; e < c->m.experts; e++) {
        all.b = (const char *)c->b.data + (size_t)(e * all.n * all.k) * dtype_bytes(type);
        all.more_b = (const char *)c->more_b.data + (size_t)(e * all.n * all.more_k) * dtype_bytes(type);
        all.bias = c->o.of.bias ? (const char *)c->bias.data + (size_t)(e * all.n) * dtype_bytes(type) : NULL;
        char *want = all.c = test_copy(c->old.data, tensor_bytes(&c->old));
        run_op(1, &(op){OP_MATMUL, .matmul = all});
        const size_t at = (size_t)first_row(&c->m, e) * result;
        same_bits((const char *)got + at, want + at, (size_t)(c->m.ends[e] - first_row(&c->m, e)) * result, "rows of a matmul");
    }
}

/* Ranges that begin at the cuts; their results are in a buffer of their own, from its beginning. */
static void run_in_ranges(const rows_case *c, int threads, void *got)
{
    const size_t result = (size_t)c->o.of.n * dtype_bytes(c->o.of.out_type);
    char *part = test_alloc((size_t)c->m.slots * result);
    for (int64_t first = 0, end; first < c->m.experts; first = end) {
        op_grouped_matmul o = c->o;
        const size_t at = (size_t)first_row(&c->m, first) * result;
        end = first + 1 + random_below(c->m.experts - first);
        o.range = range_of(&c->m, first, end);
        o.of.b = (const char *)o.of.b + (size_t)(first * o.b_step) * dtype_bytes(o.of.type);
        o.of.more_b = (const char *)o.of.more_b + (size_t)(first * o.more_b_step) * dtype_bytes(o.of.type);
        if (o.of.bias)
            o.of.bias = (const char *)o.of.bias + (size_t)(first * o.of.n) * dtype_bytes(o.of.type);
        const size_t bytes = (size_t)first_row(&c->m, end) * result - at;
        memcpy(part, (const char *)got + at, bytes);
        o.of.c = part, o.c_at = AT_ROW_OF_RANGE;
        o.of.more_a = (const char *)o.of.more_a + (size_t)(first_row(&c->m, first) * o.of.more_lda) * dtype_bytes(o.of.type);
        run_op(threads, &(op){OP_GROUPED_MATMUL, .grouped_matmul = o});
        memcpy((char *)got + at, part, bytes);
    }
}

static const int64_t mixtures[][3] = {{1, 4, 2}, {33, 5, 2}, {150, 6, 2}, {70, 3, 3}, {9, 40, 4}};
enum { MIXTURES = 5 };

static void rows_are_those_of_a_matmul(void **state)
{
    static const int64_t shapes[][2] = {{40, 24}, {33, 50}, {136, 72}, {96, 400}};
    for (int turn = 0; turn < 48; turn++) {
        const int64_t *s = mixtures[turn % MIXTURES], *shape = shapes[turn / MIXTURES % 4];
        rows_case c = rows_case_of(turn, mixture_of(s[0], s[1], s[2], turn / 16), shape[0], shape[1]);
        void *one = NULL;
        for (int threads = 1; threads <= TEST_THREADS; threads++) {
            void *got = c.o.of.c = test_copy(c.old.data, tensor_bytes(&c.old));
            run_op(threads, &(op){OP_GROUPED_MATMUL, .grouped_matmul = c.o});
            one = one ? one : got;
            same_bits(got, one, tensor_bytes(&c.old), "more threads");
        }
        check_rows(&c, one);
        if (!device_is_cuda())
            check_rows_bits(&c, one);
        void *got = test_copy(c.old.data, tensor_bytes(&c.old));
        run_in_ranges(&c, 1 + turn % TEST_THREADS, got);
        same_bits(got, one, tensor_bytes(&c.old), "ranges of experts");
        test_teardown(state);
    }
}

/* Gradients of matrices: m and n columns of a and b over an expert's rows. */
static void sums_over_rows_are_those_of_a_matmul(void **state)
{
    for (int turn = 0; turn < 24; turn++) {
        const bool tall = turn > 20; /* an expert has more rows than a block */
        const int64_t *s = mixtures[turn % MIXTURES], m = tall ? 8 : turn % 2 ? 24 : 130, n = tall ? 16 : turn % 3 ? 40 : 33;
        const mixture x = tall ? mixture_of(EXPERT_BLOCK_ROWS + 52, 2, 1, SAME) : mixture_of(s[0], s[1], s[2], turn / 8);
        const pt_dtype type = types[turn & 1];
        const row_place a_at = turn & 2 ? AT_TOKEN : AT_ROW, b_at = turn & 4 ? AT_TOKEN : AT_ROW;
        tensor a = tensor_random(type, x.slots * m, 0, 1), b = tensor_random(type, x.slots * n, 0, 1);
        tensor old = tensor_random(PT_F32, x.experts * m * n, 0, 1);
        op_grouped_matmul o = {
            .of = {.layout = MATMUL_TN, .type = type, .out_type = PT_F32, .accumulate = turn % 4 == 0, .m = m, .n = n, .lda = m, .ldb = n,
                   .ldc = n, .a = a.data, .b = b.data}, .range = range_of(&x, 0, x.experts), .a_at = a_at, .b_at = b_at, .order = x.order,
            .k = x.k, .c_step = m * n};
        float *one = NULL;
        for (int threads = 1; threads <= TEST_THREADS; threads++) {
            float *got = o.of.c = test_copy(old.data, tensor_bytes(&old));
            run_op(threads, &(op){OP_GROUPED_MATMUL, .grouped_matmul = o});
            one = one ? one : got;
            same_bits(got, one, tensor_bytes(&old), "more threads");
        }
        char *lines[2] = {test_alloc(tensor_bytes(&a)), test_alloc(tensor_bytes(&b))};
        for (int64_t e = 0; e < x.experts; e++) {
            const int64_t first = first_row(&x, e), rows = x.ends[e] - first;
            for (int64_t i = 0; i < m * n; i++) {
                double want = o.of.accumulate ? old.value[e * m * n + i] : 0, size = 1;
                for (int64_t r = first; r < first + rows; r++) {
                    const int64_t t = x.order[r] / x.k;
                    const double term = a.value[(a_at == AT_ROW ? r : t) * m + i / n] * b.value[(b_at == AT_ROW ? r : t) * n + i % n];
                    want += term;
                    size += fabs(term);
                }
                near(PT_F32, one[e * m * n + i], want, size * (double)(rows + 4) * 0x1p-24, "sum", e * m * n + i);
                if (!rows && !o.of.accumulate)
                    assert_true(one[e * m * n + i] == 0);
            }
            op_matmul all = o.of;
            float *want = all.c = test_copy((float *)old.data + e * m * n, (size_t)(m * n) * 4);
            for (int64_t from = 0; from < rows && !device_is_cuda(); from += EXPERT_BLOCK_ROWS, all.accumulate = true) {
                all.k = rows - from < EXPERT_BLOCK_ROWS ? rows - from : EXPERT_BLOCK_ROWS;
                all.a = lines[0], all.b = lines[1];
                const size_t ab = (size_t)m * dtype_bytes(type), bb = (size_t)n * dtype_bytes(type);
                for (int64_t i = 0; i < all.k; i++) {
                    const int64_t r = first + from + i, t = x.order[r] / x.k;
                    memcpy(lines[0] + (size_t)i * ab, (char *)a.data + (size_t)(a_at == AT_ROW ? r : t) * ab, ab);
                    memcpy(lines[1] + (size_t)i * bb, (char *)b.data + (size_t)(b_at == AT_ROW ? r : t) * bb, bb);
                }
                run_op(1, &(op){OP_MATMUL, .matmul = all});
            }
            if (rows && !device_is_cuda() && (m >= 16 || !cpu_has_amx()))
                same_bits(one + e * m * n, want, (size_t)(m * n) * 4, "sums of a matmul");
        }
        float *parts = test_copy(old.data, tensor_bytes(&old));
        for (int64_t first = 0, end; first < x.experts; first = end) {
            end = first + 1 + random_below(x.experts - first);
            op_grouped_matmul part = o;
            part.range = range_of(&x, first, end), part.of.c = parts + first * m * n;
            if (a_at == AT_ROW)
                part.a_at = AT_ROW_OF_RANGE, part.of.a = (char *)a.data + (size_t)(first_row(&x, first) * m) * dtype_bytes(type);
            run_op(2, &(op){OP_GROUPED_MATMUL, .grouped_matmul = part});
        }
        same_bits(parts, one, tensor_bytes(&old), "ranges of experts");
        test_teardown(state);
    }
}

/* ---- activations ---- */

typedef struct unit { activation_kind kind; bool gated; double alpha, limit, up[2]; } unit;

REFERENCE static double unit_value(const void *ctx)
{
    const unit *u = ctx;
    const double x = u->up[0], y = u->up[1];
    if (u->limit > 0) {
        const double g = fmin(x, u->limit), v = fmax(fmin(y, u->limit), -u->limit);
        return (v + 1) * g / (1 + exp(-u->alpha * g));
    }
    const double f = u->kind == ACT_SILU ? x / (1 + exp(-x)) : u->kind == ACT_RELU2 ? (x > 0 ? x * x : 0) : x * erfc(-x / sqrt(2)) / 2;
    return u->gated ? f * y : f;
}

static void activations_are_weighted(void **state)
{
    static const activation_kind functions[] = {ACT_SILU, ACT_RELU2, ACT_GELU_ERF};
    for (int turn = 0; turn < 32; turn++) {
        const int64_t *s = mixtures[turn % MIXTURES], cols = turn % 3 ? 40 : 131;
        const mixture m = mixture_of(s[0], s[1], s[2], turn / 8 % PATTERNS);
        const pt_dtype type = types[turn & 1];
        const bool clamped = turn & 4, gated = clamped || turn % 5, weighs = turn & 8;
        const activation_kind kind = functions[turn % 3];
        const float alpha = 1.702f, limit = clamped ? 1.5f : 0;
        const int64_t first = m.experts > 1 ? 1 : 0, begin = first_row(&m, first), width = (1 + gated) * cols;
        const expert_range range = range_of(&m, first, m.experts);
        tensor up = tensor_random(type, m.slots * width, 0, 1), dout = tensor_random(type, m.slots * cols, 0, 1);
        tensor weights = tensor_random(PT_F32, m.slots, 0.5, 0.3);
        void *out = test_alloc(tensor_bytes(&dout)), *one[3] = {NULL, NULL, NULL};
        const op_activation of = {kind, gated, type, 0, cols, up.data, out};
        run_op(1, &(op){OP_GROUPED_ACTIVATION, .grouped_activation = {of, range, AT_ROW, AT_ROW_OF_RANGE, alpha, limit}});
        for (int threads = 1; threads <= TEST_THREADS; threads++) {
            void *dup = test_alloc(tensor_bytes(&up)), *again = test_copy(dout.data, tensor_bytes(&dout));
            float *dweights = test_alloc((size_t)m.slots * 4);
            op_grouped_activation_backward b = {.of = {kind, gated, type, 0, cols, up.data, again, dup, again}, .range = range,
                                                .alpha = alpha, .limit = limit, .order = m.order};
            if (weighs)
                b.weights = weights.data, b.dweights = dweights;
            run_op(threads, &(op){OP_GROUPED_ACTIVATION_BACKWARD, .grouped_activation_backward = b});
            if (threads == 1)
                one[0] = dup, one[1] = again, one[2] = dweights;
            same_bits(dup, one[0], tensor_bytes(&up), "dup");
            same_bits(again, one[1], tensor_bytes(&dout), "out");
            same_bits(dweights, one[2], (size_t)m.slots * 4, "dweights");
        }
        for (int64_t r = begin; r < m.slots; r++) {
            const double weight = weighs ? weights.value[m.order[r]] : 1;
            double dot = 0, size = 0;
            for (int64_t i = 0; i < cols; i++) {
                const int64_t at[2] = {r * width + (clamped ? 2 * i : i), r * width + (clamped ? 2 * i + 1 : gated ? cols + i : i)};
                unit u = {kind, gated, (double)alpha, (double)limit, {up.value[at[0]], up.value[at[1]]}};
                const double value = unit_value(&u), got = element(type, out, (r - begin) * cols + i), d = dout.value[r * cols + i];
                near(type, got, value, 4e-6 * (1 + fabs(value)), "out", r * cols + i);
                near(type, element(type, one[1], r * cols + i), weight * got, type == PT_BF16 ? fabs(weight * value) / 128 : 1e-6,
                     "weighted", r * cols + i);
                dot += got * d;
                size += fabs(got * d);
                for (int side = 0; side <= (int)gated; side++) {
                    const bool bent = (clamped && fabs(fabs(u.up[side]) - (double)limit) < 1e-3) || fabs(u.up[0]) < 1e-3;
                    const double want = weight * d * slope(unit_value, &u, &u.up[side]);
                    if (!bent)
                        near(type, element(type, one[0], at[side]), want, 1e-5 * (1 + fabs(weight * d)), "dup", at[side]);
                }
            }
            if (weighs)
                near(PT_F32, ((float *)one[2])[m.order[r]], dot, size * 0x1p-18 * (type == PT_BF16 ? 64 : 1), "dweight", r);
        }
        test_teardown(state);
    }
}

/* ---- sums of rows ---- */

static void rows_of_a_token_are_added(void **state)
{
    for (int turn = 0; turn < 24; turn++) {
        const int64_t *s = mixtures[turn % MIXTURES], cols = turn % 3 ? 40 : 131;
        const mixture m = mixture_of(s[0], s[1], s[2], turn / 8);
        const pt_dtype type = types[turn & 1];
        const bool streams = turn & 2, residual = turn & 4;
        tensor y = tensor_random(type, m.slots * cols, 0, 1), x = tensor_random(type, m.tokens * cols, 0, 1);
        tensor weights = tensor_random(PT_F32, m.slots, 0, 1), before = tensor_random(PT_F32, m.tokens * cols, 0, 1);
        op_combine o = {.type = type, .rows = m.tokens, .cols = cols, .k = m.k, .y = y.data, .place = m.place,
                        .weights = turn & 8 ? weights.data : NULL, .residual = residual ? x.data : NULL};
        void *one[2] = {NULL, NULL};
        for (int threads = 1; threads <= TEST_THREADS; threads++) {
            o.stream = streams ? test_copy(before.data, tensor_bytes(&before)) : NULL, o.out = test_alloc(tensor_bytes(&x));
            run_op(threads, &(op){OP_COMBINE, .combine = o});
            if (threads == 1)
                one[0] = o.out, one[1] = o.stream;
            same_bits(one[0], o.out, tensor_bytes(&x), "more threads");
            if (streams)
                same_bits(one[1], o.stream, tensor_bytes(&before), "more threads");
        }
        for (int64_t i = 0; i < m.tokens * cols; i++) {
            double sum = 0, size = 1;
            for (int64_t slot = i / cols * m.k; slot < (i / cols + 1) * m.k; slot++) {
                const double term = (o.weights ? weights.value[slot] : 1) * y.value[m.place[slot] * cols + i % cols];
                sum += term;
                size += fabs(term);
            }
            const double stream = before.value[i] + sum, slack = size * 8 * 0x1p-24;
            near(type, element(type, one[0], i), residual ? x.value[i] + sum : streams ? stream : sum, slack + 4e-7, "out", i);
            if (streams)
                near(PT_F32, ((float *)one[1])[i], stream, slack, "stream", i);
        }
        float *sums = test_alloc(tensor_bytes(&before)); /* range after range, each from a buffer of its own */
        op_combine part = o;
        part.sums = sums, part.y_at = AT_ROW_OF_RANGE, part.out = NULL;
        part.stream = streams ? test_copy(before.data, tensor_bytes(&before)) : NULL;
        void *out = test_alloc(tensor_bytes(&x));
        for (int64_t first = 0, end; first < m.experts; first = end, part.continues = true) {
            end = first + 1 + random_below(m.experts - first);
            part.range = range_of(&m, first, end), part.out = end == m.experts ? out : NULL;
            part.y = (char *)y.data + (size_t)(first_row(&m, first) * cols) * dtype_bytes(type);
            run_op(1 + turn % TEST_THREADS, &(op){OP_COMBINE, .combine = part});
        }
        same_bits(out, one[0], tensor_bytes(&x), "ranges of experts");
        if (streams)
            same_bits(part.stream, one[1], tensor_bytes(&before), "ranges of experts");
        test_teardown(state);
    }
}

static void biases_have_gradients(void **state)
{
    for (int turn = 0; turn < 16; turn++) {
        const int64_t *s = mixtures[turn % MIXTURES], cols = turn % 3 ? 40 : 301;
        const mixture m = turn == 12 ? mixture_of(EXPERT_BLOCK_ROWS + 9, 2, 1, SAME) : mixture_of(s[0], s[1], s[2], turn / 6);
        const pt_dtype type = types[turn & 1];
        const row_place at = turn & 2 ? AT_TOKEN : AT_ROW;
        const bool weighs = turn & 4;
        tensor dy = tensor_random(type, m.slots * cols, 0, 1), bias = tensor_random(type, m.experts * cols, 0, 1);
        tensor weights = tensor_random(PT_F32, m.slots, 0, 1), old = tensor_random(PT_F32, m.experts * cols, 0, 1);
        tensor dots = tensor_random(PT_F32, m.slots, 0, 1);
        float *one[2] = {NULL, NULL};
        op_grouped_bias_backward o = {.type = type, .accumulate = turn & 1, .range = range_of(&m, 0, m.experts), .cols = cols, .ld = cols,
                                      .k = m.k, .dy_at = at, .order = m.order, .dy = dy.data, .weights = weighs ? weights.data : NULL,
                                      .bias = bias.data};
        for (int threads = 1; threads <= TEST_THREADS; threads++) {
            o.acc = test_copy(old.data, tensor_bytes(&old)), o.dots = test_copy(dots.data, tensor_bytes(&dots));
            run_op(threads, &(op){OP_GROUPED_BIAS_BACKWARD, .grouped_bias_backward = o});
            if (threads == 1)
                one[0] = o.acc, one[1] = o.dots;
            same_bits(one[0], o.acc, tensor_bytes(&old), "more threads");
            same_bits(one[1], o.dots, tensor_bytes(&dots), "more threads");
        }
        for (int64_t e = 0; e < m.experts; e++) {
            for (int64_t j = 0; j < cols; j++) {
                double sum = o.accumulate ? old.value[e * cols + j] : 0, size = 1;
                for (int64_t r = first_row(&m, e); r < m.ends[e]; r++) {
                    const double d = dy.value[(at == AT_ROW ? r : m.order[r] / m.k) * cols + j];
                    sum += (weighs ? weights.value[m.order[r]] : 1) * d;
                    size += fabs(d);
                }
                near(PT_F32, one[0][e * cols + j], sum, size * 0x1p-18, "bias", e * cols + j);
            }
            for (int64_t r = first_row(&m, e); r < m.ends[e]; r++) {
                double sum[2] = {dots.value[m.order[r]], 1};
                product_of(&dy, (at == AT_ROW ? r : m.order[r] / m.k) * cols, 1, &bias, e * cols, 1, cols, sum);
                near(PT_F32, one[1][m.order[r]], sum[0], sum[1] * 0x1p-18, "dot", r);
            }
        }
        test_teardown(state);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        OP_TEST(slots_are_sorted_by_expert), OP_TEST(experts_are_chosen_and_weighted), OP_TEST(ties_go_to_the_first_and_nan_to_nobody),
        OP_TEST(rows_are_those_of_a_matmul), OP_TEST(sums_over_rows_are_those_of_a_matmul), OP_TEST(activations_are_weighted),
        OP_TEST(rows_of_a_token_are_added), OP_TEST(biases_have_gradients)};
    return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
