#!/usr/bin/env bash
# Inside Python: inside.py runs on the main thread once CUDA is in use, and does no harm if it has nothing to do.
. "$(dirname "$0")/lib.bash"
# Every installed CPython; STOWAGE_TEST_PYTHONS lists further ones by path.
pythons=() versions=
for python in ${STOWAGE_TEST_PYTHONS:-} python3 python3.8 python3.9 python3.10 python3.11 python3.12 python3.13 python3.14 /usr/bin/python3; do
  # The program itself: the name may be that of a wrapper (pyenv), which starts several others.
  read -r version python < <("$python" -c 'import ctypes, sys; print("%d.%d" % sys.version_info[:2], sys.executable)' 2> /dev/null) || continue
  case " $versions " in *" $version "*) continue ;; esac
  pythons+=("$python") versions="$versions $version"
done
if [ ${#pythons[@]} = 0 ]; then skip "inside_python: no python3 with ctypes"; finish; fi
export PYTHONPATH=$source_dir/tests/shim/python PYTHONDONTWRITEBYTECODE=1
trace=$folder/a.stow
events() { "$stowage" convert "$trace" "$folder/out.csv" > /dev/null 2>&1 && cat "$folder/out.csv"; }
# A plain run, ten times with every Python, those of pyenv included: the watch of host memory takes the interpreter's lock while it starts.
starts=
for python in "${pythons[@]}" "$HOME"/.pyenv/versions/*/bin/python3; do
  version=$("$python" -c 'import sys; assert sys.version_info >= (3, 8); print("%d.%d" % sys.version_info[:2])' 2> /dev/null) || continue
  case " $starts " in *" $version "*) continue ;; esac
  starts="$starts $version"
  wrong=0
  for ((turn = 0; turn < 10; turn++)); do
    [ "$(stowage_run -- "$python" -c 'import ast, json; print("fine")' 2> "$folder/said")" = fine ] && [ ! -s "$folder/said" ] || { wrong=1; head -n 5 "$folder/said"; }
  done
  if [ $wrong = 0 ]; then ok "starts_$version"; else fail "starts_$version"; fi
  if [ "$(PYTHONPATH= "$python" "$source_dir/tests/shim/holders.py" 2> "$folder/said")" = fine ]; then ok "holders_$version"; else tail -n 5 "$folder/said"; fail "holders_$version"; fi
done
# inside NAME PROGRAM WORDS…: with every Python, the program prints `fine` and nothing else.
inside() {
  local name=$1 program=$2 python out printed version i; shift 2
  local -a known
  read -ra known <<< "$versions"
  for i in "${!pythons[@]}"; do
    python=${pythons[i]} version=${known[i]}
    rm -f "$trace" "$folder/shim.log"
    out=$(STOWAGE_SHIM_LOG=$folder/shim.log stowage_run --record "$trace" "$@" -- "$python" -c "$program" 2> "$folder/said"); code=$?
    printed=$out out+=$'\n'$(< "$folder/said")
    # Our own final messages about limits do not count.
    if [ "$code" = 0 ] && [ "$printed" = fine ] && ! grep -qv '^stowage run: ' "$folder/said"; then ok "${name}_$version"; else echo "code $code: $out"; cat "$folder/shim.log"; fail "${name}_$version"; fi
    if [ -n "${then:-}" ] && ! eval "$then"; then cat "$folder/shim.log"; events | head; fail "${name}_$version: $then"; fi
  done
}

then='[ $(events | grep -c step) = 6 ]' inside steps_of_an_optimizer_are_marked '
import cuda, torch
cuda.start()
a = cuda.alloc(cuda.MIB)
for turn in range(3): assert torch.optim.SGD().step() == "stepped"
cuda.free(a)
print("fine")'
then='! events | grep_all step' inside a_program_without_torch_is_left_alone '
import cuda, sys
cuda.start()
a = cuda.alloc(cuda.MIB)
for turn in range(1000): pass
assert "torch" not in sys.modules and "stowage_inside" not in sys.modules
print("fine")'
then='[ $(events | grep -c step) = 2 ]' inside a_framework_imported_later_is_found '
import cuda
cuda.start()
for turn in range(100): cuda.free(cuda.alloc(cuda.MIB))
import torch
for turn in range(100): cuda.free(cuda.alloc(cuda.MIB))
torch.optim.SGD().step()
print("fine")'
then='! events | grep_all step' STOWAGE_PYTHON=off inside it_can_be_switched_off '
import cuda, torch
cuda.start()
a = cuda.alloc(cuda.MIB)
torch.optim.SGD().step()
print("fine")'
# With spilling, PyTorch gets expandable segments: if it has none, this is reported, unless the user disabled them.
whole='PyTorch does not use expandable segments'
torch_starts='
import cuda, torch
cuda.start()
a = cuda.alloc(cuda.MIB)
torch.optim.SGD().step()
print("fine")'
then='grep -q "$whole" <<< "$out"' inside segments_that_were_asked_for_and_are_not_there_are_reported "$torch_starts" --spill 64M
then='! grep -q "$whole" <<< "$out"' STANDIN_EXPANDABLE=1 inside and_not_where_they_are_there "$torch_starts" --spill 64M
then='! grep -q "$whole" <<< "$out"' PYTORCH_ALLOC_CONF=expandable_segments:False inside nor_where_they_were_not_wanted "$torch_starts" --spill 64M
then='! grep -q "$whole" <<< "$out"' inside nor_without_a_spill "$torch_starts"
# An old PyTorch fails with a setting that it does not know, so it must not see ours. Its version comes from a file near its
# library.
mkdir -p "$folder/torch/lib"
cp "$programs/libc10_cuda.so" "$folder/torch/lib/"
for case in "2.0.1+cu117 none" "1.13.1 none" "2.1.0 expandable_segments:True" "2.11.0 expandable_segments:True" "nonsense expandable_segments:True"; do
  printf '# made by its build\n__version__ = "%s"\ndebug = False\n' "${case% *}" > "$folder/torch/version.py"
  for said in "" max_split_size_mb:64; do
    want=${case#* }
    [ "$want" != none ] && [ -n "$said" ] && want=$said,$want
    [ "$want" = none ] && [ -n "$said" ] && want=$said
    name=settings_of_${case% *}${said:+_with_one_of_its_own}
    out=$(PYTORCH_CUDA_ALLOC_CONF=$said stowage_run --spill 64M -- python3 -c "
import ctypes
ctypes.CDLL('$folder/torch/lib/libc10_cuda.so')
import cuda
cuda.start()
get = ctypes.CDLL(None).getenv
get.restype = ctypes.c_char_p
print(*[(get(name) or b'none').decode() for name in (b'PYTORCH_ALLOC_CONF', b'PYTORCH_CUDA_ALLOC_CONF')])" 2> /dev/null)
    if [ "$out" = "$want $want" ]; then ok "$name"; else fail "$name: $out"; fi
  done
done
then='grep -q "$whole" <<< "$out"' STANDIN_TORCH_VERSION=2.0.1+cu117 STANDIN_EXPANDABLE=1 inside an_old_pytorch_is_reported_to_have_none "$torch_starts" --spill 64M
# XLA ends over a flag that it does not know: ours is set when a JAX that knows it is loaded, and only with a spill.
for library in jaxlib/libjax_common.so jaxlib/xla_extension.so jax_plugins/xla_cuda12/xla_cuda_plugin.so; do
  mkdir -p "$folder/site/${library%/*}"
  cp "$programs/libc10_cuda.so" "$folder/site/$library"
done
xla() { # NAME VERSION[,VERSION…] LIBRARY FLAGS WANT [OPTION…]
  local name=$1 version=$2 library=$3 flags=$4 want=$5 each; shift 5
  rm -rf "$folder"/site/jaxlib-*
  for each in ${version//,/ }; do mkdir "$folder/site/jaxlib-$each.dist-info"; done
  out=$(env ${flags:+"XLA_FLAGS=$flags"} "$stowage" run --quiet "$@" -- python3 -c "
import ctypes
ctypes.CDLL('$folder/site/$library')
get = ctypes.CDLL(None).getenv
get.restype = ctypes.c_char_p
print(get(b'XLA_FLAGS'))" 2> /dev/null)
  if [ "$out" = "$want" ]; then ok "$name"; else fail "$name: $out"; fi
}
flag=--xla_gpu_enable_command_buffer=
spill="--spill 64M"
xla command_buffers_of_jax_are_off 0.4.26 jaxlib/xla_extension.so '' "b'$flag'" $spill
xla also_by_the_plugin 0.6.0 jax_plugins/xla_cuda12/xla_cuda_plugin.so '' "b'$flag'" $spill
xla beside_flags_of_the_user 1.0.0 jaxlib/libjax_common.so --xla_x=1 "b'--xla_x=1 $flag'" $spill
xla not_over_the_users_choice 0.6.0 jaxlib/libjax_common.so "${flag}FUSION" "b'${flag}FUSION'" $spill
part=--xla_gpu_memory_limit_slop_factor=
half="--vram-limit 1G --spill 1G"
xla keeps_what_vram_can_hold 0.6.0 jaxlib/xla_extension.so '' "b'${part}37 $flag'" $half
xla keeps_all_with_an_older_jax 0.4.35 jaxlib/xla_extension.so '' "b'$flag'" $half
xla keeps_a_hundredth_at_least 0.6.0 jaxlib/xla_extension.so '' "b'${part}1 $flag'" --vram-limit 16M --spill 8G
xla keeps_what_the_user_said 0.6.0 jaxlib/xla_extension.so "${part}90" "b'${part}90 $flag'" $half
xla keeps_less_beside_graphs_of_the_user 0.6.0 jaxlib/xla_extension.so "${flag}FUSION" "b'${flag}FUSION ${part}37'" $half
xla adds_nothing_to_choices_for_both 0.6.0 jaxlib/xla_extension.so "$flag ${part}90" "b'$flag ${part}90'" $half
xla not_for_an_old_jax 0.4.20 jaxlib/xla_extension.so '' "b''" $spill
xla not_for_a_very_old_jax 0.3.25 jaxlib/xla_extension.so '' "b''" $spill
xla not_for_an_old_jax_beside_a_new_one 0.6.0,0.4.20,0.7.1 jaxlib/xla_extension.so '' "b''" $spill
long=$(printf '%4060s' "" | tr ' ' x)
xla without_a_flag_that_does_not_fit 0.6.0 jaxlib/xla_extension.so "$long" "b'$long $flag'" $half
xla not_for_one_of_unknown_version '' jaxlib/xla_extension.so '' "b''" $spill
xla not_for_another_library 0.6.0 ../torch/lib/libc10_cuda.so '' "b''" $spill
xla when_launches_are_recorded 0.6.0 jaxlib/xla_extension.so '' "b'$flag'" --record "$folder/xla.stow" --touches
xla not_without_a_spill 0.6.0 jaxlib/xla_extension.so '' None
# Stacks, with the lock and without it, on the main thread and on another, deep and with names that are not ASCII; the same place
# twice is one stack.
cat > "$folder/tränen.py" << 'END'
import cuda, threading
def störung(depth, by):
    if depth > 0: return störung(depth - 1, by)
    return cuda.alloc(cuda.MIB, by)  # line 4
def go():
    for turn in range(2): störung(3, cuda.driver)  # line 6
    störung(0, cuda.released)
END
# The last column, without the folders: "alloc:20|störung:4|…", a thread's stack cut where it begins.
lines() { events | sed -nE 's/^[0-9]+,[0-9]+,alloc,.*,([^,]*)$/\1/p' | sed -E 's/@[^ ]*:([0-9]+)/:\1/g; s/ < /|/g; s/\|run:.*/|run/'; }
deep="alloc:20|störung:4|störung:3|störung:3|störung:3|go:6" shallow="alloc:20|störung:4|go:7"
main="$deep|<module>:6 $deep|<module>:6 $shallow|<module>:6 " thread="$deep|run $deep|run $shallow|run "
then='[ "$(lines | tail -n 6 | tr "\n" " ")" = "$main$thread" ]' inside stacks_are_the_programs_lines '
import cuda, sys, threading
sys.path.insert(0, "'"$folder"'")
cuda.start(); cuda.alloc(cuda.MIB)
module = __import__("tr\u00e4nen")
module.go()
def run():
    cuda.start()
    module.go()
thread = threading.Thread(target=run)
thread.start(); thread.join()
print("fine")'
# Cells of a notebook: the code of each is freed at its end, and the next one's is at the same address.
cells='for turn in 0 1 2 3 4 5 6 7; do events | grep -q "<module>@cell$turn:2 <" || echo "$turn"; done'
then='[ -z "$(eval "$cells")" ]' inside cells_of_a_notebook_have_their_own_lines '
import cuda
cuda.start(); cuda.alloc(cuda.MIB)
for turn in range(8): exec(compile("a = 1\ncuda.alloc(cuda.MIB)\n", f"cell{turn}", "exec"), {"cuda": cuda})
print("fine")'
then='[ "$(lines | sort -u)" = "" ]' inside stacks_can_be_switched_off '
import cuda
cuda.start()
for turn in range(3): cuda.alloc(cuda.MIB)
print("fine")' --stacks off
# Ranges that the program names: the profiler's, and NVTX's through the table that NVTX passes to an injected library.
then='[ "$(events | cut -d, -f3,10 | grep "^mark" | tr "\n" " ")" = "mark_begin,forward mark_end,forward mark_begin,outer mark_begin,inner mark_end,inner mark_end,outer " ]' inside named_ranges_are_marks '
import ctypes, cuda, os, torch
cuda.start(); cuda.alloc(cuda.MIB)
with torch.autograd.profiler.record_function("forward"): cuda.alloc(cuda.MIB)
library = ctypes.PyDLL(os.environ["NVTX_INJECTION64_PATH"])
slots = [ctypes.c_void_p() for i in range(16)]
table = (ctypes.c_void_p * 16)(*[ctypes.addressof(slot) for slot in slots])
Get = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_uint))
@Get
def get(module, out, count):
    if module != 1: return 0
    out[0] = ctypes.addressof(table); count[0] = 16
    return 1
