/* What the parts of told share: adding a cause, and two judgements on the numbers. */
#include "advise/told.h"

#define ROOM_LEAST   (UINT64_C(128) << 20) /* less is what drivers and pools keep back */
#define ABSURD_LEAST (UINT64_C(1) << 50)

static bool known(uint64_t bytes) {
  return told_known(bytes);
}

cause *told_cause(explanation *x, cause_id id, double confidence) {
  cause *c = &x->findings.list[x->findings.count++];
  *c =
      (cause){.id = id, .confidence = confidence, .headline = BUFFER_INIT, .evidence = BUFFER_INIT};
  return c;
}

bool told_had_room(const numbers *n) {
  if (!known(n->free_bytes) || !known(n->asked_bytes)) return false;
  uint64_t spare = ROOM_LEAST;
  if (known(n->card_bytes) && n->card_bytes / 50 > spare) spare = n->card_bytes / 50;
  return n->free_bytes > n->asked_bytes && n->free_bytes - n->asked_bytes >= spare;
}

bool told_absurd(const numbers *n) {
  return known(n->asked_bytes) && n->asked_bytes >= ABSURD_LEAST;
}
