#!/usr/bin/env bash
# Runs tests/shim/mover.sh in full: thousands of programs that move pages, with every driver call failing in turn.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 2
export STOWAGE_BUILD=${STOWAGE_BUILD:-$PWD/build/release}
export STOWAGE_COMMAND=${STOWAGE_COMMAND:-$STOWAGE_BUILD/stowage}
STOWAGE_TEST_LONG=1 exec bash tests/shim/mover.sh
