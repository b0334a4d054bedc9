/* Usable host memory: read from test /proc and cgroup trees, and once from the real ones. */
#include "base/hostmem.h"

#include <stdlib.h>
#include <sys/stat.h>

#include "harness.h"

#define GIB (UINT64_C(1) << 30)

static char root[256];

/* Writes `text` to the file `name` under the test root, with the folders it needs. */
static void put(const char *name, const char *text) {
  char path[1024];
  snprintf(root, sizeof root, "%s", harness_folder());
  snprintf(path, sizeof path, "%s%s", root, name);
  for (char *at = path + strlen(root) + 1; (at = strchr(at, '/')) != NULL; at++) {
    *at = '\0';
    mkdir(path, 0700);
    *at = '/';
  }
  FILE *out = fopen(path, "w");
  CHECK(out != NULL && fputs(text, out) >= 0 && fclose(out) == 0);
}

static void put_machine(void) {
  put("/proc/meminfo", "MemTotal:       67108864 kB\nMemFree:         1000000 kB\n"
                       "MemAvailable:   33554432 kB\n");
}

static hostmem read_it(void) {
  hostmem m;
  CHECK_OK(hostmem_read_under(&m, root));
  return m;
}

TEST(machine_without_cgroups_gives_what_is_available_less_the_keep)
{
  put_machine();
  hostmem m = read_it();
  CHECK_U64(m.machine_total_bytes, 64 * GIB);
  CHECK_U64(m.total_bytes, 64 * GIB);
  CHECK_U64(m.usable_bytes, 31 * GIB);
  CHECK(!m.limited && m.cgroup_version == 0);
}

TEST(cgroup2_limit_of_a_level_above_counts)
{
  put_machine();
  put("/proc/self/cgroup", "0::/a/b/c\n");
  put("/proc/self/mountinfo",
      "24 1 0:22 / /sys rw,nosuid shared:7 - sysfs sysfs rw\n"
      "30 24 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n");
  put("/sys/fs/cgroup/a/b/c/memory.max", "max\n");
  put("/sys/fs/cgroup/a/b/c/memory.current", "1073741824\n");
  put("/sys/fs/cgroup/a/b/memory.max", "17179869184\n");
  put("/sys/fs/cgroup/a/b/memory.current", "8589934592\n");
  put("/sys/fs/cgroup/a/b/memory.stat", "anon 1\nfile 9\ninactive_file 2147483648\n");
  put("/sys/fs/cgroup/a/memory.max", "34359738368\n");
  put("/sys/fs/cgroup/a/memory.current", "8589934592\n");
  hostmem m = read_it();
  CHECK(m.limited && m.cgroup_version == 2);
  CHECK_TEXT(m.cgroup, "/a/b/c");
  CHECK_U64(m.limit_bytes, 16 * GIB);
  CHECK_U64(m.limit_used_bytes, 6 * GIB);
  CHECK_U64(m.limit_cache_bytes, 2 * GIB);
  CHECK_U64(m.total_bytes, 16 * GIB);
  CHECK_U64(m.usable_bytes, 9 * GIB); /* 16 - 6 - 1 kept */
  CHECK(strstr(m.limited_by, "/sys/fs/cgroup/a/b") != NULL);
}

TEST(the_level_with_the_least_left_is_named_not_the_smallest_limit)
{
  put_machine();
  put("/proc/self/cgroup", "0::/a/b\n");
  put("/proc/self/mountinfo", "30 24 0:26 / /cg rw - cgroup2 cgroup2 rw\n");
  put("/cg/a/b/memory.max", "8589934592\n");
  put("/cg/a/b/memory.current", "0\n");
  put("/cg/a/memory.max", "17179869184\n");
  put("/cg/a/memory.current", "15032385536\n");
  hostmem m = read_it();
  CHECK_U64(m.limit_bytes, 16 * GIB);
  CHECK_U64(m.total_bytes, 8 * GIB);
  CHECK_U64(m.usable_bytes, 2 * GIB - GIB / 2); /* 16 - 14, less a sixteenth of 8 */
}

