# cmake --install: libraries, headers, heedConfig.cmake (find_package), heed.pc and heed-training.pc
# (pkg-config), and what heed and the code in it are licensed under.
include(CMakePackageConfigHelpers)
include(HeedPkgConfig)
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

heed_write_pc_files("${PROJECT_BINARY_DIR}")
install(FILES "${PROJECT_BINARY_DIR}/heed.pc" "${PROJECT_BINARY_DIR}/heed-training.pc"
        DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
install(FILES "${PROJECT_BINARY_DIR}/heedConfig.cmake"
              "${PROJECT_BINARY_DIR}/heedConfigVersion.cmake"
        DESTINATION "${package_folder}")
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" "${PROJECT_SOURCE_DIR}/NOTICE"
        DESTINATION "${CMAKE_INSTALL_DOCDIR}")
