# stow_folder(NAME): one folder of src/ as an object library.
function(stow_folder name)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/src/${name}/*.c)
  if(name STREQUAL base)
    # What a process must have once: libraries that call libstowage leave these out.
    set(state ${sources})
    list(FILTER state INCLUDE REGEX "/base/(status|log|size)[.]c$")
    list(FILTER sources EXCLUDE REGEX "/base/(status|log|size)[.]c$")
    stow_object_library(base_state ${state})
  endif()
  stow_object_library(${name} ${sources})
endfunction()

function(stow_object_library name)
  add_library(stow_${name} OBJECT ${ARGN})
  target_include_directories(stow_${name} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/include
    ${CMAKE_CURRENT_SOURCE_DIR}/src ${ZSTD_INCLUDE_DIR})
  target_link_libraries(stow_${name} PRIVATE stow_flags ZLIB::ZLIB Threads::Threads)
endfunction()

# The kernels of numbers/ and of table rows are compiled once per instruction set; the best one is chosen at run time.
function(stow_kernel_flags)
  set(folder ${CMAKE_CURRENT_SOURCE_DIR}/src/numbers)
  set(avx2 "-mavx2;-mf16c;-mfma")
  set(avx512 "${avx2};-mavx512f;-mavx512bw;-mavx512dq;-mavx512vl;-mprefer-vector-width=512")
  # No fused multiply-add: quantization gives the same bytes on every processor (src/numbers/quant.h).
  set(quant "-O3;-fno-math-errno;-fno-trapping-math;-ffp-contract=off")
  set_source_files_properties(${folder}/quant.c PROPERTIES COMPILE_OPTIONS -ffp-contract=off)
  set_source_files_properties(${folder}/quant_portable.c PROPERTIES COMPILE_OPTIONS "${quant}")
  set_source_files_properties(${folder}/cast.c ${folder}/sparse.c ${folder}/lowrank.c PROPERTIES COMPILE_OPTIONS -O3)
  set_source_files_properties(${folder}/kernels_portable.c PROPERTIES COMPILE_OPTIONS
    "-O3;-fno-math-errno;-fno-trapping-math")
  set_source_files_properties(${CMAKE_CURRENT_SOURCE_DIR}/src/arrays/csv_block_portable.c ${CMAKE_CURRENT_SOURCE_DIR}/src/arrays/hdf5_unpack.c
    PROPERTIES COMPILE_OPTIONS -O3)
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    set_source_files_properties(${folder}/kernels_avx2.c PROPERTIES COMPILE_OPTIONS
      "-O3;-fno-math-errno;-fno-trapping-math;${avx2}")
    set_source_files_properties(${folder}/kernels_avx512.c PROPERTIES COMPILE_OPTIONS
      "-O3;-fno-math-errno;-fno-trapping-math;${avx512}")
    set_source_files_properties(${folder}/quant_avx2.c PROPERTIES COMPILE_OPTIONS "${quant};${avx2}")
    set_source_files_properties(${folder}/quant_avx512.c PROPERTIES COMPILE_OPTIONS "${quant};${avx512}")
    set_source_files_properties(${CMAKE_CURRENT_SOURCE_DIR}/src/arrays/csv_block_avx2.c PROPERTIES COMPILE_OPTIONS
      "-O3;-mavx2;-mbmi;-mbmi2;-mlzcnt;-mpopcnt")
    set_source_files_properties(${CMAKE_CURRENT_SOURCE_DIR}/src/arrays/csv_block_avx512.c PROPERTIES COMPILE_OPTIONS
      "-O3;-mavx2;-mbmi;-mbmi2;-mlzcnt;-mpopcnt;-mavx512f;-mavx512bw;-mavx512dq;-mavx512vl;-mavx512cd")
  endif()
endfunction()
stow_kernel_flags()
