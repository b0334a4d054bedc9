/* Cuda card: from a name ("0", "GPU-5d3c…") to one of the driver's cards. */
#ifndef DEVICE_CUDA_CARD_H
#define DEVICE_CUDA_CARD_H

#include "device/cuda_driver.h"

#define CUDA_UUID_MAX 48

typedef struct cuda_card {
  cu_device handle;
  int index;                /* as CUDA_VISIBLE_DEVICES counts */
  char uuid[CUDA_UUID_MAX]; /* "GPU-5d3c…" */
} cuda_card;

/* `name` is an index, or a UUID or a beginning of one that only one card has; letter case and the
 * words GPU- or MIG- before it do not matter. STOW_ERR_NOT_FOUND says which cards there are. */
stow_status cuda_card_find(cuda_card *card, const cuda_driver *driver, const char *name);

/* The card's UUID as text; "" if the driver does not tell. */
void cuda_card_uuid(char uuid[CUDA_UUID_MAX], const cuda_driver *driver, cu_device handle);

/* An attribute, or `otherwise` where this driver does not know it. */
int cuda_card_attribute(const cuda_driver *driver, cu_device handle, int which, int otherwise);

#endif
