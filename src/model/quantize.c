#include "model/quantize.h"

#include "device/fewbit.h"
#include "device/moment_map.h"
#include "model/rows.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- NF4 ---- */

enum { BLOCK = NF4_BLOCK, NESTED = NF4_NESTED_BLOCK, LEVELS = NF4_LEVELS };

#define LEAST_MAGNITUDE 1e-38f

static float largest(const float *x, int64_t n)
{
    float most = 0;
    for (int64_t i = 0; i < n; i++)
        most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
    return most;
}

/* Divided by their largest magnitude. bitsandbytes multiplies whole blocks by its inverse, and divides an incomplete last block. */
static void scale(const float *x, int64_t n, bool whole, float most, float *out)
{
    const float safe = most > LEAST_MAGNITUDE ? most : LEAST_MAGNITUDE, inverse = 1.0f / safe;
    for (int64_t i = 0; i < n; i++) {
        const float y = whole ? x[i] * inverse : x[i] / safe;
        out[i] = y < -1 ? -1 : y > 1 ? 1 : y;
    }
}

/* The nearest level, of two equally near the lower: the number of midpoints below the value. */
static void nearest_levels(const float part[BLOCK], uint8_t codes[BLOCK])
{
    uint32_t code[BLOCK] = {0};
    for (int k = 0; k + 1 < LEVELS; k++) {
        const float middle = (nf4_levels[k] + nf4_levels[k + 1]) / 2;
        for (int i = 0; i < BLOCK; i++)
            code[i] += part[i] > middle;
    }
    for (int i = 0; i < BLOCK; i++)
        codes[i] = (uint8_t)code[i];
}

void nf4_encode(const float *values, int64_t n, uint8_t *codes, float *absmax)
{
    for (int64_t at = 0; at < n; at += BLOCK) {
        const int64_t count = n - at < BLOCK ? n - at : BLOCK;
        float part[BLOCK] = {0};
        uint8_t each[BLOCK], packed[BLOCK / 2];
        const float most = largest(values + at, count);
        scale(values + at, count, count == BLOCK, most, part);
        nearest_levels(part, each);
        for (int i = 0; i < BLOCK / 2; i++)
            packed[i] = (uint8_t)(each[2 * i] << 4 | each[2 * i + 1]);
        absmax[at / BLOCK] = count == BLOCK || most > LEAST_MAGNITUDE ? most : LEAST_MAGNITUDE;
        memcpy(codes + at / 2, packed, (size_t)(count + 1) / 2);
    }
}

float nf4_mean(const float *absmax, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)absmax[i];
    return (float)(sum / (double)n);
}

void nf4_encode_absmax(const float *absmax, int64_t n, float offset, uint8_t *codes, float *nested)
{
    const moment_map *map = moment_map_get(true);
    for (int64_t at = 0; at < n; at += NESTED) {
        const int64_t count = n - at < NESTED ? n - at : NESTED;
        float part[NESTED];
        for (int64_t i = 0; i < count; i++)
            part[i] = absmax[at + i] - offset;
        const float most = largest(part, count);
        nested[at / NESTED] = count == NESTED || most > LEAST_MAGNITUDE ? most : LEAST_MAGNITUDE;
        scale(part, count, count == NESTED, most, part);
        for (int64_t i = 0; i < count; i++)
            codes[at + i] = (uint8_t)moment_nearest(map->middle, part[i]);
    }
}

/* ---- int8 ---- */

void int8_encode(const float *values, int64_t n, uint8_t *codes, float *scale_out)
{
    const float most = largest(values, n), times = most > 0 ? 1.0f / most * 127.0f : 0;
    for (int64_t i = 0; i < n; i++)
        codes[i] = (uint8_t)(int8_t)rintf(values[i] * times);
    *scale_out = most;
}

/* ---- MXFP4 ---- */

/* The nearest level of a magnitude, of two equally near the one with an even code; what is above the largest becomes it. */
static uint8_t mxfp4_nearest(float x)
{
    int code = 0;
    for (int k = 0; k < 7; k++) {
        const float middle = (mxfp4_levels[k] + mxfp4_levels[k + 1]) / 2;
        code += k % 2 ? x >= middle : x > middle;
    }
    return (uint8_t)code;
}

