#!/usr/bin/env bash
# Thousands of programs that move pages, and every call of the driver failing in turn: tests/shim/mover.sh in full.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 2
export STOWAGE_BUILD=${STOWAGE_BUILD:-$PWD/build/release}
export STOWAGE_COMMAND=${STOWAGE_COMMAND:-$STOWAGE_BUILD/stowage}
STOWAGE_TEST_LONG=1 exec bash tests/shim/mover.sh
