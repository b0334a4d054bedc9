/* PyTorch's allocator texts.
 *
 *   1.0–1.3  Tried to allocate A (GPU 0; C total capacity; L already allocated; F free; R cached)
 *   1.4–2.0  Tried to allocate A (GPU 0; C total capacity; L already allocated; F free; R reserved
 *            in total by PyTorch)
 *   2.1–     Tried to allocate A. GPU 0 has a total capacity of C of which F is free. Process P has
 *            M memory in use. Including non-PyTorch memory, this process has M memory in use.
 *            X allowed; Of the allocated memory L is allocated by PyTorch, with G allocated in
 *            private pools (e.g., CUDA Graphs), and R is reserved by PyTorch but unallocated.
 *   async    Allocation on device 0 would exceed allowed memory. (out of memory) Currently
 * allocated : L Requested : A Device limit : C Free (according to CUDA): F PyTorch limit (set by
 *            user-supplied memory fraction) : X     (backend:cudaMallocAsync)
 *   MPS      (MPS allocated: L, other allocations: O, max allowed: X). Tried to allocate A on …
 *
 * CUDA, HIP, XPU, NPU and MUSA use the same sentence. Parts may be missing: people cut texts, and
 * some devices omit parts. Every part is found by its own words. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "advise/message_parts.h"

#define STATEMENT_LEAD 400 /* the words "out of memory" are at most this far before */
#define DEVICE_WITHIN  60  /* characters after the size in which the device is named */
#define FAILURES_SEEN  64  /* failures that are compared */
/* Intel's: "Current platform can NOT allocate memory block with size larger than 4GB!" */
#define ONE_BLOCK "memory block with size larger than"

/* Parses what was requested. PyTorch always writes a unit: a number without one lost it. */
static uint64_t requested(scan_text t, const char *tried) {
  bool unit = false;
  const char *end = tried;
  scan_size_to(t, tried, &unit, &end);
  return unit ? scan_size(t, tried) : MESSAGE_UNKNOWN;
}

/* Parses "Process 728 has 120.51 GiB memory in use." for each other process. */
static void read_processes(message *m, scan_text t) {
  const char *at = t.at;
  while ((at = scan_find(scan_from(t, at), "Process ")) != NULL) {
    uint64_t pid = scan_number(t, at);
    const char *has = scan_find(scan_from(t, at), " has ");
    if (pid >= UINT32_MAX || has == NULL || has - at > 16) continue;
    uint64_t bytes = scan_size(t, has);
    if (!known(bytes) || m->process_count == MESSAGE_PROCESSES_MAX) continue;
    m->processes[m->process_count++] = (message_process){(uint32_t)pid, bytes};
  }
}

/* Sorts the processes by what they hold, the largest first. */
static int compare_processes(const void *a, const void *b) {
  uint64_t left = ((const message_process *)a)->bytes, right = ((const message_process *)b)->bytes;
  return left < right ? 1 : left > right ? -1 : 0;
}

/* Finds this process among the listed ones. In a container a process does not know its own PID and
 * is listed like the others: it is the one that holds what PyTorch has reserved, and the least in
 * addition. */
static void find_own_process(message *m) {
  if (known(m->process_bytes) || !known(m->live_bytes) || !known(m->cached_bytes)) return;
  uint32_t own = UINT32_MAX;
  for (uint32_t i = 0; i < m->process_count; i++)
    if (m->processes[i].bytes >= m->live_bytes + m->cached_bytes &&
        (own == UINT32_MAX || m->processes[i].bytes < m->processes[own].bytes))
      own = i;
  if (own == UINT32_MAX) return;
  m->process_bytes = m->processes[own].bytes;
  m->processes[own] = m->processes[--m->process_count];
}

/* Parses Apple's text. Its device memory is host memory, so the limit takes the place of the
 * device's size. PyTorch's GB there are 1024 MB. */
static void read_apple(message *m, scan_text t) {
  m->asked_bytes = scan_size_binary_after(t, "Tried to allocate ");
  m->live_bytes = scan_size_binary_after(t, "MPS allocated: ");
  m->outside_bytes = scan_size_binary_after(t, "other allocations: ");
  m->limit_bytes = scan_size_binary_after(t, "max allowed: ");
  m->no_history = true;
  m->context.seen |= CONTEXT_BIT(APPLE) | CONTEXT_BIT(MAC);
}

