#!/usr/bin/env bash
# The examples do what they claim: here with the stand-in driver; on a GPU they run unchanged.
. "$(dirname "$0")/lib.bash"
export STANDIN_VRAM=$((8192 * M))
if "${CC:-cc}" -Wall -Werror -o "$folder/plain" "$source_dir/examples/run/plain.c" -ldl > "$folder/log" 2>&1; then ok the_plain_program_compiles_by_its_own_line; else cat "$folder/log"; fail the_plain_program_compiles_by_its_own_line; fi
same as_it_is "GPU memory: 8192 MiB, 8192 MiB free
4096 MiB allocated" env LD_LIBRARY_PATH="$build/tests/standin" "$folder/plain"
same it_stops_at_its_limit "GPU memory: 2048 MiB, 2048 MiB free
2048 MiB allocated
stowage run: device 0: at the peak 2.0 GiB in vram of 2.0 GiB allowed" stowage_run --vram-limit 2G -- "$folder/plain"
same it_continues_in_host_memory "GPU memory: 6144 MiB, 6144 MiB free
4096 MiB allocated
stowage run: device 0: at the peak 1.8 GiB in vram of 2.0 GiB allowed, 2.2 GiB in host memory
stowage run: 2.2 GiB did not fit in vram; 2.2 GiB more vram would avoid it" stowage_run --vram-limit 2G --spill 4G -- "$folder/plain"
check its_record_is_read bash -c "cd '$folder' && '$stowage' run --fast-malloc --record plain.stow -- ./plain && '$stowage' report plain.stow --text"
if has python3; then check the_training_script_is_python python3 -m py_compile "$source_dir/examples/run/train.py"; else skip "the_training_script_is_python: no python3"; fi
rm -rf "$source_dir/examples/run/__pycache__"
finish
