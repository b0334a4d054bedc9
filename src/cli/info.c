/* stowage info: shows the machine and its devices, the capacity and use of each tier, and which
 * processes hold memory. Works without a GPU and then says why there is none. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <stowage/device.h>
#include <stowage/size.h>
#include <stowage/version.h>

#include "advise/spill_advice.h"
#include "base/hostmem.h"
#include "base/json.h"
#include "base/status.h"
#include "base/table.h"
#include "base/text.h"
#include "base/variables.h"
#include "cli/output.h"
#include "cli/verb.h"
#include "device/cuda_probe.h"
#include "watch/nvml.h"
#include "watch/proc.h"

typedef struct info_tier {
  bool known;
  uint64_t free_bytes, total_bytes;
} info_tier;

#define PROCESSES_MAX 64

typedef struct info_device {
  stow_device_props props;
  info_tier tiers[STOW_TIER_COUNT];
  bool processes_known;
  char processes_why[256]; /* why the processes are unknown */
  int process_count;       /* number of processes; the first PROCESSES_MAX are in the list */
  nvml_process processes[PROCESSES_MAX];
} info_device;

typedef struct info {
  host_facts host;
  hostmem memory;
  info_device *devices;
  size_t count;
  nvml *watch;         /* NULL if NVML is missing */
  char watch_why[256]; /* why NVML is missing */
  char no_gpu[512];    /* why there is no device; "" if there is one, or if it was not checked */
} info;

static stow_status read_device(info_device *into, const char *name) {
  stow_device *device;
  STOW_TRY(stow_device_open(&device, name));
  into->props = (stow_device_props)STOW_DEVICE_PROPS_INIT;
  stow_status status = stow_device_get_props(device, &into->props);
  for (int t = 0; t < STOW_TIER_COUNT; t++) {
    info_tier *tier = &into->tiers[t];
    tier->known =
        stow_device_memory(device, (stow_tier)t, &tier->free_bytes, &tier->total_bytes) == STOW_OK;
  }
  stow_status closed = stow_device_close(device);
  return status != STOW_OK ? status : closed;
}

/* Lists the processes that hold memory on the device. What NVML does not report stays unknown;
 * nothing is guessed. */
static void read_processes(info *all, info_device *device) {
  int index;
  if (all->watch == NULL) {
    snprintf(device->processes_why, sizeof device->processes_why, "%s", all->watch_why);
    return;
  }
  stow_status status = nvml_find(all->watch, device->props.uuid, &index);
  if (status == STOW_OK)
    status =
        nvml_processes(all->watch, index, device->processes, PROCESSES_MAX, &device->process_count);
  device->processes_known = status == STOW_OK;
  if (status != STOW_OK)
    snprintf(device->processes_why, sizeof device->processes_why, "%.255s", stow_status_message());
}

/* Reads the named device, or all devices. */
static stow_status read_devices(info *all, const char *name) {
  const char *environment = getenv(ENV_DEVICE);
  bool named = (name != NULL && name[0] != '\0') || (environment != NULL && environment[0] != '\0');
  int count = 1;
  if (!named) STOW_TRY(stow_device_count(&count));
  if (count == 0) {
    /* Opening the first device fails, and its message is the reason. */
    stow_device *none;
    if (stow_device_open(&none, "0") == STOW_OK) stow_device_close(none);
    snprintf(all->no_gpu, sizeof all->no_gpu, "%s", stow_status_message());
    return STOW_OK;
  }
  all->devices = calloc((size_t)count, sizeof *all->devices);
  if (all->devices == NULL)
    return stow_fail(STOW_ERR_HOST_MEMORY, "no host memory to list %d devices", count);
  for (int i = 0; i < count; i++) {
    char index[16];
    snprintf(index, sizeof index, "%d", i);
    STOW_TRY(read_device(&all->devices[i], named ? name : index));
    if (strcmp(all->devices[i].props.kind, "cuda") == 0) read_processes(all, &all->devices[i]);
    all->count++;
  }
  return STOW_OK;
}

