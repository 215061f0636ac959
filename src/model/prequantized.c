#include "model/prequantized_parts.h"

#include "base/json.h"
#include "device/fewbit.h"
#include "device/moment_map.h"
#include "model/quantize.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { NAME_BYTES = 512, STATE_BYTES = 4096, BLOCK_MOST = 1 << 20 };

static const char *const states[] = {".quant_state.bitsandbytes__nf4", ".quant_state.bitsandbytes__fp4"};
static const char *const others[] = {".absmax", ".quant_map", ".nested_absmax", ".nested_quant_map"};
static const char of_weight[] = ".weight", of_scales[] = ".SCB", of_order[] = ".weight_format";

static const char mx_scales[] = "_scales";
enum { MX_BYTES = MXFP4_BLOCK / 2 };

enum { STATES = sizeof states / sizeof *states, OTHERS = sizeof others / sizeof *others };

static bool ends(const char *name, const char *with)
{
    const size_t n = strlen(name), k = strlen(with);
    return n > k && !strcmp(name + n - k, with);
}

const safetensors_tensor *prequantized_beside(const safetensors *st, const char *name, const char *end, const char *other)
{
    char whole[NAME_BYTES];
    if (!ends(name, end) && end[0])
        return NULL;
    const int n = snprintf(whole, sizeof whole, "%.*s%s", (int)(strlen(name) - strlen(end)), name, other);
    return n < (int)sizeof whole ? safetensors_find(st, whole) : NULL;
}

bool prequantized_belongs(const safetensors *st, const safetensors_tensor *tensor)
{
    bool belongs = prequantized_beside(st, tensor->name, mx_scales, PREQUANTIZED_BLOCKS) ||
                   prequantized_beside(st, tensor->name, of_scales, of_weight) ||
                   prequantized_beside(st, tensor->name, of_order, of_weight) || prequantized_fp8_belongs(st, tensor);
    for (int i = 0; i < STATES && !belongs; i++)
        belongs = prequantized_beside(st, tensor->name, states[i], "") != NULL;
    for (int i = 0; i < OTHERS && !belongs; i++)
        belongs = prequantized_beside(st, tensor->name, others[i], "") != NULL;
    return belongs;
}

/* ---- opening ---- */

int prequantized_damaged(const prequantized *q, const safetensors_tensor *tensor, const char *what, pt_error *e)
{
    return pt_fail(e, PT_FAILED, "%s: tensor \"%.120s\" %s: the matrix \"%.120s\" cannot be decoded; download the folder again",
                   safetensors_path(q->st, tensor), tensor->name, what, q->codes->name);
}

/* A tensor that belongs to the codes, with so many entries (0: any number) of a dtype. */
static int find_part(const prequantized *q, const char *end, pt_dtype dtype, int64_t n, const safetensors_tensor **out, pt_error *e)
{
    const safetensors_tensor *tensor = prequantized_beside(q->st, q->codes->name, "", end);
    *out = tensor;
    if (!tensor)
        return pt_fail(e, PT_FAILED, "%s: tensor \"%.120s%s\", without which its codes say nothing, is missing; the files are incomplete",
                       safetensors_path(q->st, q->codes), q->codes->name, end);
    if (!tensor->dtype_is_known || tensor->dtype != dtype || (n && tensor->elements != (uint64_t)n))
        return prequantized_damaged(q, tensor, "has another dtype or size than the matrix asks for", e);
    return 0;
}

static int read_floats(const prequantized *q, const char *end, int64_t n, float *out, pt_error *e)
{
    const safetensors_tensor *tensor;
    int failed = find_part(q, end, PT_F32, n, &tensor, e);
    if (!failed)
        failed = safetensors_read_f32(q->st, tensor, 0, (uint64_t)n, out, e);
    for (int64_t i = 0; i < n && !failed; i++)
        failed = isfinite(out[i]) ? 0 : prequantized_damaged(q, tensor, "has a value that is not finite", e);
    return failed;
}

static int dtype_of(const char *name, pt_dtype *out)
{
    static const struct { const char *name; pt_dtype dtype; } known[] = {
        {"float32", PT_F32}, {"bfloat16", PT_BF16}, {"float16", PT_F16}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcmp(known[i].name, name)) {
            *out = known[i].dtype;
            return 0;
        }
    return 1;
}

