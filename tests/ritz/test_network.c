/* u, its gradient by x, energies and their gradient by the weights, beside PyTorch's double backward in fp64; the same bits however units
 * are kept or computed again, and with any number of threads. */
#include "device/reference.h"
#include "io/safetensors.h"
#include "ritz/network.h"

typedef struct kind { int64_t dim, width; int blocks; bool plain, direct; jet_kind activation; } kind;
static const kind kinds[] = { /* as in make_ritz.py */
    {1, 5, 1, false, false, JET_TANH},  {2, 8, 3, false, false, JET_TANH3}, {7, 9, 2, false, false, JET_SIN},
        {30, 16, 2, false, false, JET_SILU},
    {2, 6, 2, true, false, JET_SOFTPLUS}, {7, 10, 3, true, false, JET_TANH}, {3, 6, 2, false, true, JET_RELU3},
    {10, 10, 2, false, true, JET_TANH3},
    {1, 4, 1, true, false, JET_SILU},   {30, 12, 4, false, false, JET_SOFTPLUS}};
static bool everything[RITZ_STAGES]; /* is kept */
enum { KINDS = sizeof kinds / sizeof *kinds, POINTS = 37 };

typedef struct wanted { double *x, *terms, *u, *g, *value, *parameters, *gradient; } wanted;
typedef struct got { double u[POINTS], g[POINTS * 30], value[POINTS], *gradient; } got;

static double *read_tensor(const safetensors *st, int number, const char *what, int64_t n)
{
    char name[64];
    pt_error e = {0};
    snprintf(name, sizeof name, "%d.%s", number, what);
    const safetensors_tensor *t = safetensors_find(st, name);
    assert_true(t && (int64_t)t->elements == n);
    double *x = test_alloc((size_t)n * 8);
    assert_int_equal(safetensors_read(st, t, 0, t->bytes, x, &e), 0);
    return x;
}

static wanted read_wanted(int number, const ritz_network *n)
{
    safetensors *st;
    pt_error e = {0};
    if (safetensors_open(PT_FIXTURES "/ritz/networks.safetensors", &st, &e))
        fail_msg("%s", e.text);
    wanted w = {read_tensor(st, number, "x", POINTS * n->dim), read_tensor(st, number, "terms", POINTS * QUADRATIC_TERMS),
                read_tensor(st, number, "u", POINTS), read_tensor(st, number, "g", POINTS * n->dim),
                read_tensor(st, number, "value", POINTS),
                read_tensor(st, number, "parameters", n->params), read_tensor(st, number, "gradient", n->params)};
    safetensors_close(st);
    return w;
}

static double get(pt_dtype type, const void *x, int64_t i) { return type == PT_F64 ? ((const double *)x)[i] : ((const float *)x)[i]; }
static void put(pt_dtype type, void *x, int64_t i, double v)
{
    if (type == PT_F64)
        ((double *)x)[i] = v;
    else
        ((float *)x)[i] = (float)v;
}

static ritz_network network_of(const kind *k, pt_dtype type)
{
    pt_error e = {0};
    ritz_network n = {.dim = k->dim, .width = k->width, .blocks = k->blocks, .plain = k->plain, .direct = k->direct,
                      .activation = k->activation,
                      .type = type};
    if (ritz_network_describe(&n, &e))
        fail_msg("%s", e.text);
    return n;
}

/* All that a unit's sweeps need, each group's set by itself. */
typedef struct room { ritz_layout layout; char *set[RITZ_STAGES], *own, *work, *stream; } room;

static room room_of(const ritz_network *n, int64_t rows, const bool *kept)
{
    room m;
    ritz_layout_init(&m.layout, n, rows, kept);
    for (int g = 0; g < n->groups_n; g++)
        m.set[g] = test_alloc(m.layout.set_bytes[g]);
    m.own = test_alloc(m.layout.own_bytes);
    m.work = test_alloc(m.layout.work_bytes);
    m.stream = test_alloc(m.layout.stream_bytes);
    return m;
}

