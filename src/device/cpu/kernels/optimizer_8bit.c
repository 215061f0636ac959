/* optimizer_8bit.c - AdamW with 8-bit moments. Each block is decoded, updated, and encoded with its new largest magnitude.
 *
 * The code of a number is looked up by the upper half of its fp32 bits, its bucket. Within a bucket the code changes at most once.
 */
#include "device/cpu/kernels/optimizer.h"
#include "device/cpu/kernels/adamw.h"
#include "device/cpu/kernels/isa.h"

enum { BLOCK = ADAMW8BIT_BLOCK, VECS = BLOCK / VEC_LANES };

/* ---- vectors of codes ---- */

#if VEC_LANES == 16

static INLINE vu u8_load(const uint8_t *p) { return (vu)_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p)); }
static INLINE void u8_store(uint8_t *p, vu x) { _mm_storeu_si128((__m128i *)p, _mm512_cvtepi32_epi8((__m512i)x)); }
static INLINE vf look_up(const float *table, vu index) { return (vf)_mm512_i32gather_ps((__m512i)index, table, 4); }
static INLINE vu look_up_byte(const uint8_t *table, vu index) { return (vu)_mm512_i32gather_epi32((__m512i)index, table, 1) & 0xff; }

#elif VEC_LANES == 8

static INLINE vu u8_load(const uint8_t *p) { return (vu)_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p)); }
static INLINE void u8_store(uint8_t *p, vu x)
{
    __m128i low = _mm256_castsi256_si128((__m256i)x), high = _mm256_extracti128_si256((__m256i)x, 1);
    __m128i pairs = _mm_packus_epi32(low, high);
    _mm_storel_epi64((__m128i *)p, _mm_packus_epi16(pairs, pairs));
}
static INLINE vf look_up(const float *table, vu index) { return (vf)_mm256_i32gather_ps(table, (__m256i)index, 4); }
static INLINE vu look_up_byte(const uint8_t *table, vu index)
{
    return (vu)_mm256_i32gather_epi32((const int *)table, (__m256i)index, 1) & 0xff;
}

#else

static INLINE vu u8_load(const uint8_t *p) { return (vu){p[0], p[1], p[2], p[3]}; }
static INLINE void u8_store(uint8_t *p, vu x)
{
    for (int i = 0; i < VEC_LANES; i++)
        p[i] = (uint8_t)x[i];
}
static INLINE vf look_up(const float *table, vu index) { return (vf){table[index[0]], table[index[1]], table[index[2]], table[index[3]]}; }
static INLINE vu look_up_byte(const uint8_t *table, vu index)
{
    return (vu){table[index[0]], table[index[1]], table[index[2]], table[index[3]]};
}

#endif

static INLINE vu u8_load_lanes(const uint8_t *p, int64_t lanes)
{
    uint8_t part[VEC_LANES] = {0};
    for (int64_t i = 0; i < lanes && lanes < VEC_LANES; i++)
        part[i] = p[i];
    return u8_load(lanes < VEC_LANES ? part : p);
}

static INLINE void u8_store_lanes(uint8_t *p, vu x, int64_t lanes)
{
    uint8_t part[VEC_LANES];
    u8_store(lanes < VEC_LANES ? part : p, x);
    for (int64_t i = 0; i < lanes && lanes < VEC_LANES; i++)
        p[i] = part[i];
}

/* The code of x / by. A positive x never gets code 0, which in the map of second moments is that of 0. */
static INLINE vu encode(const moment_map *m, vf x, vf by)
{
    const vf part = x / by;
    const vu u = (vu)part;
    const vi bucket = (vi)((u & 0x7fffffffu) >> 16) - MOMENT_BUCKET_LEAST, least = bucket & (bucket > 0);
    const vi most = (least & (least < MOMENT_BUCKETS)) | (~(least < MOMENT_BUCKETS) & (MOMENT_BUCKETS - 1)); /* NaN: the last bucket */
    const vu start = look_up_byte(m->start[0], (vu)most + (u >> 31) * (uint32_t)sizeof m->start[0]);
    const vu code = (start - (vu)(part > look_up(m->middle, start))) & (vu)(part == part); /* true is -1 */
    return code - (vu)((x > 0) & (vi)(code == 0));
}

