#!/usr/bin/env bash
# The tutorial with the PyTorch of STOWAGE_TEST_TORCH: also the parts that need a newer one than the distribution's, and with PyTorch 2.11
# every figure on the page.
exec bash "$(dirname "$0")/../cli/tutorial.sh"
