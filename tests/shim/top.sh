#!/usr/bin/env bash
# stowage top: compares its numbers with what programs hold; its widths, and the live screen in tmux.
. "$(dirname "$0")/lib.bash"
if ! has python3; then skip "top: no python3"; finish; fi
export STOWAGE_LIBNVML=/nowhere LC_ALL=C.UTF-8
socket=$folder/one
mkfifo "$folder/until" "$folder/until2"
exec 7<> "$folder/until" 8<> "$folder/until2"
deadline=600 # the programs live as long as this script

# Two programs that hold memory until they are asked to end: one on the stand-in device, one in Python without a device.
stowage_run --vram-limit 100M --spill 200M -- "$holder" alloc:$((60 * M)) page:$((20 * M)) page:$((60 * M)) pin:$((3 * M)) say:now read < "$folder/until" > "$folder/holder" 2> "$folder/err" 7>&- 8>&- &
first=$!
cat > "$folder/lines.py" << 'EOF'
import ctypes, sys
cuda, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
cuda.cuInit(0), cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0), cuda.cuCtxSetCurrent(context)
def take(size):
    assert cuda.cuMemAlloc_v2(ctypes.byref(ctypes.c_ulonglong()), ctypes.c_size_t(size)) == 0
for _ in range(3):
    take(5 << 20)
keep = b"x" * (40 << 20)
print("now", flush=True)
sys.stdin.readline()
EOF
stowage_run --record "$folder/lines.stow" --stacks auto -- python3 "$folder/lines.py" < "$folder/until2" > "$folder/lines" 2>> "$folder/err" 7>&- 8>&- &
second=$!
for file in holder lines; do
  for _ in $(seq 2000); do grep_all now "$folder/$file" && break; sleep 0.05; done
done

"$stowage" top --json > "$folder/top.json" 2> "$folder/err.top"
pid=$(python3 -c 'import json, sys; print(next(p["pid"] for p in json.load(open(sys.argv[1]))["processes"] if "lines.py" in p["command"] and p["name"].startswith("python")))' "$folder/top.json")
"$stowage" top --json --pid "$pid" > "$folder/lines.json"
if python3 - "$folder/top.json" "$folder/lines.json" << 'EOF'
import json, sys
M = 1 << 20
top, lines = (json.load(open(path)) for path in sys.argv[1:])
holder = next(p for p in top["processes"] if p["name"] == "holder")
python = next(p for p in top["processes"] if "lines.py" in p["command"] and p["held_bytes"])
assert holder["held_bytes"] + holder["spilled_bytes"] >= 140 * M and holder["spilled_bytes"] >= 40 * M and holder["pinned_bytes"] == 3 * M, holder
assert holder["held_bytes"] <= 100 * M, holder
assert python["held_bytes"] >= 15 * M and python["host_bytes"] >= 40 * M and python["rate_bytes_s"] is not None, python
assert {python["run"], holder["run"]} == {0, 1} and len(top["runs"]) == 2, top["runs"]
device = next(d for d in top["devices"] if d["limit_bytes"] == 100 * M)
assert device["spill_limit_bytes"] == 200 * M and device["spilled_bytes"] == holder["spilled_bytes"], device
assert top["host"]["total_bytes"] > top["host"]["available_bytes"] > 0, top["host"]
chosen = lines["chosen"]
assert chosen["pid"] == python["pid"] and chosen["live_bytes"] == 15 * M, chosen
# The first call may come before the recorder can read Python's frames.
assert any("lines.py:5" in h["label"] and h["count"] >= 2 and h["bytes"] == h["count"] * 5 * M for h in chosen["holders"]), chosen
EOF
then ok it_counts_what_programs_hold; else cat "$folder/err" "$folder/err.top"; fail it_counts_what_programs_hold; fi

# A name with control sequences is shown without them.
mkfifo "$folder/until3"
exec 9<> "$folder/until3"
stowage_run -- bash -c 'exec -a "$1" "$2" alloc:1048576 say:now read' - $'evil\e]0;title\a\e[31m' "$holder" < "$folder/until3" > "$folder/evil" 2> /dev/null 7>&- 8>&- 9>&- &
third=$!
for _ in $(seq 2000); do grep_all now "$folder/evil" && break; sleep 0.05; done
"$stowage" top --once > "$folder/named"
check names_cannot_command_a_terminal bash -c "grep -q evil '$folder/named' && ! grep -qP '[\x1b\x07]' '$folder/named'"
echo end >&9
wait $third
exec 9>&-

# Without a device the holders are those of host memory, each with its line, which 80 columns show.
printf 'import sys\nkeep = [bytearray(8 << 20) for turn in range(12)]\nprint("now", flush=True)\nsys.stdin.readline()\n' > "$folder/keeps_host.py"
mkfifo "$folder/until4"
exec 9<> "$folder/until4"
STOWAGE_LIBCUDA=/nowhere stowage_run -- python3 "$folder/keeps_host.py" < "$folder/until4" > "$folder/keeps" 2> /dev/null 7>&- 8>&- 9>&- &
third=$!
for _ in $(seq 2000); do grep_all now "$folder/keeps" && break; sleep 0.05; done
for _ in $(seq 100); do
  COLUMNS=80 "$stowage" top --once --filter keeps_host.py > "$folder/named"
  grep_all 'keep  keeps_host.py:2  list' "$folder/named" && break
  sleep 0.1
done
check host_memory_is_shown_by_line grep -q '96.0 MiB .* keep  keeps_host.py:2  list' "$folder/named"
echo end >&9
wait $third
exec 9>&-

