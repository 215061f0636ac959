/* usable.cu - whether the module has code for a GPU. Kernels are loaded when they are first launched, which would be in the middle of a
 * run; all files of the module are compiled for the same architectures. */
#include "device/cuda/kernels.h"

__global__ void cuda_usable_kernel(void) {}

int cuda_check_kernels(void)
{
    cudaFuncAttributes a;
    return cudaFuncGetAttributes(&a, cuda_usable_kernel);
}
