"""`python -m stowage` is the `stowage` command."""

from ._command import main

main()
