/* k_blocks.c - blocks of 256 values. Their parts have scales (and least values) of their own, which are small integers times an F16 of the
 * block. Levels and scales are chosen by least squares; sums are in the reference's order, so that the bytes are its bytes. */
#include "gguf/blocks.h"

#include "base/dtype.h"

#include <math.h>
#include <string.h>

/* The nearest integer, halves to even: adding 1.5 * 2^23 leaves it in the low bits. The reference's also where it is out of their range. */
static int nearest(float x)
{
    return (int)(f32_bits(x + 0x1.8p23f) & 0x7fffff) - 0x400000;
}

static int within(int x, int low, int high) { return x < low ? low : x > high ? high : x; }

/* ---- Q4_K, Q5_K: value = unit * level - low ---- */

enum { PARTS = 8, PART = K_VALUES / PARTS, MOST_SCALE = 63, SCALE_BYTES = 12 };

typedef struct line { float unit, start; } line;

typedef struct part {
    const float *x;
    float w[PART];     /* the weight of each value's error */
    float sum_w, sum_x; /* of weights, of weighted values */
    int most;          /* levels are 0 to `most` */
} part;

static part weigh(const float *x, int most)
{
    part p = {.x = x, .most = most};
    float squares = 0;
    for (int i = 0; i < PART; i++)
        squares += x[i] * x[i];
    const float mean = sqrtf(squares / PART);
    for (int i = 0; i < PART; i++) {
        p.w[i] = mean + fabsf(x[i]);
        p.sum_w += p.w[i];
        p.sum_x += p.w[i] * x[i];
    }
    return p;
}

static void set_levels(const part *p, float inverse, float low, uint8_t *levels)
{
    for (int i = 0; i < PART; i++)
        levels[i] = (uint8_t)within(nearest(inverse * (p->x[i] - low)), 0, p->most);
}

static float error_of(const part *p, line f, const uint8_t *levels)
{
    float sum = 0;
    for (int i = 0; i < PART; i++) {
        const float off = f.unit * levels[i] + f.start - p->x[i];
        sum += p->w[i] * (off * off);
    }
    return sum;
}

/* The line of least error for given levels, which must not start above 0. False: there is none. */
static bool fit(const part *p, const uint8_t *levels, line *f)
{
    float l = 0, ll = 0, lx = 0;
    for (int i = 0; i < PART; i++) {
        const float weighted = p->w[i] * levels[i];
        l += weighted;
        ll += weighted * levels[i];
        lx += weighted * p->x[i];
    }
    const float d = p->sum_w * ll - l * l;
    if (!(d > 0))
        return false;
    *f = (line){(p->sum_w * lx - p->sum_x * l) / d, (ll * p->sum_x - l * lx) / d};
    if (f->start > 0)
        *f = (line){lx / ll, 0};
    return true;
}

/* Starts from the range of the values. Each of `steps` tries after it divides what lies above the best start so far into another number of
 * levels, 0.1 more from try to try; `first` is what the first one has more than there are. */
static line best_line(const part *p, float first, int steps, uint8_t *levels)
{
    float low = 0, high = p->x[0];
    for (int i = 0; i < PART; i++) {
        low = p->x[i] < low ? p->x[i] : low;
        high = p->x[i] > high ? p->x[i] : high;
    }
    if (high == low) {
        memset(levels, 0, PART);
        return (line){0, low};
    }
    const float all = (float)p->most / (high - low);
    line best = {1 / all, low};
    set_levels(p, all, low, levels);
    float error = error_of(p, best, levels);
    for (int i = 0; i < steps; i++) {
        uint8_t tried[PART];
        line f;
        set_levels(p, (first + 0.1f * (float)i + (float)p->most) / (high - best.start), best.start, tried);
        if (!fit(p, tried, &f))
            continue;
        const float e = error_of(p, f, tried);
        if (e < error) {
            memcpy(levels, tried, PART);
            error = e;
            best = f;
        }
    }
    return best;
}

/* Six bits for each part's unit and start: the low six of the first four parts, then four of the others, whose high two bits are above the
 * former. */
static void put_scales(const uint8_t *units, const uint8_t *starts, unsigned char *out)
{
    memset(out, 0, SCALE_BYTES);
    for (int j = 0; j < 4; j++) {
        out[j] = (unsigned char)(units[j] | units[j + 4] >> 4 << 6);
        out[j + 4] = (unsigned char)(starts[j] | starts[j + 4] >> 4 << 6);
        out[j + 8] = (unsigned char)((units[j + 4] & 15) | (starts[j + 4] & 15) << 4);
    }
}

static uint8_t scale_in(float x, float inverse)
{
    const uint8_t scale = (uint8_t)nearest(inverse * x);
    return scale < MOST_SCALE ? scale : MOST_SCALE;
}

/* Writes the block's two F16 and the scales of its parts. */
static unsigned char *encode_lines(const float *x, int most, float first, int steps, uint8_t *levels, unsigned char *out)
{
    line lines[PARTS];
    float unit = 0, start = 0;
    for (int j = 0; j < PARTS; j++) {
        const part p = weigh(x + PART * j, most);
        lines[j] = best_line(&p, first, steps, levels + PART * j);
        unit = lines[j].unit > unit ? lines[j].unit : unit;
        start = -lines[j].start > start ? -lines[j].start : start;
    }
    const float inverse_unit = unit > 0 ? MOST_SCALE / unit : 0, inverse_start = start > 0 ? MOST_SCALE / start : 0;
    uint8_t units[PARTS], starts[PARTS];
    for (int j = 0; j < PARTS; j++) {
        units[j] = scale_in(lines[j].unit, inverse_unit);
        starts[j] = scale_in(-lines[j].start, inverse_start);
    }
    const uint16_t stored_unit = f16_from_f32(unit / MOST_SCALE), stored_start = f16_from_f32(start / MOST_SCALE);
    for (int j = 0; j < PARTS; j++) {
        const float d = f16_to_f32(stored_unit) * units[j], low = f16_to_f32(stored_start) * starts[j];
        for (int i = PART * j; i < PART * (j + 1) && d != 0; i++)
            levels[i] = (uint8_t)within(nearest((x[i] + low) / d), 0, most);
    }
    out = gguf_put_16(gguf_put_16(out, stored_unit), stored_start);
    put_scales(units, starts, out);
    return out + SCALE_BYTES;
}

