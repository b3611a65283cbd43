# The shared library, the command, tests and benchmarks.
get_property(rooms GLOBAL PROPERTY ESPALIER_ROOMS)

add_library(espalier SHARED)
add_library(espalier::espalier ALIAS espalier)
set(public_headers "")
set(public_roots "")
foreach(room ${rooms})
  target_sources(espalier PRIVATE $<TARGET_OBJECTS:espalier_${room}>)
  get_target_property(room_libs espalier_${room} LINK_LIBRARIES)
  list(FILTER room_libs EXCLUDE REGEX "^espalier_")
  target_link_libraries(espalier PRIVATE ${room_libs})
  get_property(headers GLOBAL PROPERTY ESPALIER_PUBLIC_${room})
  set(root "${CMAKE_BINARY_DIR}/alias/${room}")
  list(APPEND public_roots "${root}")
  foreach(header ${headers})
    list(APPEND public_headers "${root}/espalier/${room}/${header}")
  endforeach()
endforeach()
target_link_libraries(espalier PRIVATE espalier_flags
  PUBLIC absl::status absl::statusor)
set_target_properties(espalier PROPERTIES VERSION ${PROJECT_VERSION}
  SOVERSION ${PROJECT_VERSION_MAJOR})
target_sources(espalier PUBLIC FILE_SET HEADERS BASE_DIRS ${public_roots}
  FILES ${public_headers})
target_compile_features(espalier PUBLIC cxx_std_20)

include(CMakePackageConfigHelpers)
set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/espalier")
install(TARGETS espalier EXPORT espalier
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
  FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT espalier FILE espalier-targets.cmake NAMESPACE espalier::
  DESTINATION ${package_dir})