void mxfp4_encode(const float *values, int64_t n, uint8_t *codes, uint8_t *scales)
{
    enum { ABOVE = 3 /* the largest level has exponent 2, frexp's mantissas are below 1 */, BIAS = 127, MOST = MXFP4_MOST_SCALE };
    for (int64_t at = 0; at < n; at += MXFP4_BLOCK) {
        const int64_t count = n - at < MXFP4_BLOCK ? n - at : MXFP4_BLOCK;
        uint8_t packed[MXFP4_BLOCK / 2] = {0};
        int exponent;
        const float most = largest(values + at, count), mantissa = frexpf(most, &exponent);
        exponent = mantissa > 0 ? exponent + BIAS - ABOVE : 0;
        exponent = exponent < 0 ? 0 : exponent > MOST ? MOST : exponent;
        for (int64_t i = 0; i < count; i++) {
            const uint8_t code = mxfp4_nearest(ldexpf(fabsf(values[at + i]), BIAS - exponent));
            packed[i / 2] |= (uint8_t)((code | (signbit(values[at + i]) ? 8 : 0)) << (i % 2 ? 4 : 0));
        }
        scales[at / MXFP4_BLOCK] = (uint8_t)exponent;
        memcpy(codes + at / 2, packed, (size_t)(count + 1) / 2);
    }
}

/* ---- a parameter ---- */

typedef struct part_job {
    const model *m;
    int index, k;
    const param *p;
    const quantize_io *io;
    float *room, *scales; /* scales: of the whole part */
    int64_t rows;         /* processed at a time */
} part_job;

static int put(const part_job *j, int slab, uint64_t at, const void *bytes, uint64_t n, pt_error *e)
{
    return j->io->put(j->io->arg, storage_slab_at(j->p, j->k, slab) + at, bytes, n, e);
}

/* Rows of the part in stored order. */
static int read_stored(const part_job *j, int64_t stored, int64_t n, pt_error *e)
{
    const param_part *part = &j->p->part[j->k];
    int failed = 0;
    for (int64_t done = 0, run, row; done < n && !failed; done += run) {
        run = part_stored_run(part, stored + done, n - done, &row);
        failed = j->io->rows(j->io->arg, j->index, part->row0 + row, run, j->room + done * j->p->cols, e);
    }
    return failed;
}

/* Rows first .. of the part, whose values are in the buffer. */
static int put_rows(const part_job *j, int64_t first, int64_t n, pt_error *e)
{
    const int64_t cols = j->p->cols;
    uint8_t *codes = (uint8_t *)j->room; /* each code lies before the value that it is made from */
    if (j->p->storage == STORAGE_NF4) {
        nf4_encode(j->room, n * cols, codes, j->scales + first * cols / BLOCK);
        return put(j, NF4_CODES, (uint64_t)(first * cols) / 2, codes, ((uint64_t)(n * cols) + 1) / 2, e);
    }
    if (j->p->storage == STORAGE_MXFP4) {
        mxfp4_encode(j->room, n * cols, codes, (uint8_t *)j->scales + first * cols / MXFP4_BLOCK);
        return put(j, MXFP4_CODES, (uint64_t)(first * cols) / 2, codes, ((uint64_t)(n * cols) + 1) / 2, e);
    }
    for (int64_t i = 0; i < n; i++)
        int8_encode(j->room + i * cols, cols, codes + i * cols, j->scales + first + i);
    return put(j, INT8_CODES, (uint64_t)(first * cols), codes, (uint64_t)(n * cols), e);
}

