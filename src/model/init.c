/* init.c - random weights, as Transformers' _init_weights makes them.
 *
 * Element i of a Hugging Face tensor, counted in the order in which the tensor is stored, is normal
 * number i of that tensor's stream. So it depends neither on how our parameters stack or transpose
 * tensors, nor on the pieces in which they are asked for. One Philox block gives four normals.
 */
#include "base/rng.h"
#include "model/architectures.h"
#include "model/weights.h"

#include <math.h>
#include <string.h>

enum { BLOCK_NORMALS = 4 };

/* Unique for each tensor, and the same however many layers there are. */
static uint32_t tensor_stream(const param *p, int layer, int part)
{
    return ((uint32_t)(layer + 1) * PARAM_ROLES + (uint32_t)p->role) * MODEL_MAX_PARTS + (uint32_t)part;
}

static void normal_pair(uint32_t a, uint32_t b, double z[2])
{
    double radius = sqrt(-2 * log(((double)a + 0.5) * 0x1p-32)), angle = 2 * M_PI * ((double)b * 0x1p-32);
    z[0] = radius * cos(angle);
    z[1] = radius * sin(angle);
}

/* out[i * stride] = std * normal(first + i), i < n */
static void fill_normal(uint64_t seed, uint32_t stream, uint64_t first, int64_t n, double std, float *out,
                        int64_t stride)
{
    double z[BLOCK_NORMALS];
    for (int64_t i = 0; i < n; i++) {
        uint64_t at = first + (uint64_t)i;
        if (i == 0 || at % BLOCK_NORMALS == 0) {
            uint32_t w[4];
            rng_words(seed, RNG_INIT, stream, at / BLOCK_NORMALS, w);
            normal_pair(w[0], w[1], z);
            normal_pair(w[2], w[3], z + 2);
        }
        out[i * stride] = (float)(std * z[at % BLOCK_NORMALS]);
    }
}

static bool is_norm_weight(param_role role)
{
    return role == PARAM_NORM1 || role == PARAM_NORM2 || role == PARAM_NORMF || role == PARAM_QNORM ||
           role == PARAM_KNORM;
}

static double init_deviation(const model *m, param_role role)
{
    const model_config *c = &m->config;
    bool residual = role == PARAM_OUT || role == PARAM_DOWN;
    bool scaled = residual && architecture_find(c->model_type)->scaled_residual_init;
    return scaled ? c->initializer_range / sqrt(2.0 * (double)c->layers) : c->initializer_range;
}

void weights_init(const model *m, uint64_t seed, int index, int64_t row0, int64_t n_rows, float *out)
{
    const param *p = &m->params[index];
    if (p->part[0].vector) {
        for (int64_t i = 0; i < n_rows * p->cols; i++)
            out[i] = is_norm_weight(p->role) ? 1 : 0;
        return;
    }
    double std = init_deviation(m, p->role);
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
            fill_normal(seed, stream, (uint64_t)(first * p->cols), n * p->cols, std, at, 1);
        else
            for (int64_t c = 0; c < p->cols; c++)
                fill_normal(seed, stream, (uint64_t)(c * part->rows + first), n, std, at + c, p->cols);
    }
    int64_t zero = m->config.padding;
    if (p->role == PARAM_TOKENS && zero >= row0 && zero < row0 + n_rows)
        memset(out + (zero - row0) * p->cols, 0, (size_t)p->cols * sizeof *out);
}
