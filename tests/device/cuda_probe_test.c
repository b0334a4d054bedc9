/* The host tier probe with a stand-in driver: which backing is found, crashes, and cached
 * results. */
#include "device/cuda_probe.h"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "cuda_standin_use.h"

static cuda_probe probe_with(const char *variable, const char *value) {
  cuda_probe probe;
  standin_use();
  if (variable != NULL) setenv(variable, value, 1);
  CHECK_OK(cuda_probe_get(&probe, "0", false));
  return probe;
}

static void check_reason(const cuda_probe *probe, const char *part) {
  if (strstr(probe->reason, part) == NULL) FAIL("reason \"%s\" lacks \"%s\"", probe->reason, part);
}

TEST(a_good_driver_gives_pages_on_the_nearest_node)
{
  cuda_probe probe = probe_with(NULL, NULL);
  CHECK(probe.backing == STOW_HOST_NUMA && probe.numa_node == 0 && probe.certain);
  check_reason(&probe, "node 0");
  CHECK_OK(cuda_probe_get(&probe, NULL, false)); /* no name: the first device */
  CHECK(probe.from_cache);
  CHECK_STATUS(cuda_probe_get(&probe, "sim:16G", false), STOW_ERR_NOT_FOUND);
}

TEST(a_node_that_refuses_leads_to_the_next_backing_or_node)
{
  cuda_probe probe = probe_with("STANDIN_HOST", "node1");
  if (access("/sys/devices/system/node/node1", F_OK) == 0)
    CHECK(probe.backing == STOW_HOST_NUMA && probe.numa_node == 1);
  else {
    CHECK(probe.backing == STOW_HOST_LOCATION);
    check_reason(&probe, "numa: cuMemCreate answered CUDA_ERROR_INVALID_VALUE");
  }
}

TEST(where_numa_is_refused_the_plain_host_location_is_taken)
{
  setenv("STANDIN_VERSION", "12060", 1); /* too old for the attribute that reports support */
  cuda_probe probe = probe_with("STANDIN_HOST", "no-numa");
  CHECK(probe.backing == STOW_HOST_LOCATION && probe.numa_node == -1);
  check_reason(&probe, "numa: cuMemCreate answered CUDA_ERROR_NOT_SUPPORTED");
}

TEST(what_the_driver_denies_costs_no_child)
{
  cuda_probe probe = probe_with("STANDIN_HOST", "no-numa");
  CHECK(probe.backing == STOW_HOST_LOCATION);
  check_reason(&probe, "the driver reports no support");
}

TEST(a_driver_that_crashes_is_survived_and_named)
{
  cuda_probe probe = probe_with("STANDIN_HOST", "crash");
  CHECK(probe.backing == STOW_HOST_PINNED && probe.certain);
  check_reason(&probe, "numa: the driver crashed (Segmentation fault)");
  check_reason(&probe, "host: the driver crashed");
}

TEST(an_old_driver_is_not_asked_for_newer_features)
{
  cuda_probe probe = probe_with("STANDIN_VERSION", "11080");
  CHECK(probe.backing == STOW_HOST_PINNED);
  check_reason(&probe, "11.8");
}

TEST(no_backing_is_a_valid_result)
{
  cuda_probe probe = probe_with("STANDIN_HOST", "refuse no-pinned");
  CHECK(probe.backing == STOW_HOST_NONE && probe.certain);
  check_reason(&probe, "pinned: cuMemHostAlloc answered");
  stow_device *d = standin_open("0");
  stow_page page;
  stow_addr addr;
  CHECK_STATUS(device_page_create(d, &page, PAGE, STOW_TIER_HOST), STOW_ERR_UNSUPPORTED);
  CHECK_MESSAGE("cuMemHostAlloc");
  CHECK_STATUS(device_plain_alloc(d, &addr, 64, STOW_TIER_HOST), STOW_ERR_UNSUPPORTED);
  CHECK_STATUS(stow_device_memory(d, STOW_TIER_HOST, NULL, NULL), STOW_ERR_UNSUPPORTED);
  CHECK_OK(stow_device_close(d));
}

TEST(a_child_that_hangs_is_ended_at_the_deadline)
{
  cuda_probe_deadline_ms = 500;
  uint64_t start = clock_ns();
  cuda_probe probe = probe_with("STANDIN_HOST", "hang");
  CHECK(probe.backing == STOW_HOST_PINNED ||
        probe.backing == STOW_HOST_NONE); /* on a slow machine */
  CHECK(!probe.certain);
  check_reason(&probe, "numa: no answer after 0.5 s");
  check_reason(&probe, "host: no answer after 0.5 s");
  CHECK(clock_ns() - start < UINT64_C(20) * 1000000000);
}

