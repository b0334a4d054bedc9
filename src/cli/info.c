/* stowage info: the machine and its devices, each tier with what it has and what is in use, and who
 * holds it. Works with no GPU, and says then that there is none. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <stowage/device.h>
#include <stowage/size.h>
#include <stowage/version.h>

#include "base/hostmem.h"
#include "base/json.h"
#include "base/status.h"
#include "cli/output.h"
#include "cli/verb.h"
#include "report/table.h"
#include "watch/proc.h"

typedef struct info_tier {
  bool known;
  uint64_t free_bytes, total_bytes;
} info_tier;

typedef struct info_device {
  stow_device_props props;
  info_tier tiers[STOW_TIER_COUNT];
} info_device;

typedef struct info {
  host_facts host;
  hostmem memory;
  info_device *devices;
  size_t count;
  char no_gpu[512]; /* why there is no card; "" if there is one or nobody asked */
} info;

static stow_status read_device(info_device *into, const char *name) {
  stow_device *device;
  STOW_TRY(stow_device_open(&device, name));
  stow_status status = stow_device_get_props(device, &into->props);
  for (int t = 0; t < STOW_TIER_COUNT; t++) {
    info_tier *tier = &into->tiers[t];
    tier->known =
        stow_device_memory(device, (stow_tier)t, &tier->free_bytes, &tier->total_bytes) == STOW_OK;
  }
  stow_status closed = stow_device_close(device);
  return status != STOW_OK ? status : closed;
}

/* The device that was named, or every card there is. */
static stow_status read_devices(info *all, const char *name) {
  const char *environment = getenv("STOWAGE_DEVICE");
  bool named = (name != NULL && name[0] != '\0') || (environment != NULL && environment[0] != '\0');
  int count = 1;
  if (!named) STOW_TRY(stow_device_count(&count));
  if (count == 0) {
    /* Opening the first card fails, and its message is the reason. */
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
    all->count++;
  }
  return STOW_OK;
}

static const char *road_words(stow_host_road road) {
  switch (road) {
  case STOW_HOST_NONE: return "none";
  case STOW_HOST_PINNED: return "pinned";
  case STOW_HOST_LOCATION: return "host";
  case STOW_HOST_NUMA: return "host-numa";
  case STOW_HOST_SIMULATED: return "simulated";
  }
  return "unknown";
}

/* ---- for people ---- */

static void print_host(const host_facts *host, const hostmem *memory) {
  char total[STOW_SIZE_TEXT_MAX], available[STOW_SIZE_TEXT_MAX];
  printf("%s  %s %s, %d CPU%s, %s RAM, %s available\n", output_bold("host"), host->system,
         host->machine, host->cpus, host->cpus == 1 ? "" : "s",
         stow_size_format(total, memory->machine_total_bytes),
         stow_size_format(available, memory->machine_available_bytes));
  if (memory->limited)
    printf("  this container may use %s, of which %s are in use (cgroup v%d)\n",
           stow_size_format(total, memory->limit_bytes),
           stow_size_format(available, memory->limit_used_bytes), memory->cgroup_version);
}

static void print_title(const stow_device_props *props) {
  char page[STOW_SIZE_TEXT_MAX];
  bool sim = strcmp(props->kind, "sim") == 0;
  printf("\n%s  %s", output_bold("device"), props->name);
  if (!sim) printf("  [%d] %s", props->index, props->uuid);
  putchar('\n');
  if (props->driver_version > 0)
    printf("  driver for CUDA %d.%d, compute capability %d.%d\n", props->driver_version / 1000,
           props->driver_version % 1000 / 10, props->compute_major, props->compute_minor);
  if (props->has_vmm)
    printf("  pages of %s, mapped at any address\n", stow_size_format(page, props->page_bytes));
  else
    printf("  no pages: this driver has plain allocations only, so nothing can spill or migrate\n");
}

static stow_status print_device(const info_device *device) {
  print_title(&device->props);
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
    table_cell(&t, i == STOW_TIER_HOST ? road_words(device->props.host_road) : "");
  }
  buffer out = BUFFER_INIT;
  table_write(&t, &out, 2, output_color());
  return output_buffer(&out);
}

static stow_status print_text(const info *all) {
  printf("stowage %s\n", stow_version());
  print_host(&all->host, &all->memory);
  for (size_t i = 0; i < all->count; i++) STOW_TRY(print_device(&all->devices[i]));
  if (all->no_gpu[0] != '\0')
    printf("\nno GPU: %s\nA simulated card works everywhere: stowage info --device sim:16G\n",
           all->no_gpu);
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
  json_key(j, "host_road"), json_text(j, road_words(props->host_road));
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
  json_end_object(j);
}

static stow_status print_json(const info *all) {
  buffer out = BUFFER_INIT;
  json j = JSON_PRETTY(&out);
  json_begin_object(&j);
  json_key(&j, "version"), json_text(&j, stow_version());
  json_host(&j, all);
  json_key(&j, "devices");
  json_begin_array(&j);
  for (size_t i = 0; i < all->count; i++) json_device(&j, &all->devices[i]);
  json_end_array(&j);
  json_key(&j, "no_gpu"), json_text(&j, all->no_gpu[0] != '\0' ? all->no_gpu : NULL);
  json_end_object(&j);
  return output_buffer(&out);
}

static int run(verb_call *call) {
  info all = {0};
  host_read(&all.host, "");
  stow_status status = hostmem_read(&all.memory);
  if (status == STOW_OK) status = read_devices(&all, verb_value(call, "device"));
  if (status == STOW_OK) status = verb_flag(call, "json") ? print_json(&all) : print_text(&all);
  free(all.devices);
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
