# The .deb (`make deb`, tools/deb.sh): what cmake/install.cmake installs, below /usr.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME stowage)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_CONTACT "The Stowage maintainers <maintainers@stowage.invalid>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "fits programs into the GPU and host memory there is")
set(CPACK_DEBIAN_PACKAGE_DESCRIPTION "Says why a program ran out of GPU or host memory, limits both, spills device memory
to host memory, and shrinks data. Command, libraries, headers and manual pages.")
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION utils)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS python3)
# dpkg-shlibdeps does not know a library whose SONAME is the driver's: tools/deb.sh computes the versions itself.
set(STOWAGE_DEB_DEPENDS "libc6, zlib1g, libzstd1" CACHE STRING "Dependencies of the .deb")
set(CPACK_DEBIAN_PACKAGE_DEPENDS ${STOWAGE_DEB_DEPENDS})
# The libraries are found at once, without a reboot or ldconfig by hand.
file(CONFIGURE OUTPUT triggers CONTENT "activate-noawait ldconfig\n")
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA ${CMAKE_CURRENT_BINARY_DIR}/triggers)
include(CPack)
