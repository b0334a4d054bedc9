/* Run limits: parses limits and reads the current state of the devices. */
#include "cli/run_limits.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <stowage/size.h>

#include "base/hostmem.h"
#include "base/status.h"
#include "base/variables.h"
#include "cli/output.h"
#include "watch/nvml.h"

#define SECOND_NS 1000000000l
/* How often the devices are polled while the run holds nothing on them. */
#define AGAIN_NS (SECOND_NS / 10)

/* Parses one limit of a list. `named` gets the bit of its device, or the bit for all devices. */
static stow_status parse_part(run_limits *limits, const char *part) {
  const char *size = strchr(part, '=');
  unsigned long index = LEDGER_DEVICES_MAX;
  if (size != NULL) {
    char *end;
    index = strtoul(part, &end, 10);
    if (end == part || end != size || index >= LEDGER_DEVICES_MAX)
      return stow_fail(STOW_ERR_INVALID,
                       "\"%.40s\": the part before = must be a device number from 0 to %d", part,
                       LEDGER_DEVICES_MAX - 1);
  }
  uint64_t bytes;
  STOW_TRY(verb_memory_parse(&bytes, size != NULL ? size + 1 : part));
  if (bytes == 0)
    return stow_fail(STOW_ERR_INVALID,
                     "\"%.40s\": a limit of 0 leaves no memory; give a size such as 8G", part);
  if ((limits->named >> index & 1) != 0)
    return stow_fail(STOW_ERR_INVALID,
                     "\"%.40s\": this device already has a limit; give one limit per device", part);
  limits->named |= 1u << index;
  if (size != NULL)
    limits->vram_bytes[index] = bytes;
  else
    for (int i = 0; i < LEDGER_DEVICES_MAX; i++) limits->vram_bytes[i] = bytes;
  return STOW_OK;
}

/* Parses "8G" for every device, or "0=8G,1=4G". STOW_ERR_INVALID says which part is wrong. */
static stow_status parse(run_limits *limits, const char *text) {
  limits->named = 0;
  _Static_assert(LEDGER_DEVICES_MAX < 32, "a bit for each device and one for all");
  for (;;) {
    char part[64];
    size_t length = strcspn(text, ",");
    if (length >= sizeof part)
      return stow_fail(STOW_ERR_INVALID, "\"%.40s…\" is not a size; give one such as 8G or 0=8G",
                       text);
    memcpy(part, text, length);
    part[length] = '\0';
    STOW_TRY(parse_part(limits, part));
    if (text[length] == '\0') return STOW_OK;
    text += length + 1;
  }
}

/* Parses limits and records their source; the message of a failure names it. */
static stow_status parse_from(run_limits *limits, const char *text, const char *source) {
  stow_status status = parse(limits, text);
  if (status != STOW_OK) return stow_fail(status, "%s: %s", source, stow_status_message());
  limits->vram_from = source;
  return STOW_OK;
}

static stow_status read_variables(run_limits *limits) {
  static const char *const NAMES[] = {"CUDA_DEVICE_MEMORY_LIMIT", "NVIDIA_GPU_MEMORY_LIMIT",
                                      "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"};
  /* The most specific variable comes last, so that it wins. */
  for (size_t i = 0; i < sizeof NAMES / sizeof NAMES[0]; i++) {
    const char *text = getenv(NAMES[i]);
    if (text != NULL && text[0] != '\0') STOW_TRY(parse_from(limits, text, NAMES[i]));
  }
  for (int i = 0; i < LEDGER_DEVICES_MAX; i++) {
    static char name[40];
    snprintf(name, sizeof name, "CUDA_DEVICE_MEMORY_LIMIT_%d", i);
    const char *text = getenv(name);
    char part[64];
    if (text == NULL || text[0] == '\0') continue;
    snprintf(part, sizeof part, "%d=%.50s", i, text);
    STOW_TRY(parse_from(limits, part, name));
  }
  return STOW_OK;
}

static stow_status read_spill(run_limits *limits, const char *text) {
  if (text == NULL || strcmp(text, "off") == 0) return STOW_OK;
  hostmem memory = {0};
  STOW_TRY(hostmem_read(&memory));
  limits->spill_auto = strcmp(text, "auto") == 0;
  limits->spill_bytes = memory.usable_bytes;
  if (limits->spill_auto) return STOW_OK;
  if (verb_memory_parse(&limits->spill_bytes, text) != STOW_OK)
    return stow_fail(STOW_ERR_INVALID, "--spill: %s; or auto, or off", stow_status_message());
  return STOW_OK;
}

stow_status run_limits_read(run_limits *limits, const verb_call *call) {
  *limits = (run_limits){0};
  for (int i = 0; i < LEDGER_DEVICES_MAX; i++) limits->vram_bytes[i] = LEDGER_UNLIMITED;
  const char *text = verb_value(call, "vram-limit");
  STOW_TRY(text != NULL ? parse_from(limits, text, "--vram-limit") : read_variables(limits));
  return read_spill(limits, verb_value(call, "spill"));
}