/* A matrix, or a vector as one row. */
static int read_shape(const json_source *src, prequantized *q, pt_error *e)
{
    json_t *shape = NULL;
    int failed = json_get_array(src, "shape", JSON_REQUIRED, &shape, e);
    if (failed)
        return failed;
    const json_int_t rows = json_integer_value(json_array_get(shape, 0)), cols = json_integer_value(json_array_get(shape, 1));
    if (json_array_size(shape) != 2 || rows < 1 || cols < 1 || rows > INT64_MAX / 8 / cols)
        return pt_fail(e, PT_FAILED, "%s: \"shape\" is not the two sizes of a matrix", src->where);
    q->rows = rows;
    q->cols = cols;
    return 0;
}

static int read_nested(const json_source *src, prequantized *q, pt_error *e)
{
    double offset = 0;
    int failed = json_get_int(src, "nested_blocksize", JSON_REQUIRED, 1, BLOCK_MOST, &q->nested_block, e);
    if (!failed)
        failed = json_get_double(src, "nested_offset", JSON_REQUIRED, -1e30, 1e30, &offset, e);
    q->offset = (float)offset;
    return failed;
}

static int read_sizes(const json_source *src, prequantized *q, pt_error *e)
{
    const char *dtype = NULL, *type = NULL;
    int failed = json_get_string(src, "quant_type", JSON_REQUIRED, &type, e);
    if (!failed)
        failed = json_get_int(src, "blocksize", JSON_REQUIRED, 1, BLOCK_MOST, &q->block, e);
    if (!failed)
        failed = json_get_string(src, "dtype", JSON_REQUIRED, &dtype, e);
    if (!failed && dtype_of(dtype, &q->dtype))
        failed = pt_fail(e, PT_FAILED, "%s: \"dtype\" is \"%.40s\", and must be float32, bfloat16 or float16", src->where, dtype);
    if (!failed)
        failed = read_shape(src, q, e);
    return failed || !json_is_integer(json_object_get(src->object, "nested_blocksize")) ? failed : read_nested(src, q, e);
}

static int read_state(prequantized *q, const safetensors_tensor *state, pt_error *e)
{
    char text[STATE_BYTES], where[1024];
    json_source src;
    if (!state->dtype_is_known || state->dtype != PT_U8 || state->bytes > sizeof text)
        return prequantized_damaged(q, state, "is no description of a few hundred bytes", e);
    int failed = safetensors_read(q->st, state, 0, state->bytes, text, e);
    if (failed)
        return failed;
    snprintf(where, sizeof where, "%.400s: tensor \"%.120s\"", safetensors_path(q->st, state), state->name);
    failed = json_source_text(&src, where, text, state->bytes, "the description of a matrix in few bits", e);
    if (failed)
        return failed;
    failed = read_sizes(&src, q, e);
    json_source_close(&src);
    return failed;
}

static int64_t blocks_of(int64_t n, int64_t block) { return (n + block - 1) / block; }

static bool is_our_nf4(const prequantized *q)
{
    return q->nested && q->block == NF4_BLOCK && q->nested_block == NF4_NESTED_BLOCK && !memcmp(q->level, nf4_levels, sizeof q->level) &&
           !memcmp(q->nested_level, moment_map_get(true)->value, sizeof q->nested_level);
}

static int open_halves(prequantized *q, const safetensors_tensor *state, pt_error *e)
{
    int failed = read_state(q, state, e);
    const int64_t n = q->rows * q->cols, blocks = failed ? 0 : blocks_of(n, q->block);
    if (!failed && q->codes->bytes != ((uint64_t)n + 1) / 2)
        failed = prequantized_damaged(q, q->codes, "has not half a byte for each value of its shape", e);
    if (!failed)
        failed = read_floats(q, ".quant_map", PREQUANTIZED_LEVELS, q->level, e);
    if (!failed)
        failed = find_part(q, ".absmax", q->nested_block ? PT_U8 : PT_F32, blocks, &q->absmax, e);
    if (failed || !q->nested_block)
        return failed;
    failed = find_part(q, ".nested_absmax", PT_F32, blocks_of(blocks, q->nested_block), &q->nested, e);
    if (!failed)
        failed = read_floats(q, ".nested_quant_map", PREQUANTIZED_NESTED_LEVELS, q->nested_level, e);
    q->format = !failed && is_our_nf4(q) ? STORAGE_NF4 : STORAGE_PLAIN;
    return failed;
}

