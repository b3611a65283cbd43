# A room is one static library. Its headers are reached as
# "espalier/<room>/<file>.h" through an include root of its own, and a target
# sees only the roots of the rooms it depends on: an upward include is
# "No such file".
#
# File roles come from suffixes:
#   *_test.cc    one test executable each, registered with ctest
#   *_bench.cc   one benchmark executable each
#   *_avx512.cc, *_avx512bf16.cc, *_armbf16.cc   own instruction-set flags
#   *_cuda.cu    left out without CUDA

set(ESPALIER_AVX512_FLAGS -mavx512f -mavx512bw -mavx512vl -mavx512dq
    -mavx512cd -mavx512vbmi -mprefer-vector-width=512
    # GCC 12 suspects its own intrinsics headers (GCC bug 105593).
    $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>
    $<$<CXX_COMPILER_ID:GNU>:-Wno-uninitialized>)
set(ESPALIER_AVX512BF16_FLAGS ${ESPALIER_AVX512_FLAGS} -mavx512bf16)
set(ESPALIER_ARMBF16_FLAGS -march=armv8.2-a+bf16+dotprod)

function(espalier_include_root target room)
  set(root "${CMAKE_BINARY_DIR}/alias/${room}")
  file(MAKE_DIRECTORY "${root}/espalier")
  if(NOT EXISTS "${root}/espalier/${room}")
    file(CREATE_LINK "${CMAKE_SOURCE_DIR}/${room}" "${root}/espalier/${room}"
         SYMBOLIC)
  endif()
  target_include_directories(${target} PUBLIC
    "$<BUILD_INTERFACE:${root}>")
endfunction()

# Leaves out of the list variable what this architecture does not compile, and
# gives the rest its instruction-set flags.
function(espalier_isa_sources list_name)
  set(sources ${${list_name}})
  if(NOT ESPALIER_X86 OR NOT ESPALIER_AVX512)
    list(FILTER sources EXCLUDE REGEX "_avx512(bf16)?\\.cc$")
  endif()
  if(NOT ESPALIER_X86)
    list(FILTER sources EXCLUDE REGEX "_avx2\\.cc$")
  endif()
  if(NOT ESPALIER_ARM64)
    list(FILTER sources EXCLUDE REGEX "_(neon|armbf16)\\.cc$")
  endif()
  foreach(source ${sources})
    set(flags)
    if(source MATCHES "_avx512bf16\\.cc$")
      set(flags ${ESPALIER_AVX512BF16_FLAGS})
    elseif(source MATCHES "_avx512\\.cc$")
      set(flags ${ESPALIER_AVX512_FLAGS})
    elseif(source MATCHES "_armbf16\\.cc$")
      set(flags ${ESPALIER_ARMBF16_FLAGS})
    endif()
    if(source MATCHES "_(avx2|avx512|avx512bf16)\\.cc$")
      list(APPEND flags ${ESPALIER_TILE_FLAGS})
    endif()
    set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "${flags}")
  endforeach()
  set(${list_name} ${sources} PARENT_SCOPE)
endfunction()

# espalier_room(<name> [DEPS rooms...] [PUBLIC headers...] [LIBS targets...])
function(espalier_room room)
  cmake_parse_arguments(ARG "" "" "DEPS;PUBLIC;LIBS" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/${room}/*.cc")
  set(tests ${sources})
  list(FILTER tests INCLUDE REGEX "_test\\.cc$")
  set(benches ${sources})
  list(FILTER benches INCLUDE REGEX "_bench\\.cc$")
  list(FILTER sources EXCLUDE REGEX "_(test|bench)\\.cc$")
  espalier_isa_sources(sources)

  set(target espalier_${room})
  if(NOT sources)
    set(sources "${CMAKE_SOURCE_DIR}/cmake/empty_room.cc")
  endif()
  add_library(${target} STATIC ${sources})
  espalier_include_root(${target} ${room})
  foreach(dep ${ARG_DEPS})
    target_link_libraries(${target} PUBLIC espalier_${dep})
  endforeach()
  target_link_libraries(${target} PUBLIC ${ARG_LIBS} PRIVATE espalier_flags)
  set_property(GLOBAL PROPERTY ESPALIER_PUBLIC_${room} ${ARG_PUBLIC})
  set_property(GLOBAL APPEND PROPERTY ESPALIER_ROOMS ${room})
  set(roots "${CMAKE_BINARY_DIR}/alias/${room}")
  foreach(dep ${ARG_DEPS})
    list(APPEND roots ${ESPALIER_ROOTS_${dep}})
  endforeach()
  set(ESPALIER_ROOTS_${room} ${roots} PARENT_SCOPE)
  set_property(GLOBAL PROPERTY ESPALIER_TESTS_${room} ${tests})
  set_property(GLOBAL PROPERTY ESPALIER_BENCHES_${room} ${benches})
endfunction()

function(espalier_program_name out source suffix)
  file(RELATIVE_PATH relative "${CMAKE_SOURCE_DIR}" "${source}")
  string(REGEX REPLACE "_${suffix}\\.cc$" "" name "${relative}")
  string(REPLACE "/" "." name "${name}")
  set(${out} "${name}" PARENT_SCOPE)
endfunction()

# One executable and one ctest entry per test file.
function(espalier_test source)
  cmake_parse_arguments(ARG "" "LABEL" "LIBS" ${ARGN})
  espalier_program_name(name ${source} test)
  set(target ${name}_test)
  add_executable(${target} ${source})
  target_link_libraries(${target} PRIVATE ${ARG_LIBS} espalier_flags
    GTest::gmock GTest::gtest GTest::gtest_main)
  # A test's own text runs once or twice: a third less time to build it.
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
  # Where fixtures are, and the shared data folder beside the repository; tests
  # skip, with the reason, what needs the latter when it is absent.
  target_compile_definitions(${target} PRIVATE
    ESPALIER_SOURCE_DIR="${CMAKE_SOURCE_DIR}"
    ESPALIER_SHARED_DIR="${ESPALIER_SHARED_DIR}")
  set_target_properties(${target} PROPERTIES
    RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/tests")
  # tests_<room> builds the tests of one room.
  string(REGEX REPLACE "\\..*" "" room "${name}")
  if(NOT TARGET tests_${room})
    add_custom_target(tests_${room})
  endif()
  add_dependencies(tests_${room} ${target})
  add_test(NAME ${name} COMMAND ${target})
  if(NOT ARG_LABEL)
    set(ARG_LABEL unit)
  endif()
  set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABEL}" TIMEOUT 1200)
endfunction()

function(espalier_bench source)
  cmake_parse_arguments(ARG "" "" "LIBS" ${ARGN})
  espalier_program_name(name ${source} bench)
  set(target ${name}_bench)
  add_executable(${target} EXCLUDE_FROM_ALL ${source})
  target_link_libraries(${target} PRIVATE ${ARG_LIBS} espalier_flags
    benchmark::benchmark)
  set_target_properties(${target} PROPERTIES
    RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/benches")
  add_dependencies(benches ${target})
endfunction()
