/* Rotary embedding: a rotation by the table's angle, undone by its inverse. Heads from one layout to another. */
#include "device/reference.h"

typedef struct rope_case {
    int64_t rows, heads, dim, rotated, ld;
    bool neighbours;
    float *table;
    int32_t *positions;
    tensor x;
} rope_case;

enum { POSITIONS = 100 };

/* rotated: elements of each head. Rotations are multiplied by `factor`. */
static rope_case random_case(pt_dtype type, int64_t rows, int64_t heads, int64_t dim, int64_t rotated, double factor)
{
    rope_case c = {.rows = rows, .heads = heads, .dim = dim, .rotated = rotated, .ld = heads * dim + (random_below(2) ? 8 : 5)};
    c.table = test_alloc((size_t)(POSITIONS * rotated) * sizeof *c.table);
    for (int64_t p = 0; p < POSITIONS; p++)
        for (int64_t i = 0; i < rotated / 2; i++) {
            double angle = (double)p * pow(10000, -2.0 * (double)i / (double)rotated);
            c.table[p * rotated + 2 * i] = (float)(factor * cos(angle));
            c.table[p * rotated + 2 * i + 1] = (float)(factor * sin(angle));
        }
    c.positions = random_ids(rows, POSITIONS);
    c.x = tensor_random(type, rows * c.ld, 0, 1);
    return c;
}

static void rope(int threads, const rope_case *c, bool inverse, void *x)
{
    op_rope o = {c->x.type, inverse, c->rows, c->heads, c->dim, c->ld, c->table, c->positions, x, c->rotated == c->dim ? 0 : c->rotated,
                 c->neighbours};
    run_op(threads, &(op){OP_ROPE, .rope = o});
}

static void check_row(const rope_case *c, int64_t row, bool inverse, const void *got)
{
    pt_dtype type = c->x.type;
    const int64_t half = c->rotated / 2, step = c->neighbours ? 2 : 1, apart = c->neighbours ? 1 : half;
    const float *table = c->table + c->positions[row] * c->rotated;
    for (int64_t head = 0; head < c->heads; head++) {
        for (int64_t i = 0; i < half; i++) {
            int64_t at = row * c->ld + head * c->dim + i * step;
            double a = c->x.value[at], b = c->x.value[at + apart];
            double cosine = table[2 * i], sine = inverse ? -table[2 * i + 1] : table[2 * i + 1];
            near(type, element(type, got, at), a * cosine - b * sine, 5e-7, "first", at);
            near(type, element(type, got, at + apart), b * cosine + a * sine, 5e-7, "second", at);
        }
        for (int64_t i = row * c->ld + head * c->dim + c->rotated; i < row * c->ld + (head + 1) * c->dim; i++)
            assert_true(element(type, got, i) == c->x.value[i]);
    }
    for (int64_t i = c->heads * c->dim; i < c->ld; i++)
        assert_true(element(type, got, row * c->ld + i) == c->x.value[row * c->ld + i]);
}

static void pairs_apart_by_half_of_what_is_rotated_or_neighbours_are_rotated(void **state)
{
    static const int64_t shapes[][4] = {{1, 1, 2, 2}, {7, 3, 40, 40}, {1, 12, 64, 64}, {300, 2, 128, 128}, {9, 32, 64, 64}, {7, 1, 34, 34},
                                        {9, 3, 64, 16}, {30, 2, 80, 32}, {5, 2, 96, 72}, {7, 3, 20, 2}, {40, 2, 160, 64}};
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (int turn = 0; turn < 8; turn++) {
            bool inverse = turn & 2;
            rope_case c = random_case(types[turn & 1], shapes[s][0], shapes[s][1], shapes[s][2], shapes[s][3], s & 1 ? 1 : 1.19);
            c.neighbours = turn & 4;
            void *want = test_copy(c.x.data, tensor_bytes(&c.x));
            rope(1, &c, inverse, want);
            for (int64_t row = 0; row < c.rows; row++)
                check_row(&c, row, inverse, want);
            for (int threads = 2; threads <= TEST_THREADS; threads++) {
                void *again = test_copy(c.x.data, tensor_bytes(&c.x));
                rope(threads, &c, inverse, again);
                same_bits(want, again, tensor_bytes(&c.x), "more threads");
            }
            test_teardown(NULL);
        }
}