/* ---- for people ---- */

static void print_host(const host_facts *host, const hostmem *memory) {
  char total[STOW_SIZE_TEXT_MAX], available[STOW_SIZE_TEXT_MAX];
  output_printf("%s  %s %s, %d CPU%s, %s RAM, %s available\n", output_bold("host"), host->system,
                host->machine, host->cpus, text_s((uint64_t)host->cpus),
                stow_size_format(total, memory->machine_total_bytes),
                stow_size_format(available, memory->machine_available_bytes));
  if (memory->limited)
    output_printf("  this container may use %s; %s of it is in use (cgroup v%d)\n",
                  stow_size_format(total, memory->limit_bytes),
                  stow_size_format(available, memory->limit_used_bytes), memory->cgroup_version);
}

static void print_title(const info *all, const stow_device_props *props) {
  char page[STOW_SIZE_TEXT_MAX];
  bool sim = strcmp(props->kind, "sim") == 0;
  output_printf("\n%s  %s", output_bold("device"), props->name);
  if (!sim) output_printf("  [%d] %s", props->index, props->uuid);
  output_printf("\n");
  if (props->driver_version > 0)
    output_printf("  driver %s%sfor CUDA %d.%d, compute capability %d.%d\n",
                  all->watch != NULL ? nvml_driver_version(all->watch) : "",
                  all->watch != NULL ? " " : "", props->driver_version / 1000,
                  props->driver_version % 1000 / 10, props->compute_major, props->compute_minor);
  if (props->has_vmm)
    output_printf("  pages of %s, mapped at any address\n",
                  stow_size_format(page, props->page_bytes));
  else
    output_printf(
        "  no pages: this driver has plain allocations only, so nothing can spill or migrate\n");
}

static void print_processes(const info_device *device, buffer *out) {
  if (!device->processes_known) {
    buffer_printf(out, "  processes: unknown: %s\n", device->processes_why);
    return;
  }
  if (device->process_count == 0) {
    buffer_text(out, "  processes: none\n");
    return;
  }
  table t = TABLE_INIT(3, 1u << 0 | 1u << 1);
  table_cell(&t, "pid"), table_cell(&t, "vram"), table_cell(&t, "process");
  int shown = device->process_count < PROCESSES_MAX ? device->process_count : PROCESSES_MAX;
  for (int i = 0; i < shown; i++) {
    const nvml_process *p = &device->processes[i];
    table_printf(&t, "%u", p->pid);
    if (p->bytes_known)
      table_size(&t, p->bytes);
    else
      table_cell(&t, "not known");
    table_cell(&t, p->name[0] != '\0' ? p->name : "(name not known)");
  }
  table_write(&t, out, 2, output_color());
  if (shown < device->process_count)
    buffer_printf(out, "  and %d more\n", device->process_count - shown);
}

static stow_status print_device(const info *all, const info_device *device) {
  print_title(all, &device->props);
  table t = TABLE_INIT(5, 1u << 1 | 1u << 2 | 1u << 3);
  static const char *const header[] = {"tier", "capacity", "used", "free", "by"};
  for (size_t i = 0; i < 5; i++) table_cell(&t, header[i]);
  for (int i = 0; i < STOW_TIER_COUNT; i++) {
    const info_tier *tier = &device->tiers[i];
    if (!tier->known) continue;
    table_cell(&t, stow_tier_name((stow_tier)i));
    table_size(&t, tier->total_bytes);
    table_size(&t, tier->total_bytes - tier->free_bytes);
    table_size(&t, tier->free_bytes);
    table_cell(&t, i == STOW_TIER_HOST ? cuda_backing_name(device->props.host_backing) : "");
  }
  buffer out = BUFFER_INIT;
  table_write(&t, &out, 2, output_color());
  if (strcmp(device->props.kind, "cuda") == 0) print_processes(device, &out);
  return output_buffer(&out);
}