static void read_new(message *m, scan_text t) {
  m->device_bytes = scan_size_after(t, "has a total capacity of ");
  if (!known(m->device_bytes)) /* as 2.1 spells it */
    m->device_bytes = scan_size_after(t, "has a total capacty of ");
  if (!known(m->device_bytes)) m->device_bytes = scan_size_before(t, " of which "); /* cut off */
  m->free_bytes = scan_size_after(t, " of which ");
  m->process_bytes = scan_size_after(t, "this process has ");
  m->live_bytes = scan_size_after(t, "Of the allocated memory ");
  if (!known(m->live_bytes)) m->live_bytes = scan_size_after(t, "llocated so far: ");
  m->cached_bytes = scan_size_before(t, " is reserved by PyTorch but unallocated");
  m->graph_bytes = scan_size_before(t, " allocated in private pools");
  if (!known(m->cached_bytes)) /* a line that was wrapped within a word */
    m->cached_bytes = scan_size_after(t, " is allocated by PyTorch, and ");
  m->limit_bytes = scan_size_before(t, " allowed; Of the");
  if (!known(m->limit_bytes))
    m->limit_bytes = scan_size_before(t, " allowed; Including non-PyTorch");
  read_processes(m, t);
  /* Some containers report their own process as holding nothing. */
  if (m->process_bytes == 0 && known(m->live_bytes) && m->live_bytes > 0)
    m->process_bytes = MESSAGE_UNKNOWN;
  find_own_process(m);
  qsort(m->processes, m->process_count, sizeof *m->processes, compare_processes);
}

static void read_old(message *m, scan_text t) {
  m->device_bytes = scan_size_before(t, " total capacity");
  m->live_bytes = scan_size_before(t, " already allocated");
  m->free_bytes = scan_size_before(t, " free;");
  uint64_t cached = scan_size_before(t, " cached");
  if (known(cached)) {
    m->cached_bytes = cached;
    return;
  }
  m->reserved_bytes = scan_size_before(t, " reserved in total");
  if (known(m->reserved_bytes) && known(m->live_bytes) && m->reserved_bytes >= m->live_bytes)
    m->cached_bytes = m->reserved_bytes - m->live_bytes;
}

/* Derives the version from the wording, if nothing else states it. */
static void read_version(context *c, scan_text t) {
  static const struct {
    const char *words;
    uint16_t from, to;
  } wordings[] = {{" cached)", 100, 103},
                  {"reserved in total by PyTorch) If reserved", 111, 200},
                  {"reserved in total by PyTorch)\n", 104, 109},
                  {"reserved in total", 104, 200},
                  {"already allocated", 100, 200},
                  {"has a total capacty of", 201, 201},
                  {"expandable_segments:True to avoid", 202, UINT16_MAX},
                  {"has a total capacity of", 201, UINT16_MAX}};
  for (size_t i = 0; i < sizeof wordings / sizeof *wordings; i++) {
    if (!scan_has(t, wordings[i].words)) continue;
    if (c->torch_from < wordings[i].from) c->torch_from = wordings[i].from;
    if (c->torch_to > wordings[i].to) c->torch_to = wordings[i].to;
    return;
  }
}

static void read_vendor(context *c, scan_text t) {
  if (scan_has(t, "HIP out of memory")) c->seen |= CONTEXT_BIT(AMD);
  if (scan_has(t, "XPU out of memory") || scan_has(t, ONE_BLOCK)) c->seen |= CONTEXT_BIT(INTEL);
  if (scan_has(t, "NPU out of memory")) c->seen |= CONTEXT_BIT(NPU);
  if (scan_has(t, "CUDA out of memory") && !context_any(c, CONTEXT_BIT(AMD)))
    c->seen |= CONTEXT_BIT(NVIDIA);
}

/* Returns where the statement begins: at "out of memory", or at the requested size. */
static const char *statement_start(scan_text t, const char *tried) {
  const char *low = tried - t.at > STATEMENT_LEAD ? tried - STATEMENT_LEAD : t.at;
  const char *start = tried, *at = low, *found = NULL;
  while (scan_find_at((scan_text){at, tried}, "out of memory", &found) != NULL) {
    start = found - 5 >= t.at ? found - 5 : t.at; /* including "CUDA " */
    at = found + 1;
  }
  if (start == tried && scan_find_at((scan_text){low, tried}, ONE_BLOCK, &found) != NULL)
    start = found;
  return start;
}