void run_limits_within(run_limits *limits) {
  const char *path = getenv(ENV_LEDGER);
  char most[STOW_SIZE_TEXT_MAX];
  ledger outer;
  if (path == NULL || path[0] == '\0' || ledger_open(&outer, path) != STOW_OK) return;
  for (unsigned i = 0; i < LEDGER_DEVICES_MAX; i++) {
    uint64_t limit = ledger_limit(&outer, i);
    if (limit >= limits->vram_bytes[i]) continue;
    bool known = limits->vram_bytes[i] == LEDGER_UNLIMITED;
    for (unsigned k = 0; k < i && !known; k++) known = ledger_limit(&outer, k) == limit;
    if (!known)
      output_error(
          "stowage run: %s: this command runs inside another run with a limit of %s, which applies "
          "here too\n",
          limits->vram_from, stow_size_format(most, limit));
    limits->vram_bytes[i] = limit;
    if (limits->vram_from == NULL) limits->vram_from = "the run around it";
  }
  ledger_close(&outer);
}

/* ---- the devices ---- */

/* Returns NVML's index of the run's device `i`, or -1 if that is not certain. */
static int nvml_index(nvml *n, unsigned i) {
  const char *list = getenv("CUDA_VISIBLE_DEVICES");
  const char *order = getenv("CUDA_DEVICE_ORDER");
  char token[96] = "";
  if (list == NULL || list[0] == '\0')
    snprintf(token, sizeof token, "%u", i);
  else
    for (unsigned at = 0; list != NULL; at++) {
      size_t length = strcspn(list, ",");
      if (at == i) {
        snprintf(token, sizeof token, "%.*s", (int)length, list);
        break;
      }
      list = list[length] == ',' ? list + length + 1 : NULL;
    }
  int index;
  if (strncmp(token, "GPU-", 4) == 0) return nvml_find(n, token, &index) == STOW_OK ? index : -1;
  char *end;
  index = (int)strtol(token, &end, 10);
  if (end == token || *end != '\0' || index < 0 || index >= nvml_count(n)) return -1;
  if (order != NULL && strcmp(order, "PCI_BUS_ID") == 0) return index;
  /* CUDA counts the fastest device first; that equals NVML's order only if all devices are
   * alike. */
  nvml_device first, other;
  for (int c = 1; c < nvml_count(n); c++)
    if (nvml_device_at(n, 0, &first) != STOW_OK || nvml_device_at(n, c, &other) != STOW_OK ||
        strcmp(first.name, other.name) != 0)
      return -1;
  return index;
}

static void look_at_device(const run_limits *limits, ledger *l, nvml *n, unsigned i) {
  nvml_device device;
  int index = nvml_index(n, i);
  if (index < 0 || nvml_device_at(n, index, &device) != STOW_OK || !device.memory_known) return;
  l->header->others_bytes[i] = device.used_bytes;
  l->header->card_bytes[i] = device.total_bytes;
  snprintf(l->header->uuids[i], sizeof l->header->uuids[i], "%.47s", device.uuid);
  char limit[STOW_SIZE_TEXT_MAX], total[STOW_SIZE_TEXT_MAX];
  if (limits->vram_from != NULL && limits->vram_bytes[i] != LEDGER_UNLIMITED &&
      limits->vram_bytes[i] > device.total_bytes)
    output_error("stowage run: %s: device %u has only %s, so its limit of %s has no effect\n",
                 limits->vram_from, i, stow_size_format(total, device.total_bytes),
                 stow_size_format(limit, limits->vram_bytes[i]));
}

void run_limits_apply(const run_limits *limits, ledger *l) {
  for (int i = 0; i < LEDGER_DEVICES_MAX; i++)
    l->header->vram_limit_bytes[i] = limits->vram_bytes[i];
  l->header->spill_limit_bytes = limits->spill_bytes;
  const char *list = getenv("CUDA_VISIBLE_DEVICES");
  snprintf(l->header->visible_devices, sizeof l->header->visible_devices, "%s",
           list != NULL ? list : "");
  if (limits->vram_from == NULL && limits->spill_bytes == 0) return;
  hostmem memory;
  if (!limits->spill_auto && limits->spill_bytes > 0 && hostmem_read(&memory) == STOW_OK &&
      memory.usable_bytes < limits->spill_bytes) {
    char usable[STOW_SIZE_TEXT_MAX], asked[STOW_SIZE_TEXT_MAX];
    output_error(
        "stowage run: --spill %s: this host can provide only %s now; no more than that is used\n",
        stow_size_format(asked, limits->spill_bytes),
        stow_size_format(usable, memory.usable_bytes));
  }
}

static bool asks(const run_limits *limits) {
  return limits->vram_from != NULL || limits->spill_bytes > 0;
}

