#!/usr/bin/env bash
# A setuid stowage loads no library that the variables of its caller name.
. "$(dirname "$0")/../guards/lib.bash"
if [ "$(id -u)" -ne 0 ] || ! has chown; then skip "secure: needs root to make a setuid copy"; finish; fi
chmod 755 "$folder"
cp "$stowage" "$folder/stowage"
chown nobody "$folder/stowage" && chmod 4755 "$folder/stowage"
printf '\211HDF\r\n\032\n%64s' '' > "$folder/a.h5"
chmod 644 "$folder/a.h5"
cat > "$folder/tell.c" << 'END'
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>
/* Into a file: the process that reads HDF5 has no standard error. */
__attribute__((constructor)) static void tell(void) {
  int fd = open(getenv("TELL"), O_WRONLY | O_APPEND);
  if (fd < 0 || write(fd, "loaded\n", 7) != 7) _exit(9);
}
END
if ! cc -shared -fPIC -o "$folder/tell.so" "$folder/tell.c" 2> /dev/null; then skip "secure: no compiler"; finish; fi
chmod 755 "$folder/tell.so"
export STOWAGE_HDF5_LIBRARY=$folder/tell.so TELL=$folder/loaded
: > "$TELL"
chmod 666 "$TELL"
"$stowage" inspect "$folder/a.h5" > "$folder/plain" 2>&1
check a_library_is_named_by_the_variable grep -q '^loaded$' "$TELL"
: > "$TELL"
"$folder/stowage" inspect "$folder/a.h5" > "$folder/setuid" 2>&1
check but_not_for_a_setuid_copy test ! -s "$TELL"
check which_still_answers grep -q a.h5 "$folder/setuid"
finish
