/* A library with the name of PyTorch's: what is asked through it is asked by a framework that asks
 * again. */
#include <stddef.h>

int ask_through(int (*ask)(unsigned long long *, size_t), unsigned long long *addr, size_t bytes);

__attribute__((visibility("default"), noinline)) int
ask_through(int (*ask)(unsigned long long *, size_t), unsigned long long *addr, size_t bytes) {
  volatile int code = ask(addr, bytes); /* no tail call: the frame is what is looked for */
  return code;
}