/* Takes the first reading. Returns NULL if nothing needs it, or without NVML. */
static nvml *look(const run_limits *limits, ledger *l) {
  nvml *n = NULL;
  if (asks(limits) && nvml_open(&n) == STOW_OK) {
    for (unsigned i = 0; i < LEDGER_DEVICES_MAX && (int)i < nvml_count(n); i++)
      look_at_device(limits, l, n, i);
    for (int i = nvml_count(n); i < LEDGER_DEVICES_MAX; i++)
      if (limits->named >> i & 1)
        output_error("stowage run: %s: there is no device %d, so its limit has no effect\n",
                     limits->vram_from, i);
  }
  atomic_store(&l->header->devices_known, 1);
  return n;
}

void run_limits_look(const run_limits *limits, ledger *l) {
  nvml_close(look(limits, l));
}

/* Returns true if the run holds nothing on the device and has announced nothing. */
static bool is_absent(const ledger *l, unsigned i) {
  ledger_totals totals;
  ledger_sum(l, i, &totals);
  return totals.vram_bytes == 0 && totals.begun == 0;
}

/* Reads again what other programs hold. A context is measured as the rise of the device's use above
 * that figure, so the figure must be recent: while a program loads its libraries for seconds,
 * others may allocate. */
static void look_again(ledger *l, nvml *n) {
  for (unsigned i = 0; i < LEDGER_DEVICES_MAX; i++) {
    nvml_device device;
    int index = -1;
    if (l->header->uuids[i][0] == '\0' || nvml_find(n, l->header->uuids[i], &index) != STOW_OK ||
        nvml_device_at(n, index, &device) != STOW_OK || !device.memory_known)
      continue;
    /* Checked after the figure was read, so the figure predates any context of the run. */
    if (is_absent(l, i)) atomic_store(&l->header->others_bytes[i], device.used_bytes);
  }
}

static struct {
  const run_limits *limits;
  ledger *l;
  pthread_t thread;
  bool runs;
  pthread_mutex_t lock; /* guards `ends` */
  pthread_cond_t wake;
  bool ends;
  nvml *left_open; /* still open when the process ends */
} aside;

/* Waits a tenth of a second. Returns false at the end. Uses the monotonic clock: if the wall
 * clock is set back an hour, a wait by that clock takes an hour. */
static bool rest(void) {
  struct timespec until;
  clock_gettime(CLOCK_MONOTONIC, &until);
  until.tv_nsec += AGAIN_NS;
  if (until.tv_nsec >= SECOND_NS) until.tv_sec++, until.tv_nsec -= SECOND_NS;
  pthread_mutex_lock(&aside.lock);
  while (!aside.ends && pthread_cond_timedwait(&aside.wake, &aside.lock, &until) == 0) continue;
  bool goes_on = !aside.ends;
  pthread_mutex_unlock(&aside.lock);
  return goes_on;
}

static void *look_thread(void *user) {
  ledger *l = aside.l;
  nvml *devices = look(aside.limits, l);
  bool known = devices != NULL;
  (void)user;
  for (int round = 1; known && rest(); round++) {
    bool absent = true;
    if (round % (SECOND_NS / AGAIN_NS) == 0) ledger_reap(l); /* reads the state of every process */
    for (unsigned i = 0; i < LEDGER_DEVICES_MAX && absent; i++) absent = is_absent(l, i);
    if (absent && devices == NULL) known = nvml_open(&devices) == STOW_OK;
    if (absent && known) look_again(l, devices);
    if (absent) continue;
    /* Close it now, while the command runs: at the end its milliseconds would delay the exit. */
    nvml_close(devices);
    devices = NULL;
  }
  aside.left_open = devices;
  return NULL;
}

static bool start_thread(void) {
  pthread_condattr_t monotonic;
  if (pthread_condattr_init(&monotonic) != 0) return false;
  bool ready = pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC) == 0 &&
               pthread_mutex_init(&aside.lock, NULL) == 0 &&
               pthread_cond_init(&aside.wake, &monotonic) == 0;
  pthread_condattr_destroy(&monotonic);
  return ready && pthread_create(&aside.thread, NULL, look_thread, NULL) == 0;
}

void run_limits_look_aside(const run_limits *limits, ledger *l) {
  sigset_t all, mask;
  if (!asks(limits)) {
    atomic_store(&l->header->devices_known, 1);
    return;
  }
  aside.limits = limits;
  aside.l = l;
  /* Block all signals: the first thread waits for some of them. */
  sigfillset(&all);
  sigdelset(&all, SIGBUS); /* ledger_guard handles it on the thread that raises it */
  pthread_sigmask(SIG_BLOCK, &all, &mask);
  aside.runs = start_thread();
  pthread_sigmask(SIG_SETMASK, &mask, NULL);
  if (!aside.runs) run_limits_look(limits, l);
}

bool run_limits_looked(void) {
  if (!aside.runs) return true;
  bool known = atomic_load(&aside.l->header->devices_known) != 0;
  if (!known && atomic_load(&aside.l->header->processes) == 0) return false;
  pthread_mutex_lock(&aside.lock);
  aside.ends = true;
  pthread_cond_signal(&aside.wake);
  pthread_mutex_unlock(&aside.lock);
  pthread_join(aside.thread, NULL);
  aside.runs = false;
  return true;
}
