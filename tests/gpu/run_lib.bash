# Sourced by tests/gpu/run_*.sh: runs programs bare and under `stowage run`, and compares them. Needs a GPU.
. "$(dirname "${BASH_SOURCE[0]}")/../guards/lib.bash"
here=$source_dir/tests/gpu
export XDG_STATE_HOME=$folder/state
python=${STOWAGE_PYTHON:-python3}
# need MODULE NAME: skips the whole file if the module is missing, or if there is no GPU.
need() {
  if ! "$stowage" info 2> /dev/null | grep -q '^device .*GPU-'; then skip "$2: no device"; finish; fi
  if ! "$python" -c "import $1" > /dev/null 2>&1; then skip "$2: no $1 for $python"; finish; fi
}
field() { # NAME: of the JSON line on standard input
  sed -nE "s/.*\"$1\": \"?([^\",}]*)\"?[,}].*/\1/p" | tail -n 1
}
# runs FILE COMMAND…: stores the command's JSON line in FILE; fails if the command failed.
runs() {
  local file=$1; shift
  timeout -k 5 150 "$@" > "$file.out" 2> "$file.err" < /dev/null
  local code=$?
  grep '^{' "$file.out" | tail -n 1 > "$file"
  [ $code = 0 ] && [ -s "$file" ] || { tail -n 15 "$file.err"; return 1; }
}
# both NAME COMMAND…: equal results bare and under Stowage, and the count of memory within 1% of the driver's figure. Starts the
# bare run and returns; both_done waits for it and runs each under Stowage, alone on the GPU, because the driver's figure covers
# the whole GPU.
names=()
declare -A commands
both() {
  local name=$1; shift
  names+=("$name") commands[$name]=$*
  { runs "$folder/bare.$name" "$@" > "$folder/bare.$name.said" 2>&1; } &
}
both_done() {
  local name bare shimmed used counted moved
  wait
  for name in "${names[@]}"; do
    [ -s "$folder/bare.$name" ] || { cat "$folder/bare.$name.said"; fail "$name: does not run bare"; continue; }
    runs "$folder/shimmed" "$stowage" run -- ${commands[$name]} || { fail "$name: does not run under stowage run"; continue; }
    bare=$(field digest < "$folder/bare.$name") shimmed=$(field digest < "$folder/shimmed")
    if [ "$(field shim < "$folder/shimmed")" != true ]; then fail "$name: the shim is not loaded"; continue; fi
    if [ -z "$bare" ] || [ "$bare" != "$shimmed" ]; then fail "$name: results differ: $bare, $shimmed"; continue; fi
    moved=$(field context_moved_mib < "$folder/shimmed")
    if awk -v m="${moved:-0}" 'BEGIN { exit !(m > 64 || m < -64) }'; then fail "$name: what the driver itself holds moved by $moved MiB after it was warm"; continue; fi
    used=$(field used_mib < "$folder/shimmed") counted=$(field counted_mib < "$folder/shimmed")
    if awk -v u="$used" -v c="$counted" 'BEGIN { d = u - c; if (d < 0) d = -d; exit !(u > 0 && d <= 0.01 * u) }'; then
      ok "$name: equal results; of $used MiB the driver took, $counted MiB were counted${moved:+; its own share moved by $moved MiB}"
    else
      cat "$folder/shimmed"; fail "$name: the driver took $used MiB, $counted MiB were counted"
    fi
  done
  names=()
}
