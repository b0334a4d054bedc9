/* List: all allocators, in the order that tables show, and the plan. */
#include <string.h>

#include "replay/policies/policy.h"

static const policy_ops *const policies[] = {&policy_torch_default, &policy_torch_expandable,
                                             &policy_bfc, &policy_cuda_async, &policy_stowage};

const policy_ops policy_planned = {
    .name = "planned",
    .about = "a layout planned ahead from the recorded lifetimes",
};

const policy_ops *policy_at(size_t i) {
  return i < sizeof policies / sizeof policies[0] ? policies[i] : NULL;
}

const policy_ops *policy_find(const char *name) {
  for (size_t i = 0; policy_at(i) != NULL; i++)
    if (strcmp(policy_at(i)->name, name) == 0) return policy_at(i);
  return strcmp(policy_planned.name, name) == 0 ? &policy_planned : NULL;
}
