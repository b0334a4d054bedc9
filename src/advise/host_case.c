/* Host case: adds causes and fixes to the case of one run, and describes its objects. */
#include "advise/host_case.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

cause *host_add(host_case *c, cause_id id, double confidence) {
  cause *to = &c->x->findings.list[c->x->findings.count++];
  *to =
      (cause){.id = id, .confidence = confidence, .headline = BUFFER_INIT, .evidence = BUFFER_INIT};
  return to;
}

void host_add_fix(host_case *c, uint64_t saves_bytes, const char *change, const char *cost) {
  fixes *all = &c->x->fixes;
  if (all->count == FIXES_MAX) return;
  const findings *found = &c->x->findings; /* a fix is for the cause added last */
  c->sure[all->count] = found->count > 0 ? found->list[found->count - 1].confidence : 0;
  fix *f = &all->list[all->count++];
  *f = (fix){.saves_bytes = saves_bytes};
  snprintf(f->change, sizeof f->change, "%s", change);
  snprintf(f->cost, sizeof f->cost, "%s", cost);
}

/* "rows, a list of 3000000 dict, about 410.2 MiB, in build at objects.py:7" */
void host_say_object(cause *to, const host_object *o) {
  char shape[80] = "", of[80] = "";
  if (o->shape[0] != '\0') snprintf(shape, sizeof shape, " %s", o->shape);
  if (o->of[0] != '\0') snprintf(of, sizeof of, " of %s", o->of);
  if (o->shape[0] == '\0' && o->count > 1)
    cause_say(to, "%s, a %s of %" PRIu64 "%s%s, about %s, in %s", o->name, o->type, o->count,
              o->of[0] != '\0' ? " " : "", o->of, cause_size(o->bytes), o->where);
  else
    cause_say(to, "%s, a %s%s%s, about %s, in %s", o->name, o->type, shape, of,
              cause_size(o->bytes), o->where);
}

bool host_is_container(const host_object *o) {
  return strcmp(o->type, "list") == 0 || strcmp(o->type, "dict") == 0 ||
         strcmp(o->type, "set") == 0 || strcmp(o->type, "tuple") == 0 ||
         strstr(o->type, "deque") != NULL || strstr(o->type, "dict") != NULL;
}

bool host_is_array(const host_object *o) {
  return o->shape[0] != '\0';
}
