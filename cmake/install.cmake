# Install: headers, libraries, shims, command, pkg-config file, CMake package, man pages, completions. This file is the only
# list: `make install`, the .deb and the wheel all take it whole.
include(CMakePackageConfigHelpers)
if(SKBUILD)
  # In a wheel libNAME.so is a linker script, because it cannot be a symbolic link.
  foreach(name stowage stowage-analysis stowage-data)
    file(CONFIGURE OUTPUT lib${name}.so.script CONTENT "INPUT(lib${name}.so.${STOW_SOVERSION})\n")
    install(FILES ${CMAKE_CURRENT_BINARY_DIR}/lib${name}.so.script DESTINATION ${CMAKE_INSTALL_LIBDIR}
      RENAME lib${name}.so)
  endforeach()
  set(namelink NAMELINK_SKIP)
endif()
install(TARGETS stowage_shared stowage_static stowage_analysis_shared stowage_analysis_static stowage_data_shared
  stowage_data_static EXPORT stowage-targets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} ${namelink} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(STOWAGE_BUNDLED)
  # The static library needs them where no zlib and zstd are installed.
  install(TARGETS bundled_zlib bundled_zstd EXPORT stowage-targets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}/stowage)
endif()
# In a folder of their own: ldconfig must never see a library whose SONAME is the driver's.
install(TARGETS stowage_shim stowage_shim_alias stowage_shim_nvml stowage_host stowage_profile
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/stowage)
install(TARGETS stowage_command RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
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
# A page describes several functions: each name in its NAME section gets a one-line page that refers to it.
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
# The command writes the completion files, so they always match its table of verbs. A cross build cannot run the command
# and names a folder with the files of a native build.
set(STOWAGE_COMPLETIONS "" CACHE PATH "A folder with stowage, _stowage and stowage.fish (cross builds)")
set(completions ${STOWAGE_COMPLETIONS})
if(NOT completions AND (NOT CMAKE_CROSSCOMPILING OR CMAKE_CROSSCOMPILING_EMULATOR))
  set(completions ${CMAKE_BINARY_DIR}/completions)
  file(MAKE_DIRECTORY ${completions})
  set(files ${completions}/stowage ${completions}/_stowage ${completions}/stowage.fish)
  add_custom_command(OUTPUT ${files}
    COMMAND stowage_command completion bash > ${completions}/stowage
    COMMAND stowage_command completion zsh > ${completions}/_stowage
    COMMAND stowage_command completion fish > ${completions}/stowage.fish
    DEPENDS stowage_command COMMENT "completions" VERBATIM)
  add_custom_target(stowage_completions ALL DEPENDS ${files})
endif()
if(completions)
  install(FILES ${completions}/stowage DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
  install(FILES ${completions}/_stowage DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
  install(FILES ${completions}/stowage.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
endif()
# All that is installed, without tests and benchmarks.
add_custom_target(stowage_parts DEPENDS stowage_shared stowage_static stowage_analysis_shared stowage_analysis_static
  stowage_data_shared stowage_data_static stowage_shim stowage_shim_alias stowage_shim_nvml
  stowage_host stowage_profile stowage_command)
if(TARGET stowage_completions)
  add_dependencies(stowage_parts stowage_completions)
endif()
