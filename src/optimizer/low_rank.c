#include "optimizer/low_rank.h"

#include <math.h>

low_shape low_shape_of(const param *p, int k)
{
    const part_matrix m = part_matrix_of(p, k);
    const int64_t rank = p->low_rank ? p->low_rank : 1, small = m.rows < m.cols ? m.rows : m.cols;
    const bool by_rows = m.rows == m.cols ? !p->part[k].transposed : m.rows > m.cols;
    return (low_shape){m.rows, m.cols, small, m.rows < m.cols ? m.cols : m.rows, rank < small ? rank : small, by_rows};
}

/* FNV-1a. */
static uint32_t stream_of(const char *name, int64_t number)
{
    uint32_t h = 2166136261u;
    for (; *name; name++)
        h = (h ^ (uint8_t)*name) * 16777619u;
    for (int i = 0; i < 4; i++)
        h = (h ^ (uint32_t)(number >> 8 * i & 255)) * 16777619u;
    return h;
}

low_matrix low_matrix_of(const update *u, int k, int64_t number)
{
    const param *p = u->param;
    const low_shape s = low_shape_of(p, k);
    const int64_t first = part_first(p, k) + number * s.rows * s.cols;
    const uint64_t at = (uint64_t)first * dtype_bytes(u->type);
    return (low_matrix){.s = s, .hi = (char *)u->hi + at, .lo = u->lo ? u->lo + first : NULL, .g = (const char *)u->g + at,
                        .stream = stream_of(p->part[k].name, number)};
}

void low_project(queue *q, pt_dtype type, pt_dtype out_type, const low_shape *s, const void *projection, const void *g, void *r)
{
    op_matmul o = {.layout = MATMUL_NN, .type = type, .out_type = out_type, .m = s->rank, .n = s->cols, .k = s->rows, .lda = s->rows,
                   .ldb = s->cols, .ldc = s->cols, .a = projection, .b = g, .c = r};
    if (s->by_rows)
        o = (op_matmul){.layout = MATMUL_NT, .type = type, .out_type = out_type, .m = s->rows, .n = s->rank, .k = s->cols, .lda = s->cols,
                        .ldb = s->cols, .ldc = s->rank, .a = g, .b = projection, .c = r};
    queue_submit(q, &(op){OP_MATMUL, .matmul = o});
}

int64_t low_moments_of(const param *p, int k)
{
    const low_shape s = low_shape_of(p, k);
    return part_matrices(p, k) * s.rank * s.large;
}

static int64_t blocks_of(const low_shape *s) { return (s->rank * s->large + ADAMW8BIT_BLOCK - 1) / ADAMW8BIT_BLOCK; }

int64_t low_codes_of(const param *p, int k)
{
    const low_shape s = low_shape_of(p, k);
    return part_matrices(p, k) * blocks_of(&s) * ADAMW8BIT_BLOCK;
}

int64_t low_scales_of(const param *p, int k)
{
    const low_shape s = low_shape_of(p, k);
    return part_matrices(p, k) * blocks_of(&s) * 2;
}

bool low_fits_codes(const param *p)
{
    enum { FEW = 1024 };
    bool fits = true;
    for (int k = 0; k < p->parts; k++) {
        const low_shape s = low_shape_of(p, k);
        fits = fits && s.rank * s.large >= FEW;
    }
    return fits;
}

/* ---- moments ---- */

int64_t low_entries_before(const update *u, const slab *slab, int k, int64_t number)
{
    return slab_first(slab, u->param, k) + number * slab->of_part(u->param, k) / part_matrices(u->param, k);
}

low_moments low_moments_open(queue *q, const update *u, const update_rule *r, int k, int64_t number, float *decoded)
{
    const low_shape s = low_shape_of(u->param, k);
    const int64_t first = low_entries_before(u, &r->slabs[0], k, number), n = s.rank * s.large;
    low_moments x = {(float *)u->slab[0] + first, (float *)u->slab[1] + first, .codes.n = 0};
    if (!low_is_in_codes(r))
        return x;
    x = (low_moments){decoded, decoded + n, {false, n, decoded, decoded + n, (uint8_t *)u->slab[0] + first, (uint8_t *)u->slab[1] + first,
                                             (float *)u->slab[2] + low_entries_before(u, &r->slabs[2], k, number)}};
    queue_submit(q, &(op){OP_MOMENT_CODES, .moment_codes = x.codes});
    return x;
}

void low_moments_close(queue *q, const low_moments *m)
{
    op_moment_codes codes = m->codes;
    codes.encode = true;
    if (codes.n)
        queue_submit(q, &(op){OP_MOMENT_CODES, .moment_codes = codes});
}

double low_flops(const param *p)
{
    double all = 0;
    for (int k = 0; k < p->parts; k++)
        all += 2 * (double)low_shape_of(p, k).rank * (double)part_values(p, k);
    return all;
}

double low_rate(const update_params *p)
{
    const double t = (double)p->step;
    return (double)p->lr * sqrt(1 - pow((double)p->beta2, t)) / (1 - pow((double)p->beta1, t));
}