class Callbacks(ctypes.Structure): _fields_ = [("size", ctypes.c_size_t), ("get", Get)]
callbacks = Callbacks(16, get)
export = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_uint32)(lambda which: ctypes.addressof(callbacks) if which == 1 else None)
assert library.InitializeInjectionNvtx2(export) == 1
push = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_char_p)(slots[9].value)
pop = ctypes.PYFUNCTYPE(ctypes.c_int)(slots[11].value)
assert (push(b"outer"), push(b"inner"), pop(), pop(), pop()) == (0, 1, 1, 0, -1)
print("fine")'
# Blocks that PyTorch's allocator cuts from its segments: each with its stream, its lines and its end; PyTorch itself still
# receives the reports.
export STANDIN_TORCH=$programs/libc10_cuda.so
then='[ "$(events | grep -cE ",alloc,0,[07],1,[0-9]+,1048576,vram,,take@[^ ]*:5 <")" = 3 ] && [ "$(events | grep -c ",alloc,0,7,")" = 1 ] && [ "$(events | grep -c ",free_completed,.*,1048576,")" = 2 ] && [ "$(events | grep -c ",segment_alloc,")" = 1 ]' inside blocks_of_a_framework_are_recorded '
import ctypes, os, cuda
cuda.start(); cuda.alloc(cuda.MIB)
torch = ctypes.CDLL(os.environ["STANDIN_TORCH"]); torch.block_take.restype = ctypes.c_ulonglong
def take(): return torch.block_take(1000)
kept = [take() for turn in range(2)]
ctypes.c_longlong.in_dll(torch, "current_number").value = 7
kept.append(take())
for block in kept[:2]: torch.block_give(ctypes.c_ulonglong(block), 1000)
base = ctypes.CDLL(os.path.dirname(os.environ["STANDIN_TORCH"]) + "/libc10.so")
assert ctypes.c_longlong.in_dll(base, "noted_bytes").value == cuda.MIB and ctypes.c_longlong.in_dll(base, "noted_calls").value == 5
print("fine")'
# PyTorch reports once before it fails, and in no other case.
inside an_observer_and_no_history '
import cuda, torch
cuda.start(); cuda.alloc(cuda.MIB)
for turn in range(1000): pass
assert torch._C.history == [] and len(torch._C.observers) == 1
print("fine")'
# The first call comes from a thread, while the main thread waits for it without running Python; and threads continue to call.
inside threads_without_the_lock '
import cuda, torch, threading
cuda.start()
def work():
    cuda.start()
    for turn in range(200): cuda.free(cuda.alloc(cuda.MIB, cuda.released))
