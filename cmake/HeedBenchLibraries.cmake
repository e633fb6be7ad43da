# What heed-bench leans on: a command line, JSON, and xsimd for an independent peer. Installed ones
# are used (Debian: libcli11-dev nlohmann-json3-dev), others downloaded.
include(HeedCli11)
include(HeedDownload)

find_package(nlohmann_json 3.11 QUIET)
if(NOT nlohmann_json_FOUND)
  heed_download(json nlohmann/json/releases/download/v3.11.3/json.tar.xz
    d6c65aca6b1ed68e7a182f4757257b107ae403032760ed6ef121c9d55e81757d)
endif()

# Headers only. HEED_XSIMD_INCLUDE names them where they are not on the compiler's own path.
find_path(HEED_XSIMD_INCLUDE xsimd/xsimd.hpp)
if(NOT HEED_XSIMD_INCLUDE)
  heed_download(xsimd xtensor-stack/xsimd/archive/refs/tags/13.2.0.tar.gz
    edd8cd3d548c185adc70321c53c36df41abe64c1fe2c67bc6d93c3ecda82447a SOURCE_SUBDIR only-sources)
  set(HEED_XSIMD_INCLUDE "${xsimd_SOURCE_DIR}/include")
endif()
add_library(heed_xsimd INTERFACE)
target_include_directories(heed_xsimd SYSTEM INTERFACE "${HEED_XSIMD_INCLUDE}")
target_compile_definitions(heed_xsimd INTERFACE HEED_XSIMD)
