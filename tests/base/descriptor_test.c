/* Descriptor: a file stays open in a program that closes descriptors it did not open. */
#include "base/descriptor.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "harness.h"

static int fresh(const char *name) {
  char path[512];
  snprintf(path, sizeof path, "%s/%s", harness_folder(), name);
  return open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
}

TEST(its_number_is_out_of_the_way)
{
  int fd = fresh("a");
  descriptor d = descriptor_keep(fd);
  CHECK(d.fd > fd);
  CHECK(descriptor_ours(&d));
  CHECK(fcntl(d.fd, F_GETFD) & FD_CLOEXEC);
  CHECK(fcntl(fd, F_GETFD) < 0);
  CHECK(descriptor_close(&d) == 0);
  CHECK(d.fd == -1);
  CHECK(!descriptor_ours(&d));
}

TEST(another_file_under_its_number_is_neither_taken_for_it_nor_closed)
{
  descriptor d = descriptor_keep(fresh("a"));
  int number = d.fd, other = fresh("b");
  CHECK(dup2(other, number) == number);
  CHECK(!descriptor_ours(&d));
  CHECK(descriptor_close(&d) == 0);
  CHECK(fcntl(number, F_GETFD) >= 0);
  close(number);
  close(other);
}

TEST(none_stays_none)
{
  descriptor d = descriptor_keep(-1);
  CHECK(d.fd == -1);
  CHECK(!descriptor_ours(&d));
  CHECK(descriptor_close(&d) == 0);
}

TEST_MAIN
