#!/usr/bin/env bash
# Files are created in one place, which follows no planted link: base/newfile.c in C; in Python with O_EXCL or tempfile.
. "$(dirname "$0")/lib.bash"
cd "$source_dir" || exit 1
{
  grep -rnE 'O_CREAT|O_TMPFILE|\b(mkstemp|mkostemp|mkstemps|mktemp|tmpfile|tmpnam|creat)\(|\bfreopen\(' src include --include='*.c' --include='*.h' --include='*.inc'
  grep -rnE '\bfopen\([^;]*"[wa][^"]*"' src include --include='*.c' --include='*.h'
} | grep -vE '^src/base/newfile\.[ch]:' > "$folder/c"
if [ -s "$folder/c" ]; then cat "$folder/c"; fail files_are_created_by_newfile_alone; else ok files_are_created_by_newfile_alone; fi
# Writing modes of open() only on a descriptor, with our opener, or on files of /proc.
grep -rnE "\bopen\([^)]*[\"'][rwax+bt]*[wax+][bt+]*[\"']|write_text\(|write_bytes\(|O_CREAT|mktemp\(" python/stowage src --include='*.py' |
  grep -vE 'open\(fd,|opener=create|"/proc/self/|O_EXCL \| os\.O_NOFOLLOW|hasattr\(given' > "$folder/python"
if [ -s "$folder/python" ]; then cat "$folder/python"; fail python_creates_files_that_must_be_new; else ok python_creates_files_that_must_be_new; fi
finish