# One sample as text: it fits the width, and has no escape sequences in a pipe.
for width in 80 160; do
  COLUMNS=$width "$stowage" top --once > "$folder/once.$width"
  if python3 -c 'import sys; lines = open(sys.argv[1], encoding="utf-8").read().splitlines(); wide = max(map(len, lines)); assert wide <= int(sys.argv[2]) and len(lines) > 5, wide; assert not any("\x1b" in l for l in lines)' "$folder/once.$width" $width
  then ok "it_fits_$width columns"; else cat "$folder/once.$width"; fail "it_fits_$width columns"; fi
done
# A note that does not fit ends after a whole word, with a mark: "run 1515" of run 15158 would name another run.
cut=0 whole=0
for width in 74 80 90 118; do
  while read -r note; do
    case $note in *'…') cut=$((cut + 1)) ;; *) if [[ $note =~ ^device\ [0-9]+\ of\ run\ ([0-9]+)$ ]] && kill -0 "${BASH_REMATCH[1]}"; then whole=$((whole + 1)); else echo "$width columns: $note"; cut=-99; fi ;; esac
  done < <(COLUMNS=$width "$stowage" top --once | sed -nE 's/^device .* (device .*)$/\1/p')
done
if [ $cut -gt 0 ] && [ $whole -gt 0 ]; then ok "a_note_is_not_cut_within_a_word: $whole whole, $cut shortened"; else fail "a_note_is_not_cut_within_a_word: $whole whole, $cut shortened"; fi
check a_wide_screen_has_more_columns bash -c "grep -q 'TREND' '$folder/once.160' && grep -q PINNED '$folder/once.160' && ! grep -q TREND '$folder/once.80' && grep -q 'SPILLED' '$folder/once.80'"
check plain_characters_where_the_locale_has_no_others bash -c "LC_ALL=C '$stowage' top --once | python3 -c 'import sys; sys.stdin.buffer.read().decode(\"ascii\")'"
"$stowage" top --once --filter lines.py > "$folder/filtered"
check a_filter_filters bash -c "grep -q lines.py '$folder/filtered' && ! grep -q holder '$folder/filtered'"
COLUMNS=200 "$stowage" top --once --sort host > "$folder/sorted"
check a_sort_sorts python3 -c 'import re, sys; rows = [l for l in open(sys.argv[1], encoding="utf-8") if re.match(r"^[> ] +\d+ ", l)]; where = [next(i for i, l in enumerate(rows) if word in l) for word in (" python3 ", " holder alloc")]; assert where[0] < where[1], rows' "$folder/sorted"
for bad in '--interval 0' '--interval x' '--sort size' '--pid 0'; do
  # shellcheck disable=SC2086
  "$stowage" top --once $bad > "$folder/out" 2> "$folder/refused"; got=$?
  if [ $got = 2 ] && grep -q -- "${bad% *}" "$folder/refused"; then ok "refused: $bad"; else cat "$folder/refused"; fail "refused: $bad: code $got"; fi
done

# The live screen.
screen() { tmux -S "$socket" "$@"; }
shown() { # NAME WORDS: the screen comes to show them
  local i
  for i in $(seq 1000); do
    if screen capture-pane -p 2> /dev/null | grep_all -- "$2"; then ok "$1"; return; fi
    sleep 0.05
  done
  screen capture-pane -p; fail "$1: no \"$2\""
}
start() { # WIDTH HEIGHT [VARIABLE=VALUE…]
  local width=$1 height=$2; shift 2
  screen -f /dev/null new-session -d -x "$width" -y "$height" "env $* '$stowage' top --interval 0.2; echo code \$?; read -r end"
}
if ! has tmux; then
  skip "top_live: no tmux (Debian, Ubuntu: apt-get install tmux)"
elif ! ldconfig -p 2> /dev/null | grep_all libncursesw.so.6; then
  skip "top_live: no ncurses (Debian, Ubuntu: apt-get install libncursesw6)"
else
  start 80 24
  shown live_it_shows_processes 'holder alloc'
  shown live_it_names_its_keys 'q quit'
  screen send-keys /; screen send-keys -l 'lines.py'; screen send-keys Enter
  shown live_a_filter_filters 'filter: lines.py'
  shown live_the_chosen_process_by_line 'lines.py:5'
  screen send-keys t
  shown live_by_tag 'by tag'
  screen send-keys Escape
  shown live_escape_clears_the_filter 'holder alloc'
  screen send-keys s
  shown live_s_sorts_by_the_next_column 'sort: cached'
  screen send-keys '?'
  shown live_help_explains_columns_and_keys 'keeps for reuse'
  # The longest lines end as they should: nothing is cut at 80 columns.
  shown live_help_explains_the_rate_at_80_columns 'RATE/s .*(wide screens)$'
  shown live_help_explains_all_keys_at_80_columns ' a  *all processes, or of runs and GPUs$'
  screen send-keys '?'
  screen resize-window -x 160 -y 40
  shown live_a_wider_screen_has_trends 'TREND'
  screen send-keys q
  shown live_q_ends_it 'code 0'
  screen kill-server
  socket=$folder/two
  start 80 24 STOWAGE_LIBNCURSES=/nowhere
  shown without_ncurses_it_says_so 'ncurses is not installed'
  shown without_ncurses_it_shows_the_same 'holder alloc'
  screen send-keys C-c
  shown without_ncurses_ctrl_c_ends_it 'code 0'
  screen kill-server
fi

echo end >&7
echo end >&8
wait $first $second
exec 7>&- 8>&-
"$stowage" top --json > "$folder/top.json"
check ended_runs_are_gone python3 -c 'import json, sys; assert json.load(open(sys.argv[1]))["runs"] == []' "$folder/top.json"
finish
