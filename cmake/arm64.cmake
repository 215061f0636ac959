# A toolchain file: builds for ARM64 on another machine, with Debian's cross-compiler, and runs the tests under QEMU (docs/arm64.md).
#
#     PT_ARM64_ROOT    where the libraries for ARM64 are, below usr/: `tools/arm64 root` makes such a folder; "/": they are installed
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER NOTFOUND) # only for tests of the CUDA kernels, which need no second processor
set(PT_ARM64_ROOT "${CMAKE_CURRENT_LIST_DIR}/../build-arm64-root" CACHE PATH "where the libraries for ARM64 are")
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES PT_ARM64_ROOT)
get_filename_component(PT_ARM64_ROOT "${PT_ARM64_ROOT}" REALPATH)

set(CMAKE_FIND_ROOT_PATH "${PT_ARM64_ROOT}")
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64-static)
set(ENV{PKG_CONFIG_LIBDIR} "${PT_ARM64_ROOT}/usr/lib/aarch64-linux-gnu/pkgconfig:${PT_ARM64_ROOT}/usr/share/pkgconfig")
if(NOT PT_ARM64_ROOT STREQUAL "/")
  set(ENV{PKG_CONFIG_SYSROOT_DIR} "${PT_ARM64_ROOT}")
  set(CMAKE_C_FLAGS_INIT "-isystem ${PT_ARM64_ROOT}/usr/include")
  set(CMAKE_EXE_LINKER_FLAGS_INIT "-Wl,-rpath-link,${PT_ARM64_ROOT}/usr/lib/aarch64-linux-gnu:${PT_ARM64_ROOT}/lib/aarch64-linux-gnu")
  set(CMAKE_SHARED_LINKER_FLAGS_INIT "${CMAKE_EXE_LINKER_FLAGS_INIT}")
  set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64-static -L "${PT_ARM64_ROOT}")
endif()
