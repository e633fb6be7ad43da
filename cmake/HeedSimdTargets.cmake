# Which SIMD targets Highway compiles. Those left out are superseded by a neighbour (AVX3_DL adds
# nothing to float kernels that AVX3 lacks, SSSE3 nothing to SSE2, NEON only AES to
# NEON_WITHOUT_AES), and each one costs a compilation of every kernel. The scalable SVE and RVV are
# out because register tiles are arrays of vectors, which need a size known to the compiler.
#
# AVX3_SPR, which processors of Intel need for products of bfloat16, is for the sources that have
# some (heed_compile_for_spr): the others would only take longer to compile. Where the compiler's
# flags ask for such a processor, Highway compiles for nothing less: then it is for all of them.
include(CheckCXXSourceCompiles)
add_library(heed_simd_targets INTERFACE)

set(disabled HWY_SSSE3 HWY_AVX3_DL
             HWY_SVE HWY_SVE2 HWY_SVE_256 HWY_SVE2_128 HWY_NEON HWY_NEON_BF16 HWY_RVV)
if(HEED_ALL_TARGETS)
  # Without SSE2 the emulated target becomes the baseline, which every machine can run.
  list(APPEND disabled HWY_SSE2)
  target_compile_definitions(heed_simd_targets INTERFACE HWY_COMPILE_ALL_ATTAINABLE)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 14)
    # Highway would fall back to one-lane vectors because of GCC bug 106322, a wrong vectorised
    # multiply-high of integers; heed has none.
    target_compile_definitions(heed_simd_targets INTERFACE HWY_BROKEN_EMU128=0)
  endif()
endif()

if(HEED_FEW_TARGETS)
  list(APPEND disabled HWY_AVX3 HWY_AVX3_ZEN4 HWY_SSE4)
endif()

check_cxx_source_compiles("
#if !defined(__AVX512FP16__) || !defined(__AVX512BF16__)
#error not Sapphire Rapids
#endif
int main() {}" HEED_BASELINE_IS_SPR)

string(REPLACE ";" "|" heed_disabled_for_spr "${disabled}")
if(NOT HEED_BASELINE_IS_SPR)
  list(APPEND disabled HWY_AVX3_SPR)
endif()
string(REPLACE ";" "|" disabled "${disabled}")
target_compile_definitions(heed_simd_targets INTERFACE "HWY_DISABLED_TARGETS=(${disabled})")

# Compiles these sources of the current folder for AVX3_SPR, too.
function(heed_compile_for_spr)
  if(NOT HEED_FEW_TARGETS)
    set_property(SOURCE ${ARGN} APPEND PROPERTY COMPILE_OPTIONS
      -UHWY_DISABLED_TARGETS "-DHWY_DISABLED_TARGETS=(${heed_disabled_for_spr})")
  endif()
endfunction()
