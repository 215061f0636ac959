/* fail.c - errors of CUDA as sentences. */
#include "device/cuda/cuda.h"

int cuda_fail(pt_error *e, cudaError_t error, const char *doing)
{
    cudaGetLastError(); /* clear the error, or the next call may return it again */
    switch (error) {
    case cudaErrorMemoryAllocation:
        return pt_fail(e, PT_DOES_NOT_FIT,
                       "the GPU ran out of memory while %s: end other programs on it (nvidia-smi), or give a smaller `device_memory`",
                       doing);
    case cudaErrorECCUncorrectable:
        return pt_fail(e, PT_FAILED,
                       "the GPU found an uncorrectable memory error (ECC) while %s: reset or replace it, and continue from the last "
                       "checkpoint with `resume`",
                       doing);
    case cudaErrorDevicesUnavailable:
        return pt_fail(e, PT_FAILED, "another process uses the GPU exclusively (while %s): end that process (nvidia-smi)", doing);
    case cudaErrorIllegalAddress: case cudaErrorMisalignedAddress: case cudaErrorInvalidAddressSpace: case cudaErrorAssert:
    case cudaErrorLaunchOutOfResources: case cudaErrorInvalidValue: case cudaErrorInvalidConfiguration:
        return pt_fail(e, PT_FAILED, "%s while %s: this is a bug in protrain", cudaGetErrorString(error), doing);
    case cudaErrorLaunchFailure: case cudaErrorHardwareStackError: case cudaErrorUnknown: case cudaErrorNvlinkUncorrectable:
#if CUDART_VERSION >= 12080
    case cudaErrorContained:
#endif
    case cudaErrorExternalDevice:
        return pt_fail(e, PT_FAILED,
                       "the GPU was lost while %s (%s): look for Xid errors in the kernel's log (dmesg), and continue from the last "
                       "checkpoint with `resume`",
                       doing, cudaGetErrorString(error));
    case cudaErrorNoKernelImageForDevice:
        return pt_fail(e, PT_FAILED, "this build has no code for this GPU (while %s): build with its architecture in PT_CUDA_ARCHITECTURES",
                       doing);
    default: return pt_fail(e, PT_FAILED, "CUDA reports \"%s\" while %s", cudaGetErrorString(error), doing);
    }
}
