/* Nvml library: opens NVIDIA's NVML by its path. Beneath `stowage run` its name can mean our proxy
 * (shim/nvml). */
#ifndef DEVICE_NVML_LIBRARY_H
#define DEVICE_NVML_LIBRARY_H

/* Opens $STOWAGE_LIBNVML if set, else the one beside the driver library; never the file `proxy`
 * (NULL: any). Returns NULL if there is none. */
void *nvml_library_open(const char *proxy);

#endif
