/* kernels_optimizer_8bit.cu - AdamW with 8-bit moments, and their codes alone, with the same bits as the CPU's optimizer_8bit.c. A thread
 * has a value. A block of threads has several blocks of moments, one after the other, so that it loads the maps once. */
#include "device/cuda/adamw.h"
#include "device/moment_map.h"

enum { BLOCK = ADAMW8BIT_BLOCK, BLOCKS_EACH = 8 };
static_assert((int)BLOCK == (int)MOMENT_CODES, "a thread has a code of the maps too");

typedef struct moment_values { float first[MOMENT_CODES], second[MOMENT_CODES]; } moment_values;

struct shared_map { float value[MOMENT_CODES], middle[MOMENT_CODES]; };

/* Copies the map to shared memory; all threads of the block must call it. */
DEVICE void map_share(shared_map *to, const float *values)
{
    const int i = threadIdx.x;
    to->value[i] = values[i];
    to->middle[i] = i + 1 < MOMENT_CODES ? __fmul_rn(__fadd_rn(values[i], values[i + 1]), 0.5f) : INFINITY;
}

DEVICE uint8_t encode(const shared_map &map, float x, float scale)
{
    const float part = __fdiv_rn(x, scale > 0.0f ? scale : 1.0f);
    int code = 0;
    for (int step = MOMENT_CODES / 2; step; step /= 2)
        code += part > map.middle[code + step - 1] ? step : 0;
    return (uint8_t)(x > 0.0f && !code ? 1 : code);
}

/* Updates value i; past the last one moments are 0. */
template <pt_dtype T> DEVICE void update_value(const op_adamw8bit &o, uint32_t second_least, int64_t i, float *m, float *v)
{
    const op_adamw &a = o.adamw;
    if (i >= a.n) {
        *m = *v = 0.0f;
        return;
    }
    uint16_t *low = a.lo ? a.lo + i : nullptr;
    pack w = master_load<T>(element_at<T>(a.hi, i), low, 0, 1, false);
    adamw_element(a, second_least, element_load<T>(a.g, i), &w.x[0], m, v);
    master_store<T>(element_at<T>(a.hi, i), low, 0, 1, false, w);
}

template <pt_dtype T> __global__ void adamw8bit_kernel(op_adamw8bit o, uint32_t second_least, moment_values values)
{
    __shared__ shared_map first, second;
    map_share(&first, values.first);
    map_share(&second, values.second);
    __syncthreads();
    for (int k = 0; k < BLOCKS_EACH; k++) {
        const int64_t block = (int64_t)blockIdx.x * BLOCKS_EACH + k, i = block * BLOCK + threadIdx.x;
        const bool is_value = i < o.adamw.n;
        if (block * BLOCK >= o.adamw.n)
            break;
        float m = is_value ? __fmul_rn(first.value[o.m[i]], o.m_scale[block]) : 0.0f;
        float v = is_value ? __fmul_rn(second.value[o.v[i]], o.v_scale[block]) : 0.0f;
        update_value<T>(o, second_least, i, &m, &v);
        const float m_scale = block_max(m == m ? fabsf(m) : 0.0f), v_scale = block_max(v == v ? fabsf(v) : 0.0f);
        if (is_value) {
            o.m[i] = encode(first, m, m_scale);
            o.v[i] = encode(second, v, v_scale);
        }
        if (threadIdx.x == 0) {
            o.m_scale[block] = m_scale;
            o.v_scale[block] = v_scale;
        }
    }
}

static moment_values both_maps(void)
{
    moment_values values;
    for (int i = 0; i < MOMENT_CODES; i++) {
        values.first[i] = moment_map_get(true)->value[i];
        values.second[i] = moment_map_get(false)->value[i];
    }
    return values;
}

int cuda_adamw8bit(const op_adamw8bit *o, cudaStream_t s)
{
    const moment_values values = both_maps();
    return launch(o->adamw.type == PT_BF16 ? adamw8bit_kernel<PT_BF16> : adamw8bit_kernel<PT_F32>,
                  blocks_of(o->adamw.n, BLOCK * BLOCKS_EACH), BLOCK, s, *o, adamw_second_least(&o->adamw), values);
}

/* ---- codes alone ---- */

DEVICE void encode_moment(const shared_map &map, bool is_value, float x, uint8_t *code, float *scale)
{
    const float most = block_max(x == x ? fabsf(x) : 0.0f);
    if (is_value)
        *code = encode(map, x, most);
    if (threadIdx.x == 0)
        *scale = most;
}

__global__ void moment_codes_kernel(op_moment_codes o, moment_values values)
{
    __shared__ shared_map first, second;
    map_share(&first, values.first);
    map_share(&second, values.second);
    __syncthreads();
    for (int k = 0; k < BLOCKS_EACH; k++) {
        const int64_t block = (int64_t)blockIdx.x * BLOCKS_EACH + k, i = block * BLOCK + threadIdx.x;
        const bool is_value = i < o.n;
        float *scale = o.scale + 2 * block;
        if (block * BLOCK >= o.n)
            break;
        if (o.encode) {
            encode_moment(first, is_value, is_value ? o.m[i] : 0.0f, o.m_code + i, scale);
            encode_moment(second, is_value, is_value ? o.v[i] : 0.0f, o.v_code + i, scale + 1);
        } else if (is_value) {
            o.m[i] = __fmul_rn(first.value[o.m_code[i]], scale[0]);
            o.v[i] = __fmul_rn(second.value[o.v_code[i]], scale[1]);
        }
    }
}

int cuda_moment_codes(const op_moment_codes *o, cudaStream_t s)
{
    return launch(moment_codes_kernel, blocks_of(o->n, BLOCK * BLOCKS_EACH), BLOCK, s, *o, both_maps());
}
