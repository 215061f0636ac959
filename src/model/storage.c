#include "model/storage.h"

#include "model/rows.h"

#include <string.h>

/* nf4: as in QLoRA (Dettmers et al., 2023): 4 bits per value, the largest magnitude of 64 values in 8 bits, with a scale per 256
 * magnitudes, and their mean. int8: the weights of LLM.int8 (Dettmers et al., 2022): the largest magnitude of a row. mxfp4: 4 bits per
 * value, an exponent for 32 values (OCP Microscaling Formats, 2023). */
static const storage_format formats[STORAGES] = {
    [STORAGE_NF4] = {"nf4", FEWBIT_NF4, {[NF4_CODES] = {"codes", 4, PER_VALUES, 1},
                                         [NF4_ABSMAX] = {"absmax", 8, PER_VALUES, NF4_BLOCK},
                                         [NF4_NESTED] = {"nested_absmax", 32, PER_VALUES, NF4_BLOCK * NF4_NESTED_BLOCK},
                                         [NF4_OFFSET] = {"nested_offset", 32, PER_TENSOR, 0}}},
    [STORAGE_INT8] = {"int8", FEWBIT_INT8, {[INT8_CODES] = {"codes", 8, PER_VALUES, 1}, [INT8_SCALES] = {"scales", 32, PER_ROW, 0}}},
    [STORAGE_MXFP4] = {"mxfp4", FEWBIT_MXFP4, {[MXFP4_CODES] = {"codes", 4, PER_VALUES, 1},
                                               [MXFP4_SCALES] = {"scales", 8, PER_VALUES, MXFP4_BLOCK}}},
};

const storage_format *storage_format_of(param_storage s) { return s == STORAGE_PLAIN ? NULL : &formats[s]; }

param_storage storage_named(const char *name)
{
    for (param_storage s = STORAGE_PLAIN + 1; s < STORAGES; s++)
        if (!strcmp(formats[s].name, name))
            return s;
    return STORAGE_PLAIN;
}

int model_store(model *m, param_storage s, pt_error *e)
{
    int stored = 0;
    for (int i = 0; i < m->params_n; i++) {
        param *p = &m->params[i];
        const bool fits = storage_fits(p);
        p->storage = fits ? s : STORAGE_PLAIN;
        stored += fits;
    }
    if (s == STORAGE_PLAIN || stored)
        return 0;
    return pt_fail(e, PT_USAGE,
                   "`base` %s stores the layers' frozen matrices in few bits, but none is frozen: freeze some with `freeze` or "
                   "`train_only`, or leave `base` out",
                   formats[s].name);
}

param_storage model_storage(const model *m)
{
    for (int i = 0; i < m->params_n; i++)
        if (m->params[i].storage != STORAGE_PLAIN)
            return m->params[i].storage;
    return STORAGE_PLAIN;
}

/* ---- slabs ---- */

/* The rows of a part that a piece holds, counted from the part's first. */
static storage_rows held_of_part(const param *p, storage_rows held, int part)
{
    const param_part *of = &p->part[part];
    const int64_t begin = held.row0 > of->row0 ? held.row0 - of->row0 : 0;
    const int64_t end = held.row0 + held.rows - of->row0 < of->rows ? held.row0 + held.rows - of->row0 : of->rows;
    return (storage_rows){begin, end > begin ? end - begin : 0};
}

/* Entries of so many rows from a part's first on; of the end of the slabs none. */
static int64_t entries(const storage_slab *s, const param *p, int64_t rows)
{
    if (!s->bits)
        return 0;
    switch (s->unit) {
    case PER_ROW: return rows;
    case PER_TENSOR: return rows > 0;
    default: return (rows * p->cols + s->values - 1) / s->values;
    }
}

static uint64_t entry_bytes(const storage_slab *s, int64_t n) { return ((uint64_t)n * (uint64_t)s->bits + 7) / 8; }

uint64_t storage_rows_skipped(const param *p, storage_rows held, int part, int slab)
{
    const storage_slab *s = &formats[p->storage].slabs[slab];
    return s->unit == PER_TENSOR ? 0 : entry_bytes(s, entries(s, p, held_of_part(p, held, part).row0));
}

uint64_t storage_rows_slab_bytes(const param *p, storage_rows held, int part, int slab)
{
    const storage_slab *s = &formats[p->storage].slabs[slab];
    const storage_rows of = held_of_part(p, held, part);
    if (!of.rows)
        return 0;
    return entry_bytes(s, entries(s, p, of.row0 + of.rows)) - storage_rows_skipped(p, held, part, slab);
}