/* Returns whether a statement of PyTorch is at `tried`, the position after "Tried to allocate ". */
static bool is_statement(scan_text t, const char *tried) {
  if (tried >= t.end || !isdigit((unsigned char)*tried)) return false;
  scan_text tail = {tried, tried + STATEMENT_LEAD < t.end ? tried + STATEMENT_LEAD : t.end};
  const char *begin = statement_start(t, tried);
  return begin != tried || scan_has(tail, "total capac") || scan_has(t, "OutOfMemory");
}

/* Failures in one text. The same size on the same device is the same failure, because reports
 * repeat it; the same size on another device is another rank's. */
typedef struct seen_failures {
  uint64_t bytes[FAILURES_SEEN], device[FAILURES_SEEN];
  uint32_t count;
} seen_failures;

/* People write MB for MiB when they repeat an error in their own words. */
static bool same_rounded(uint64_t a, uint64_t b) {
  return a < b ? b - a < b / 12 : a - b < a / 12;
}

static void count_failure(seen_failures *seen, scan_text t, const char *tried) {
  scan_text tail = {tried, tried + DEVICE_WITHIN < t.end ? tried + DEVICE_WITHIN : t.end};
  uint64_t bytes = requested(t, tried);
  const char *named = scan_find(tail, ". GPU ");
  if (named == NULL) named = scan_find(tail, "(GPU ");
  uint64_t device = named != NULL ? scan_number(tail, named) : SCAN_UNKNOWN;
  uint32_t known_count = seen->count < FAILURES_SEEN ? seen->count : FAILURES_SEEN;
  for (uint32_t i = 0; i < known_count; i++)
    if ((seen->bytes[i] == bytes ||
         (device == SCAN_UNKNOWN && same_rounded(bytes, seen->bytes[i]))) &&
        (device == SCAN_UNKNOWN || seen->device[i] == device))
      return;
  if (seen->count < FAILURES_SEEN) {
    seen->bytes[seen->count] = bytes;
    seen->device[seen->count] = device;
  }
  seen->count++;
}

/* Parses the text of the cudaMallocAsync backend. X is below zero in disguise if none is set. */
static bool read_async(message *m, scan_text t, const char **where) {
  const char *start = NULL;
  if (scan_find_at(t, "would exceed allowed memory", &start) == NULL &&
      scan_find_at(t, "Free (according to CUDA)", &start) == NULL)
    return false;
  scan_text s = scan_from(t, start);
  m->asked_bytes = scan_size_after(s, "Requested : ");
  m->live_bytes = scan_size_after(s, "Currently allocated : ");
  m->device_bytes = scan_size_after(s, "Device limit : ");
  m->free_bytes = scan_size_after(s, "Free (according to CUDA): ");
  if (!known(m->asked_bytes) && !known(m->live_bytes)) return false;
  uint64_t limit = scan_size_after(s, "memory fraction) : ");
  if (known(limit) && known(m->device_bytes) && limit < m->device_bytes) m->limit_bytes = limit;
  if (where != NULL) *where = start;
  m->kind = MESSAGE_TORCH;
  m->failures = 1;
  m->context.seen |= CONTEXT_BIT(TORCH);
  if (!context_any(&m->context, CONTEXT_BIT(AMD))) m->context.seen |= CONTEXT_BIT(NVIDIA);
  if (m->context.torch_from < 200) m->context.torch_from = 200; /* the backend is new in 2.0 */
  m->async = true;
  return true;
}

/* "RuntimeError: Invalid buffer size: 15.62 GB", of MPS: Metal gives no buffer of that size. Or an
 * assertion of Metal about the sizes of one array: "[MPSTemporaryNDArray
 * initWithDevice:descriptor:] Error: total bytes of NDArray > 2**32". */
static bool read_buffer(message *m, scan_text t, const char **where) {
  static const char *const arrays[] = {"total bytes of NDArray > ", "product of dimension sizes > ",
                                       "NDArray dimension length > "};
  const char *start = NULL;
  const char *at = scan_find_at(t, "Invalid buffer size: ", &start);
  m->asked_bytes = at != NULL ? scan_size_binary(t, at) : MESSAGE_UNKNOWN;
  bool array = false;
  for (size_t i = 0; i < sizeof arrays / sizeof *arrays && !array && !known(m->asked_bytes); i++)
    array = scan_find_at(t, arrays[i], &start) != NULL;
  if (!known(m->asked_bytes) && !array) return false;
  if (array && scan_has(t, "> 2**32")) m->limit_bytes = UINT64_C(1) << 32;
  if (where != NULL) *where = start;
  m->kind = MESSAGE_TORCH;
  m->failures = 1;
  m->no_history = true;
  m->details |= MESSAGE_ONE_BUFFER;
  m->context.seen |= CONTEXT_BIT(TORCH) | CONTEXT_BIT(APPLE) | CONTEXT_BIT(MAC);
  return true;
}

