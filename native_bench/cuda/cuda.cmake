# heed-bench on a GPU: heed_bench gets the kernels of the benchmark and the peers that are here.
file(GLOB cuda_sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_LIST_DIR}/*.cc")
list(REMOVE_ITEM cuda_sources "${CMAKE_CURRENT_LIST_DIR}/unavailable.cc"
     "${CMAKE_CURRENT_LIST_DIR}/cublas.cc" "${CMAKE_CURRENT_LIST_DIR}/cublaslt.cc"
     "${CMAKE_CURRENT_LIST_DIR}/cudnn.cc")
add_library(heed_bench_kernels OBJECT "${CMAKE_CURRENT_LIST_DIR}/kernels.cu")
set_target_properties(heed_bench_kernels PROPERTIES
  CUDA_STANDARD 20
  CUDA_ARCHITECTURES "${HEED_CUDA_ARCHITECTURES}"
  POSITION_INDEPENDENT_CODE ON)
target_include_directories(heed_bench_kernels PRIVATE
  "${PROJECT_SOURCE_DIR}" "${PROJECT_SOURCE_DIR}/cpp/include")
target_compile_options(heed_bench_kernels PRIVATE --expt-relaxed-constexpr -diag-suppress=554)
target_sources(heed_bench PRIVATE ${cuda_sources} $<TARGET_OBJECTS:heed_bench_kernels>)
target_link_libraries(heed_bench PRIVATE CUDA::cudart_static)

# The interpreter runs kernels of heed alone.
if(HEED_INTERPRET_PTX)
  return()
endif()

# cuBLAS comes with the toolkit, on some machines without it, and cuBLASLt with cuBLAS.
if(TARGET CUDA::cublas)
  target_sources(heed_bench PRIVATE
    "${CMAKE_CURRENT_LIST_DIR}/cublas.cc" "${CMAKE_CURRENT_LIST_DIR}/cublaslt.cc")
  target_compile_definitions(heed_bench PRIVATE HEED_BENCH_CUBLAS)
  target_link_libraries(heed_bench PRIVATE CUDA::cublas CUDA::cublasLt)
else()
  message(STATUS "heed-bench goes without its cuBLAS peer: the toolkit has no cuBLAS")
endif()

# cuDNN 9, with the headers of cudnn-frontend (github.com/NVIDIA/cudnn-frontend; 1.18 is
# known to compile, so is 1.23, which needs NVRTC; 1.8 does not with CUDA 13). HEED_CUDNN_ROOT and HEED_CUDNN_FRONTEND_INCLUDE say where they are.
find_path(HEED_CUDNN_INCLUDE cudnn.h
  HINTS "${HEED_CUDNN_ROOT}" ${CUDAToolkit_INCLUDE_DIRS} PATH_SUFFIXES include)
find_library(HEED_CUDNN NAMES cudnn libcudnn.so.9
  HINTS "${HEED_CUDNN_ROOT}" "${CUDAToolkit_LIBRARY_DIR}" "${CUDAToolkit_LIBRARY_ROOT}"
        "${HEED_CUDNN_INCLUDE}/.." PATH_SUFFIXES lib lib64)
find_path(HEED_CUDNN_FRONTEND_INCLUDE cudnn_frontend.h)
if(HEED_CUDNN_INCLUDE AND HEED_CUDNN AND HEED_CUDNN_FRONTEND_INCLUDE)
  target_sources(heed_bench PRIVATE "${CMAKE_CURRENT_LIST_DIR}/cudnn.cc")
  target_compile_definitions(heed_bench PRIVATE HEED_BENCH_CUDNN CUDNN_FRONTEND_SKIP_JSON_LIB)
  target_include_directories(heed_bench SYSTEM PRIVATE
    "${HEED_CUDNN_INCLUDE}" "${HEED_CUDNN_FRONTEND_INCLUDE}")
  target_link_libraries(heed_bench PRIVATE "${HEED_CUDNN}")
  if(TARGET CUDA::nvrtc)
    target_link_libraries(heed_bench PRIVATE CUDA::nvrtc)
  endif()
else()
  message(STATUS "heed-bench goes without its cuDNN peer: it needs cuDNN 9 and cudnn-frontend")
endif()