TEST(a_full_device_yields_no_result_and_caches_nothing)
{
  cuda_probe probe = probe_with("STANDIN_FAIL", "cuDevicePrimaryCtxRetain:2");
  CHECK(probe.backing == STOW_HOST_NONE && !probe.certain);
  check_reason(&probe, "could not be tried: making a context answered CUDA_ERROR_OUT_OF_MEMORY");
  char path[512];
  snprintf(path, sizeof path, "%s/stowage/host-tier", harness_folder());
  CHECK(access(path, F_OK) != 0);
}

TEST(without_the_command_nothing_is_assumed)
{
  standin_use();
  setenv("STOWAGE_COMMAND", "/nowhere/stowage", 1);
  cuda_probe probe;
  CHECK_OK(cuda_probe_get(&probe, "0", false));
  CHECK(probe.backing == STOW_HOST_NONE && !probe.certain);
  check_reason(&probe, "/nowhere/stowage");
}

TEST(a_command_that_does_not_understand_finds_out_nothing)
{
  standin_use();
  setenv("STOWAGE_COMMAND", "/bin/true", 1);
  cuda_probe probe;
  CHECK_OK(cuda_probe_get(&probe, "0", false));
  CHECK(probe.backing == STOW_HOST_NONE && !probe.certain);
  check_reason(&probe, "another version");
}

TEST(the_preload_does_not_follow_the_child)
{
  standin_use();
  char script[512], seen[512], line[256] = "";
  snprintf(script, sizeof script, "%s/stowage", harness_folder());
  snprintf(seen, sizeof seen, "%s/seen", harness_folder());
  FILE *out = fopen(script, "w");
  fprintf(out, "#!/bin/sh\necho \"preload=[$LD_PRELOAD] kept=[$STANDIN_KEPT]\" > %s\n", seen);
  CHECK(fclose(out) == 0 && chmod(script, 0700) == 0);
  setenv("STOWAGE_COMMAND", script, 1);
  setenv("LD_PRELOAD", "/nowhere/libshim.so", 1);
  setenv("STANDIN_KEPT", "yes", 1);
  cuda_probe probe;
  CHECK_OK(cuda_probe_get(&probe, "0", false));
  FILE *in = fopen(seen, "r");
  CHECK(in != NULL && fgets(line, sizeof line, in) != NULL);
  fclose(in);
  CHECK_TEXT(line, "preload=[] kept=[yes]\n");
}

TEST(the_child_refuses_arguments_it_does_not_know)
{
  char *none[] = {(char *)"probe-host-tier", NULL};
  char *odd[] = {(char *)"probe-host-tier", (char *)"0", (char *)"tape", NULL};
  char *few[] = {(char *)"probe-host-tier", (char *)"0", (char *)"numa", NULL};
  CHECK(cuda_probe_main(1, none) == 2);
  CHECK(cuda_probe_main(3, odd) == 2);
  CHECK(cuda_probe_main(3, few) == 2);
}

/* ---- cached results ---- */

static const char *cache_path(void) {
  static char path[512];
  snprintf(path, sizeof path, "%s/stowage/host-tier", harness_folder());
  return path;
}

static void cache_replace(const char *text, size_t length) {
  FILE *out = fopen(cache_path(), "w");
  CHECK(out != NULL && fwrite(text, 1, length, out) == length && fclose(out) == 0);
}

static size_t cache_text(char *text, size_t size) {
  FILE *in = fopen(cache_path(), "r");
  CHECK(in != NULL);
  size_t length = fread(text, 1, size - 1, in);
  text[length] = '\0';
  fclose(in);
  return length;
}

TEST(a_result_is_cached_until_probed_again)
{
  cuda_probe probe = probe_with(NULL, NULL), again;
  CHECK(!probe.from_cache);
  setenv("STOWAGE_COMMAND", "/nowhere/stowage", 1); /* nothing can be tried any more */
  CHECK_OK(cuda_probe_get(&again, "0", false));
  CHECK(again.from_cache && again.backing == probe.backing && again.numa_node == probe.numa_node);
  CHECK_TEXT(again.reason, probe.reason);
  setenv("STOWAGE_COMMAND", STANDIN_COMMAND, 1);
  setenv("STANDIN_HOST", "refuse", 1);
  CHECK_OK(cuda_probe_get(&again, "0", true));
  CHECK(!again.from_cache && again.backing == STOW_HOST_PINNED);
  CHECK_OK(cuda_probe_get(&again, "0", false)); /* the new result replaced the old one */
  CHECK(again.from_cache && again.backing == STOW_HOST_PINNED);
  char folder[512];
  snprintf(folder, sizeof folder, "%s/stowage", harness_folder());
  DIR *files = opendir(folder);
  int count = 0;
  for (struct dirent *e; (e = readdir(files)) != NULL;) count += e->d_name[0] != '.';
  closedir(files);
  CHECK(count == 1); /* no temporary file is left behind */
}

