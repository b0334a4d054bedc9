/* NVTX: records a program's named ranges as marks in the run's trace.
 *
 * Every program with NVTX in it loads the library that NVTX_INJECTION64_PATH names at its first
 * NVTX call and asks it for InitializeInjectionNvtx2; `stowage run --record` names the shim, unless
 * another tool is already named. Without that, NVTX calls do nothing. The tables are those of NVTX
 * 3 (nvtx3/nvtxDetail/nvtxTypes.h: NvtxCallbackModule, NvtxCallbackIdCore). */
#include <stdint.h>
#include <string.h>

#include "shim/recorder.h"
#include "shim/shim.h"

enum { TABLE_CALLBACKS = 1 };                 /* NVTX_ETID_CALLBACKS */
enum { MODULE_CORE = 1, MODULE_DOMAINS = 5 }; /* NVTX_CB_MODULE_CORE, _CORE2 */
enum { CORE_PUSH_EX = 8, CORE_PUSH = 9, CORE_POP = 11 };
enum { DOMAIN_PUSH_EX = 4, DOMAIN_POP = 5, DOMAIN_REGISTER = 10 };
enum { TEXT_ASCII = 1, TEXT_REGISTERED = 3 }; /* NVTX_MESSAGE_TYPE_… */

typedef void (*nvtx_function)(void);
typedef struct nvtx_callbacks {
  size_t size;
  int (*table)(int module, nvtx_function ***slots, unsigned *count);
} nvtx_callbacks;

/* nvtxEventAttributes_t, version 2 and later. */
typedef struct nvtx_range {
  uint16_t version, size;
  uint32_t category;
  int32_t color_type;
  uint32_t color;
  int32_t payload_type;
  int32_t reserved;
  uint64_t payload;
  int32_t text_type;
  const char *text;
} nvtx_range;

SHIM_HOOK int InitializeInjectionNvtx2(const void *(*get_table)(uint32_t which));

/* Ranges nest within a thread; the end of a range has no name. */
enum { DEPTH_MAX = 32, NAME_MAX_BYTES = 64 };
static _Thread_local char open_names[DEPTH_MAX][NAME_MAX_BYTES];
static _Thread_local int depth;

static int begin(const char *name) {
  int level = depth++;
  if (level < 0 || level >= DEPTH_MAX) return level;
  size_t i = 0;
  for (; i < NAME_MAX_BYTES - 1 && name[i] != '\0'; i++) open_names[level][i] = name[i];
  open_names[level][i] = '\0';
  recorder_mark(open_names[level], true);
  return level;
}

static int push(const char *name) {
  return begin(name != NULL ? name : "");
}

static int push_range(const nvtx_range *range) {
  bool text = range != NULL && range->text != NULL &&
              (range->text_type == TEXT_ASCII || range->text_type == TEXT_REGISTERED);
  return begin(text ? range->text : "range");
}

/* Returns a copy of a text as its handle, so no table is needed. Programs register each text
 * once. */
static void *register_text(void *domain, const char *text) {
  (void)domain;
  return strdup(text != NULL ? text : "");
}

static int pop(void) {
  if (depth <= 0) return -1;
  int level = --depth;
  if (level < DEPTH_MAX) recorder_mark(open_names[level], false);
  return level;
}

static int push_domain(void *domain, const nvtx_range *range) {
  (void)domain;
  return push_range(range);
}

static int pop_domain(void *domain) {
  (void)domain;
  return pop();
}

int InitializeInjectionNvtx2(const void *(*get_table)(uint32_t which)) {
  const nvtx_callbacks *callbacks = get_table != NULL ? get_table(TABLE_CALLBACKS) : NULL;
  nvtx_function **slots = NULL;
  unsigned count = 0;
  if (callbacks == NULL || callbacks->size < sizeof *callbacks || callbacks->table == NULL)
    return 0;
  if (callbacks->table(MODULE_CORE, &slots, &count) && slots != NULL && count > CORE_POP) {
    *slots[CORE_PUSH_EX] = (nvtx_function)(uintptr_t)push_range;
    *slots[CORE_PUSH] = (nvtx_function)(uintptr_t)push;
    *slots[CORE_POP] = (nvtx_function)(uintptr_t)pop;
  }
  if (callbacks->table(MODULE_DOMAINS, &slots, &count) && slots != NULL &&
      count > DOMAIN_REGISTER) {
    *slots[DOMAIN_PUSH_EX] = (nvtx_function)(uintptr_t)push_domain;
    *slots[DOMAIN_POP] = (nvtx_function)(uintptr_t)pop_domain;
    *slots[DOMAIN_REGISTER] = (nvtx_function)(uintptr_t)register_text;
  }
  shim_log("NVTX ranges are recorded");
  return 1;
}