/* The low four bits: parts 2 j and 2 j + 1 share bytes. */
static void put_low_bits(const uint8_t *levels, unsigned char *out)
{
    for (int j = 0; j < K_VALUES; j += 2 * PART, out += PART)
        for (int i = 0; i < PART; i++)
            out[i] = (unsigned char)((levels[j + i] & 15) | (levels[j + PART + i] & 15) << 4);
}

void gguf_encode_q4_k(const float *x, unsigned char *out)
{
    uint8_t levels[K_VALUES];
    out = encode_lines(x, 15, -1, 21, levels, out);
    put_low_bits(levels, out);
}

void gguf_encode_q5_k(const float *x, unsigned char *out)
{
    uint8_t levels[K_VALUES];
    out = encode_lines(x, 31, -0.5f, 16, levels, out);
    for (int i = 0; i < PART; i++) { /* bit j is that of part j */
        int high = 0;
        for (int j = 0; j < PARTS; j++)
            high |= levels[PART * j + i] >> 4 << j;
        out[i] = (unsigned char)high;
    }
    put_low_bits(levels, out + PART);
}

/* ---- Q6_K: value = unit * (level - 32) ---- */

enum { UNITS = 16, UNIT = K_VALUES / UNITS, MIDDLE = 32 };
#define NEARLY_ZERO 1e-15f

typedef struct projection { float lx, ll; } projection;

static int signed_level(float x, float inverse) { return within(nearest(inverse * x), -MIDDLE, MIDDLE - 1); }

/* Of the values on the levels that they get, weighted by their squares. */
static projection project(const float *x, float inverse)
{
    projection p = {0, 0};
    for (int i = 0; i < UNIT; i++) {
        const int level = signed_level(x[i], inverse);
        const float w = x[i] * x[i];
        p.lx += w * x[i] * (float)level;
        p.ll += w * (float)level * (float)level;
    }
    return p;
}

/* The unit of least error of 19: that of the extreme value at the last level, and at 0.1 to 0.9 levels before and behind it. */
static float best_unit(const float *x, uint8_t *levels)
{
    float most = 0;
    for (int i = 0; i < UNIT; i++)
        if (fabsf(x[i]) > fabsf(most))
            most = x[i];
    memset(levels, 0, UNIT);
    if (fabsf(most) < NEARLY_ZERO)
        return 0;
    float chosen = -MIDDLE / most;
    projection p = project(x, chosen);
    float unit = p.ll != 0 ? p.lx / p.ll : 0, best = unit * p.lx;
    for (int i = -9; i <= 9; i++) {
        if (i == 0)
            continue;
        const float inverse = -(MIDDLE + 0.1f * (float)i) / most;
        p = project(x, inverse);
        if (p.ll > 0 && p.lx * p.lx > best * p.ll) {
            chosen = inverse;
            unit = p.lx / p.ll;
            best = unit * p.lx;
        }
    }
    for (int i = 0; i < UNIT; i++)
        levels[i] = (uint8_t)(signed_level(x[i], chosen) + MIDDLE);
    return unit;
}

/* Of each half block: 64 bytes of low bits, 32 of high ones; the values 32 apart share bytes. */
static void put_six_bits(const uint8_t *levels, unsigned char *low, unsigned char *high)
{
    for (int half = 0; half < 2; half++, levels += 128, low += 64, high += 32)
        for (int i = 0; i < 32; i++) {
            const int a = levels[i], b = levels[i + 32], c = levels[i + 64], d = levels[i + 96];
            low[i] = (unsigned char)((a & 15) | (c & 15) << 4);
            low[i + 32] = (unsigned char)((b & 15) | (d & 15) << 4);
            high[i] = (unsigned char)(a >> 4 | b >> 4 << 2 | c >> 4 << 4 | d >> 4 << 6);
        }
}

void gguf_encode_q6_k(const float *x, unsigned char *out)
{
    enum { LOW = K_VALUES / 2, HIGH = K_VALUES / 4 };
    uint8_t levels[K_VALUES];
    float units[UNITS], most = 0;
    for (int j = 0; j < UNITS; j++) {
        units[j] = best_unit(x + UNIT * j, levels + UNIT * j);
        if (fabsf(units[j]) > fabsf(most))
            most = units[j];
    }
    memset(out, 0, Q6_K_BYTES);
    if (fabsf(most) < NEARLY_ZERO)
        return;
    const float inverse = -128 / most;
    const uint16_t stored = f16_from_f32(1 / inverse);
    signed char *scales = (signed char *)out + LOW + HIGH;
    for (int j = 0; j < UNITS; j++) {
        scales[j] = (signed char)within(nearest(inverse * units[j]), -128, 127);
        const float d = f16_to_f32(stored) * scales[j];
        for (int i = UNIT * j; i < UNIT * (j + 1) && d != 0; i++)
            levels[i] = (uint8_t)(within(nearest(x[i] / d), -MIDDLE, MIDDLE - 1) + MIDDLE);
    }
    put_six_bits(levels, out, out + LOW);
    gguf_put_16(out + LOW + HIGH + UNITS, stored);
}
