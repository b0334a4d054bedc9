/* Limits on host memory in a text, and what was used of them: Slurm's sacct and seff, Kubernetes,
 * Docker, the kernel's log of a control group, Ray and Dask. message_host.c calls it. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "advise/message_parts.h"

#define RAY_PAIR 40 /* characters of "29.91GB / 31.14GB", with a line end between */

static void take(uint64_t *to, uint64_t bytes) {
  if (!known(*to)) *to = bytes;
}

/* ---- Slurm ---- */

/* A size in a table of sacct, "32G", "33532104K", "4000Mn" (per node) or "4Gc" (per core). */
static uint64_t read_cell(scan_text cell) {
  static const char units[] = "KMGT";
  double value = 0, scale = 1;
  const char *p = cell.at;
  bool fraction = false;
  for (; p < cell.end && (isdigit((unsigned char)*p) || (*p == '.' && !fraction)); p++) {
    if (*p == '.') {
      fraction = true;
      continue;
    }
    value = value * 10 + (*p - '0');
    if (fraction) scale *= 10;
  }
  char letter = p > cell.at && p < cell.end ? (char)toupper((unsigned char)*p) : '\0';
  const char *unit = letter != '\0' ? strchr(units, letter) : NULL;
  if (unit == NULL || cell.end - p > 2 || (cell.end - p == 2 && p[1] != 'n' && p[1] != 'c'))
    return MESSAGE_UNKNOWN;
  for (long i = 0; i <= unit - units; i++) value *= 1024;
  return value / scale < 0x1p62 ? (uint64_t)(value / scale) : MESSAGE_UNKNOWN;
}

/* The size after an option: "--mem=24G", "--memory=3g", "mem_limit: 512m". */
static uint64_t option(scan_text t, const char *words) {
  const char *at = scan_find(t, words);
  if (at == NULL) return MESSAGE_UNKNOWN;
  scan_text cell = {at, at};
  while (cell.end < t.end && (isalnum((unsigned char)*cell.end) || *cell.end == '.')) cell.end++;
  uint64_t bytes = read_cell(cell);
  return known(bytes) ? bytes : scan_size_binary(t, at);
}

/* Where a column of the header ends, and its number between bars. */
typedef struct column {
  long end;
  int field;
} column;

static bool is_gap(char c) {
  return c == ' ' || c == '\t' || c == '|' || c == '\r';
}

/* Takes the next cell off `line`; counts the bars before it. */
static bool next_cell(scan_text *line, scan_text *cell, int *field) {
  const char *p = line->at;
  for (; p < line->end && is_gap(*p); p++) *field += *p == '|';
  cell->at = p;
  while (p < line->end && !is_gap(*p)) p++;
  cell->end = p;
  line->at = p;
  return cell->end > cell->at;
}

static bool find_column(scan_text header, const char *name, column *to) {
  scan_text rest = header, cell;
  int field = 0;
  while (next_cell(&rest, &cell, &field))
    if ((size_t)(cell.end - cell.at) == strlen(name) && memcmp(cell.at, name, strlen(name)) == 0) {
      *to = (column){cell.end - header.at, field};
      return true;
    }
  return false;
}

static long distance(long a, long b) {
  return a > b ? a - b : b - a;
}

/* "JobID State ReqMem MaxRSS", a line of dashes, then rows whose cells may be empty: cells end
 * where their header ends, or have its number between bars. */