uint64_t storage_rows_slab_at(const param *p, storage_rows held, int part, int slab)
{
    uint64_t at = 0;
    for (int k = 0; k <= part && k < p->parts; k++)
        for (int i = 0; i < (k < part ? STORAGE_SLABS : slab); i++)
            at += align_up(storage_rows_slab_bytes(p, held, k, i), STORAGE_LINE);
    return at;
}

/* The least number of experts whose values are whole entries of a slab, and whole bytes. */
static int64_t whole_entries(const storage_slab *s, int64_t values)
{
    const int64_t unit = s->unit != PER_VALUES ? 1 : s->bits < 8 ? s->values * (8 / s->bits) : s->values;
    int64_t n = 1;
    while (n * values % unit)
        n++;
    return n;
}

int64_t storage_experts_step(const param *p, int64_t experts)
{
    int64_t n = 1, each;
    if (p->storage == STORAGE_PLAIN)
        return 1;
    for (int k = 0; k < p->parts; k++)
        if (p->part[k].heads)
            return 0;
    if (p->parts > 1) /* a tensor or more for each expert */
        return p->parts % experts ? 0 : 1;
    for (int i = 0; i < STORAGE_SLABS && formats[p->storage].slabs[i].bits; i++) {
        each = whole_entries(&formats[p->storage].slabs[i], p->rows / experts * p->cols);
        n = each > n ? each : n; /* units are powers of 2, and so are these numbers */
    }
    return n;
}

/* ---- stripes ---- */

/* On a CPU, stripes of so many values stay in the last-level cache; on a GPU, matmuls with them are large. Narrow stripes make a matmul
 * read its other operand too often. */
enum { CPU_VALUES = 2 << 20, GPU_VALUES = 32 << 20, CPU_LEAST = 256, GPU_LEAST = 1024, STEP = 64 };

/* Divides `lines` of so many values into equal stripes. */
static int64_t stripe_lines(int64_t lines, int64_t values, const step_shape *shape)
{
    const int64_t room = (shape->gpu ? GPU_VALUES : CPU_VALUES) / values, least = shape->gpu ? GPU_LEAST : CPU_LEAST,
    most = room > least ? room : least;
    const int64_t stripes = (lines + most - 1) / most, each = (lines + stripes - 1) / stripes;
    const int64_t whole = (int64_t)align_up((uint64_t)each, STEP);
    return whole < lines ? whole : lines;
}

int64_t stripe_rows(const param *p, const step_shape *shape) { return stripe_lines(p->rows, p->cols, shape); }
int64_t stripe_cols(const param *p, const step_shape *shape) { return stripe_lines(p->cols, p->rows, shape); }

uint64_t stripe_bytes(const param *p, const step_shape *shape)
{
    if (p->storage == STORAGE_PLAIN)
        return 0;
    const int64_t rows = stripe_rows(p, shape) * p->cols, cols = stripe_cols(p, shape) * p->rows;
    return (uint64_t)(rows > cols ? rows : cols) * dtype_bytes(shape->type);
}

/* ---- runs ---- */

int64_t storage_run(const param *p, storage_rows held, const char *piece, int64_t row0, int64_t n, op_dequantize *out)
{
    int k = 0;
    while (k + 1 < p->parts && row0 >= p->part[k + 1].row0)
        k++;
    const param_part *part = &p->part[k];
    const int64_t row = row0 - part->row0, left = part->rows - row;
    int64_t stored;
    const int64_t run = part_run(part, row, n < left ? n : left, &stored);
    out->kind = formats[p->storage].kind;
    out->rows = run;
    out->first = (stored - held_of_part(p, held, k).row0) * p->cols;
    out->stride = p->cols;
    const uint8_t *slab[STORAGE_SLABS];
    for (int i = 0; i < STORAGE_SLABS; i++)
        slab[i] = (const uint8_t *)piece + storage_rows_slab_at(p, held, k, i);
    out->codes = slab[0];
    out->absmax = slab[p->storage == STORAGE_MXFP4 ? MXFP4_SCALES : NF4_ABSMAX];
    out->nested = (const float *)slab[NF4_NESTED];
    out->offset = (const float *)slab[NF4_OFFSET];
    out->scales = (const float *)slab[INT8_SCALES];
    return run;
}
