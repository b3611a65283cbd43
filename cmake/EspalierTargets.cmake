# Programs, tests and benchmarks of every room.
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

  get_property(rooms GLOBAL PROPERTY ESPALIER_ROOMS)
  foreach(room ${rooms})
    get_property(tests GLOBAL PROPERTY ESPALIER_TESTS_${room})
    set(libs espalier_${room})
    if(NOT room MATCHES "^(runtime|io)$")
      list(APPEND libs espalier_test_support)
    endif()
    foreach(test ${tests})
      espalier_test(${test} LIBS ${libs})
    endforeach()
  endforeach()
  file(GLOB_RECURSE cross_tests CONFIGURE_DEPENDS
       "${CMAKE_SOURCE_DIR}/tests/*_test.cc"
       "${CMAKE_SOURCE_DIR}/tools/*_test.cc")
  foreach(test ${cross_tests})
    espalier_test(${test} LIBS espalier_train espalier_test_support)
  endforeach()
endif()

if(ESPALIER_BENCHES)
  find_package(benchmark QUIET)
  if(benchmark_FOUND AND EXISTS "${CMAKE_SOURCE_DIR}/tests/bench/bench_main.cc")
    add_custom_target(benches)
    add_library(espalier_bench_support STATIC
      "${CMAKE_SOURCE_DIR}/tests/bench/ceilings.cc"
      "${CMAKE_SOURCE_DIR}/tests/bench/bench_main.cc")
    espalier_include_root(espalier_bench_support tests)
    target_link_libraries(espalier_bench_support PUBLIC espalier_runtime
      benchmark::benchmark PRIVATE espalier_flags)
    get_property(rooms GLOBAL PROPERTY ESPALIER_ROOMS)
    foreach(room ${rooms})
      get_property(benches GLOBAL PROPERTY ESPALIER_BENCHES_${room})
      foreach(bench ${benches})
        espalier_bench(${bench} LIBS espalier_${room} espalier_bench_support)
      endforeach()
    endforeach()
  else()
    message(STATUS "Google Benchmark not found: no benchmarks")
  endif()
endif()
