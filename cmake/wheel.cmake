# What goes into the Python wheel, as a component of its own that a plain install leaves out: the same layout as an
# installation, inside the package, so that the command finds the shim and the shim finds the library. Plain files under
# one name each: a wheel has no symbolic links.
set(STOW_WHEEL stowage/_native)
foreach(library stowage stowage_analysis stowage_data)
  string(REPLACE _ - name ${library})
  install(FILES $<TARGET_FILE:${library}_shared> DESTINATION ${STOW_WHEEL}/lib RENAME lib${name}.so.${STOW_SOVERSION}
    COMPONENT wheel EXCLUDE_FROM_ALL)
endforeach()
install(FILES $<TARGET_FILE:stowage_shim> $<TARGET_FILE:stowage_shim_alias> $<TARGET_FILE:stowage_shim_nvml>
  DESTINATION ${STOW_WHEEL}/lib/stowage
  COMPONENT wheel EXCLUDE_FROM_ALL)
install(PROGRAMS $<TARGET_FILE:stowage_command> DESTINATION ${STOW_WHEEL}/bin COMPONENT wheel EXCLUDE_FROM_ALL)
