#!/usr/bin/env bash
# Tables against Python's csv module: a seeded slice of random quoted tables. tests/long/csv_random.sh runs many more.
. "$(dirname "$0")/../guards/lib.bash"
cd "$folder" || exit 1
check random_quoted_tables_agree_with_the_csv_module python3 "$source_dir/tests/cli/csv_random.py" "$stowage" 150 1
finish
