find_package(GTest 1.12 QUIET)
if(NOT GTest_FOUND)
  include(FetchContent)
  set(INSTALL_GTEST OFF)
  # Debian's sources (googletest): what another processor's tests are built from.
  if(EXISTS /usr/src/googletest/CMakeLists.txt AND NOT FETCHCONTENT_SOURCE_DIR_GOOGLETEST)
    set(FETCHCONTENT_SOURCE_DIR_GOOGLETEST /usr/src/googletest)
  endif()
  FetchContent_Declare(googletest
    URL https://github.com/google/googletest/archive/refs/tags/v1.15.2.tar.gz
    URL_HASH SHA256=7b42b4d6ed48810c5362c265a17faebe90dc2373c885e5216439d37927f02926
    DOWNLOAD_EXTRACT_TIMESTAMP ON)
  FetchContent_MakeAvailable(googletest)
endif()
if(NOT TARGET GTest::gmock)
  message(FATAL_ERROR "GoogleTest is here without GoogleMock (Debian: libgmock-dev)")
endif()

# Compiles headers once for a program whose files nearly all include them. ccache keeps what is compiled with them if
# CCACHE_SLOPPINESS has pch_defines and time_macros, and g++ says of what it preprocessed that they were there.
function(heed_precompile program)
  target_precompile_headers(${program} PRIVATE ${ARGN})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(${program} PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:-fpch-preprocess>")
  endif()
endfunction()

# The tests of a GoogleTest program, as that many processes which have every n-th test each (those of
# heed_tests on all SIMD targets: tests/cpp/main.cc). Starting thousands of them, one for every test,
# takes longer than most tests do. What ran stands in test_reports/.
function(heed_add_google_tests program processes)
  math(EXPR last "${processes} - 1")
  foreach(shard RANGE ${last})
    set(name "${program}.${shard}")
    add_test(NAME ${name} COMMAND ${program} --gtest_brief=1
      "--gtest_output=json:${PROJECT_BINARY_DIR}/test_reports/${name}.json")
    set_tests_properties(${name} PROPERTIES TIMEOUT 5400
      ENVIRONMENT "GTEST_TOTAL_SHARDS=${processes};GTEST_SHARD_INDEX=${shard}")
  endforeach()
endfunction()
