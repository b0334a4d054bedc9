/* Hooks of streams and modules that end: first forget what is known about them. */
#include "shim/hooks.h"
#include "shim/resident.h"

cu_result cuStreamDestroy_v2(cu_stream stream) {
  __typeof__(&cuStreamDestroy_v2) real = REAL(cuStreamDestroy_v2);
  if (real == NULL) return CU_ERROR_NOT_SUPPORTED;
  if (resident_anywhere()) resident_stream_destroyed(stream);
  return real(stream);
}

cu_result cuModuleUnload(void *module) {
  __typeof__(&cuModuleUnload) real = REAL(cuModuleUnload);
  if (real == NULL) return CU_ERROR_NOT_SUPPORTED;
  if (resident_anywhere()) resident_functions_gone();
  return real(module);
}

cu_result cuLibraryUnload(void *library) {
  __typeof__(&cuLibraryUnload) real = REAL(cuLibraryUnload);
  if (real == NULL) return CU_ERROR_NOT_SUPPORTED;
  if (resident_anywhere()) resident_functions_gone();
  return real(library);
}