/* Finds a statement whose beginning was cut off: its numbers, without what was requested. */
static const char *cut_statement(scan_text t) {
  const char *start = NULL, *found = NULL;
  if (scan_find_at(t, " already allocated; ", &start) != NULL &&
      known(scan_size_before(scan_line(t, start), " already allocated")) &&
      scan_has(scan_from(t, start), " free; "))
    return scan_line(t, start).at;
  if (scan_find_at(t, "Of the allocated memory ", &start) != NULL &&
      known(scan_size_before(scan_from(t, start), " is allocated by PyTorch")) &&
      scan_find_at(scan_from(t, start), "is reserved by PyTorch but unallocated", &found) != NULL)
    return scan_line(t, start).at;
  return NULL;
}

uint64_t message_torch_held(scan_text t) {
  uint64_t held = MESSAGE_UNKNOWN;
  for (const char *at; (at = scan_find(t, "Of the allocated memory ")) != NULL; t.at = at)
    held = scan_size(t, at);
  return known(held) ? held : scan_size_before(t, " already allocated");
}

bool message_torch(message *m, scan_text t, const char **where) {
  const char *tried = t.at, *first = NULL, *next = NULL, *found = NULL;
  seen_failures seen = {.count = 0};
  for (scan_text rest = t; (tried = scan_find_at(rest, "Tried to allocate ", &found)) != NULL;
       rest.at = tried) {
    if (!is_statement(t, tried)) continue;
    if (first == NULL)
      first = tried;
    else if (next == NULL)
      next = found;
    count_failure(&seen, t, tried);
  }
  m->failures = seen.count;
  if (seen.count > 1) m->next_bytes = seen.bytes[1];
  if (first == NULL && scan_find_at(t, "out of memory. Tried to allocate more than 1EB", &found)) {
    m->kind = MESSAGE_TORCH;
    m->failures = 1;
    m->asked_bytes = SCAN_HUGE; /* the size overflowed, and PyTorch says so */
    m->context.seen |= CONTEXT_BIT(TORCH);
    read_vendor(&m->context, t);
    if (where != NULL) *where = found;
    return true;
  }
  if (first == NULL && read_buffer(m, t, where)) return true;
  if (first == NULL && read_async(m, t, where)) return true;
  const char *begin = first != NULL ? statement_start(t, first) : cut_statement(t);
  if (begin == NULL) return false;
  if (first == NULL) m->failures = 1;
  scan_text s = {begin, next != NULL ? next : t.end};
  if (where != NULL) *where = begin;
  m->kind = MESSAGE_TORCH;
  m->context.seen |= CONTEXT_BIT(TORCH);
  if (first != NULL) m->asked_bytes = requested(s, first);
  uint64_t device = scan_number_after(s, "GPU ");
  m->device = device < UINT32_MAX ? (uint32_t)device : UINT32_MAX;
  read_version(&m->context, s);
  read_vendor(&m->context, s);
  if (scan_has(s, ONE_BLOCK)) m->details |= MESSAGE_ONE_BUFFER;
  if (scan_has(s, "MPS allocated:") || scan_has(s, "MPS backend")) {
    read_apple(m, s);
    return true;
  }
  if (scan_has(t, "backend:cudaMallocAsync")) m->async = true;
  read_new(m, s);
  if (!known(m->device_bytes) && !known(m->live_bytes)) read_old(m, s);
  /* Only Windows lets a program hold more than the device has: the rest is RAM. */
  if (known(m->live_bytes) && known(m->device_bytes) && m->process_count == 0 &&
      m->live_bytes > m->device_bytes + m->device_bytes / 50 &&
      !context_any(&m->context, CONTEXT_BIT(LINUX)))
    m->context.seen |= CONTEXT_BIT(WINDOWS);
  /* An unsigned number that went below zero. */
  if (known(m->free_bytes) && known(m->device_bytes) && m->free_bytes > m->device_bytes)
    m->free_bytes = MESSAGE_UNKNOWN;
  return true;
}