static ritz_unit unit_of(const ritz_network *n, const room *m, int group, const char *weights, char *sums)
{
    const size_t each = dtype_bytes(n->type);
    ritz_unit u = {.net = n, .layout = &m->layout, .group = group, .own = m->own, .work = m->work, .stream = m->stream};
    for (int k = 0; k < 2 && group + k < n->groups_n; k++)
        u.set[k] = m->set[group + k];
    for (int s = n->group0[group]; s < n->group0[group + 1]; s++) {
        u.weights[s - n->group0[group]] = weights + (size_t)n->stages[s].weight_at * each;
        u.sums[s - n->group0[group]] = sums + (size_t)n->stages[s].weight_at * each;
    }
    return u;
}

/* A unit through its sweeps: all four, or flat. */
static void sweep(const ritz_network *n, const room *m, const char *weights, char *sums, queue *q, int64_t rows, bool flat, bool first)
{
    static void (*const all[])(const ritz_unit *) = {ritz_forward, ritz_adjoint, ritz_energy, ritz_tangent, ritz_reverse};
    for (int k = 0; k < 5; k++)
        for (int i = 0; i < (k == 2 ? 1 : n->groups_n); i++) {
            const int group = k % 2 || k == 4 ? n->groups_n - 1 - i : i;
            ritz_unit u = unit_of(n, m, k == 3 ? i : group, weights, sums);
            u.queue = q, u.rows = rows, u.flat = flat, u.first = first;
            if (!(flat && k % 2))
                all[k](&u);
        }
    pt_error e = {0};
    assert_int_equal(queue_sync(q, queue_signal(q), &e), 0);
}

static void fill(const ritz_network *n, const room *m, const wanted *w, int64_t first, int64_t rows)
{
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t j = 0; j < n->input; j++)
            put(n->type, m->set[0] + m->layout.tensor[0].at, r * n->input + j, j < n->dim ? w->x[(first + r) * n->dim + j] : 0);
        put(n->type, m->own + m->layout.ones_at, r, 1);
    }
    memcpy(m->own + m->layout.terms_at, w->terms + first * QUADRATIC_TERMS, (size_t)rows * QUADRATIC_TERMS * 8);
}

/* In units of `rows` points, one after the other in the same memory. */
static void compute(const ritz_network *n, const wanted *w, int64_t rows, const bool *kept, int threads, got *out)
{
    const size_t each = dtype_bytes(n->type);
    const room m = room_of(n, rows, kept);
    char *weights = test_alloc((size_t)n->params * each), *sums = test_alloc((size_t)n->params * each);
    out->gradient = test_alloc((size_t)n->params * 8);
    for (int64_t i = 0; i < n->params; i++)
        put(n->type, weights, i, w->parameters[i]);
    for (int64_t first = 0; first < POINTS; first += rows) {
        const int64_t here = POINTS - first < rows ? POINTS - first : rows;
        fill(n, &m, w, first, here);
        sweep(n, &m, weights, sums, the_test.queues[threads], here, false, first == 0);
        const ritz_unit u = unit_of(n, &m, 0, weights, sums);
        for (int64_t r = 0; r < here; r++) {
            out->u[first + r] = get(n->type, ritz_u(&u), r);
            out->value[first + r] = ((double *)(m.own + m.layout.value_at))[r];
            for (int64_t j = 0; j < n->dim; j++)
                out->g[(first + r) * n->dim + j] = get(n->type, ritz_gradient(&u), r * n->input + j);
        }
    }
    for (int64_t i = 0; i < n->params; i++)
        out->gradient[i] = get(n->type, sums, i);
}

/* A GPU has no fp64 here. */
static bool runs(pt_dtype type) { return type == PT_F32 || !device_is_cuda(); }

/* Root of the mean squared difference, beside that of the wanted values. */
static void compare(const char *what, int number, pt_dtype type, const double *x, const double *want, int64_t n)
{
    double difference = 0, size = 0;
    for (int64_t i = 0; i < n; i++)
        difference += (x[i] - want[i]) * (x[i] - want[i]), size += want[i] * want[i];
    const double off = sqrt(difference / size);
    if (!(off <= (type == PT_F64 ? 1e-12 : 1e-5)))
        fail_msg("case %d: %s is off by %.3g", number, what, off);
}

