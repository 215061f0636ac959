/* kernels_jet.cu - activations with two derivatives, and energies, in fp32; a thread per element or row. Only the CPU has fp64. */
#include "device/cuda/primitives.h"

enum { THREADS = 256 };

struct jet_values { float value, slope, curve; };

/* z: as kept by the value pass. */
DEVICE jet_values jet_of(jet_kind kind, float z)
{
    jet_values j;
    switch (kind) {
    case JET_TANH: case JET_TANH3: {
        const float t = z, d = fmaf(-t, t, 1.0f);
        j.value = kind == JET_TANH ? t : t * t * t;
        j.slope = kind == JET_TANH ? d : 3.0f * t * t * d;
        j.curve = kind == JET_TANH ? -2.0f * t * d : 6.0f * t * d * (d - t * t);
        return j;
    }
    case JET_RELU3: {
        const float x = z < 0.0f ? 0.0f : z;
        j.value = x * x * x, j.slope = 3.0f * x * x, j.curve = 6.0f * x;
        return j;
    }
    case JET_SIN:
        j.value = sinf(z), j.slope = cosf(z), j.curve = -j.value;
        return j;
    default: {
        const float e = expf(-fabsf(z)), large = 1.0f / (1.0f + e), s = z < 0.0f ? e * large : large, d = e * large * large;
        if (kind == JET_SOFTPLUS)
            j.value = (z < 0.0f ? 0.0f : z) + log1pf(e), j.slope = s, j.curve = d;
        else
            j.value = z * s, j.slope = fmaf(z, d, s), j.curve = d * fmaf(z, fmaf(-2.0f, s, 1.0f), 2.0f);
        return j;
    }
    }
}

__global__ void jet_kernel(op_jet o)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= o.n)
        return;
    float z = ((const float *)o.z)[i];
    if (o.pass == JET_VALUE && (o.kind == JET_TANH || o.kind == JET_TANH3))
        ((float *)o.z)[i] = z = tanhf(z);
    if (!o.out)
        return;
    const jet_values j = jet_of(o.kind, z);
    float out = o.pass == JET_VALUE ? j.value : j.slope * ((const float *)o.a)[i];
    if (o.pass == JET_REVERSE) {
        const float c = ((const float *)o.c)[i];
        out = fmaf(j.curve * ((const float *)o.b)[i], c, out);
        ((float *)o.other)[i] = j.slope * c;
    } else if (o.residual)
        out += ((const float *)o.residual)[i];
    ((float *)o.out)[i] = out;
}

__global__ void quadratic_kernel(op_quadratic o)
{
    const int64_t row = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (row >= o.rows)
        return;
    const double *t = o.terms + row * QUADRATIC_TERMS, u = ((const float *)o.u)[row];
    double squares = 0.0;
    for (int64_t i = 0; i < o.ld && o.g; i++) {
        const double g = i < o.dim ? ((const float *)o.g)[row * o.ld + i] : 0.0f;
        squares += g * g;
        ((float *)o.dg)[row * o.ld + i] = (float)(t[0] * g);
    }
    o.value[row] = 0.5 * t[0] * squares + 0.5 * t[1] * u * u - t[2] * u + t[3];
    ((float *)o.du)[row] = (float)(t[1] * u - t[2] + t[4]);
}

/* GPUs get no ops in fp64. */
int cuda_jet(const op_jet *o, cudaStream_t s)
{
    return o->type != PT_F32 ? (int)cudaErrorInvalidConfiguration : launch(jet_kernel, blocks_of(o->n, THREADS), THREADS, s, *o);
}

/* Nothing to do: a GPU has enough threads for all rows at once. */
int cuda_rows(const op_rows *o, cudaStream_t s) { return 0; }

int cuda_quadratic(const op_quadratic *o, cudaStream_t s)
{
    return o->type != PT_F32 ? (int)cudaErrorInvalidConfiguration : launch(quadratic_kernel, blocks_of(o->rows, THREADS), THREADS, s, *o);
}
