# The CUDA backend: a module of its own, loaded at run time, so that one program serves machines with and without a GPU.
# Built where there is a CUDA compiler; everything else builds the same without.
#
#     PT_CUDA                  AUTO: where nvcc is found; ON: or fail; OFF
#     PT_CUDA_ARCHITECTURES    compute capabilities; "native" for this machine's GPU only, which compiles in a fraction of the time
set(PT_CUDA AUTO CACHE STRING "the CUDA module: AUTO (where nvcc is found), ON or OFF")
set(PT_CUDA_ARCHITECTURES "80;86;89;90;100;120" CACHE STRING "compute capabilities that the CUDA module has code for, or native")
if(NOT PT_CUDA)
  return()
endif()

find_program(PT_NVCC nvcc HINTS ENV CUDACXX ENV CUDA_HOME ENV CUDA_PATH PATHS /usr/local/cuda PATH_SUFFIXES bin)
if(NOT PT_NVCC)
  if(NOT PT_CUDA STREQUAL "AUTO")
    message(FATAL_ERROR "PT_CUDA is on and there is no nvcc: install the CUDA toolkit (12 or later), or give -DPT_CUDA=OFF")
  endif()
  message(STATUS "nvcc not found: no CUDA module")
  return()
endif()

# Machine code for each architecture that this nvcc knows, and PTX of the newest for what comes later.
set(PT_CUDA_CODE native)
if(NOT PT_CUDA_ARCHITECTURES STREQUAL "native")
  execute_process(COMMAND ${PT_NVCC} --list-gpu-arch OUTPUT_VARIABLE known OUTPUT_STRIP_TRAILING_WHITESPACE)
  set(PT_CUDA_CODE)
  foreach(arch ${PT_CUDA_ARCHITECTURES})
    if(known MATCHES "compute_${arch}(\n|$)")
      list(APPEND PT_CUDA_CODE ${arch}-real)
      set(newest ${arch})
    endif()
  endforeach()
  if(NOT newest)
    message(FATAL_ERROR "${PT_NVCC} knows none of the architectures ${PT_CUDA_ARCHITECTURES}")
  endif()
  list(APPEND PT_CUDA_CODE ${newest}-virtual)
endif()

set(CMAKE_CUDA_COMPILER ${PT_NVCC})
set(CMAKE_CUDA_ARCHITECTURES ${PT_CUDA_CODE})
set(CMAKE_CUDA_STANDARD 17)
set(CMAKE_CUDA_FLAGS_RELEASE "-O3")
enable_language(CUDA)
find_package(CUDAToolkit REQUIRED)
if(NOT TARGET CUDA::cublasLt)
  message(STATUS "cuBLASLt not found beside nvcc: no CUDA module")
  return()
endif()

file(GLOB PT_CUDA_SOURCES CONFIGURE_DEPENDS src/device/cuda/*.c src/device/cuda/*.cu)
add_library(protrain_cuda MODULE ${PT_CUDA_SOURCES} src/base/error.c src/device/ring.c)
target_include_directories(protrain_cuda PRIVATE src include)
target_compile_definitions(protrain_cuda PRIVATE _GNU_SOURCE PT_VERSION="${PROJECT_VERSION}")
target_compile_options(protrain_cuda PRIVATE
  "$<$<COMPILE_LANGUAGE:CUDA>:--fmad=false;-Xcompiler=-Wall,-Wextra,-Wno-unused-parameter,-fvisibility=hidden>")
target_link_libraries(protrain_cuda PRIVATE CUDA::cudart_static CUDA::cublasLt Threads::Threads)
set_target_properties(protrain_cuda PROPERTIES INSTALL_RPATH_USE_LINK_PATH ON)
install(TARGETS protrain_cuda LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
message(STATUS "CUDA module: ${PT_NVCC}, ${PT_CUDA_CODE}")