threads = [threading.Thread(target=work) for i in range(8)]
for t in threads: t.start()
for t in threads: t.join()
torch.optim.SGD().step()
print("fine")'
then='grep -q "inside: started: AttributeError" "$folder/shim.log"' inside a_framework_that_is_another_is_left_alone '
import cuda, sys, types
sys.modules["torch"] = types.ModuleType("torch")
cuda.start()
a = cuda.alloc(cuda.MIB)
for turn in range(1000): pass
print("fine")'
inside second_interpreters '
import cuda, torch
try: import _xxsubinterpreters as interpreters
except ImportError: import _interpreters as interpreters
other = interpreters.create()
cuda.start()
a = cuda.alloc(cuda.MIB)
(interpreters.run_string if hasattr(interpreters, "run_string") else interpreters.exec)(other, "for turn in range(1000): pass")
torch.optim.SGD().step()
interpreters.destroy(other)
print("fine")'
PYTHONWARNINGS=ignore inside children_of_fork '
import cuda, os, torch
cuda.start()
a = cuda.alloc(cuda.MIB)
torch.optim.SGD().step()
pid = os.fork()
if pid == 0:
    torch.optim.SGD().step()
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
print("fine")'
# Between two steps a framework releases its cache if some of it is on the host: the next step is in vram. Ten pages fit; two are
# weights. These pages are too small to move, so what a step took last is on the host while it has too much.
loop='
import cuda, pages, sys, torch
from pages import on_host
cuda.start()
cache = pages.Cache()
torch.cuda.caches.append(cache)
cache.take(0, 1)
cache.fill(0, 7)
sgd, ends = torch.optim.SGD(), sys.argv[1:]
def step(count, marks=ends or ["step", "zero"], first=2):
    places = range(first, first + count)
    cache.take(*places)
    for place in places: cache.fill(place, place)
    hosts = [place for place in (0, 1, *places) if on_host(place, cache)]
    for place in places: assert cache.byte(place) == place
    if marks[0] == "zero": sgd.zero_grad()
    cache.give(*places)
    sgd.step()
    if marks[-1] == "zero": assert sgd.zero_grad() == "zeroed"
    return hosts
