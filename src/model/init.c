/* init.c - random weights, as Transformers' _init_weights makes them.
 *
 * Element i of a Hugging Face tensor, in the order in which it is stored, is normal number i of that tensor's stream. So it depends neither
 * on how parameters stack or transpose tensors, nor on the pieces in which they are requested. A Philox block gives four normals.
 */
#include "base/rng.h"
#include "model/adapter.h"
#include "model/architectures.h"
#include "model/rows.h"
#include "model/weights.h"

#include <math.h>
#include <string.h>

enum { BLOCK_NORMALS = 4, BATCH = 64 /* blocks */ };

/* Unique for each tensor, and independent of the number of layers. The first kinds of parameters share a range; later ones have one each.
 * These numbers must never change, because all random weights depend on them. */
static uint32_t tensor_stream(const param *p, int layer, int part)
{
    enum { FIRST_KINDS = 19, PARTS = 3, LAYERS = 1 << 12, LATER = 1 << 20, EXPERTS = 1 << 28, EXPERT_PARTS = 1 << 12 };
    const uint32_t kind = (uint32_t)p->kind->stream, block = (uint32_t)(layer + 1);
    if (kind < FIRST_KINDS)
        return (block * FIRST_KINDS + kind) * PARTS + (uint32_t)part;
    if (p->kind->use == USE_EXPERTS || part >= PARTS)
        return EXPERTS + (kind * LAYERS + block) * EXPERT_PARTS + (uint32_t)part;
    return LATER + (kind * LAYERS + block) * PARTS + (uint32_t)part;
}

/* Logarithm, sine and cosine to a relative error of about 1e-12, enough for floats. Series without branches, so that loops over a batch
 * vectorize and results do not depend on the C library. */

typedef union number { double d; uint64_t u; } number;

static inline double whole(uint64_t n) { return (number){.u = n | 0x4330000000000000u}.d - 0x1p52; } /* n < 2^52 */

/* log((2a + 1) / 2^33), which is negative */
static inline double log_of_word(uint32_t a)
{
    const uint64_t sqrt_half = 0x3FE6A09E667F3BCDu;
    const number x = {.d = 2 * whole(a) + 1};
    const uint64_t mantissa = (x.u & 0xFFFFFFFFFFFFFu) | 0x3FE0000000000000u; /* 1/2 .. 1 */
    const uint64_t below = (mantissa - sqrt_half) >> 63;
    const double m = (number){.u = mantissa + (below << 52)}.d, s = (m - 1) / (m + 1), q = s * s;
    const double series = 1 + q * (1.0 / 3 + q * (1.0 / 5 + q * (1.0 / 7 + q * (1.0 / 9 +
                          q * (1.0 / 11 + q * (1.0 / 13 + q * (1.0 / 15)))))));
    return (whole((x.u >> 52) - below) - 1022 - 33) * 0.69314718055994530942 + 2 * s * series;
}

/* Sine and cosine of the angle b / 2^32 turns. */
static inline void circle(uint32_t b, double *cosine, double *sine)
{
    const uint64_t quarter = (b + (1ull << 29)) >> 30; /* nearest, 0 .. 4 */
    const double x = (whole(b) - whole(quarter << 30)) * (6.28318530717958647693 * 0x1p-32), q = x * x;
    const double s = x * (1 - q * (1.0 / 6 - q * (1.0 / 120 - q * (1.0 / 5040 -
                         q * (1.0 / 362880 - q * (1.0 / 39916800 - q * (1.0 / 6227020800.0)))))));
    const double c = 1 - q * (1.0 / 2 - q * (1.0 / 24 - q * (1.0 / 720 -
                         q * (1.0 / 40320 - q * (1.0 / 3628800 - q * (1.0 / 479001600))))));
    const number of[2] = {{.d = c}, {.d = s}};
    const uint64_t swap = (of[0].u ^ of[1].u) & (0 - (quarter & 1));
    *cosine = (number){.u = of[0].u ^ swap ^ ((quarter + 1) >> 1 & 1) << 63}.d;
    *sine = (number){.u = of[1].u ^ swap ^ (quarter >> 1 & 1) << 63}.d;
}

/* z[..][i]: the normals of block first + i, i < n, by the Box-Muller transform. */
static void normals(uint64_t seed, uint32_t stream, uint64_t first, int n, double std, float z[BLOCK_NORMALS][BATCH])
{
    uint32_t w[4][BATCH];
    rng_words_run(seed, RNG_INIT, stream, first, n, w[0], w[1], w[2], w[3]);
    for (int pair = 0; pair < 2; pair++)
        for (int i = 0; i < n; i++) {
            double radius = std * sqrt(-2 * log_of_word(w[2 * pair][i])), cosine, sine;
            circle(w[2 * pair + 1][i], &cosine, &sine);
            z[2 * pair][i] = (float)(radius * cosine);
            z[2 * pair + 1][i] = (float)(radius * sine);
        }
}

/* out[i * stride] = std * normal(first + i), i < n */
static void fill_normal(uint64_t seed, uint32_t stream, uint64_t first, int64_t n, double std, float *out, int64_t stride)
{
    float z[BLOCK_NORMALS][BATCH];
    for (int64_t i = 0; i < n;) {
        const uint64_t at = first + (uint64_t)i;
        const int64_t from = (int64_t)(at % BLOCK_NORMALS), blocks = (from + n - i + BLOCK_NORMALS - 1) / BLOCK_NORMALS;
        normals(seed, stream, at / BLOCK_NORMALS, blocks < BATCH ? (int)blocks : BATCH, std, z);
        for (int64_t k = from; k < BATCH * BLOCK_NORMALS && i < n; k++, i++)
            out[i * stride] = z[k % BLOCK_NORMALS][k / BLOCK_NORMALS];
    }
}

