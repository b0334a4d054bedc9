# stow_room(NAME): one folder of src/ as an object library; a room with no sources yet is passed over.
function(stow_room name)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/src/${name}/*.c)
  if(NOT sources)
    return()
  endif()
  add_library(stow_${name} OBJECT ${sources})
  target_include_directories(stow_${name} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/include
    ${CMAKE_CURRENT_SOURCE_DIR}/src ${ZSTD_INCLUDE_DIR})
  target_link_libraries(stow_${name} PRIVATE stow_flags ZLIB::ZLIB Threads::Threads)
  set_property(GLOBAL APPEND PROPERTY STOW_ROOMS ${name})
endfunction()
