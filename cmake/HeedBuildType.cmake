# Optimised unless told otherwise. A project around heed chooses for itself, and is told what it means
# to choose nothing.
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  if(PROJECT_IS_TOP_LEVEL)
    set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
  elseif(NOT CMAKE_CXX_FLAGS MATCHES "(^| )[-/]O[1-3fs]")
    message(WARNING "heed is compiled without optimisation: set CMAKE_BUILD_TYPE, such as Release")
  endif()
endif()