static int put_scales(const part_job *j, pt_error *e)
{
    if (j->p->storage == STORAGE_INT8)
        return put(j, INT8_SCALES, 0, j->scales, storage_slab_bytes(j->p, j->k, INT8_SCALES), e);
    if (j->p->storage == STORAGE_MXFP4)
        return put(j, MXFP4_SCALES, 0, j->scales, storage_slab_bytes(j->p, j->k, MXFP4_SCALES), e);
    const int64_t blocks = (part_values(j->p, j->k) + BLOCK - 1) / BLOCK;
    const float offset = nf4_mean(j->scales, blocks);
    float *nested = malloc(storage_slab_bytes(j->p, j->k, NF4_NESTED));
    if (!nested)
        return pt_fail(e, PT_FAILED, "out of memory for the scales of %s", j->p->part[j->k].name);
    nf4_encode_absmax(j->scales, blocks, offset, (uint8_t *)j->scales, nested);
    int failed = put(j, NF4_ABSMAX, 0, j->scales, storage_slab_bytes(j->p, j->k, NF4_ABSMAX), e);
    if (!failed)
        failed = put(j, NF4_NESTED, 0, nested, storage_slab_bytes(j->p, j->k, NF4_NESTED), e);
    free(nested);
    return failed ? failed : put(j, NF4_OFFSET, 0, &offset, sizeof offset, e);
}

static int quantize_part(part_job *j, pt_error *e)
{
    const int64_t rows = j->p->part[j->k].rows, n = j->p->storage == STORAGE_INT8 ? rows : (part_values(j->p, j->k) + BLOCK - 1) / BLOCK;
    j->scales = malloc((size_t)n * sizeof *j->scales);
    int failed = j->scales ? 0 : pt_fail(e, PT_FAILED, "out of memory for %lld scales of %s", (long long)n, j->p->part[j->k].name);
    for (int64_t row = 0; row < rows && !failed; row += j->rows) {
        const int64_t some = rows - row < j->rows ? rows - row : j->rows;
        failed = read_stored(j, row, some, e);
        if (!failed)
            failed = put_rows(j, row, some, e);
    }
    if (!failed)
        failed = put_scales(j, e);
    free(j->scales);
    return failed;
}

int quantize(const model *m, int index, const quantize_io *io, float *room, size_t room_floats, pt_error *e)
{
    part_job j = {.m = m, .index = index, .p = &m->params[index], .io = io, .room = room};
    const int64_t some = (int64_t)room_floats / j.p->cols, step = j.p->cols % BLOCK ? BLOCK : 1; /* rows that begin with a block */
    j.rows = some / step * step;
    if (j.rows < 1)
        return pt_fail(e, PT_FAILED, "%lld rows of %lld values do not fit into %zu bytes", (long long)step, (long long)j.p->cols,
                       room_floats * sizeof *room);
    int failed = 0;
    for (j.k = 0; j.k < j.p->parts && !failed; j.k++) {
        const int taken = io->take ? io->take(io->arg, index, j.k, e) : 0;
        failed = taken ? (taken < 0 ? taken : 0) : quantize_part(&j, e);
    }
    return failed;
}

/* ---- decoding ---- */

static float value_of(const op_dequantize *o, int64_t i)
{
    if (o->kind == FEWBIT_INT8)
        return (float)(int8_t)o->codes[i] * o->scales[i / o->stride] * INT8_STEP;
    if (o->kind == FEWBIT_MXFP4)
        return mxfp4_levels[i % 2 ? o->codes[i / 2] >> 4 : o->codes[i / 2] & 15] *
               f32_from_bits(MXFP4_SCALE_BITS(o->absmax[i / MXFP4_BLOCK]));
    const int64_t block = i / BLOCK;
    const float s = moment_map_get(true)->value[o->absmax[block]] * o->nested[block / NESTED] + *o->offset;
    return nf4_levels[i % 2 ? o->codes[i / 2] & 15 : o->codes[i / 2] >> 4] * s;
}

void dequantize_rows(const param *p, const char *piece, int64_t row0, int64_t n_rows, float *out)
{
    for (int64_t done = 0, run; done < n_rows; done += run, out += run * p->cols) {
        op_dequantize o;
        run = storage_run(p, storage_all_rows(p), piece, row0 + done, n_rows - done, &o);
        for (int64_t i = 0; i < run * p->cols; i++)
            out[i] = value_of(&o, o.first + i);
    }
}