static void read_sacct(message *m, scan_text t) {
  const char *at = NULL;
  scan_text rest = t, line;
  column asked = {-1, -1}, used = {-1, -1};
  if (scan_find_at(t, "ReqMem", &at) == NULL && scan_find_at(t, "MaxRSS", &at) == NULL) return;
  bool found = false;
  uint64_t most = 0;
  while (scan_next_line(&rest, &line)) {
    if (!found) {
      bool a = find_column(line, "ReqMem", &asked), b = find_column(line, "MaxRSS", &used);
      found = a || b;
      continue;
    }
    bool bars = memchr(line.at, '|', (size_t)(line.end - line.at)) != NULL;
    scan_text left = line, cell;
    int field = 0;
    while (next_cell(&left, &cell, &field)) {
      uint64_t bytes = read_cell(cell);
      if (!known(bytes) || bytes == 0) continue;
      long end = cell.end - line.at;
      bool request = bars            ? field == asked.field
                     : asked.end < 0 ? false
                     : used.end < 0  ? true
                                     : distance(end, asked.end) <= distance(end, used.end);
      bool use = bars ? field == used.field : used.end >= 0 && !request;
      /* A table that was pasted has often lost its columns; only what was used is in KiB. */
      if (!bars && memchr(cell.at, 'K', (size_t)(cell.end - cell.at)) != NULL && used.end >= 0)
        request = false, use = true;
      if (request) take(&m->limit_bytes, bytes);
      if (use && bytes > most) most = bytes;
    }
  }
  if (most > 0) take(&m->process_bytes, most);
}

/* "StepId=11300781.0", "StepId=191.batch", "step 3495064.0 cgroup", "Job ID: 77" */
static void read_job_number(message *m, scan_text t) {
  static const char *const words[] = {"StepId=", "JobId=", "Job ID: ", "in step ", "STEP ", "JOB "};
  for (size_t i = 0; i < sizeof words / sizeof *words && m->job == 0; i++) {
    uint64_t number = scan_number_after(t, words[i]);
    if (known(number) && number < UINT64_C(1) << 40) m->job = number;
  }
}

/* PBS: "job killed: vmem 3372163072 exceeded limit 2147483648", in bytes; "mem 4194304kb exceeded
 * limit 2097152kb". Virtual memory is what a program has addresses for, not RAM. */
static void read_pbs(message *m, scan_text t) {
  const char *at = scan_find(t, "job killed: vmem ");
  if (at != NULL) m->details |= MESSAGE_ADDRESSES;
  if (at == NULL) at = scan_find(t, "job killed: mem ");
  if (at == NULL) return;
  scan_text line = {at, scan_line(t, at).end};
  uint64_t used = scan_size(line, at), limit = scan_size_after(line, "exceeded limit ");
  if (!known(used) || !known(limit) || used < limit) return;
  take(&m->limit_bytes, limit);
  take(&m->process_bytes, used);
}

static void read_job(message *m, scan_text t) {
  read_job_number(m, t);
  read_pbs(m, t);
  /* seff; its units are powers of 1024 */
  const char *share = scan_find(t, "Memory Efficiency: ");
  take(&m->process_bytes, scan_size_binary_after(t, "Memory Utilized: "));
  if (share != NULL) take(&m->limit_bytes, scan_size_binary_after(scan_from(t, share), "% of "));
  /* "exceeded memory limit (33554432 > 32768000), being killed", in KiB */
  const char *pair = scan_find(t, "exceeded memory limit (");
  uint64_t used = scan_number(t, pair);
  uint64_t limit = pair != NULL ? scan_number_after(scan_from(t, pair), "> ") : MESSAGE_UNKNOWN;
  if (known(used) && known(limit) && used < UINT64_C(1) << 40 && limit <= used) {
    take(&m->process_bytes, used << 10);
    take(&m->limit_bytes, limit << 10);
  }
  read_sacct(m, t);
  /* HTCondor: "gone over memory limit of 4096 megabytes. Peak usage: 4410 megabytes", in newer
   * versions "gone over cgroup memory limit of …. Last measured usage: …"; then Grid Engine */
  uint64_t most = scan_number_after(t, "gone over memory limit of ");
  uint64_t peak = scan_number_after(t, "Peak usage: ");
  if (!known(most)) most = scan_number_after(t, "gone over cgroup memory limit of ");
  if (!known(peak)) peak = scan_number_after(t, "Last measured usage: ");
  if (most < UINT64_C(1) << 30) take(&m->limit_bytes, most << 20);
  if (most < UINT64_C(1) << 30 && peak < UINT64_C(1) << 30) take(&m->process_bytes, peak << 20);
  take(&m->process_bytes, scan_size_binary_after(t, "maxvmem "));
  take(&m->process_bytes, scan_size_binary_after(t, "Max Memory : ")); /* LSF */
  take(&m->limit_bytes, scan_size_binary_after(t, "Total Requested Memory : "));
  static const char *const options[] = {"--mem=", "--mem ", "-l mem=", ",mem="};
  for (size_t i = 0; i < sizeof options / sizeof *options; i++)
    take(&m->limit_bytes, option(t, options[i]));
  uint64_t each = option(t, "--mem-per-cpu="), cores = scan_number_after(t, "--cpus-per-task=");
  if (known(each) && known(cores) && cores > 0 && cores < 1 << 16 && each < UINT64_C(1) << 46)
    take(&m->limit_bytes, each * cores);
}

