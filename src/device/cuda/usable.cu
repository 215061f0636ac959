/* usable.cu - checks whether the module has code for a GPU. Otherwise a run would fail at its first launch, when kernels are loaded. All
 * files of the module are compiled for the same architectures. */
#include "device/cuda/kernels.h"

__global__ void cuda_usable_kernel(void) {}

int cuda_check_kernels(void)
{
    cudaFuncAttributes a;
    return cudaFuncGetAttributes(&a, cuda_usable_kernel);
}
