# Fuzz targets, tests/fuzz/<name>_fuzz.cc. With ESPALIER_FUZZ each is a
# libFuzzer program, <build>/fuzz/<name>. Where tests are built, the same target
# runs on its stored inputs, tests/fuzz/corpus/<name>, as test
# tests.fuzz.<name>.
file(GLOB fuzz_sources CONFIGURE_DEPENDS
     "${CMAKE_SOURCE_DIR}/tests/fuzz/*_fuzz.cc")

# Targets read untrusted bytes through io; a family's config.json is read in
# model, whose files for it need nothing else of that room.
file(GLOB config_sources CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/model/*config.cc"
     "${CMAKE_SOURCE_DIR}/model/*/config.cc")
add_library(espalier_fuzz_support STATIC EXCLUDE_FROM_ALL
  "${CMAKE_SOURCE_DIR}/tests/fuzz/fuzz_input.cc"
  "${CMAKE_SOURCE_DIR}/tests/fuzz/tokenizer_check.cc"
  ${config_sources})
espalier_include_root(espalier_fuzz_support tests)
foreach(root ${ESPALIER_ROOTS_model})
  target_include_directories(espalier_fuzz_support PUBLIC
    "$<BUILD_INTERFACE:${root}>")
endforeach()
target_link_libraries(espalier_fuzz_support PUBLIC espalier_io
  PRIVATE espalier_flags)

if(ESPALIER_FUZZ)
  add_custom_target(fuzzers)
  foreach(source ${fuzz_sources})
    espalier_program_name(name ${source} fuzz)
    string(REPLACE "tests.fuzz." "" name "${name}")
    add_executable(${name}_fuzz EXCLUDE_FROM_ALL ${source})
    target_link_libraries(${name}_fuzz PRIVATE espalier_fuzz_support
      espalier_flags)
    target_link_options(${name}_fuzz PRIVATE -fsanitize=fuzzer)
    set_target_properties(${name}_fuzz PROPERTIES OUTPUT_NAME ${name}
      RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/fuzz")
    add_dependencies(fuzzers ${name}_fuzz)
  endforeach()
elseif(ESPALIER_TESTS)
  foreach(source ${fuzz_sources})
    espalier_program_name(name ${source} fuzz)
    add_executable(${name}_fuzz ${source}
      "${CMAKE_SOURCE_DIR}/tests/fuzz/replay_main.cc")
    target_link_libraries(${name}_fuzz PRIVATE espalier_fuzz_support
      espalier_flags)
    set_target_properties(${name}_fuzz PROPERTIES
      RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/tests")
    if(TARGET tests_tests)
      add_dependencies(tests_tests ${name}_fuzz)
    endif()
    string(REPLACE "tests.fuzz." "" corpus "${name}")
    add_test(NAME ${name} COMMAND ${name}_fuzz
      "${CMAKE_SOURCE_DIR}/tests/fuzz/corpus/${corpus}")
    set_tests_properties(${name} PROPERTIES LABELS unit TIMEOUT 600)
  endforeach()
endif()