/* Reads the ledger of the run that this process belongs to. Returns false if there is none. */
static bool read_run(ledger *l) {
  const char *path = getenv(ENV_LEDGER);
  return path != NULL && path[0] != '\0' && ledger_copy(l, path) == STOW_OK;
}

static void print_run(void) {
  buffer text = BUFFER_INIT;
  ledger l = {.header = NULL};
  if (!read_run(&l)) return;
  spill_advice(&text, &l);
  ledger_close(&l);
  if (text.length > 0) output_printf("\nthis run: %s\n", output_name(text.data));
  buffer_free(&text);
}

static stow_status print_text(const info *all) {
  output_printf("stowage %s\n", stow_version());
  print_host(&all->host, &all->memory);
  for (size_t i = 0; i < all->count; i++) STOW_TRY(print_device(all, &all->devices[i]));
  if (all->no_gpu[0] != '\0') output_printf("\nno GPU: %s\n", all->no_gpu);
  print_run();
  return STOW_OK;
}

/* ---- for programs ---- */

static void json_host(json *j, const info *all) {
  const hostmem *memory = &all->memory;
  json_key(j, "host");
  json_begin_object(j);
  json_key(j, "system"), json_text(j, all->host.system);
  json_key(j, "machine"), json_text(j, all->host.machine);
  json_key(j, "cpus"), json_i64(j, all->host.cpus);
  json_key(j, "ram_bytes"), json_u64(j, memory->machine_total_bytes);
  json_key(j, "ram_available_bytes"), json_u64(j, memory->machine_available_bytes);
  json_key(j, "usable_bytes"), json_u64(j, memory->usable_bytes);
  json_key(j, "swap_bytes"), json_u64(j, all->host.swap_bytes);
  json_key(j, "swap_free_bytes"), json_u64(j, all->host.swap_free_bytes);
  json_key(j, "container");
  if (memory->limited) {
    json_begin_object(j);
    json_key(j, "cgroup_version"), json_i64(j, memory->cgroup_version);
    json_key(j, "limit_bytes"), json_u64(j, memory->limit_bytes);
    json_key(j, "used_bytes"), json_u64(j, memory->limit_used_bytes);
    json_end_object(j);
  } else {
    json_null(j);
  }
  json_end_object(j);
}

static void json_processes(json *j, const info_device *device) {
  json_key(j, "processes");
  if (!device->processes_known) {
    json_null(j);
    return;
  }
  json_begin_array(j);
  for (int i = 0; i < device->process_count && i < PROCESSES_MAX; i++) {
    const nvml_process *p = &device->processes[i];
    json_begin_object(j);
    json_key(j, "pid"), json_u64(j, p->pid);
    json_key(j, "name"), json_text(j, p->name[0] != '\0' ? p->name : NULL);
    json_key(j, "vram_bytes");
    if (p->bytes_known)
      json_u64(j, p->bytes);
    else
      json_null(j);
    json_end_object(j);
  }
  json_end_array(j);
}

static void json_device(json *j, const info_device *device) {
  const stow_device_props *props = &device->props;
  json_begin_object(j);
  json_key(j, "kind"), json_text(j, props->kind);
  json_key(j, "name"), json_text(j, props->name);
  json_key(j, "uuid"), json_text(j, props->uuid);
  json_key(j, "index"), json_i64(j, props->index);
  json_key(j, "driver_version"), json_i64(j, props->driver_version);
  json_key(j, "compute_major"), json_i64(j, props->compute_major);
  json_key(j, "compute_minor"), json_i64(j, props->compute_minor);
  json_key(j, "has_vmm"), json_bool(j, props->has_vmm);
  json_key(j, "page_bytes"), json_u64(j, props->page_bytes);
  json_key(j, "host_road"), json_text(j, cuda_backing_name(props->host_backing));
  json_key(j, "host_numa_node"), json_i64(j, props->host_numa_node);
  json_key(j, "tiers");
  json_begin_array(j);
  for (int i = 0; i < STOW_TIER_COUNT; i++) {
    const info_tier *tier = &device->tiers[i];
    if (!tier->known) continue;
    json_begin_object(j);
    json_key(j, "tier"), json_text(j, stow_tier_name((stow_tier)i));
    json_key(j, "total_bytes"), json_u64(j, tier->total_bytes);
    json_key(j, "used_bytes"), json_u64(j, tier->total_bytes - tier->free_bytes);
    json_key(j, "free_bytes"), json_u64(j, tier->free_bytes);
    json_end_object(j);
  }
  json_end_array(j);
  json_processes(j, device);
  json_end_object(j);
}

