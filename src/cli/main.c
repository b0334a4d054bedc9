/* stowage: the command. */
#include <stdio.h>

#include <stowage/stowage.h>

int main(void) {
  printf("stowage %s\n", stow_version());
  return 0;
}