/* 0: rows are contiguous; older versions also wrote them in the order of a GPU's tiles. */
static int check_order(const prequantized *q, pt_error *e)
{
    const safetensors_tensor *tensor = prequantized_beside(q->st, q->codes->name, of_weight, of_order);
    uint8_t order = 0;
    int failed = tensor && tensor->bytes == 1 ? safetensors_read_stored(q->st, tensor, 0, 1, &order, e) : 0;
    if (failed || !order)
        return failed;
    return pt_fail(e, PT_FAILED,
                   "%s: \"%.120s\" is %d: the codes are in the order of a GPU's tiles, and rows are needed (0): load the folder with a "
                   "newer bitsandbytes and save it again", safetensors_path(q->st, tensor), tensor->name, order);
}

static int open_bytes(prequantized *q, pt_dtype dtype, pt_error *e)
{
    int failed = check_order(q, e);
    if (failed)
        return failed;
    if (strcmp(q->codes->dtype_text, "I8") || q->codes->rank != 2)
        return prequantized_damaged(q, q->codes, "has scales for its rows and is no matrix of I8", e);
    q->bytes = true;
    q->rows = q->codes->shape[0];
    q->cols = q->block = q->codes->shape[1];
    q->dtype = dtype;
    q->format = STORAGE_INT8;
    if (!q->absmax->dtype_is_known || q->absmax->dtype != PT_F32 || q->absmax->elements != (uint64_t)q->rows || q->cols < 1)
        return prequantized_damaged(q, q->absmax, "is not an F32 for each row", e);
    return 0;
}

static int open_mx(prequantized *q, pt_error *e)
{
    const safetensors_tensor *tensor = q->codes;
    if (!tensor->dtype_is_known || tensor->dtype != PT_U8 || tensor->rank != 4 || tensor->shape[3] != MX_BYTES ||
        tensor->elements < MX_BYTES)
        return prequantized_damaged(q, tensor, "is not a U8 of (experts, outputs, blocks, 16)", e);
    q->mx = true;
    q->rows = tensor->shape[0] * tensor->shape[1];
    q->cols = tensor->shape[2] * MXFP4_BLOCK;
    q->block = MXFP4_BLOCK;
    q->dtype = PT_BF16;
    q->format = STORAGE_MXFP4;
    q->absmax = prequantized_beside(q->st, tensor->name, PREQUANTIZED_BLOCKS, mx_scales);
    if (!q->absmax)
        return pt_fail(e, PT_FAILED, "%s: the scales of tensor \"%.120s\" (\"..%s\") are missing; the files are incomplete",
                       safetensors_path(q->st, tensor), tensor->name, mx_scales);
    if (!q->absmax->dtype_is_known || q->absmax->dtype != PT_U8 || q->absmax->elements != tensor->elements / MX_BYTES)
        return prequantized_damaged(q, q->absmax, "is not a U8 for each block", e);
    return 0;
}

int prequantized_open(const safetensors *st, const safetensors_tensor *tensor, pt_dtype of_bytes, prequantized *out, pt_error *e)
{
    const safetensors_tensor *state = NULL;
    *out = (prequantized){.st = st, .codes = tensor};
    if (ends(tensor->name, PREQUANTIZED_BLOCKS)) {
        const int failed_mx = open_mx(out, e);
        return failed_mx ? failed_mx : 1;
    }
    for (int i = 0; i < STATES && !state; i++)
        state = prequantized_beside(st, tensor->name, "", states[i]);
    int failed = 0;
    if (state) {
        failed = open_halves(out, state, e);
        return failed ? failed : 1;
    }
    out->absmax = prequantized_beside(st, tensor->name, of_weight, of_scales);
    if (out->absmax) {
        failed = open_bytes(out, of_bytes, e);
        return failed ? failed : 1;
    }
    out->absmax = prequantized_beside(st, tensor->name, "", prequantized_fp8_scales);
    if (out->absmax) {
        failed = prequantized_fp8_open(out, of_bytes, e);
        return failed ? failed : 1;
    }
    return prequantized_beside(st, tensor->name, "", ".absmax") ? find_part(out, states[0], PT_U8, 0, &state, e) : 0;
}

/* ---- values ---- */

enum { CHUNK = 1 << 15, CHUNK_BLOCKS = 1 << 11 };

static int check_mx_scales(const prequantized *q, const uint8_t *scales, uint64_t n, pt_error *e)
{
    bool fit = true;
    for (uint64_t i = 0; i < n; i++)
        fit = fit && scales[i] <= MXFP4_MOST_SCALE;
    return fit ? 0 : prequantized_damaged(q, q->absmax, "has a scale above 252, with which values overflow", e);
}

