/* The power of two that attention by pairs of bf16 takes, for test_attention_kernels.c. */
#include "device/cpu/kernels/attention_vec.h"
#include "device/cpu/kernels/isa.h"

void KERNEL(exp2_vector)(const float x[VEC], float y[VEC]);
void KERNEL(exp2_vector)(const float x[VEC], float y[VEC])
{
    vec_store(y, vec_exp2(vec_load(x)));
}
