/* cuda_runtime_api.h - as much of CUDA's runtime as the backend uses, in the names and meanings that CUDA documents, for a machine
 * without CUDA: tests/cuda/runtime.c computes on the CPU. Numbers of errors are the stand-in's own. */
#ifndef PT_STANDIN_RUNTIME_H
#define PT_STANDIN_RUNTIME_H

#include <stddef.h>

#define CUDART_VERSION 13000

typedef enum cudaError {
    cudaSuccess, cudaErrorInvalidValue, cudaErrorMemoryAllocation, cudaErrorECCUncorrectable, cudaErrorDevicesUnavailable,
    cudaErrorIllegalAddress, cudaErrorMisalignedAddress, cudaErrorInvalidAddressSpace, cudaErrorAssert,
    cudaErrorInvalidConfiguration /* 9, as in shim.h */,
    cudaErrorLaunchOutOfResources, cudaErrorLaunchFailure, cudaErrorHardwareStackError, cudaErrorUnknown, cudaErrorNvlinkUncorrectable,
    cudaErrorContained, cudaErrorExternalDevice, cudaErrorNoKernelImageForDevice, cudaErrorInsufficientDriver, cudaErrorNoDevice,
    cudaErrorInvalidDeviceFunction, cudaErrorUnsupportedPtxVersion, cudaErrorNotReady, cudaErrorInvalidResourceHandle,
    cudaErrorNotSupported, cudaErrorInitializationError
} cudaError_t;

typedef struct shim_stream *cudaStream_t;
typedef struct standin_event *cudaEvent_t;

enum { cudaStreamNonBlocking = 1, cudaEventBlockingSync = 1, cudaEventDisableTiming = 2 };
enum { cudaHostRegisterPortable = 1, cudaHostRegisterMapped = 2 };
typedef enum cudaMemcpyKind { cudaMemcpyDefault = 4 } cudaMemcpyKind;
typedef enum cudaMemoryType { cudaMemoryTypeUnregistered, cudaMemoryTypeHost, cudaMemoryTypeDevice } cudaMemoryType;
typedef struct cudaPointerAttributes { cudaMemoryType type; void *devicePointer; } cudaPointerAttributes;
typedef struct cudaUUID { char bytes[16]; } cudaUUID_t;
typedef struct cudaDeviceProp { char name[256]; cudaUUID_t uuid; int major, minor, multiProcessorCount, integrated; } cudaDeviceProp;

cudaError_t cudaGetLastError(void);
const char *cudaGetErrorString(cudaError_t error);

cudaError_t cudaGetDeviceCount(int *n);
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int ordinal);
cudaError_t cudaDeviceGetPCIBusId(char *bus, int bytes, int ordinal);
cudaError_t cudaDriverGetVersion(int *version);
cudaError_t cudaRuntimeGetVersion(int *version);
cudaError_t cudaSetDevice(int ordinal);
cudaError_t cudaDeviceSynchronize(void);

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *all_bytes);
cudaError_t cudaMalloc(void **p, size_t bytes);
cudaError_t cudaFree(void *p);
cudaError_t cudaHostRegister(void *p, size_t bytes, unsigned flags);
cudaError_t cudaHostUnregister(void *p);
cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *out, const void *p);
cudaError_t cudaMemset(void *p, int value, size_t bytes);

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t s);
cudaError_t cudaStreamSynchronize(cudaStream_t s);
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned flags);
cudaError_t cudaMemsetAsync(void *p, int value, size_t bytes, cudaStream_t s);
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind, cudaStream_t s);
cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t rows,
                              cudaMemcpyKind kind,
                              cudaStream_t s);

cudaError_t cudaEventCreate(cudaEvent_t *out);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t e);
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s);
cudaError_t cudaEventQuery(cudaEvent_t e);
cudaError_t cudaEventSynchronize(cudaEvent_t e);
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to);

#endif
