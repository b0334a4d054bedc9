#!/usr/bin/env bash
# Text from outside reaches a terminal clean. Static check: which files may print at all. Dynamic check (terminal.py): every
# verb that prints, on files whose names hold escape sequences, C1 and bidirectional controls and invalid UTF-8, into a pipe
# and into a terminal.
. "$(dirname "$0")/lib.bash"
cd "$source_dir" || exit 1
# One file prints for the command: cli/output.c, which cleans the text. The others print only their own text or the caller's bytes:
# base/progress.c and base/lock.c constants, base/assert.c its own conditions and numbers, device/cuda_probe_child.c to a pipe of our own,
# files/outfile.c contents of an output, shim/account.c its own words.
allowed='^src/(cli/output|base/progress|base/lock|base/assert|device/cuda_probe_child|files/outfile|shim/account)\.c:'
# The signal handler of cli/interrupt.c writes one of four texts, whose only name passed through output_name.
handler='^src/cli/interrupt\.c:[0-9]+:  ssize_t wrote = write\(STDERR_FILENO, text, strlen\(text\)\);$'
grep -q 'const char \*name = output_name(path);' src/cli/interrupt.c || fail the_signal_handler_cleans_its_name
{
  grep -rnE '(^|[^a-z_])(printf|vprintf|fprintf|vfprintf|dprintf|fputs|puts|putchar|fputc|putc|fwrite|perror|psignal|warnx|errx)\(' src --include='*.c' --include='*.inc'
  grep -rnE '\b(write|writev)\((1|2|STDOUT_FILENO|STDERR_FILENO|fileno\(std(out|err)\))\b' src --include='*.c'
} | grep -vE "$allowed" | grep -vE "$handler" > "$folder/printing"
if [ -s "$folder/printing" ]; then cat "$folder/printing"; fail only_output_prints; else ok only_output_prints; fi
# Python prints only results (whose repr is cleaned), tables of _show, and the output of the command.
grep -rnE '\bprint\(|std(out|err)\.write\(' python/stowage |
  grep -vE '>>> |print\(answer(, file=sys\.stderr)?\)|print\(_show\.text_table|print\(said\.rstrip\(\)\)|print\(f"\{size\(before\)|print\("The kernel|made\.text, file=sys\.stderr|sys\.stdout\.write\(run\(' > "$folder/python"
if [ -s "$folder/python" ]; then cat "$folder/python"; fail python_prints_answers_only; else ok python_prints_answers_only; fi
python=${STOWAGE_TEST_PYTHON:-python3}
if has "$python"; then STOWAGE=$stowage "$python" "$source_dir/tests/guards/terminal.py" "$folder" || failed=1; else skip "terminal: no python3"; fi
finish