static void everything_is_pytorchs_double_backward(void **state)
{
    for (int turn = 0; turn < 2 * KINDS; turn++) {
        const pt_dtype type = turn % 2 ? PT_F32 : PT_F64;
        if (!runs(type))
            continue;
        const ritz_network n = network_of(&kinds[turn / 2], type);
        const wanted w = read_wanted(turn / 2, &n);
        got x;
        compute(&n, &w, 16, everything, 2, &x);
        compare("u", turn / 2, type, x.u, w.u, POINTS);
        compare("the gradient by x", turn / 2, type, x.g, w.g, POINTS * n.dim);
        compare("the energy", turn / 2, type, x.value, w.value, POINTS);
        compare("the gradient by the weights", turn / 2, type, x.gradient, w.gradient, n.params);
        test_teardown(NULL);
    }
}

static void the_same_bits_kept_and_computed_again(void **state)
{
    for (int turn = 0; turn < 4 * KINDS; turn++) {
        const pt_dtype type = turn % 2 ? PT_F32 : PT_F64;
        if (!runs(type))
            continue;
        const ritz_network n = network_of(&kinds[turn / 4], type);
        const wanted w = read_wanted(turn / 4, &n);
        const int64_t rows = 1 + random_below(POINTS);
        got a, b;
        bool kept[RITZ_STAGES];
        for (int g = 0; g < n.groups_n; g++)
            kept[g] = random_below(2);
        compute(&n, &w, rows, everything, 1, &a);
        compute(&n, &w, rows, kept, 1 + (int)random_below(TEST_THREADS), &b);
        assert_memory_equal(a.gradient, b.gradient, (size_t)n.params * 8);
        assert_memory_equal(a.value, b.value, sizeof a.value);
        test_teardown(NULL);
    }
}

/* Without the gradient in the energy, the short way gives what the long one gives. */
static void flat_units_are_those_whose_gradient_does_not_count(void **state)
{
    if (!runs(PT_F64))
        skip();
    for (int number = 0; number < KINDS; number++) {
        const ritz_network n = network_of(&kinds[number], PT_F64);
        const wanted w = read_wanted(number, &n);
        for (int64_t i = 0; i < POINTS; i++)
            w.terms[i * QUADRATIC_TERMS] = 0;
        got x;
        compute(&n, &w, POINTS, everything, 1, &x);
        const room m = room_of(&n, POINTS, number % 3 ? everything : NULL);
        double *sums = test_alloc((size_t)n.params * 8);
        fill(&n, &m, &w, 0, POINTS);
        sweep(&n, &m, (char *)w.parameters, (char *)sums, the_test.queues[1], POINTS, true, true);
        compare("the short gradient", number, PT_F64, sums, x.gradient, n.params);
        assert_memory_equal(m.own + m.layout.value_at, x.value, sizeof x.value);
        test_teardown(NULL);
    }
}

static void refused(ritz_network n, const char *words)
{
    pt_error e = {0};
    assert_int_equal(ritz_network_describe(&n, &e), PT_USAGE);
    if (!strstr(e.text, words))
        fail_msg("\"%s\" is not in \"%s\"", words, e.text);
}

static void what_is_no_network_is_refused(void **state)
{
    refused((ritz_network){.dim = 0, .width = 4, .blocks = 1}, "dimension is 0");
    refused((ritz_network){.dim = 2, .width = 0, .blocks = 1}, "width is 0");
    refused((ritz_network){.dim = 2, .width = 4, .blocks = 257}, "257 blocks");
    refused((ritz_network){.dim = 5, .width = 4, .blocks = 1, .direct = true}, "at least the dimension, 5");
    ritz_network n = network_of(&kinds[7], PT_F64);
    assert_int_equal(n.params, 451); /* E and Yu's */
}

int main(void)
{
    memset(everything, 1, sizeof everything);
    const struct CMUnitTest tests[] = {
        OP_TEST(everything_is_pytorchs_double_backward),
        OP_TEST(the_same_bits_kept_and_computed_again),
        OP_TEST(flat_units_are_those_whose_gradient_does_not_count),
        OP_TEST(what_is_no_network_is_refused),
    };
    return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