/* Scales of blocks first .. first + n. */
static int read_scales(const prequantized *q, int64_t first, int64_t n, float *out, pt_error *e)
{
    uint8_t codes[CHUNK_BLOCKS];
    if (!q->nested && !q->mx)
        return safetensors_read_f32(q->st, q->absmax, (uint64_t)first, (uint64_t)n, out, e);
    int failed = safetensors_read(q->st, q->absmax, (uint64_t)first, (uint64_t)n, codes, e);
    if (q->mx && !failed)
        failed = check_mx_scales(q, codes, (uint64_t)n, e);
    for (int64_t i = 0; i < n && q->mx; i++)
        out[i] = f32_from_bits(MXFP4_SCALE_BITS(codes[i]));
    if (q->mx)
        return failed;
    float scale = 0;
    for (int64_t i = 0, have = -1; i < n && !failed; i++) {
        const int64_t at = (first + i) / q->nested_block;
        if (at != have)
            failed = safetensors_read_f32(q->st, q->nested, (uint64_t)at, 1, &scale, e);
        have = at;
        out[i] = q->nested_level[codes[i]] * scale + q->offset;
    }
    return failed;
}

/* Values first .. first + n, of at most CHUNK_BLOCKS blocks. */
static int read_chunk(const prequantized *q, int64_t first, int64_t n, float *out, pt_error *e)
{
    uint8_t codes[CHUNK];
    float scale[CHUNK_BLOCKS];
    const int64_t block0 = first / q->block, blocks = (first + n - 1) / q->block - block0 + 1, from = q->bytes ? first : first / 2;
    const int64_t bytes = q->bytes ? n : (first + n + 1) / 2 - from;
    int failed = safetensors_read_stored(q->st, q->codes, (uint64_t)from, (uint64_t)bytes, codes, e);
    if (!failed)
        failed = read_scales(q, block0, blocks, scale, e);
    for (int64_t i = 0; i < n && !failed; i++) {
        const int64_t at = first + i;
        const float s = scale[at / q->block - block0];
        const uint8_t byte = codes[q->bytes ? i : at / 2 - from];
        if (q->mx) {
            out[i] = prequantized_rounded(q->dtype, mxfp4_levels[at % 2 ? byte >> 4 : byte & 15] * s);
            continue;
        }
        const float x = q->bytes ? (float)(int8_t)byte * s * INT8_STEP : q->level[at % 2 ? byte & 15 : byte >> 4] * s;
        out[i] = prequantized_rounded(q->dtype, x);
    }
    return failed;
}

int prequantized_read(const prequantized *q, int64_t first, int64_t n, float *out, pt_error *e)
{
    if (q->fp8)
        return prequantized_fp8_read(q, first, n, out, e);
    const int64_t by_blocks = (CHUNK_BLOCKS - 1) * q->block, most = CHUNK < by_blocks ? CHUNK : by_blocks;
    int failed = 0;
    for (int64_t done = 0, part; done < n && !failed; done += part) {
        part = n - done < most ? n - done : most;
        failed = read_chunk(q, first + done, part, out + done, e);
    }
    return failed;
}

/* ---- codes as stored ---- */

int prequantized_take(const prequantized *q, int slab, uint64_t from, uint64_t n, void *out, pt_error *e)
{
    const bool halves = q->format == STORAGE_NF4;
    if (halves && slab == NF4_OFFSET) {
        memcpy(out, (const char *)&q->offset + from, n);
        return 0;
    }
    const safetensors_tensor *tensor = slab == 0 ? q->codes : halves && slab == NF4_NESTED ? q->nested : q->absmax;
    const bool floats = tensor->dtype_is_known && tensor->dtype == PT_F32 && tensor != q->codes;
    int failed = safetensors_read_stored(q->st, tensor, from, n, out, e);
    if (q->mx && slab == MXFP4_SCALES && !failed)
        failed = check_mx_scales(q, out, n, e);
    for (uint64_t i = 0; floats && i < n / sizeof(float) && !failed; i++) {
        float x;
        memcpy(&x, (const char *)out + i * sizeof x, sizeof x);
        failed = isfinite(x) ? 0 : prequantized_damaged(q, tensor, "has a value that is not finite", e);
    }
    return failed;
}
