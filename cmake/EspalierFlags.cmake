# Compiler flags of every target of the project, carried by one interface
# library that is never installed.
set(ESPALIER_X86 OFF)
set(ESPALIER_ARM64 OFF)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64|amd64")
  set(ESPALIER_X86 ON)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
  set(ESPALIER_ARM64 ON)
endif()

find_program(ESPALIER_CCACHE ccache)
if(ESPALIER_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER "${ESPALIER_CCACHE}")
endif()

add_library(espalier_flags INTERFACE)
# Fused multiply-add is written where it is meant: a compiler that contracts
# a*b+c at will gives other bits on other targets.
target_compile_options(espalier_flags INTERFACE
  -Wall -Wextra -Werror -ffp-contract=off -fno-math-errno
  -DHWY_DISABLE_PCLMUL_AES)
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  # Which mutex guards what (runtime/mutex.h) is checked, not only said.
  target_compile_options(espalier_flags INTERFACE -Wthread-safety)
endif()
if(ESPALIER_X86)
  # The floor is AVX2 (x86-64-v3); higher sets are chosen at run time.
  target_compile_options(espalier_flags INTERFACE -march=x86-64-v3)
  target_compile_definitions(espalier_flags INTERFACE ESPALIER_X86=1)
  if(ESPALIER_AVX512)
    target_compile_definitions(espalier_flags INTERFACE ESPALIER_AVX512=1)
  endif()
elseif(ESPALIER_ARM64)
  target_compile_definitions(espalier_flags INTERFACE ESPALIER_ARM64=1)
endif()

if(CMAKE_CROSSCOMPILING)
  # The tests run under an emulator; exhaustive ones try fewer points.
  target_compile_definitions(espalier_flags INTERFACE ESPALIER_EMULATED=1)
endif()

find_program(ESPALIER_MOLD mold)
find_program(ESPALIER_LLD ld.lld)
if(NOT CMAKE_CROSSCOMPILING)
  if(ESPALIER_MOLD)
    target_link_options(espalier_flags INTERFACE -fuse-ld=mold)
  elseif(ESPALIER_LLD)
    target_link_options(espalier_flags INTERFACE -fuse-ld=lld)
  endif()
endif()

if(ESPALIER_SANITIZE)
  target_compile_options(espalier_flags INTERFACE
    -fsanitize=${ESPALIER_SANITIZE} -fno-omit-frame-pointer
    -fno-sanitize-recover=all)
  target_link_options(espalier_flags INTERFACE
    -fsanitize=${ESPALIER_SANITIZE})
  if(ESPALIER_SANITIZE MATCHES "address")
    target_compile_definitions(espalier_flags INTERFACE ESPALIER_ASAN=1)
  elseif(ESPALIER_SANITIZE MATCHES "thread")
    target_compile_definitions(espalier_flags INTERFACE ESPALIER_TSAN=1)
  endif()
endif()

# Unrolled tiles of thousands of accesses: clang takes 15 s, not 92, for one
# where the address check is a call and pointers are checked by it alone.
set(ESPALIER_TILE_FLAGS)
if(ESPALIER_SANITIZE MATCHES "address" AND
   CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  set(ESPALIER_TILE_FLAGS -fno-sanitize=null,alignment,pointer-overflow
    -mllvm -asan-instrumentation-with-call-threshold=100)
endif()

if(ESPALIER_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "ESPALIER_FUZZ needs clang: cmake --preset fuzz")
  endif()
  target_compile_options(espalier_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()
