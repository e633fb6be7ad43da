# Highway: FETCHCONTENT_SOURCE_DIR_HIGHWAY when given, else an installed hwy (native builds only),
# else the sources that scripts/setup.mjs unpacked, else a download.
#
# From sources, its few files that heed needs are compiled into heed itself, so that a static libheed
# is complete and an installed one asks nothing of its consumer.
include(FetchContent)

if(NOT EMSCRIPTEN AND NOT FETCHCONTENT_SOURCE_DIR_HIGHWAY)
  find_package(hwy 1.2 QUIET)
endif()

if(NOT hwy_FOUND AND NOT FETCHCONTENT_SOURCE_DIR_HIGHWAY)
  # The folder of scripts/toolchain.mjs.
  set(heed_caches "$ENV{XDG_CACHE_HOME}")
  if(NOT "$ENV{HEED_TOOLCHAIN}" STREQUAL "")
    get_filename_component(heed_tools "$ENV{HEED_TOOLCHAIN}" ABSOLUTE BASE_DIR "${PROJECT_SOURCE_DIR}")
  elseif(IS_ABSOLUTE "${heed_caches}")
    set(heed_tools "${heed_caches}/heed/toolchain")
  else()
    set(heed_tools "$ENV{HOME}/.cache/heed/toolchain")
  endif()
  if(EXISTS "${heed_tools}/highway-1.2.0/hwy/highway.h")
    set(FETCHCONTENT_SOURCE_DIR_HIGHWAY "${heed_tools}/highway-1.2.0")
  endif()
endif()

if(NOT hwy_FOUND)
  if(NOT FETCHCONTENT_SOURCE_DIR_HIGHWAY AND NOT EXISTS "${FETCHCONTENT_BASE_DIR}/highway-src")
    message(STATUS "Highway 1.2 not found: downloading it; `npm run setup` or "
                   "-DFETCHCONTENT_SOURCE_DIR_HIGHWAY=/path/to/highway avoids that")
  endif()
  # No CMakeLists.txt at SOURCE_SUBDIR: only the files are wanted, not Highway's own targets.
  FetchContent_Declare(highway
    URL https://github.com/google/highway/archive/refs/tags/1.2.0.tar.gz
    URL_HASH SHA256=7e0be78b8318e8bdbf6fa545d2ecb4c90f947df03f7aadc42c1967f019e63343
    DOWNLOAD_EXTRACT_TIMESTAMP ON
    SOURCE_SUBDIR only-sources)
  FetchContent_MakeAvailable(highway)
endif()

# Headers for code that includes Highway.
function(heed_use_highway target)
  if(hwy_FOUND)
    target_link_libraries(${target} PRIVATE hwy::hwy)
  else()
    target_include_directories(${target} SYSTEM PRIVATE "${highway_SOURCE_DIR}")
  endif()
endfunction()

# An object library `name` of Highway's sources, compiled with the further options ARGN (the
# variants of the WASM build differ in them). Not for an installed hwy.
function(heed_add_highway_objects name)
  set(files abort.cc aligned_allocator.cc per_target.cc print.cc targets.cc)
  list(TRANSFORM files PREPEND "${highway_SOURCE_DIR}/hwy/")
  add_library(${name} OBJECT ${files})
  heed_use_highway(${name})
  target_link_libraries(${name} PRIVATE heed_simd_targets)
  target_compile_options(${name} PRIVATE ${ARGN})
  if(NOT MSVC)
    # Its messages name its files: not where they lay on the machine that built them.
    target_compile_options(${name} PRIVATE "-ffile-prefix-map=${highway_SOURCE_DIR}=highway")
  endif()
  set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE ON)
endfunction()
