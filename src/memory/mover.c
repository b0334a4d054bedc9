/* Mover: the stream and the scratch addresses through which pages are copied between tiers. */
#include "base/assert.h"
#include "memory/heap.h"

stow_status migrate_stream(heap *h) {
  ASSERT(lock_held(&h->lock));
  if (!h->mover_stream) STOW_TRY(device_stream_create(h->device, &h->mover_stream));
  if (!h->scratch) {
    uint64_t bytes = h->props.page_bytes << h->pool.order_max;
    STOW_TRY(device_reserve(h->device, &h->scratch, bytes, 0));
    h->scratch_bytes = bytes;
  }
  return STOW_OK;
}