/* ---- containers ---- */

/* The memory below "Limits:", before any other "Requests:". */
static void read_container(message *m, scan_text t) {
  static const char *const heads[] = {"Limits:", "limits:", "\"limits\":"};
  for (size_t i = 0; i < sizeof heads / sizeof *heads && !known(m->limit_bytes); i++) {
    const char *at = scan_find(t, heads[i]), *end = NULL;
    if (at == NULL) continue;
    scan_text part = {at, at + 300 < t.end ? at + 300 : t.end};
    if (scan_find_at(part, "equests", &end) != NULL) part.end = end;
    const char *size = scan_find(part, "memory:");
    if (size == NULL) size = scan_find(part, "\"memory\":");
    while (size != NULL && size < part.end && (*size == ' ' || *size == '"' || *size == '\''))
      size++;
    m->limit_bytes = scan_size(part, size);
  }
  /* AWS Lambda: "Memory Size: 512 MB  Max Memory Used: 512 MB" */
  if (scan_has(t, "Max Memory Used: ")) {
    take(&m->limit_bytes, scan_size_binary_after(t, "Memory Size: "));
    take(&m->process_bytes, scan_size_binary_after(t, "Max Memory Used: "));
  }
  /* Heroku: "Process running mem=1126M(220.0%)" */
  const char *running = scan_find(t, "Process running mem=");
  const char *share = running != NULL ? scan_find(scan_line(t, running), "(") : NULL;
  uint64_t held = scan_size_binary(t, running), percent = scan_number(t, share);
  if (known(held) && percent > 0 && percent < 10000 && held < UINT64_C(1) << 50) {
    take(&m->process_bytes, held);
    /* A dyno's quota is a multiple of 512 MiB. */
    uint64_t quota = (held / percent * 100 + (UINT64_C(256) << 20)) >> 29 << 29;
    take(&m->limit_bytes, quota > 0 ? quota : MESSAGE_UNKNOWN);
  }
  static const char *const options[] = {"--memory=", "--memory ",
                                        "mem_limit: ", "mem_limit=", "docker run -m "};
  for (size_t i = 0; i < sizeof options / sizeof *options; i++)
    take(&m->limit_bytes, option(t, options[i]));
  const char *stats = scan_find(t, "MEM USAGE / LIMIT");
  const char *pair = stats != NULL ? scan_find(scan_from(t, scan_line(t, stats).end), " / ") : NULL;
  if (pair != NULL &&
      !scan_has(scan_from(t, scan_line(t, pair).end), "iB / ")) { /* one container */
    take(&m->limit_bytes, scan_size(t, pair));
    take(&m->process_bytes, scan_size_before(scan_line(t, pair), " / "));
  }
  m->grouped = scan_has(t, "OOMKilled");
}

/* "available: 61448Ki. Container main was using 14876Mi, request is 8Gi", or "… which exceeds its
 * request of 8Gi". Of several containers, the largest counts. */
static void read_evicted(message *m, scan_text t) {
  static const char words[] = " was using ";
  uint64_t most = 0;
  take(&m->free_bytes, scan_size_after(t, "available: "));
  for (const char *at = scan_find(t, words); at != NULL; at = scan_find(scan_from(t, at), words)) {
    scan_text rest = scan_from(t, at), part = rest;
    scan_find_at(rest, words, &part.end);
    uint64_t used = scan_size(rest, at), requested = scan_size_after(part, "request is ");
    if (!known(requested)) requested = scan_size_after(part, "its request of ");
    if (!known(used) || used <= most) continue;
    m->process_bytes = most = used;
    m->requested_bytes = known(requested) ? requested : 0;
  }
}

