# Install: headers, libraries, command, pkg-config file, CMake package, man pages, completions.
include(CMakePackageConfigHelpers)
install(TARGETS stowage_shared stowage_static EXPORT stowage-targets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY include/stowage DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
# Relative to the .pc file itself, so that `cmake --install --prefix` and a moved tree stay right.
file(RELATIVE_PATH STOW_PC_UP /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
configure_file(cmake/stowage.pc.in stowage.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/stowage.pc
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
set(STOW_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/stowage)
install(EXPORT stowage-targets NAMESPACE stowage:: DESTINATION ${STOW_CMAKE_DIR})
configure_package_config_file(cmake/stowage-config.cmake.in stowage-config.cmake
  INSTALL_DESTINATION ${STOW_CMAKE_DIR})
write_basic_package_version_file(stowage-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/stowage-config.cmake
  ${CMAKE_CURRENT_BINARY_DIR}/stowage-config-version.cmake DESTINATION ${STOW_CMAKE_DIR})
foreach(section 1 3 7)
  file(GLOB pages CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/man/man${section}/*.${section})
  install(FILES ${pages} DESTINATION ${CMAKE_INSTALL_MANDIR}/man${section})
endforeach()
