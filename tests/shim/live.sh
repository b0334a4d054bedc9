#!/usr/bin/env bash
# A run that spills, while it runs: a line on the terminal, the bytes over the bus, and the end of a run that would be too slow.
. "$(dirname "$0")/lib.bash"
export STOWAGE_LIBNVML=$build/tests/standin/libnvidia-ml.so.1 CUDA_DEVICE_ORDER=PCI_BUS_ID STOWAGE_SPILL_STOP_SECONDS=1
mkfifo "$folder/wait"
# Eighty MiB of vram and eighty on the host, until a line arrives; a trap reports how it was asked to end.
spilling="exec 9<> '$folder/wait'; '$holder' page:$((60 * M)) page:$((60 * M)) say:spilled read <&9 >&8 & trap 'kill \$!; exit 43' TERM; wait \$!; exit \$?"

# Two GB per second of STANDIN_BUS are as much as --spill-stop allows for a second.
start=$SECONDS
STANDIN_BUS=2000000 stowage_run --vram-limit 100M --spill 200M --spill-stop 1G -- bash -c "$spilling" 8> /dev/null 2> "$folder/err"; code=$?
if [ $code = 43 ] && grep -q 'stopped: with 60.0 MiB on the host the bus carried 2.0 GB/s for 1 s, as much as --spill-stop allows (1.1 GB/s)' "$folder/err"; then
  ok "a_run_that_crawls_is_stopped: after $((SECONDS - start)) s"
else
  cat "$folder/err"; fail "a_run_that_crawls_is_stopped: code $code"
fi
if grep -q '60.0 MiB in host memory; about [0-9.]* GiB went over the bus meanwhile' "$folder/err"; then ok and_what_crossed_the_bus_is_reported; else cat "$folder/err"; fail and_what_crossed_the_bus_is_reported; fi

# A shell that ends immediately leaves no process running: its child writes its number, and is gone.
STANDIN_BUS=2000000 stowage_run --vram-limit 100M --spill 200M --spill-stop 1G -- sh -c "exec 9<> '$folder/wait'; sh -c 'echo \$\$ > \"$folder/number\"; exec \"$holder\" page:$((60 * M)) page:$((60 * M)) read <&9' > /dev/null; true" 2> "$folder/err"; code=$?
number=$(cat "$folder/number")
for turn in $(seq 600); do kill -0 "$number" 2> /dev/null || break; read -r -t 0.05 <> "$folder/wait"; done
if [ $code = 143 ] && ! kill -0 "$number" 2> /dev/null; then ok what_a_shell_started_is_stopped_too; else cat "$folder/err"; kill "$number" 2> /dev/null; fail "what_a_shell_started_is_stopped_too: code $code"; fi

# A bus that carries less, or a device without a reported PCIe rate, stops nothing: the run continues.
gently() { # NAME WHEN WORDS VARIABLE…: the words are printed while it runs, or at its end
  local name=$1 when=$2 words=$3; shift 3
  mkfifo "$folder/said-$name"
  env "$@" timeout -k 2 200 "$stowage" run --vram-limit 100M --spill 200M --spill-stop 4G/s -- bash -c "$spilling" 8> "$folder/said-$name" 2> "$folder/err" &
  local pid=$! word
  while read -r word && [ "$word" != spilled ]; do :; done < "$folder/said-$name"
  for turn in $([ "$when" = at_its_end ] || seq 600); do grep -q "$words" "$folder/err" && break; read -r -t 0.05 <> "$folder/said-$name"; done
  read -r -t 1.6 <> "$folder/said-$name"
  echo > "$folder/wait"; wait "$pid"; local code=$?
  if [ $code = 0 ] && ! grep -q 'run: stopped' "$folder/err" && grep -q "$words" "$folder/err"; then ok "$name"; else cat "$folder/err"; fail "$name: code $code"; fi
}
gently a_bus_that_carries_less_stops_nothing at_its_end 'went over the bus' STANDIN_BUS=2000000
gently without_a_pcie_rate_nothing_is_stopped while_it_runs 'NVML does not report the PCIe rate' STANDIN_HOST=

if python3 -c 'import pty; pty.openpty()' 2> /dev/null; then
  out=$(STANDIN_BUS=2000000 STOWAGE_SPILL_STOP_SECONDS=1 timeout -k 2 200 python3 - "$stowage" run --vram-limit 100M --spill 200M --spill-stop 1G -- bash -c "$spilling" 8> /dev/null << 'PYTHON'
import os, pty, sys
text = b""
pid, fd = pty.fork()
if pid == 0:
    os.execv(sys.argv[1], sys.argv[1:])
try:
    while True:
        data = os.read(fd, 4096)
        if not data: break
        text += data
except OSError:
    pass
os.waitpid(pid, 0)
sys.stdout.write(text.decode(errors="replace").replace("\r", "\n"))
PYTHON
)
  if grep -q '^.\[Kstowage run: 60.0 MiB on the host, 2.0 GB/s over the bus' <<< "$out"; then ok a_terminal_has_a_live_line; else echo "$out"; fail a_terminal_has_a_live_line; fi
else
  skip "a_terminal_has_a_live_line: no python3, or no terminal can be made here (is /dev/pts mounted?)"
fi
if grep -q 'on the host, ' "$folder/err"; then fail without_a_terminal_there_is_none; else ok without_a_terminal_there_is_none; fi
if stowage_run --spill-stop 20G -- true 2>&1 | grep_all 'nothing is spilled without --spill'; then ok stopping_without_a_spill_is_noted; else fail stopping_without_a_spill_is_noted; fi
stowage_run --spill-stop fast -- true > "$folder/out" 2>&1; code=$?
if [ $code = 2 ] && grep -q -- '--spill-stop "fast": must be a rate in bytes per second' "$folder/out"; then ok a_rate_that_is_none; else cat "$folder/out"; fail a_rate_that_is_none; fi
finish