'
# At the end it is said what would have avoided the spill; within the run info() says the same.
then='grep -qE "did not fit in vram.*; the state of AdamW is 2.5 GiB: .* more vram would avoid it" <<< "$out"' \
  inside what_would_avoid_the_spill_is_reported "$loop"'
sgd = torch.optim.AdamW()
for i in range(3): step(12)
import json, os, subprocess
run = json.loads(subprocess.run([os.environ["STOWAGE_COMMAND"], "info", "--json"], capture_output=True).stdout)["run"]
assert run["spilled_peak_bytes"] > 0 and run["step_ms"] > 0 and "AdamW" in run["spill_advice"], run
print("fine")' --vram-limit 40M --spill 200M
then='grep -qE " 1 of [23] timed steps spilled, [0-9]+ ms each; the others took" <<< "$out"' inside a_small_step_after_a_large_one_is_in_vram "$loop"'
assert step(4) == []
assert step(12) == [10, 11, 12, 13]
assert step(8, first=6) == [] and cache.byte(0) == 7
print("fine")' --vram-limit 40M --spill 80M
# PyTorch reports what it has allocated with every block: its statistics are not needed.
STANDIN_TORCH=$programs/libc10_cuda.so inside what_pytorch_reports_is_what_it_holds "$loop"'
torch.cuda.empty(1 << 20)
torch._C._cuda_memoryStats = None
assert step(4) == []
assert step(12) == [10, 11, 12, 13]
assert step(8, first=6) == []
print("fine")' --vram-limit 60M --spill 80M
# A caller that retries is refused first, but not while the program uses a private pool: PyTorch does not retry then.
STOWAGE_RETRIES=1 inside a_pool_of_the_programs_own_is_never_refused '
import cuda, pages, torch
cuda.start()
cache = pages.Cache()
cache.take(0)
with torch.cuda.memory.use_mem_pool(1): cache.take(*range(1, 14))
assert pages.on_host(13, cache)
try: cache.take(14)
except AssertionError: print("fine")' --vram-limit 40M --spill 80M
# The same if only the devices' sizes were queried before the pool.
STOWAGE_RETRIES=1 inside a_pool_from_the_first_block_on_is_never_refused '
import cuda, pages, torch
cuda.look()
with torch.cuda.memory.use_mem_pool(1):
    cuda.start()
    cache = pages.Cache()
    cache.take(*range(14))
