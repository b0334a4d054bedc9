#!/usr/bin/env bash
# NVML reports the same limited figures as the driver if there is a limit or spilling, and unchanged figures otherwise.
. "$(dirname "$0")/lib.bash"
# The stand-in NVML has two devices whose order alone is known; the first is the stand-in driver's.
export STOWAGE_LIBNVML=$build/tests/standin/libnvidia-ml.so.1 CUDA_DEVICE_ORDER=PCI_BUS_ID STANDIN_PROCESSES=3
nvml=$build/libstowage-shim-nvml.so

says nvml_reports_the_limit 'info 0 free 100 total 100;nvml 0 0 0 total 100 100 free 100 100 used 0 0 own 0;alloc 0;info 0 free 40 total 100;nvml 0 0 0 total 100 100 free 40 40 used 60 60 own 0;' --vram-limit 100M -- info nvml alloc:60M info nvml
says and_what_may_be_spilled 'page 0;page 0;info 0 free 140 total 300;nvml 0 0 0 total 300 300 free 140 140 used 160 160 own 0;' --vram-limit 100M --spill 200M -- page:80M page:80M info nvml
says a_limit_of_another_device_changes_nothing_here 'nvml 0 0 0 total 16384 16384 free 10240 10240 used 6144 5120 own 0;' --vram-limit 1=100M -- nvml
LD_LIBRARY_PATH=$build/tests/standin says without_a_limit_nvml_is_itself 'nvml 0 0 0 total 16384 16384 free 10240 10240 used 6144 5120 own 0;' --fast-malloc -- nvml
same without_a_limit_its_proxy_is_not_loaded "" stowage_run -- sh -c 'case $LD_PRELOAD in *nvml*) echo loaded ;; esac'
out=$(stowage_run --vram-limit 100M -- sh -c "export STANDIN_PID=\$\$; exec '$holder' alloc:$((60 * M)) nvml" 2> /dev/null | tail -n 1)
if [[ $out == *" own 60" ]]; then ok a_process_is_reported_with_what_it_holds; else echo "$out"; fail a_process_is_reported_with_what_it_holds; fi

# Every name of the real library exists and reaches it: those that the stand-in lacks return "function not found" (13).
check every_name_is_exported bash -c "diff <(sort '$source_dir/src/shim/nvml-symbols.txt') <(nm -D --defined-only '$nvml' | awk '{ print \$3 }' | sort)"
if has python3; then
  python='import ctypes, os
n = ctypes.CDLL("libnvidia-ml.so.1")
n.nvmlErrorString.restype = ctypes.c_char_p
text = ctypes.create_string_buffer(80)
print(n.nvmlInit_v2(), n.nvmlSystemGetDriverVersion(text, 80), text.value.decode(), n.nvmlDeviceGetFanSpeed(None, None), n.nvmlErrorString(9).decode())'
  same names_without_a_hook_reach_the_library "0 0 580.95.05 13 Driver Not Loaded" stowage_run --vram-limit 100M -- python3 -c "$python"
  same and_without_a_library_this_is_reported "12 12  12 NVML is not here" env -u STOWAGE_LIBNVML STOWAGE_LIBCUDA=/nonexistent LD_PRELOAD="$nvml" python3 -c "$python"
else
  skip "names_without_a_hook_reach_the_library: no python3"
fi
finish
