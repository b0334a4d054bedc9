# Install: headers, libraries, command, pkg-config file, CMake package, man pages, completions.
include(CMakePackageConfigHelpers)
install(TARGETS stowage_shared stowage_static stowage_analysis_shared stowage_analysis_static stowage_data_shared
  stowage_data_static EXPORT stowage-targets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY include/stowage DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
# Relative to the .pc file itself, so that `cmake --install --prefix` and a moved tree stay right.
file(RELATIVE_PATH STOW_PC_UP /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
function(stow_pkgconfig name description requires private)
  set(STOW_PC_NAME ${name})
  set(STOW_PC_DESCRIPTION "${description}")
  set(STOW_PC_REQUIRES "${requires}")
  set(STOW_PC_PRIVATE "${private}")
  configure_file(cmake/stowage.pc.in ${name}.pc @ONLY)
  install(FILES ${CMAKE_CURRENT_BINARY_DIR}/${name}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endfunction()
stow_pkgconfig(stowage "GPU and host memory at run time: heap, limits, traces" "" "-lm -ldl -pthread")
stow_pkgconfig(stowage-analysis "Recordings of memory use: explain, replay, report" "stowage = ${PROJECT_VERSION}"
  "-lz -lzstd -lm -ldl -pthread")
stow_pkgconfig(stowage-data "Arrays, tables and weights larger than memory" "stowage = ${PROJECT_VERSION}"
  "-lz -lzstd -lm -ldl -pthread")
set(STOW_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/stowage)
install(EXPORT stowage-targets NAMESPACE stowage:: DESTINATION ${STOW_CMAKE_DIR})
configure_package_config_file(cmake/stowage-config.cmake.in stowage-config.cmake
  INSTALL_DESTINATION ${STOW_CMAKE_DIR})
write_basic_package_version_file(stowage-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/stowage-config.cmake
  ${CMAKE_CURRENT_BINARY_DIR}/stowage-config-version.cmake DESTINATION ${STOW_CMAKE_DIR})
# A page tells of several functions: each of its names (the NAME section) finds it, by a page of one line.
file(GLOB pages CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/man/man3/*.3)
foreach(page ${pages})
  get_filename_component(title ${page} NAME_WE)
  file(READ ${page} text)
  string(REGEX MATCH "\n\\.SH NAME\n[^\\]*" names "${text}")
  string(REGEX MATCHALL "stow_[a-z0-9_]+" names "${names}")
  list(REMOVE_ITEM names ${title})
  foreach(name ${names})
    file(CONFIGURE OUTPUT man3/${name}.3 CONTENT ".so man3/${title}.3\n")
    install(FILES ${CMAKE_CURRENT_BINARY_DIR}/man3/${name}.3 DESTINATION ${CMAKE_INSTALL_MANDIR}/man3)
  endforeach()
endforeach()
foreach(section 1 3 7)
  file(GLOB pages CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/man/man${section}/*.${section})
  install(FILES ${pages} DESTINATION ${CMAKE_INSTALL_MANDIR}/man${section})
endforeach()