/* ---- blocks ---- */

typedef struct moments { vf x[VECS]; vf most; } moments;

static INLINE void moments_add(moments *m, int k, vf x, int64_t lanes)
{
    m->x[k] = x;
    m->most = vec_max(vec_keep(first_lanes(lanes), vec_abs(x)), m->most); /* ignores NaN */
}

static INLINE void moments_encode(const moments *m, const moment_map *map, int64_t n, uint8_t *codes, float *scale)
{
    *scale = vec_largest(m->most);
    const vf by = vec_set(*scale > 0 ? *scale : 1.0f);
    for (int64_t k = 0; k * VEC_LANES < n; k++)
        u8_store_lanes(codes + k * VEC_LANES, encode(map, m->x[k], by), n - k * VEC_LANES);
}

static INLINE vf decode_lanes(const moment_map *m, const uint8_t *codes, int64_t lanes, vf scale)
{
    return look_up(m->value, u8_load_lanes(codes, lanes)) * scale;
}

static INLINE void block_of(pt_dtype type, const op_adamw8bit *o, const moment_map *first, const moment_map *second, int64_t i, int64_t n)
{
    const vf m_scale = vec_set(o->m_scale[i / BLOCK]), v_scale = vec_set(o->v_scale[i / BLOCK]);
    moments m, v;
    m.most = v.most = (vf){0};
    for (int64_t k = 0; k * VEC_LANES < n; k++) {
        const int64_t at = i + k * VEC_LANES, lanes = i + n - at;
        vf x = decode_lanes(first, o->m + at, lanes, m_scale), y = decode_lanes(second, o->v + at, lanes, v_scale);
        adamw_values(type, &o->adamw, at, lanes, &x, &y);
        moments_add(&m, (int)k, x, lanes);
        moments_add(&v, (int)k, y, lanes);
    }
    moments_encode(&m, first, n, o->m + i, &o->m_scale[i / BLOCK]);
    moments_encode(&v, second, n, o->v + i, &o->v_scale[i / BLOCK]);
}

static INLINE void blocks_of(pt_dtype type, op_adamw8bit o, const moment_map *first, const moment_map *second, int64_t i, int64_t n)
{
    const int64_t end = i + n;
    for (; i + BLOCK <= end; i += BLOCK)
        block_of(type, &o, first, second, i, BLOCK);
    if (i < end)
        block_of(type, &o, first, second, i, end - i);
}

void KERNEL(adamw8bit_part)(const op_adamw8bit *o, const moment_map *first, const moment_map *second, int64_t i, int64_t n)
{
    if (o->adamw.type == PT_BF16)
        blocks_of(PT_BF16, *o, first, second, i, n);
    else
        blocks_of(PT_F32, *o, first, second, i, n);
}

/* ---- codes alone ---- */

static INLINE void decode_block(const moment_map *m, const uint8_t *codes, float scale, int64_t n, float *out)
{
    for (int64_t k = 0; k < n; k += VEC_LANES)
        f32_store(out + k, decode_lanes(m, codes + k, n - k, vec_set(scale)), n - k);
}

static INLINE void encode_block(const moment_map *map, const float *values, int64_t n, uint8_t *codes, float *scale)
{
    moments m;
    m.most = (vf){0};
    for (int64_t k = 0; k * VEC_LANES < n; k++)
        moments_add(&m, (int)k, f32_load(values + k * VEC_LANES, n - k * VEC_LANES), n - k * VEC_LANES);
    moments_encode(&m, map, n, codes, scale);
}

void KERNEL(moment_codes_part)(const op_moment_codes *o, const moment_map *first, const moment_map *second, int64_t i, int64_t n)
{
    for (const int64_t end = i + n; i < end; i += BLOCK) {
        const int64_t here = end - i < BLOCK ? end - i : BLOCK;
        float *scale = o->scale + 2 * (i / BLOCK);
        if (o->encode) {
            encode_block(first, o->m + i, here, o->m_code + i, scale);
            encode_block(second, o->v + i, here, o->v_code + i, scale + 1);
        } else {
            decode_block(first, o->m_code + i, scale[0], here, o->m + i);
            decode_block(second, o->v_code + i, scale[1], here, o->v + i);
        }
    }
}
