#include "gguf/blocks.h"

#include "base/cores.h"
#include "base/dtype.h"

#include <math.h>
#include <pthread.h>
#include <stddef.h>

enum { VALUES = 32, HALF = VALUES / 2 };

/* The value of largest magnitude, with its sign: the first one of several. */
static float extreme(const float *x)
{
    float most = 0;
    for (int i = 0; i < VALUES; i++)
        if (fabsf(x[i]) > fabsf(most))
            most = x[i];
    return most;
}

/* 0 for a unit of 0, or too small to have an inverse. */
static float inverse_of(float unit)
{
    const float inverse = unit != 0 ? 1 / unit : 0;
    return isinf(inverse) ? 0 : inverse;
}

/* The low four bits of levels i and i + 16 share a byte; the fifth bits are a number of 32 bits before them. */
static void put_levels(const uint8_t *levels, bool fifth, unsigned char *out)
{
    uint32_t high = 0;
    for (int i = 0; i < VALUES; i++)
        high |= (uint32_t)(levels[i] >> 4) << i;
    for (int i = 0; fifth && i < 4; i++)
        *out++ = (unsigned char)(high >> 8 * i);
    for (int i = 0; i < HALF; i++)
        out[i] = (unsigned char)((levels[i] & 15) | (levels[i + HALF] & 15) << 4);
}

/* Levels 0 to 2 `middle` - 1; `middle` stands for 0, and the extreme value for level 0. */
static void encode_symmetric(const float *x, int middle, unsigned char *out)
{
    const float unit = extreme(x) / (float)-middle, inverse = inverse_of(unit);
    uint8_t levels[VALUES];
    for (int i = 0; i < VALUES; i++) {
        const int level = (int)(x[i] * inverse + ((float)middle + 0.5f));
        levels[i] = (uint8_t)(level < 2 * middle ? level : 2 * middle - 1);
    }
    put_levels(levels, middle > 8, gguf_put_16(out, f16_from_f32(unit)));
}

static void encode_q4_0(const float *x, unsigned char *out) { encode_symmetric(x, 8, out); }
static void encode_q5_0(const float *x, unsigned char *out) { encode_symmetric(x, 16, out); }

/* 32 levels from the least value to the largest. */
static void encode_q5_1(const float *x, unsigned char *out)
{
    float low = x[0], high = x[0];
    for (int i = 1; i < VALUES; i++) {
        low = x[i] < low ? x[i] : low;
        high = x[i] > high ? x[i] : high;
    }
    const float unit = (high - low) / 31, inverse = inverse_of(unit);
    uint8_t levels[VALUES];
    for (int i = 0; i < VALUES; i++)
        levels[i] = (uint8_t)((x[i] - low) * inverse + 0.5f);
    put_levels(levels, true, gguf_put_16(gguf_put_16(out, f16_from_f32(unit)), f16_from_f32(low)));
}

/* Rounds to nearest, halves away from zero. Truncation is faster than a call of roundf. */
static int round_away(float x)
{
    const int whole = (int)x;
    const float rest = x - (float)whole;
    return whole + (rest >= 0.5f) - (rest <= -0.5f);
}

static void encode_q8_0(const float *x, unsigned char *out)
{
    const float unit = fabsf(extreme(x)) / 127, inverse = inverse_of(unit);
    out = gguf_put_16(out, f16_from_f32(unit));
    for (int i = 0; i < VALUES; i++)
        out[i] = (unsigned char)round_away(x[i] * inverse);
}

typedef struct block_type {
    const char *name;
    int values, bytes;
    void (*encode)(const float *x, unsigned char *out); /* a block; NULL: no block */
} block_type;

static const block_type types[] = {
    [GGUF_F32] = {"F32", 1, 4, NULL},
    [GGUF_F16] = {"F16", 1, 2, NULL},
    [GGUF_Q4_0] = {"Q4_0", VALUES, 2 + HALF, encode_q4_0},
    [GGUF_Q5_0] = {"Q5_0", VALUES, 2 + 4 + HALF, encode_q5_0},
    [GGUF_Q5_1] = {"Q5_1", VALUES, 4 + 4 + HALF, encode_q5_1},
    [GGUF_Q8_0] = {"Q8_0", VALUES, 2 + VALUES, encode_q8_0},
    [GGUF_Q4_K] = {"Q4_K", K_VALUES, Q4_K_BYTES, gguf_encode_q4_k},
    [GGUF_Q5_K] = {"Q5_K", K_VALUES, Q5_K_BYTES, gguf_encode_q5_k},
    [GGUF_Q6_K] = {"Q6_K", K_VALUES, Q6_K_BYTES, gguf_encode_q6_k},
    [GGUF_BF16] = {"BF16", 1, 2, NULL},
};

const char *gguf_type_name(gguf_type t) { return types[t].name; }
int64_t gguf_block_values(gguf_type t) { return types[t].values; }
int64_t gguf_block_bytes(gguf_type t) { return types[t].bytes; }

typedef struct share { pthread_t thread; bool runs; gguf_type type; const float *values; int64_t n; unsigned char *out; } share;

static void *encode_share(void *arg)
{
    const share *s = arg;
    const block_type *type = &types[s->type];
    unsigned char *out = s->out;
    for (int64_t i = 0; i < s->n; i += type->values, out += type->bytes)
        type->encode(s->values + i, out);
    return NULL;
}

/* A thread for each 4096 values, where blocks take so long that it pays. */
void gguf_encode_blocks(gguf_type t, const float *values, int64_t n, unsigned char *out)
{
    enum { THREADS_MOST = 16, LEAST = 4096 };
    const block_type *type = &types[t];
    const int64_t cores = cores_allowed(), wanted = type->values == K_VALUES ? n / LEAST : 1;
    const int64_t least = wanted < cores ? wanted : cores, threads = least < 1 ? 1 : least < THREADS_MOST ? least : THREADS_MOST;
    const int64_t blocks = n / type->values;
    share shares[THREADS_MOST];
    for (int64_t i = 0; i < threads; i++) {
        const int64_t first = blocks * i / threads, end = blocks * (i + 1) / threads;
        shares[i] = (share){.type = t, .values = values + first * type->values, .n = (end - first) * type->values,
                            .out = out + first * type->bytes};
        shares[i].runs = i + 1 < threads && !pthread_create(&shares[i].thread, NULL, encode_share, &shares[i]);
        if (!shares[i].runs)
            encode_share(&shares[i]);
    }
    for (int64_t i = 0; i < threads; i++)
        if (shares[i].runs)
            pthread_join(shares[i].thread, NULL);
}
