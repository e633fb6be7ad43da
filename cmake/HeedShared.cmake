# Shared libraries show the namespace heed and nothing else: not Highway, not the standard library's
# templates, which would otherwise bind to those of other libraries in the same program.
include(CheckLinkerFlag)
set(HEED_SYMBOL_MAP "${CMAKE_CURRENT_LIST_DIR}/heed.map")

# A static library has no linker that could hide anything.
function(heed_hide_symbols library)
  get_target_property(type ${library} TYPE)
  if(NOT type STREQUAL "SHARED_LIBRARY")
    return()
  endif()
  check_linker_flag(CXX "-Wl,--version-script=${HEED_SYMBOL_MAP}" HEED_HAS_VERSION_SCRIPT)
  if(HEED_HAS_VERSION_SCRIPT)
    target_link_options(${library} PRIVATE "-Wl,--version-script=${HEED_SYMBOL_MAP}")
    set_target_properties(${library} PROPERTIES LINK_DEPENDS "${HEED_SYMBOL_MAP}")
  endif()
endfunction()

# The objects of a static library once more, as a shared one: both kinds for one compilation.
function(heed_add_shared_copy name library)
  add_library(${name} SHARED $<TARGET_OBJECTS:${library}>)
  if(TARGET heed_highway)
    target_sources(${name} PRIVATE $<TARGET_OBJECTS:heed_highway>)
  endif()
  add_library(heed::shared ALIAS ${name})
  target_include_directories(${name} INTERFACE
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/cpp/include>
    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_link_libraries(${name} PRIVATE Threads::Threads)
  if(hwy_FOUND)
    target_link_libraries(${name} PRIVATE hwy::hwy)
  endif()
  target_compile_features(${name} PUBLIC cxx_std_20)
  set_target_properties(${name} PROPERTIES
    OUTPUT_NAME ${library}
    EXPORT_NAME shared
    VERSION ${PROJECT_VERSION}
    SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
  heed_hide_symbols(${name})
endfunction()