static void the_inverse_undoes_it(void **state)
{
    rope_case c = random_case(PT_F32, 20, 3, 48, 2 + 2 * random_below(24), 1);
    c.neighbours = random_below(2);
    void *x = test_copy(c.x.data, tensor_bytes(&c.x));
    rope(1, &c, false, x);
    rope(1, &c, true, x);
    for (int64_t i = 0; i < c.x.n; i++)
        near(PT_F32, element(PT_F32, x, i), c.x.value[i], 1e-6, "x", i);
}

/* Rounded by adding to its bits, this one would become -0. */
static void an_angle_that_is_no_number_is_seen(void **state)
{
    static const uint32_t bits = 0x7fffffff;
    for (int turn = 0; turn < 40; turn++) {
        int64_t half = 1 + random_below(70);
        rope_case c = random_case(types[turn & 1], 1, 2, 2 * half, 2 * half, 1);
        int64_t bad = random_below(half);
        c.neighbours = turn & 8;
        memcpy(c.table + c.positions[0] * 2 * half + 2 * bad + (turn >> 1 & 1), &bits, sizeof bits);
        rope(1, &c, turn & 4, c.x.data);
        for (int64_t i = 0; i < 4 * half; i++)
            assert_true(isnan(element(c.x.type, c.x.data, i)) == ((c.neighbours ? i / 2 : i) % half == bad));
        test_teardown(NULL);
    }
}

/* ---- heads ---- */

typedef struct heads_case { op_heads o; tensor from, to; } heads_case;

/* A layout of heads: how far they are apart, 0: one for all; the width of a row. */
static void random_layout(int64_t heads, int64_t cols, bool one, int64_t *head, int64_t *ld)
{
    *head = one ? 0 : cols + (random_below(2) ? 8 : random_below(5));
    *ld = (one ? cols : heads * *head) + 8 * random_below(2) + random_below(2);
}

static heads_case random_heads(pt_dtype type, bool from_one, bool to_one)
{
    heads_case c = {.o = {.type = type, .rows = 1 + random_below(80), .heads = 1 + random_below(9)}};
    op_heads *o = &c.o;
    o->cols = random_below(2) ? 8 * (1 + random_below(20)) : 1 + random_below(70);
    o->given = to_one || random_below(2) ? o->cols : 1 + random_below(o->cols);
    random_layout(o->heads, o->given, from_one, &o->head_from, &o->ld_from);
    random_layout(o->heads, o->cols, to_one, &o->head_to, &o->ld_to);
    c.from = tensor_random(type, o->rows * o->ld_from, 0, 1);
    c.to = tensor_random(type, o->rows * o->ld_to, 0, 1);
    o->from = c.from.data;
    return c;
}

static double head_value(const heads_case *c, int64_t row, int64_t head, int64_t j)
{
    const op_heads *o = &c->o;
    const int64_t at = row * o->ld_from + j;
    if (o->head_to)
        return j < o->given ? element(o->type, c->from.data, at + head * o->head_from) : 0;
    float sum = (float)element(o->type, c->from.data, at);
    for (int64_t other = 1; other < o->heads; other++)
        sum += (float)element(o->type, c->from.data, at + other * o->head_from);
    return sum;
}

static void heads_are_moved_or_added_and_nothing_else_changes(void **state)
{
    for (int turn = 0; turn < 90; turn++) {
        heads_case c = random_heads(types[turn & 1], turn % 3 == 1, turn % 3 == 2);
        void *want = test_copy(c.to.data, tensor_bytes(&c.to)), *got = test_copy(c.to.data, tensor_bytes(&c.to));
        for (int64_t row = 0; row < c.o.rows; row++)
            for (int64_t head = 0; head < (c.o.head_to ? c.o.heads : 1); head++)
                for (int64_t j = 0; j < c.o.cols; j++)
                    element_set(c.o.type, want, row * c.o.ld_to + head * c.o.head_to + j, head_value(&c, row, head, j));
        c.o.to = got;
        run_op(1 + turn % TEST_THREADS, &(op){OP_HEADS, .heads = c.o});
        same_bits(want, got, tensor_bytes(&c.to), "heads");
        test_teardown(NULL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        OP_TEST(pairs_apart_by_half_of_what_is_rotated_or_neighbours_are_rotated),
        OP_TEST(the_inverse_undoes_it),
        OP_TEST(an_angle_that_is_no_number_is_seen),
        OP_TEST(heads_are_moved_or_added_and_nothing_else_changes),
    };
    return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
