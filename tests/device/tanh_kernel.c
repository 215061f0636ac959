/* The tanh of vectors, for test_isa.c. */
#include "device/cpu/kernels/isa.h"
#include "device/cpu/kernels/vmath.h"

void KERNEL(tanh_vector)(const float x[16], float y[16]);
void KERNEL(tanh_vector)(const float x[16], float y[16])
{
    for (int i = 0; i < 16; i += VEC_LANES)
        f32_store(y + i, vec_tanh(f32_load(x + i, VEC_LANES)), VEC_LANES);
}
