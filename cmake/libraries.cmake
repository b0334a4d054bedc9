# The three libraries. Each folder of src/ belongs to one of them; tools/ranks has the order of the folders.
#
#   libstowage           memory at run time: small, libc only, also what the shim is made of
#   libstowage-analysis  recordings and what they mean: explain, replay, report
#   libstowage-data      arrays, tables and weights on disk
#
# The last two call the first through its exported names only. Their copies of base/ leave out the files with state or
# public names (base_state), so that a process has one thread message and one log.
set(STOW_RUNTIME_FOLDERS base base_state trace run device residency memory record watch)
set(STOW_ANALYSIS_FOLDERS base trace run files residency recordings replay advise report)
set(STOW_DATA_FOLDERS base files arrays numbers data)

set(STOW_FOLDERS ${STOW_RUNTIME_FOLDERS} ${STOW_ANALYSIS_FOLDERS} ${STOW_DATA_FOLDERS})
list(REMOVE_DUPLICATES STOW_FOLDERS)
foreach(folder ${STOW_FOLDERS})
  if(NOT folder STREQUAL base_state)
    stow_folder(${folder})
  endif()
endforeach()

# The report's viewer is compiled in from web/ (src/report/viewer.c).
file(GLOB STOW_WEB_FILES CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/web/*)
set_source_files_properties(src/report/viewer.c PROPERTIES
  COMPILE_DEFINITIONS "STOW_WEB=\"${CMAKE_CURRENT_SOURCE_DIR}/web\"" OBJECT_DEPENDS "${STOW_WEB_FILES}")

# The simulated device computes in doubles; fused operations would give other figures on other processors.
file(GLOB STOW_EXACT_FILES CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/src/residency/*.c ${CMAKE_CURRENT_SOURCE_DIR}/src/replay/spill*.c)
set_source_files_properties(${STOW_EXACT_FILES} PROPERTIES COMPILE_OPTIONS -ffp-contract=off)

# The object files of the folders named.
function(stow_objects result)
  set(objects)
  foreach(folder ${ARGN})
    list(APPEND objects $<TARGET_OBJECTS:stow_${folder}>)
  endforeach()
  set(${result} "${objects}" PARENT_SCOPE)
endfunction()

# stow_library(NAME OUTPUT MAP OBJECTS LIBS...): NAME_shared, and NAME_static, whose archive holds one object in which every
# name but the exported ones is local. A program may then define any name that is not stow_*.
function(stow_library name output objects)
  set(map ${CMAKE_CURRENT_SOURCE_DIR}/src/lib${output}.map)
  add_library(${name}_shared SHARED ${objects})
  set_target_properties(${name}_shared PROPERTIES OUTPUT_NAME ${output} EXPORT_NAME ${output}
    SOVERSION ${STOW_SOVERSION} LINK_DEPENDS ${map} LINKER_LANGUAGE C
    INSTALL_RPATH "$ORIGIN")
  if(NOT SKBUILD) # a wheel has no symbolic links: one file, named by its SONAME
    set_target_properties(${name}_shared PROPERTIES VERSION ${STOW_SOVERSION}.${PROJECT_VERSION})
  endif()
  target_link_options(${name}_shared PRIVATE -Wl,--version-script=${map} -Wl,--no-undefined -Wl,--gc-sections)
  target_link_libraries(${name}_shared PRIVATE ${ARGN} stow_flags)
  set(one ${CMAKE_CURRENT_BINARY_DIR}/${output}.o)
  add_custom_command(OUTPUT ${one}
    COMMAND ${CMAKE_C_COMPILER} -r -nostdlib -o ${one} ${objects}
    COMMAND ${CMAKE_OBJCOPY} --localize-hidden ${one}
    DEPENDS ${objects} COMMAND_EXPAND_LISTS VERBATIM COMMENT "${output}.o")
  set_source_files_properties(${one} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
  add_library(${name}_static STATIC ${one})
  set_target_properties(${name}_static PROPERTIES OUTPUT_NAME ${output} EXPORT_NAME ${output}-static LINKER_LANGUAGE C)
  target_link_libraries(${name}_static PUBLIC ${ARGN})
  foreach(library ${name}_shared ${name}_static)
    target_include_directories(${library} PUBLIC $<BUILD_INTERFACE:${CMAKE_CURRENT_SOURCE_DIR}/include>
      $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  endforeach()
endfunction()

set(STOW_SYSTEM Threads::Threads ${CMAKE_DL_LIBS} m)
set(STOW_COMPRESSION ZLIB::ZLIB ${ZSTD_LIBRARY})
stow_objects(runtime ${STOW_RUNTIME_FOLDERS})
stow_objects(analysis ${STOW_ANALYSIS_FOLDERS})
stow_objects(data ${STOW_DATA_FOLDERS})
stow_library(stowage stowage "${runtime}" ${STOW_SYSTEM})
stow_library(stowage_analysis stowage-analysis "${analysis}" ${STOW_COMPRESSION} ${STOW_SYSTEM})
stow_library(stowage_data stowage-data "${data}" ${STOW_COMPRESSION} ${STOW_SYSTEM})
foreach(kind shared static)
  target_link_libraries(stowage_analysis_${kind} PUBLIC stowage_${kind})
  target_link_libraries(stowage_data_${kind} PUBLIC stowage_${kind})
endforeach()

# Everything, with every name visible: what the command and the tests link.
stow_objects(all ${STOW_FOLDERS})
add_library(stowage_inside STATIC ${all})
set_target_properties(stowage_inside PROPERTIES LINKER_LANGUAGE C)
target_include_directories(stowage_inside PUBLIC ${CMAKE_CURRENT_SOURCE_DIR}/include)
target_link_libraries(stowage_inside PUBLIC ${STOW_COMPRESSION} ${STOW_SYSTEM})