static double init_deviation(const model *m, const param *p)
{
    const model_config *config = &m->config;
    bool scaled = p->kind->ends_branch && architecture_find(config->model_type)->scaled_residual_init;
    return scaled ? config->initializer_range / sqrt(2.0 * (double)config->layers) : config->initializer_range;
}

/* out[i] = uniform in (-bound, bound), number first + i of the stream */
static void fill_uniform(uint64_t seed, uint32_t stream, uint64_t first, int64_t n, double bound, float *out)
{
    uint32_t w[4][BATCH];
    for (int64_t i = 0; i < n;) {
        const uint64_t at = first + (uint64_t)i;
        const int64_t from = (int64_t)(at % BLOCK_NORMALS), blocks = (from + n - i + BLOCK_NORMALS - 1) / BLOCK_NORMALS;
        rng_words_run(seed, RNG_INIT, stream, at / BLOCK_NORMALS, blocks < BATCH ? (int)blocks : BATCH, w[0], w[1], w[2], w[3]);
        for (int64_t k = from; k < BATCH * BLOCK_NORMALS && i < n; k++, i++)
            out[i] = (float)(bound * ((2.0 * w[k % BLOCK_NORMALS][k / BLOCK_NORMALS] + 1) * 0x1p-32 - 1));
    }
}

/* As in PEFT: A as PyTorch initializes linear layers (Kaiming, slope sqrt(5)), B with zeros. */
static void init_adapter(const model *m, uint64_t seed, const param *p, int64_t row0, int64_t n_rows, float *out)
{
    memset(out, 0, (size_t)(n_rows * p->cols) * sizeof *out);
    for (int k = 0; k < p->parts && p->kind->use == USE_ADAPTER_A; k++) {
        const param_part *part = &p->part[k];
        int64_t from = row0 > part->row0 ? row0 : part->row0;
        int64_t to = row0 + n_rows < part->row0 + part->rows ? row0 + n_rows : part->row0 + part->rows;
        if (to > from)
            fill_uniform(seed, tensor_stream(p, m->blocks[p->block].layer, k), (uint64_t)((from - part->row0) * p->cols),
                         (to - from) * p->cols,
                         1 / sqrt((double)p->cols), out + (from - row0) * p->cols);
    }
}

static float vector_start(const model *m, const param *p)
{
    if (p->role == PARAM_MIX_NORM || p->role == PARAM_DECAY_BIAS || p->role == PARAM_SCALE || p->role == PARAM_SKIP)
        return 1;
    return p->kind->use == USE_NORM ? 1 - m->config.norm_offset : 0;
}

/* The logarithms of numbers between 0 and 16; of Mamba-2 of 1, 2 ... */
static void init_decay(const model *m, uint64_t seed, const param *p, float *out)
{
    const int layer = m->blocks[p->block].layer;
    fill_uniform(seed, tensor_stream(p, layer, 0), 0, p->cols, 1, out);
    for (int64_t i = 0; i < p->cols; i++)
        out[i] = (float)log(m->config.mixer[layer] == MIXER_MAMBA ? (double)(i + 1) : fmax(8 * (1 + (double)out[i]), 1e-2));
}

/* out = rows first .. first + n of part k, whose matrices are stored transposed. */
static void fill_transposed(uint64_t seed, uint32_t stream, const param *p, int k, int64_t first, int64_t n, double std, float *out)
{
    const int64_t whole = part_whole_rows(p, k);
    for (int64_t done = 0, take; done < n; done += take) {
        const int64_t inside = (first + done) % whole, begin = (first + done - inside) * p->cols;
        take = n - done < whole - inside ? n - done : whole - inside;
        for (int64_t c = 0; c < p->cols; c++)
            fill_normal(seed, stream, (uint64_t)(begin + c * whole + inside), take, std, out + done * p->cols + c, p->cols);
    }
}

void weights_init(const model *m, uint64_t seed, int index, int64_t row0, int64_t n_rows, float *out)
{
    const param *p = &m->params[index];
    if (param_is_adapter(p)) {
        init_adapter(m, seed, p, row0, n_rows, out);
        return;
    }
    if (p->part[0].vector) {
        for (int64_t i = 0; i < n_rows * p->cols; i++)
            out[i] = vector_start(m, p);
        if (p->role == PARAM_DECAY)
            init_decay(m, seed, p, out);
        if (p->kind->use == USE_SINK)
            fill_normal(seed, tensor_stream(p, m->blocks[p->block].layer, 0), 0, p->cols, init_deviation(m, p), out, 1);
        return;
    }
    double std = init_deviation(m, p);
    for (int k = 0; k < p->parts; k++) {
        const param_part *part = &p->part[k];
        uint32_t stream = tensor_stream(p, m->blocks[p->block].layer, k);
        int64_t from = row0 > part->row0 ? row0 : part->row0;
        int64_t to = row0 + n_rows < part->row0 + part->rows ? row0 + n_rows : part->row0 + part->rows;
        int64_t n = to - from, first = from - part->row0;
        if (n <= 0)
            continue;
        float *at = out + (from - row0) * p->cols;
        if (!part->transposed)
            for (int64_t done = 0, run, stored; done < n; done += run) {
                run = part_run(part, first + done, n - done, &stored);
                fill_normal(seed, stream, (uint64_t)(stored * p->cols), run * p->cols, std, at + done * p->cols, 1);
            }
        else
            fill_transposed(seed, stream, p, k, first, n, std, at);
    }
    int64_t zero = m->config.padding;
    if (p->role == PARAM_TOKENS && zero >= row0 && zero < row0 + n_rows)
        memset(out + (zero - row0) * p->cols, 0, (size_t)p->cols * sizeof *out);
}