TEST(results_of_two_devices_are_cached_together)
{
  setenv("STANDIN_DEVICES", "2", 1);
  cuda_probe probe = probe_with(NULL, NULL);
  CHECK_OK(cuda_probe_get(&probe, "1", false));
  CHECK(!probe.from_cache);
  CHECK_OK(cuda_probe_get(&probe, "0", false));
  CHECK(probe.from_cache);
  CHECK_OK(cuda_probe_get(&probe, "1", false));
  CHECK(probe.from_cache);
}

TEST(a_broken_file_is_as_good_as_none)
{
  char text[4096], broken[4096];
  cuda_probe probe = probe_with(NULL, NULL);
  size_t length = cache_text(text, sizeof text);
  CHECK(length > 0);
  /* Truncated at every byte: the last line without its end is ignored. */
  for (size_t cut = 0; cut < length; cut++) {
    cuda_probe kept;
    cache_replace(text, cut);
    setenv("STOWAGE_COMMAND", "/nowhere/stowage", 1);
    CHECK_OK(cuda_probe_get(&kept, "0", false));
    if (kept.from_cache) FAIL("used a file truncated at %zu of %zu", cut, length);
  }
  uint64_t random = 5;
  for (int i = 0; i < 300;
       i++) { /* and any byte may change: a result is still one of the backings */
    cuda_probe kept;
    memcpy(broken, text, length);
    broken[harness_random(&random) % length] = (char)harness_random(&random);
    cache_replace(broken, length);
    CHECK_OK(cuda_probe_get(&kept, "0", false));
    CHECK((int)kept.backing >= STOW_HOST_NONE && kept.backing <= STOW_HOST_NUMA);
    CHECK(kept.backing == STOW_HOST_NUMA ? kept.numa_node >= 0 : kept.numa_node == -1);
  }
  setenv("STOWAGE_COMMAND", STANDIN_COMMAND, 1);
  cache_replace("nonsense", 8);
  CHECK_OK(cuda_probe_get(&probe, "0", false));
  CHECK(!probe.from_cache && probe.backing == STOW_HOST_NUMA);
  CHECK_OK(cuda_probe_get(&probe, "0", false)); /* and the file was repaired */
  CHECK(probe.from_cache);
}

TEST(an_old_answer_without_pages_is_tried_again)
{
  cuda_probe probe = probe_with("STANDIN_HOST", "refuse");
  CHECK(probe.backing == STOW_HOST_PINNED);
  char text[4096], aged[4096], *rest;
  cache_text(text, sizeof text);
  char *seconds = strchr(strchr(text, '\n'), ' ') + 1; /* after the key of the second line */
  unsigned long long then = strtoull(seconds, &rest, 10);
  CHECK(then > 2 * 86400 && *rest == ' ');
  int length = snprintf(aged, sizeof aged, "%.*s%llu%s", (int)(seconds - text), text,
                        then - 2 * 86400, rest);
  cache_replace(aged, (size_t)length);
  setenv("STANDIN_HOST", "", 1);
  CHECK_OK(cuda_probe_get(&probe, "0", false));
  CHECK(!probe.from_cache && probe.backing == STOW_HOST_NUMA);
}

TEST(without_a_home_it_works_and_keeps_nothing)
{
  standin_use();
  unsetenv("XDG_CACHE_HOME");
  unsetenv("HOME");
  cuda_probe probe;
  CHECK_OK(cuda_probe_get(&probe, "0", false));
  CHECK_OK(cuda_probe_get(&probe, "0", false));
  CHECK(!probe.from_cache && probe.backing == STOW_HOST_NUMA);
}

TEST(an_exclusive_device_is_probed_before_it_is_opened)
{
  setenv("STANDIN_MODE", "3", 1);
  stow_device *d = standin_open("0");
  CHECK(access(cache_path(), F_OK) == 0); /* probed at opening */
  CHECK_OK(stow_device_close(d));
}

TEST_MAIN