/* "memory: usage 8388608kB, limit 8388608kB, failcnt 41120" */
static void read_group(message *m, scan_text t) {
  const char *usage = scan_find(t, "memory: usage ");
  if (usage != NULL) take(&m->limit_bytes, scan_size_after(scan_line(t, usage), "limit "));
}

/* The table of the node's largest processes: "PID MEM(GB) COMMAND", then "3982 9.11 python …". */
static void read_ray_users(message *m, scan_text t) {
  const char *head = scan_find(t, "MEM(GB)");
  if (head == NULL) return;
  scan_text rest = {scan_line(t, head).end, t.end}, line;
  if (!scan_next_line(&rest, &line) || (line.at == line.end && !scan_next_line(&rest, &line)))
    return;
  const char *at = line.at;
  while (at < line.end && (isdigit((unsigned char)*at) || *at == ' ' || *at == '\t')) at++;
  if (at >= line.end || *at != '.') return;
  while (at > line.at && isdigit((unsigned char)at[-1])) at--;
  char size[16], command[72];
  scan_copy(size, sizeof size, line, at, " ");
  at += strlen(size);
  while (at < line.end && (*at == ' ' || *at == '\t')) at++;
  scan_copy(command, sizeof command, line, at, "");
  if (command[0] != '\0') snprintf(m->what, sizeof m->what, "%s GB %s", size, command);
}

/* "which exceeds the memory usage threshold of 0.95": Ray's limit is that part of the node's. */
static void read_ray_threshold(message *m, scan_text t) {
  const char *at = scan_find(t, "memory usage threshold of 0.");
  double share = 0, scale = 1;
  for (; at != NULL && at < t.end && isdigit((unsigned char)*at) && scale < 1e6; at++)
    share = share * 10 + (*at - '0'), scale *= 10;
  share /= scale;
  if (share > 0.1 && known(m->device_bytes) && m->device_bytes < UINT64_C(1) << 50)
    take(&m->limit_bytes, (uint64_t)(share * (double)m->device_bytes));
}

/* "… was running was 29.91GB / 31.14GB (0.96), which exceeds", in newer versions "Memory on the
 * node (IP: …) was 29.91GB / 31.14GB", before Ray 2 "… of the memory on node n1 is used (11.8
 * / 12.3 GB)". Its GB are 1024 MB. */
static void read_ray(message *m, scan_text t) {
  const char *was = scan_find(t, "was running was "), *is = scan_find(t, " is used (");
  const char *node = scan_find(t, "Memory on the node ");
  m->process_bytes = scan_size_binary_after(t, "memory used=");
  read_ray_users(m, t);
  if (is != NULL) take(&m->device_bytes, scan_size_binary_after(scan_line(t, is), " / "));
  if (was == NULL && node != NULL) was = scan_find(scan_from(t, node), ") was ");
  if (was == NULL) return;
  uint64_t used = scan_size_binary(t, was);
  scan_text pair = {was, was + RAY_PAIR < t.end ? was + RAY_PAIR : t.end}; /* may be wrapped */
  take(&m->device_bytes, scan_size_binary_after(pair, " / "));
  if (known(used) && known(m->device_bytes) && used <= m->device_bytes)
    take(&m->free_bytes, m->device_bytes - used);
  read_ray_threshold(m, t);
}

static void read_dask(message *m, scan_text t) {
  take(&m->limit_bytes, scan_size_after(t, "orker memory limit: "));
  take(&m->process_bytes, scan_size_after(t, "rocess memory: "));
  take(&m->process_bytes, scan_size_after(t, "nmanaged memory: "));
}

void message_limits(message *m, scan_text t) {
  switch (m->host) {
  case HOST_JOB: read_job(m, t); break;
  case HOST_CONTAINER: read_container(m, t); break;
  case HOST_EVICTED: read_evicted(m, t); break;
  case HOST_KERNEL:
    if (m->grouped) read_group(m, t);
    break;
  case HOST_RAY: read_ray(m, t); break;
  case HOST_DASK: read_dask(m, t); break;
  default: break;
  }
}
