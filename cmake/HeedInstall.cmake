# cmake --install: libraries, headers, heedConfig.cmake (find_package), heed.pc and heed-training.pc
# (pkg-config).
include(CMakePackageConfigHelpers)
set(package_folder "${CMAKE_INSTALL_LIBDIR}/cmake/heed")

# An interface library that only carries private flags still has to be in the export set of a
# static library that uses it; it installs nothing.
set(heed_libraries heed heed_reference heed_training)
if(TARGET heed_shared)
  list(APPEND heed_libraries heed_shared)
endif()
install(TARGETS ${heed_libraries} heed_warnings heed_simd_targets EXPORT heedTargets)
set_target_properties(heed_reference PROPERTIES EXPORT_NAME reference)
set_target_properties(heed_training PROPERTIES EXPORT_NAME training)
install(EXPORT heedTargets NAMESPACE heed:: DESTINATION "${package_folder}")
install(DIRECTORY "${PROJECT_SOURCE_DIR}/cpp/include/heed" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")

configure_package_config_file(cmake/heedConfig.cmake.in heedConfig.cmake
  INSTALL_DESTINATION "${package_folder}")
write_basic_package_version_file(heedConfigVersion.cmake COMPATIBILITY SameMinorVersion)

# Relative to heed.pc itself, so that an install prefix can be moved.
file(RELATIVE_PATH relative_prefix
  "${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig" "${CMAKE_INSTALL_PREFIX}")
if(hwy_FOUND)
  set(private_requirements libhwy)
endif()
set(cxx_runtime -lstdc++)
if(APPLE)
  set(cxx_runtime -lc++)
endif()
if(HEED_CUDA)
  set(cuda_runtime "-L${CUDAToolkit_LIBRARY_DIR} -lcudart_static -ldl -lrt")
endif()
foreach(name heed heed-training)
  configure_file(cmake/${name}.pc.in ${name}.pc @ONLY)
  install(FILES "${PROJECT_BINARY_DIR}/${name}.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
endforeach()
install(FILES "${PROJECT_BINARY_DIR}/heedConfig.cmake"
              "${PROJECT_BINARY_DIR}/heedConfigVersion.cmake"
        DESTINATION "${package_folder}")