configure_package_config_file(cmake/espalier-config.cmake.in
  "${CMAKE_BINARY_DIR}/espalier-config.cmake" INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file("${CMAKE_BINARY_DIR}/espalier-config-version.cmake"
  COMPATIBILITY SameMinorVersion)
install(FILES "${CMAKE_BINARY_DIR}/espalier-config.cmake"
  "${CMAKE_BINARY_DIR}/espalier-config-version.cmake" DESTINATION ${package_dir})
# From where the file lies, so that it is right below any --prefix.
file(RELATIVE_PATH pc_prefix
  "${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_LIBDIR}/pkgconfig"
  "${CMAKE_INSTALL_PREFIX}")
string(REGEX REPLACE "/$" "" pc_prefix "\${pcfiledir}/${pc_prefix}")
configure_file(cmake/espalier.pc.in "${CMAKE_BINARY_DIR}/espalier.pc" @ONLY)
install(FILES "${CMAKE_BINARY_DIR}/espalier.pc"
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

file(GLOB tool_sources CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/tools/*.cc")
list(FILTER tool_sources EXCLUDE REGEX "_(test|bench)\\.cc$")
if(tool_sources)
  add_executable(espalier_cli ${tool_sources})
  set_target_properties(espalier_cli PROPERTIES OUTPUT_NAME espalier
    RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/bin")
  espalier_include_root(espalier_cli tools)
  target_link_libraries(espalier_cli PRIVATE espalier_train espalier_flags
    CLI11::CLI11)
  install(TARGETS espalier_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()

if(ESPALIER_TESTS)
  enable_testing()
  find_package(GTest REQUIRED)
  file(GLOB support_sources CONFIGURE_DEPENDS
       "${CMAKE_SOURCE_DIR}/tests/support/*.cc")
  list(FILTER support_sources EXCLUDE REGEX "_(test|bench)\\.cc$")
  if(NOT support_sources)
    set(support_sources "${CMAKE_SOURCE_DIR}/cmake/empty_room.cc")
  endif()
  add_library(espalier_test_support STATIC ${support_sources})
  espalier_include_root(espalier_test_support tests)
  target_link_libraries(espalier_test_support PUBLIC espalier_autograd
    GTest::gtest GTest::gmock PRIVATE espalier_flags)

  add_library(espalier_test_checkpoint STATIC EXCLUDE_FROM_ALL
    "${CMAKE_SOURCE_DIR}/tests/checkpoint/sparse_checkpoint.cc")
  espalier_include_root(espalier_test_checkpoint tests)
  target_link_libraries(espalier_test_checkpoint PUBLIC espalier_io
    PRIVATE espalier_flags)
  add_executable(make_sparse_checkpoint EXCLUDE_FROM_ALL
    "${CMAKE_SOURCE_DIR}/tests/checkpoint/make_sparse_checkpoint.cc")
  target_link_libraries(make_sparse_checkpoint PRIVATE espalier_test_checkpoint
    espalier_flags)
  set_target_properties(make_sparse_checkpoint PROPERTIES
    RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/tests")

  # tests/cli runs the command itself.
  add_library(espalier_test_cli STATIC EXCLUDE_FROM_ALL
    "${CMAKE_SOURCE_DIR}/tests/cli/command.cc")
  espalier_include_root(espalier_test_cli tests)
  target_link_libraries(espalier_test_cli PUBLIC espalier_test_checkpoint
    GTest::gtest PRIVATE espalier_flags)
  target_compile_definitions(espalier_test_cli PRIVATE
    ESPALIER_BINARY="$<TARGET_FILE:espalier_cli>")
  add_dependencies(espalier_test_cli espalier_cli)

  foreach(room ${rooms})
    get_property(tests GLOBAL PROPERTY ESPALIER_TESTS_${room})
    set(libs espalier_${room})
    if(NOT room MATCHES "^(runtime|io)$")
      list(APPEND libs espalier_test_support)
    elseif(room STREQUAL io)
      list(APPEND libs espalier_test_checkpoint)
    endif()
    foreach(test ${tests})
      espalier_test(${test} LIBS ${libs})
    endforeach()
  endforeach()
  file(GLOB_RECURSE cross_tests CONFIGURE_DEPENDS
       "${CMAKE_SOURCE_DIR}/tests/*_test.cc"
       "${CMAKE_SOURCE_DIR}/tools/*_test.cc")
  if(CMAKE_CROSSCOMPILING)
    list(FILTER cross_tests EXCLUDE REGEX "/tests/cli/")
  endif()
  foreach(test ${cross_tests})
    set(libs espalier_train espalier_test_support)
    if(test MATCHES "/tests/cli/")
      set(libs espalier_test_cli)
    endif()
    if(test MATCHES "/tests/checkpoint/")
      list(APPEND libs espalier_test_checkpoint)
    endif()
    espalier_test(${test} LIBS ${libs})
  endforeach()

  # An upward include must be "No such file"; the same file compiles where the
  # room is below.
  foreach(room runtime ops)
    set(flags "-std=c++20" "-fsyntax-only")
    foreach(root ${ESPALIER_ROOTS_${room}})
      list(APPEND flags "-I${root}")
    endforeach()
    add_test(NAME tests.layering.${room} COMMAND ${CMAKE_CXX_COMPILER} ${flags}
      "${CMAKE_SOURCE_DIR}/tests/layering/uses_ops.cc")
    set_tests_properties(tests.layering.${room} PROPERTIES LABELS unit)
  endforeach()
  set_tests_properties(tests.layering.runtime PROPERTIES
    PASS_REGULAR_EXPRESSION
    "espalier/ops/rms_norm/rms_norm.h[:'].*(No such file or directory|file not found)")

  add_test(NAME tests.layering.rules COMMAND
    "${CMAKE_SOURCE_DIR}/tests/layering/rules.sh" "${CMAKE_SOURCE_DIR}")
  set_tests_properties(tests.layering.rules PROPERTIES LABELS unit)

  if(NOT ESPALIER_SANITIZE AND NOT CMAKE_CROSSCOMPILING)
    add_test(NAME tests.consumer COMMAND
      "${CMAKE_SOURCE_DIR}/tests/consumer/run.sh" "${CMAKE_SOURCE_DIR}"
      "${CMAKE_BINARY_DIR}" "${CMAKE_CXX_COMPILER}")
    set_tests_properties(tests.consumer PROPERTIES LABELS slow TIMEOUT 600)
  endif()
endif()

if(ESPALIER_BENCHES)
  find_package(benchmark QUIET)
  if(benchmark_FOUND AND EXISTS "${CMAKE_SOURCE_DIR}/tests/bench/bench_main.cc")
    add_custom_target(benches)
    file(GLOB bench_sources CONFIGURE_DEPENDS
         "${CMAKE_SOURCE_DIR}/tests/bench/*.cc")
    list(FILTER bench_sources EXCLUDE REGEX "_(test|bench)\\.cc$")
    espalier_isa_sources(bench_sources)
    add_library(espalier_bench_support STATIC ${bench_sources})
    espalier_include_root(espalier_bench_support tests)
    target_link_libraries(espalier_bench_support PUBLIC espalier_runtime
      benchmark::benchmark PRIVATE espalier_flags)
    foreach(room ${rooms})
      get_property(benches GLOBAL PROPERTY ESPALIER_BENCHES_${room})
      foreach(bench ${benches})
        espalier_bench(${bench} LIBS espalier_${room} espalier_bench_support)
      endforeach()
    endforeach()
    file(GLOB_RECURSE cross_benches CONFIGURE_DEPENDS
         "${CMAKE_SOURCE_DIR}/tests/*_bench.cc")
    foreach(bench ${cross_benches})
      espalier_bench(${bench} LIBS espalier_train espalier_bench_support)
    endforeach()
    if(ESPALIER_PEERS)
      find_package(dnnl REQUIRED)
      add_executable(peers.onednn_gemm EXCLUDE_FROM_ALL
        "${CMAKE_SOURCE_DIR}/tests/peers/onednn_gemm.cc")
      target_link_libraries(peers.onednn_gemm PRIVATE espalier_ops
        espalier_bench_support espalier_flags DNNL::dnnl)
      set_target_properties(peers.onednn_gemm PROPERTIES
        RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/benches")
    endif()
  else()
    message(STATUS "Google Benchmark not found: no benchmarks")
  endif()
endif()
