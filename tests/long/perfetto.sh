#!/usr/bin/env bash
# Checks the .pftrace of convert with the protobuf definitions of PyPI's package perfetto. STOWAGE_PERFETTO_PYTHON: a Python that
# has it.
. "$(dirname "$0")/../guards/lib.bash"
python=${STOWAGE_PERFETTO_PYTHON:-python3}
if ! "$python" -c 'import perfetto.protos.perfetto.trace.perfetto_trace_pb2' 2> /dev/null; then
  skip "perfetto: $python has no package perfetto (python3 -m venv v && v/bin/pip install perfetto, then STOWAGE_PERFETTO_PYTHON=v/bin/python)"
  finish
fi
for name in leak oom_gpt_15gib_stacks gpt_varlen_limit36.5; do
  "$stowage" convert "$source_dir/tests/samples/$name.pickle.gz" "$folder/$name.pftrace" > "$folder/out" || fail "perfetto_$name: convert"
  if said=$("$python" "$source_dir/tests/long/perfetto_check.py" "$folder/$name.pftrace" "$source_dir/tests/samples/$name.pickle.gz" 2>&1); then
    ok "perfetto_$name: $said"
  else
    fail "perfetto_$name: $(tail -n 2 <<< "$said" | tr '\n' ' ')"
  fi
done
finish
