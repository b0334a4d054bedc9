/* The shim's second name, libcuda.so. See src/shim/CMakeLists.txt; preloaded after the shim. */
#include <stddef.h>

/* A library must define a symbol. */
extern const char stow_shim_alias[];
const char stow_shim_alias[] = "libcuda.so";
