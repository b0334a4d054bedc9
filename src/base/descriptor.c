/* Descriptor: recognised by the device and inode of its file. */
#include "base/descriptor.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

/* Above the numbers that programs use, below the usual limit of 1024. */
#define NUMBER_LEAST 800

descriptor descriptor_keep(int fd) {
  struct stat info;
  if (fd < 0 || fstat(fd, &info) != 0) return (descriptor){.fd = fd};
  int high = fcntl(fd, F_DUPFD_CLOEXEC, NUMBER_LEAST);
  if (high >= 0) {
    close(fd);
    fd = high;
  }
  return (descriptor){fd, (uint64_t)info.st_dev, (uint64_t)info.st_ino};
}

bool descriptor_ours(const descriptor *d) {
  struct stat info;
  return d->fd >= 0 && fstat(d->fd, &info) == 0 && (uint64_t)info.st_dev == d->device &&
         (uint64_t)info.st_ino == d->inode;
}

int descriptor_close(descriptor *d) {
  int fd = descriptor_ours(d) ? d->fd : -1;
  d->fd = -1;
  return fd < 0 ? 0 : close(fd);
}
