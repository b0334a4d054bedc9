#!/usr/bin/env bash
# The shim before a stand-in of every branch of NVIDIA's driver, from 535 (CUDA 12.2) to 615 (CUDA 13.4): each exports what
# that driver exports (tests/standin/driver-since.txt) and claims its CUDA version.
#
# Usage: matrix_drivers.sh [BRANCH…]; all of them otherwise. $STOWAGE_DRIVER_NAMES is a folder with the names that real drivers
# export, one file per branch: 535.names, … The stand-ins are compared with them. To make one from a driver's package:
#   nm -D --defined-only libcuda.so.535.* | awk '$3 ~ /^cu[A-Z]/ { sub(/@.*/, "", $3); print $3 }' | sort -u > 535.names
. "$(dirname "$0")/../guards/lib.bash"
branches=("$@")
[ $# -gt 0 ] || branches=(535 545 550 555 560 565 570 575 580 590 595 610 615)
if ! (cd "$source_dir" && cmake --build "$build" --target standin_matrix) > "$folder/log" 2>&1; then
  tail -n 20 "$folder/log"; fail "matrix_drivers: the stand-ins cannot be built"; finish
fi
names=${STOWAGE_DRIVER_NAMES:-}
for branch in "${branches[@]}"; do
  standin=$build/tests/standin/$branch/libcuda.so.1
  checks=0 bad=0 scripts=(command limits paths spill record)
  # Moving by age, and frees that do not wait for the device, need CUDA 12.5.
  [ "$branch" -lt 555 ] || scripts+=(pages plain)
  for script in "${scripts[@]}"; do
    STOWAGE_TEST_STANDIN=$standin timeout -k 5 900 bash "$source_dir/tests/shim/$script.sh" > "$folder/log" 2>&1
    code=$?
    checks=$((checks + $(grep -c '^ok ' "$folder/log")))
    if [ $code != 0 ] || grep -q '^FAIL ' "$folder/log" || ! grep -q '^ok ' "$folder/log"; then
      grep -v '^ok ' "$folder/log" | tail -n 20
      fail "driver_$branch: $script: code $code, $(grep -c '^FAIL ' "$folder/log") failed"
      bad=1
    fi
  done
  [ $bad = 1 ] || ok "driver_$branch: $checks checks of ${#scripts[@]} scripts"
  if [ -f "$names/$branch.names" ]; then
    nm -D --defined-only "$standin" | awk '$3 ~ /^cu[A-Z]/ { sub(/@.*/, "", $3); print $3 }' | grep -v '^cuMemRelease_v9$' | sort -u > "$folder/ours"
    grep -E '^cu[A-Z]' "$names/$branch.names" | sort -u > "$folder/theirs"
    # A driver may export a function before its version has a type for it.
    absent=$(comm -13 "$folder/ours" "$folder/theirs" | tr '\n' ' ') extra=$(comm -23 "$folder/ours" "$folder/theirs" | tr '\n' ' ')
    if [ -z "$extra" ] && [ "$(wc -w <<< "$absent")" -le 2 ]; then ok "driver_${branch}_names: $(wc -l < "$folder/theirs"), of which the stand-in lacks ${absent:-none}"
    else echo "lacks: $absent"; echo "has too many: $extra"; fail "driver_${branch}_names"; fi
  else
    skip "driver_${branch}_names: no $branch.names in \$STOWAGE_DRIVER_NAMES"
  fi
done
finish
