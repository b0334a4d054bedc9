#!/usr/bin/env bash
# lint.sh BUILD: clang-tidy over everything that was compiled (its rules: .clang-tidy) and cppcheck over src/. Both must be
# silent. Shell scripts go through shellcheck where it is installed (words are split on purpose in places: SC2046, SC2086).
set -uo pipefail
cd "$(dirname "$0")/.." || exit 2
build=$1
failed=0
jobs=${CMAKE_BUILD_PARALLEL_LEVEL:-$(nproc)}

mapfile -t sources < <(git ls-files -co --exclude-standard 'src/*.c' 'tests/*.c' 'bench/*.c' 'examples/*.c')
# The compiler may be gcc; clang-tidy does not know all of its options.
if printf '%s\n' "${sources[@]}" |
    xargs -P "$jobs" -n 4 clang-tidy -p "$build" --quiet --warnings-as-errors='*' \
      --extra-arg=-Wno-unknown-warning-option > "$build/tidy.log" 2>&1; then
  echo "ok clang-tidy: ${#sources[@]} files"
else
  grep -E '(warning|error):' "$build/tidy.log" | sort -u
  echo "FAIL clang-tidy (all of it in $build/tidy.log)"
  failed=1
fi

if cppcheck --quiet -j "$jobs" --std=c11 --language=c --enable=warning,performance,portability --inline-suppr \
    --suppressions-list=tools/cppcheck.txt --error-exitcode=1 -D_GNU_SOURCE -I include -I src src; then
  echo "ok cppcheck"
else
  echo "FAIL cppcheck"
  failed=1
fi

if command -v shellcheck > /dev/null 2>&1; then
  if shellcheck -S warning -e SC1091,SC2154,SC2046,SC2086,SC1007 tools/*.sh tests/run.sh tests/guards/*.sh tests/cli/*.sh .ci/run; then echo "ok shellcheck"; else failed=1; echo "FAIL shellcheck"; fi
fi
exit "$failed"
