# Sourced by corpus.sh and formats.sh, after lib.bash. Sets `python` to the Python that $STOWAGE_FORMATS_PYTHON names, which has
# pandas (2.2 or later), polars, DuckDB and pyarrow; skips the test NAME and ends where one of them is missing.
formats_python() { # NAME
  python=${STOWAGE_FORMATS_PYTHON:-python3}
  local package
  for package in numpy pandas polars duckdb pyarrow; do
    "$python" -c "import $package" > /dev/null 2>&1 && continue
    skip "$1: $python has no $package; STOWAGE_FORMATS_PYTHON may name another"
    finish
    exit
  done
  export PYTHONDONTWRITEBYTECODE=1 STOWAGE_INTERPRETER=$python PYTHONPATH=$source_dir/tests/cli:$source_dir/python
}
