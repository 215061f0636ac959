/* rope.c - rotary positions: the table of angles. config_rope.c reads config.json.
 *
 * Pair i of a head turns by position * f(i). With the base frequency b(i) = theta^(-2i/R), R = rotated elements of a head:
 *
 *   default   f(i) = b(i)
 *   linear    f(i) = b(i) / factor
 *   dynamic   default, with a theta that grows with sequences longer than the model's own length
 *   llama3    with the wavelength w = 2 pi / b(i) and n original positions:
 *               w < n / high      b(i)            short waves are unchanged
 *               w > n / low       b(i) / factor   long waves are stretched
 *               between           (1 - s) b(i) / factor + s b(i),  s = (n / w - low) / (high - low)
 *   yarn      between b(i) and b(i) / factor by a ramp over i, from the pair that turns beta_fast times in n positions to the one that
 *             turns beta_slow times
 *   proportional  b(i) for the first pairs, 0 for the others
 *   longrope  b(i) / e(i), with one list e for sequences of at most n positions and one for longer ones
 *
 * Yarn and longrope multiply cos and sin by an attention factor. Queries that grow with the position have a table of their own.
 */
#include "model/model.h"

#include <math.h>
#include <stdlib.h>

static double base_frequency(const rope_config *r, double theta, int64_t i)
{
    return 1 / pow(theta, (double)(2 * i) / (double)r->rotated);
}

static double dynamic_theta(const rope_config *r, int64_t length)
{
    const double n = r->original_positions, R = (double)r->rotated;
    if ((double)length <= n)
        return r->theta;
    return r->theta * pow(r->factor * (double)length / n - (r->factor - 1), R / (R - 2));
}

static double llama3_frequency(const rope_config *r, double f)
{
    const double wavelength = 2 * M_PI / f, n = r->original_positions;
    if (wavelength < n / r->high_freq_factor)
        return f;
    if (wavelength > n / r->low_freq_factor)
        return f / r->factor;
    const double smooth = (n / wavelength - r->low_freq_factor) / (r->high_freq_factor - r->low_freq_factor);
    return (1 - smooth) * f / r->factor + smooth * f;
}

/* The pair that turns `turns` times in the original positions. */
static double pair_of_turns(const rope_config *r, double turns)
{
    return (double)r->rotated * log(r->original_positions / (turns * 2 * M_PI)) / (2 * log(r->theta));
}

static double yarn_frequency(const rope_config *r, double f, int64_t i)
{
    double low = pair_of_turns(r, r->beta_fast), high = pair_of_turns(r, r->beta_slow);
    if (r->truncate) {
        low = floor(low);
        high = ceil(high);
    }
    low = fmax(low, 0);
    high = fmin(high, (double)r->rotated - 1);
    if (low == high)
        high += 0.001;
    const double ramp = fmin(fmax(((double)i - low) / (high - low), 0), 1);
    return f / r->factor * ramp + f * (1 - ramp);
}

double model_rope_frequency(const rope_config *r, int64_t length, int64_t i)
{
    const double f = base_frequency(r, r->kind == ROPE_DYNAMIC ? dynamic_theta(r, length) : r->theta, i);
    switch (r->kind) {
    case ROPE_LINEAR: return f / r->factor;
    case ROPE_LLAMA3: return llama3_frequency(r, f);
    case ROPE_YARN: return yarn_frequency(r, f, i);
    case ROPE_LONG: return f / ((double)length > r->original_positions ? r->long_factor : r->short_factor)[i];
    case ROPE_PARTIAL: return i < r->turning ? f / r->factor : 0;
    default: return f;
    }
}

static double scaling(const rope_config *r, int64_t position)
{
    return r->attention_factor * (1 + r->scaling_beta * log(1 + floor((double)position / r->original_positions)));
}

void model_rope_table(const rope_config *r, int64_t length, int64_t first, int64_t n, float *table)
{
    const int64_t pairs = r->rotated / 2;
    for (int64_t i = 0; i < pairs; i++) {
        const double f = model_rope_frequency(r, length, i);
        for (int64_t p = 0; p < n; p++) {
            const double by = scaling(r, first + p), angle = (double)(first + p) * f;
            float *at = table + (p * pairs + i) * 2;
            at[0] = (float)(by * cos(angle));
            at[1] = (float)(by * sin(angle));
        }
    }
}

int64_t model_rope_offset(const model_config *config, int i, int64_t length)
{
    int64_t floats = 0;
    for (int k = 0; k < i; k++)
        floats += config->rope[k].rotated * length;
    return floats;
}

static int send_one(const rope_config *r, int64_t length, size_t begin, rope_put put, void *arg, pt_error *e)
{
    const size_t row = (size_t)r->rotated * sizeof(float);
    int64_t part = (1 << 20) / (int64_t)row + 1;
    part = part < length ? part : length;
    float *table = malloc((size_t)part * row);
    if (!table)
        return pt_fail(e, PT_FAILED, "out of memory: %zu bytes for the rotary table", (size_t)part * row);
    int failed = 0;
    for (int64_t first = 0; first < length && !failed; first += part) {
        const int64_t rows = length - first < part ? length - first : part;
        model_rope_table(r, length, first, rows, table);
        failed = put(arg, begin + (size_t)first * row, table, (size_t)rows * row, e);
    }
    free(table);
    return failed;
}

int model_rope_send(const model_config *config, int64_t length, rope_put put, void *arg, pt_error *e)
{
    int failed = 0;
    for (int i = 0; i < config->ropes_n && !failed; i++)
        failed = send_one(&config->rope[i], length, (size_t)model_rope_offset(config, i, length) * sizeof(float), put, arg, e);
    return failed;
}
