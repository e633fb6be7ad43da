# Private to heed's own targets: never imposed on a consumer or on third-party sources.
add_library(heed_warnings INTERFACE)
if(MSVC)
  target_compile_options(heed_warnings INTERFACE /W4 $<$<BOOL:${HEED_WERROR}>:/WX>)
else()
  target_compile_options(heed_warnings INTERFACE
    -Wall -Wextra -Wpedantic $<$<BOOL:${HEED_WERROR}>:-Werror>)
endif()