assert pages.on_host(13, cache)
try: cache.take(14)
except AssertionError: print("fine")' --vram-limit 40M --spill 80M
inside gradients_that_go_in_the_middle_of_a_step "$loop"'
ends[:] = ["zero", "step"]
for turn in range(3): step(12, ends)
assert step(8, ends, 6) == [] and cache.byte(0) == 7
print("fine")' --vram-limit 40M --spill 80M
inside gradients_that_never_go "$loop"'
for turn in range(3): step(12, ["step"])
assert step(8, ["step"], 6) == [] and cache.byte(0) == 7
print("fine")' --vram-limit 40M --spill 80M
# Nothing of ours runs inside an import: up to Python 3.11 a second import there fails the first one.
inside it_waits_for_the_end_of_an_import '
import cuda, os
cuda.start()
def ran(): return "python: frames known" in open(os.environ["STOWAGE_SHIM_LOG"]).read()
def work():
    for turn in range(200): cuda.free(cuda.alloc(cuda.MIB))
names = {}
exec(compile("def find_and_load(work):\n    work()\n", "<frozen importlib._bootstrap>", "exec"), names)
names["find_and_load"](work)
assert not ran()
exec(compile("find_and_load(lambda: exec(compile(\"work()\", \"module.py\", \"exec\"), {\"work\": work}))", "x.py", "exec"), {**names, "work": work})
assert ran()
print("fine")'
# Memory is allocated and freed while the interpreter ends.
inside an_interpreter_that_ends '
import atexit, cuda, torch
cuda.start()
cuda.alloc(cuda.MIB)
class Late:
    def __del__(self): self.free(self.alloc(1 << 20))
late = Late(); late.alloc, late.free = cuda.alloc, cuda.free
atexit.register(lambda: cuda.free(cuda.alloc(cuda.MIB)))
print("fine")'
finish
