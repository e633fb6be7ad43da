# Private to heed's own targets: never imposed on a consumer or on third-party sources.
add_library(heed_warnings INTERFACE)
if(MSVC)
  target_compile_options(heed_warnings INTERFACE /W4 $<$<BOOL:${HEED_WERROR}>:/WX>)
else()
  target_compile_options(heed_warnings INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wpedantic;$<$<BOOL:${HEED_WERROR}>:-Werror>>)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # These come from the optimiser and err on the standard library's own code (GCC 14 on
  # vector = {x}): warnings, but no reason to stop.
  target_compile_options(heed_warnings INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-Wno-error=array-bounds;-Wno-error=restrict>
    $<$<COMPILE_LANGUAGE:CXX>:-Wno-error=stringop-overflow;-Wno-error=maybe-uninitialized>)
endif()
