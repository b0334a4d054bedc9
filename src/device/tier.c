/* Names of the tiers. */
#include <stowage/device.h>

const char *stow_tier_name(stow_tier tier) {
  switch (tier) {
  case STOW_TIER_VRAM: return "vram";
  case STOW_TIER_HOST: return "host";
  case STOW_TIER_DISK: return "disk";
  }
  return "unknown tier";
}
