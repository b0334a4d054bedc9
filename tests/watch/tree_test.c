/* The host memory of a process and its descendants, written as a record and read back. */
#include "watch/tree.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness.h"
#include "run/host_record.h"

#define MIB ((size_t)1 << 20)

/* Starts a child that holds `bytes`, reports that, and sleeps until it is ended. */
static pid_t holder(size_t bytes, char *shared, int ready) {
  pid_t pid = fork();
  if (pid != 0) return pid;
  char *own = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  memset(own, 1, bytes);
  if (shared != NULL && shared[0] == 0) _exit(1);
  ssize_t said = write(ready, "x", 1);
  (void)said;
  for (;;) pause();
}

static void end(pid_t pid) {
  kill(pid, SIGKILL);
  waitpid(pid, NULL, 0);
}

TEST(children_are_counted_and_what_they_share_once)
{
  int ready[2];
  char got;
  CHECK(pipe(ready) == 0);
  char *shared = mmap(NULL, 64 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  memset(shared, 1, 64 * MIB);
  pid_t one = holder(48 * MIB, shared, ready[1]), other = holder(32 * MIB, shared, ready[1]);
  CHECK(read(ready[0], &got, 1) == 1 && read(ready[0], &got, 1) == 1);
  tree t;
  CHECK_OK(tree_read(&t, getpid()));
  CHECK_U64(t.count, 2);
  CHECK_U64(t.list[0].pid, one);
  CHECK_U64(t.list[1].pid, other);
  CHECK_U64(t.list[0].parent, getpid());
  /* Their own memory, and a third each of the 64 MiB that all three processes share. */
  CHECK(t.list[0].anonymous_bytes >= 112 * MIB);
  CHECK(t.list[0].held_bytes >= 48 * MIB && t.list[0].held_bytes < 112 * MIB);
  CHECK(t.held_bytes >= 80 * MIB && t.held_bytes < 170 * MIB);
  CHECK(tree_anonymous_bytes(one) >= 112 * MIB && tree_anonymous_bytes(one) < 120 * MIB);
  uint64_t both = tree_children_hash(getpid());
  CHECK_U64(tree_children_hash(getpid()), both);
  tree_free(&t);
  uint64_t kinds[TREE_MAP_KINDS];
  tree_map maps[8];
  CHECK(tree_maps(one, kinds, maps, 8) > 0);
  CHECK(kinds[TREE_ANONYMOUS] >= 112 * MIB);
  end(one);
  CHECK(both == 0 || tree_children_hash(getpid()) != both);
  end(other);
  CHECK_OK(tree_read(&t, getpid()));
  CHECK_U64(t.count, 0);
  tree_free(&t);
  munmap(shared, 64 * MIB);
}

/* The kernel shows a heap again that grew between two reads of its file. */
TEST(a_mapping_that_grows_while_it_is_read_counts_once)
{
  char text[] = "55d0-55d8 r--p 00000000 08:01 99    /opt/a program\nRss:   8 kB\n"
                "aa00-ab00 rw-p 00000000 00:00 0      [heap]\nRss:   100 kB\nAnonHugePages: 0 kB\n"
                "aa00-ac00 rw-p 00000000 00:00 0      [heap]\nRss:   160 kB\n"
                "aa00-ad00 rw-p 00000000 00:00 0      [heap]\nRss:   220 kB\n"
                "7f00-7f80 rw-p 00000000 00:00 0 \nRss:   4 kB\n"
                "7f90-7fa0 rw-p 00000000 00:00 0 \nRss:   4 kB\n";
  uint64_t kinds[TREE_MAP_KINDS];
  tree_map maps[4];
  FILE *smaps = fmemopen(text, strlen(text), "r");
  CHECK_U64(tree_maps_read(smaps, kinds, maps, 4), 4);
  fclose(smaps);
  CHECK_U64(kinds[TREE_HEAP], 220 * 1024);
  CHECK_U64(kinds[TREE_ANONYMOUS], 8 * 1024);
  CHECK_U64(kinds[TREE_FILE], 8 * 1024);
  CHECK_TEXT(maps[0].path, "[heap]");
  CHECK_U64(maps[0].bytes, 220 * 1024);
  CHECK_TEXT(maps[1].path, "/opt/a program");
}

/* It shows that a process uses CUDA, and is smaller than its libraries. */
TEST(the_driver_of_a_device_is_listed_among_larger_mappings)
{
  char text[] = "1000-2000 r--p 00000000 08:01 99    /usr/lib/libcuda.so.580.1\nRss:   8 kB\n"
                "3000-4000 rw-p 00000000 00:00 0 \nRss:   90 kB\n"
                "5000-6000 r--p 00000000 08:01 97    /x/libcudnn.so.9\nRss:   100 kB\n"
                "7000-8000 r--p 00000000 08:01 96    /x/libcublasLt.so.12\nRss:   80 kB\n";
  uint64_t kinds[TREE_MAP_KINDS];
  tree_map maps[2];
  FILE *smaps = fmemopen(text, strlen(text), "r");
  CHECK_U64(tree_maps_read(smaps, kinds, maps, 2), 2);
  fclose(smaps);
  CHECK_TEXT(maps[0].path, "/x/libcudnn.so.9");
  CHECK_TEXT(maps[1].path, "/usr/lib/libcuda.so.580.1");
  CHECK_U64(kinds[TREE_FILE], 188 * 1024);
}

/* A process with several devices maps a file of each. */
TEST(files_of_the_driver_do_not_displace_larger_mappings)
{
  char text[] = "1000-2000 rw-s 00000000 00:05 91    /dev/nvidia0\nRss:   4 kB\n"
                "3000-4000 rw-s 00000000 00:05 92    /dev/nvidia1\nRss:   4 kB\n"
                "5000-6000 rw-s 00000000 00:05 93    /dev/nvidiactl\nRss:   4 kB\n"
                "7000-8000 r--p 00000000 08:01 97    /x/libcudnn.so.9\nRss:   100 kB\n"
                "8000-9000 r--p 00000000 08:01 96    /x/libcublasLt.so.12\nRss:   80 kB\n"
                "9000-a000 r--p 00000000 08:01 99    /usr/lib/libcuda.so.580.1\nRss:   8 kB\n";
  uint64_t kinds[TREE_MAP_KINDS];
  tree_map maps[3];
  FILE *smaps = fmemopen(text, strlen(text), "r");
  CHECK_U64(tree_maps_read(smaps, kinds, maps, 3), 3);
  fclose(smaps);
  CHECK_TEXT(maps[0].path, "/x/libcudnn.so.9");
  CHECK_TEXT(maps[1].path, "/x/libcublasLt.so.12");
  CHECK(tree_map_is_driver(&maps[2]));
}

TEST(open_files_are_listed_with_how_far_they_were_read)
{
  char path[] = "/tmp/stowage-tree-XXXXXX";
  int fd = mkstemp(path);
  char bytes[4096];
  tree_file files[4];
  CHECK(fd >= 0 && ftruncate(fd, 9 << 20) == 0 && read(fd, bytes, sizeof bytes) == 4096);
  size_t count = tree_files(getpid(), files, 4), found = 4;
  for (size_t i = 0; i < count; i++)
    if (strcmp(files[i].path, path) == 0) found = i;
  CHECK(found < count);
  CHECK_U64(files[found].bytes, 9 << 20);
  CHECK_U64(files[found].read_bytes, 4096);
  close(fd);
  unlink(path);
}

TEST(a_record_is_read_as_it_was_written)
{
  char folder[] = "/tmp/stowage-record-XXXXXX", path[128];
  CHECK(mkdtemp(folder) != NULL);
  host_record *w = calloc(1, sizeof *w), *r = calloc(1, sizeof *r);
  w->limit_bytes = 600 * MIB;
  w->held_bytes = w->peak_bytes = 550 * MIB;
  w->growth_bytes_s = -5;
  strcpy(w->limit_from, "given");
  strcpy(w->ended, "limit");
  w->process_count = 1;
  w->processes[0] =
      (tree_process){.pid = 4711, .parent = 1, .name = "a\tb", .held_bytes = 500 * MIB};
  w->file_count = 1;
  w->files[0].bytes = 7;
  strcpy(w->files[0].path, "/data\nset.npy");
  CHECK_OK(host_record_write(w, folder));
  snprintf(path, sizeof path, "%s/4711.objects", folder);
  FILE *file = fopen(path, "w");
  fputs("asked\t7\t480\t1\nobject\t400\t10\trows\tread at a.py:7\tlist\tdict\t\t40\n"
        "nonsense\t1\nobject\nframe\ta.py\t7\tread\trows.append(x)\n",
        file);
  fclose(file);
  CHECK_OK(host_record_read(r, folder));
  CHECK_U64(r->limit_bytes, 600 * MIB);
  CHECK_U64(r->growth_bytes_s, -5);
  CHECK_TEXT(r->ended, "limit");
  CHECK_TEXT(r->processes[0].name, "a?b");
  CHECK_TEXT(r->files[0].path, "/data?set.npy");
  CHECK(r->from_inside);
  CHECK_U64(r->inside_serial, 7);
  CHECK_U64(r->inside_bytes, 480);
  CHECK(r->inside_whole);
  CHECK_TEXT(r->objects[0].name, "rows");
  CHECK_U64(r->objects[0].element_bytes, 40);
  CHECK_TEXT(r->frames[0].source, "rows.append(x)");
  /* A partial answer, and one from before answers had a header. */
  file = fopen(path, "w");
  fputs("asked\t8\t480\t0\n", file);
  fclose(file);
  CHECK(host_record_read_inside(r, folder, 4711) && !r->inside_whole && r->object_count == 0);
  file = fopen(path, "w");
  fputs("object\t400\t10\trows\tread at a.py:7\tlist\tdict\t\t40\n", file);
  fclose(file);
  CHECK(host_record_read_inside(r, folder, 4711) && r->inside_bytes == 0 && !r->inside_whole);
  CHECK(!host_record_read_inside(r, folder, 4712) && !r->from_inside);
  unlink(path);
  snprintf(path, sizeof path, "%s/host", folder);
  unlink(path);
  CHECK_STATUS(host_record_read(r, folder), STOW_ERR_NOT_FOUND);
  rmdir(folder);
  free(w);
  free(r);
}
TEST_MAIN
