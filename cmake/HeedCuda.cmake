# The device path. Kernels are compiled for sm_80, with PTX that newer GPUs translate, and for
# sm_90a; HEED_CUDA_ARCHITECTURES chooses others (sm_80 and newer).
include(CheckLanguage)
check_language(CUDA)
if(NOT CMAKE_CUDA_COMPILER)
  message(FATAL_ERROR "HEED_CUDA is on, but no CUDA compiler was found: put nvcc on the PATH or set "
                      "CMAKE_CUDA_COMPILER")
endif()
set(HEED_CUDA_ARCHITECTURES "80;90a-real" CACHE STRING "What HEED_CUDA compiles for")
set(CMAKE_CUDA_ARCHITECTURES 80)  # asked for by enable_language
enable_language(CUDA)
find_package(CUDAToolkit 12.4 REQUIRED)

# CMake 3.25 does not know how nvcc is asked for C++20.
if(NOT DEFINED CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
endif()

# An object library, so that what the library asks of C++ stays out. Flags: constexpr functions of
# dtype.h on the device; a conversion that TensorView of const elements never uses is no warning.
function(heed_add_cuda target)
  file(GLOB sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/cpp/src/cuda/*.cu")
  add_library(heed_cuda OBJECT ${sources})
  set_target_properties(heed_cuda PROPERTIES
    CUDA_STANDARD 20
    CUDA_ARCHITECTURES "${HEED_CUDA_ARCHITECTURES}"
    POSITION_INDEPENDENT_CODE ON)
  target_include_directories(heed_cuda PRIVATE
    "${PROJECT_SOURCE_DIR}/cpp" "${PROJECT_SOURCE_DIR}/cpp/include")
  target_compile_options(heed_cuda PRIVATE --expt-relaxed-constexpr -diag-suppress=554)
  # The Hopper kernel needs what only sm_90a has; without it the base path serves Hopper too.
  if("${HEED_CUDA_ARCHITECTURES}" MATCHES "(^|;)90a")
    target_compile_definitions(heed_cuda PRIVATE HEED_CUDA_HOPPER)
  endif()
  target_sources(${target} PRIVATE $<TARGET_OBJECTS:heed_cuda>)
  target_link_libraries(${target} PRIVATE CUDA::cudart_static)
endfunction()