/* Milliseconds of a step on average; 0: none was timed. */
static double step_ms(const ledger *l) {
  uint64_t count = 0, ns = 0;
  for (int i = 0; i < 2; i++) {
    count += atomic_load(&l->header->steps[i]);
    ns += atomic_load(&l->header->steps_ns[i]);
  }
  return count == 0 ? 0 : (double)ns / 1e6 / (double)count;
}

static void json_run(json *j) {
  buffer text = BUFFER_INIT;
  ledger l = {.header = NULL};
  uint64_t spilled = 0;
  json_key(j, "run");
  if (!read_run(&l)) {
    json_null(j);
    return;
  }
  spill_advice(&text, &l);
  for (unsigned d = 0; d < LEDGER_DEVICES_MAX; d++)
    spilled += atomic_load(&l.header->peak_spilled_bytes[d]);
  json_begin_object(j);
  json_key(j, "spilled_peak_bytes"), json_u64(j, spilled);
  json_key(j, "moved_out_bytes"), json_u64(j, atomic_load(&l.header->moved_out_bytes));
  json_key(j, "moved_in_bytes"), json_u64(j, atomic_load(&l.header->moved_home_bytes));
  json_key(j, "waited_ms"), json_double(j, (double)atomic_load(&l.header->moving_ns) / 1e6);
  json_key(j, "step_ms"), json_double(j, step_ms(&l));
  json_key(j, "spill_advice"), json_text(j, text.data);
  json_end_object(j);
  buffer_free(&text);
  ledger_close(&l);
}

static stow_status print_json(const info *all) {
  buffer out = BUFFER_INIT;
  json j = JSON_PRETTY(&out);
  json_begin_object(&j);
  json_key(&j, "version"), json_text(&j, stow_version());
  json_host(&j, all);
  json_key(&j, "driver");
  json_text(&j, all->watch != NULL ? nvml_driver_version(all->watch) : NULL);
  json_key(&j, "devices");
  json_begin_array(&j);
  for (size_t i = 0; i < all->count; i++) json_device(&j, &all->devices[i]);
  json_end_array(&j);
  json_key(&j, "no_gpu"), json_text(&j, all->no_gpu[0] != '\0' ? all->no_gpu : NULL);
  json_run(&j);
  json_end_object(&j);
  return output_buffer(&out);
}

static int run(verb_call *call) {
  info all = {0};
  host_read(&all.host, "");
  if (nvml_open(&all.watch) != STOW_OK) {
    all.watch = NULL;
    snprintf(all.watch_why, sizeof all.watch_why, "%.255s", stow_status_message());
  }
  stow_status status = hostmem_read(&all.memory);
  if (status == STOW_OK) status = read_devices(&all, verb_value(call, "device"));
  if (status == STOW_OK) status = verb_flag(call, "json") ? print_json(&all) : print_text(&all);
  free(all.devices);
  if (all.watch != NULL) nvml_close(all.watch);
  return status == STOW_OK ? EXIT_DONE : verb_fail(call, status);
}

static const verb_option options[] = {VERB_OPTION_DEVICE, VERB_OPTION_JSON, VERB_OPTIONS_END};

const verb verb_info = {
    .name = "info",
    .summary = "show the devices, their tiers and what is in use",
    .example = "stowage info\nstowage info --device sim:16G --json",
    .options = options,
    .run = run,
};