TEST(cgroup1_container_that_sees_only_its_own_group)
{
  put_machine();
  put("/proc/self/cgroup", "12:cpu,cpuacct:/docker/ab\n9:memory:/docker/ab\n0::/docker/ab\n");
  put("/proc/self/mountinfo",
      "40 39 0:30 /docker/ab /sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpu,cpuacct\n"
      "41 39 0:31 /docker/ab /sys/fs/cgroup/memory ro master:5 - cgroup cgroup rw,memory\n");
  put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "4294967296\n");
  put("/sys/fs/cgroup/memory/memory.usage_in_bytes", "3221225472\n");
  put("/sys/fs/cgroup/memory/memory.stat", "inactive_file 1\ntotal_inactive_file 1073741824\n");
  hostmem m = read_it();
  CHECK_U64(m.cgroup_version, 1);
  CHECK_U64(m.limit_bytes, 4 * GIB);
  CHECK_U64(m.limit_used_bytes, 2 * GIB);
  CHECK_U64(m.usable_bytes, 2 * GIB - GIB / 4);
}

TEST(kills_are_counted_where_the_kernel_reports_them)
{
  put_machine();
  CHECK_U64(hostmem_kills_under(root), 0);
  put("/proc/vmstat", "nr_free_pages 7\noom_kill 5\n");
  CHECK_U64(hostmem_kills_under(root), 5);
  put("/proc/self/cgroup", "0::/a\n");
  put("/proc/self/mountinfo", "30 24 0:26 / /cg rw - cgroup2 cgroup2 rw\n");
  CHECK_U64(hostmem_kills_under(root), 5); /* the group does not report it */
  put("/cg/a/memory.events", "low 0\nhigh 0\nmax 9\noom 4\noom_kill 3\noom_group_kill 8\n");
  CHECK_U64(hostmem_kills_under(root), 3);
  put("/proc/self/cgroup", "9:memory:/b\n0::/a\n");
  put("/proc/self/mountinfo", "41 39 0:31 / /one ro - cgroup cgroup rw,memory\n");
  put("/one/b/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n");
  CHECK_U64(hostmem_kills_under(root), 2);
}

TEST(cgroup1_number_past_all_memory_is_no_limit)
{
  put_machine();
  put("/proc/self/cgroup", "9:memory:/\n");
  put("/proc/self/mountinfo", "41 39 0:31 / /cg\\040space ro - cgroup cgroup rw,memory\n");
  put("/cg space/memory.limit_in_bytes", "9223372036854771712\n");
  put("/cg space/memory.usage_in_bytes", "3221225472\n");
  hostmem m = read_it();
  CHECK_U64(m.cgroup_version, 1);
  CHECK(!m.limited);
  CHECK_U64(m.usable_bytes, 31 * GIB);
}

TEST(a_group_outside_the_namespace_falls_back_to_the_mount_point)
{
  put_machine();
  put("/proc/self/cgroup", "0::/../other\n");
  put("/proc/self/mountinfo", "30 24 0:26 / /cg rw - cgroup2 cgroup2 rw\n");
  put("/cg/memory.max", "2147483648\n");
  put("/cg/memory.current", "1073741824\n");
  CHECK_U64(read_it().limit_bytes, 2 * GIB);
}

TEST(used_past_the_limit_leaves_nothing)
{
  put_machine();
  put("/proc/self/cgroup", "0::/\n");
  put("/proc/self/mountinfo", "30 24 0:26 / /cg rw - cgroup2 cgroup2 rw\n");
  put("/cg/memory.max", "1073741824\n");
  put("/cg/memory.current", "2147483648\n");
  CHECK_U64(read_it().usable_bytes, 0);
}

TEST(broken_proc_files_do_not_crash)
{
  put_machine();
  put("/proc/self/cgroup", "::\n0\nmemory\n:::::\n0::");
  put("/proc/self/mountinfo", "-\n - \na b c - cgroup2\n1 2 3 4 5 - cgroup2 x\n");
  hostmem m = read_it();
  CHECK(!m.limited);
  put("/proc/meminfo", "MemTotal: many\n");
  CHECK_STATUS(hostmem_read_under(&m, root), STOW_ERR_IO);
  CHECK_MESSAGE("meminfo");
}

TEST(this_machine_can_be_read)
{
  hostmem m;
  CHECK_OK(hostmem_read(&m));
  CHECK(m.machine_total_bytes > 0 && m.usable_bytes <= m.total_bytes);
  CHECK(m.total_bytes <= m.machine_total_bytes);
  harness_note("usable %" PRIu64 " of %" PRIu64 " MiB, cgroup v%d", m.usable_bytes >> 20,
               m.total_bytes >> 20, m.cgroup_version);
}

TEST_MAIN
