# Declares a download that takes the place of a missing package.
include(FetchContent)

macro(heed_download name url hash)
  message(STATUS "${name} not found: downloading it (-DHEED_BUILD_BENCH=OFF does without)")
  FetchContent_Declare(${name} SYSTEM DOWNLOAD_EXTRACT_TIMESTAMP ON
    URL "https://github.com/${url}" URL_HASH SHA256=${hash} ${ARGN})
  FetchContent_MakeAvailable(${name})
endmacro()
