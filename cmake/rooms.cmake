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

# The kernels of numbers/ and the rows of tables are compiled once for each instruction set; the best one is chosen at run time.
function(stow_kernel_flags)
  set(folder ${CMAKE_CURRENT_SOURCE_DIR}/src/numbers)
  set_source_files_properties(${folder}/kernels_portable.c PROPERTIES COMPILE_OPTIONS
    "-O3;-fno-math-errno;-fno-trapping-math")
  set_source_files_properties(${CMAKE_CURRENT_SOURCE_DIR}/src/arrays/csv_block_portable.c PROPERTIES COMPILE_OPTIONS -O3)
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    set_source_files_properties(${folder}/kernels_avx2.c PROPERTIES COMPILE_OPTIONS
      "-O3;-fno-math-errno;-fno-trapping-math;-mavx2;-mf16c;-mfma")
    set_source_files_properties(${folder}/kernels_avx512.c PROPERTIES COMPILE_OPTIONS
      "-O3;-fno-math-errno;-fno-trapping-math;-mavx2;-mf16c;-mfma;-mavx512f;-mavx512bw;-mavx512dq;-mavx512vl;-mprefer-vector-width=512")
    set_source_files_properties(${CMAKE_CURRENT_SOURCE_DIR}/src/arrays/csv_block_avx2.c PROPERTIES COMPILE_OPTIONS
      "-O3;-mavx2;-mbmi;-mbmi2;-mlzcnt;-mpopcnt")
    set_source_files_properties(${CMAKE_CURRENT_SOURCE_DIR}/src/arrays/csv_block_avx512.c PROPERTIES COMPILE_OPTIONS
      "-O3;-mavx2;-mbmi;-mbmi2;-mlzcnt;-mpopcnt;-mavx512f;-mavx512bw;-mavx512dq;-mavx512vl;-mavx512cd")
  endif()
endfunction()
stow_kernel_flags()
